//! The writer of a file, as far as set-user-id and set-group-id depend on it.

use super::Server;
use crate::protocol::Header;
use weft_vfs::{Ino, Writer};

impl Server {
    /// Returns the caller's relation to the set-user-id and set-group-id bits of `ino`, if it may
    /// not keep them. Requests carry no supplementary groups, so they are looked up where the bits
    /// depend on them. If that fails, the caller counts as a stranger.
    pub(super) fn writer(&self, header: &Header, ino: Ino, kills: bool) -> Writer {
        if !kills {
            return Writer::Privileged;
        }
        match self.vfs.group_that_keeps_set_id(ino) {
            Ok(None) => Writer::Member,
            Ok(Some(group)) if group == header.gid || has_group(header.pid, group) => Writer::Member,
            // A failure here recurs in the operation, which reports it.
            Ok(Some(_)) | Err(_) => Writer::Stranger,
        }
    }
}

/// True if `group` is a supplementary group of thread `tid` (proc_pid_status(5)).
fn has_group(tid: u32, group: u32) -> bool {
    let status = std::fs::read(format!("/proc/{tid}/status")).unwrap_or_default();
    let groups = status.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"Groups:"));
    let is_it = |word: &[u8]| std::str::from_utf8(word).is_ok_and(|word| word.parse() == Ok(group));
    groups.is_some_and(|groups| groups.split(u8::is_ascii_whitespace).any(is_it))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_those_of_a_thread_that_lives() {
        let ours: Vec<u32> = rustix::process::getgroups().expect("groups").iter().map(|gid| gid.as_raw()).collect();
        let tid = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        assert!(ours.iter().all(|group| has_group(tid, *group)));
        assert!(!has_group(tid, 4_000_000_000));
        // No thread has this number.
        assert!(!has_group(0, 0));
    }
}
