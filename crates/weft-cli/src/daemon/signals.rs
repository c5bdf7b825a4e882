//! What SIGTERM, SIGINT and SIGHUP do to a daemon: before it serves they end it, then they do what it said.

use anyhow::{Context, Result};
use parking_lot::Mutex;
use std::sync::Arc;

/// The signals, awaited by a thread of their own.
pub struct Signals(Mutex<Answer>);

/// What is done when one comes.
enum Answer {
    /// The process ends: it has nothing yet that anybody could miss.
    Exits,
    /// It is remembered, with whether one came.
    Waits(bool),
    /// This.
    Does(Box<dyn Fn() + Send>),
}

impl Signals {
    /// Blocks them for this thread and those it starts, and awaits them. Must be called before other threads are started.
    pub fn take() -> Result<Arc<Signals>> {
        let set = block();
        let signals = Arc::new(Signals(Mutex::new(Answer::Exits)));
        let own = signals.clone();
        let awaits = move || {
            loop {
                own.came(next(&set));
            }
        };
        std::thread::Builder::new().name("weft-signal".into()).spawn(awaits).context("cannot await signals")?;
        Ok(signals)
    }

    /// They end the process no more.
    pub fn hold(&self) {
        let mut answer = self.0.lock();
        if matches!(*answer, Answer::Exits) {
            *answer = Answer::Waits(false);
        }
    }

    /// They do this; at once if one came meanwhile.
    pub fn on(&self, does: Box<dyn Fn() + Send>) {
        let before = std::mem::replace(&mut *self.0.lock(), Answer::Does(does));
        if matches!(before, Answer::Waits(true)) {
            self.came(libc::SIGTERM);
        }
    }

    fn came(&self, signal: libc::c_int) {
        match &mut *self.0.lock() {
            // As a shell says that a signal ended it.
            Answer::Exits => std::process::exit(128 + signal),
            Answer::Waits(came) => *came = true,
            Answer::Does(does) => does(),
        }
    }
}

fn block() -> libc::sigset_t {
    // SAFETY: an all-zero sigset_t is valid for sigemptyset to fill in, and the pointers are to locals.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
            libc::sigaddset(&raw mut set, signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
        set
    }
}

/// The next one that comes.
fn next(set: &libc::sigset_t) -> libc::c_int {
    let mut signal = 0;
    // SAFETY: both pointers are valid for the call.
    unsafe { libc::sigwait(std::ptr::from_ref(set), &raw mut signal) };
    signal
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn a_signal_that_came_too_early_does_what_is_said_later() {
        let signals = Signals(Mutex::new(Answer::Exits));
        signals.hold();
        signals.came(libc::SIGTERM);
        let count = Arc::new(AtomicU32::new(0));
        let own = count.clone();
        signals.on(Box::new(move || {
            own.fetch_add(1, Ordering::Relaxed);
        }));
        assert_eq!(count.load(Ordering::Relaxed), 1);
        signals.came(libc::SIGINT);
        assert_eq!(count.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn what_a_signal_does_is_not_done_before_one_comes() {
        let signals = Signals(Mutex::new(Answer::Exits));
        signals.hold();
        signals.on(Box::new(|| panic!("no signal came")));
        signals.hold();
        assert!(matches!(*signals.0.lock(), Answer::Does(_)));
    }
}
