//! The hashes of the blocks of a file, and the values of their parts.

use crate::tree::{Value, ZERO, at, merged, root, value};
use crate::{Digest, digest, is_zero};
use blake3::hazmat::HasherExt;
use weft_block::Rope;

/// Bytes in a part: as many BLAKE3 chunks as the widest vectors hash at once. A power of two, so
/// that parts are subtrees.
pub const PART_BYTES: usize = 16 << 10;

/// Bytes in a value.
const VALUE_BYTES: usize = 32;

/// The values of all parts of some bytes, in their order. Bytes of at most one part have none:
/// their own value says it all.
///
/// Invariant: they give the value that they came with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    position: u64,
    values: Vec<Value>,
}

/// The hashes of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hashed {
    /// Its value, at its place in the file; [`ZERO`] if all of it is zeros.
    pub value: Value,
    /// BLAKE3 of its bytes, the digest of a file that has no others; none unless it stands at the
    /// beginning.
    pub alone: Option<Digest>,
    /// The values that verify its parts.
    pub parts: Parts,
}

impl Hashed {
    /// Hashes a block that stands at byte `position` of a file, in one pass.
    ///
    /// # Panics
    /// If it is empty, or no subtree: `position` is to be a multiple of a power of two that is at
    /// least its length and 1024.
    pub fn new(bytes: &Rope, position: u64) -> Hashed {
        if bytes.slices().iter().all(|slice| is_zero(slice)) {
            let alone = (position == 0).then(|| digest(&bytes.contiguous()));
            return Hashed { value: ZERO, alone, parts: Parts::default() };
        }
        let mut values = Vec::with_capacity(bytes.len().div_ceil(PART_BYTES));
        let mut part = at(position);
        let mut left = PART_BYTES;
        for slice in bytes.slices() {
            let mut slice = &slice[..];
            while !slice.is_empty() {
                if left == 0 {
                    values.push(part.finalize_non_root());
                    part = at(position + (values.len() * PART_BYTES) as u64);
                    left = PART_BYTES;
                }
                let now = slice.len().min(left);
                part.update(&slice[..now]);
                left -= now;
                slice = &slice[now..];
            }
        }
        values.push(part.finalize_non_root());
        let value = merged(&values);
        if values.len() == 1 {
            let alone = (position == 0).then(|| *part.finalize().as_bytes());
            return Hashed { value, alone, parts: Parts::default() };
        }
        let alone = (position == 0).then(|| root(&values));
        Hashed { value, alone, parts: Parts { position, values } }
    }
}

impl Parts {
    /// Parses the bytes of [`Parts::as_bytes`]. None if they are not of this value at `position`.
    pub fn from_bytes(bytes: &[u8], value: &Value, position: u64) -> Option<Parts> {
        let (values, rest) = bytes.as_chunks::<VALUE_BYTES>();
        let whole = rest.is_empty() && values.len() > 1 && merged(values) == *value;
        whole.then(|| Parts { position, values: values.to_vec() })
    }

    /// All values, one after another.
    pub fn as_bytes(&self) -> &[u8] {
        self.values.as_flattened()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// True if `bytes` are those of part `index`.
    pub fn verify(&self, index: usize, bytes: &[u8]) -> bool {
        let position = self.position.saturating_add((index * PART_BYTES) as u64);
        let fits = (1..=PART_BYTES).contains(&bytes.len());
        fits && self.values.get(index).is_some_and(|own| value(position, bytes) == Some(*own))
    }
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
        fn the_value_is_that_of_blake3_and_each_part_verifies_alone(
            len in prop_oneof![1usize..200_000, (1usize..12).prop_map(|parts| parts * PART_BYTES)],
            place in 0u64..1 << 40,
            seed: u8,
            cuts: (prop::sample::Index, prop::sample::Index),
            flipped: prop::sample::Index,
        ) {
            let mut bytes = bytes(len, seed);
            let beginning = Hashed::new(&rope(&bytes, cuts), 0);
            prop_assert_eq!(beginning.alone, Some(digest(&bytes)));
            prop_assert_eq!(Some(beginning.value), value(0, &bytes));
            let position = place << 18;
            let Hashed { value: whole, alone, parts } = Hashed::new(&rope(&bytes, cuts), position);
            prop_assert_eq!(Some(whole), value(position, &bytes));
            prop_assert_eq!(alone.is_some(), position == 0);
            prop_assert_eq!(parts.is_empty(), len <= PART_BYTES);
            if parts.is_empty() {
                return Ok(());
            }
            prop_assert_eq!(Parts::from_bytes(parts.as_bytes(), &whole, position), Some(parts.clone()));
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
            let Hashed { value, parts, .. } = Hashed::new(&Rope::from(bytes(len, 1)), 0);
            let mut values = parts.as_bytes().to_vec();
            values[flipped.index(parts.as_bytes().len())] ^= 4;
            prop_assert_eq!(Parts::from_bytes(&values, &value, 0), None);
            prop_assert_eq!(Parts::from_bytes(&parts.as_bytes()[32..], &value, 0), None);
            prop_assert_eq!(Parts::from_bytes(&parts.as_bytes()[1..], &value, 0), None);
        }
    }

    #[test]
    fn zeros_have_a_value_of_their_own() {
        let zeros = vec![0; 3 * PART_BYTES];
        let expected = Hashed { value: ZERO, alone: Some(digest(&zeros)), parts: Parts::default() };
        assert_eq!(Hashed::new(&Rope::from(zeros.clone()), 0), expected);
        assert_eq!(Hashed::new(&Rope::from(zeros), 1 << 20), Hashed { alone: None, ..expected });
    }

    #[test]
    fn nothing_is_no_part() {
        let Hashed { parts, .. } = Hashed::new(&Rope::from(bytes(3 * PART_BYTES, 9)), 0);
        assert!(!parts.verify(3, &[]) && !parts.verify(0, &bytes(3 * PART_BYTES, 9)));
        assert_eq!(Parts::from_bytes(&[], &digest(&[]), 0), None);
    }
}
