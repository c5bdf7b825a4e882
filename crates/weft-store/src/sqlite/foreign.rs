//! Tells a write-ahead log that does not go on from the database beside it.
//!
//! SQLite believes any log whose own checksums are right, and copies it into the database: that of an
//! earlier life of a volume which was moved away and used elsewhere meanwhile destroys what was
//! done there. The row of the database's last commit must be the same with the log and without.

use super::connection::{Access, connect};
use super::layout::Layout;
use super::open::read_header;
use super::read;
use crate::error::{Error, ErrorKind, Result};
use crate::row::CommitRow;
use rusqlite::Connection;

/// The last commit that the database has without its write-ahead log, if that can be told: after a
/// crash in the middle of copying the log it may not.
pub(super) struct Alone(Option<CommitRow>);

impl Alone {
    /// Looks at the database of `layout`. Before anything else opens it: closing a file drops all
    /// locks of the process on it.
    pub(super) fn look(layout: &Layout) -> Alone {
        let has_frames = layout.wal().metadata().is_ok_and(|wal| wal.len() > 0);
        let last = || {
            let connection = connect(&layout.database, 1, Access::Immutable).ok()?;
            let header = read_header(&connection).ok()?;
            read::commits(&connection, header.commit, 1).ok()?.pop().filter(|row| row.number == header.commit)
        };
        Alone(has_frames.then(last).flatten())
    }

    /// The `error` that opening the database gave: damage is what a log of another state makes of it.
    pub(super) fn explain(&self, error: Error, layout: &Layout) -> Error {
        match &self.0 {
            Some(alone) if error.kind() == ErrorKind::Corrupt => foreign(alone, layout),
            _ => error,
        }
    }

    /// Fails if `connection`, which reads the log as well, has another commit of that number.
    pub(super) fn refuse_foreign(&self, connection: &Connection, layout: &Layout) -> Result<()> {
        let Some(alone) = &self.0 else { return Ok(()) };
        let found = read::commits(connection, alone.number, 1)?.pop();
        if found.as_ref().is_some_and(|found| found == alone || found.number > alone.number) {
            return Ok(());
        }
        Err(foreign(alone, layout))
    }
}

fn foreign(alone: &CommitRow, layout: &Layout) -> Error {
    Error::Lost(format!(
        "the write-ahead log {} is not of this state of the database (of commit {}), and would destroy it: move the log \
         away, together with the intent log, if the database is what you want, or restore all files from one copy",
        layout.wal().display(),
        alone.number.0
    ))
}
