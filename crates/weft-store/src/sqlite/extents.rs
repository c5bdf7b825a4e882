//! Changes of extents within a commit, and the reference counts that follow from them.

use super::read::{sql, unsigned};
use super::segments::taken;
use crate::batch::ExtentChange;
use crate::error::{Error, Result};
use crate::row::{BlockId, BlockRef, CommitNo, Ino, Place};
use rusqlite::Connection;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use weft_digest::{Digest, Parts};

/// How reference counts change in one commit.
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
        let statement = "DELETE FROM extents WHERE ino = ?1 AND idx >= ?2 AND idx < ?3 RETURNING block";
        let mut statement = connection.prepare_cached(statement).map_err(failed)?;
        let parameters = (sql(ino.0), sql(range.start), sql(range.end));
        let blocks = statement.query_map(parameters, |row| unsigned(row, 0)).map_err(failed)?;
        for block in blocks {
            *self.changes.entry(BlockId(block.map_err(failed)?)).or_insert(0) -= 1;
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
        let statement = "INSERT INTO extents (ino, idx, block, since) VALUES (?1, ?2, ?3, ?4)";
        let mut statement = connection.prepare_cached(statement).map_err(failed)?;
        for (ino, index, block) in extents {
            statement.execute((sql(ino.0), sql(*index), sql(block.0), sql(commit.0))).map_err(failed)?;
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

    /// Applies the changes of counts of older blocks, deletes those nobody names any more, and tells what
    /// space in segments they leave.
    pub(super) fn settle(self, connection: &Connection) -> Result<Freed> {
        let statement = "UPDATE blocks SET refs = refs + ?2 WHERE id = ?1 RETURNING refs, length, segment, position";
        let mut update = connection.prepare_cached(statement).map_err(failed)?;
        let mut delete = connection.prepare_cached("DELETE FROM blocks WHERE id = ?1").map_err(failed)?;
        let mut delete_bytes = connection.prepare_cached("DELETE FROM block_bytes WHERE id = ?1").map_err(failed)?;
        let mut changes: Vec<_> = self.changes.into_iter().filter(|(_, change)| *change != 0).collect();
        changes.sort_unstable();
        let mut freed = Freed::new();
        for (id, change) in changes {
            let read = |row: &rusqlite::Row<'_>| {
                let segment = row.get::<_, Option<u32>>(2)?;
                let offset = if segment.is_some() { unsigned(row, 3)? } else { 0 };
                Ok((row.get::<_, i64>(0)?, unsigned(row, 1)?, segment, offset))
            };
            let (refs, length, segment, offset) = match update.query_row((sql(id.0), change), read) {
                Ok(row) => row,
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
    let statement = "INSERT INTO blocks (id, refs, length, base, value, segment, position, parts) \
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
    let (segment, offset) = match block.place {
        Place::Database | Place::File(_) | Place::Own(_) => (None, None),
        Place::Segment { segment, offset } => (Some(segment), Some(sql(offset))),
    };
    let parts = (!parts.is_empty()).then(|| parts.as_bytes());
    let row = (sql(block.id.0), refs, block.length, sql(block.base), block.value.as_slice(), segment, offset, parts);
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
