//! The blocks of a broken volume: those that are whole, and those of files whose bytes are damaged.

use super::{Extents, Missing, Salvage, failed, rows};
use crate::batch::NewBlock;
use crate::error::Result;
use crate::row::{BlockId, BlockRef, Ino, Place, Span};
use crate::sqlite::damaged_bytes::DamagedBytes;
use crate::sqlite::extents::put_block;
use crate::sqlite::read::sql;
use crate::sqlite::segments::{PAGE, Segments, Tail, taken};
use crate::store::ReadMode;
use rusqlite::Connection;
use std::collections::BTreeMap;
use weft_block::{Block, Rope};
use weft_digest::Parts;

impl Salvage<'_> {
    /// The rows of a block that fit the volume, each with the data that verifies its parts.
    fn rows_of(&self, id: BlockId) -> impl Iterator<Item = (BlockRef, Vec<u8>)> {
        let size = self.volume.options.block_size;
        let records = self.found.blocks.of(id).filter_map(|cell| self.pages.record(cell));
        let rows = records.filter_map(|record| rows::block(record.row?, &record.columns));
        let is_subtree = |block: &BlockRef| block.base.is_multiple_of(Span::length_for(block.length).into());
        let fitting = rows.filter(move |(block, ..)| block.length <= size && is_subtree(block));
        fitting.map(|(block, parts, _)| (block, parts))
    }

    /// A block, if it can be read and is what was written.
    pub(super) fn block(&self, id: BlockId, segments: Option<&Segments>) -> Option<NewBlock> {
        self.rows_of(id).find_map(|(block, _)| {
            let bytes = self.bytes(&block, segments).find(|bytes| block.verify(bytes))?;
            Some(NewBlock::new(id, Ino::ROOT, Rope::from(bytes.whole()), block.base))
        })
    }

    /// A block that is not what was written, with the bytes that lie at its place, or zeros. It
    /// keeps the value of what was written, so that no reader takes it for that.
    pub(super) fn damaged_block(&self, id: BlockId, segments: Option<&Segments>) -> Option<NewBlock> {
        let (block, parts) = self.rows_of(id).next()?;
        let length = block.length as usize;
        let bytes = self.bytes(&block, segments).find(|bytes| bytes.len() == length);
        let bytes = bytes.map_or_else(|| Rope::from(vec![0; length]), |bytes| Rope::from(bytes.whole()));
        let parts = Parts::from_bytes(&parts, &block.value, block.base).unwrap_or_default();
        Some(NewBlock { id, owner: Ino::ROOT, bytes, base: block.base, value: block.value, alone: None, parts })
    }

    /// The bytes that may be those of a block.
    fn bytes(&self, block: &BlockRef, segments: Option<&Segments>) -> impl Iterator<Item = Block> {
        let place = match block.place {
            Place::Segment { segment, offset } => Some((segment, offset)),
            Place::Database | Place::File(_) | Place::Own(_) => None,
        };
        let read = |(segment, offset)| {
            segments?.read(segment, offset, block.length as usize, ReadMode::Blocking).ok().flatten()
        };
        let cells = place.is_none().then(|| self.found.bytes.of(block.id)).into_iter().flatten();
        let records = cells.filter_map(|cell| self.pages.record(cell));
        let rows = records.filter_map(|record| Some(Block::copy_of(record.columns.get(1)?.blob()?)));
        place.and_then(read).into_iter().chain(rows)
    }

    /// Reports the damaged bytes of files that were brought with them.
    pub(super) fn tell_damaged(
        &mut self,
        extents: &BTreeMap<Ino, Extents>,
        blocks: &BTreeMap<BlockId, u32>,
    ) -> Result<()> {
        let mut damaged = DamagedBytes::default();
        for ino in &self.damaged_files {
            let own = extents.get(ino).into_iter().flatten();
            for (span, block) in own.filter(|(_, block)| self.damaged_blocks.contains(block)) {
                let end = span.start + blocks.get(block).map_or(0, |length| u64::from(*length));
                damaged.add(
                    sql(ino.0),
                    sql(span.start)..sql(end),
                    sql(block.0),
                    "has other bytes than were written".into(),
                );
            }
        }
        let findings = damaged.findings(|ino| Ok(self.path(Ino(ino.unsigned_abs()))))?;
        self.told.damaged = self.damaged_files.len() as u64;
        self.told.missing.extend(findings.into_iter().map(|finding| Missing {
            kind: "bytes",
            what: finding.path.unwrap_or_default(),
            why: format!("{}; the rest of the file is brought, and reading these is an error", finding.what),
        }));
        Ok(())
    }
}

/// Writes blocks, with how often each is named, to the new volume, from `tail` on; tells where they
/// end.
pub(super) fn store(
    connection: &Connection,
    chunk: &[(NewBlock, i64)],
    into: Option<&Segments>,
    tail: Tail,
) -> Result<Tail> {
    let blocks = chunk.iter().map(|(block, _)| block.clone()).collect::<Vec<_>>();
    let (places, tail) = match into {
        Some(segments) if !blocks.is_empty() => {
            let (places, tail) = Segments::assign(tail, &blocks);
            let first = first_written(&blocks, &places);
            segments.append(&blocks[first..], &places[first..])?;
            segments.sync(&places)?;
            (places, tail)
        }
        _ => (vec![Place::Database; blocks.len()], tail),
    };
    connection.execute_batch("BEGIN").map_err(failed)?;
    let bytes = "INSERT INTO block_bytes (id, bytes) VALUES (?1, ?2)";
    let mut bytes = connection.prepare_cached(bytes).map_err(failed)?;
    let segment = "INSERT INTO segments (id, length, live) VALUES (?1, ?2, ?3) ON CONFLICT (id) \
                   DO UPDATE SET length = max(length, excluded.length), live = live + excluded.live";
    let mut segment_row = connection.prepare_cached(segment).map_err(failed)?;
    for ((block, refs), place) in chunk.iter().zip(places) {
        let length = block.bytes.len() as u64;
        match place {
            Place::Database | Place::File(_) | Place::Own(_) => {
                bytes.execute((sql(block.id.0), &block.bytes.contiguous()[..]))
            }
            Place::Segment { segment, offset } => {
                segment_row.execute((segment, sql(offset + taken(length)), sql(taken(length))))
            }
        }
        .map_err(failed)?;
        put_block(connection, &block.at(place), *refs, &block.parts)?;
    }
    connection.execute_batch("COMMIT; PRAGMA wal_checkpoint(PASSIVE)").map_err(failed)?;
    Ok(tail)
}

/// The first of `blocks` that has to be written: those before a last one of zeros may be a hole.
/// Where a segment is gone, there are many.
fn first_written(blocks: &[NewBlock], places: &[Place]) -> usize {
    let (Some(Place::Segment { segment: first, .. }), Some(Place::Segment { segment: last, offset })) =
        (places.first(), places.last())
    else {
        return 0;
    };
    let is_hole = || blocks.iter().all(|block| block.bytes.slices().iter().all(|slice| weft_digest::is_zero(slice)));
    if first == last && offset.is_multiple_of(PAGE) && is_hole() { blocks.len() - 1 } else { 0 }
}
