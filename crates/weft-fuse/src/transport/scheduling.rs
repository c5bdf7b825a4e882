//! Keeps programs on the processor where they are served.
//!
//! A reply wakes a program. If the processor it slept on is busy, and the thread that just served
//! it is still running there, the kernel moves it to an idle processor; on virtual machines waking
//! one takes many times longer than a request does. A processor that runs nothing but threads of
//! the idle policy counts as idle, though. So a thread takes that policy while requests come fast.
//!
//! Where all processors are busy there is nothing to gain, and such a thread hardly runs, so then
//! none takes the policy. Nor does it run much where others want its processor only. A watcher
//! looks every [`TICK`]: a thread that wants to run and gets nowhere becomes an ordinary one, and
//! stays that for a while ([`REST_MIN`]); so does one that has nothing to do. The watcher is awake
//! only while there are threads of the idle policy, or large requests come; it goes by the policy
//! that the kernel reports. It also keeps background work off the processors where requests come
//! fast, or carry many bytes: a commit that runs where a program writes delays both. Invariants: a
//! thread makes sure that the watcher is awake before it takes the policy. Threads inherit the
//! policy, so nobody starts one before [`Seat::be_ordinary`], or the new one begins with
//! [`be_ordinary`].

mod background;
mod policy;

use background::Background;
use parking_lot::{Condvar, Mutex};
use policy::Policy;
use rustix::thread::{CpuSet, Pid, sched_getcpu};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Time between two looks of the watcher.
const TICK: Duration = Duration::from_millis(2);

/// Time for which a thread that got nowhere stays an ordinary one: doubled each time, unless it had
/// got on for [`PAYS`].
const REST_MIN: Duration = Duration::from_millis(20);
const REST_MAX: Duration = Duration::from_millis(500);

/// Time of progress after which the idle policy has paid for a thread: getting nowhere costs it a
/// [`TICK`] or two.
const PAYS: Duration = Duration::from_millis(20);

/// Looks without a request after which a thread becomes an ordinary one, and without any thread of
/// the idle policy after which the watcher sleeps.
const QUIET_TICKS: u32 = 8;

/// Requests between two looks of a thread at the clock.
const REQUESTS: u64 = 16;

/// Requests between two looks of the watcher from which on the background is kept off.
const REQUESTS_BUSY: u64 = 8;

/// Bytes of a request that keep a processor busy however few such requests come, and bytes of them
/// between two looks of the watcher from which on the background is kept off.
const BYTES_LARGE: usize = 64 << 10;
const BYTES_BUSY: usize = 512 << 10;

/// Requests come fast if there are [`REQUESTS`] in this time.
const FAST: Duration = Duration::from_millis(32);

/// The watcher of one mount's threads.
pub(crate) struct Scheduling {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    /// Returns true if all processors are busy.
    are_busy: fn() -> bool,
    watched: Mutex<Watched>,
    /// Signalled when `awake` or `ended` became true.
    changed: Condvar,
    awake: AtomicBool,
    /// Number of times a thread was about to take the idle policy.
    calls: AtomicU64,
}

#[derive(Default)]
struct Watched {
    threads: Vec<(Arc<Thread>, Seen)>,
    background: Vec<Background>,
    ended: bool,
}

/// A thread that serves.
struct Thread {
    id: Pid,
    requests: AtomicU64,
    /// Bytes of large ones since the watcher looked.
    large: AtomicUsize,
    /// Processor at its last look at the clock, or at its last large request.
    processor: AtomicUsize,
    /// True if the watcher made it an ordinary one that is to rest.
    rescued: AtomicBool,
}

/// The watcher's record of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Seen {
    requests: u64,
    /// Looks since requests came.
    quiet: u32,
}

/// Gives the calling thread the ordinary policy, whatever thread started it.
pub(super) fn be_ordinary() {
    // If it cannot, the one that started it could not have been anything else.
    let _ = policy::set(rustix::thread::gettid(), Policy::Ordinary);
}

impl Scheduling {
    /// Starts the watcher. Errors: no thread, or no permission to leave the idle policy again
    /// (without `CAP_SYS_NICE`).
    pub(crate) fn new() -> io::Result<Scheduling> {
        Scheduling::with(policy::processors_are_busy)
    }

