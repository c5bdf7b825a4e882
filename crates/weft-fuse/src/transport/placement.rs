//! Placement of the serving thread: on the processor of the program it serves.
//!
//! Waking a thread on another, idle processor takes far longer than a request does, so a thread
//! that serves one program at a time is best on that program's processor. Every now and then a
//! helper looks where the requester last ran and moves the serving thread there.
//!
//! The serving thread itself must not look: the kernel answers only when the requester is not in
//! the middle of an execve(2), and one that is may be closing a file there, and so be waiting for
//! this very thread.

use super::proc_stat;
use crate::options::Placement;
use rustix::thread::{CpuSet, Pid, gettid, sched_setaffinity};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

/// Requests between two looks at the clock.
const REQUESTS: u32 = 32;

/// Shortest time between two looks at the requester.
const PERIOD: Duration = Duration::from_millis(1);

/// Keeps the calling thread at its placement.
pub(super) struct Follower {
    /// Asks the helper to look at a requester; none if the thread follows nobody. A helper that is
    /// held up is not waited for.
    helper: Option<SyncSender<u32>>,
    requests: u32,
    looked: Option<Instant>,
}

impl Follower {
    /// Returns a follower for the calling thread.
    pub(super) fn new(placement: Placement) -> Follower {
        let serving = gettid();
        let helper = match placement {
            Placement::Follow => helper(serving),
            Placement::Free => None,
            Placement::Processor(processor) => {
                move_to(serving, processor);
                None
            }
        };
        Follower { helper, requests: 0, looked: None }
    }

    /// Looks, if it is time to, where thread `pid` runs, which sent a request. The kernel itself is
    /// 0.
    pub(super) fn follow(&mut self, pid: u32) {
        let Some(helper) = &self.helper else { return };
        self.requests += 1;
        if self.requests < REQUESTS && self.looked.is_some() {
            return;
        }
        self.requests = 0;
        let now = Instant::now();
        if self.looked.is_some_and(|looked| now.duration_since(looked) < PERIOD) {
            return;
        }
        self.looked = Some(now);
        if pid != 0 {
            // A helper that is still busy with the last is asked again later.
            let _ = helper.try_send(pid);
        }
    }
}

/// Starts a thread that moves `serving` to the processors of the requesters it is asked about. It
/// ends when the sender is gone; nobody waits for that. Only speed depends on it.
fn helper(serving: Pid) -> Option<SyncSender<u32>> {
    let (ask, asked) = sync_channel(1);
    let started = thread::Builder::new().name("weft-follow".into()).spawn(move || lead(serving, &asked));
    started.is_ok().then_some(ask)
}

fn lead(serving: Pid, asked: &Receiver<u32>) {
    let mut at = None;
    while let Ok(pid) = asked.recv() {
        if let Some(processor) = last_processor(pid)
            && at != Some(processor)
            && move_to(serving, processor)
        {
            at = Some(processor);
        }
    }
}

/// Moves `thread` to `processor`. False if it may not go there: it serves as well where it is.
fn move_to(thread: Pid, processor: usize) -> bool {
    let mut set = CpuSet::new();
    if processor < CpuSet::MAX_CPU {
        set.set(processor);
    }
    sched_setaffinity(Some(thread), &set).is_ok()
}

/// Returns the processor a thread last ran on (proc_pid_stat(5), field 39).
fn last_processor(pid: u32) -> Option<usize> {
    proc_stat::of(pid)?.field(39)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_helper_that_is_held_up_is_not_waited_for() {
        let (ask, _never_taken) = sync_channel(1);
        let mut follower = Follower { helper: Some(ask), requests: 0, looked: None };
        let end = Instant::now() + 5 * PERIOD;
        while Instant::now() < end {
            follower.follow(1);
        }
    }

    #[test]
    fn a_thread_is_moved_to_where_the_requester_ran() {
        let serving = gettid();
        let ask = helper(serving).expect("a thread can be started");
        ask.send(std::process::id()).expect("it listens");
        while rustix::thread::sched_getaffinity(Some(serving)).expect("its own").count() > 1 {
            thread::yield_now();
        }
    }

    #[test]
    fn this_thread_last_ran_on_a_processor_that_exists() {
        let processor = last_processor(std::process::id()).expect("a number");
        assert!(processor < CpuSet::MAX_CPU);
    }
}
