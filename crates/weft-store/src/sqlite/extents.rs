//! Changes of extents within a commit, and the numbers of references that follow from them, as
//! [`crate::references`] plans them.

use super::history::keeping::Keeping;
use super::read::{sql, unsigned};
use super::segments::taken;
use crate::error::{Error, Result};
use crate::references::{BlockState, ExtentPlan, Fate, References};
use crate::row::{BlockId, BlockRef, CommitNo, Ino, Place, Span};
use crate::sums;
use rusqlite::{Connection, OptionalExtension};
use std::collections::BTreeMap;
use std::ops::Range;
use weft_digest::{Digest, Parts};

/// A block of the commit.
pub(super) struct Stored {
    pub(super) block: BlockRef,
    pub(super) parts: Parts,
    /// See [`crate::NewBlock::alone`].
    pub(super) alone: Option<Digest>,
}

/// Space that a commit frees: (segment, offset) to length.
pub(super) type Freed = BTreeMap<(u32, u64), u64>;

fn failed(source: rusqlite::Error) -> Error {
    Error::Sqlite { what: "cannot change extents", source }
}

/// Replaces extents as `plan` says, in `commit`; counts what blocks lose and gain by it. Those that
/// are kept stay references.
pub(super) fn replace(
    (connection, keeping): (&Connection, Option<Keeping<'_>>),
    commit: CommitNo,
    plan: &ExtentPlan<BlockId>,
    references: &mut References<BlockId>,
) -> Result<()> {
    let all = plan.removed.iter().map(|ino| (*ino, 0..u64::MAX));
    for (ino, range) in plan.replaced.iter().cloned().chain(all) {
        match keeping {
            Some(keeping) => keep(connection, keeping, ino, &range)?,
            None => clear(connection, ino, &range, references)?,
        }
    }
    for (ino, span, block) in &plan.put {
        put_extent(connection, (*ino, *span), *block, commit)?;
        references.gain(*block);
    }
    Ok(())
}

/// Inserts the extent `span` of `ino`, of `block`, which holds since commit `since`.
pub(super) fn put_extent(
    connection: &Connection,
    (ino, span): (Ino, Span),
    block: BlockId,
    since: CommitNo,
) -> Result<()> {
    let statement = "INSERT INTO extents (ino, start, length, block, since, sum) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    let mut statement = connection.prepare_cached(statement).map_err(failed)?;
    let sum = sums::extent(ino, span, block.0, since);
    let row = (sql(ino.0), sql(span.start), span.length, sql(block.0), sql(since.0), sum);
    statement.execute(row).map(drop).map_err(failed)
}

/// Deletes the extents of `ino` in `range`, whatever they name.
pub(super) fn remove_extents(connection: &Connection, ino: Ino, range: &Range<u64>) -> Result<()> {
    let statement = "DELETE FROM extents WHERE ino = ?1 AND start >= ?2 AND start < ?3";
    let mut statement = connection.prepare_cached(statement).map_err(failed)?;
    statement.execute((sql(ino.0), sql(range.start), sql(range.end))).map(drop).map_err(failed)
}

/// Moves the extents of `ino` in `range` to the past.
fn keep(connection: &Connection, keeping: Keeping<'_>, ino: Ino, range: &Range<u64>) -> Result<()> {
    keeping.extents(ino, range)?;
    remove_extents(connection, ino, range)
}

/// Deletes the extents of `ino` in `range`.
fn clear(connection: &Connection, ino: Ino, range: &Range<u64>, references: &mut References<BlockId>) -> Result<()> {
    let statement = "DELETE FROM extents WHERE ino = ?1 AND start >= ?2 AND start < ?3 \
                     RETURNING block, sum IS weft_sum('extents', ino, start, length, block, since)";
    let mut statement = connection.prepare_cached(statement).map_err(failed)?;
    let parameters = (sql(ino.0), sql(range.start), sql(range.end));
    let mut rows = statement.query(parameters).map_err(failed)?;
    while let Some(row) = rows.next().map_err(failed)? {
        if row.get(1).map_err(failed)? {
            references.lose(BlockId(unsigned(row, 0).map_err(failed)?));
        }
    }
    Ok(())
}

/// Inserts the new `blocks` with the references they got.
pub(super) fn insert(connection: &Connection, blocks: &[Stored], references: &mut References<BlockId>) -> Result<()> {
    for Stored { block, parts, .. } in blocks {
        put_block(connection, block, references.take_new(block.id, block.id)?, parts)?;
    }
    Ok(())
}

/// Applies the changes of counts of older blocks, deletes those nobody names any more, and tells
/// what space in segments they leave.
pub(super) fn settle(connection: &Connection, references: &References<BlockId>) -> Result<Freed> {
    let mut delete = connection.prepare_cached("DELETE FROM blocks WHERE id = ?1").map_err(failed)?;
    let mut delete_bytes = connection.prepare_cached("DELETE FROM block_bytes WHERE id = ?1").map_err(failed)?;
    let mut freed = Freed::new();
    for (id, change) in references.changed() {
        let (row, space) = change_count(connection, id, change)?;
        if row.fate(id, change)? == Fate::Lives {
            continue;
        }
        delete.execute((sql(id.0),)).map_err(failed)?;
        match space {
            Some((place, length)) => drop(freed.insert(place, taken(length))),
            None => drop(delete_bytes.execute((sql(id.0),)).map_err(failed)?),
        }
    }
    Ok(merged(freed))
}

/// Segment and offset of a block, and its length.
type Space = ((u32, u64), u64);

/// Changes the number of references in the row of block `id`. Returns the state of that row, and
/// the space of the block if it lies in a segment. Damage stays what it was: the sum changes with
/// the number.
fn change_count(connection: &Connection, id: BlockId, change: i64) -> Result<(BlockState, Option<Space>)> {
    let statement = "UPDATE blocks SET refs = refs + ?2, sum = ((sum & 4611686018427387903) + ?3) & 4611686018427387903 WHERE id = ?1 \
                     RETURNING refs, length, segment, position, \
                     sum IS weft_sum('blocks', id, length, base, value, segment, position, refs)";
    let mut update = connection.prepare_cached(statement).map_err(failed)?;
    let read = |row: &rusqlite::Row<'_>| {
        if !row.get::<_, bool>(4)? {
            return Ok((BlockState::Damaged, None));
        }
        let space = match row.get::<_, Option<u32>>(2)? {
            Some(segment) => Some(((segment, unsigned(row, 3)?), unsigned(row, 1)?)),
            None => None,
        };
        Ok((BlockState::Whole { left: row.get(0)? }, space))
    };
    let found = update.query_row((sql(id.0), change, sums::references(change)), read).optional();
    Ok(found.map_err(failed)?.unwrap_or((BlockState::Missing, None)))
}