    fn with(are_busy: fn() -> bool) -> io::Result<Scheduling> {
        if !policy::can_return() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let shared = Arc::new(Shared {
            are_busy,
            watched: Mutex::default(),
            changed: Condvar::new(),
            awake: AtomicBool::new(false),
            calls: AtomicU64::new(0),
        });
        let work = shared.clone();
        let thread = thread::Builder::new().name("weft-watch".into()).spawn(move || work.watch())?;
        Ok(Scheduling { shared, thread: Some(thread) })
    }

    /// Keeps `thread` of this process off the processors where requests come fast, until the
    /// returned guard is dropped: no later than the thread ends.
    pub(crate) fn keep_off(&self, thread: Pid) -> KeptOff {
        self.shared.watched.lock().background.push(Background::new(thread));
        KeptOff { shared: self.shared.clone(), thread }
    }

    /// Returns a seat for the calling thread.
    pub(crate) fn seat(&self) -> Seat {
        let thread = Arc::new(Thread {
            id: rustix::thread::gettid(),
            requests: AtomicU64::new(0),
            large: AtomicUsize::new(0),
            processor: AtomicUsize::new(sched_getcpu()),
            rescued: false.into(),
        });
        self.shared.watched.lock().threads.push((thread.clone(), Seen::default()));
        Seat {
            shared: self.shared.clone(),
            thread,
            idle: false,
            looked: None,
            since: None,
            rests: None,
            rest: REST_MIN,
        }
    }
}

impl Drop for Scheduling {
    fn drop(&mut self) {
        self.shared.watched.lock().ended = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has logged it.
            let _ = thread.join();
        }
    }
}

/// A thread in the background.
pub(crate) struct KeptOff {
    shared: Arc<Shared>,
    thread: Pid,
}

impl Drop for KeptOff {
    fn drop(&mut self) {
        let mut watched = self.shared.watched.lock();
        watched.background.iter_mut().filter(|background| background.is(self.thread)).for_each(Background::leave);
        watched.background.retain(|background| !background.is(self.thread));
    }
}

/// A thread's own handle; it stays on the thread that took it. Dropping it makes the thread an
/// ordinary one.
pub(crate) struct Seat {
    shared: Arc<Shared>,
    thread: Arc<Thread>,
    /// True if it took the idle policy and has not left it itself since.
    idle: bool,
    looked: Option<Instant>,
    /// Start of the present run under the idle policy.
    since: Option<Instant>,
    /// End of its rest as an ordinary thread, and the length of that rest.
    rests: Option<Instant>,
    rest: Duration,
}

impl Seat {
    /// Counts a request of so many `bytes` that the thread is about to serve.
    pub(crate) fn request_came(&mut self, bytes: usize) {
        if bytes >= BYTES_LARGE {
            self.thread.large.fetch_add(bytes, Ordering::Relaxed);
            self.thread.processor.store(sched_getcpu(), Ordering::Relaxed);
            self.shared.wake();
        }
        // Only this thread counts.
        let requests = self.thread.requests.load(Ordering::Relaxed) + 1;
        self.thread.requests.store(requests, Ordering::Relaxed);
        if requests.is_multiple_of(REQUESTS) {
            self.look();
        }
    }

    fn look(&mut self) {
        let now = Instant::now();
        let fast = self.looked.is_some_and(|looked| now.duration_since(looked) < FAST);
        self.looked = Some(now);
        self.thread.processor.store(sched_getcpu(), Ordering::Relaxed);
        if self.thread.rescued.swap(false, Ordering::Relaxed) {
            self.idle = false;
            self.begin_rest(now, self.since.map_or(Duration::MAX, |since| now.duration_since(since)));
        }
        if self.rests.is_some_and(|end| end > now) {
            return;
        }
        self.rests = None;
        // A thread that was quiet for a while was made an ordinary one.
        if fast && !(self.idle && policy::is_idle(self.thread.id)) {
            if (self.shared.are_busy)() {
                self.idle = false;
                return self.begin_rest(now, Duration::ZERO);
            }
            self.shared.wake();
            self.since = Some(now);
            self.idle = policy::set(self.thread.id, Policy::Idle).is_ok();
        }
    }

