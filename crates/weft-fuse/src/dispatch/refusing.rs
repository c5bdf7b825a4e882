//! Commands that make a mount refuse changes, and take them again: ioctl(2) on any directory of it,
//! by root.

use super::{Failure, Outcome, Server};
use crate::protocol::Reply;
use weft_vfs::Caller;

const fn command(number: u32) -> u32 {
    (b'W' as u32) << 8 | number
}

/// Commits everything, then refuses every change.
pub const REFUSE_CHANGES: u32 = command(16);
/// Takes changes again; `EROFS` where the mount was made read-only.
pub const TAKE_CHANGES: u32 = command(17);

impl Server {
    /// Serves `command`; none if it is another one.
    pub(super) fn refusing(&self, caller: Caller, command: u32, reply: &mut Reply) -> Option<Outcome> {
        let act = match command {
            REFUSE_CHANGES => weft_vfs::Vfs::refuse_changes,
            TAKE_CHANGES => weft_vfs::Vfs::take_changes,
            _ => return None,
        };
        if caller.uid != 0 {
            return Some(Err(Failure::Errno(libc::EPERM)));
        }
        Some(act(&self.vfs).map_err(Failure::from).map(|()| reply.raw(&[0; 16])))
    }
}