/// Inserts the row of a block that `refs` extents name.
pub(super) fn put_block(connection: &Connection, block: &BlockRef, refs: i64, parts: &Parts) -> Result<()> {
    let statement = "INSERT INTO blocks (id, refs, length, base, value, segment, position, parts, sum) \
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
    let (segment, offset) = match block.place {
        Place::Database | Place::File(_) | Place::Own(_) => (None, None),
        Place::Segment { segment, offset } => (Some(segment), Some(sql(offset))),
    };
    let parts = (!parts.is_empty()).then(|| parts.as_bytes());
    let (value, sum) = (block.value.as_slice(), sums::block(block, refs));
    let row = (sql(block.id.0), refs, block.length, sql(block.base), value, segment, offset, parts, sum);
    connection.prepare_cached(statement).map_err(failed)?.execute(row).map_err(failed)?;
    Ok(())
}

/// Joins space that lies together.
fn merged(freed: Freed) -> Freed {
    let mut joined = Freed::new();
    let mut last: Option<((u32, u64), u64)> = None;
    for ((segment, offset), length) in freed {
        match &mut last {
            Some(((own, start), len)) if *own == segment && *start + *len == offset => *len += length,
            _ => {
                joined.extend(last.replace(((segment, offset), length)));
            }
        }
    }
    joined.extend(last);
    joined
}
