//! The commits of a volume, read beside the process that holds it.

use super::open::Beside;
use super::read;
use crate::error::Result;
use crate::row::{CommitNo, CommitRow};
use std::path::Path;

/// All commits that the volume at `path` remembers, in their order; also while it is mounted.
/// Errors: `Unusable` (no such path, not a volume, another format), `Unavailable`.
pub fn commits(path: &Path) -> Result<Vec<CommitRow>> {
    read::commits(&Beside::open(path)?.connect()?, CommitNo(0), usize::MAX)
}
