//! Entries, blocks and attributes whose rows are gone, in SQLite.

use super::read::{sql, unsigned};
use crate::error::{Error, Result};
use crate::missing::{self, Blocks};
use crate::row::Ino;
use rusqlite::{Connection, OptionalExtension};

fn failed(source: rusqlite::Error) -> Error {
    Error::Sqlite { what: "cannot read the database", source }
}

pub(super) fn names(connection: &Connection, directory: Ino) -> Result<()> {
    let statement = "SELECT size, (SELECT count(*) FROM naming WHERE parent = ?1) FROM fileatt WHERE ino = ?1";
    let mut statement = connection.prepare_cached(statement).map_err(failed)?;
    let read = statement.query_row((sql(directory.0),), |row| Ok((unsigned(row, 0)?, unsigned(row, 1)?)));
    match read.optional().map_err(failed)? {
        Some((counted, found)) => missing::refuse_names(directory, found, counted),
        // Removed since.
        None => Ok(()),
    }
}

pub(super) fn block(connection: &Connection, (ino, index): (Ino, u64), block_size: u64) -> Result<()> {
    let statement = "SELECT size, allocated, \
                     (SELECT coalesce(sum(b.length), 0) FROM extents e JOIN blocks b ON b.id = e.block WHERE e.ino = ?1) \
                     FROM fileatt WHERE ino = ?1 AND inline IS NULL \
                     AND NOT EXISTS (SELECT 1 FROM extents WHERE ino = ?1 AND idx = ?2)";
    let mut statement = connection.prepare_cached(statement).map_err(failed)?;
    let read = statement.query_row((sql(ino.0), sql(index)), |row| {
        Ok(Blocks { size: unsigned(row, 0)?, allocated: unsigned(row, 1)?, held: unsigned(row, 2)? })
    });
    match read.optional().map_err(failed)? {
        Some(blocks) => missing::refuse_block((ino, index), block_size, &blocks),
        // Removed, filled or shortened since.
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
