//! Chaining values of the parts of a block.

use crate::{Digest, digest};
use blake3::Hasher;
use blake3::hazmat::{ChainingValue, HasherExt, Mode, merge_subtrees_non_root, merge_subtrees_root};
use weft_block::Rope;

/// Bytes in a part: as many BLAKE3 chunks as the widest vectors hash at once. A power of two, so that parts are
/// subtrees.
pub const PART_BYTES: usize = 16 << 10;

/// Bytes in a chaining value.
const VALUE_BYTES: usize = 32;

/// The chaining values of all parts of some bytes, in their order. Bytes of at most one part have none: their digest
/// says it all.
///
/// Invariant: they give the digest that they came with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    values: Vec<ChainingValue>,
}

impl Parts {
    /// The digest of `bytes` and what verifies their parts, in one pass.
    pub fn of(bytes: &Rope) -> (Digest, Parts) {
        if bytes.len() <= PART_BYTES {
            return (digest(&bytes.contiguous()), Parts::default());
        }
        let mut values = Vec::with_capacity(bytes.len().div_ceil(PART_BYTES));
        let mut part = Hasher::new();
        let mut left = PART_BYTES;
        for slice in bytes.slices() {
            let mut slice = &slice[..];
            while !slice.is_empty() {
                if left == 0 {
                    values.push(part.finalize_non_root());
                    part = at(values.len());
                    left = PART_BYTES;
                }
                let now = slice.len().min(left);
                part.update(&slice[..now]);
                left -= now;
                slice = &slice[now..];
            }
        }
        values.push(part.finalize_non_root());
        (root(&values), Parts { values })
    }

    /// From what [`Parts::as_bytes`] gave. None if that is not of bytes of this digest.
    pub fn from_bytes(bytes: &[u8], digest: &Digest) -> Option<Parts> {
        let (values, rest) = bytes.as_chunks::<VALUE_BYTES>();
        let whole = rest.is_empty() && values.len() > 1 && root(values) == *digest;
        whole.then(|| Parts { values: values.to_vec() })
    }

    /// All values, one after another.
    pub fn as_bytes(&self) -> &[u8] {
        self.values.as_flattened()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Whether `bytes` are those of part `index`.
    pub fn verify(&self, index: usize, bytes: &[u8]) -> bool {
        let fits = (1..=PART_BYTES).contains(&bytes.len());
        fits && self.values.get(index).is_some_and(|value| at(index).update(bytes).finalize_non_root() == *value)
    }
}

/// What hashes part `index`.
fn at(index: usize) -> Hasher {
    let mut hasher = Hasher::new();
    hasher.set_input_offset((index * PART_BYTES) as u64);
    hasher
}

/// The digest that two or more subtrees give, all but the last of one size.
fn root(values: &[ChainingValue]) -> Digest {
    let (left, right) = split(values);
    *merge_subtrees_root(&merged(left), &merged(right), Mode::Hash).as_bytes()
}

fn merged(values: &[ChainingValue]) -> ChainingValue {
    if let [only] = values {
        return *only;
    }
    let (left, right) = split(values);
    merge_subtrees_non_root(&merged(left), &merged(right), Mode::Hash)
}

/// The left subtree is the largest that is full and leaves something to the right.
fn split(values: &[ChainingValue]) -> (&[ChainingValue], &[ChainingValue]) {
    values.split_at(values.len().next_power_of_two() / 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use weft_block::Slice;

    fn bytes(len: usize, seed: u8) -> Vec<u8> {
        (0..len).map(|i| seed.wrapping_add((i % 251) as u8).wrapping_mul((i / 7 % 256) as u8 | 1)).collect()
    }

    /// `bytes` as a rope of three slices.
    fn rope(bytes: &[u8], cuts: (prop::sample::Index, prop::sample::Index)) -> Rope {
        let (a, b) = (cuts.0.index(bytes.len() + 1), cuts.1.index(bytes.len() + 1));
        let mut rope = Rope::new();
        for piece in [&bytes[..a.min(b)], &bytes[a.min(b)..a.max(b)], &bytes[a.max(b)..]] {
            rope.push(Slice::from(piece.to_vec()));
        }
        rope
    }

    proptest! {
        #[test]
        fn the_digest_is_blake3_and_each_part_verifies_alone(
            len in prop_oneof![0usize..200_000, (0usize..12).prop_map(|parts| parts * PART_BYTES)],
            seed: u8,
            cuts: (prop::sample::Index, prop::sample::Index),
            flipped: prop::sample::Index,
        ) {
            let mut bytes = bytes(len, seed);
            let (digest, parts) = Parts::of(&rope(&bytes, cuts));
            prop_assert_eq!(digest, *blake3::hash(&bytes).as_bytes());
            prop_assert_eq!(parts.is_empty(), len <= PART_BYTES);
            if parts.is_empty() {
                return Ok(());
            }
            prop_assert_eq!(Parts::from_bytes(parts.as_bytes(), &digest), Some(parts.clone()));
            let flipped = flipped.index(len);
            for (index, part) in bytes.chunks(PART_BYTES).enumerate() {
                prop_assert!(parts.verify(index, part));
                prop_assert!(!parts.verify(index + 1, part));
            }
            bytes[flipped] ^= 1;
            let index = flipped / PART_BYTES;
            let part = bytes.chunks(PART_BYTES).nth(index).expect("there");
            prop_assert!(!parts.verify(index, part));
        }

        #[test]
        fn values_of_other_bytes_are_refused(len in PART_BYTES + 1..100_000, flipped: prop::sample::Index) {
            let (digest, parts) = Parts::of(&Rope::from(bytes(len, 1)));
            let mut values = parts.as_bytes().to_vec();
            values[flipped.index(parts.as_bytes().len())] ^= 4;
            prop_assert_eq!(Parts::from_bytes(&values, &digest), None);
            prop_assert_eq!(Parts::from_bytes(&parts.as_bytes()[32..], &digest), None);
            prop_assert_eq!(Parts::from_bytes(&parts.as_bytes()[1..], &digest), None);
        }
    }

    #[test]
    fn nothing_is_no_part() {
        let (_, parts) = Parts::of(&Rope::from(bytes(3 * PART_BYTES, 9)));
        assert!(!parts.verify(3, &[]) && !parts.verify(0, &bytes(3 * PART_BYTES, 9)));
        assert_eq!(Parts::from_bytes(&[], &digest(&[])), None);
    }
}
