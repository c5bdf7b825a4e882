//! Operations that are neither committed nor in the intent log, encoded and ready for it.
//!
//! Bounded: when too many bytes gather, the journal gives up until the next commit, and a sync must
//! then commit. Two arenas: `previous` holds the operations of the commit in flight, `current`
//! those after.

use crate::mutation::{Mutation, encode};

/// Most bytes one arena holds.
pub const ARENA_BYTES_MAX: usize = 3 << 20;

/// Bytes of a short append to the log.
const SHORT_BYTES: usize = 128 << 10;

#[derive(Debug, Default)]
struct Arena {
    bytes: Vec<u8>,
    /// True if operations are missing here.
    incomplete: bool,
}

/// Operations to be logged.
#[derive(Debug)]
pub struct Unlogged {
    /// Encoded.
    pub bytes: Vec<u8>,
    of_current: usize,
}

/// The journal.
#[derive(Debug, Default)]
pub struct Journal {
    current: Arena,
    previous: Arena,
}

impl Journal {
    /// Adds the operation.
    pub fn push(&mut self, mutation: &Mutation<'_>) {
        let arena = &mut self.current;
        if arena.incomplete {
            return;
        }
        let data_bytes = if let Mutation::Write { data, .. } = mutation { data.len() } else { 0 };
        if arena.bytes.len() + data_bytes > ARENA_BYTES_MAX {
            *arena = Arena { incomplete: true, ..Arena::default() };
            return;
        }
        put(mutation, &mut arena.bytes);
    }

    /// Bytes not yet in the log; none if some are missing.
    pub(crate) fn unlogged_bytes(&self) -> Option<usize> {
        let whole = !self.previous.incomplete && !self.current.incomplete;
        whole.then(|| self.previous.bytes.len() + self.current.bytes.len())
    }

    /// True if the log lacks no more than one short append would add.
    pub fn is_short(&self) -> bool {
        self.unlogged_bytes().is_some_and(|bytes| bytes <= SHORT_BYTES)
    }

    /// The encoded operations not yet in the log; none if some are missing.
    pub fn unlogged(&self) -> Option<Unlogged> {
        let (old, new) = (&self.previous.bytes, &self.current.bytes);
        self.unlogged_bytes().map(|_| Unlogged { bytes: [&old[..], new].concat(), of_current: new.len() })
    }

    /// All that `unlogged` gave is in the log. Since then the commit in flight may have ended, and
    /// operations may have been pushed, but no commit has begun.
    pub fn mark_logged(&mut self, unlogged: &Unlogged) {
        self.previous.bytes.clear();
        // Too many pushes since may have emptied it.
        let logged = unlogged.of_current.min(self.current.bytes.len());
        self.current.bytes.drain(..logged);
    }

    /// A commit of all operations so far begins.
    pub(crate) fn rotate(&mut self) {
        let mut current = std::mem::take(&mut self.current);
        let previous = &mut self.previous;
        // The last commit may have failed: its operations are still here, before those since.
        previous.incomplete |= current.incomplete || previous.bytes.len() + current.bytes.len() > 2 * ARENA_BYTES_MAX;
        if previous.incomplete {
            *previous = Arena { incomplete: true, ..Arena::default() };
            return;
        }
        if previous.bytes.is_empty() {
            std::mem::swap(&mut previous.bytes, &mut current.bytes);
        } else {
            previous.bytes.extend_from_slice(&current.bytes);
        }
    }

    /// The commit succeeded.
    pub fn committed(&mut self) {
        self.previous = Arena::default();
    }
}

/// Appends an operation as records of the log hold them.
pub fn put(mutation: &Mutation<'_>, bytes: &mut Vec<u8>) {
    let at = bytes.len();
    bytes.extend_from_slice(&[0; 4]);
    encode(mutation, bytes);
    let len = u32::try_from(bytes.len() - at - 4).expect("an arena is far below 4 GiB");
    bytes[at..at + 4].copy_from_slice(&len.to_le_bytes());
}

/// The operations in a log record, each still encoded; stops at the first that is cut.
pub fn split(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (len, rest) = bytes.split_first_chunk::<4>()?;
        let (operation, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
        bytes = rest;
        Some(operation)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::borrow::Cow;
    use weft_store::{Ino, Timestamp};

    fn write(len: usize) -> Mutation<'static> {
        Mutation::Write {
            ino: Ino(2),
            offset: 0,
            data: Cow::Owned(vec![1; len]),
            lost: crate::mutation::Lost::default(),
            time: Timestamp(0),
        }
    }

    fn count(journal: &Journal) -> Option<usize> {
        journal.unlogged().map(|unlogged| split(&unlogged.bytes).count())
    }

    #[test]
    fn operations_stay_until_their_commit_succeeded() {
        let mut journal = Journal::default();
        journal.push(&write(10));
        journal.rotate();
        journal.push(&write(10));
        assert_eq!(count(&journal), Some(2));
        journal.committed();
        assert_eq!(count(&journal), Some(1));
    }

    #[test]
    fn logged_operations_are_not_logged_twice_even_when_a_commit_fails() {
        let mut journal = Journal::default();
        journal.push(&write(10));
        let unlogged = journal.unlogged().expect("whole");
        journal.mark_logged(&unlogged);
        journal.rotate();
        journal.push(&write(20));
        assert_eq!(count(&journal), Some(1));
        journal.rotate();
        journal.push(&write(30));
        assert_eq!(count(&journal), Some(2));
    }

    #[test]
    fn a_commit_may_end_while_its_operations_are_being_logged() {
        let mut journal = Journal::default();
        journal.push(&write(1000));
        journal.rotate();
        journal.push(&write(10));
        let unlogged = journal.unlogged().expect("whole");
        journal.committed();
        journal.push(&write(20));
        journal.mark_logged(&unlogged);
        assert_eq!(count(&journal), Some(1));
    }

    #[test]
    fn too_many_bytes_make_it_give_up_until_the_next_commit() {
        let mut journal = Journal::default();
        journal.push(&write(ARENA_BYTES_MAX));
        journal.push(&write(1));
        assert_eq!(count(&journal), None);
        journal.rotate();
        assert_eq!(count(&journal), None);
        journal.committed();
        assert_eq!(count(&journal), Some(0));
    }

    #[test]
    fn operations_in_the_log_take_no_room_here() {
        let mut journal = Journal::default();
        for _ in 0..10 {
            journal.push(&write(ARENA_BYTES_MAX / 2));
            let unlogged = journal.unlogged().expect("whole");
            assert_eq!(split(&unlogged.bytes).count(), 1);
            journal.mark_logged(&unlogged);
        }
        assert_eq!(count(&journal), Some(0));
    }
}
