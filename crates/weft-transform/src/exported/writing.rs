//! Keeps a process from writing anywhere but below some directories, by Landlock
//! (landlock(7), Linux 5.13): also in file systems that are mounted after it began.
//!
//! A process that is about to become a command uses this, so nothing is allocated.

use super::namespaces::Step;
use rustix::fs::{Mode, OFlags, open};
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;

/// The rights to write to a file, to remove, and to make something of any kind (Linux 5.13).
const WRITE: u64 = (1 << 1) | ((1 << 13) - (1 << 4));
/// The right to move or link something to another directory (Linux 5.19). Without it among the
/// rights of a rule set, nobody has it.
const REFER: u64 = 1 << 13;
/// The right to change a file's length (Linux 6.2).
const TRUNCATE: u64 = 1 << 14;

const VERSION: libc::c_uint = 1;
const RULE_PATH_BENEATH: libc::c_int = 1;

/// `struct landlock_ruleset_attr`, as far as all kernels know it.
#[repr(C)]
struct RuleSet {
    handled_access_fs: u64,
}

/// `struct landlock_path_beneath_attr`.
#[repr(C, packed)]
struct PathBeneath {
    allowed_access: u64,
    parent_fd: i32,
}

/// True if the kernel has Landlock.
pub(super) fn can_be_confined() -> bool {
    version() >= 1
}

fn version() -> libc::c_long {
    // SAFETY: without a structure the call tells a number.
    unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, ptr::null::<u8>(), 0_usize, VERSION) }
}

/// Has this process, and all that it starts, write below these directories alone. Does nothing
/// where the kernel has no Landlock. Makes system calls and nothing else.
pub(super) fn confine(directories: &[&CStr]) -> Step {
    let rights = match version() {
        ..1 => return Ok(()),
        1 => WRITE,
        2 => WRITE | REFER,
        3.. => WRITE | REFER | TRUNCATE,
    };
    let set = RuleSet { handled_access_fs: rights };
    // SAFETY: the kernel reads the structure during the call.
    let rules = unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, &raw const set, size_of::<RuleSet>(), 0 as libc::c_uint)
    };
    let failed = || Err(("where it may write, by Landlock", io::Error::last_os_error()));
    let Some(rules) = i32::try_from(rules).ok().filter(|rules| *rules >= 0) else { return failed() };
    // SAFETY: the kernel gave this descriptor to this process, for this.
    let rules = unsafe { OwnedFd::from_raw_fd(rules) };
    for directory in directories {
        let directory = open(*directory, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
            .map_err(|error| ("where it may write", error.into()))?;
        let beneath = PathBeneath { allowed_access: rights, parent_fd: directory.as_raw_fd() };
        // SAFETY: the kernel reads the structure during the call.
        let added = unsafe {
            let (rules, flags) = (rules.as_raw_fd(), 0 as libc::c_uint);
            libc::syscall(libc::SYS_landlock_add_rule, rules, RULE_PATH_BENEATH, &raw const beneath, flags)
        };
        if added < 0 {
            return failed();
        }
    }
    // SAFETY: no memory is passed.
    match unsafe { libc::syscall(libc::SYS_landlock_restrict_self, rules.as_raw_fd(), 0 as libc::c_uint) } {
        0 => Ok(()),
        _ => failed(),
    }
}
