//! Inodes that nothing needs any more and that wait to be deleted, in their order.

use rustc_hash::FxHashSet;
use std::collections::VecDeque;
use weft_store::Ino;

/// Inodes in the order in which they came, each once.
#[derive(Debug, Default)]
pub struct Draining {
    order: VecDeque<Ino>,
    members: FxHashSet<Ino>,
}

impl Draining {
    /// Adds `ino` at the end, unless it is there.
    pub fn push(&mut self, ino: Ino) {
        if self.members.insert(ino) {
            self.order.push_back(ino);
        }
    }

    /// The one that came first.
    pub fn first(&self) -> Option<Ino> {
        self.order.front().copied()
    }

    /// Removes the one that came first.
    pub fn remove_first(&mut self) {
        if let Some(ino) = self.order.pop_front() {
            self.members.remove(&ino);
        }
    }

    /// True if `ino` is among them.
    pub fn contains(&self, ino: Ino) -> bool {
        self.members.contains(&ino)
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}
