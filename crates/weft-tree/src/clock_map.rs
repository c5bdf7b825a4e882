//! A hash map bounded by weight that evicts by the CLOCK algorithm (Corbató, 1968).
//!
//! A hand goes round the entries: one used since its last visit is spared once, a pinned one
//! always, but what that can do without goes ([`Cached::shed`]). Invariant: `weight` is the sum of
//! the weights recorded for the entries present.

use hashbrown::{DefaultHashBuilder, Equivalent, HashTable};
use std::hash::{BuildHasher, Hash};

/// A value of a [`ClockMap`].
pub trait Cached {
    /// True if it must not be evicted.
    fn is_pinned(&self) -> bool;
    /// Bytes it takes, about.
    fn weight(&self) -> usize;
    /// Lets go of what can be made again of the rest; false if there is nothing of the kind.
    fn shed(&mut self) -> bool {
        false
    }
}

/// Entries kept whatever they weigh, so that one operation finds all that it loaded.
const ENTRIES_MIN: usize = 256;

/// Entries looked at for one eviction, so that a map full of pinned entries costs no more.
const STEPS_MAX: usize = 64;

/// The same, if so many are owed.
const STEPS_OWED_MAX: usize = 1024;

/// Entries to be looked at for each that came: some are pinned, and what was used is spared once.
const STEPS_OWED: usize = 8;

/// Rounds that are owed when as many bytes came as the bound has.
const ROUNDS: usize = 4;

/// Result of [`ClockMap::spare`].
pub enum Spared<K, V> {
    /// This may go.
    Entry(K, V),
    /// None of those looked at; there are others, and the same once more.
    NotYet,
    /// There are none.
    Nothing,
}

struct Slot<K, V> {
    key: K,
    value: V,
    weight: usize,
    used: bool,
}

/// The map.
pub struct ClockMap<K, V> {
    table: HashTable<usize>,
    slots: Vec<Option<Slot<K, V>>>,
    free: Vec<usize>,
    hasher: DefaultHashBuilder,
    hand: usize,
    weight: usize,
    weight_max: usize,
    entries_min: usize,
    /// Entries to look at for those that came since there was room.
    owed: usize,
}

impl<K: Hash + Eq, V: Cached> ClockMap<K, V> {
    /// An empty map for entries of `weight_max` bytes in all.
    pub fn new(weight_max: usize) -> ClockMap<K, V> {
        ClockMap {
            table: HashTable::new(),
            slots: Vec::new(),
            free: Vec::new(),
            hasher: DefaultHashBuilder::default(),
            hand: 0,
            weight: 0,
            weight_max,
            entries_min: ENTRIES_MIN,
            owed: 0,
        }
    }

    /// Without entries that are kept whatever they weigh.
    pub fn strictly(self) -> ClockMap<K, V> {
        ClockMap { entries_min: 0, ..self }
    }

    /// Bytes of all entries, about.
    pub fn weight(&self) -> usize {
        self.weight
    }

    /// True if `weight` more bytes fit without eviction.
    pub fn has_room(&self, weight: usize) -> bool {
        self.weight.saturating_add(weight) <= self.weight_max
    }

    fn find<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<usize> {
        let hash = self.hasher.hash_one(key);
        let same = |&at: &usize| self.slots[at].as_ref().is_some_and(|slot| key.equivalent(&slot.key));
        self.table.find(hash, same).copied()
    }

    /// The value of `key`, marked as used.
    pub fn get<Q: Hash + Equivalent<K> + ?Sized>(&mut self, key: &Q) -> Option<&mut V> {
        let at = self.find(key)?;
        let slot = self.slots[at].as_mut()?;
        slot.used = true;
        Some(&mut slot.value)
    }

    /// The value of `key` as it is.
    pub fn peek<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<&V> {
        self.slots[self.find(key)?].as_ref().map(|slot| &slot.value)
    }

    /// Sets the value of `key`.
    pub fn insert(&mut self, key: K, value: V) {
        self.put(key, value, true);
    }

    /// The same, of something that nobody has asked for: it goes first, if nobody does.
    pub(crate) fn insert_unused(&mut self, key: K, value: V) {
        self.put(key, value, false);
    }

    fn put(&mut self, key: K, value: V, used: bool) {
        let weight = value.weight();
        self.weight += weight;
        self.owe(1);
        self.owe_for(weight);
        let slot = Slot { key, value, weight, used };
        if let Some(at) = self.find(&slot.key) {
            let old = self.slots[at].replace(slot);
            self.weight -= old.map_or(0, |old| old.weight);
            return;
        }
        let hash = self.hasher.hash_one(&slot.key);
        let at = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.slots[at] = Some(slot);
        let (slots, hasher) = (&self.slots, &self.hasher);
        self.table.insert_unique(hash, at, |&at| {
            hasher.hash_one(&slots[at].as_ref().expect("the table names only full slots").key)
        });
    }

