//! One file's content in memory: known blocks, what was written over them, what changed in its map.
//!
//! A block reads as three layers: its base (a stored block, the inline content, or a hole), over it
//! the frozen pieces of the commit in flight, over those the pieces written since.

use super::{Frozen, Part, Pieces, Ranges, Stored, merged};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use weft_block::Slice;
use weft_store::OpNo;

/// Content of a regular file, as far as it was looked at or changed.
#[derive(Debug, Default)]
pub struct FileData {
    /// What is stored, by index, as far as `known` goes.
    pub extents: BTreeMap<u64, Stored>,
    /// Indices for which `extents` tells the truth.
    pub known: Ranges,
    /// Blocks written since they were last stored.
    pub dirty: BTreeMap<u64, DirtyBlock>,
    /// Indices whose rows the next commit deletes before it puts any.
    pub cleared: Ranges,
    /// The same of the commit in flight.
    pub(crate) clearing: Ranges,
    /// Indices whose stored blocks came by sharing; the next commit puts their rows.
    pub shared: BTreeSet<u64>,
    /// The store was asked whether rows of blocks are gone, and has them all: what is not there is
    /// a hole.
    pub is_whole: bool,
    /// Indices that were found to hold data without a hole, and the operation that had changed the
    /// content last by then.
    pub without_hole: Option<(OpNo, Range<u64>)>,
    /// The commit in flight has changes of the map: until it ends the store tells what was before.
    pub(crate) is_in_flight: bool,
}

/// Extents of a file that stay however much memory all take, so that an operation finds all that it
/// loaded.
const EXTENTS_MIN: usize = 4096;

/// Memory that an extent takes, about: a map is a tree whose leaves are half full if it grew at its
/// end.
const EXTENT_BYTES: usize = 2 * size_of::<(u64, Stored)>();

/// Pieces written to one block.
#[derive(Debug, Default)]
pub struct DirtyBlock {
    /// Since the last commit began.
    pub pieces: Pieces,
    /// Before it; its commit is in flight.
    pub frozen: Option<Arc<Frozen>>,
    /// Bytes that the block takes once that commit has stored it.
    pub(crate) planned: u64,
}

/// The base below the dirty layers of a block.
#[derive(Clone, Debug)]
pub enum Base {
    /// Nothing: zeros.
    Hole,
    /// The inline content of the file.
    Inline(Slice),
    /// One stored block, or several.
    Stored(Stored),
}

impl Base {
    /// Bytes it holds; past them it reads as zeros.
    pub(crate) fn len(&self) -> usize {
        match self {
            Base::Hole => 0,
            Base::Inline(bytes) => bytes.len(),
            Base::Stored(stored) => stored.end(),
        }
    }
}

/// The layers of one block.
pub struct Layers<'a> {
    /// The lowest.
    pub base: Base,
    /// Those above, if it was written to.
    pub dirty: Option<&'a DirtyBlock>,
}

impl FileData {
    /// Content of a file that has no extents in the store.
    pub(crate) fn without_extents() -> FileData {
        FileData { known: Ranges::all(), ..FileData::default() }
    }

