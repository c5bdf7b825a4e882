//! How a block of a file that was written to is to be stored: as one block, or only what is new of
//! it beside the stored blocks that it lies among.
//!
//! A *grain* is the least that an extent covers. A stored block of which a part was written over is
//! *split*: its bytes stay where they are and become several blocks, each an aligned power of two
//! of bytes, so that those which nobody needs any more can go. Invariant: the extents of a layout
//! do not overlap, and hold all bytes of the block that are no hole.

use super::{Frozen, Part, Stored};
use std::ops::Range;
use weft_store::{BlockId, BlockRef, Span};

/// Bytes of a grain.
const GRAIN: usize = Span::LENGTH_MIN as usize;

/// Most grains of a block that is stored as one whatever was written to it: its rows would take
/// more than what is saved.
const GRAINS_WHOLE: usize = 4;

/// Most bytes of a block that is stored as one when something was added at its end.
const APPENDED_WHOLE: usize = 64 << 10;

/// How a block is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Layout {
    /// As one block, with this number.
    Whole(BlockId),
    /// In several.
    Parts(PartsLayout),
}

/// A block that is stored in several.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartsLayout {
    /// Stored blocks that stay.
    pub kept: Vec<Part>,
    /// Stored blocks that are split.
    pub splits: Vec<Split>,
    /// Ranges whose extents go and that nothing takes the place of, or something else does.
    pub dropped: Vec<Range<u32>>,
    /// New blocks, ascending.
    pub new: Vec<NewPart>,
}

/// A stored block that is split.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split {
    /// The stored block.
    pub part: Part,
    /// The parts of it, ascending: all of its bytes together.
    pub leaves: Vec<Leaf>,
}

/// A part of a block that is split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// The number of the block that it becomes.
    pub id: BlockId,
    /// Where in the block of the file it begins.
    pub start: u32,
    /// The bytes that its extent covers.
    pub length: u32,
    /// True if the file goes on holding it.
    pub is_kept: bool,
}

/// A new block for a part of a block of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewPart {
    /// Its number.
    pub id: BlockId,
    /// Where in the block of the file it begins.
    pub start: u32,
    /// The bytes that its extent covers.
    pub length: u32,
    /// The bytes that it holds.
    pub len: u32,
}

impl Leaf {
    /// The bytes of `part` that it holds, counted from the start of that.
    pub fn within(&self, part: &Part) -> Range<usize> {
        let start = (self.start - part.start) as usize;
        start..(start + self.length as usize).min(part.block.length as usize)
    }
}

impl NewPart {
    /// The bytes that it holds, counted from the start of the block of the file.
    pub fn bytes(&self) -> Range<usize> {
        self.start as usize..(self.start + self.len) as usize
    }
}

impl PartsLayout {
    /// Parts of blocks that are split which the file goes on holding, ascending in each.
    fn kept_leaves(&self) -> impl Iterator<Item = (&Split, &Leaf)> {
        let leaves = self.splits.iter().flat_map(|split| split.leaves.iter().map(move |leaf| (split, leaf)));
        leaves.filter(|(_, leaf)| leaf.is_kept)
    }
}

impl Layout {
    /// Numbers of the blocks that a commit makes for it, ascending, but for parts of a split block
    /// that the file does not hold any more.
    pub fn ids(&self) -> Vec<BlockId> {
        match self {
            Layout::Whole(id) => vec![*id],
            Layout::Parts(parts) => {
                parts.kept_leaves().map(|(_, leaf)| leaf.id).chain(parts.new.iter().map(|new| new.id)).collect()
            }
        }
    }

    /// Bytes that the blocks of it take, `len` being those of all of the block.
    pub(crate) fn taken(&self, len: usize) -> u64 {
        let Layout::Parts(parts) = self else { return len as u64 };
        let kept = parts.kept.iter().map(|part| u64::from(part.block.length)).sum::<u64>();
        let leaves = parts.kept_leaves().map(|(split, leaf)| leaf.within(&split.part).len() as u64);
        kept + leaves.sum::<u64>() + parts.new.iter().map(|new| u64::from(new.len)).sum::<u64>()
    }

