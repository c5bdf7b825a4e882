//! Digests of files and directories, kept with each commit.
//!
//! A commit tells which files and names it changes; the digests of those files, of the directories
//! above them and of the root follow, each once however often it changed. Data that a change must
//! not read again is stored in rows: values of a large file's subtrees ([`file`]), hashes of
//! entries and of names that begin alike in a large directory ([`directory`]). Knows rows and not
//! the engine that keeps them: an engine answers [`DigestRows`] inside the transaction of the
//! commit.
//!
//! A file with a damaged part has no digest once it changes, nor have its entries and the
//! directories above it: until the damage is mended, their digests are unknown.
//!
//! Definition: docs/reference/digest.md. Rows: docs/reference/format.md.

mod commit;
mod directory;
mod file;
mod stored;
mod zeros;

pub(crate) use commit::{CommitDigests, Digester, small};
pub(crate) use directory::LEAVES_MAX;
pub(crate) use file::FileChange;
pub use stored::contradicts_digest;
pub(crate) use zeros::ZeroValues;

use crate::Name;
use crate::error::Result;
use crate::overlay::Snapshot;
use crate::row::Ino;
use weft_digest::{Digest, Kind};

/// The attributes of an inode that digests are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Inode {
    pub(crate) kind: Kind,
    pub(crate) permissions: u32,
    pub(crate) size: u64,
    /// The directory that holds this directory.
    pub(crate) parent: Ino,
    /// The stored digest; none if it is not known.
    pub(crate) digest: Option<Digest>,
}

/// The least that is greater than all that begins with `prefix`, if there is any.
pub(crate) fn after(prefix: &[u8]) -> Option<Vec<u8>> {
    let len = prefix.iter().rposition(|byte| *byte != u8::MAX)? + 1;
    let mut end = prefix[..len].to_vec();
    end[len - 1] += 1;
    Some(end)
}

/// The rows of one transaction, as they are after all changes made so far.
pub(crate) trait DigestRows: Snapshot {
    /// Keeps the digest of an inode that there is, or that it has none.
    fn set_digest(&self, ino: Ino, digest: Option<&Digest>) -> Result<()>;
    /// Keeps the hash of an entry that there is, or that it has none.
    fn set_entry(&self, parent: Ino, name: &Name, hash: Option<&Digest>) -> Result<()>;
    /// Keeps a branch, or nothing any more.
    fn set_branch(&self, parent: Ino, prefix: &[u8], branch: Option<&[u8]>) -> Result<()>;
    /// Forgets all branches of `parent`.
    fn clear_branches(&self, parent: Ino) -> Result<()>;
    /// Keeps a node, or nothing any more.
    fn set_node(&self, ino: Ino, level: u32, index: u64, node: Option<&[u8]>) -> Result<()>;
    /// Forgets all nodes at `level` from `index` on.
    fn clear_nodes(&self, ino: Ino, level: u32, index: u64) -> Result<()>;
}
