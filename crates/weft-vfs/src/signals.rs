//! Signals that a thread was sent, and whether they end what it waits for (proc_pid_status(5)).

/// Signals that programs get without wanting what they wait for to fail: a child has ended, a timer
/// of a profiler, a window's size, job control.
const HARMLESS: [i32; 10] = [
    libc::SIGCHLD,
    libc::SIGCONT,
    libc::SIGSTOP,
    libc::SIGTSTP,
    libc::SIGTTIN,
    libc::SIGTTOU,
    libc::SIGURG,
    libc::SIGVTALRM,
    libc::SIGPROF,
    libc::SIGWINCH,
];

/// True if `thread` was sent a signal that is to end its wait (proc_pid_status(5)). Also true for a
/// thread without a readable status: it may have ended.
pub fn is_ending(thread: u32) -> bool {
    status(thread).and_then(|status| pending(&status)).is_none_or(|pending| pending & !harmless() != 0)
}

/// True if `thread` was sent a signal that kills it as soon as its wait ends. False for a thread
/// without a readable status: it may be one that others must not look at.
pub fn is_killed(thread: u32) -> bool {
    status(thread).and_then(|status| killing(&status)).is_some_and(|killing| killing != 0)
}

fn status(thread: u32) -> Option<String> {
    std::fs::read_to_string(format!("/proc/{thread}/status")).ok()
}

fn harmless() -> u64 {
    HARMLESS.iter().fold(0, |all, signal| all | 1 << (signal - 1))
}

/// Signals that wait to be delivered, as bits.
fn pending(status: &str) -> Option<u64> {
    Some((set(status, "SigPnd")? | set(status, "ShdPnd")?) & !set(status, "SigBlk")? & !set(status, "SigIgn")?)
}

/// Those of them that nothing catches.
fn killing(status: &str) -> Option<u64> {
    Some(pending(status)? & !set(status, "SigCgt")? & !harmless())
}

/// The set of signals `name`.
fn set(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    u64::from_str_radix(line.strip_prefix(':')?.trim(), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_that_a_program_catches_does_not_kill_it() {
        let status = |pending: i32, caught: i32| {
            let [pending, caught] = [pending, caught].map(|signal| 1_u64 << (signal - 1));
            format!("SigPnd:\t0\nShdPnd:\t{pending:x}\nSigBlk:\t0\nSigIgn:\t0\nSigCgt:\t{caught:x}\n")
        };
        assert_eq!(killing(&status(libc::SIGTERM, libc::SIGINT)), Some(1 << (libc::SIGTERM - 1)));
        assert_eq!(killing(&status(libc::SIGINT, libc::SIGINT)), Some(0));
        assert_eq!(killing(&status(libc::SIGCHLD, libc::SIGINT)), Some(0));
        assert_eq!(killing("Name:\tx\n"), None);
        assert!(!is_killed(u32::MAX));
    }

    #[test]
    fn signals_that_programs_get_all_the_time_end_nothing() {
        let status = |pending: u64, shared: u64| {
            format!(
                "Name:\tx\nSigPnd:\t{pending:016x}\nShdPnd:\t{shared:016x}\nSigBlk:\t{:016x}\nSigIgn:\t{:016x}\n",
                2,
                1 << 12
            )
        };
        assert_eq!(pending(&status(1 << 8, 1 << 12)), Some(1 << 8));
        assert_eq!(pending(&status(2, 1 << 16)), Some(1 << 16));
        assert_eq!(pending("Name:\tx\n"), None);
        assert!(!is_ending(rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned()));
        assert!(is_ending(u32::MAX));
    }
}
