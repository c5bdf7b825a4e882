//! The bytes of the blocks that a job becomes. Those that one piece holds are not copied.

use crate::volume::Vfs;
use rustc_hash::FxHashMap;
use std::ops::Range;
use weft_block::{Block, Buffer, Rope};
use weft_store::{BlockId, BlockRef, NewBlock, Span, SplitBlock};
use weft_tree::{Job, JobReason, Layout, NewPart, Part, PartsLayout, Split, Stored};

/// Blocks that are written over in part; none where it is damaged.
pub(super) type Bases = FxHashMap<BlockId, Option<Block>>;

/// The blocks of a job.
pub(super) enum Built {
    /// One.
    Whole(NewBlock),
    /// Those of its [`PartsLayout`]: of `splits`, and of `new`.
    Parts(Vec<SplitBlock>, Vec<NewBlock>),
}

/// The base blocks of which `job`, of a volume with blocks of `block_size`, needs bytes.
pub(super) fn needed(job: &Job, block_size: usize) -> Vec<BlockRef> {
    let base = job.base.as_ref();
    let parts = match &job.layout {
        Layout::Whole(_) if job.pieces.covers(0..job.len) => return Vec::new(),
        Layout::Whole(_) => return base.into_iter().flat_map(Stored::blocks).copied().collect(),
        Layout::Parts(parts) => parts,
    };
    let uncovered = parts.new.iter().map(NewPart::bytes).filter(|range| !job.pieces.covers(range.clone()));
    let uncovered = uncovered.collect::<Vec<_>>();
    let is_split = |part: &Part| parts.splits.iter().any(|split| split.part.start == part.start);
    let is_below = |part: &Part| uncovered.iter().any(|range| overlap(part, range).is_some());
    let base = base.map(|base| base.parts(block_size)).unwrap_or_default();
    base.iter().filter(|part| is_split(part) || is_below(part)).map(|part| part.block).collect()
}

/// The bytes of `range` of a block that `part` of it holds.
fn overlap(part: &Part, range: &Range<usize>) -> Option<Range<usize>> {
    let held = part.bytes();
    let (start, end) = (held.start.max(range.start), held.end.min(range.end));
    (start < end).then_some(start..end)
}

impl Vfs {
    /// None if it would have bytes of a damaged block.
    pub(super) fn build(&self, job: &Job, bases: &Bases) -> Option<Built> {
        match &job.layout {
            Layout::Whole(id) => {
                let bytes = self.whole_content(job, *id, bases)?;
                let position = job.index * u64::from(self.block_size);
                Some(Built::Whole(NewBlock::new(*id, job.ino, bytes, position)))
            }
            Layout::Parts(parts) => self.build_parts(job, parts, bases),
        }
    }

    fn build_parts(&self, job: &Job, parts: &PartsLayout, bases: &Bases) -> Option<Built> {
        let position = job.index * u64::from(self.block_size);
        let splits = parts.splits.iter().map(|split| self.split(job, split, bases)).collect::<Option<Vec<_>>>()?;
        let new = |part: &NewPart| {
            let bytes = self.part_content(job, part, bases)?;
            Some(NewBlock::new(part.id, job.ino, bytes, position + u64::from(part.start)))
        };
        Some(Built::Parts(splits, parts.new.iter().map(new).collect::<Option<Vec<_>>>()?))
    }

    /// The parts of a stored block that is split. Those that stay are cached if it is.
    fn split(&self, job: &Job, split: &Split, bases: &Bases) -> Option<SplitBlock> {
        let Part { start, length, block } = split.part;
        let bytes = bases[&block.id].as_ref()?;
        let position = job.index * u64::from(self.block_size);
        let is_cached = self.blocks.has_whole(block.id);
        let mut parts = Vec::with_capacity(split.leaves.len());
        for leaf in &split.leaves {
            let within = leaf.within(&split.part);
            if is_cached && leaf.is_kept {
                self.blocks.insert(leaf.id, Block::copy_of(&bytes[within.clone()]));
            }
            let base = block.base + within.start as u64;
            let new = NewBlock::new(leaf.id, job.ino, Rope::from(bytes.slice(within)), base);
            parts.push((Span { start: position + u64::from(leaf.start), length: leaf.length }, new));
        }
        let span = Span { start: position + u64::from(start), length };
        Some(SplitBlock { ino: job.ino, span, block, parts })
    }

    /// The bytes of a part of a block.
    fn part_content(&self, job: &Job, part: &NewPart, bases: &Bases) -> Option<Rope> {
        let range = part.bytes();
        if let Some(bytes) = self.one_piece(job, part.id, range.clone()) {
            return Some(bytes);
        }
        let mut bytes = Buffer::with_capacity(range.len());
        if !job.pieces.covers(range.clone()) {
            for base in job.base.iter().flat_map(|base| base.parts(self.block_size as usize)) {
                let Some(here) = overlap(&base, &range) else { continue };
                let first = base.bytes().start;
                bytes.resize(here.start - range.start);
                bytes.extend_from_slice(&bases[&base.block.id].as_ref()?[here.start - first..here.end - first]);
            }
        }
        bytes.resize(range.len());
        overlay(&mut bytes, job, range);
        let block = bytes.freeze();
        // Nobody asked for what is merged.
        if job.reason != JobReason::Merge {
            self.blocks.insert(part.id, block.clone());
        }
        Some(Rope::from(block.whole()))
    }

    /// Bytes `range` of the block of `job`, if one piece holds them: they become block `id`.
    fn one_piece(&self, job: &Job, id: BlockId, range: Range<usize>) -> Option<Rope> {
        let whole = job.pieces.whole(range)?;
        if self.options.keep_written
            && let Some(block) = whole.as_block()
        {
            self.blocks.insert(id, block.clone());
        }
        Some(Rope::from(whole))
    }

    /// The bytes of a block that is stored as block `id` alone.
    fn whole_content(&self, job: &Job, id: BlockId, bases: &Bases) -> Option<Rope> {
        if let Some(bytes) = self.one_piece(job, id, 0..job.len) {
            return Some(bytes);
        }
        let mut bytes = match job.base.as_ref().filter(|_| !job.pieces.covers(0..job.len)) {
            Some(Stored::Whole(base)) => Buffer::copy_of(bases[&base.id].as_ref()?),
            Some(Stored::Parts(parts)) => joined(parts, bases)?,
            None => Buffer::with_capacity(job.len),
        };
        bytes.resize(job.len);
        overlay(&mut bytes, job, 0..job.len);
        let block = bytes.freeze();
        match job.base.as_ref().and_then(Stored::whole) {
            Some(base) => self.blocks.succeed(base.id, id, block.clone()),
            None => self.blocks.insert(id, block.clone()),
        }
        Some(Rope::from(block.whole()))
    }
}

/// Puts the pieces of `job` over `bytes`, which are `range` of its block.
fn overlay(bytes: &mut Buffer, job: &Job, range: Range<usize>) {
    for (start, piece) in job.pieces.within(range.clone()) {
        let at = start - range.start;
        bytes[at..at + piece.len()].copy_from_slice(&piece);
    }
}

/// The bytes of `parts` of a block, which become one. None if one of them is damaged.
fn joined(parts: &[Part], bases: &Bases) -> Option<Buffer> {
    let mut bytes = Buffer::with_capacity(parts.last().map_or(0, |part| part.bytes().end));
    for part in parts {
        bytes.resize(part.bytes().start);
        bytes.extend_from_slice(bases[&part.block.id].as_ref()?);
    }
    Some(bytes)
}
