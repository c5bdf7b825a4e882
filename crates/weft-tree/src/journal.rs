//! Operations that are neither committed nor in the intent log, encoded and ready for it.
//!
//! Bounded: when too many bytes gather, the journal gives up until the next commit, and a sync must
//! then commit. Two arenas: `previous` holds the operations of the commit in flight, `current`
//! those after. Sealed slices are shared with the log's writer, and with the pieces of files that
//! large writes made: neither a write nor a sync copies them here.

use crate::mutation::{Data, Mutation, encode};
use weft_block::{Rope, Slice};

/// Most bytes one arena holds.
pub const ARENA_BYTES_MAX: usize = 3 << 20;

/// Bytes of a short append to the log.
const SHORT_BYTES: usize = 128 << 10;

/// Bytes of an operation beside its data, mostly.
const HEAD_BYTES: usize = 256;

#[derive(Debug, Default)]
struct Arena {
    /// Operations that take no more bytes, and are shared with whoever writes them to the log.
    sealed: Vec<Slice>,
    /// Those after, which are few bytes each.
    open: Vec<u8>,
    /// Bytes of all.
    len: usize,
    /// True if operations are missing here.
    incomplete: bool,
}

impl Arena {
    fn push(&mut self, mutation: &Mutation<'_>) {
        if self.open.capacity() == 0 {
            // At once, and not step by step for each operation between two syncs.
            let bytes = if let Mutation::Write { data: Data::Bytes(bytes), .. } = mutation { bytes.len() } else { 0 };
            self.open.reserve(bytes + HEAD_BYTES);
        }
        let before = self.open.len();
        let shared = put_head(mutation, &mut self.open);
        self.len += self.open.len() - before;
        if let Some(rope) = shared {
            self.seal();
            self.sealed.extend_from_slice(rope.slices());
            self.len += rope.len();
        }
    }

    fn seal(&mut self) {
        if !self.open.is_empty() {
            self.sealed.push(Slice::from(std::mem::take(&mut self.open)));
        }
    }

    /// Forgets the first so many slices.
    fn forget(&mut self, slices: usize) {
        // Too many pushes may have emptied it meanwhile.
        let forgotten = self.sealed.drain(..slices.min(self.sealed.len()));
        self.len -= forgotten.map(|slice| slice.len()).sum::<usize>();
    }
}

/// Operations to be logged.
#[derive(Debug)]
pub struct Unlogged {
    /// Encoded.
    pub bytes: Rope,
    slices_of_current: usize,
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
        if arena.len + data_bytes > ARENA_BYTES_MAX {
            *arena = Arena { incomplete: true, ..Arena::default() };
            return;
        }
        arena.push(mutation);
    }

    /// An operation was performed that the log cannot have: until a commit has it, nothing is to be
    /// logged.
    pub(crate) fn leave_gap(&mut self) {
        self.current = Arena { incomplete: true, ..Arena::default() };
    }

    /// Bytes not yet in the log; none if some are missing.
    pub(crate) fn unlogged_bytes(&self) -> Option<usize> {
        let whole = !self.previous.incomplete && !self.current.incomplete;
        whole.then(|| self.previous.len + self.current.len)
    }

    /// True if the log lacks no more than one short append would add.
    pub fn is_short(&self) -> bool {
        self.unlogged_bytes().is_some_and(|bytes| bytes <= SHORT_BYTES)
    }

    /// The encoded operations not yet in the log, none of whose bytes are copied for that; none if
    /// some are missing.
    pub fn unlogged(&mut self) -> Option<Unlogged> {
        self.unlogged_bytes()?;
        self.previous.seal();
        self.current.seal();
        let mut bytes = Rope::new();
        self.previous.sealed.iter().chain(&self.current.sealed).for_each(|slice| bytes.push(slice.clone()));
        Some(Unlogged { bytes, slices_of_current: self.current.sealed.len() })
    }

    /// All that `unlogged` gave is in the log. Since then the commit in flight may have ended, and
    /// operations may have been pushed, but no commit has begun.
    pub fn mark_logged(&mut self, unlogged: &Unlogged) {
        self.previous.forget(usize::MAX);
        self.current.forget(unlogged.slices_of_current);
    }

    /// A commit of all operations so far begins.
    pub(crate) fn rotate(&mut self) {
        let mut current = std::mem::take(&mut self.current);
        let previous = &mut self.previous;
        // The last commit may have failed: its operations are still here, before those since.
        previous.incomplete |= current.incomplete || previous.len + current.len > 2 * ARENA_BYTES_MAX;
        if previous.incomplete {
            *previous = Arena { incomplete: true, ..Arena::default() };
            return;
        }
        previous.seal();
        current.seal();
        previous.sealed.append(&mut current.sealed);
        previous.len += current.len;
    }

    /// The commit succeeded.
    pub fn committed(&mut self) {
        self.previous = Arena::default();
    }
}