    /// Makes the stored blocks of it from those that a commit made: of [`Layout::ids`], in their
    /// order.
    pub(crate) fn stored(&self, blocks: &[BlockRef], block_size: usize) -> Stored {
        let parts = match (self, blocks) {
            (Layout::Whole(_), [block]) => return Stored::Whole(*block),
            (Layout::Whole(_), _) => unreachable!("one block for all of it"),
            (Layout::Parts(parts), _) => parts,
        };
        let spans = parts.kept_leaves().map(|(_, leaf)| (leaf.start, leaf.length));
        let spans = spans.chain(parts.new.iter().map(|new| (new.start, new.length)));
        let made = spans.zip(blocks).map(|((start, length), block)| Part { start, length, block: *block });
        let mut all = parts.kept.iter().copied().chain(made).collect::<Vec<_>>();
        all.sort_unstable_by_key(|part| part.start);
        match &all[..] {
            [only] if only.length as usize == block_size => Stored::Whole(only.block),
            _ => Stored::Parts(all.into()),
        }
    }

    /// Numbers of the stored blocks of `base` that the file does not hold any more.
    pub fn replaced(&self, base: Option<&Stored>) -> Vec<BlockId> {
        let kept = match self {
            Layout::Whole(_) => &[][..],
            Layout::Parts(parts) => &parts.kept[..],
        };
        let is_kept = |id: BlockId| kept.iter().any(|part| part.block.id == id);
        let ids = base.into_iter().flat_map(Stored::blocks).map(|block| block.id);
        ids.filter(|id| !is_kept(*id)).collect()
    }
}

/// Extents that hold `grains` grains from the start of a block on, and nothing behind them: as few
/// as can be.
fn spans(grains: usize) -> impl Iterator<Item = (usize, usize)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let left = grains.checked_sub(at).filter(|left| *left > 0)?;
        let length = 1 << left.ilog2();
        let span = (at * GRAIN, length * GRAIN);
        at += length;
        Some(span)
    })
}

/// Number of extents that a block of a file whose stored blocks end at byte `end` needs, if it has
/// no holes.
pub fn extents_needed(end: usize) -> usize {
    end.div_ceil(GRAIN).count_ones() as usize
}

/// The layout of a block that is stored in `parts`, without a hole, once those are merged; new
/// blocks take their numbers from `next`. None if there is nothing to merge.
///
/// What is merged never covers more than the parts do: commits of the past may have had other
/// blocks there.
pub(crate) fn merged(parts: &[Part], next: &mut u64) -> Option<Layout> {
    let end = parts.last()?.bytes().end;
    let as_u32 = |value: usize| u32::try_from(value).expect("in a block");
    let is_in = |part: &Part, (start, length): (usize, usize)| {
        (start..start + length).contains(&(part.start as usize))
            && (part.start + part.length) as usize <= start + length
    };
    let several = spans(end.div_ceil(GRAIN)).filter(|span| parts.iter().filter(|part| is_in(part, *span)).count() > 1);
    let several = several.collect::<Vec<_>>();
    let new = several.iter().map(|(start, length)| {
        *next += 1;
        let len = as_u32((*length).min(end - start));
        NewPart { id: BlockId(*next - 1), start: as_u32(*start), length: as_u32(*length), len }
    });
    let new = new.collect::<Vec<_>>();
    let kept = parts.iter().filter(|part| !several.iter().any(|span| is_in(part, *span))).copied().collect();
    (!new.is_empty()).then(|| Layout::Parts(PartsLayout { kept, new, ..PartsLayout::default() }))
}

/// A block of a file that was written to.
pub(crate) struct Written<'a> {
    /// What is stored of it.
    pub(crate) base: Option<&'a Stored>,
    /// What was written over that.
    pub(crate) pieces: &'a Frozen,
    /// The bytes of it, up to the end of the file.
    pub(crate) len: usize,
    /// The bytes of a block of the volume.
    pub(crate) block_size: usize,
}

