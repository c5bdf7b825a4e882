//! Latencies of work: histograms that any thread adds to without a lock, and what they show.
//!
//! A bucket is a quarter of a power of two wide, so a quantile is told within 25 percent, and a
//! histogram takes a kilobyte whatever it counts.

use serde::Serialize;
use serde::ser::{SerializeStruct, Serializer};
use std::array;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Buckets of each power of two, as a power of two.
const FINE: u32 = 2;
/// All that takes less than 2 to this power nanoseconds (256 ns) is one bucket.
const SHORTEST: u32 = 8;
/// All that takes 2 to this power nanoseconds (69 s) or more is one bucket.
const LONGEST: u32 = 36;
const BUCKETS: usize = (((LONGEST - SHORTEST) << FINE) + 2) as usize;

/// Returns the bucket of what takes `nanos`.
fn bucket_of(nanos: u64) -> usize {
    if nanos < 1 << SHORTEST {
        return 0;
    }
    let power = nanos.ilog2();
    if power >= LONGEST {
        return BUCKETS - 1;
    }
    let within = (nanos >> (power - FINE)) & ((1 << FINE) - 1);
    1 + (((power - SHORTEST) << FINE) as usize) + within as usize
}

/// Returns the first number of nanoseconds behind `bucket`.
fn end_of(bucket: usize) -> u64 {
    if bucket + 1 == BUCKETS {
        return u64::MAX;
    }
    let (power, within) = ((bucket as u64) >> FINE, (bucket as u64) & ((1 << FINE) - 1));
    ((1 << FINE) + within) << (power + u64::from(SHORTEST - FINE))
}

/// Counts how long work of one kind takes.
#[derive(Debug)]
pub struct LatencyHistogram {
    counts: [AtomicU64; BUCKETS],
    nanos: AtomicU64,
}

impl Default for LatencyHistogram {
    fn default() -> LatencyHistogram {
        LatencyHistogram { counts: array::from_fn(|_| AtomicU64::new(0)), nanos: AtomicU64::new(0) }
    }
}

impl LatencyHistogram {
    /// Counts work that took `time`.
    pub fn add(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.counts[bucket_of(nanos)].fetch_add(1, Ordering::Relaxed);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    /// Does `work`, and counts how long that took.
    pub fn time<T>(&self, work: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        let done = work();
        self.add(begun.elapsed());
        done
    }

    /// Returns what was counted so far.
    pub fn latency(&self) -> Latency {
        let counted = self.counts.iter().enumerate().map(|(bucket, count)| (bucket, count.load(Ordering::Relaxed)));
        Latency { counts: counted.filter(|(_, count)| *count > 0).collect(), nanos: self.nanos.load(Ordering::Relaxed) }
    }
}

/// Latencies that were counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// Numbers of buckets that are not empty, ascending, and what they count.
    counts: Vec<(usize, u64)>,
    nanos: u64,
}

impl Latency {
    /// Returns the numbers of buckets that are not empty, ascending, and what they count.
    pub fn buckets(&self) -> &[(usize, u64)] {
        &self.counts
    }

    /// Returns latencies of which `counts` are in buckets of these numbers, ascending, and that are
    /// `nanos` nanoseconds in all. Numbers that no bucket has count as the last one.
    pub fn of_buckets(counts: impl IntoIterator<Item = (usize, u64)>, nanos: u64) -> Latency {
        let known = counts.into_iter().map(|(bucket, count)| (bucket.min(BUCKETS - 1), count));
        Latency { counts: known.filter(|(_, count)| *count > 0).collect(), nanos }
    }

