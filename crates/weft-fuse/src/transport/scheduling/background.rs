//! Keeps a thread that works in the background off the processors where requests come fast.
//!
//! A processor that runs only threads of the idle policy counts as idle, so the kernel likes to
//! wake the background there although another really is idle, and the thread that serves gets
//! nowhere.

use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};

/// Looks without fast requests after which the thread may run anywhere again.
const QUIET_TICKS: u32 = 8;

pub(super) struct Background {
    thread: Pid,
    /// Processors allowed if nobody serves, and the last setting made here. If the thread's
    /// processors differ from that setting, another program has set them, and that holds.
    allowed: CpuSet,
    told: CpuSet,
    /// Processors where requests came fast, and looks since.
    busy: CpuSet,
    quiet: u32,
}

impl Background {
    pub(super) fn new(thread: Pid) -> Background {
        let none = CpuSet::new();
        Background { thread, allowed: none, told: none, busy: none, quiet: 0 }
    }

    pub(super) fn is(&self, thread: Pid) -> bool {
        self.thread == thread
    }

    /// Takes in the processors where requests come fast.
    pub(super) fn look(&mut self, busy: CpuSet) {
        if busy == self.busy {
            self.quiet = 0;
            return;
        }
        self.quiet += 1;
        if busy.count() > 0 || self.quiet >= QUIET_TICKS {
            self.busy = busy;
            self.quiet = 0;
            self.keep_off();
        }
    }

    /// Ends the watching of this thread.
    pub(super) fn leave(&mut self) {
        if self.busy.count() > 0 {
            self.busy = CpuSet::new();
            self.keep_off();
        }
        self.quiet = 0;
    }

    /// Moves the thread. It works on any processor, so errors do no harm.
    fn keep_off(&mut self) {
        let Ok(now) = sched_getaffinity(Some(self.thread)) else { return };
        if now != self.told {
            self.allowed = now;
        }
        let told = without(self.allowed, &self.busy);
        if told != now && sched_setaffinity(Some(self.thread), &told).is_ok() {
            self.told = told;
        }
    }
}

/// Returns `allowed` without `busy`, if that leaves any.
fn without(allowed: CpuSet, busy: &CpuSet) -> CpuSet {
    let mut rest = allowed;
    for processor in (0..CpuSet::MAX_CPU).filter(|processor| busy.is_set(*processor)) {
        rest.unset(processor);
    }
    if rest.count() > 0 { rest } else { allowed }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(processors: &[usize]) -> CpuSet {
        let mut set = CpuSet::new();
        processors.iter().for_each(|processor| set.set(*processor));
        set
    }

    #[test]
    fn some_processor_always_stays() {
        assert_eq!(without(set(&[0, 1, 5]), &set(&[1, 7])), set(&[0, 5]));
        assert_eq!(without(set(&[0, 1]), &set(&[0, 1])), set(&[0, 1]));
    }

    #[test]
    fn a_thread_is_kept_off_while_requests_come_fast_and_may_go_anywhere_again() {
        let own = rustix::thread::gettid();
        let allowed = sched_getaffinity(Some(own)).expect("a thread may ask for its own");
        let Some(first) = (0..CpuSet::MAX_CPU).find(|processor| allowed.is_set(*processor)) else { return };
        let mut background = Background::new(own);
        let now = || sched_getaffinity(Some(own)).expect("a thread may ask for its own");
        background.look(set(&[first]));
        assert_eq!(now(), without(allowed, &set(&[first])));
        (1..QUIET_TICKS).for_each(|_| background.look(set(&[])));
        assert_eq!(now(), without(allowed, &set(&[first])));
        background.look(set(&[]));
        assert_eq!(now(), allowed);
        background.look(set(&[first]));
        background.leave();
        assert_eq!(now(), allowed);
    }

    #[test]
    fn what_somebody_else_decided_meanwhile_holds() {
        let own = rustix::thread::gettid();
        let allowed = sched_getaffinity(Some(own)).expect("a thread may ask for its own");
        if allowed.count() < 2 {
            eprintln!("skipped: there is one processor");
            return;
        }
        let all: Vec<_> = (0..CpuSet::MAX_CPU).filter(|processor| allowed.is_set(*processor)).collect();
        let mut background = Background::new(own);
        background.look(set(&all[..1]));
        sched_setaffinity(Some(own), &set(&all[..1])).expect("a thread may move");
        background.leave();
        assert_eq!(sched_getaffinity(Some(own)).ok(), Some(set(&all[..1])));
    }
}
