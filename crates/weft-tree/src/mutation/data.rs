//! Bytes that a write puts into a file.
//!
//! Many bytes are copied once, before the state is locked, into slices that the file's pieces and
//! the journal share. Few are cheaper to copy than to keep apart.

use std::borrow::Cow;
use weft_block::{ALIGNED_MIN, Buffer, Rope};

/// Bytes in a write from which on they are worth being shared.
const SHARED_MIN: usize = ALIGNED_MIN;

/// Bytes that are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Data<'a> {
    /// Copied where they are kept.
    Bytes(Cow<'a, [u8]>),
    /// Kept as they are: a slice of its own for each block that they touch.
    Shared(&'a Rope),
}

impl<'a> Data<'a> {
    /// Takes `shared`, the copy of `bytes` that [`Data::shared_copy`] made, if it made one.
    pub fn of(shared: Option<&'a Rope>, bytes: &'a [u8]) -> Data<'a> {
        shared.map_or(Data::Bytes(Cow::Borrowed(bytes)), Data::Shared)
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        match self {
            Data::Bytes(bytes) => bytes.len(),
            Data::Shared(rope) => rope.len(),
        }
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies `bytes`, which go to `offset` of a file of blocks of `block_size`, to be shared; none
    /// if they are few.
    pub fn shared_copy(offset: u64, bytes: &[u8], block_size: u32) -> Option<Rope> {
        if bytes.len() < SHARED_MIN {
            return None;
        }
        let (block_size, mut rest) = (block_size as usize, bytes);
        let start = usize::try_from(offset % block_size as u64).expect("less than a block");
        let mut rope = Rope::new();
        while !rest.is_empty() {
            let room = if rope.is_empty() { block_size - start } else { block_size };
            let (now, later) = rest.split_at(rest.len().min(room));
            rope.push(Buffer::copy_of(now).freeze().whole());
            rest = later;
        }
        Some(rope)
    }
}

impl<'a> From<&'a [u8]> for Data<'a> {
    fn from(bytes: &'a [u8]) -> Data<'a> {
        Data::Bytes(Cow::Borrowed(bytes))
    }
}

impl From<Vec<u8>> for Data<'_> {
    fn from(bytes: Vec<u8>) -> Self {
        Data::Bytes(Cow::Owned(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shared_has_a_slice_for_each_block() {
        let bytes = (0..100_000).map(|i: u32| i.to_le_bytes()[0]).collect::<Vec<_>>();
        let rope = Data::shared_copy(3 * 65536 + 65000, &bytes, 65536).expect("many");
        assert_eq!(rope.slices().iter().map(|slice| slice.len()).collect::<Vec<_>>(), [536, 65536, 33928]);
        assert_eq!(rope.to_vec(), bytes);
        assert!(Data::shared_copy(0, &bytes[..SHARED_MIN - 1], 65536).is_none());
    }
}
