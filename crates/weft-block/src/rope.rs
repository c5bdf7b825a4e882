//! A list of slices that reads as one run of bytes.

use crate::Slice;
use smallvec::SmallVec;
use std::ops::Range;

/// Bytes made of slices of blocks, in order; joining and cutting copy none of them.
#[derive(Clone, Debug, Default)]
pub struct Rope {
    slices: SmallVec<[Slice; 2]>,
    len: usize,
}

impl Rope {
    /// A rope of no bytes.
    pub fn new() -> Rope {
        Rope::default()
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The slices in order; none is empty.
    pub fn slices(&self) -> &[Slice] {
        &self.slices
    }

    /// Adds `slice` at the end.
    pub fn push(&mut self, slice: Slice) {
        if !slice.is_empty() {
            self.len += slice.len();
            self.slices.push(slice);
        }
    }

    /// Adds all of `other` at the end.
    pub fn append(&mut self, other: Rope) {
        self.len += other.len;
        self.slices.extend(other.slices);
    }

    /// The bytes `range` of the rope.
    ///
    /// # Panics
    /// If `range` does not lie inside the rope.
    pub fn cut(&self, range: Range<usize>) -> Rope {
        assert!(range.start <= range.end && range.end <= self.len, "cut out of bounds");
        let mut result = Rope::new();
        let mut at = 0;
        for slice in &self.slices {
            let from = range.start.max(at);
            let to = range.end.min(at + slice.len());
            if from < to {
                result.push(slice.slice(from - at..to - at));
            }
            at += slice.len();
        }
        result
    }

    /// A copy of the bytes in one piece.
    pub fn to_vec(&self) -> Vec<u8> {
        crate::copied(self.len);
        let mut bytes = Vec::with_capacity(self.len);
        for slice in &self.slices {
            bytes.extend_from_slice(slice);
        }
        bytes
    }

    /// One contiguous slice: the only one without a copy, else a copy of all.
    pub fn contiguous(&self) -> Slice {
        match self.slices.as_slice() {
            [only] => only.clone(),
            _ => Slice::from(self.to_vec()),
        }
    }
}

impl From<Slice> for Rope {
    fn from(slice: Slice) -> Rope {
        let mut rope = Rope::new();
        rope.push(slice);
        rope
    }
}

impl From<Vec<u8>> for Rope {
    fn from(bytes: Vec<u8>) -> Rope {
        Rope::from(Slice::from(bytes))
    }
}

impl PartialEq for Rope {
    fn eq(&self, other: &Rope) -> bool {
        self.len == other.len
            && self.slices.iter().flat_map(|slice| slice.iter()).eq(other.slices.iter().flat_map(|slice| slice.iter()))
    }
}
impl Eq for Rope {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rope_of(parts: &[Vec<u8>]) -> Rope {
        let mut rope = Rope::new();
        for part in parts {
            rope.push(Slice::from(part.clone()));
        }
        rope
    }

    proptest! {
        #[test]
        fn a_cut_reads_like_the_same_range_of_the_bytes(
            parts in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..20), 0..8),
            from: prop::sample::Index,
            to: prop::sample::Index,
        ) {
            let bytes = parts.concat();
            let a = from.index(bytes.len() + 1);
            let b = to.index(bytes.len() + 1);
            let range = a.min(b)..a.max(b);
            prop_assert_eq!(rope_of(&parts).cut(range.clone()).to_vec(), &bytes[range]);
        }

        #[test]
        fn ropes_compare_by_their_bytes_not_by_their_slices(
            bytes in proptest::collection::vec(any::<u8>(), 0..50),
            at: prop::sample::Index,
        ) {
            let at = at.index(bytes.len() + 1);
            let halves = rope_of(&[bytes[..at].to_vec(), bytes[at..].to_vec()]);
            prop_assert_eq!(halves, Rope::from(bytes));
        }
    }
}