    /// Takes `key` out.
    pub fn remove<Q: Hash + Equivalent<K> + ?Sized>(&mut self, key: &Q) -> Option<V> {
        let at = self.find(key)?;
        self.take(at).map(|slot| slot.value)
    }

    fn take(&mut self, at: usize) -> Option<Slot<K, V>> {
        let slot = self.slots[at].take()?;
        let hash = self.hasher.hash_one(&slot.key);
        if let Ok(entry) = self.table.find_entry(hash, |&other| other == at) {
            entry.remove();
        }
        self.free.push(at);
        self.weight -= slot.weight;
        Some(slot)
    }

    /// Weighs the value of `key` anew after it grew or shrank.
    pub fn reweigh<Q: Hash + Equivalent<K> + ?Sized>(&mut self, key: &Q) {
        let Some(at) = self.find(key) else { return };
        if let Some(slot) = &mut self.slots[at] {
            let weight = slot.value.weight();
            let more = weight.saturating_sub(slot.weight);
            self.weight = self.weight - slot.weight + weight;
            slot.weight = weight;
            self.owe_for(more);
        }
    }

    /// So many bytes came: the hand goes round before they are a good part of the bound, however
    /// many entries there are that weigh little and cannot go.
    fn owe_for(&mut self, bytes: usize) {
        let steps = self.slots.len().saturating_mul(bytes) / (self.weight_max / ROUNDS).max(1);
        self.owed = self.owed.saturating_add(steps);
    }

    /// So many entries came, or are pinned no more.
    pub(crate) fn owe(&mut self, entries: usize) {
        self.owed = self.owed.saturating_add(STEPS_OWED * entries);
    }

    /// Takes out one entry if the map is over its bound and finds one to spare.
    pub fn evict(&mut self) -> Option<(K, V)> {
        if self.weight <= self.weight_max {
            self.owed = 0;
            return None;
        }
        // Twice round tells all there is to know.
        self.owed = self.owed.min(2 * self.slots.len());
        let (found, taken) = self.go_round(self.owed.clamp(STEPS_MAX, STEPS_OWED_MAX));
        self.owed = self.owed.saturating_sub(taken);
        found
    }

    /// True if [`ClockMap::evict`] found no entry to evict among very many, and has more to look
    /// at.
    pub(crate) fn is_owed(&self) -> bool {
        self.owed > 0 && self.weight > self.weight_max && self.table.len() > self.entries_min
    }

    /// Takes out one entry that may go, whatever all weigh. Looks at no more of them than for an
    /// eviction.
    pub fn spare(&mut self) -> Spared<K, V> {
        match self.go_round(STEPS_MAX).0 {
            Some((key, value)) => Spared::Entry(key, value),
            None if self.table.is_empty() => Spared::Nothing,
            None => Spared::NotYet,
        }
    }

    /// Moves the hand by at most `steps` entries. Returns the evicted entry, if any, and the number
    /// of steps taken.
    fn go_round(&mut self, steps: usize) -> (Option<(K, V)>, usize) {
        let steps = if self.table.is_empty() { 0 } else { steps };
        let are_few = self.table.len() <= self.entries_min;
        for step in 1..=steps {
            self.hand = (self.hand + 1) % self.slots.len();
            let Some(slot) = &mut self.slots[self.hand] else { continue };
            let is_pinned = slot.value.is_pinned();
            if !is_pinned && std::mem::take(&mut slot.used) {
                continue;
            }
            if !is_pinned && !are_few {
                return (self.take(self.hand).map(|slot| (slot.key, slot.value)), step);
            }
            if slot.value.shed() {
                let weight = slot.value.weight();
                self.weight = self.weight - slot.weight + weight;
                slot.weight = weight;
                if self.weight <= self.weight_max {
                    return (None, step);
                }
            }
        }
        (None, steps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq)]
    struct Entry {
        pinned: bool,
        weight: usize,
    }

    impl Cached for Entry {
        fn is_pinned(&self) -> bool {
            self.pinned
        }
        fn weight(&self) -> usize {
            self.weight
        }
    }

    fn filled(count: u64, pinned: impl Fn(u64) -> bool) -> ClockMap<u64, Entry> {
        let mut map = ClockMap::new(10 * ENTRIES_MIN);
        for key in 0..count {
            map.insert(key, Entry { pinned: pinned(key), weight: 10 });
            while map.evict().is_some() {}
        }
        map
    }

    #[test]
    fn the_weight_stays_within_its_bound() {
        let map = filled(10_000, |_| false);
        assert!(map.weight() <= 10 * (ENTRIES_MIN + 1), "{}", map.weight());
    }

