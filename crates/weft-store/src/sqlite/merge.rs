//! Merging: one block takes the place of several with the same bytes.
//!
//! What the file holds, and held, stays the same. The new extent holds since the last of the
//! commits that wrote the old ones, and no version is made of those; what an older one held before
//! that commit is filed as a version that it ended, if a commit that is kept sees it.

use super::extents::{put_extent, remove_extents};
use super::history::keeping::keep_extents;
use super::read::{sql, unsigned};
use crate::batch::MergedBlock;
use crate::error::{Error, Result};
use crate::past::History;
use crate::references::References;
use crate::row::{BlockId, CommitNo};
use rusqlite::Connection;

fn failed(source: rusqlite::Error) -> Error {
    Error::Sqlite { what: "cannot merge blocks", source }
}

/// An extent that goes.
struct Old {
    start: u64,
    block: BlockId,
    since: CommitNo,
    /// True if its row is as it was written.
    is_whole: bool,
}

/// Puts the extents of `merged` in the place of those that lie in them.
pub(super) fn merge(
    connection: &Connection,
    history: Option<&History>,
    merged: &[MergedBlock],
    references: &mut References<BlockId>,
) -> Result<()> {
    for new in merged {
        let old = extents_in(connection, new)?;
        let Some(since) = old.iter().map(|extent| extent.since).max().filter(|_| old.iter().all(|old| old.is_whole))
        else {
            return Err(Error::Corrupt(format!("extents of inode {} are damaged or gone", new.ino.0)));
        };
        for extent in &old {
            let is_seen = history.map_or(Ok(false), |history| is_seen(connection, history, extent.since, since))?;
            if is_seen {
                keep_extents(connection, new.ino, &(extent.start..extent.start + 1), since)?;
            } else {
                references.lose(extent.block);
            }
        }
        remove_extents(connection, new.ino, &new.span.range())?;
        put_extent(connection, (new.ino, new.span), new.block.id, since)?;
        references.gain(new.block.id);
    }
    Ok(())
}

fn extents_in(connection: &Connection, new: &MergedBlock) -> Result<Vec<Old>> {
    let statement = "SELECT start, block, since, sum IS weft_sum('extents', ino, start, length, block, since) \
                     FROM extents WHERE ino = ?1 AND start >= ?2 AND start < ?3 ORDER BY start";
    let mut statement = connection.prepare_cached(statement).map_err(failed)?;
    let old = |row: &rusqlite::Row<'_>| {
        let (start, block, since) = (unsigned(row, 0)?, BlockId(unsigned(row, 1)?), CommitNo(unsigned(row, 2)?));
        Ok(Old { start, block, since, is_whole: row.get(3)? })
    };
    let parameters = (sql(new.ino.0), sql(new.span.start), sql(new.span.end()));
    let rows = statement.query_map(parameters, old).map_err(failed)?;
    rows.collect::<rusqlite::Result<_>>().map_err(failed)
}

/// True if a commit that is kept sees what held from `since` until `until`.
fn is_seen(connection: &Connection, history: &History, since: CommitNo, until: CommitNo) -> Result<bool> {
    if since >= until {
        return Ok(false);
    }
    if history.first < until {
        return Ok(true);
    }
    let any = "SELECT EXISTS (SELECT 1 FROM pins WHERE commit_number >= ?1 AND commit_number < ?2)";
    let mut any = connection.prepare_cached(any).map_err(failed)?;
    any.query_row((sql(since.0), sql(until.0)), |row| row.get(0)).map_err(failed)
}
