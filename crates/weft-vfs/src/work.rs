//! Counts of work by whose it is: a bound, the ones that were last here, and a lock each for some
//! of them, so that requests of different ones seldom meet.

use parking_lot::Mutex;
use rustc_hash::{FxBuildHasher, FxHashMap};
use std::array;
use std::hash::{BuildHasher, Hash};
use std::time::{Duration, Instant};

/// Parts with a lock each.
const PARTS: usize = 16;
/// Most that a part counts apart.
const OF_PART_MAX: usize = 64;

/// Work that somebody asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Requests.
    pub requests: u64,
    /// Time that they took here.
    pub time: Duration,
}

impl Work {
    fn add(&mut self, other: Work) {
        self.requests += other.requests;
        self.time += other.time;
    }
}

/// Counts work by `K`: a process, an address.
#[derive(Debug)]
pub struct WorkBy<K> {
    parts: [Mutex<Part<K>>; PARTS],
}

#[derive(Debug)]
struct Part<K> {
    of: FxHashMap<K, (Work, Instant)>,
    /// Work of those that are counted apart no more.
    others: Work,
}

impl<K> Default for WorkBy<K> {
    fn default() -> WorkBy<K> {
        WorkBy { parts: array::from_fn(|_| Mutex::new(Part { of: FxHashMap::default(), others: Work::default() })) }
    }
}

impl<K: Copy + Eq + Hash> WorkBy<K> {
    /// Counts a request of `key` that began at `begun` and has just ended, at `ended`.
    pub fn add(&self, key: K, begun: Instant, ended: Instant) {
        let part = FxBuildHasher.hash_one(key) as usize % PARTS;
        let part = &mut *self.parts[part].lock();
        if part.of.len() >= OF_PART_MAX && !part.of.contains_key(&key) {
            part.forget_oldest();
        }
        let (work, last) = part.of.entry(key).or_insert((Work::default(), ended));
        work.add(Work { requests: 1, time: ended.saturating_duration_since(begun) });
        *last = ended;
    }

    /// Returns the work of each that is counted apart, and that of all others.
    pub fn all(&self) -> (Vec<(K, Work)>, Work) {
        let (mut all, mut others) = (Vec::new(), Work::default());
        for part in &self.parts {
            let part = part.lock();
            all.extend(part.of.iter().map(|(key, (work, _))| (*key, *work)));
            others.add(part.others);
        }
        (all, others)
    }
}

impl<K: Copy + Eq + Hash> Part<K> {
    fn forget_oldest(&mut self) {
        let oldest = self.of.iter().min_by_key(|(_, (_, last))| *last).map(|(key, _)| *key);
        if let Some((work, _)) = oldest.and_then(|key| self.of.remove(&key)) {
            self.others.add(work);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ones_that_were_last_here_are_counted_apart_and_nothing_is_lost() {
        let counted = WorkBy::<u64>::default();
        let begun = Instant::now();
        for (order, key) in (0..5000).chain([7, 7]).enumerate() {
            let at = begun + Duration::from_micros(order as u64);
            counted.add(key, at, at + Duration::from_micros(3));
        }
        let (all, others) = counted.all();
        assert!(all.len() <= PARTS * OF_PART_MAX && all.len() > PARTS);
        let of_last = all.iter().find(|(key, _)| *key == 7).expect("it was here last").1;
        assert_eq!(of_last, Work { requests: 2, time: Duration::from_micros(6) });
        assert!(all.iter().any(|(key, _)| *key == 4999));
        let mut sum = others;
        all.iter().for_each(|(_, work)| sum.add(*work));
        assert_eq!(sum, Work { requests: 5002, time: Duration::from_micros(3 * 5002) });
    }
}
