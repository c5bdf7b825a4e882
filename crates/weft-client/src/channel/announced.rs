//! The arenas that a receiver knows by number.
//!
//! There are never more than [`ARENAS_MAX`] of them, however long a stream is: the one that was not
//! used for longest is forgotten for a new one, and an arena that nothing can come from any more is
//! forgotten at once, but for one of the sender's own, whose pages are worth having. The receiver
//! forgets as it is told, by an entry among the others, and unmaps as soon as nothing refers to the
//! arena.

use crate::lent::Lent;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use weft_block::shared::Arena;

/// Most arenas that a receiver knows at a time.
pub(super) const ARENAS_MAX: usize = 32;

/// Arena that holds the bytes of an entry.
#[derive(Clone, Debug)]
pub(super) enum Source {
    Own(Arc<Arena>),
    Lent(Arc<Lent>),
}

impl Source {
    /// True if `other` is the same arena.
    fn is(&self, other: &Source) -> bool {
        match (self, other) {
            (Source::Own(one), Source::Own(other)) => Arc::ptr_eq(one, other),
            (Source::Lent(one), Source::Lent(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }

    /// True if nobody in this process but the caller knows it any more, so that nothing can come
    /// from there.
    fn is_idle(&self) -> bool {
        match self {
            Source::Own(arena) => Arc::strong_count(arena) == 1,
            Source::Lent(lent) => Arc::strong_count(lent) == 1,
        }
    }

    /// Returns the descriptors to pass on: the file and its guards. The file may be sealed but
    /// opened for writing, as its seals bind everybody.
    pub(super) fn descriptors(&self) -> (BorrowedFd<'_>, Vec<BorrowedFd<'_>>) {
        match self {
            Source::Own(arena) => (arena.file(), Vec::new()),
            Source::Lent(lent) => (lent.as_fd(), lent.guards().iter().map(|guard| guard.as_fd()).collect()),
        }
    }
}

#[derive(Debug)]
struct Known {
    number: u64,
    source: Source,
    used: u64,
}

/// The arenas that the receiver knows, as the sender sees it.
#[derive(Debug, Default)]
pub(super) struct Announced {
    known: Vec<Known>,
    numbers: u64,
    uses: u64,
}

impl Announced {
    /// The number of `source`, if the receiver knows it.
    pub(super) fn number(&mut self, source: &Source) -> Option<u64> {
        self.uses += 1;
        // The last is mostly the one.
        let known = self.known.iter_mut().rev().find(|known| known.source.is(source))?;
        known.used = self.uses;
        Some(known.number)
    }

    /// Gives `source` a number that none had.
    pub(super) fn add(&mut self, source: Source) -> u64 {
        self.numbers += 1;
        self.uses += 1;
        self.known.push(Known { number: self.numbers, source, used: self.uses });
        self.numbers
    }

    /// Returns the arena to forget before another one is added.
    pub(super) fn forget_oldest(&mut self) -> Option<u64> {
        if self.known.len() < ARENAS_MAX {
            return None;
        }
        let (at, _) = self.known.iter().enumerate().min_by_key(|(_, known)| known.used)?;
        Some(self.known.swap_remove(at).number)
    }

    /// Returns an arena to forget because nothing comes from there any more.
    pub(super) fn forget_idle(&mut self) -> Option<u64> {
        if self.known.len() < 2 {
            return None;
        }
        let mut spare = None;
        for (at, known) in self.known.iter().enumerate().filter(|(_, known)| known.source.is_idle()) {
            match (&known.source, spare) {
                (Source::Own(_), None) => spare = Some(at),
                (Source::Own(_) | Source::Lent(_), _) => return Some(self.known.swap_remove(at).number),
            }
        }
        None
    }
}
