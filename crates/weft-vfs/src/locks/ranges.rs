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

    /// From `first` on, `len` bytes; 0: to the end, wherever that will be. None if it ends past 2^63-1.
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

    /// How many bytes it has, as [`LockRange::of_length`] takes them.
    pub fn length(self) -> u64 {
        if self.last == LockRange::END { 0 } else { self.last - self.first + 1 }
    }
}

/// How a range is held.
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

/// What one owner holds of a file: ranges that do not meet, by their first bytes.
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

    /// Has all of `range` be held so, or not at all.
    pub(super) fn set(&mut self, range: LockRange, held: Option<Held>) {
        let met: Vec<_> = self.meeting(range).collect();
        for (part, held) in met {
            self.0.remove(&part.first);
            if part.first < range.first {
                self.0.insert(part.first, (range.first - 1, held));
            }
            if part.last > range.last {
                self.0.insert(range.last + 1, (part.last, held));
            }
        }
        let Some(held) = held else { return };
        let LockRange { mut first, mut last } = range;
        if let Some((before, (end, theirs))) = self.0.range(..first).next_back()
            && end + 1 == first
            && theirs.joins(&held)
        {
            first = *before;
        }
        if let Some((end, theirs)) = last.checked_add(1).and_then(|after| self.0.get(&after))
            && theirs.joins(&held)
        {
            let end = *end;
            self.0.remove(&(last + 1));
            last = end;
        }
        self.0.insert(first, (last, held));
    }
}
