//! Signals to a daemon: before it serves SIGTERM and SIGINT end it, then they do what it set.
//!
//! SIGHUP makes a daemon in the background open its log again. In the foreground there is no log:
//! there the signal means that the terminal is gone, and ends the daemon like the others. It does
//! nothing to a daemon that has no terminal, or that was told to outlive it (nohup(1)).

use super::log::Log;
use anyhow::{Context, Result};
use parking_lot::Mutex;
use std::sync::Arc;

/// The signals, awaited by a thread of their own.
pub struct Signals {
    answer: Mutex<Answer>,
    hang_up: Mutex<HangUp>,
}

/// Action of SIGHUP.
pub enum HangUp {
    /// Same as that of the others.
    Ends,
    /// Nothing.
    Nothing,
    /// Opens this log again.
    Reopens(Log),
}

/// Action of the other signals.
enum Answer {
    /// Ends the process: it has nothing to lose yet.
    Exits,
    /// Remembers if one came.
    Waits(bool),
    /// Calls this.
    Does(Box<dyn Fn() + Send>),
}

impl Signals {
    /// Blocks them for this thread and those it starts, and awaits them. Must be called before
    /// other threads are started.
    pub fn take(hang_up: HangUp) -> Result<Arc<Signals>> {
        let set = block();
        let signals = Arc::new(Signals { answer: Mutex::new(Answer::Exits), hang_up: Mutex::new(hang_up) });
        let own = signals.clone();
        let awaits = move || {
            loop {
                own.came(next(&set));
            }
        };
        std::thread::Builder::new().name("weft-signal".into()).spawn(awaits).context("cannot await signals")?;
        Ok(signals)
    }

    /// Keeps signals from ending the process.
    pub fn hold(&self) {
        let mut answer = self.answer.lock();
        if matches!(*answer, Answer::Exits) {
            *answer = Answer::Waits(false);
        }
    }

    /// Sets the action of signals, which runs at once if one came meanwhile.
    pub fn on(&self, does: Box<dyn Fn() + Send>) {
        let before = std::mem::replace(&mut *self.answer.lock(), Answer::Does(does));
        if matches!(before, Answer::Waits(true)) {
            self.came(libc::SIGTERM);
        }
    }

    /// Makes SIGHUP open `log` again from now on.
    pub fn reopen(&self, log: Log) {
        *self.hang_up.lock() = HangUp::Reopens(log);
    }

    fn came(&self, signal: libc::c_int) {
        if signal == libc::SIGHUP {
            match &*self.hang_up.lock() {
                HangUp::Ends => {}
                HangUp::Nothing => return,
                HangUp::Reopens(log) => return log.reopen(),
            }
        }
        match &mut *self.answer.lock() {
            // As a shell reports the end by a signal.
            Answer::Exits => std::process::exit(128 + signal),
            Answer::Waits(came) => *came = true,
            Answer::Does(does) => does(),
        }
    }
}

/// True if the end of a terminal ends this process: it has one, and was not told to outlive it.
pub fn has_terminal() -> bool {
    // SAFETY: an all-zero sigaction is valid for the call to fill in; nothing is changed.
    let is_ignored = unsafe {
        let mut now: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGHUP, std::ptr::null(), &raw mut now) == 0 && now.sa_sigaction == libc::SIG_IGN
    };
    !is_ignored && std::fs::File::open("/dev/tty").is_ok()
}

fn block() -> libc::sigset_t {
    // SAFETY: an all-zero sigset_t is valid for sigemptyset to fill in, and the pointers are to
    // locals.
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

/// Waits for the next signal.
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

    fn signals() -> Signals {
        Signals { answer: Mutex::new(Answer::Exits), hang_up: Mutex::new(HangUp::Ends) }
    }

    #[test]
    fn a_signal_that_came_too_early_does_what_is_said_later() {
        let signals = signals();
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
        let signals = signals();
        signals.hold();
        signals.on(Box::new(|| panic!("no signal came")));
        signals.hold();
        assert!(matches!(*signals.answer.lock(), Answer::Does(_)));
    }

    #[test]
    fn a_hang_up_ends_only_what_has_a_terminal() {
        for (hang_up, ends) in [(HangUp::Ends, 1), (HangUp::Nothing, 0)] {
            let signals = Signals { hang_up: Mutex::new(hang_up), ..signals() };
            signals.hold();
            let count = Arc::new(AtomicU32::new(0));
            let own = count.clone();
            signals.on(Box::new(move || {
                own.fetch_add(1, Ordering::Relaxed);
            }));
            signals.came(libc::SIGHUP);
            assert_eq!(count.load(Ordering::Relaxed), ends);
        }
    }
}
