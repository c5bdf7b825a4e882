//! The one source of time, so that tests and replay are deterministic.

use std::sync::atomic::{AtomicI64, Ordering};
use weft_store::Timestamp;

/// Tells the time.
pub trait Clock: Send + Sync {
    /// Now.
    fn now(&self) -> Timestamp;
}

/// The machine's clock, at the resolution the kernel uses for its own file times.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `time` is a valid timespec for the call to fill in.
        let result = unsafe { libc::clock_gettime(libc::CLOCK_REALTIME_COARSE, &raw mut time) };
        assert_eq!(result, 0, "CLOCK_REALTIME_COARSE exists on Linux");
        Timestamp::from_parts(time.tv_sec, u32::try_from(time.tv_nsec).expect("below 10^9"))
    }
}

/// A clock that stands still until told otherwise.
#[derive(Debug, Default)]
pub struct ManualClock(AtomicI64);

impl ManualClock {
    /// Sets the time.
    pub fn set(&self, time: Timestamp) {
        self.0.store(time.0, Ordering::SeqCst);
    }

    /// Moves the time on by `nanoseconds`.
    pub fn advance(&self, nanoseconds: i64) {
        self.0.fetch_add(nanoseconds, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }
}
