//! BLAKE3's tree above whole subtrees: the values of subtrees, merged.
//!
//! A value is BLAKE3's chaining value of a subtree at its place in the file, or [`ZERO`], which
//! stands for a subtree of zeros where docs/reference/digest.md says so. No chaining value is
//! [`ZERO`], unless preimages of BLAKE3 can be found.

use crate::Digest;
use blake3::Hasher;
use blake3::hazmat::{HasherExt, Mode, max_subtree_len, merge_subtrees_non_root, merge_subtrees_root};

/// The value of a subtree.
pub type Value = [u8; 32];

/// Stands for a subtree of zeros.
pub const ZERO: Value = [0; 32];

/// The value of `bytes`, as they stand at byte `position` of a file. None if there is no such
/// subtree: there are no bytes, or more than begin at such a place.
pub fn value(position: u64, bytes: &[u8]) -> Option<Value> {
    let is_one = !bytes.is_empty()
        && position.is_multiple_of(blake3::CHUNK_LEN as u64)
        && max_subtree_len(position).is_none_or(|max| bytes.len() as u64 <= max);
    is_one.then(|| at(position).update(bytes).finalize_non_root())
}

/// Returns the hasher of a subtree at `position`, a multiple of a chunk.
pub(crate) fn at(position: u64) -> Hasher {
    let mut hasher = Hasher::new();
    hasher.set_input_offset(position);
    hasher
}

pub(crate) fn merge(left: &Value, right: &Value) -> Value {
    if *left == ZERO && *right == ZERO { ZERO } else { merge_subtrees_non_root(left, right, Mode::Hash) }
}

/// The value of the subtree that `values` are all of: of subtrees of one size, but for the last,
/// which may be smaller.
///
/// # Panics
/// If there is none.
pub fn merged(values: &[Value]) -> Value {
    if let [only] = values {
        return *only;
    }
    let (left, right) = split(values);
    merge(&merged(left), &merged(right))
}

/// The digest of a file that two or more `values`, as for [`merged`], are all of.
///
/// # Panics
/// If there are fewer than two.
pub fn root(values: &[Value]) -> Digest {
    let (left, right) = split(values);
    *merge_subtrees_root(&merged(left), &merged(right), Mode::Hash).as_bytes()
}

/// The left subtree is the largest that is full and leaves something to the right.
fn split(values: &[Value]) -> (&[Value], &[Value]) {
    values.split_at(values.len().next_power_of_two() / 2)
}
