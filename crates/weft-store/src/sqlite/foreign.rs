//! Detects a write-ahead log that does not go on from the database beside it.
//!
//! SQLite believes any log whose own checksums are right, and copies it into the database: that of
//! an earlier life of a volume which was moved away and used elsewhere meanwhile destroys the
//! commits made there. The row of the database's last commit must be the same with the log and
//! without.

use super::connection::{Access, connect};
use super::layout::Layout;
use super::open::read_header;
use super::read;
use crate::error::{Error, ErrorKind, Result};
use crate::row::{CommitNo, CommitRow};
use rusqlite::Connection;

/// State of the database without its write-ahead log, as far as it is known: after a crash in the
/// middle of copying the log it may not be.
#[derive(Default)]
pub(super) struct Alone {
    /// The last commit.
    last: Option<CommitRow>,
    /// The volume's id, and the newest commit that anything tells of.
    newest: Option<([u8; 16], CommitNo)>,
}

impl Alone {
    /// Looks at the database of `layout`. Before anything else opens it: closing a file drops all
    /// locks of the process on it.
    pub(super) fn look(layout: &Layout) -> Alone {
        let has_frames = layout.wal().metadata().is_ok_and(|wal| wal.len() > 0);
        let look = || {
            let connection = connect(&layout.database, 1, Access::Immutable).ok()?;
            let header = read_header(&connection).ok()?;
            let last = read::commits(&connection, header.commit, 1).ok().and_then(|mut rows| rows.pop());
            // The volume's row may be older than the commits, and is then recounted.
            let newest = connection.query_row("SELECT max(number) FROM commits", (), |row| read::unsigned(row, 0));
            let newest = CommitNo(newest.unwrap_or(0)).max(header.commit);
            let last = last.filter(|row| row.number == header.commit);
            Some(Alone { last, newest: Some((header.uuid, newest)) })
        };
        has_frames.then(look).flatten().unwrap_or_default()
    }

    /// The volume's id, and the newest commit that the database has, if there is a log beside it
    /// and that can be told.
    pub(super) fn newest(&self) -> Option<(&[u8; 16], CommitNo)> {
        self.newest.as_ref().map(|(uuid, newest)| (uuid, *newest))
    }

    /// The `error` that opening the database gave: damage is what a log of another state makes of
    /// it.
    pub(super) fn explain(&self, error: Error, layout: &Layout) -> Error {
        match &self.last {
            Some(alone) if error.kind() == ErrorKind::Corrupt => foreign(alone, layout),
            _ => error,
        }
    }

    /// Fails if `connection`, which reads the log as well, has another commit of that number.
    pub(super) fn refuse_foreign(&self, connection: &Connection, layout: &Layout) -> Result<()> {
        let Some(alone) = &self.last else { return Ok(()) };
        let found = read::commits(connection, alone.number, 2)?;
        let is_there = found.first().is_some_and(|found| found == alone || found.number > alone.number);
        // What lies in pages that the log does not have is the database's own, and proves nothing.
        let next = found.iter().find(|row| row.number == alone.number.next()).and_then(|next| next.previous);
        let is_followed = next.is_none_or(|previous| alone.digest().is_none_or(|digest| digest == previous));
        if is_there && is_followed {
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
