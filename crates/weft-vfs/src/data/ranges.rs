//! Sets of numbers kept as ranges.

#![expect(clippy::single_range_in_vec_init, reason = "lists of ranges are what is meant")]

use std::ops::Range;

/// A set of numbers. Invariant: ranges are ascending, not empty and do not touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ranges {
    list: Vec<Range<u64>>,
}

impl Ranges {
    /// All numbers from 0 to `u64::MAX - 1`.
    pub(crate) fn all() -> Ranges {
        Ranges { list: vec![0..u64::MAX] }
    }

    /// The ranges, ascending.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.list.iter().cloned()
    }

    /// Whether `number` is in the set.
    pub(crate) fn contains(&self, number: u64) -> bool {
        self.covers(number..number.saturating_add(1))
    }

    /// Whether all of `range` is in the set.
    pub(crate) fn covers(&self, range: Range<u64>) -> bool {
        range.is_empty() || self.list.iter().any(|own| own.start <= range.start && range.end <= own.end)
    }

    /// Adds all of `range`.
    pub(crate) fn add(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let from = self.list.partition_point(|own| own.end < range.start);
        let to = self.list.partition_point(|own| own.start <= range.end);
        let start = self.list.get(from).filter(|_| from < to).map_or(range.start, |own| own.start.min(range.start));
        let end = if from < to { self.list[to - 1].end.max(range.end) } else { range.end };
        self.list.splice(from..to, [start..end]);
    }

    /// Adds all of `other`.
    pub(crate) fn add_all(&mut self, other: &Ranges) {
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
        fn ranges_hold_what_a_plain_set_holds(added in proptest::collection::vec((0u64..60, 0u64..12), 0..20)) {
            let mut ranges = Ranges::default();
            let mut plain = BTreeSet::new();
            for (start, len) in added {
                ranges.add(start..start + len);
                plain.extend(start..start + len);
            }
            for number in 0..80 {
                prop_assert_eq!(ranges.contains(number), plain.contains(&number));
            }
            let list: Vec<_> = ranges.iter().collect();
            prop_assert!(list.windows(2).all(|pair| pair[0].end < pair[1].start));
        }
    }
}
