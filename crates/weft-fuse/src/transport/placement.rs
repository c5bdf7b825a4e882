//! Where the serving thread runs: on the processor of the program it serves.
//!
//! Waking a thread on another, idle processor takes far longer than a request does, so a thread that serves
//! one program at a time is best on that program's processor. Every now and then it looks where the requester
//! last ran and moves there.

use super::proc_stat;
use crate::session::Placement;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::time::{Duration, Instant};

/// Requests between two looks at the clock.
const REQUESTS: u32 = 32;

/// Shortest time between two looks at the requester.
const PERIOD: Duration = Duration::from_millis(1);

/// Keeps the calling thread where its placement says.
pub(super) struct Follower {
    placement: Placement,
    processor: Option<usize>,
    requests: u32,
    looked: Option<Instant>,
}

impl Follower {
    /// For the calling thread.
    pub(super) fn new(placement: Placement) -> Follower {
        let mut follower = Follower { placement, processor: None, requests: 0, looked: None };
        if let Placement::Processor(processor) = placement {
            follower.move_to(processor);
        }
        follower
    }

    /// Looks, if it is time to, where thread `pid`, which sent a request, runs. The kernel itself is 0.
    pub(super) fn follow(&mut self, pid: u32) {
        self.requests += 1;
        if self.placement != Placement::Follow || (self.requests < REQUESTS && self.looked.is_some()) {
            return;
        }
        self.requests = 0;
        let now = Instant::now();
        if self.looked.is_some_and(|looked| now.duration_since(looked) < PERIOD) {
            return;
        }
        self.looked = Some(now);
        if pid != 0
            && let Some(processor) = last_processor(pid)
            && self.processor != Some(processor)
        {
            self.move_to(processor);
        }
    }

    fn move_to(&mut self, processor: usize) {
        let mut set = CpuSet::new();
        if processor < CpuSet::MAX_CPU {
            set.set(processor);
        }
        // Where it may not go it serves just as rightly.
        if sched_setaffinity(None, &set).is_ok() {
            self.processor = Some(processor);
        }
    }
}

/// The processor a thread last ran on (proc_pid_stat(5), field 39).
fn last_processor(pid: u32) -> Option<usize> {
    proc_stat::of(pid)?.field(39)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_thread_last_ran_on_a_processor_that_exists() {
        let processor = last_processor(std::process::id()).expect("a number");
        assert!(processor < CpuSet::MAX_CPU);
    }
}
