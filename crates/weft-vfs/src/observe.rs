//! Tells protocols that let others keep copies what has changed by another way in.

use crate::volume::Vfs;
use parking_lot::RwLock;
use std::ops::Range;
use std::sync::{Arc, Weak};
use weft_store::{Ino, Name};

/// A change that whoever keeps copies may have to forget them for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Bytes of a file, and its attributes.
    Content {
        /// The file.
        ino: Ino,
        /// From which byte up to which, at most.
        range: Range<u64>,
    },
    /// Bytes of a file, and its attributes, by way of an opaque inode that led there.
    Target {
        /// The file.
        ino: Ino,
        /// From which byte up to which, at most.
        range: Range<u64>,
    },
    /// Attributes of an inode; its content is what it was.
    Attributes {
        /// The inode.
        ino: Ino,
    },
    /// An opaque inode gives other content or attributes than when its attributes were
    /// last reported. Reported regardless of who made the change, and through which way in.
    Outdated {
        /// The inode.
        ino: Ino,
    },
    /// A name was given, taken away or given to something else.
    Entry {
        /// The directory, whose attributes changed with it.
        parent: Ino,
        /// The name.
        name: Name,
    },
}

/// An observer of changes that come through other ways in.
pub trait Observer: Send + Sync {
    /// `change` has been made. Called without locks, by whoever made it, before that is answered.
    /// What is said of outdated ones must not be waited for, and of targets not for ever:
    /// whoever has what is to be forgotten in hand may wait for this answer.
    fn changed(&self, change: &Change);
}

/// The registered observers.
#[derive(Default)]
pub(crate) struct Observers(RwLock<Vec<Weak<dyn Observer>>>);

impl Vfs {
    /// Has `observer` told what [`Vfs::user`]s change, as long as it lives.
    pub fn observe(&self, observer: &Arc<dyn Observer>) {
        self.state.lock().opaque.layer().observed();
        let mut observers = self.observers.0.write();
        observers.retain(|observer| observer.strong_count() > 0);
        observers.push(Arc::downgrade(observer));
    }

    /// Tells of opaque inodes that are outdated.
    pub fn announce_outdated(&self, outdated: Vec<Ino>) {
        if !outdated.is_empty() {
            let change = |ino| Change::Outdated { ino: self.seen_in_place_of(ino) };
            self.announce_to_all(outdated.into_iter().map(change));
        }
    }

    /// Tells of `changes`.
    pub(crate) fn announce_to_all(&self, changes: impl IntoIterator<Item = Change>) {
        let observers: Vec<_> = self.observers.0.read().iter().filter_map(Weak::upgrade).collect();
        for change in changes {
            observers.iter().for_each(|observer| observer.changed(&change));
        }
    }

    /// `change`, for those who see files as something else: there nobody knows which bytes follow
    /// from which.
    fn as_seen(&self, mut change: Change) -> Change {
        if let Change::Content { ino, range } | Change::Target { ino, range } = &mut change
            && self.seen(*ino, None) != *ino
        {
            *range = 0..u64::MAX;
        }
        change
    }

    /// Tells of `changes`, of which only those are looked at that concern inodes somebody holds.
    pub fn announce(&self, changes: impl IntoIterator<Item = Change>) {
        let observers: Vec<_> = self.observers.0.read().iter().filter_map(Weak::upgrade).collect();
        if observers.is_empty() {
            return;
        }
        for change in changes {
            let change = self.as_seen(change);
            let (Change::Content { ino, .. }
            | Change::Target { ino, .. }
            | Change::Attributes { ino }
            | Change::Outdated { ino }
            | Change::Entry { parent: ino, .. }) = change;
            // Nobody has a copy of what nobody was told of; of the root everybody was.
            if ino == Ino::ROOT || self.state.lock().tree.holds.contains_key(&ino) {
                observers.iter().for_each(|observer| observer.changed(&change));
            }
        }
    }
}
