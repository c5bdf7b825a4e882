//! Upgrade of a volume of an older format to this one.
//!
//! The database is rewritten in a file beside it, which takes its place in one step once it is
//! whole and on the disk. So a program of the old format finds the old database or a new one, by
//! the header of the file, and an upgrade that was killed is begun again.
//!
//! Rows get the sums of what they hold, so whatever can be verified is verified before: content in
//! rows by its stored digests.

mod extents;
mod left;
mod rewrite;

pub(super) use left::State;

use super::connection::{Access, AtClose, at_close, connect};
use super::inspect::inspect;
use super::layout::Layout;
use super::open::{hold, read_header};
use super::read::{self, unsigned};
use super::sums::{ALL, INODE};
use crate::FORMAT;
use crate::digests::small;
use crate::error::{Error, Result};
use crate::files;
use crate::finding::Progress;
use crate::log::{misfit, needs_log};
use crate::row::Ino;
use crate::upgrade::{Upgrade, Upgraded};
use rusqlite::{Connection, OptionalExtension};
use std::path::{Path, PathBuf};

/// The format before rows had sums.
const WITHOUT_SUMS: u32 = 3;

/// The first format whose inodes count their extended attributes.
const WITH_COUNTS: u32 = 6;

/// The first format that keeps versions of rows.
const WITH_VERSIONS: u32 = 7;

/// The formats that can be brought up. All of them have extents by the index of a block.
const OLD_FORMATS: &[u32] = &[WITHOUT_SUMS, 5, WITH_COUNTS, WITH_VERSIONS];

/// Tables that came with versions of rows.
const NEW_TABLES: &[&str] = &["retention", "pins", "content_history"];

/// Tables of versions of rows that all formats have. Before format 7 nothing was written to them.
const VERSION_TABLES: &[&str] = &["fileatt_history", "naming_history", "extents_history", "xattr_history"];

/// Begins the header of each record in an intent log of format 3.
const OLD_MAGIC: &[u8] = b"WEFTLOG1";

/// The new database may take up to so many times the space of the old one, which is there until the
/// end.
const SIZES_NEEDED: u64 = 2;

fn failed(source: rusqlite::Error) -> Error {
    Error::Sqlite { what: "cannot upgrade the database", source }
}

/// Brings the volume at `path`, which must not be mounted and must have been unmounted cleanly, to
/// this format; or tells what that would take. Errors: `Unusable` if it is of another format, was
/// not unmounted cleanly, or there is too little space; `Corrupt` if it is damaged.
pub fn upgrade(path: &Path, mode: Upgrade, progress: &mut dyn FnMut(Progress)) -> Result<Upgraded> {
    let (layout, _rights) = Layout::enter(path)?;
    // Before any file is opened.
    if let Some(linked) = inspect(&layout)? {
        let why = linked.why();
        return Err(Error::Unusable(format!("{why}; upgrade one that shares no files ('cp -a VOLUME COPY')")));
    }
    refuse_other_format(&layout, &State::look(&layout)?)?;
    let _hold = hold(&layout)?;
    // Its last holder may have changed it.
    let state = State::look(&layout)?;
    refuse_other_format(&layout, &state)?;
    let database = files::open(files::options().read(true), &layout.database);
    let database =
        database.map_err(|source| Error::Io { what: "cannot open", path: layout.database.clone(), source })?;
    if !state.is_readable() {
        return Err(unclean(&layout));
    }
    if state.has_commits() && mode == Upgrade::Now {
        left::copy(&layout)?;
    }
    let access = match mode {
        Upgrade::DryRun if state.has_commits() => Access::Shared,
        Upgrade::DryRun | Upgrade::Now => Access::Immutable,
    };
    let connection = connect(&layout.database, 64, access)?;
    at_close(&connection, AtClose::Leave)?;
    refuse_waiting_operations(&connection, state.format, &layout)?;
    let count =
        "SELECT (SELECT count(*) FROM fileatt) + (SELECT count(*) FROM naming) + (SELECT count(*) FROM extents)";
    let rows = connection.query_row(count, (), |row| unsigned(row, 0)).map_err(failed)?;
    if state.format == FORMAT {
        // An upgrade that was killed had written all, into the log.
        return Ok(Upgraded { from: state.alone, to: FORMAT, rows, bytes_needed: None });
    }
    let bytes_needed = SIZES_NEEDED * std::fs::metadata(&layout.database).map_or(0, |metadata| metadata.len());
    refuse_too_little_space(&layout, bytes_needed)?;
    progress(Progress { step: "verifying rows", done: 0, total: 1 });
    verify(&connection, state.format)?;
    connection.close().map_err(|(_, source)| failed(source))?;
    progress(Progress { step: "verifying rows", done: 1, total: 1 });
    if mode == Upgrade::Now {
        rewrite::rewrite(&layout, &database, state.format, progress)?;
        if state.format == WITHOUT_SUMS {
            // Nothing waits in it.
            remove_old_log(&layout);
        }
    }
    Ok(Upgraded { from: state.alone, to: FORMAT, rows, bytes_needed: Some(bytes_needed) })
}

