//! Notices when a thread takes long over a request.
//!
//! A network of stages is mostly done sooner than another thread could be woken on another
//! processor, but nobody knows before. So a thread that begins with one registers here, and goes
//! on; if it is not back after a [`TICK`] or two, the watchdog acts for it. Invariant: for each
//! beginning either [`Watchdog::end`] is true or the watchdog has acted, and never both.

use super::scheduling::be_ordinary;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// Time between two looks.
const TICK: Duration = Duration::from_millis(1);

/// Idle looks after which the watchdog sleeps.
const QUIET_TICKS: u32 = 20;

/// Looks after one thread at a time.
pub(super) struct Watchdog {
    /// The beginning of the thread at work; 0 if none.
    at_work: AtomicU64,
    begun: AtomicU64,
    /// True if it waits to be woken. Either it sees the thread at work after it has set this, or
    /// that thread sees it.
    sleeps: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    has_started: bool,
    has_ended: bool,
}

impl Watchdog {
    pub(super) fn new() -> Arc<Watchdog> {
        Arc::new(Watchdog {
            at_work: AtomicU64::new(0),
            begun: AtomicU64::new(0),
            sleeps: AtomicBool::new(true),
            state: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    /// Starts watching the calling thread. None if it cannot be watched. The `act` of the first
    /// caller is called, on another thread, for any thread that is not back in time.
    pub(super) fn begin(self: &Arc<Watchdog>, act: impl Fn() + Send + 'static) -> Option<NonZeroU64> {
        let beginning = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        self.at_work.store(beginning, Ordering::SeqCst);
        if self.sleeps.load(Ordering::SeqCst) && !self.wake(act) {
            self.at_work.store(0, Ordering::SeqCst);
            return None;
        }
        NonZeroU64::new(beginning)
    }

    fn wake(self: &Arc<Watchdog>, act: impl Fn() + Send + 'static) -> bool {
        let mut state = self.state.lock();
        if !state.has_started {
            let watchdog = self.clone();
            let started = thread::Builder::new().name("weft-watchdog".into()).spawn(move || watchdog.look(act));
            state.has_started = started.is_ok();
        }
        let looks = state.has_started && !state.has_ended;
        if looks {
            self.sleeps.store(false, Ordering::SeqCst);
            self.changed.notify_one();
        }
        looks
    }

    /// Stops watching the thread with this beginning. False if the watchdog acted for it.
    pub(super) fn end(&self, beginning: NonZeroU64) -> bool {
        self.at_work.compare_exchange(beginning.get(), 0, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Ends the watchdog.
    pub(super) fn stop(&self) {
        self.state.lock().has_ended = true;
        self.changed.notify_one();
    }

    fn look(&self, act: impl Fn()) {
        be_ordinary();
        let (mut seen, mut counted, mut quiet) = (0, 0, 0);
        let mut state = self.state.lock();
        while !state.has_ended {
            self.changed.wait_for(&mut state, TICK);
            let now = self.at_work.load(Ordering::SeqCst);
            if let (true, Some(beginning)) = (now == seen, NonZeroU64::new(now))
                && self.end(beginning)
            {
                MutexGuard::unlocked(&mut state, &act);
            }
            seen = now;
            let begun = self.begun.load(Ordering::SeqCst);
            quiet = if begun == counted && now == 0 { quiet + 1 } else { 0 };
            counted = begun;
            if quiet < QUIET_TICKS {
                continue;
            }
            self.sleeps.store(true, Ordering::SeqCst);
            while self.at_work.load(Ordering::SeqCst) == 0 && self.sleeps.load(Ordering::SeqCst) && !state.has_ended {
                self.changed.wait(&mut state);
            }
            self.sleeps.store(false, Ordering::SeqCst);
            quiet = 0;
        }
        self.sleeps.store(true, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn whoever_is_not_back_is_acted_for_once_and_nobody_else() {
        let watchdog = Watchdog::new();
        let (acted, acts) = channel();
        let act = move || acted.send(()).expect("somebody hears it");
        for _ in 0..3 {
            for _ in 0..1000 {
                let beginning = watchdog.begin(act.clone()).expect("a thread");
                // It may have been taken off its processor for as long as that.
                if !watchdog.end(beginning) {
                    acts.recv().expect("acted");
                }
            }
            let beginning = watchdog.begin(act.clone()).expect("a thread");
            acts.recv().expect("acted");
            assert!(!watchdog.end(beginning));
        }
        watchdog.stop();
        assert!(acts.try_recv().is_err());
    }

    #[test]
    fn it_wakes_from_its_sleep() {
        let watchdog = Watchdog::new();
        let (acted, acts) = channel();
        let act = move || acted.send(()).expect("somebody hears it");
        assert!(watchdog.end(watchdog.begin(act.clone()).expect("a thread")) || acts.recv().is_ok());
        while !watchdog.sleeps.load(Ordering::SeqCst) {
            thread::yield_now();
        }
        assert!(watchdog.begin(act.clone()).is_some());
        acts.recv().expect("acted");
        watchdog.stop();
        while !watchdog.sleeps.load(Ordering::SeqCst) {
            thread::yield_now();
        }
        assert!(watchdog.begin(act).is_none());
    }
}
