//! Numbers of inodes that are restored.
//!
//! An inode of the past that has a name in the place now keeps its number. One that is gone gets
//! its number back, with another generation: handles of the former one must not find it. One that
//! lives elsewhere stays there, and the restored one gets a number that no inode ever had; unless
//! the place has a copy of it already, as after the same restoration.

use super::Restoring;
use super::subtree::Subtree;
use crate::volume::Vfs;
use rustc_hash::{FxHashMap, FxHashSet};
use weft_store::{Cookie, Generation, Ino, NameRow};

/// Bits of a generation; the uppermost one says something else to NFS.
const GENERATION_BITS: u32 = 0x7fff_ffff;

/// The origin of a restored inode's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// The inode is there now and keeps it.
    Kept,
    /// It was the inode's then, and is nobody's now.
    Back,
    /// It is new.
    New,
    /// It is that of another inode, a copy that is there now and stays as it is.
    Copy,
}

/// New numbers, reserved for one restoration.
pub(super) struct Numbers {
    next: u64,
    /// The generation of inodes that get their number back.
    back: Generation,
    /// The generation of new inodes.
    new: Generation,
}

impl Numbers {
    /// Reserves `count` of them, unless it is for a rehearsal.
    pub(super) fn reserve(vfs: &Vfs, count: u64, is_rehearsal: bool) -> Numbers {
        let mut state = vfs.state.lock();
        let counters = &mut state.tree.counters;
        let next = counters.next_id;
        if !is_rehearsal {
            counters.next_id += count;
        }
        let bits = |number: u64| Generation::try_from(number & u64::from(GENERATION_BITS)).expect("31 bits");
        // No two restorations are the same operation.
        Numbers { next, back: bits(counters.op.next().0), new: bits(counters.epoch) }
    }

    pub(super) fn ino(&mut self) -> Ino {
        Ino(self.cookie().0)
    }

    pub(super) fn cookie(&mut self) -> Cookie {
        self.next += 1;
        Cookie(self.next - 1)
    }

    /// The generation of an inode whose number is of this `origin`, and which had `former` then.
    pub(super) fn generation(&self, origin: Origin, former: Generation) -> Generation {
        match origin {
            Origin::Kept | Origin::Copy => former,
            Origin::Back if self.back == former => (former + 1) & GENERATION_BITS,
            Origin::Back => self.back,
            Origin::New => self.new,
        }
    }
}

/// The number that each inode of the past gets.
pub(super) struct Mapped {
    map: FxHashMap<Ino, (Ino, Origin)>,
    /// Copies that stay.
    copies: FxHashSet<Ino>,
}

impl Mapped {
    /// Chooses numbers for the inodes of `then`. Those of `now` are in the place; `alive` finds out
    /// which of those that are not in the place live elsewhere. None keeps its number if `all_new`.
    pub(super) fn choose(
        then: &Subtree,
        now: &Subtree,
        numbers: &mut Numbers,
        all_new: bool,
        alive: impl FnOnce(&[Ino]) -> Restoring<Vec<Ino>>,
    ) -> Restoring<Mapped> {
        let is_kept = |ino: &Ino| {
            // One of another generation is it, too: it was gone and got its number back.
            now.inodes.get(ino).is_some_and(|(now, _)| now.kind == then.inodes[ino].0.kind)
        };
        let mut others = then.order.iter().filter(|ino| !is_kept(ino)).copied().collect::<Vec<_>>();
        others.sort_unstable();
        let elsewhere = if all_new { Vec::new() } else { alive(&others)? };
        let elsewhere = elsewhere.into_iter().collect::<FxHashSet<_>>();
        let mut map = FxHashMap::default();
        for ino in &then.order {
            let chosen = match () {
                () if all_new || elsewhere.contains(ino) => (numbers.ino(), Origin::New),
                () if is_kept(ino) => (*ino, Origin::Kept),
                () => (*ino, Origin::Back),
            };
            map.insert(*ino, chosen);
        }
        Ok(Mapped { map, copies: FxHashSet::default() })
    }

    /// Has inodes of `then` that live elsewhere keep the copies that `now` has in their places;
    /// `top` is the inode in the place itself, and `is_copy` tells whether one of `now` is one.
    pub(super) fn keep_copies(
        &mut self,
        (then, now): (&Subtree, &Subtree),
        top: Option<Ino>,
        mut is_copy: impl FnMut(Ino, Ino) -> Restoring<bool>,
    ) -> Restoring<()> {
        if self.map.values().all(|(_, origin)| *origin != Origin::New) {
            return Ok(());
        }
        let mut pairs = then.order.first().copied().zip(top).into_iter().collect::<Vec<_>>();
        for directory in &then.order {
            let (number, origin) = self.of(*directory);
            if origin != Origin::Kept {
                continue;
            }
            let present =
                now.names_of(number).iter().map(|entry| (&entry.name, entry.ino)).collect::<FxHashMap<_, _>>();
            let pair = |entry: &NameRow| Some((entry.ino, *present.get(&entry.name)?));
            pairs.extend(then.names_of(*directory).iter().filter_map(pair));
        }
        for (ino, other) in pairs {
            let is_alone = then.count(ino) == 1 && now.count(other) == 1;
            let is_free = self.of(ino).1 == Origin::New && !self.map.contains_key(&other);
            if is_alone && is_free && is_copy(ino, other)? {
                self.map.insert(ino, (other, Origin::Copy));
                self.copies.insert(other);
            }
        }
        Ok(())
    }

    /// The number that `ino` of then gets, and its origin.
    pub(super) fn of(&self, ino: Ino) -> (Ino, Origin) {
        self.map[&ino]
    }

    /// True if inode `ino` of now is one of those.
    pub(super) fn keeps(&self, ino: Ino) -> bool {
        self.copies.contains(&ino) || self.map.get(&ino).is_some_and(|(_, origin)| *origin == Origin::Kept)
    }
}