fn refuse_other_format(layout: &Layout, state: &State) -> Result<()> {
    let name = layout.volume.display();
    if state.alone == FORMAT {
        return Err(Error::Unusable(format!("{name} has format {FORMAT} already; there is nothing to upgrade")));
    }
    if state.format == FORMAT || OLD_FORMATS.contains(&state.format) {
        return Ok(());
    }
    let known = OLD_FORMATS.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
    let from = state.format;
    Err(Error::Unusable(format!("{name} has format {from}, this program upgrades from these alone: {known}")))
}

fn refuse_too_little_space(layout: &Layout, bytes_needed: u64) -> Result<()> {
    let bytes_free = layout.space()?.bytes_free;
    if bytes_free >= bytes_needed {
        return Ok(());
    }
    Err(Error::Unusable(format!(
        "{} needs up to {bytes_needed} bytes of free space beside it to be upgraded, and has {bytes_free}",
        layout.volume.display()
    )))
}

fn unclean(layout: &Layout) -> Error {
    Error::Unusable(format!(
        "{} was not unmounted cleanly; mount and unmount it once with the weft that made it, then upgrade it",
        layout.volume.display()
    ))
}

/// The intent log, where format 3 has it.
fn old_log(layout: &Layout) -> PathBuf {
    match layout.segments {
        Some(_) => layout.volume.join("intent.log"),
        None => {
            let mut log = layout.volume.as_os_str().to_owned();
            log.push("-intent");
            log.into()
        }
    }
}

/// Removes the intent log of format 3, if that is what has its name.
fn remove_old_log(layout: &Layout) {
    let path = old_log(layout);
    let is_log = std::fs::read(&path).is_ok_and(|log| {
        log.iter().all(|byte| *byte == 0) || log.windows(OLD_MAGIC.len()).step_by(16).any(|at| at == OLD_MAGIC)
    });
    if is_log {
        // It is of no more use, and does no harm.
        let _ = files::remove(&path);
    }
}

/// Operations that were synced and not committed lie in the intent log alone.
fn refuse_waiting_operations(connection: &Connection, format: u32, layout: &Layout) -> Result<()> {
    if format == WITHOUT_SUMS {
        return refuse_old_operations(connection, layout);
    }
    let header = read_header(connection)?;
    if needs_log(header.counters.epoch) {
        return Err(unclean(layout));
    }
    match misfit(&layout.log, &header)? {
        Some(misfit) => Err(Error::Lost(misfit.why)),
        None => Ok(()),
    }
}

/// The same in format 3. Whatever looks like a record of them is taken for one.
fn refuse_old_operations(connection: &Connection, layout: &Layout) -> Result<()> {
    let Ok(log) = std::fs::read(old_log(layout)) else { return Ok(()) };
    let read = |row: &rusqlite::Row<'_>| Ok((unsigned(row, 0)?, unsigned(row, 1)?));
    let (epoch, op) = connection.query_row("SELECT epoch, op FROM volume", (), read).map_err(failed)?;
    let number = |record: &[u8], at: usize| record[at..at + 8].try_into().map(u64::from_le_bytes).unwrap_or(0);
    // A header is 48 bytes, at a multiple of 16: the magic, a checksum, the epoch, the first
    // operation and the last.
    let mut headers = log.windows(48).step_by(16).filter(|record| record.starts_with(OLD_MAGIC));
    let waits = headers.any(|record| number(record, 16) == epoch && number(record, 32) > op);
    if waits { Err(unclean(layout)) } else { Ok(()) }
}

