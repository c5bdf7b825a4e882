//! Directory entries in memory.

use crate::clock_map::Cached;
use crate::inode::Changed;
use crate::tree::Tree;
use hashbrown::Equivalent;
use weft_store::{Cookie, Ino, Kind, Name};

/// A directory entry: its inode and its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The inode.
    pub ino: Ino,
    /// Its kind.
    pub kind: Kind,
    /// The position.
    pub cookie: Cookie,
}

/// Cached state of one name in one directory.
#[derive(Debug)]
pub struct NameSlot {
    /// Entry of that name; none if the name is known not to exist.
    pub entry: Option<Entry>,
    /// Generation of its last change.
    pub changed: Changed,
    /// True if the store has (or is being given) a row for it.
    pub stored: bool,
}

impl Cached for NameSlot {
    fn is_pinned(&self) -> bool {
        self.changed != Changed::CLEAN
    }
    /// Slot, key and table entry, with a name of common length.
    fn weight(&self) -> usize {
        128
    }
}

/// A name to look for.
#[derive(Hash)]
pub struct NameKey<'a>(pub Ino, pub &'a [u8]);

impl Equivalent<(Ino, Name)> for NameKey<'_> {
    fn equivalent(&self, key: &(Ino, Name)) -> bool {
        self.0 == key.0 && self.1 == key.1.as_bytes()
    }
}

impl Tree {
    /// Names that `ino` was given since the last commit began.
    pub fn names_since_commit(&self, ino: Ino) -> Vec<(Ino, Name)> {
        let names = |key: &&(Ino, Name)| {
            let slot = self.names.peek(*key);
            slot.and_then(|slot| slot.entry.as_ref()).is_some_and(|entry| entry.ino == ino)
        };
        self.dirty_names.iter().filter(names).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hash::BuildHasher;

    #[test]
    fn a_borrowed_key_hashes_like_the_key_it_stands_for() {
        let hasher = hashbrown::DefaultHashBuilder::default();
        let name = Name::new(b"name").expect("a name");
        assert_eq!(hasher.hash_one(&(Ino(7), name)), hasher.hash_one(NameKey(Ino(7), b"name")));
    }
}