    /// Makes the thread an ordinary one for a while, after progress for as long as `lasted`.
    fn begin_rest(&mut self, now: Instant, lasted: Duration) {
        self.rest = next_rest(self.rest, lasted);
        self.rests = Some(now + self.rest);
    }

    /// Takes the ordinary policy, before the thread starts others or does long work.
    pub(crate) fn be_ordinary(&mut self) {
        if std::mem::take(&mut self.idle) {
            // It could leave the policy when that was tried first. If it cannot now, the watcher
            // cannot either.
            let _ = policy::set(self.thread.id, Policy::Ordinary);
        }
    }
}

/// Returns the length of the rest of a thread that made progress for as long as `lasted` since its
/// last one.
fn next_rest(last: Duration, lasted: Duration) -> Duration {
    if lasted < PAYS { REST_MAX.min(2 * last) } else { REST_MIN }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.be_ordinary();
        self.shared.watched.lock().threads.retain(|(thread, _)| !Arc::ptr_eq(thread, &self.thread));
    }
}

impl Shared {
    /// Makes sure that the watcher is awake, and stays so for a while.
    fn wake(&self) {
        self.calls.fetch_add(1, Ordering::AcqRel);
        if !self.awake.swap(true, Ordering::AcqRel) {
            // Under the lock, so that the watcher is not just about to wait.
            let _watched = self.watched.lock();
            self.changed.notify_one();
        }
    }

    fn watch(&self) {
        let mut watched = self.watched.lock();
        loop {
            while !watched.ended && !self.awake.load(Ordering::Acquire) {
                self.changed.wait(&mut watched);
            }
            let (mut calls, mut none) = (self.calls.load(Ordering::Acquire), 0);
            while !watched.ended && none < QUIET_TICKS {
                self.changed.wait_for(&mut watched, TICK);
                let any = watched.look();
                let called = self.calls.load(Ordering::Acquire) != calls;
                calls = self.calls.load(Ordering::Acquire);
                none = if any || called { 0 } else { none + 1 };
            }
            watched.background.iter_mut().for_each(Background::leave);
            if watched.ended {
                return;
            }
            self.awake.store(false, Ordering::Release);
            if self.calls.load(Ordering::Acquire) != calls {
                self.awake.store(true, Ordering::Release);
            }
        }
    }
}

impl Watched {
    /// True if there are threads of the idle policy.
    fn look(&mut self) -> bool {
        let (mut any, mut busy) = (false, CpuSet::new());
        for (thread, seen) in &mut self.threads {
            let before = seen.requests;
            any |= thread.look(seen);
            let large = thread.large.swap(0, Ordering::Relaxed);
            let is_busy = seen.requests - before >= REQUESTS_BUSY || large >= BYTES_BUSY;
            let processor = thread.processor.load(Ordering::Relaxed);
            if is_busy && processor < CpuSet::MAX_CPU {
                busy.set(processor);
            }
        }
        self.background.iter_mut().for_each(|background| background.look(busy));
        any
    }
}

