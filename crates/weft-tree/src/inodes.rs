//! All inodes in memory: those of the store, of which some are forgotten where there are too many,
//! and virtual ones ([`is_virtual`]), which nobody could read again.
//!
//! Virtual inodes lie beside the others. However many of them are held, they take no room from the
//! others, and no eviction has to go past them.

use crate::clock_map::{Cached, ClockMap};
use crate::inode::Inode;
use rustc_hash::FxHashMap;
use weft_store::Ino;

/// Numbers of virtual inodes begin here.
pub const FIRST_VIRTUAL: u64 = 1 << 62;

/// Numbers by which inodes of the past are known begin here, behind those of virtual ones. No tree
/// has an inode of such a number.
pub const FIRST_PAST: u64 = FIRST_VIRTUAL | 1 << 61;

/// First number behind those of inodes of the past.
const END: u64 = 1 << 63;

/// True if inode `ino` is virtual: an entry of a view, in memory alone.
pub fn is_virtual(ino: Ino) -> bool {
    (FIRST_VIRTUAL..FIRST_PAST).contains(&ino.0)
}

/// True if `ino` is a number by which an inode of the past is known.
pub fn is_past(ino: Ino) -> bool {
    (FIRST_PAST..END).contains(&ino.0)
}

/// The inodes.
pub struct Inodes {
    stored: ClockMap<Ino, Box<Inode>>,
    virtual_ones: FxHashMap<Ino, Weighed>,
    virtual_weight: usize,
}

/// A virtual inode, and what it weighed when it came.
struct Weighed {
    inode: Box<Inode>,
    weight: usize,
}

impl Inodes {
    /// None, with room for `weight_max` bytes of those that can be forgotten.
    pub fn new(weight_max: usize) -> Inodes {
        Inodes { stored: ClockMap::new(weight_max), virtual_ones: FxHashMap::default(), virtual_weight: 0 }
    }

    /// Bytes of all, about.
    pub fn weight(&self) -> usize {
        self.stored.weight() + self.virtual_weight
    }

    /// The number of virtual ones, and their bytes.
    pub fn virtual_ones(&self) -> (usize, usize) {
        (self.virtual_ones.len(), self.virtual_weight)
    }

    /// Inode `ino`, which is used now.
    pub fn get(&mut self, ino: &Ino) -> Option<&mut Box<Inode>> {
        if is_virtual(*ino) {
            return self.virtual_ones.get_mut(ino).map(|weighed| &mut weighed.inode);
        }
        self.stored.get(ino)
    }

    /// Inode `ino`.
    pub fn peek(&self, ino: &Ino) -> Option<&Inode> {
        if is_virtual(*ino) {
            return self.virtual_ones.get(ino).map(|weighed| &*weighed.inode);
        }
        self.stored.peek(ino).map(|inode| &**inode)
    }

    /// Sets inode `ino`.
    pub fn insert(&mut self, ino: Ino, inode: Box<Inode>) {
        if !is_virtual(ino) {
            return self.stored.insert(ino, inode);
        }
        let weight = inode.weight() + size_of::<(Ino, Weighed)>();
        let old = self.virtual_ones.insert(ino, Weighed { inode, weight });
        self.virtual_weight = self.virtual_weight - old.map_or(0, |old| old.weight) + weight;
    }

    /// The same, of a stored one that nobody has asked for.
    pub(crate) fn insert_unused(&mut self, ino: Ino, inode: Box<Inode>) {
        self.stored.insert_unused(ino, inode);
    }

    /// Takes inode `ino` out.
    pub fn remove(&mut self, ino: &Ino) -> Option<Box<Inode>> {
        if !is_virtual(*ino) {
            return self.stored.remove(ino);
        }
        let old = self.virtual_ones.remove(ino)?;
        self.virtual_weight -= old.weight;
        Some(old.inode)
    }

    /// Weighs inode `ino` anew after it grew or shrank: a virtual one does neither.
    pub fn reweigh(&mut self, ino: &Ino) {
        if !is_virtual(*ino) {
            self.stored.reweigh(ino);
        }
    }

    /// As [`ClockMap::owe`].
    pub(crate) fn owe(&mut self, inodes: usize) {
        self.stored.owe(inodes);
    }

    /// As [`ClockMap::evict`].
    pub fn evict(&mut self) -> Option<(Ino, Box<Inode>)> {
        self.stored.evict()
    }

    /// As [`ClockMap::is_owed`].
    pub(crate) fn is_owed(&self) -> bool {
        self.stored.is_owed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_store::{InodeRow, Timestamp};

    fn inode(ino: Ino) -> Box<Inode> {
        Box::new(Inode::loaded(InodeRow { ino, ..InodeRow::new_root(0, 0, Timestamp(0)) }))
    }

    #[test]
    fn virtual_inodes_keep_no_others_from_going() {
        const BYTES_MAX: usize = 1 << 20;
        let mut inodes = Inodes::new(BYTES_MAX);
        for number in 0..20_000 {
            let ino = Ino(FIRST_VIRTUAL + number);
            inodes.insert(ino, inode(ino));
        }
        let (count, held) = inodes.virtual_ones();
        assert!(count == 20_000 && held > BYTES_MAX && inodes.weight() == held);
        for number in 0..20_000 {
            inodes.insert(Ino(number), inode(Ino(number)));
            while inodes.evict().is_some() {}
            let others = inodes.weight() - held;
            assert!(others <= BYTES_MAX + BYTES_MAX / 8, "{others} after {number}");
        }
        let present = (0..20_000).filter(|number| inodes.peek(&Ino(*number)).is_some()).count();
        assert!(present > 1000, "they take no room from the others: {present}");
        for number in 0..20_000 {
            inodes.remove(&Ino(FIRST_VIRTUAL + number)).expect("still there");
        }
        assert_eq!(inodes.virtual_ones(), (0, 0));
    }
}