    /// The layers of block `index` of a file with inline content `inline`.
    pub fn layers(&self, index: u64, inline: Option<&Slice>) -> Layers<'_> {
        let base = match (self.extents.get(&index), inline) {
            (Some(stored), _) => Base::Stored(stored.clone()),
            (None, Some(bytes)) if index == 0 => Base::Inline(bytes.clone()),
            (None, _) => Base::Hole,
        };
        Layers { base, dirty: self.dirty.get(&index) }
    }

    /// Bytes that block `index` will take when stored, but for the cut at the end of the file.
    pub(crate) fn block_end(&self, index: u64, inline: Option<&Slice>) -> usize {
        let layers = self.layers(index, inline);
        let dirty = layers
            .dirty
            .map_or(0, |dirty| dirty.pieces.end().max(dirty.frozen.as_ref().map_or(0, |frozen| frozen.end())));
        layers.base.len().max(dirty)
    }

    /// Bytes that block `index` will take when stored, `left` bytes before the end of the file. If
    /// something was written to it, that is not known before a commit looks at it: it counts as
    /// without holes.
    pub(crate) fn block_taken(&self, index: u64, inline: Option<&Slice>, left: u64) -> u64 {
        match (self.dirty.get(&index), self.extents.get(&index)) {
            (Some(dirty), _) if dirty.pieces.is_empty() && dirty.frozen.is_some() => dirty.planned,
            (None, Some(stored @ Stored::Parts(_))) => stored.taken(),
            _ => (self.block_end(index, inline) as u64).min(left),
        }
    }

    /// The stored blocks of block `index`, if they can be merged: they are several without holes,
    /// the store knows them, and nothing was written over them.
    pub(crate) fn mergeable(&self, index: u64) -> Option<&[Part]> {
        let Stored::Parts(parts) = self.extents.get(&index)? else { return None };
        let is_clean = !self.dirty.contains_key(&index) && !self.shared.contains(&index);
        let is_dense = parts.iter().try_fold(0, |end, part| (part.start as usize == end).then(|| part.bytes().end));
        (is_clean && is_dense.is_some() && merged(parts, &mut 0).is_some()).then_some(parts)
    }

    /// Takes in what was read from the store for `range`, unless memory knows better.
    pub fn learn(&mut self, range: Range<u64>, rows: Vec<(u64, Stored)>) {
        for (index, block) in rows {
            let newer = self.known.contains(index) || self.cleared.contains(index) || self.clearing.contains(index);
            if !newer {
                self.extents.entry(index).or_insert(block);
            }
        }
        self.known.add(range);
    }

    /// Writes to block `index`; tells how many more bytes are dirty (fewer: negative).
    pub fn write(&mut self, index: u64, start: usize, data: &[u8]) -> i64 {
        let pieces = &mut self.dirty.entry(index).or_default().pieces;
        let before = pieces.cost();
        pieces.write(start, data);
        pieces.cost().cast_signed() - before.cast_signed()
    }

    /// As [`FileData::write`], without copying `data` if that can be.
    pub(crate) fn share(&mut self, index: u64, start: usize, data: &Slice) -> i64 {
        let pieces = &mut self.dirty.entry(index).or_default().pieces;
        let before = pieces.cost();
        pieces.share(start, data);
        pieces.cost().cast_signed() - before.cast_signed()
    }

    /// Makes block `index`, which has nothing dirty, the stored blocks `stored`.
    pub(crate) fn put_shared(&mut self, index: u64, stored: Stored) {
        self.extents.insert(index, stored);
        self.shared.insert(index);
        self.known.add(index..index + 1);
    }

    /// Makes blocks `range` holes; tells how many fewer bytes are dirty.
    pub(crate) fn drop_blocks(&mut self, range: Range<u64>) -> u64 {
        let mut clean = 0;
        let in_flight = self.dirty.range(range.clone()).any(|(_, dirty)| dirty.frozen.is_some());
        let stored = self.extents.range(range.clone()).map(|(index, _)| *index).collect::<Vec<_>>();
        if in_flight || !stored.is_empty() || !self.known.covers(range.clone()) {
            self.cleared.add(range.clone());
        }
        for index in stored {
            self.extents.remove(&index);
            self.shared.remove(&index);
        }
        for index in self.dirty.range(range.clone()).map(|(index, _)| *index).collect::<Vec<_>>() {
            clean += self.dirty.remove(&index).map_or(0, |dirty| dirty.pieces.cost());
        }
        self.known.add(range);
        clean
    }

    /// Makes bytes `range` of block `index` read as zeros, `end` being where its bytes end; tells
    /// how many more bytes are dirty (fewer: negative).
    pub fn zero(&mut self, index: u64, range: Range<usize>, end: usize) -> i64 {
        let range = range.start..range.end.min(end);
        if range.is_empty() {
            return 0;
        }
        let zeros = vec![0; range.len()];
        self.write(index, range.start, &zeros)
    }

    /// Lets go of extents that the store can tell again, if there are many; false if there are few.
    /// What lies under dirty blocks stays, as do those that are not committed.
    pub(crate) fn shed(&mut self) -> bool {
        if self.is_in_flight || self.extents.len() <= EXTENTS_MIN + self.shared.len() + self.dirty.len() {
            return false;
        }
        let mut extents = std::mem::take(&mut self.extents);
        let kept = self.shared.iter().chain(self.dirty.keys());
        self.extents = kept.filter_map(|index| extents.remove_entry(index)).collect();
        self.known = Ranges::default();
        true
    }

    /// Forgets all extents, unless some are not what the store has.
    pub(crate) fn forget(&mut self) {
        let is_changed = self.is_in_flight || !self.dirty.is_empty() || !self.shared.is_empty();
        if !is_changed && self.cleared.count() == 0 && self.clearing.count() == 0 {
            *self = FileData::default();
        }
    }

    /// Memory taken, about, without the dirty bytes.
    pub fn weight(&self) -> usize {
        let ranges = self.known.weight() + self.cleared.weight() + self.clearing.weight();
        size_of::<FileData>()
            + self.extents.len() * EXTENT_BYTES
            + self.extents.values().map(Stored::weight).sum::<usize>()
            + self.shared.len() * 2 * size_of::<u64>()
            + self.dirty.len() * 96
            + ranges
    }
}
