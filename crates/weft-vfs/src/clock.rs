//! The one source of time, so that tests and replay are deterministic.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use weft_store::Timestamp;

/// Tells the time.
pub trait Clock: Send + Sync {
    /// Now.
    fn now(&self) -> Timestamp;

    /// Returns the time since the machine booted, suspension included, which nobody sets.
    fn since_boot(&self) -> Duration;
}

/// The machine's clock, at the resolution the kernel uses for its own file times.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let (seconds, nanoseconds) = read(libc::CLOCK_REALTIME_COARSE);
        Timestamp::from_parts(seconds, nanoseconds)
    }

    fn since_boot(&self) -> Duration {
        let (seconds, nanoseconds) = read(libc::CLOCK_BOOTTIME);
        Duration::new(u64::try_from(seconds).unwrap_or(0), nanoseconds)
    }
}

/// Returns the seconds and nanoseconds of one of the kernel's clocks.
fn read(clock: libc::clockid_t) -> (i64, u32) {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec for the call to fill in.
    let result = unsafe { libc::clock_gettime(clock, &raw mut time) };
    assert_eq!(result, 0, "the clock exists on Linux");
    (time.tv_sec, u32::try_from(time.tv_nsec).expect("below 10^9"))
}

/// A clock that stands still until told otherwise. The machine has run for as long as the time
/// moved on, unless that was a jump.
#[derive(Debug, Default)]
pub struct ManualClock {
    now: AtomicI64,
    /// Nanoseconds of the time that were jumps.
    jumped: AtomicI64,
}

impl ManualClock {
    /// Sets the time; the time since boot moves with it.
    pub fn set(&self, time: Timestamp) {
        self.now.store(time.0, Ordering::SeqCst);
    }

    /// Moves the time on by `nanoseconds`, and the time since boot.
    pub fn advance(&self, nanoseconds: i64) {
        self.now.fetch_add(nanoseconds, Ordering::SeqCst);
    }

    /// Sets the time `nanoseconds` ahead, as an administrator does: no time passes since boot.
    pub fn jump(&self, nanoseconds: i64) {
        self.jumped.fetch_add(nanoseconds, Ordering::SeqCst);
        self.now.fetch_add(nanoseconds, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.now.load(Ordering::SeqCst))
    }

    fn since_boot(&self) -> Duration {
        let passed = self.now.load(Ordering::SeqCst).saturating_sub(self.jumped.load(Ordering::SeqCst));
        Duration::from_nanos(u64::try_from(passed).unwrap_or(0))
    }
}
