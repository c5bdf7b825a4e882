//! Ranges of bytes, and what one owner holds of a file.

use super::{Grant, LockMode};
use std::collections::BTreeMap;

/// Bytes of a file, at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LockRange {
    first: u64,
    last: u64,
}

impl LockRange {
    /// The last byte that a file can have; a range up to it has no end.
    const END: u64 = i64::MAX.cast_unsigned();

    /// All bytes there are and will be.
    pub const ALL: LockRange = LockRange { first: 0, last: LockRange::END };

    /// From `first` to `last`, which belongs to it; none if that is nothing, or past 2^63-1.
    pub fn new(first: u64, last: u64) -> Option<LockRange> {
        (first <= last && first <= LockRange::END).then_some(LockRange { first, last: last.min(LockRange::END) })
    }

    /// From `first` on, `len` bytes; 0: to the end, wherever that will be. None if it ends past
    /// 2^63-1.
    pub fn of_length(first: u64, len: u64) -> Option<LockRange> {
        let last = if len == 0 { LockRange::END } else { first.checked_add(len - 1)? };
        (first <= last && last <= LockRange::END).then_some(LockRange { first, last })
    }

    /// The first byte.
    pub fn first(self) -> u64 {
        self.first
    }

    /// The last byte; 2^63-1 stands for the end of the file, wherever that will be.
    pub fn last(self) -> u64 {
        self.last
    }

    /// True if there are bytes of both.
    pub(super) fn meets(self, other: LockRange) -> bool {
        self.first <= other.last && other.first <= self.last
    }

    /// Returns its length in bytes, as [`LockRange::of_length`] takes it.
    pub fn length(self) -> u64 {
        if self.last == LockRange::END { 0 } else { self.last - self.first + 1 }
    }
}

/// State of a held range.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) mode: LockMode,
    /// By which process.
    pub(super) pid: u32,
    /// If whoever it was granted to has not said yet that it wants it.
    pub(super) grant: Option<Grant>,
}

impl Held {
    fn joins(&self, other: &Held) -> bool {
        self.mode == other.mode && self.grant == other.grant
    }
}

/// Edit that a change makes to the ranges.
#[derive(Clone, Copy, Debug)]
pub(super) enum Edit {
    /// The one that begins there, held so, goes.
    Remove(u64, LockMode),
    /// One comes.
    Insert(LockRange, LockMode),
    /// Bytes that were held so are held otherwise, or not at all.
    Replaced(LockMode),
}

/// Ranges of a file that one owner holds. They do not overlap, and are keyed by their first bytes.
#[derive(Debug, Default)]
pub(super) struct Ranges(BTreeMap<u64, (u64, Held)>);

impl Ranges {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Those that have bytes of `range`, ascending.
    pub(super) fn meeting(&self, range: LockRange) -> impl Iterator<Item = (LockRange, Held)> + '_ {
        // Of those that begin before it, only the last one can reach into it.
        let from = self.0.range(..=range.first).next_back().map_or(range.first, |(first, _)| *first);
        let near = self
            .0
            .range(from..=range.last)
            .map(|(first, (last, held))| (LockRange { first: *first, last: *last }, *held));
        near.filter(move |(near, _)| near.last >= range.first)
    }

    /// The range that begins at `first`.
    pub(super) fn at(&self, first: u64) -> Option<(LockRange, Held)> {
        self.0.get(&first).map(|(last, held)| (LockRange { first, last: *last }, *held))
    }

    /// Has all of `range` be held so, or not at all; tells `edited` what that changes.
    pub(super) fn set(&mut self, range: LockRange, held: Option<Held>, mut edited: impl FnMut(Edit)) {
        let met: Vec<_> = self.meeting(range).collect();
        for (part, held) in met {
            edited(Edit::Replaced(held.mode));
            self.remove(part.first, &mut edited);
            if part.first < range.first {
                self.insert(LockRange { first: part.first, last: range.first - 1 }, held, &mut edited);
            }
            if part.last > range.last {
                self.insert(LockRange { first: range.last + 1, last: part.last }, held, &mut edited);
            }
        }
        let Some(held) = held else { return };
        let LockRange { mut first, mut last } = range;
        if let Some((before, (end, theirs))) = self.0.range(..first).next_back()
            && end + 1 == first
            && theirs.joins(&held)
        {
            first = *before;
            self.remove(first, &mut edited);
        }
        if let Some((end, theirs)) = last.checked_add(1).and_then(|after| self.0.get(&after))
            && theirs.joins(&held)
        {
            let end = *end;
            self.remove(last + 1, &mut edited);
            last = end;
        }
        self.insert(LockRange { first, last }, held, &mut edited);
    }

    fn insert(&mut self, range: LockRange, held: Held, edited: &mut impl FnMut(Edit)) {
        self.0.insert(range.first, (range.last, held));
        edited(Edit::Insert(range, held.mode));
    }

    fn remove(&mut self, first: u64, edited: &mut impl FnMut(Edit)) {
        if let Some((_, held)) = self.0.remove(&first) {
            edited(Edit::Remove(first, held.mode));
        }
    }
}
