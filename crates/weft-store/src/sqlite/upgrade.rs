//! Bringing a volume of format 3 to this one, in one transaction: an interruption leaves it as it
//! was.
//!
//! Rows get the sums of what they hold, so whatever can be verified is verified before: content in
//! rows by the digests that are kept of it.

use super::check::refuse_damaged_rows;
use super::digests::Rows;
use super::layout::Layout;
use super::open::{connect, format_of, hold};
use super::read::{self, unsigned};
use super::scan::Scan;
use super::schema::TABLES;
use super::sums::{self, ALL};
use crate::FORMAT;
use crate::digests::{Digester, ZeroValues, small};
use crate::error::{Error, Result};
use crate::finding::Progress;
use crate::row::Ino;
use crate::upgrade::{Upgrade, Upgraded};
use rusqlite::Connection;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The format that can be brought up.
pub(super) const OLD_FORMAT: u32 = 3;

/// A transaction that writes all rows anew takes up to so many times the database's size: those
/// rows, and a log of them.
const SIZES_NEEDED: u64 = 3;

fn failed(source: rusqlite::Error) -> Error {
    Error::Sqlite { what: "cannot upgrade the database", source }
}

/// Brings the volume at `path`, which must not be mounted and must have been unmounted cleanly, to
/// this format; or tells what that would take. Errors: `Unusable` if it is of another format, was
/// not unmounted cleanly, or there is too little space; `Corrupt` if it is damaged.
pub fn upgrade(path: &Path, mode: Upgrade, progress: &mut dyn FnMut(Progress)) -> Result<Upgraded> {
    let layout = Layout::find(path)?;
    let from = format_of(&layout)?;
    let name = layout.volume.display();
    if from == FORMAT {
        return Err(Error::Unusable(format!("{name} has format {FORMAT} already; there is nothing to upgrade")));
    }
    if from != OLD_FORMAT {
        return Err(Error::Unusable(format!(
            "{name} has format {from}, this program upgrades format {OLD_FORMAT} alone"
        )));
    }
    let _hold = hold(&layout)?;
    refuse_log_of_database(&layout)?;
    let connection = connect(&layout.database, 64)?;
    refuse_waiting_operations(&connection, &layout)?;
    let bytes_needed = SIZES_NEEDED * std::fs::metadata(&layout.database).map_or(0, |metadata| metadata.len());
    let bytes_free = layout.space()?.bytes_free;
    if bytes_free < bytes_needed {
        let what = format!(
            "{name} needs up to {bytes_needed} bytes of free space beside it to be upgraded, and has {bytes_free}"
        );
        return Err(Error::Unusable(what));
    }
    progress(Progress { step: "verifying rows", done: 0, total: 2 });
    verify(&connection)?;
    let count =
        "SELECT (SELECT count(*) FROM fileatt) + (SELECT count(*) FROM naming) + (SELECT count(*) FROM extents)";
    let rows = connection.query_row(count, (), |row| unsigned(row, 0)).map_err(failed)?;
    if mode == Upgrade::Now {
        progress(Progress { step: "writing rows", done: 1, total: 2 });
        rewrite(&connection)?;
        connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").map_err(failed)?;
        // Of the format before. Nothing waits in it.
        let _ = std::fs::remove_file(old_log(&layout));
    }
    connection.close().map_err(|(_, source)| failed(source))?;
    progress(Progress { step: "writing rows", done: 2, total: 2 });
    Ok(Upgraded { from, to: FORMAT, rows, bytes_needed: Some(bytes_needed) })
}

fn unclean(layout: &Layout) -> Error {
    Error::Unusable(format!(
        "{} was not unmounted cleanly; mount and unmount it once with the weft that made it, then upgrade it",
        layout.volume.display()
    ))
}

