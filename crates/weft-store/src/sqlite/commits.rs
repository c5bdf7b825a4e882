//! The commits of a volume, read beside whoever holds it.

use super::layout::Layout;
use super::open::check_file;
use super::read;
use crate::error::{Error, Result};
use crate::row::{CommitNo, CommitRow};
use rusqlite::{Connection, OpenFlags};
use std::path::Path;

/// All commits that the volume at `path` remembers, in their order; also while it is mounted. Errors: `Unusable` (no such path, not a
/// volume, another format), `Unavailable`.
pub fn commits(path: &Path) -> Result<Vec<CommitRow>> {
    let layout = Layout::find(path)?;
    check_file(&layout)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(&layout.database, flags)
        .map_err(|source| Error::Sqlite { what: "cannot open the database", source })?;
    read::commits(&connection, CommitNo(0), usize::MAX)
}