/// Appends an operation as records of the log hold them.
pub fn put(mutation: &Mutation<'_>, bytes: &mut Vec<u8>) {
    let shared = put_head(mutation, bytes);
    shared.into_iter().flat_map(Rope::slices).for_each(|slice| bytes.extend_from_slice(slice));
}

/// As [`put`], but for bytes that are not copied: they belong behind the rest.
fn put_head<'a>(mutation: &Mutation<'a>, bytes: &mut Vec<u8>) -> Option<&'a Rope> {
    let at = bytes.len();
    bytes.extend_from_slice(&[0; 4]);
    let shared = encode(mutation, bytes);
    let len = bytes.len() - at - 4 + shared.map_or(0, Rope::len);
    let len = u32::try_from(len).expect("an arena is far below 4 GiB");
    bytes[at..at + 4].copy_from_slice(&len.to_le_bytes());
    shared
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
    use crate::mutation::{Lost, decode};
    use weft_store::{Ino, Timestamp};

    fn write(len: usize) -> Mutation<'static> {
        Mutation::Write { ino: Ino(2), offset: 0, data: vec![1; len].into(), lost: Lost::default(), time: Timestamp(0) }
    }

    fn count(journal: &mut Journal) -> Option<usize> {
        journal.unlogged().map(|unlogged| split(&unlogged.bytes.to_vec()).count())
    }

    #[test]
    fn operations_stay_until_their_commit_succeeded() {
        let mut journal = Journal::default();
        journal.push(&write(10));
        journal.rotate();
        journal.push(&write(10));
        assert_eq!(count(&mut journal), Some(2));
        journal.committed();
        assert_eq!(count(&mut journal), Some(1));
    }

    #[test]
    fn logged_operations_are_not_logged_twice_even_when_a_commit_fails() {
        let mut journal = Journal::default();
        journal.push(&write(10));
        let unlogged = journal.unlogged().expect("whole");
        journal.mark_logged(&unlogged);
        journal.rotate();
        journal.push(&write(20));
        assert_eq!(count(&mut journal), Some(1));
        journal.rotate();
        journal.push(&write(30));
        assert_eq!(count(&mut journal), Some(2));
    }

    #[test]
    fn what_is_shared_is_logged_without_being_copied() {
        let bytes = vec![7; 100_000];
        let rope = Data::shared_copy(5, &bytes, 65536).expect("many");
        let shared = Mutation::Write {
            ino: Ino(2),
            offset: 5,
            data: Data::of(Some(&rope), &bytes),
            lost: Lost::default(),
            time: Timestamp(0),
        };
        let mut journal = Journal::default();
        [&write(10), &shared, &write(20)].into_iter().for_each(|mutation| journal.push(mutation));
        let unlogged = journal.unlogged().expect("whole");
        let slices = unlogged.bytes.slices();
        assert!(rope.slices().iter().all(|own| slices.iter().any(|slice| slice.as_ptr() == own.as_ptr())));
        let logged = unlogged.bytes.to_vec();
        let lens = split(&logged).map(|mut bytes| match decode(&mut bytes) {
            Some(Mutation::Write { data, .. }) => data.len(),
            other => panic!("{other:?}"),
        });
        assert_eq!(lens.collect::<Vec<_>>(), [10, 100_000, 20]);
        let mut put_together = Vec::new();
        put(&shared, &mut put_together);
        assert!(logged.windows(put_together.len()).any(|window| window == put_together));
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
        assert_eq!(count(&mut journal), Some(1));
    }

    #[test]
    fn too_many_bytes_make_it_give_up_until_the_next_commit() {
        let mut journal = Journal::default();
        journal.push(&write(ARENA_BYTES_MAX));
        journal.push(&write(1));
        assert_eq!(count(&mut journal), None);
        journal.rotate();
        assert_eq!(count(&mut journal), None);
        journal.committed();
        assert_eq!(count(&mut journal), Some(0));
    }

    #[test]
    fn operations_in_the_log_take_no_room_here() {
        let mut journal = Journal::default();
        for _ in 0..10 {
            journal.push(&write(ARENA_BYTES_MAX / 2));
            let unlogged = journal.unlogged().expect("whole");
            assert_eq!(split(&unlogged.bytes.to_vec()).count(), 1);
            journal.mark_logged(&unlogged);
        }
        assert_eq!(count(&mut journal), Some(0));
    }
}
