//! Makes durable again the writes that a failed sync may have lost.
//!
//! The kernel writes pages back when it likes. If that fails it marks them clean, tells the next
//! fsync(2) of each open descriptor once, and forgets. The pages are in memory and not on the disk,
//! and an fsync that succeeds later says nothing about them. For SQLite that means:
//!
//! - A commit whose sync of the log fails is rolled back. Commits before it that were not synced
//!   (`Eventual` ones) stay, in frames that may be lost, and the next commit that is synced would
//!   stand on them.
//! - The failed commit's own frames may lie in the log as a whole. A crash would bring it back,
//!   while the blocks that it names are written over by the next try.
//! - A checkpoint copies frames as the page cache has them, or, if they were evicted, as the disk
//!   has them, unverified.
//! - A checkpoint that readers stop half way counts its pages as copied without a sync. If the sync
//!   of the next one fails, only the pages since are copied again.
//!
//! A frame may also rot on the disk and be read again before it is copied. So each is verified
//! right before a checkpoint ([`verify`]), and nothing is copied from a log that is not whole.
//!
//! So after any commit or checkpoint that failed, and from an opening on, the writer is *in doubt*:
//! nothing is committed, freed or checkpointed before [`renew`] succeeded. It reads all frames that
//! count, verifies them by their checksums, writes each to its place again, cuts off what lies
//! behind, and syncs: now the log is on the disk. Then it writes the pages that were copied into
//! the database to their places again, from those frames, and syncs that. The bytes are those that
//! are there already, so readers notice nothing. If a frame is not whole any more, commits that
//! were never called durable are lost, and nothing can be committed until the volume is opened
//! again.

use super::free_list;
use super::wal::Wal;
use crate::copies::sync_directory;
use crate::error::{Error, Result};
use crate::files;
use rusqlite::Connection;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

fn failed(source: rusqlite::Error) -> Error {
    Error::Sqlite { what: "cannot look at the write-ahead log", source }
}

/// The file of a database.
pub(super) struct Database {
    /// Must not be closed while SQLite has the database open: its POSIX locks would go.
    file: File,
    path: PathBuf,
}

impl Database {
    /// The database at `path`.
    pub(super) fn open(path: &Path) -> Result<Database> {
        let opened = files::open(files::options().read(true).write(true), path);
        let file = opened.map_err(|source| Error::Io { what: "cannot open", path: path.into(), source })?;
        Ok(Database { file, path: path.into() })
    }

    fn io(&self, what: &'static str) -> impl FnOnce(std::io::Error) -> Error {
        let path = self.path.clone();
        move |source| Error::Io { what, path, source }
    }

    /// Fails if the list of free pages is damaged, as far as that can be told.
    pub(super) fn refuse_damaged_list(&self) -> Result<()> {
        let is_copied = Wal::path_of(&self.path).metadata().map_or(true, |wal| wal.len() == 0);
        match free_list::damage(&self.file, &self.path, is_copied)? {
            Some(damage) => Err(Error::Corrupt(damage)),
            None => Ok(()),
        }
    }

    /// Takes the seal from the list of free pages, durably, before pages are written.
    pub(super) fn unseal(&self) -> Result<()> {
        free_list::unseal(&self.file).map_err(self.io("cannot write"))
    }

    /// Seals the list of free pages, as the database has all that was committed. It is not synced,
    /// and nothing depends on it: where it is lost, the next mount has less to compare.
    pub(super) fn seal(&self) {
        let _ = free_list::seal(&self.file);
    }

    /// Syncs the directory that names the database and its log.
    fn sync_names(&self) -> Result<()> {
        sync_directory(files::parent_of(&self.path))
    }
}

/// Sees that what the next checkpoint copies is what was committed: SQLite itself copies whatever
/// the disk gives. `connection` is the one that writes, outside of a transaction.
pub(super) fn verify(connection: &Connection, database: &Database) -> Result<()> {
    let (frames, copied) = counts(connection)?;
    match Wal::look(&database.path)? {
        Some(wal) => wal.verify(copied, frames),
        None if frames == copied => Ok(()),
        None => Err(gone()),
    }
}

fn gone() -> Error {
    Error::Corrupt("the write-ahead log is gone".into())
}

/// Frames of the write-ahead log, and how many of them a checkpoint has copied.
fn counts(connection: &Connection) -> Result<(u64, u64)> {
    let counts = |row: &rusqlite::Row<'_>| Ok((row.get::<_, i64>(1)?, row.get::<_, i64>(2)?));
    let (frames, copied) = connection.query_row("PRAGMA wal_checkpoint(NOOP)", (), counts).map_err(failed)?;
    Ok((u64::try_from(frames).unwrap_or(0), u64::try_from(copied).unwrap_or(0)))
}

/// Has all that was committed on the disk. `connection` is the one that writes, outside of a
/// transaction.
pub(super) fn renew(connection: &Connection, database: &Database) -> Result<()> {
    let (frames, copied) = counts(connection)?;
    let Some(wal) = Wal::open(&database.path)? else {
        return if frames == 0 { Ok(()) } else { Err(gone()) };
    };
    // Where the newest copy of each page lies that a checkpoint has copied, and how long it is.
    let mut pages = BTreeMap::new();
    wal.rewrite(frames, &mut |frame| {
        if frame.number <= copied {
            pages.insert(frame.page, (frame.offset, frame.content().len()));
        }
    })?;
    for (page, (offset, length)) in &pages {
        let mut bytes = vec![0; *length];
        wal.read_page(&mut bytes, *offset)?;
        let place = u64::from(page - 1) * *length as u64;
        database.file.write_all_at(&bytes, place).map_err(database.io("cannot write"))?;
    }
    if !pages.is_empty() {
        database.file.sync_all().map_err(database.io("cannot sync"))?;
    }
    database.sync_names()
}
