//! SIGINT, SIGTERM and SIGHUP during a copy: the copy ends where nothing is half done.

use anyhow::{Context, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

/// Last signal that came, if one did. The second ends the process at once.
pub struct Interrupt(AtomicI32);

/// Time within which signals count as one: timeout(1) sends one to its child and one to the group
/// of that.
const TOGETHER: Duration = Duration::from_millis(500);

impl Interrupt {
    /// Blocks the signals for this thread and those it starts, and calls `does` when one comes.
    /// Must be called before other threads are started.
    pub fn take(does: impl Fn(i32) + Send + 'static) -> Result<Arc<Interrupt>> {
        let set = block();
        let interrupt = Arc::new(Interrupt(AtomicI32::new(0)));
        let own = interrupt.clone();
        let awaits = move || {
            let first = next(&set);
            own.0.store(first, Ordering::Relaxed);
            let came = Instant::now();
            does(first);
            loop {
                let signal = next(&set);
                if came.elapsed() > TOGETHER {
                    std::process::exit(128 + signal);
                }
            }
        };
        std::thread::Builder::new().name("weft-signal".into()).spawn(awaits).context("cannot await signals")?;
        Ok(interrupt)
    }

    /// Returns the signal that came.
    pub fn signal(&self) -> Option<i32> {
        Some(self.0.load(Ordering::Relaxed)).filter(|signal| *signal != 0)
    }
}

/// Blocks the signals that end a copy; a file larger than the process may make becomes an error of
/// the write.
fn block() -> libc::sigset_t {
    // SAFETY: an all-zero sigset_t or sigaction is valid for the calls to fill in, and the pointers
    // are to locals.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
            let mut before: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, std::ptr::null(), &raw mut before);
            // nohup(1) ignores it on purpose.
            if signal != libc::SIGHUP || before.sa_sigaction != libc::SIG_IGN {
                libc::sigaddset(&raw mut set, signal);
            }
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
        set
    }
}

/// Waits for the next signal.
fn next(set: &libc::sigset_t) -> i32 {
    let mut signal = 0;
    // SAFETY: both pointers are valid for the call.
    unsafe { libc::sigwait(std::ptr::from_ref(set), &raw mut signal) };
    signal
}
