//! Paths of open files.

use rustix::fd::{AsFd, AsRawFd};

/// Returns a path to the file behind `fd`, which renames do not change: for calls that do not take
/// a descriptor of every kind of file (proc_pid_fd(5)).
pub fn proc_path(fd: impl AsFd) -> String {
    format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd())
}
