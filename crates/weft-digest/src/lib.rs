//! BLAKE3 digests of bytes, of files and of directories, and the chaining values that let a part of
//! bytes be verified alone.
//!
//! BLAKE3 is a tree (O'Connor, Aumasson, Neves, Wilcox-O'Hearn, "BLAKE3: one function, fast
//! everywhere", 2.1): the chaining values of the subtrees under it give the digest of the whole.
//! This crate knows `weft-block` alone.
//!
//! The digest of a file is the BLAKE3 hash of its content, which can be made of its parts:
//!
//! ```
//! use weft_digest::{Value, digest, hex, root, value};
//!
//! let content = vec![7; 256 << 10];
//! let values: Vec<Value> =
//!     content.chunks(64 << 10).zip(0..).map(|(part, n)| value(n << 16, part).unwrap()).collect();
//! assert_eq!(root(&values), digest(&content));
//! let empty = "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262";
//! assert_eq!(hex(&digest(b"")), empty);
//! ```
//!
//! A proof of a kilobyte shows that a directory of some digest holds a file of some digest:
//!
//! ```
//! use weft_digest::{Entry, Kind, Proof, Step, digest, directory};
//!
//! let file = |name, content| {
//!     Entry { name, kind: Kind::File, permissions: 0o644, digest: digest(content) }
//! };
//! let entries = [file(b"a", b"one"), file(b"b", b"two"), file(b"c", b"three")];
//! let proof = Proof { steps: vec![Step::new(entries, b"b").unwrap()], digest: digest(b"two") };
//! assert_eq!(proof.root(), Some(directory(entries)));
//! let forged = Proof { digest: digest(b"2"), ..proof };
//! assert_ne!(forged.root(), Some(directory(entries)));
//! ```

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