/// Verifies the volume as far as format `format` allows: that the database is whole, and content in
/// rows.
fn verify(connection: &Connection, format: u32) -> Result<()> {
    left::refuse_broken(connection)?;
    if format >= WITH_COUNTS {
        // Rows keep their sums, and are verified by them once they are written.
        return Ok(());
    }
    verify_attributes(connection)?;
    if format == WITHOUT_SUMS {
        return verify_inline(connection);
    }
    // The only rows that get another sum.
    let sum = INODE.expression().replace(" xattrs,", " has_xattrs,");
    let damaged = format!("SELECT ino FROM fileatt WHERE sum IS NOT {sum} LIMIT 1");
    refuse_inode(connection, &damaged, "has a damaged row")
}

/// Fails if the attributes of an inode are gone: there is a flag that tells of them.
fn verify_attributes(connection: &Connection) -> Result<()> {
    let lacking =
        "SELECT ino FROM fileatt f WHERE has_xattrs <> EXISTS (SELECT 1 FROM xattr x WHERE x.ino = f.ino) LIMIT 1";
    refuse_inode(connection, lacking, "has no extended attributes and says that it has, or the other way round")
}

/// Fails if `query` finds an inode.
fn refuse_inode(connection: &Connection, query: &str, what: &str) -> Result<()> {
    let found = connection.query_row(query, (), |row| row.get::<_, i64>(0)).optional().map_err(failed)?;
    let Some(ino) = found else { return Ok(()) };
    let advice = "so that it cannot be upgraded; 'weft check' of the weft that made it names it";
    Err(Error::Corrupt(format!("inode {ino} {what}, {advice}")))
}

/// Verifies content in rows by the digests that are kept of it.
fn verify_inline(connection: &Connection) -> Result<()> {
    let all = "SELECT ino, generation, mode, uid, gid, nlink, rdev, size, allocated, atime, mtime, ctime, btime, parent, \
               has_xattrs, inline, digest FROM fileatt WHERE inline IS NOT NULL AND digest IS NOT NULL";
    let mut statement = connection.prepare(all).map_err(failed)?;
    let mut rows = statement.query(()).map_err(failed)?;
    while let Some(row) = rows.next().map_err(failed)? {
        let digest = read::digest(row, 16).map_err(failed)?;
        let ino = Ino(unsigned(row, 0).map_err(failed)?);
        let holds = read::whole_inode_row(row).is_ok_and(|row| Some(small(&row)) == digest);
        if !holds {
            let what = "has other content than was written, so that it cannot be upgraded; \
                        'weft check' of the weft that made it names it";
            return Err(Error::Corrupt(format!("inode {} {what}", ino.0)));
        }
    }
    Ok(())
}

/// Brings the volume at `path` back to what format 3 was, but for the order of columns: for tests
/// of [`upgrade`].
#[doc(hidden)]
pub fn downgrade(path: &Path) -> Result<()> {
    let (layout, _rights) = Layout::enter(path)?;
    let _hold = hold(&layout)?;
    let connection = connect(&layout.database, 8, Access::Shared)?;
    let run = |statement: &str| connection.execute_batch(statement).map_err(failed);
    crate::views::NAMES.iter().try_for_each(|view| run(&format!("DROP VIEW {view}")))?;
    run("BEGIN IMMEDIATE; DROP INDEX naming_order; DROP INDEX commits_time; ALTER TABLE volume DROP COLUMN uuid")?;
    NEW_TABLES.iter().try_for_each(|table| run(&format!("DROP TABLE {table}")))?;
    let left = ALL.iter().filter(|summed| !NEW_TABLES.contains(&summed.table));
    left.into_iter()
        .try_for_each(|summed| run(&format!("ALTER TABLE {} DROP COLUMN {}", summed.table, summed.column)))?;
    run("CREATE UNIQUE INDEX naming_order ON naming (parent, cookie, ino, kind)")?;
    let flag = "RENAME COLUMN xattrs TO has_xattrs";
    run(&format!("ALTER TABLE fileatt {flag}; UPDATE fileatt SET has_xattrs = has_xattrs > 0"))?;
    run("ALTER TABLE extents DROP COLUMN length; ALTER TABLE extents RENAME COLUMN start TO idx; \
         UPDATE extents SET idx = idx / (SELECT block_size FROM volume)")?;
    for table in VERSION_TABLES {
        run(&format!("DROP TABLE {table}; CREATE TABLE {table} (since INTEGER NOT NULL, until INTEGER NOT NULL)"))?;
    }
    connection.pragma_update(None, "user_version", WITHOUT_SUMS).map_err(failed)?;
    run("COMMIT; PRAGMA wal_checkpoint(TRUNCATE)")?;
    connection.close().map_err(|(_, source)| failed(source))
}
