//! One immutable buffer, and a part of one.

use crate::Buffer;
use crate::memory::Memory;
use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

/// Immutable, reference-counted bytes. Cloning shares them.
#[derive(Clone, Default)]
pub struct Block {
    memory: Arc<Memory>,
}

impl Block {
    /// Freezes `bytes` into a block without copying them.
    pub fn new(bytes: Vec<u8>) -> Block {
        Block::of_memory(Memory::of(bytes))
    }

    /// The bytes in `memory`.
    pub(crate) fn of_memory(memory: Memory) -> Block {
        Block { memory: Arc::new(memory) }
    }

    /// The bytes that `owner` has, without copying them; it is dropped with the block. It is asked
    /// for them once.
    pub fn of_owner<T: AsRef<[u8]> + Send + Sync + 'static>(owner: T) -> Block {
        Block::of_memory(Memory::lent(owner))
    }

    /// Copies `bytes` into a new block.
    pub fn copy_of(bytes: &[u8]) -> Block {
        Buffer::copy_of(bytes).freeze()
    }

    /// All of the block as a slice.
    pub fn whole(&self) -> Slice {
        Slice { block: self.clone(), start: 0, len: self.len() }
    }

    /// The bytes `range` of the block.
    ///
    /// # Panics
    /// If `range` does not lie inside the block.
    pub fn slice(&self, range: Range<usize>) -> Slice {
        self.whole().slice(range)
    }
}

impl Deref for Block {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.memory
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Block({} bytes)", self.len())
    }
}

impl PartialEq for Block {
    fn eq(&self, other: &Block) -> bool {
        **self == **other
    }
}
impl Eq for Block {}

/// Part of a [`Block`], which it keeps alive.
#[derive(Clone, Default)]
pub struct Slice {
    block: Block,
    start: usize,
    len: usize,
}

impl Slice {
    /// The block that this is all of, if it is.
    pub fn as_block(&self) -> Option<&Block> {
        (self.len == self.block.len()).then_some(&self.block)
    }

    /// The bytes `range` of this slice, counted from its start.
    ///
    /// # Panics
    /// If `range` does not lie inside the slice.
    pub fn slice(&self, range: Range<usize>) -> Slice {
        assert!(range.start <= range.end && range.end <= self.len, "slice out of bounds");
        Slice { block: self.block.clone(), start: self.start + range.start, len: range.end - range.start }
    }

    /// The bytes, to be edited where they lie, if nobody else can reach any of their block.
    pub fn alone(&mut self) -> Option<&mut [u8]> {
        let memory = Arc::get_mut(&mut self.block.memory)?;
        Some(&mut memory.own()?[self.start..self.start + self.len])
    }
}

impl Deref for Slice {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.block[self.start..self.start + self.len]
    }
}

impl AsRef<[u8]> for Slice {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl From<Vec<u8>> for Slice {
    fn from(bytes: Vec<u8>) -> Slice {
        Block::new(bytes).whole()
    }
}

impl fmt::Debug for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Slice({} bytes)", self.len)
    }
}

impl PartialEq for Slice {
    fn eq(&self, other: &Slice) -> bool {
        **self == **other
    }
}
impl Eq for Slice {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_of_a_slice_counts_from_its_own_start() {
        let block = Block::copy_of(b"abcdefgh");
        assert_eq!(&*block.slice(2..7).slice(1..3), b"de");
    }

    #[test]
    #[should_panic(expected = "slice out of bounds")]
    fn a_slice_cannot_reach_past_its_end() {
        Block::copy_of(b"abcd").slice(0..2).slice(1..3);
    }

    #[test]
    fn what_somebody_else_can_reach_is_not_edited() {
        let block = Block::copy_of(b"abcdef");
        let mut part = block.slice(1..3);
        assert!(part.alone().is_none());
        drop(block);
        part.alone().expect("there is nobody else").make_ascii_uppercase();
        let other = part.clone();
        assert!(part.alone().is_none());
        assert_eq!(&*other, b"BC");
    }

    #[test]
    fn what_is_lent_is_read_in_place_never_edited_and_dropped_with_the_block() {
        let owner = Arc::new(vec![7u8; 100]);
        struct Lender(Arc<Vec<u8>>);
        impl AsRef<[u8]> for Lender {
            fn as_ref(&self) -> &[u8] {
                &self.0
            }
        }
        let mut part = Block::of_owner(Lender(owner.clone())).slice(10..20);
        assert_eq!(part.as_ptr(), owner[10..].as_ptr());
        assert!(part.alone().is_none(), "it is the owner's");
        let other = part.clone();
        drop(part);
        assert_eq!(Arc::strong_count(&owner), 2);
        drop(other);
        assert_eq!(Arc::strong_count(&owner), 1);
    }

    #[test]
    fn freezing_a_vector_does_not_copy() {
        let bytes = vec![7u8; 100];
        let address = bytes.as_ptr();
        assert_eq!(Block::new(bytes).as_ptr(), address);
    }
}
