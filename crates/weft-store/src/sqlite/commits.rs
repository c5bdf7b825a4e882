//! The commits of a volume, read beside whoever holds it.

use super::layout::Layout;
use super::open::{check_file, connect_beside};
use super::read;
use crate::error::Result;
use crate::row::{CommitNo, CommitRow};
use std::path::Path;

/// All commits that the volume at `path` remembers, in their order; also while it is mounted. Errors: `Unusable` (no such path, not a
/// volume, another format), `Unavailable`.
pub fn commits(path: &Path) -> Result<Vec<CommitRow>> {
    let layout = Layout::find(path)?;
    check_file(&layout)?;
    read::commits(&connect_beside(&layout)?, CommitNo(0), usize::MAX)
}