impl Written<'_> {
    /// Decides how it is stored; new blocks take their numbers from `next`.
    pub(crate) fn layout(&self, next: &mut u64) -> Layout {
        let mut number = || {
            *next += 1;
            BlockId(*next - 1)
        };
        let dirty = self.dirty();
        if self.is_whole(&dirty) {
            return Layout::Whole(number());
        }
        let mut layout = PartsLayout::default();
        for part in self.base.map(|base| base.parts(self.block_size)).unwrap_or_default() {
            let mut leaves = Vec::new();
            self.split(&part, (part.start as usize, part.length as usize), &dirty, &mut leaves);
            match &leaves[..] {
                [] => {}
                [only] if only.is_kept && only.length == part.length => layout.kept.push(part),
                leaves if leaves.iter().all(|leaf| !leaf.is_kept) => {
                    layout.dropped.push(part.start..part.start + part.length);
                }
                _ => {
                    leaves.iter_mut().for_each(|leaf| leaf.id = number());
                    layout.splits.push(Split { part, leaves });
                }
            }
        }
        layout.new = self.new_parts(&dirty, &mut number);
        Layout::Parts(layout)
    }

    /// True for each grain that must be stored anew, up to the end.
    fn dirty(&self) -> Vec<bool> {
        let mut dirty = vec![false; self.len.div_ceil(GRAIN)];
        for (start, bytes) in self.pieces.within(0..self.len) {
            dirty[start / GRAIN..(start + bytes.len()).div_ceil(GRAIN)].fill(true);
        }
        // No block reaches past the end of the file.
        if self.base.is_some_and(|base| base.end() > self.len) && !self.len.is_multiple_of(GRAIN) {
            *dirty.last_mut().expect("it is not empty") = true;
        }
        dirty
    }

    /// True if it is stored as one block: there is little else of it, or little to save.
    fn is_whole(&self, dirty: &[bool]) -> bool {
        let count = dirty.iter().filter(|dirty| **dirty).count();
        let is_small = self.block_size == GRAIN || dirty.len() <= GRAINS_WHOLE;
        let stored_end = self.base.map_or(0, Stored::end);
        let is_appended = stored_end > 0 && dirty[(stored_end / GRAIN).min(dirty.len())..].len() == count;
        let is_complete = self.len == self.block_size || self.len <= APPENDED_WHOLE;
        is_small || count * 4 >= dirty.len() * 3 || is_appended && is_complete && count > 0 && self.is_dense()
    }

    /// True if what is stored has no holes.
    fn is_dense(&self) -> bool {
        self.base.is_some_and(|base| base.taken() == base.end() as u64)
    }

    /// Adds the leaves of `part` in `length` bytes at `start`.
    fn split(&self, part: &Part, (start, length): (usize, usize), dirty: &[bool], leaves: &mut Vec<Leaf>) {
        let held = part.bytes().end.min(start + length);
        if start >= held {
            return;
        }
        let grains = dirty.get(start / GRAIN..).unwrap_or_default();
        let grains = &grains[..grains.len().min(length / GRAIN)];
        let leaf = |is_kept| {
            let as_u32 = |value: usize| u32::try_from(value).expect("in a block");
            Leaf { id: BlockId(0), start: as_u32(start), length: as_u32(length), is_kept }
        };
        if grains.iter().all(|dirty| *dirty) {
            leaves.push(leaf(false));
        } else if held <= self.len && grains.iter().all(|dirty| !*dirty) {
            leaves.push(leaf(true));
        } else {
            let half = length / 2;
            self.split(part, (start, half), dirty, leaves);
            self.split(part, (start + half, half), dirty, leaves);
        }
    }

    /// New blocks for runs of dirty grains, each the largest that may begin where it does.
    fn new_parts(&self, dirty: &[bool], number: &mut impl FnMut() -> BlockId) -> Vec<NewPart> {
        let mut new = Vec::new();
        let mut at = 0;
        while at < dirty.len() {
            let run = dirty[at..].iter().take_while(|dirty| **dirty).count();
            if run == 0 {
                at += 1;
                continue;
            }
            let aligned = if at == 0 { usize::MAX } else { 1 << at.trailing_zeros() };
            let grains = aligned.min(1 << run.ilog2());
            let as_u32 = |value: usize| u32::try_from(value).expect("in a block");
            let (start, length) = (at * GRAIN, grains * GRAIN);
            let len = length.min(self.len - start);
            new.push(NewPart { id: number(), start: as_u32(start), length: as_u32(length), len: as_u32(len) });
            at += grains;
        }
        new
    }
}

#[cfg(test)]
mod tests;