/// A write-ahead log that is there was not copied into the database by a clean end.
fn refuse_log_of_database(layout: &Layout) -> Result<()> {
    let mut wal = layout.database.as_os_str().to_owned();
    wal.push("-wal");
    let is_empty = std::fs::metadata(&wal).map_or(true, |metadata| metadata.len() == 0);
    if is_empty { Ok(()) } else { Err(unclean(layout)) }
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

/// Operations that were synced and not committed lie in the intent log alone. Whatever looks like a
/// record of them is taken for one.
fn refuse_waiting_operations(connection: &Connection, layout: &Layout) -> Result<()> {
    const MAGIC: &[u8] = b"WEFTLOG1";
    let Ok(log) = std::fs::read(old_log(layout)) else { return Ok(()) };
    let read = |row: &rusqlite::Row<'_>| Ok((unsigned(row, 0)?, unsigned(row, 1)?));
    let (epoch, op) = connection.query_row("SELECT epoch, op FROM volume", (), read).map_err(failed)?;
    let number = |record: &[u8], at: usize| record[at..at + 8].try_into().map(u64::from_le_bytes).unwrap_or(0);
    // A header is 48 bytes, at a multiple of 16: the magic, a checksum, the epoch, the first
    // operation and the last.
    let mut headers = log.windows(48).step_by(16).filter(|record| record.starts_with(MAGIC));
    let waits = headers.any(|record| number(record, 16) == epoch && number(record, 32) > op);
    if waits { Err(unclean(layout)) } else { Ok(()) }
}

/// What format 3 can verify of rows: that the database is whole, and content in rows.
fn verify(connection: &Connection) -> Result<()> {
    let whole: String = connection.query_row("PRAGMA quick_check(1)", (), |row| row.get(0)).map_err(failed)?;
    if whole != "ok" {
        return Err(Error::Corrupt(format!(
            "the database is damaged: {whole}; 'weft check' of the weft that made it tells more"
        )));
    }
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

/// Writes all tables anew.
fn rewrite(connection: &Connection) -> Result<()> {
    let list = |query: &str| -> Result<Vec<String>> {
        let mut statement = connection.prepare(query).map_err(failed)?;
        let rows = statement.query_map((), |row| row.get(0)).map_err(failed)?;
        rows.collect::<rusqlite::Result<_>>().map_err(failed)
    };
    let tables = list("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")?;
    let indices = list("SELECT name FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL")?;
    let run = |statement: &str| connection.execute_batch(statement).map_err(failed);
    run("PRAGMA synchronous = FULL; BEGIN IMMEDIATE; DROP VIEW IF EXISTS files")?;
    indices.iter().try_for_each(|index| run(&format!("DROP INDEX {index}")))?;
    tables.iter().try_for_each(|table| run(&format!("ALTER TABLE {table} RENAME TO old_{table}")))?;
    run(TABLES)?;
    for table in &tables {
        let mut columns = list(&format!("SELECT name FROM pragma_table_info('old_{table}')"))?;
        let mut values = columns.clone();
        // That of the volume's row is of an id that it does not have yet.
        for summed in ALL.iter().filter(|summed| summed.table == table && table != "volume") {
            columns.push(summed.column.into());
            values.push(summed.expression.into());
        }
        if table == "volume" {
            columns.push("uuid".into());
            values.push("?1".into());
        }
        let (columns, values) = (columns.join(", "), values.join(", "));
        let copy = format!("INSERT INTO {table} ({columns}) SELECT {values} FROM old_{table}");
        let uuid = crate::uuid::new()?;
        let copied = match table.as_str() {
            "volume" => connection.execute(&copy, (uuid,)),
            _ => connection.execute(&copy, ()),
        };
        copied.map_err(failed)?;
        run(&format!("DROP TABLE old_{table}"))?;
    }
    // An odd one would need an intent log.
    run("UPDATE volume SET epoch = epoch + epoch % 2")?;
    sums::VOLUME.seal(connection)?;
    connection.pragma_update(None, "user_version", FORMAT).map_err(failed)?;
    verify_tree(connection)?;
    run("COMMIT")
}

/// Fails if what is kept of digests does not follow from the rows that have sums now: names, what they
/// name, and which blocks are whose were not verified before.
fn verify_tree(connection: &Connection) -> Result<()> {
    refuse_damaged_rows(connection)?;
    let kept = "SELECT block_size, digests FROM volume";
    let read = |row: &rusqlite::Row<'_>| Ok((unsigned(row, 0)?, row.get::<_, bool>(1)?));
    let (block_size, has_digests) = connection.query_row(kept, (), read).map_err(failed)?;
    if !has_digests {
        return Ok(());
    }
    let digester = Digester::new(Arc::new(ZeroValues::default()));
    let rows = Rows { connection, segments: None, wait: &|| (), elsewhere: None };
    match (Scan { digester: &digester, rows: &rows, block_size }).wrong(false)?.first() {
        None => Ok(()),
        Some((ino, what)) => Err(Error::Corrupt(format!(
            "inode {}: {what}, so that it cannot be upgraded; 'weft check' of the weft that made it tells more",
            ino.0
        ))),
    }
}

/// Brings the volume at `path` back to what format 3 was, but for the order of columns: for tests
/// of [`upgrade`].
#[doc(hidden)]
pub fn downgrade(path: &Path) -> Result<()> {
    let layout = Layout::find(path)?;
    let _hold = hold(&layout)?;
    let connection = connect(&layout.database, 8)?;
    let run = |statement: &str| connection.execute_batch(statement).map_err(failed);
    run("BEGIN IMMEDIATE; DROP INDEX naming_order; ALTER TABLE volume DROP COLUMN uuid")?;
    ALL.iter().try_for_each(|summed| run(&format!("ALTER TABLE {} DROP COLUMN {}", summed.table, summed.column)))?;
    run("CREATE UNIQUE INDEX naming_order ON naming (parent, cookie, ino, kind)")?;
    connection.pragma_update(None, "user_version", OLD_FORMAT).map_err(failed)?;
    run("COMMIT; PRAGMA wal_checkpoint(TRUNCATE)")?;
    connection.close().map_err(|(_, source)| failed(source))
}
