//! References to blocks: what a batch replaces, and what blocks gain and lose by it.
//!
//! A block lives while a row names it, and its own row counts these. Both engines plan a commit
//! here: an [`ExtentPlan`] says which extents go and come, [`References`] counts for the blocks
//! that they name, and [`BlockState::fate`] decides about a block whose count has changed. This
//! module knows rows, and no engine: a block's key `K` is whatever an engine finds its row by.
//!
//! Invariants: each extent that goes is in exactly one range of the plan, or of a removed file, so
//! that an engine counts what it finds there, and nothing twice. An extent or a block whose row is
//! damaged costs no block its life.
//!
//! While a volume has no history, an extent that goes is a reference less. Where its version is
//! kept, it will be none: the engine then does not call [`References::lose`].

use crate::batch::{Batch, ExtentChange};
use crate::error::{Error, Result};
use crate::row::{BlockId, BlockRef, Ino, Span};
use std::collections::BTreeMap;
use std::ops::Range;

/// How an engine applies [`Batch::merged`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Merging {
    /// In its own way, so that no version comes of it.
    Apart,
    /// As other extents that are put.
    AsPut,
}

/// The extents that a batch changes.
#[derive(Debug)]
pub(crate) struct ExtentPlan<K> {
    /// Ranges that are cleared, as the batch names them.
    pub(crate) cleared: Vec<(Ino, Range<u64>)>,
    /// Ranges whose extents go, ascending and apart: those that are cleared, and those where others
    /// are put.
    pub(crate) replaced: Vec<(Ino, Range<u64>)>,
    /// Files all of whose extents go.
    pub(crate) removed: Vec<Ino>,
    /// Extents that are put, ascending.
    pub(crate) put: Vec<(Ino, Span, K)>,
}

impl<K: Ord> ExtentPlan<K> {
    /// Plans the changes of `batch`. Inodes from `fresh` on have no extents that could go. `key`
    /// returns the key of a block that the batch names.
    pub(crate) fn of(
        batch: &Batch,
        fresh: Ino,
        merging: Merging,
        key: impl Fn(&BlockRef) -> Result<K>,
    ) -> Result<ExtentPlan<K>> {
        let (mut cleared, mut put) = (Vec::new(), Vec::new());
        if merging == Merging::AsPut {
            for merged in &batch.merged {
                put.push((merged.ino, merged.span, key(&merged.block)?));
            }
        }
        for change in &batch.extents {
            match change {
                ExtentChange::Clear { ino, range } => cleared.push((*ino, range.clone())),
                ExtentChange::Put { ino, span, block } => put.push((*ino, *span, key(block)?)),
            }
        }
        put.sort_unstable();
        let places = put.iter().map(|(ino, span, _)| (*ino, span.range()));
        let replaced = cleared.iter().cloned().chain(places).filter(|(ino, _)| *ino < fresh);
        let removed = batch.removed().filter(|ino| *ino < fresh).collect();
        Ok(ExtentPlan { replaced: joined(replaced.collect()), cleared, removed, put })
    }
}

/// Joins ranges that overlap, or lie together.
fn joined(mut ranges: Vec<(Ino, Range<u64>)>) -> Vec<(Ino, Range<u64>)> {
    ranges.retain(|(_, range)| !range.is_empty());
    ranges.sort_unstable_by_key(|(ino, range)| (*ino, range.start));
    let mut joined = Vec::<(Ino, Range<u64>)>::new();
    for (ino, range) in ranges {
        match joined.last_mut() {
            Some((last, before)) if *last == ino && range.start <= before.end => {
                before.end = before.end.max(range.end);
            }
            _ => joined.push((ino, range)),
        }
    }
    joined
}

/// Changes of the numbers of references to blocks in one commit.
#[derive(Debug)]
pub(crate) struct References<K> {
    changes: BTreeMap<K, i64>,
}

impl<K> Default for References<K> {
    fn default() -> References<K> {
        References { changes: BTreeMap::new() }
    }
}

impl<K: Ord + Copy> References<K> {
    /// Counts an extent that goes, and whose row is as it was written: a damaged one may name a
    /// block that others need.
    pub(crate) fn lose(&mut self, block: K) {
        self.add(block, -1);
    }

    /// Counts an extent that is put.
    pub(crate) fn gain(&mut self, block: K) {
        self.add(block, 1);
    }

    /// Counts `more` references to a block, or fewer.
    pub(crate) fn add(&mut self, block: K, more: i64) {
        *self.changes.entry(block).or_insert(0) += more;
    }

    /// Forgets the changes of a block so far.
    pub(crate) fn forget(&mut self, block: K) {
        self.changes.remove(&block);
    }

    /// Returns the references of a block that the commit writes, and takes them out. A block that
    /// nothing names is a mistake of the batch.
    pub(crate) fn take_new(&mut self, block: K, id: BlockId) -> Result<i64> {
        let refs = self.changes.remove(&block).filter(|refs| *refs > 0);
        refs.ok_or_else(|| Error::Bug(format!("no extent names new block {}", id.0)))
    }

    /// Returns the blocks whose number of references changes, ascending, with the change: once the
    /// new ones are taken out, those that were there before.
    pub(crate) fn changed(&self) -> impl Iterator<Item = (K, i64)> + '_ {
        self.changes.iter().map(|(block, change)| (*block, *change)).filter(|(_, change)| *change != 0)
    }
}

/// The row of a block whose number of references changes, as an engine finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockState {
    /// It is as it was written; so many references are left after the change.
    Whole {
        /// Their number.
        left: i64,
    },
    /// It is not as it was written.
    Damaged,
    /// There is none.
    Missing,
}

/// The end of a block whose number of references changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is still named, or may be.
    Lives,
    /// Nothing names it any more: its row and its bytes go.
    Dies,
}

impl BlockState {
    /// Decides about block `id`, whose references change by `change`. `Corrupt` if more extents
    /// would name a block that has no row.
    pub(crate) fn fate(self, id: BlockId, change: i64) -> Result<Fate> {
        match self {
            BlockState::Whole { left } => Ok(if left <= 0 { Fate::Dies } else { Fate::Lives }),
            // How many name it, and where it lies, is not known: it stays, as damaged as it was.
            BlockState::Damaged => Ok(Fate::Lives),
            // A damaged volume. Deleting the file that named it must still be possible.
            BlockState::Missing if change < 0 => Ok(Fate::Lives),
            BlockState::Missing => Err(Error::Corrupt(format!("block {} has no row", id.0))),
        }
    }
}

#[cfg(test)]
mod tests;
