//! Mounts of a command: all of the machine's, read-only and without devices, but none of Weft's; a
//! `/proc` of its own processes; a `/dev` with the few devices that programs expect; and one
//! private directory of a bounded size, in memory, as `/dev/shm`, `/tmp` and `/var/tmp`. Nothing
//! else can be written to, so what a command writes goes with it. File systems that are mounted
//! later can come into its namespace: [`writing`] keeps it from writing there, too.
//!
//! A [`Plan`] is made before the process begins, which can allocate nothing.

use super::namespaces::Step;
use super::writing;
use rustix::fs::{CWD, Mode, OFlags, mkdir, open, symlink};
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, mount, mount_change, move_mount,
    open_tree, unmount,
};
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::OwnedFd;

/// Devices that a command has, and what else programs look for beside them.
const DEVICES: [&CStr; 5] = [c"/dev/null", c"/dev/zero", c"/dev/full", c"/dev/random", c"/dev/urandom"];
const LINKS: [(&CStr, &CStr); 4] = [
    (c"/proc/self/fd", c"/dev/fd"),
    (c"/proc/self/fd/0", c"/dev/stdin"),
    (c"/proc/self/fd/1", c"/dev/stdout"),
    (c"/proc/self/fd/2", c"/dev/stderr"),
];

/// The private directory, and other names that it has where the machine has such directories.
const PRIVATE: &CStr = c"/dev/shm";
const PRIVATE_TOO: [&CStr; 2] = [c"/tmp", c"/var/tmp"];

/// Files and directories in the private directory: each takes about a KiB of the kernel's memory.
const PRIVATE_FILES_MAX: u64 = 16_384;

/// Mounts to be made.
pub(super) struct Plan {
    /// Directories where volumes are mounted.
    of_weft: Vec<CString>,
    /// Options of the private directory.
    private: CString,
    /// True if it has no user namespace, in which other mounts follow nobody's anyway.
    is_root: bool,
}

impl Plan {
    /// A plan with `private_bytes` for the private directory.
    pub(super) fn new(private_bytes: u64, is_root: bool) -> Plan {
        let files = PRIVATE_FILES_MAX.min(private_bytes >> 10).max(16);
        let private = format!("mode=1777,size={private_bytes},nr_inodes={files}");
        let private = CString::new(private).expect("numbers have no NUL");
        Plan { of_weft: mounts_of_weft(), private, is_root }
    }

    /// Makes the mounts, in a namespace of this process. Makes system calls and nothing else.
    pub(super) fn make(&self) -> Step {
        // What is unmounted elsewhere goes here, too: none is kept from being unmounted. Where
        // nothing but mounts keeps a command from writing, no further ones come.
        let follows = match writing::can_be_confined() {
            true => MountPropagationFlags::DOWNSTREAM,
            false => MountPropagationFlags::PRIVATE,
        };
        let slave = mount_change(c"/", MountPropagationFlags::REC | follows);
        if self.is_root {
            check("mounts of its own", slave)?;
        }
        for mount in &self.of_weft {
            // Some are gone already, or in a namespace that its user may not take them out of.
            let _ = unmount(mount.as_c_str(), UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
        }
        let quiet = MountFlags::NOSUID | MountFlags::NODEV;
        // Where it cannot be, the machine's stays, which tells the same to everybody.
        let _ = mount(c"proc", c"/proc", c"proc", quiet | MountFlags::NOEXEC, None);
        let devices = DEVICES.map(copy);
        let all = libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;
        set_attributes(c"/", libc::AT_RECURSIVE, all)?;
        check("its /dev", mount(c"dev", c"/dev", c"tmpfs", quiet, Some(c"mode=755,size=64k,nr_inodes=32")))?;
        for (path, device) in DEVICES.into_iter().zip(devices) {
            match device {
                Ok(device) => {
                    check("its /dev", open(path, OFlags::CREATE | OFlags::WRONLY, Mode::empty()))?;
                    check("its devices", put(device, path))?;
                }
                // Programs do without what the machine lacks.
                Err(Errno::NOENT) => {}
                Err(error) => return Err(("its devices", error.into())),
            }
        }
        for (target, name) in LINKS {
            check("its /dev", symlink(target, name))?;
        }
        check("its /dev", mkdir(PRIVATE, Mode::from_raw_mode(0o755)))?;
        set_attributes(c"/dev", 0, libc::MOUNT_ATTR_RDONLY)?;
        check("a directory of its own", mount(c"tmp", PRIVATE, c"tmpfs", quiet, Some(self.private.as_c_str())))?;
        for name in PRIVATE_TOO {
            match copy(PRIVATE).and_then(|private| put(private, name)) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(error) => return Err(("a directory of its own", error.into())),
            }
        }
        writing::confine(&[PRIVATE, c"/dev"])
    }
}

/// A mount of what lies at `path`, which is nowhere yet. Daemons are refused mount(2) for this.
fn copy(path: &CStr) -> rustix::io::Result<OwnedFd> {
    open_tree(CWD, path, OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC)
}

/// Brings such a mount to `path`.
fn put(mount: OwnedFd, path: &CStr) -> rustix::io::Result<()> {
    move_mount(mount, c"", CWD, path, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
}

fn check<T>(step: &'static str, result: rustix::io::Result<T>) -> Step {
    result.map(drop).map_err(|error| (step, error.into()))
}

/// Gives the mount at `path`, and with `AT_RECURSIVE` all below it, `attributes` (Linux 5.12).
fn set_attributes(path: &CStr, flags: libc::c_int, attributes: u64) -> Step {
    let wanted = libc::mount_attr { attr_set: attributes, attr_clr: 0, propagation: 0, userns_fd: 0 };
    // SAFETY: the path ends with a NUL; the kernel reads it and the structure during the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            path.as_ptr(),
            flags,
            &raw const wanted,
            size_of::<libc::mount_attr>(),
        )
    };
    if result == 0 { Ok(()) } else { Err(("read-only mounts, by mount_setattr(2)", io::Error::last_os_error())) }
}

/// Reads where volumes are mounted (proc_pid_mountinfo(5)), the outer ones first.
fn mounts_of_weft() -> Vec<CString> {
    let mounts = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    let lines = mounts.split(|byte| *byte == b'\n');
    let at = |line: &[u8]| {
        let is_weft = line.windows(12).any(|words| words == b" - fuse.weft");
        let path = line.split(|byte| *byte == b' ').nth(4).filter(|_| is_weft)?;
        CString::new(unescaped(path)).ok()
    };
    lines.filter_map(at).collect()
}

/// A path as it is: four bytes stand for each that would end a word.
fn unescaped(path: &[u8]) -> Vec<u8> {
    let mut bytes = path.iter().copied();
    let mut plain = Vec::new();
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            plain.push(byte);
            continue;
        }
        let digits = [bytes.next(), bytes.next(), bytes.next()].into_iter().flatten();
        plain.push(digits.fold(0u8, |number, digit| number.wrapping_mul(8).wrapping_add(digit.wrapping_sub(b'0'))));
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_mounts_are_found_whatever_is_in_them() {
        assert_eq!(unescaped(b"/a\\040b\\134c\\011"), b"/a b\\c\t");
        assert_eq!(unescaped(b"/plain"), b"/plain");
    }
}
