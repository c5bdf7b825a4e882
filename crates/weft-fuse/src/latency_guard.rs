//! Keeps idle processors from sleeping while requests come.
//!
//! A reply wakes a program, often on another processor, and waking one that sleeps takes longer
//! than a request does: on virtual machines many times longer. Linux lets a program bound that time
//! (PM QoS, Documentation/power/pm_qos_interface.rst); idle processors then stay awake, at the
//! price of power. Here the bound holds only until requests have stopped for [`QUIET`].

use parking_lot::{Condvar, Mutex};
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// File that takes the bound. The kernel forgets the bound when the file is closed.
const PATH: &str = "/dev/cpu_dma_latency";

/// Microseconds, as the kernel takes them: none at all, and its own default.
const AWAKE: i32 = 0;
const UNBOUNDED: i32 = 2_000_000_000;

/// Time without requests after which processors may sleep again.
const QUIET: Duration = Duration::from_millis(10);

/// Keeps processors awake while requests come. Dropping it ends that.
pub(crate) struct LatencyGuard {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    requests: AtomicU64,
    /// True if the thread keeps processors awake.
    active: AtomicBool,
    ended: Mutex<bool>,
    /// Signalled when `active` or `ended` became true.
    changed: Condvar,
}

impl LatencyGuard {
    /// Returns a guard that holds nothing yet. Errors: the kernel lacks PM QoS, or no permission.
    pub(crate) fn new() -> io::Result<LatencyGuard> {
        let file = OpenOptions::new().write(true).open(PATH)?;
        LatencyGuard::with(move |microseconds| (&file).write_all(&microseconds.to_ne_bytes()))
    }

    /// `bound` tells the kernel the longest time a processor may take to wake.
    fn with(bound: impl Fn(i32) -> io::Result<()> + Send + 'static) -> io::Result<LatencyGuard> {
        // Opening the file alone bounds it to nothing.
        bound(UNBOUNDED)?;
        let shared = Arc::new(Shared::default());
        let work = shared.clone();
        let thread = thread::Builder::new().name("weft-awake".into()).spawn(move || work.run(bound))?;
        Ok(LatencyGuard { shared, thread: Some(thread) })
    }

    /// Notes that a request came.
    pub(crate) fn request_came(&self) {
        let shared = &self.shared;
        shared.requests.fetch_add(1, Ordering::Relaxed);
        if !shared.active.load(Ordering::Relaxed) && !shared.active.swap(true, Ordering::AcqRel) {
            // Under the lock, so that the thread is not just about to wait.
            let _ended = shared.ended.lock();
            shared.changed.notify_one();
        }
    }
}

impl Drop for LatencyGuard {
    fn drop(&mut self) {
        *self.shared.ended.lock() = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has logged it.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn run(&self, bound: impl Fn(i32) -> io::Result<()>) {
        let mut ended = self.ended.lock();
        loop {
            while !*ended && !self.active.load(Ordering::Acquire) {
                self.changed.wait(&mut ended);
            }
            if *ended {
                return;
            }
            // Only speed depends on it.
            let _ = bound(AWAKE);
            let mut seen = None;
            while !*ended && seen != Some(self.requests.load(Ordering::Relaxed)) {
                seen = Some(self.requests.load(Ordering::Relaxed));
                self.changed.wait_for(&mut ended, QUIET);
            }
            let _ = bound(UNBOUNDED);
            self.active.store(false, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, channel};

    fn recorded() -> (LatencyGuard, Receiver<i32>) {
        let (told, bounds) = channel();
        let latency_guard = LatencyGuard::with(move |microseconds| told.send(microseconds).map_err(io::Error::other));
        (latency_guard.expect("a thread"), bounds)
    }

    #[test]
    fn processors_stay_awake_from_a_request_until_there_are_no_more() {
        let (latency_guard, bounds) = recorded();
        assert_eq!(bounds.recv(), Ok(UNBOUNDED));
        for _ in 0..2 {
            latency_guard.request_came();
            assert_eq!(bounds.recv(), Ok(AWAKE));
            assert_eq!(bounds.recv(), Ok(UNBOUNDED));
            while latency_guard.shared.active.load(Ordering::Acquire) {
                thread::yield_now();
            }
        }
        drop(latency_guard);
        assert!(bounds.recv().is_err(), "nothing was held meanwhile");
    }

    #[test]
    fn the_end_of_a_mount_lets_processors_sleep() {
        let (latency_guard, bounds) = recorded();
        latency_guard.request_came();
        drop(latency_guard);
        assert_eq!(bounds.iter().last(), Some(UNBOUNDED));
    }
}
