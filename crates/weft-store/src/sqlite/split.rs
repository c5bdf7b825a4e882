//! Splitting a block where its bytes lie: its row and its extent become several.
//!
//! What files hold, and held, stays the same: the extents of the parts hold since the commit of the
//! one that they take the place of. So this may be done only while that extent is the only one that
//! names the block, of the present and of the past.

use super::extents::{put_block, put_extent, remove_extents};
use super::read::{self, sql, unsigned};
use super::segments::PAGE;
use crate::batch::SplitBlock;
use crate::error::{Error, Result};
use crate::row::{BlockRef, CommitNo, Place};
use rusqlite::{Connection, OptionalExtension};

fn failed(source: rusqlite::Error) -> Error {
    Error::Sqlite { what: "cannot split a block", source }
}

/// Splits a block, as [`crate::Transaction::split_block`]. None if it must not, or cannot, be.
pub(super) fn split(connection: &Connection, split: &SplitBlock) -> Result<Option<Vec<BlockRef>>> {
    let Place::Segment { segment, offset } = split.block.place else { return Ok(None) };
    // Space is given back by pages.
    let has_pages = split.block.length.is_multiple_of(page());
    let Some(since) = alone_since(connection, split)?.filter(|_| has_pages) else { return Ok(None) };
    remove_extents(connection, split.ino, &(split.span.start..split.span.start + 1))?;
    let mut forget = connection.prepare_cached("DELETE FROM blocks WHERE id = ?1").map_err(failed)?;
    forget.execute((sql(split.block.id.0),)).map_err(failed)?;
    let mut parts = Vec::with_capacity(split.parts.len());
    let mut at = offset;
    for (span, new) in &split.parts {
        let block = new.at(Place::Segment { segment, offset: at });
        put_block(connection, &block, 1, &new.parts)?;
        put_extent(connection, (split.ino, *span), block.id, since)?;
        at += u64::from(block.length);
        parts.push(block);
    }
    if at != offset + u64::from(split.block.length) {
        return Err(Error::Bug(format!("block {} is split into parts of another length", split.block.id.0)));
    }
    Ok(Some(parts))
}

fn page() -> u32 {
    u32::try_from(PAGE).expect("a page is small")
}

/// The commit since which the extent of `split` holds, if it is the only one that names its block,
/// and all is as it was written.
fn alone_since(connection: &Connection, split: &SplitBlock) -> Result<Option<CommitNo>> {
    let start = split.span.start;
    match read::extents(connection, split.ino, &(start..start + 1)) {
        Ok(found) if found == [(split.span, split.block)] => {}
        // Damage is told to whoever reads it.
        Ok(_) | Err(Error::Corrupt(_)) => return Ok(None),
        Err(error) => return Err(error),
    }
    let statement = "SELECT e.since FROM extents e JOIN blocks b ON b.id = e.block \
                     WHERE e.ino = ?1 AND e.start = ?2 AND b.refs = 1";
    let mut statement = connection.prepare_cached(statement).map_err(failed)?;
    let since = statement.query_row((sql(split.ino.0), sql(start)), |row| unsigned(row, 0)).optional();
    Ok(since.map_err(failed)?.map(CommitNo))
}
