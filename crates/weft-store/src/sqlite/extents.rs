//! Changes of extents within a commit, and the reference counts that follow from them.

use super::read::{sql, unsigned};
use super::segments::taken;
use crate::batch::ExtentChange;
use crate::error::{Error, Result};
use crate::row::{BlockId, BlockRef, CommitNo, Ino, Place};
use crate::sums;
use rusqlite::Connection;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use weft_digest::{Digest, Parts};

/// Changes of reference counts in one commit.
#[derive(Default)]
pub(super) struct References {
    changes: HashMap<BlockId, i64>,
}

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

impl References {
    /// Deletes the extents of `ino` in `range`.
    pub(super) fn clear(&mut self, connection: &Connection, ino: Ino, range: &Range<u64>) -> Result<()> {
        let statement = "DELETE FROM extents WHERE ino = ?1 AND idx >= ?2 AND idx < ?3 \
                         RETURNING block, sum IS weft_sum('extents', ino, idx, block, since)";
        let mut statement = connection.prepare_cached(statement).map_err(failed)?;
        let parameters = (sql(ino.0), sql(range.start), sql(range.end));
        let mut rows = statement.query(parameters).map_err(failed)?;
        while let Some(row) = rows.next().map_err(failed)? {
            // A damaged row may name a block that others need.
            if row.get(1).map_err(failed)? {
                *self.changes.entry(BlockId(unsigned(row, 0).map_err(failed)?)).or_insert(0) -= 1;
            }
        }
        Ok(())
    }

    /// Puts `extents`, sorted by inode and index.
    pub(super) fn put(
        &mut self,
        connection: &Connection,
        commit: CommitNo,
        extents: &[(Ino, u64, BlockId)],
    ) -> Result<()> {
        let mut from = 0;
        while from < extents.len() {
            let (ino, start, _) = extents[from];
            let run = extents[from..].iter().zip(start..).take_while(|((i, index, _), at)| *i == ino && index == at);
            let run = run.count();
            self.clear(connection, ino, &(start..start + run as u64))?;
            from += run;
        }
        let statement = "INSERT INTO extents (ino, idx, block, since, sum) VALUES (?1, ?2, ?3, ?4, ?5)";
        let mut statement = connection.prepare_cached(statement).map_err(failed)?;
        for (ino, index, block) in extents {
            let sum = sums::extent(*ino, *index, block.0, commit);
            statement.execute((sql(ino.0), sql(*index), sql(block.0), sql(commit.0), sum)).map_err(failed)?;
            *self.changes.entry(*block).or_insert(0) += 1;
        }
        Ok(())
    }

    /// Inserts the new `blocks` with the references they got.
    pub(super) fn insert(&mut self, connection: &Connection, blocks: &[Stored]) -> Result<()> {
        for Stored { block, parts, .. } in blocks {
            let refs = self.changes.remove(&block.id).unwrap_or(0);
            if refs <= 0 {
                return Err(Error::Bug(format!("no extent names new block {}", block.id.0)));
            }
            put_block(connection, block, refs, parts)?;
        }
        Ok(())
    }

    /// Applies the changes of counts of older blocks, deletes those nobody names any more, and
    /// tells what space in segments they leave.
    pub(super) fn settle(self, connection: &Connection) -> Result<Freed> {
        let statement = "UPDATE blocks SET refs = refs + ?2, sum = ((sum & 4611686018427387903) + ?3) & 4611686018427387903 WHERE id = ?1 \
                         RETURNING refs, length, segment, position, \
                         sum IS weft_sum('blocks', id, length, base, value, segment, position, refs)";
        let mut update = connection.prepare_cached(statement).map_err(failed)?;
        let mut delete = connection.prepare_cached("DELETE FROM blocks WHERE id = ?1").map_err(failed)?;
        let mut delete_bytes = connection.prepare_cached("DELETE FROM block_bytes WHERE id = ?1").map_err(failed)?;
        let mut changes: Vec<_> = self.changes.into_iter().filter(|(_, change)| *change != 0).collect();
        changes.sort_unstable();
        let mut freed = Freed::new();
        for (id, change) in changes {
            let read = |row: &rusqlite::Row<'_>| {
                if !row.get::<_, bool>(4)? {
                    return Ok(None);
                }
                let segment = row.get::<_, Option<u32>>(2)?;
                let offset = if segment.is_some() { unsigned(row, 3)? } else { 0 };
                Ok(Some((row.get::<_, i64>(0)?, unsigned(row, 1)?, segment, offset)))
            };
            let parameters = (sql(id.0), change, sums::references(change));
            let (refs, length, segment, offset) = match update.query_row(parameters, read) {
                Ok(Some(row)) => row,
                // How many name it, and where it lies, is not known: it stays, as damaged as it
                // was.
                Ok(None) => continue,
                // A damaged volume. Deleting the file that named it must still be possible.
                Err(rusqlite::Error::QueryReturnedNoRows) if change < 0 => continue,
                Err(rusqlite::Error::QueryReturnedNoRows) => {
                    return Err(Error::Corrupt(format!("block {} has no row", id.0)));
                }
                Err(error) => return Err(failed(error)),
            };
            if refs > 0 {
                continue;
            }
            delete.execute((sql(id.0),)).map_err(failed)?;
            match segment {
                Some(segment) => drop(freed.insert((segment, offset), taken(length))),
                None => drop(delete_bytes.execute((sql(id.0),)).map_err(failed)?),
            }
        }
        Ok(merged(freed))
    }
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

/// The clears of a batch, and its puts sorted by inode and index.
#[expect(clippy::type_complexity, reason = "two lists used once")]
pub(super) fn split(changes: &[ExtentChange]) -> (Vec<(Ino, Range<u64>)>, Vec<(Ino, u64, BlockId)>) {
    let (mut clears, mut puts) = (Vec::new(), Vec::new());
    for change in changes {
        match change {
            ExtentChange::Clear { ino, range } => clears.push((*ino, range.clone())),
            ExtentChange::Put { ino, index, block } => puts.push((*ino, *index, block.id)),
        }
    }
    puts.sort_unstable();
    (clears, puts)
}
