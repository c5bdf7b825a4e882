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

/// Bytes between two blocks that are rather read along than left out by another read.
const GAP_BYTES: u64 = 32 << 10;

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
            let run = &blocks[at..at + run_with_gaps(&blocks[at..], GAP_BYTES)];
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

    /// Blocks that lie together, but for what lies between them.
    fn run(&self, blocks: &[BlockRef]) -> Option<Vec<Block>> {
        let (Place::Segment { segment, offset }, Some(segments)) = (blocks.first()?.place, &self.segments) else {
            return None;
        };
        let (mut lengths, mut wanted, mut next) = (Vec::new(), Vec::new(), offset);
        for block in blocks {
            let Place::Segment { offset, .. } = block.place else { return None };
            if let Some(gap) = offset.checked_sub(next).filter(|gap| *gap > 0) {
                lengths.push(usize::try_from(gap).ok()?);
                wanted.push(false);
            }
            lengths.push(block.length as usize);
            wanted.push(true);
            // Each is read from a page of its own, to the end of one.
            next = offset + u64::from(block.length).next_multiple_of(PAGE);
        }
        let read =
            if offset.is_multiple_of(PAGE) { segments.read_run(segment, offset, &lengths)? } else { return None };
        Some(read.into_iter().zip(wanted).filter_map(|(bytes, is_wanted)| is_wanted.then_some(bytes)).collect())
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
    run_with_gaps(blocks, 0)
}

/// The same of blocks that lie in their order, at most `gap_max` bytes between one and the next.
fn run_with_gaps(blocks: &[BlockRef], gap_max: u64) -> usize {
    let Place::Segment { segment: first, offset: start } = blocks[0].place else { return 1 };
    let mut next = start + taken(u64::from(blocks[0].length));
    let mut count = 1;
    for block in &blocks[1..] {
        let Place::Segment { segment, offset } = block.place else { break };
        let end = offset.saturating_add(taken(u64::from(block.length)));
        let is_near = segment == first && offset >= next && offset - next <= gap_max;
        let follows = is_near && offset.is_multiple_of(PAGE) && end - start <= RUN_BYTES;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::BlockId;

    fn block(segment: u32, offset: u64, length: u32) -> BlockRef {
        let place = Place::Segment { segment, offset };
        BlockRef { id: BlockId(offset), length, base: 0, value: [1; 32], place }
    }

    #[test]
    fn blocks_that_lie_near_each_other_are_read_with_what_lies_between() {
        let near = [block(1, 0, 4096), block(1, 4096, 5000), block(1, 4096 + 8192 + 8192, 4096)];
        assert_eq!((run_of(&near), run_with_gaps(&near, GAP_BYTES)), (2, 3));
        let far = [block(1, 0, 4096), block(1, 4096 + GAP_BYTES + PAGE, 4096)];
        let before = [block(1, 8192, 4096), block(1, 0, 4096)];
        let overlapping = [block(1, 0, 8192), block(1, 4096, 4096)];
        let elsewhere = [block(1, 0, 4096), block(2, 4096, 4096)];
        let within_a_page = [block(1, 0, 1000), block(1, 1000, 1000)];
        for apart in [far, before, overlapping, elsewhere, within_a_page] {
            assert_eq!(run_with_gaps(&apart, GAP_BYTES), 1, "{apart:?}");
        }
        let many = (0..600).map(|n| block(1, n * 3 * PAGE, 4096)).collect::<Vec<_>>();
        let count = run_with_gaps(&many, GAP_BYTES);
        assert!(count <= RUN_BLOCKS && (count as u64) * 3 * PAGE <= RUN_BYTES + 3 * PAGE, "{count}");
    }
}
