//! The scheduling policy of single threads (sched(7)), and whether one wants to run.

use rustix::thread::Pid;
use std::io;
use std::thread;

/// Policies used here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Policy {
    /// `SCHED_OTHER`.
    Ordinary,
    /// `SCHED_IDLE`: runs only if nobody else wants the processor.
    Idle,
}

/// Gives `thread` of this process `policy`. Errors: the thread is gone (`ESRCH`), no permission
/// (`EPERM`).
pub(super) fn set(thread: Pid, policy: Policy) -> io::Result<()> {
    let number = match policy {
        Policy::Ordinary => libc::SCHED_OTHER,
        Policy::Idle => libc::SCHED_IDLE,
    };
    let (thread, priority) = (thread.as_raw_nonzero().get(), 0);
    // SAFETY: the kernel reads `priority`, all that it takes of a `sched_param`, during the call,
    // and nothing else. musl's function of the name only fails.
    let result = unsafe { libc::syscall(libc::SYS_sched_setscheduler, thread, number, &raw const priority) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// True if `thread` has the idle policy. False if it is gone.
pub(super) fn is_idle(thread: Pid) -> bool {
    // SAFETY: no memory is passed.
    let policy = unsafe { libc::syscall(libc::SYS_sched_getscheduler, thread.as_raw_nonzero().get()) };
    policy == libc::c_long::from(libc::SCHED_IDLE)
}

/// True if threads can leave the idle policy again: without `CAP_SYS_NICE` the kernel lets them
/// only where `RLIMIT_NICE` allows their nice value. Tried on a short-lived thread.
pub(super) fn can_return() -> bool {
    let tried = thread::Builder::new().name("weft-policy".into()).spawn(|| {
        let own = rustix::thread::gettid();
        set(own, Policy::Idle).is_ok() && set(own, Policy::Ordinary).is_ok()
    });
    tried.is_ok_and(|thread| thread.join().unwrap_or(false))
}

/// True if `thread` of this process runs or wants to (proc_pid_stat(5), field 3).
pub(super) fn is_runnable(thread: Pid) -> bool {
    let stat = super::super::proc_stat::of_thread(thread);
    stat.is_some_and(|stat| stat.field(3) == Some("R"))
}

/// True if more threads, with the calling one, want to run in the whole system than it has
/// processors (proc_loadavg(5)). False if the kernel does not tell.
pub(super) fn processors_are_busy() -> bool {
    let told = std::fs::read_to_string("/proc/loadavg").ok();
    let running = told.as_deref().and_then(running);
    // SAFETY: no memory is passed.
    let processors = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    running.is_some_and(|running| processors > 0 && running > processors as usize)
}

/// Returns the number of threads that run or want to: the number before the slash.
fn running(loadavg: &str) -> Option<usize> {
    let (before, _) = loadavg.split_once('/')?;
    before.split_ascii_whitespace().next_back()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_running_threads_is_found_in_what_the_kernel_tells() {
        assert_eq!(running("0.20 0.18 0.12 3/80 11206\n"), Some(3));
        assert_eq!(running(""), None);
        let told = std::fs::read_to_string("/proc/loadavg").expect("Linux tells");
        assert!(running(&told).is_some_and(|running| running > 0), "{told}");
    }

    #[test]
    fn a_thread_that_runs_is_runnable() {
        assert!(is_runnable(rustix::thread::gettid()));
    }

    #[test]
    fn a_thread_without_the_idle_policy_has_it_after_it_was_set() {
        let told = thread::spawn(|| {
            let own = rustix::thread::gettid();
            let before = is_idle(own);
            set(own, Policy::Idle).expect("everybody may");
            (before, is_idle(own))
        });
        assert_eq!(told.join().expect("no panic"), (false, true));
    }
}
