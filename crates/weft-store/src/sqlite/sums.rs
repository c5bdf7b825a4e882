//! Sums of rows in SQL: what makes them of columns, for statements that change or compare rows
//! without bringing them here.

use crate::error::{Error, Result};
use crate::sums::{self, Sum};
use rusqlite::Connection;
use rusqlite::functions::{Context, FunctionFlags};
use rusqlite::types::ValueRef;

/// A column that holds a sum, and what it should hold.
pub(super) struct Summed {
    pub(super) table: &'static str,
    pub(super) column: &'static str,
    pub(super) expression: &'static str,
}

macro_rules! summed {
    ($name:ident, $table:literal, $column:literal, $expression:literal) => {
        pub(super) const $name: Summed = Summed { table: $table, column: $column, expression: $expression };
    };
}

summed!(
    INODE,
    "fileatt",
    "sum",
    "weft_sum('fileatt', ino, generation, mode, uid, gid, nlink, rdev, size, allocated, atime, mtime, ctime, btime, \
     parent, xattrs, since, inline)"
);
summed!(DIGEST, "fileatt", "digest_sum", "weft_sum('digest', ino, digest)");
summed!(NAME, "naming", "sum", "weft_sum('naming', parent, name, ino, kind, cookie, since)");
summed!(ENTRY, "naming", "digest_sum", "weft_sum('entry', parent, name, digest)");
summed!(EXTENT, "extents", "sum", "weft_sum('extents', ino, idx, block, since)");
summed!(BLOCK, "blocks", "sum", "weft_sum('blocks', id, length, base, value, segment, position, refs)");
summed!(XATTR, "xattr", "sum", "weft_sum('xattr', ino, name, value, since)");
summed!(BRANCH, "branches", "sum", "weft_sum('branches', parent, prefix, children)");
summed!(NODE, "nodes", "sum", "weft_sum('nodes', ino, level, idx, children)");
summed!(SEGMENT, "segments", "sum", "weft_sum('segments', id, length, live)");
summed!(FREED, "freed", "sum", "weft_sum('freed', segment, position, length)");
summed!(COMMIT, "commits", "sum", "weft_sum('commits', number, time, op, root_digest, previous_digest)");
summed!(
    VOLUME,
    "volume",
    "sum",
    "(weft_sum('volume', created, uuid, block_size, inline_max, home, bytes_max, inodes_max, digests, NULL) \
     + weft_sum('counters', number, op, next_id, next_block, epoch, bytes_used, inodes_used)) & 4611686018427387903"
);

/// All of them.
pub(super) const ALL: [&Summed; 13] =
    [&INODE, &DIGEST, &NAME, &ENTRY, &EXTENT, &BLOCK, &XATTR, &BRANCH, &NODE, &SEGMENT, &FREED, &COMMIT, &VOLUME];

fn failed(source: rusqlite::Error) -> Error {
    Error::Sqlite { what: "cannot make sums of rows", source }
}

impl Summed {
    /// True if a row is as it was written.
    pub(super) fn holds(&self) -> String {
        format!("{} IS {}", self.column, self.expression)
    }

    /// Gives all rows the sums of what they hold now.
    pub(super) fn seal(&self, connection: &Connection) -> Result<()> {
        let Summed { table, column, expression } = self;
        let statement = format!("UPDATE {table} SET {column} = {expression} WHERE {column} IS NOT {expression}");
        connection.execute(&statement, ()).map(drop).map_err(failed)
    }
}

/// Gives all rows the sums of what they hold now: those that a repair changed, where none was
/// damaged before.
pub(super) fn seal(connection: &Connection) -> Result<()> {
    ALL.iter().try_for_each(|summed| summed.seal(connection))
}

/// Has statements of `connection` make sums: `weft_sum(TABLE, VALUES…)`, and
/// `weft_references(CHANGE)`.
pub(super) fn register(connection: &Connection) -> Result<()> {
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC;
    connection.create_scalar_function("weft_sum", -1, flags, sum).map_err(failed)?;
    let references = |context: &Context<'_>| Ok(sums::references(context.get(0)?));
    connection.create_scalar_function("weft_references", 1, flags, references).map_err(failed)
}

fn sum(context: &Context<'_>) -> rusqlite::Result<i64> {
    let table = context.get_raw(0).as_str()?;
    // References are counted by what is added to the sum of the rest.
    let counted = usize::from(matches!(table, "blocks" | "owned blocks"));
    let values = (1..context.len() - counted).map(|place| context.get_raw(place));
    let sum = values.fold(Sum::of(table), put).end();
    match context.get_raw(context.len() - 1) {
        ValueRef::Integer(refs) if counted > 0 => Ok(sums::add(sum, sums::references(refs))),
        // No row has it.
        _ if counted > 0 => Ok(-2),
        _ => Ok(sum),
    }
}

fn put(sum: Sum, value: ValueRef<'_>) -> Sum {
    match value {
        ValueRef::Null => sum.null(),
        ValueRef::Integer(number) => sum.int(number),
        ValueRef::Blob(bytes) => sum.bytes(bytes),
        ValueRef::Text(bytes) => sum.odd(b't', bytes),
        ValueRef::Real(number) => sum.odd(b'r', &number.to_le_bytes()),
    }
}
