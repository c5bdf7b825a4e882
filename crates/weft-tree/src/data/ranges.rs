//! Sets of numbers kept as ranges.

#![expect(clippy::single_range_in_vec_init, reason = "lists of ranges are what is meant")]

use std::ops::Range;

/// A set of numbers. Invariant: ranges are ascending, not empty and do not touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges {
    list: Vec<Range<u64>>,
}

impl Ranges {
    /// All numbers from 0 to `u64::MAX - 1`.
    pub fn all() -> Ranges {
        Ranges { list: vec![0..u64::MAX] }
    }

    /// The ranges, ascending.
    pub fn iter(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.list.iter().cloned()
    }

    /// True if `number` is in the set.
    pub fn contains(&self, number: u64) -> bool {
        self.covers(number..number.saturating_add(1))
    }

    /// True if all of `range` is in the set.
    pub fn covers(&self, range: Range<u64>) -> bool {
        self.first_gap(range).is_none()
    }

    /// The first part of `range` that is not in the set.
    pub fn first_gap(&self, range: Range<u64>) -> Option<Range<u64>> {
        let at = self.list.partition_point(|own| own.end <= range.start);
        let (start, next) = match self.list.get(at) {
            Some(own) if own.start <= range.start => (own.end, self.list.get(at + 1)),
            next => (range.start, next),
        };
        let end = next.map_or(range.end, |next| next.start.min(range.end));
        (start < end).then_some(start..end)
    }

    /// Finds where the part of the set begins that ends with `range`, or its end if none does.
    pub fn tail_of(&self, range: Range<u64>) -> u64 {
        let at = self.list.partition_point(|own| own.end < range.end);
        let own = self.list.get(at).filter(|own| own.start < range.end);
        own.map_or(range.end, |own| own.start.max(range.start))
    }

    /// Memory that it takes, about.
    pub fn weight(&self) -> usize {
        self.list.capacity() * size_of::<Range<u64>>()
    }

    /// Adds all of `range`.
    pub fn add(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let from = self.list.partition_point(|own| own.end < range.start);
        let to = self.list.partition_point(|own| own.start <= range.end);
        let start = self.list.get(from).filter(|_| from < to).map_or(range.start, |own| own.start.min(range.start));
        let end = if from < to { self.list[to - 1].end.max(range.end) } else { range.end };
        self.list.splice(from..to, [start..end]);
    }

    /// Returns the number of ranges.
    pub fn count(&self) -> usize {
        self.list.len()
    }

    /// Returns the number of elements: the sum of the lengths of all ranges.
    pub fn total(&self) -> u64 {
        self.list.iter().map(|own| own.end - own.start).sum()
    }

    /// Adds all numbers between the first and the last.
    pub fn fill(&mut self) {
        if let (Some(first), Some(last)) = (self.list.first(), self.list.last()) {
            self.list = vec![first.start..last.end];
        }
    }

    /// Takes all of `range` out.
    pub fn remove(&mut self, range: Range<u64>) {
        let from = self.list.partition_point(|own| own.end <= range.start);
        let to = self.list.partition_point(|own| own.start < range.end);
        if from >= to || range.is_empty() {
            return;
        }
        let (before, after) = (self.list[from].start..range.start, range.end..self.list[to - 1].end);
        self.list.splice(from..to, [before, after].into_iter().filter(|left| !left.is_empty()));
    }

    /// Adds all of `other`.
    pub fn add_all(&mut self, other: &Ranges) {
        for range in other.iter() {
            self.add(range);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn ranges_hold_what_a_plain_set_holds(
            changes in proptest::collection::vec((0u64..60, 0u64..12, any::<bool>()), 0..20),
        ) {
            let mut ranges = Ranges::default();
            let mut plain = BTreeSet::new();
            for (start, len, is_added) in changes {
                if is_added {
                    ranges.add(start..start + len);
                    plain.extend(start..start + len);
                } else {
                    ranges.remove(start..start + len);
                    plain.retain(|number| !(start..start + len).contains(number));
                }
            }
            prop_assert_eq!(ranges.total(), plain.len() as u64);
            for number in 0..80 {
                prop_assert_eq!(ranges.contains(number), plain.contains(&number));
            }
            for (start, end) in [(0, 80), (20, 40), (30, 31), (5, 60)] {
                let gap = ranges.first_gap(start..end);
                let first = (start..end).find(|number| !plain.contains(number));
                prop_assert_eq!(gap.clone().map(|gap| gap.start), first);
                prop_assert!(gap.is_none_or(|gap| gap.clone().all(|number| !plain.contains(&number))
                    && (gap.end == end || plain.contains(&gap.end))));
                let tail = (start..end).rev().take_while(|number| plain.contains(number)).count() as u64;
                prop_assert_eq!(ranges.tail_of(start..end), end - tail);
            }
            let list: Vec<_> = ranges.iter().collect();
            prop_assert!(list.windows(2).all(|pair| pair[0].end < pair[1].start));
        }
    }
}
