//! Bytes that are still edited; frozen they become a block.

use crate::Block;
use crate::memory::Memory;
use std::ops::{Deref, DerefMut};

/// Bytes to edit, owned by one. They lie together; if there are [`crate::ALIGNED_MIN`] or more,
/// from a multiple of [`crate::ALIGNMENT`] on.
#[derive(Debug, Default)]
pub struct Buffer {
    memory: Memory,
}

impl Buffer {
    /// Makes a buffer without bytes, with memory for `capacity`.
    pub fn with_capacity(capacity: usize) -> Buffer {
        Buffer { memory: Memory::with_capacity(capacity) }
    }

    /// `len` bytes of any content, to be written over: what an earlier block held may show.
    pub fn any(len: usize) -> Buffer {
        Buffer { memory: Memory::any(len) }
    }

    /// A copy of `bytes`.
    pub fn copy_of(bytes: &[u8]) -> Buffer {
        let mut copy = Buffer::with_capacity(bytes.len());
        copy.extend_from_slice(bytes);
        copy
    }

    /// Adds `bytes` at the end.
    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        self.memory.extend_from_slice(bytes);
    }

    /// Cuts off or adds zeros, so that there are `len` bytes.
    pub fn resize(&mut self, len: usize) {
        self.memory.resize(len);
    }

    /// Its bytes as a block, without copying them.
    pub fn freeze(self) -> Block {
        Block::of_memory(self.memory)
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
        &self.memory
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory
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
    use crate::{ALIGNED_MIN, ALIGNMENT};
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
