//! Bytes that are still edited; frozen they become a block.

use crate::{Block, pool};
use std::ops::{Deref, DerefMut};

/// Where memory of long buffers starts: at a multiple of this, so that devices read and write it without a copy.
pub const ALIGNMENT: usize = 4096;

/// Bytes in a buffer from which on it is aligned; for shorter ones that would waste more than it helps.
pub const ALIGNED_MIN: usize = pool::BYTES_MIN;

/// Bytes to edit, owned by one. They lie together; if there are [`ALIGNED_MIN`] or more, from a multiple of
/// [`ALIGNMENT`] on.
#[derive(Debug, Default)]
pub struct Buffer {
    /// Its bytes follow `start` others.
    memory: Vec<u8>,
    start: usize,
}

impl Buffer {
    /// Without bytes, with memory for `capacity`.
    pub fn with_capacity(capacity: usize) -> Buffer {
        if capacity < ALIGNED_MIN {
            return Buffer { memory: Vec::with_capacity(capacity), start: 0 };
        }
        let needed = capacity + ALIGNMENT;
        let mut buffer = Buffer::aligned(pool::take(needed).unwrap_or_else(|| Vec::with_capacity(needed)));
        buffer.memory.truncate(buffer.start);
        buffer
    }

    /// `len` bytes of any content, to be written over: what an earlier block held may show.
    pub fn any(len: usize) -> Buffer {
        if len < ALIGNED_MIN {
            return Buffer { memory: vec![0; len], start: 0 };
        }
        let needed = len + ALIGNMENT;
        // Neither zeros fresh from the system nor memory that held as much before are written over.
        let mut buffer = Buffer::aligned(pool::take(needed).unwrap_or_else(|| vec![0; needed]));
        buffer.memory.resize(buffer.start + len, 0);
        buffer
    }

    /// A copy of `bytes`.
    pub fn copy_of(bytes: &[u8]) -> Buffer {
        let mut copy = Buffer::with_capacity(bytes.len());
        copy.extend_from_slice(bytes);
        copy
    }

    /// In `memory`, which has [`ALIGNMENT`] bytes more than will be used: whatever it holds from `start` on.
    fn aligned(mut memory: Vec<u8>) -> Buffer {
        let start = memory.as_ptr().align_offset(ALIGNMENT);
        if memory.len() < start {
            memory.resize(start, 0);
        }
        Buffer { memory, start }
    }

    /// Adds `bytes` at the end.
    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        self.reserve(bytes.len());
        self.memory.extend_from_slice(bytes);
    }

    /// Cuts off or adds zeros, so that there are `len` bytes.
    pub fn resize(&mut self, len: usize) {
        self.reserve(len.saturating_sub(self.len()));
        self.memory.resize(self.start + len, 0);
    }

    fn reserve(&mut self, more: usize) {
        if self.memory.len() + more > self.memory.capacity() {
            let mut larger = Buffer::with_capacity((self.len() + more).max(2 * self.len()));
            larger.memory.extend_from_slice(self);
            *self = larger;
        }
    }

    /// Its bytes as a block, without copying them.
    pub fn freeze(mut self) -> Block {
        Block::of_memory(std::mem::take(&mut self.memory), self.start)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        pool::keep(std::mem::take(&mut self.memory));
    }
}

impl Clone for Buffer {
    fn clone(&self) -> Buffer {
        Buffer::copy_of(self)
    }
}

impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.memory[self.start..]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..]
    }
}

impl PartialEq for Buffer {
    fn eq(&self, other: &Buffer) -> bool {
        **self == **other
    }
}
impl Eq for Buffer {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Edit {
        Extend(usize),
        Resize(usize),
        Overwrite(prop::sample::Index),
    }

    fn edits() -> impl Strategy<Value = Vec<Edit>> {
        let len = prop_oneof![0usize..100, ALIGNED_MIN - 50..ALIGNED_MIN + 50, 0usize..100_000];
        let edit = prop_oneof![
            len.clone().prop_map(Edit::Extend),
            len.prop_map(Edit::Resize),
            any::<prop::sample::Index>().prop_map(Edit::Overwrite),
        ];
        proptest::collection::vec(edit, 0..8)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 }))]

        #[test]
        fn a_buffer_is_edited_like_a_vector_and_stays_aligned(edits in edits()) {
            let (mut buffer, mut expected) = (Buffer::default(), Vec::new());
            for (i, edit) in edits.iter().enumerate() {
                let byte = u8::try_from(i + 1).expect("few");
                match edit {
                    Edit::Extend(len) => {
                        buffer.extend_from_slice(&vec![byte; *len]);
                        expected.extend(vec![byte; *len]);
                    }
                    Edit::Resize(len) => {
                        buffer.resize(*len);
                        expected.resize(*len, 0);
                    }
                    Edit::Overwrite(at) if !expected.is_empty() => {
                        let at = at.index(expected.len());
                        buffer[at] = byte;
                        expected[at] = byte;
                    }
                    Edit::Overwrite(_) => {}
                }
                prop_assert_eq!(&buffer[..], &expected[..]);
                if buffer.len() >= ALIGNED_MIN {
                    prop_assert!((buffer.as_ptr() as usize).is_multiple_of(ALIGNMENT));
                }
            }
            let address = buffer.as_ptr();
            let block = buffer.freeze();
            prop_assert_eq!(&block[..], &expected[..]);
            prop_assert!(expected.is_empty() || block.as_ptr() == address, "freezing copies nothing");
        }
    }

    #[test]
    fn memory_for_any_content_has_the_length_asked_for() {
        for len in [0, 1, ALIGNED_MIN - 1, ALIGNED_MIN, 100_000] {
            assert_eq!(Buffer::any(len).len(), len);
            assert_eq!(Buffer::with_capacity(len).len(), 0);
        }
    }
}
