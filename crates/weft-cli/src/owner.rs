//! The user who mounted the volume that root works on.
//!
//! The kernel lets nobody but that user into a FUSE file system, not even root, unless it was
//! mounted with `allow_other`; and its daemon may answer anything. So root asks as that user, and
//! trusts the answer as far as that user could have done the same.

use crate::mounted;
use anyhow::{Context, Result, bail};
use std::path::Path;
use weft_store::user::User;

/// A user who is not root, seen by root.
#[derive(Clone, Copy, Debug)]
pub struct Owner {
    user: u32,
    group: u32,
}

impl Owner {
    /// Returns the user who mounted the volume at `directory`; none if that is root, or this is not
    /// root.
    pub fn of(directory: &Path) -> Option<Owner> {
        if !rustix::process::geteuid().is_root() {
            return None;
        }
        let (_, (user, group)) = mounted::mount_at(&directory.canonicalize().ok()?)?;
        (user != 0).then_some(Owner { user, group })
    }

    /// Does `work` with the rights of that user, in a thread of its own.
    pub fn run<T: Send>(self, work: impl FnOnce() -> T + Send) -> Result<T> {
        let as_owner = || {
            User::new(self.user, self.group).take_thread().context("cannot act as the user who mounted it")?;
            Ok(work())
        };
        std::thread::scope(|scope| match scope.spawn(as_owner).join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    }

    /// Refuses process `pid`, which the daemon claims to be, if it is not that user's.
    pub fn refuse_other(self, pid: u32) -> Result<()> {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let mut users = status.lines().filter_map(|line| line.strip_prefix("Uid:")?.split_whitespace().next());
        match users.next().and_then(|user| user.parse::<u32>().ok()) {
            Some(user) if user != self.user => {
                bail!("its daemon says that it is process {pid}, which is another user's; unmount it by umount(8)")
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_of_another_user_is_no_daemon_of_this_one() {
        let user = rustix::process::getuid().as_raw();
        assert!(Owner { user, group: 0 }.refuse_other(std::process::id()).is_ok());
        assert!(Owner { user: user + 1, group: 0 }.refuse_other(std::process::id()).is_err());
    }

    #[test]
    fn another_thread_keeps_its_rights() {
        if !rustix::process::geteuid().is_root() {
            return eprintln!("SKIPPED another_thread_keeps_its_rights: needs root");
        }
        let owner = Owner { user: 65534, group: 65533 };
        // The files of a thread in /proc are its user's only where it may be looked at.
        let of_thread = || std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let there = owner.run(of_thread).unwrap();
        assert!(there.contains("Uid:\t65534\t65534\t65534\t65534"), "{there}");
        assert!(there.contains("Gid:\t65533\t65533\t65533\t65533"), "{there}");
        assert!(of_thread().contains("Uid:\t0\t0\t0\t0"));
    }
}