    #[test]
    fn so_it_does_when_many_come_at_once() {
        let mut map = filled(10_000, |_| false);
        for round in 1..1000 {
            for key in 0..128 {
                map.insert(10_000 * round + key, Entry { pinned: false, weight: 10 });
            }
            while map.evict().is_some() {}
            assert!(map.weight() <= 10 * (ENTRIES_MIN + 3 * 128), "{} after {round}", map.weight());
        }
    }

    #[test]
    fn so_it_does_when_many_are_pinned_no_more() {
        let mut map = filled(10_000, |_| true);
        (0..10_000).for_each(|key| map.get(&key).expect("pinned").pinned = false);
        map.owe(10_000);
        // It is done in parts, so that nobody waits for all of it.
        let parts = std::iter::from_fn(|| {
            while map.evict().is_some() {}
            map.is_owed().then_some(())
        });
        assert!(parts.count() <= 3 * 10_000 / STEPS_OWED_MAX);
        assert!(map.weight() <= 10 * (ENTRIES_MIN + 1), "{}", map.weight());
    }

    #[test]
    fn what_nobody_asked_for_goes_first() {
        let mut map = ClockMap::new(10 * 2 * ENTRIES_MIN);
        for key in 0..100 * ENTRIES_MIN as u64 {
            if key % 4 == 0 {
                map.insert(key, Entry { pinned: false, weight: 10 });
            } else {
                map.insert_unused(key, Entry { pinned: false, weight: 10 });
            }
            while map.evict().is_some() {}
        }
        let of = |rest: &[u64]| {
            (0..100 * ENTRIES_MIN as u64).filter(|key| rest.contains(&(key % 4)) && map.peek(key).is_some()).count()
        };
        // Of four that come one has been asked for.
        assert!(3 * of(&[0]) > of(&[1, 2, 3]), "{} and {}", of(&[0]), of(&[1, 2, 3]));
    }

    #[test]
    fn pinned_entries_stay_whatever_the_weight() {
        let map = filled(5_000, |key| key % 10 == 0);
        assert!((0..5_000).step_by(10).all(|key| map.peek(&key).is_some()));
    }

    /// Many entries waiting for a commit shed their rebuildable data before they are committed.
    #[test]
    fn pinned_entries_and_few_ones_give_what_can_be_made_again() {
        struct Shedding {
            pinned: bool,
            more: usize,
        }
        impl Cached for Shedding {
            fn is_pinned(&self) -> bool {
                self.pinned
            }
            fn weight(&self) -> usize {
                10 + self.more
            }
            fn shed(&mut self) -> bool {
                std::mem::take(&mut self.more) > 0
            }
        }
        for (count, pinned) in [(2_000, true), (ENTRIES_MIN as u64, false)] {
            let mut map = ClockMap::new(100_000);
            for key in 0..count {
                map.insert(key, Shedding { pinned, more: 10_000 });
                while map.evict().is_some() || map.is_owed() {}
                // Some rounds are owed for all the bytes of the bound.
                assert!(map.weight() <= 200_000, "{} after {key}", map.weight());
            }
            (0..ENTRIES_MIN).for_each(|_| while map.evict().is_some() {});
            assert!(map.weight() <= 100_000 && (0..count).all(|key| map.peek(&key).is_some()));
            // The hand is far from those that grow.
            for step in 0..count {
                let key = step * 7919 % count;
                map.get(&key).expect("there").more = 10_000;
                map.reweigh(&key);
                while map.evict().is_some() || map.is_owed() {}
                assert!(map.weight() <= 200_000, "{} after {step} grew", map.weight());
            }
        }
    }

    #[test]
    fn an_entry_in_use_outlives_idle_ones() {
        let mut map = ClockMap::new(10 * ENTRIES_MIN);
        map.insert(u64::MAX, Entry { pinned: false, weight: 10 });
        for key in 0..5_000 {
            map.insert(key, Entry { pinned: false, weight: 10 });
            assert!(map.get(&u64::MAX).is_some(), "gone after {key}");
            while map.evict().is_some() {}
        }
    }

    #[test]
    fn replacing_removing_and_reweighing_keep_the_sum() {
        let mut map = ClockMap::new(1000);
        map.insert(1u64, Entry { pinned: false, weight: 10 });
        map.insert(1, Entry { pinned: false, weight: 30 });
        map.insert(2, Entry { pinned: false, weight: 5 });
        assert_eq!(map.weight(), 35);
        map.get(&2).expect("present").weight = 7;
        map.reweigh(&2);
        assert_eq!(map.weight(), 37);
        map.remove(&1);
        assert_eq!(map.weight(), 7);
    }
}
