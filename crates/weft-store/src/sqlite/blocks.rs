//! Reading blocks: whole, in part, or many that lie together. Whatever is given was verified.

use super::SqliteStore;
use super::read;
use super::segments::{PAGE, Segments, taken};
use crate::error::{Error, Result};
use crate::row::{BlockRef, Place};
use crate::store::ReadMode;
use rusqlite::Connection;
use std::ops::Range;
use weft_block::Block;
use weft_digest::PART_BYTES;

/// Bytes read from a segment at once.
const RUN_BYTES: u64 = 1 << 20;

/// Blocks read at once: preadv(2) takes 1024 pieces.
const RUN_BLOCKS: usize = 256;

impl SqliteStore {
    pub(super) fn block(&self, block: &BlockRef, mode: ReadMode) -> Result<Option<Block>> {
        let bytes = match block.place {
            Place::Database | Place::File(_) | Place::Own(_) => {
                self.readers.with(|connection| read::block_bytes(connection, block.id))?
            }
            Place::Segment { segment, offset } => {
                let length = block.length as usize;
                match self.segments_of(block)?.read(segment, offset, length, mode)? {
                    Some(bytes) => bytes,
                    None => return Ok(None),
                }
            }
        };
        verified(block, bytes).map(Some)
    }

    /// Bytes `range` of a block and what lies around them, with where they begin.
    pub(super) fn part(
        &self,
        block: &BlockRef,
        range: &Range<usize>,
        mode: ReadMode,
    ) -> Result<Option<(usize, Block)>> {
        let whole = || Ok(self.block(block, mode)?.map(|bytes| (0, bytes)));
        let (Place::Segment { segment, offset }, Some(index)) = (block.place, part_of(block, range)) else {
            return whole();
        };
        if mode == ReadMode::CachedOnly {
            // A reader that reads here and there reads past the page cache.
            return Ok(None);
        }
        let start = index * PART_BYTES;
        let length = (block.length as usize - start).min(PART_BYTES);
        let read = self.segments_of(block)?.read_run(segment, offset + start as u64, &[length]);
        let Some(bytes) = read.and_then(|read| read.into_iter().next()) else { return whole() };
        match self.readers.with(|connection| read::parts(connection, block))? {
            None => whole(),
            Some(parts) if parts.verify(index, &bytes) => Ok(Some((start, bytes))),
            Some(_) => Err(damaged(block)),
        }
    }

    pub(super) fn blocks(&self, blocks: &[BlockRef], visit: &mut dyn FnMut(usize, Result<Block>)) {
        let mut at = 0;
        while at < blocks.len() {
            let run = &blocks[at..at + run_of(&blocks[at..])];
            // One by one each says what is wrong with it, if anything.
            let mut read = self.run(run).map(Vec::into_iter);
            for block in run {
                let bytes = read.as_mut().and_then(Iterator::next);
                visit(at, bytes.map_or_else(|| self.block_in_time(block), |bytes| verified(block, bytes)));
                at += 1;
            }
        }
    }

    fn block_in_time(&self, block: &BlockRef) -> Result<Block> {
        self.block(block, ReadMode::Blocking)?.ok_or_else(|| Error::Bug("a wait for ever ended".into()))
    }

    /// Blocks that lie together.
    fn run(&self, blocks: &[BlockRef]) -> Option<Vec<Block>> {
        let (Place::Segment { segment, offset }, Some(segments)) = (blocks.first()?.place, &self.segments) else {
            return None;
        };
        let lengths = blocks.iter().map(|block| block.length as usize).collect::<Vec<_>>();
        if offset.is_multiple_of(PAGE) { segments.read_run(segment, offset, &lengths) } else { None }
    }

    fn segments_of(&self, block: &BlockRef) -> Result<&Segments> {
        let none = || Error::Corrupt(format!("block {} lies in a segment, but the volume has none", block.id.0));
        self.segments.as_deref().ok_or_else(none)
    }
}

/// The bytes at the place of a block, whatever they are; none if that is in a segment and there are
/// no `segments`.
pub(super) fn bytes_at_place(
    connection: &Connection,
    segments: Option<&Segments>,
    block: &BlockRef,
) -> Result<Option<Block>> {
    match (block.place, segments) {
        (Place::Database | Place::File(_) | Place::Own(_), _) => Ok(Some(read::block_bytes(connection, block.id)?)),
        (Place::Segment { segment, offset }, Some(segments)) => {
            segments.read(segment, offset, block.length as usize, ReadMode::Blocking)
        }
        (Place::Segment { .. }, None) => Ok(None),
    }
}

/// The part of `block` that all of `range` lies in, if there are several.
fn part_of(block: &BlockRef, range: &Range<usize>) -> Option<usize> {
    let end = range.end.min(block.length as usize);
    let index = range.start / PART_BYTES;
    let inside = range.start < end && end <= (index + 1) * PART_BYTES;
    (inside && block.length as usize > PART_BYTES).then_some(index)
}

/// Returns the number of the first `blocks` that lie together and are not too many to be read at
/// once; at least one.
pub(super) fn run_of(blocks: &[BlockRef]) -> usize {
    let Place::Segment { segment: first, offset: start } = blocks[0].place else { return 1 };
    let mut next = start + taken(u64::from(blocks[0].length));
    let mut count = 1;
    for block in &blocks[1..] {
        let Place::Segment { segment, offset } = block.place else { break };
        let end = offset.saturating_add(taken(u64::from(block.length)));
        let follows = segment == first && offset == next && offset.is_multiple_of(PAGE) && end - start <= RUN_BYTES;
        if !follows || count == RUN_BLOCKS {
            break;
        }
        next = end;
        count += 1;
    }
    count
}

fn verified(block: &BlockRef, bytes: Block) -> Result<Block> {
    if block.verify(&bytes) { Ok(bytes) } else { Err(damaged(block)) }
}

fn damaged(block: &BlockRef) -> Error {
    let place = match block.place {
        Place::Segment { segment, offset } => format!(" (segment {segment}, byte {offset})"),
        Place::Database | Place::File(_) | Place::Own(_) => String::new(),
    };
    Error::Corrupt(format!("block {}{place} has other bytes than were written", block.id.0))
}
