//! Checking a volume in PostgreSQL, held or not: its blocks are read and verified here, its rows are copied, as one commit left them, to where
//! the rules of `sqlite::check` can be asked.

use super::address::Address;
use super::connection::Connection;
use super::open::look;
use super::read::{get, unsigned};
use crate::error::{Error, Result};
use crate::finding::{CheckOptions, Finding, Progress, Repair};
use crate::row::{BlockId, BlockRef, Ino, Place};
use crate::sqlite::{Copy, check_copy};
use rusqlite::types::Value;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

const WHAT: &str = "cannot check the volume";

/// Rows copied between two reports of progress.
const REPORTED: u64 = 4096;

/// Tables, and the columns of them that a copy has.
const TABLES: &[(&str, &[&str])] = &[
    ("commits", &["number", "time", "op", "root_digest", "previous_digest"]),
    (
        "fileatt",
        &[
            "ino",
            "generation",
            "mode",
            "uid",
            "gid",
            "nlink",
            "rdev",
            "size",
            "allocated",
            "atime",
            "mtime",
            "ctime",
            "btime",
            "parent",
            "has_xattrs",
            "since",
            "digest",
            "inline",
        ],
    ),
    ("naming", &["parent", "name", "ino", "kind", "cookie", "since", "digest"]),
    ("extents", &["ino", "idx", "block", "since"]),
    ("blocks", &["id", "refs", "length", "base", "value"]),
    ("branches", &["parent", "prefix", "children"]),
    ("nodes", &["ino", "level", "idx", "children"]),
    ("xattr", &["ino", "name", "value", "since"]),
];

const VOLUME: &[&str] = &["created", "number", "op", "next_id", "next_block", "epoch", "bytes_used", "inodes_used"];

/// Checks the volume at `address`, as its last commit left it; `read_data` verifies all blocks. Errors: those of [`super::open`], and what
/// keeps the check from going on; `Unusable` if a repair is asked for.
pub fn check(address: &Address, options: CheckOptions, progress: &mut dyn FnMut(Progress)) -> Result<Vec<Finding>> {
    if options.repair == Repair::Yes {
        let what = "a volume in PostgreSQL is not repaired in place: restore the database, or copy what is whole with 'weft export'";
        return Err(Error::Unusable(what.into()));
    }
    let (mut connection, header) = look(address)?;
    connection.run(WHAT, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")?;
    let bad = if options.read_data { damaged(&mut connection, progress)? } else { Vec::new() };
    let directory = tempfile::tempdir();
    let directory =
        directory.map_err(|source| Error::Io { what: "cannot make", path: std::env::temp_dir(), source })?;
    let path = directory.path().join("copy");
    let copy = Copy::new(&path, &header.options)?;
    copy_rows(&mut connection, &copy, progress)?;
    copy.finish()?;
    connection.run(WHAT, "COMMIT")?;
    check_copy(&path, bad, progress)
}

fn copy_rows(connection: &mut Connection, copy: &Copy, progress: &mut dyn FnMut(Progress)) -> Result<()> {
    let total = TABLES.len() as u64;
    for (done, (table, columns)) in TABLES.iter().enumerate() {
        progress(Progress { step: "copying rows", done: done as u64, total });
        let all = format!("SELECT {} FROM {table}", columns.join(", "));
        connection.each(WHAT, &all, |row| copy.put(table, columns, values(row)?))?;
    }
    let own = format!("SELECT {} FROM volume", VOLUME.join(", "));
    connection.each(WHAT, &own, |row| copy.set_volume(VOLUME, values(row)?))
}

fn values(row: &Row) -> Result<Vec<Value>> {
    let value = |(at, column): (usize, &tokio_postgres::Column)| {
        Ok(match *column.type_() {
            Type::INT8 => get::<Option<i64>>(row, at)?.map_or(Value::Null, Value::Integer),
            Type::BOOL => Value::Integer(i64::from(get::<bool>(row, at)?)),
            _ => get::<Option<Vec<u8>>>(row, at)?.map_or(Value::Null, Value::Blob),
        })
    };
    row.columns().iter().enumerate().map(value).collect()
}

/// Blocks whose bytes are not those that were written.
fn damaged(connection: &mut Connection, progress: &mut dyn FnMut(Progress)) -> Result<Vec<(BlockId, &'static str)>> {
    let mut total = 0;
    connection.each(WHAT, "SELECT count(*) FROM blocks", |row| {
        total = unsigned(row, 0)?;
        Ok(())
    })?;
    let (mut done, mut bad) = (0, Vec::new());
    connection.each(WHAT, "SELECT owner, id, length, base, value, bytes FROM blocks", |row| {
        if done % REPORTED == 0 {
            progress(Progress { step: "data", done, total });
        }
        done += 1;
        let id = BlockId(unsigned(row, 1)?);
        let (length, value): (i64, Vec<u8>) = (get(row, 2)?, get(row, 4)?);
        let block = u32::try_from(length).ok().zip(value.try_into().ok()).map(|(length, value)| {
            Ok::<_, Error>(BlockRef {
                id,
                length,
                base: unsigned(row, 3)?,
                value,
                place: Place::File(Ino(unsigned(row, 0)?)),
            })
        });
        let bytes: &[u8] = row.try_get(5).map_err(|source| Error::Postgres { what: WHAT, source })?;
        if !block.transpose()?.is_some_and(|block| block.verify(bytes)) {
            bad.push((id, "has other bytes than were written"));
        }
        Ok(())
    })?;
    Ok(bad)
}
