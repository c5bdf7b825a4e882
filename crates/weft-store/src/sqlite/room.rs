//! Room that a database has for rows, beyond what the file system says is free.
//!
//! What is committed is written to the write-ahead log, and from there into the database. So what
//! the log holds is still to be taken from what is free; and pages that removed rows left are used
//! again, as is the log once it is copied, and neither is ever free for anybody else.

use super::segments::PAGE;
use rusqlite::Connection;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes, as they were after the last commit.
#[derive(Debug, Default)]
pub(super) struct Room {
    /// Bytes of the log that the database has still to take in, and so may grow by.
    pub(super) waiting: AtomicU64,
    /// Bytes that rows can take without a byte more of the file system.
    pub(super) within: AtomicU64,
    /// Bytes of segments that were given back to the file system, or are about to be.
    pub(super) given_back: AtomicU64,
}

impl Room {
    /// Makes the room of a volume whose log has so many bytes, and was not looked at yet.
    pub(super) fn of_log(bytes: u64) -> Room {
        Room { waiting: AtomicU64::new(bytes), ..Room::default() }
    }

    /// Measures the room, by the `connection` that writes; `log` is the write-ahead log. A figure
    /// that cannot be read stays as it was.
    pub(super) fn look(&self, connection: &Connection, log: &Path) {
        let frames = |row: &rusqlite::Row<'_>| Ok(row.get::<_, i64>(1)? - row.get::<_, i64>(2)?);
        let bytes = |pages: i64| u64::try_from(pages).unwrap_or(0) * PAGE;
        if let Ok(frames) = connection.query_row("PRAGMA wal_checkpoint(NOOP)", (), frames) {
            self.waiting.store(bytes(frames), Ordering::Relaxed);
        }
        if let Ok(unused) = connection.query_row("PRAGMA freelist_count", (), |row| row.get(0)) {
            let length = log.metadata().map_or(0, |log| log.len());
            self.within.store(bytes(unused).min(length), Ordering::Relaxed);
        }
    }
}
