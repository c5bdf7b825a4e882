//! BLAKE3 digests of bytes, of files and of directories, and the chaining values that let a part of bytes be verified alone.
//!
//! BLAKE3 is a tree (O'Connor, Aumasson, Neves, Wilcox-O'Hearn, "BLAKE3: one function, fast everywhere", 2.1): the
//! chaining values of the subtrees under it give the digest of the whole. This crate knows `weft-block` alone.

mod commit;
mod directory;
mod file;
mod kind;
mod parts;
mod proof;
mod tree;

pub use commit::commit;
pub use directory::{DirectoryHasher, Entry, device, directory};
pub use file::{Content, FileDigest, FileHasher, PIECE_BYTES, is_zero, listed};
pub use kind::Kind;
pub use parts::{Hashed, PART_BYTES, Parts};
pub use proof::{Proof, SIBLINGS_MAX, Sibling, Side, Step};
pub use tree::{Value, ZERO, merged, root, value};

/// BLAKE3 hash of some bytes.
pub type Digest = [u8; 32];

/// `digest` in hexadecimal.
pub fn hex(digest: &Digest) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The digest of `bytes`.
pub fn digest(bytes: &[u8]) -> Digest {
    *blake3::hash(bytes).as_bytes()
}