impl Thread {
    /// Makes the thread an ordinary one if it gets nowhere or has nothing to do. True if it keeps
    /// the idle policy.
    fn look(&self, seen: &mut Seen) -> bool {
        if !policy::is_idle(self.id) {
            return false;
        }
        let requests = self.requests.load(Ordering::Relaxed);
        if seen.requests != requests {
            *seen = Seen { requests, quiet: 0 };
            return true;
        }
        seen.quiet += 1;
        let stuck = policy::is_runnable(self.id);
        if !stuck && seen.quiet < QUIET_TICKS {
            return true;
        }
        if stuck {
            self.rescued.store(true, Ordering::Relaxed);
        }
        policy::set(self.id, Policy::Ordinary).is_err()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::thread::sched_getaffinity;
    use std::sync::mpsc::channel;

    /// Does `work` in the seat of a thread of its own, on a machine that is not busy.
    fn seated<T: Send>(work: impl FnOnce(&mut Seat) -> T + Send) -> Option<T> {
        seated_where(|| false, work)
    }

    fn seated_where<T: Send>(are_busy: fn() -> bool, work: impl FnOnce(&mut Seat) -> T + Send) -> Option<T> {
        let Ok(scheduling) = Scheduling::with(are_busy) else {
            eprintln!("skipped: this user may not leave the idle policy");
            return None;
        };
        Some(thread::scope(|scope| scope.spawn(|| work(&mut scheduling.seat())).join().expect("no panic")))
    }

    fn await_ordinary(seat: &Seat) {
        while policy::is_idle(seat.thread.id) {
            thread::yield_now();
        }
    }

    #[test]
    fn fast_requests_bring_the_idle_policy_and_quiet_takes_it_away() {
        seated(|seat| {
            let mut requests = 0;
            while !policy::is_idle(seat.thread.id) {
                seat.request_came(0);
                requests += 1;
            }
            assert!(requests >= 2 * REQUESTS, "after {requests} requests");
            // Waiting for nothing that comes, as for a request.
            let (_keep, never) = channel::<()>();
            while policy::is_idle(seat.thread.id) {
                let _ = never.recv_timeout(TICK);
            }
        });
    }

    #[test]
    fn a_thread_that_gets_nowhere_is_made_an_ordinary_one_and_rests() {
        seated(|seat| {
            while !seat.idle {
                seat.request_came(0);
            }
            await_ordinary(seat);
            assert!(seat.thread.rescued.load(Ordering::Relaxed));
            (0..REQUESTS).for_each(|_| seat.request_came(0));
            assert!(!policy::is_idle(seat.thread.id) && seat.rests.is_some());
        });
    }

    #[test]
    fn where_all_processors_are_busy_no_thread_takes_the_policy() {
        seated_where(
            || true,
            |seat| {
                (0..10 * REQUESTS).for_each(|_| seat.request_came(0));
                assert!(!policy::is_idle(seat.thread.id) && seat.rests.is_some());
            },
        );
    }

    /// Has a background thread be kept off where `come` says that requests came, and let go again.
    fn is_kept_off(come: impl Fn(&mut Seat) + Sync) {
        let Ok(scheduling) = Scheduling::with(|| false) else {
            eprintln!("skipped: this user may not leave the idle policy");
            return;
        };
        let where_it_may_run = || sched_getaffinity(None).expect("a thread may ask for its own");
        let allowed = where_it_may_run();
        let kept_off = scheduling.keep_off(rustix::thread::gettid());
        let ended = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut seat = scheduling.seat();
                while !ended.load(Ordering::Relaxed) {
                    come(&mut seat);
                }
            });
            while allowed.count() > 1 && where_it_may_run() == allowed {
                thread::yield_now();
            }
            drop(kept_off);
            assert_eq!(where_it_may_run(), allowed);
            ended.store(true, Ordering::Relaxed);
        });
    }

    #[test]
    fn a_background_thread_is_kept_off_a_processor_where_requests_come_fast() {
        is_kept_off(|seat| seat.request_came(0));
    }

    #[test]
    fn a_background_thread_is_kept_off_a_processor_where_few_large_requests_come() {
        let (_keep, never) = channel::<()>();
        let never = Mutex::new(never);
        is_kept_off(|seat| {
            seat.request_came(1 << 20);
            // Fewer than make a thread take the idle policy.
            let _ = never.lock().recv_timeout(4 * FAST / u32::try_from(REQUESTS).expect("few"));
        });
    }

    #[test]
    fn rests_get_longer_while_the_policy_does_not_pay() {
        assert_eq!(next_rest(REST_MIN, Duration::MAX), REST_MIN);
        assert_eq!(next_rest(REST_MIN, TICK), 2 * REST_MIN);
        assert_eq!(next_rest(REST_MAX, PAYS), REST_MIN);
        assert_eq!(next_rest(REST_MAX, TICK), REST_MAX);
    }

    #[test]
    fn threads_started_after_it_is_ordinary_do_not_inherit_the_policy() {
        seated(|seat| {
            while !seat.idle {
                seat.request_came(0);
            }
            seat.be_ordinary();
            let inherited = thread::spawn(|| policy::is_idle(rustix::thread::gettid())).join();
            assert!(!inherited.expect("no panic"));
        });
    }
}
