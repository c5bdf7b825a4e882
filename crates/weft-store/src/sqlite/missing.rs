//! Entries, blocks and attributes whose rows are gone or damaged, in SQLite.

use super::read::{sql, unsigned};
use crate::error::{Error, Result};
use crate::missing::{self, Blocks};
use crate::row::Ino;
use rusqlite::{Connection, OptionalExtension};

fn failed(source: rusqlite::Error) -> Error {
    Error::Sqlite { what: "cannot read the database", source }
}

/// Entries are counted as names are looked up, and as they are listed: either tree may be damaged.
pub(super) fn names(connection: &Connection, directory: Ino) -> Result<()> {
    macro_rules! whole {
        ($index:literal) => {
            concat!(
                "(SELECT count(*) FROM naming INDEXED BY ",
                $index,
                " WHERE parent = f.ino AND cookie > 0 \
                 AND sum IS weft_sum('naming', parent, name, ino, kind, cookie, since))"
            )
        };
    }
    let statement = concat!(
        "SELECT f.size, ",
        whole!("sqlite_autoindex_naming_1"),
        ", ",
        whole!("naming_order"),
        " FROM fileatt f WHERE f.ino = ?1"
    );
    let mut statement = connection.prepare_cached(statement).map_err(failed)?;
    let read = statement
        .query_row((sql(directory.0),), |row| Ok((unsigned(row, 0)?, unsigned(row, 1)?.min(unsigned(row, 2)?))));
    match read.optional().map_err(failed)? {
        Some((counted, found)) => missing::refuse_names(directory, found, counted),
        // Removed since.
        None => Ok(()),
    }
}

pub(super) fn block(connection: &Connection, ino: Ino) -> Result<()> {
    let statement = "SELECT f.allocated, \
                     (SELECT coalesce(sum(b.length), 0) FROM extents e JOIN blocks b ON b.id = e.block WHERE e.ino = f.ino \
                     AND e.start >= 0 AND e.start < f.size \
                     AND e.sum IS weft_sum('extents', e.ino, e.start, e.length, e.block, e.since) AND b.sum IS \
                     weft_sum('blocks', b.id, b.length, b.base, b.value, b.segment, b.position, b.refs)) \
                     FROM fileatt f WHERE f.ino = ?1 AND f.inline IS NULL";
    let mut statement = connection.prepare_cached(statement).map_err(failed)?;
    let read =
        statement.query_row((sql(ino.0),), |row| Ok(Blocks { allocated: unsigned(row, 0)?, held: unsigned(row, 1)? }));
    match read.optional().map_err(failed)? {
        Some(blocks) => missing::refuse_block(ino, &blocks),
        // Removed or shortened since.
        None => Ok(()),
    }
}

/// Fails if `ino` has more extended attributes by its row than the `found` ones.
pub(super) fn xattrs(connection: &Connection, ino: Ino, found: u64) -> Result<()> {
    let statement = "SELECT xattrs FROM fileatt WHERE ino = ?1";
    let mut statement = connection.prepare_cached(statement).map_err(failed)?;
    match statement.query_row((sql(ino.0),), |row| unsigned(row, 0)).optional().map_err(failed)? {
        Some(counted) => missing::refuse_xattrs(ino, found, counted),
        // Removed since.
        None => Ok(()),
    }
}