    /// Returns what was counted after `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Latency) -> Latency {
        let before = |bucket: usize| earlier.counts.iter().find(|(of, _)| *of == bucket).map_or(0, |(_, count)| *count);
        let new = self.counts.iter().map(|(bucket, count)| (*bucket, count.saturating_sub(before(*bucket))));
        Latency::of_buckets(new, self.nanos.saturating_sub(earlier.nanos))
    }

    /// Returns how often the work was done.
    pub fn count(&self) -> u64 {
        self.counts.iter().map(|(_, count)| count).sum()
    }

    /// Returns the time that all of it took.
    pub fn total(&self) -> Duration {
        Duration::from_nanos(self.nanos)
    }

    /// Returns the mean; zero if there was no work.
    pub fn mean(&self) -> Duration {
        Duration::from_nanos(self.nanos.checked_div(self.count()).unwrap_or(0))
    }

    /// Returns a time within which `share` (0 to 1) of the work was done: the end of a bucket. Zero
    /// if there was no work.
    pub fn quantile(&self, share: f64) -> Duration {
        let least = (self.count() as f64 * share.clamp(0.0, 1.0)).ceil().max(1.0) as u64;
        let mut seen = 0;
        let found = self.counts.iter().find(|(_, count)| {
            seen += count;
            seen >= least
        });
        Duration::from_nanos(found.map_or(0, |(bucket, _)| end_of(*bucket)))
    }

    /// Returns how often the work took less than each power of two of nanoseconds, from 1024 ns to
    /// 2^36 ns, and at least as long as the one before.
    pub fn by_powers_of_two(&self) -> impl Iterator<Item = (Duration, u64)> + '_ {
        let mut seen = 0;
        (10..=LONGEST).map(move |power| {
            let below = self.counts.iter().filter(|(bucket, _)| end_of(*bucket) <= 1 << power);
            let new = below.map(|(_, count)| count).sum::<u64>() - seen;
            seen += new;
            (Duration::from_nanos(1 << power), new)
        })
    }
}

/// A summary, in microseconds.
impl Serialize for Latency {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let micros = |time: Duration| time.as_nanos() as f64 / 1000.0;
        let mut summary = serializer.serialize_struct("Latency", 6)?;
        summary.serialize_field("count", &self.count())?;
        summary.serialize_field("total_us", &micros(self.total()))?;
        summary.serialize_field("mean_us", &micros(self.mean()))?;
        for (name, share) in [("p50_us", 0.5), ("p90_us", 0.9), ("p99_us", 0.99)] {
            summary.serialize_field(name, &micros(self.quantile(share)))?;
        }
        summary.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn each_time_lies_in_its_bucket(nanos in prop_oneof![0u64..5000, any::<u64>()]) {
            let bucket = bucket_of(nanos);
            prop_assert!(nanos < end_of(bucket) || bucket + 1 == BUCKETS);
            prop_assert!(bucket == 0 || nanos >= end_of(bucket - 1));
        }
    }

    #[test]
    fn quantiles_are_told_within_a_quarter() {
        let histogram = LatencyHistogram::default();
        for micros in 1..=1000 {
            histogram.add(Duration::from_micros(micros));
        }
        let latency = histogram.latency();
        assert_eq!((latency.count(), latency.total()), (1000, Duration::from_micros(500_500)));
        for (share, exact) in [(0.5, 500.0), (0.9, 900.0), (0.99, 990.0), (0.0, 1.0), (1.0, 1000.0)] {
            let told = latency.quantile(share).as_nanos() as f64 / 1000.0;
            assert!(told > exact && told <= exact * 1.25 + 0.3, "{share}: {told}");
        }
        assert_eq!(Latency::default().quantile(0.5), Duration::ZERO);
    }

    #[test]
    fn all_that_is_not_longer_than_the_longest_is_in_powers_of_two() {
        let histogram = LatencyHistogram::default();
        for nanos in [0, 300, 1023, 1024, 2047, 1 << 20, u64::MAX] {
            histogram.add(Duration::from_nanos(nanos));
        }
        let latency = histogram.latency();
        let told: Vec<_> = latency.by_powers_of_two().filter(|(_, count)| *count > 0).collect();
        let nanos = Duration::from_nanos;
        assert_eq!(told, [(nanos(1 << 10), 3), (nanos(1 << 11), 2), (nanos(1 << 21), 1)]);
        assert_eq!(latency.count(), 7);
    }
}
