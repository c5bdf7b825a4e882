//! Watches another process to its end.

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// Another process. It stays this one even if its number is given to a new process later.
pub struct Watched {
    pidfd: OwnedFd,
    pid: u32,
}

/// End of a process.
#[derive(Debug, PartialEq, Eq)]
pub enum Ended {
    /// With exit code 0.
    Well,
    /// With this wait(2) status.
    Badly(i32),
    /// The kernel does not tell (before Linux 6.15).
    Unknown,
}

/// `struct pidfd_info` of linux/pidfd.h, in its first version.
#[repr(C)]
#[derive(Default)]
struct PidfdInfo {
    mask: u64,
    cgroup: u64,
    ids: [u32; 11],
    exit_code: i32,
}

/// `PIDFD_GET_INFO`: `_IOWR(0xFF, 11, struct pidfd_info)`.
const PIDFD_GET_INFO: libc::Ioctl = (3 << 30) | (64 << 16) | (0xFF << 8) | 11;
/// `PIDFD_INFO_EXIT`.
const EXIT: u64 = 1 << 3;
/// Longest wait for the parent of an ended process to take note. An init does so at once, but a
/// container may have none.
const REAPED_NANOSECONDS_MAX: i64 = 100_000_000;

impl Watched {
    /// Watches process `pid`; none if there is none.
    pub fn new(pid: u32) -> Result<Option<Watched>> {
        // SAFETY: the call takes no pointers; the descriptor it gives is owned here.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, libc::c_long::from(pid), 0) };
        if fd < 0 {
            let error = std::io::Error::last_os_error();
            return if error.raw_os_error() == Some(libc::ESRCH) {
                Ok(None)
            } else {
                Err(error).with_context(|| format!("cannot watch process {pid}"))
            };
        }
        // SAFETY: pidfd_open gave this descriptor to this process alone.
        let pidfd = unsafe { OwnedFd::from_raw_fd(i32::try_from(fd).context("not a descriptor")?) };
        Ok(Some(Watched { pidfd, pid }))
    }

    /// Waits until it has ended.
    pub fn await_end(&self) -> Result<Ended> {
        self.poll(PollFlags::IN, None)?;
        match self.exit() {
            // The kernel reports the status once the parent has taken note; a parent may never do
            // so.
            Some(Ended::Unknown) => {
                self.poll(PollFlags::empty(), Some(&Timespec { tv_sec: 0, tv_nsec: REAPED_NANOSECONDS_MAX }))?;
                let reaped = || self.exit().filter(|ended| *ended != Ended::Unknown);
                // The parent may take note between the first question and the second.
                Ok(reaped().or_else(|| self.unreaped()).or_else(reaped).unwrap_or(Ended::Unknown))
            }
            ended => Ok(ended.unwrap_or(Ended::Unknown)),
        }
    }

    /// Waits until it has ended, but no longer than `limit`. True if it has.
    pub fn await_end_within(&self, limit: Duration) -> Result<bool> {
        let limit = Timespec::try_from(limit).context("too long")?;
        self.poll(PollFlags::IN, Some(&limit))
    }

    /// Returns the status if its parent has not taken note yet: its number is still its own then
    /// (proc_pid_stat(5), `state` and `exit_code`).
    fn unreaped(&self) -> Option<Ended> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid)).ok()?;
        let fields: Vec<_> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let status = fields.get(49)?.parse().ok()?;
        match (*fields.first()?, status) {
            ("Z", 0) => Some(Ended::Well),
            ("Z", status) => Some(Ended::Badly(status)),
            _ => None,
        }
    }

    /// Returns the status; none if the kernel does not know the request.
    fn exit(&self) -> Option<Ended> {
        let mut info = PidfdInfo { mask: EXIT, ..PidfdInfo::default() };
        // SAFETY: the kernel writes the 64 bytes the request's number names, which `info` has.
        let result = unsafe { libc::ioctl(self.pidfd.as_raw_fd(), PIDFD_GET_INFO, &raw mut info) };
        match (result, info.mask & EXIT, info.exit_code) {
            (0, EXIT, 0) => Some(Ended::Well),
            (0, EXIT, status) => Some(Ended::Badly(status)),
            (0, ..) => Some(Ended::Unknown),
            _ if std::io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH) => Some(Ended::Unknown),
            _ => None,
        }
    }

    /// Waits for one of `events`, or for the parent to take note of the end. True if one came.
    fn poll(&self, events: PollFlags, timeout: Option<&Timespec>) -> Result<bool> {
        loop {
            match poll(&mut [PollFd::from_borrowed_fd(self.pidfd.as_fd(), events)], timeout) {
                Err(rustix::io::Errno::INTR) => {}
                result => return result.map(|ready| ready > 0).context("cannot wait for the daemon"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn end_of(script: &str) -> Ended {
        let mut child = Command::new("sh").args(["-c", script]).spawn().unwrap();
        let watched = Watched::new(child.id()).unwrap().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| child.wait().unwrap());
            watched.await_end().unwrap()
        })
    }

    #[test]
    fn an_end_is_told_good_from_bad_where_the_kernel_can() {
        assert!(matches!(end_of("exit 0"), Ended::Well | Ended::Unknown));
        assert!(matches!(end_of("exit 3"), Ended::Badly(0x300) | Ended::Unknown));
        assert!(matches!(end_of("kill -9 $$"), Ended::Badly(9) | Ended::Unknown));
    }

    #[test]
    fn an_end_is_told_before_anybody_takes_note_of_it() {
        let mut child = Command::new("sh").args(["-c", "exit 3"]).spawn().unwrap();
        let watched = Watched::new(child.id()).unwrap().unwrap();
        assert_eq!(watched.await_end().unwrap(), Ended::Badly(0x300));
        child.wait().unwrap();
    }

    #[test]
    fn a_process_that_is_gone_cannot_be_watched() {
        let mut child = Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        assert!(Watched::new(child.id()).unwrap().is_none());
    }
}
