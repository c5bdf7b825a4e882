//! The end of a mount whose volume another daemon has taken.
//!
//! The kernel answers much from its caches, for as long as it may, and opens reach nobody. So
//! before the daemon lets go of the device, it stops answering from its own state, and then the
//! kernel drops names, attributes and content. Later requests fail because no daemon is there.

use super::{Failure, Outcome, Server};
use crate::protocol::Opcode;
use std::sync::atomic::Ordering;
use std::time::Duration;
use weft_vfs::Ino;

/// First version of the protocol (7.x) in which a kernel can forget all names at once (Linux 6.16).
const MINOR_EPOCHS: u32 = 44;

/// Time for which an older kernel may remember that a name is missing, in a volume that other
/// daemons may take: no longer than any lease.
const MISSING_VALID: Duration = Duration::from_secs(1);

/// Rounds of invalidation. The second drops answers of threads that were already serving in the
/// first.
const ROUNDS: usize = 2;

impl Server {
    /// Takes in the kernel's version of the protocol.
    pub(super) fn meets(&self, minor: u32) {
        self.forgets_names.store(minor >= MINOR_EPOCHS, Ordering::Relaxed);
    }

    /// Returns the time for which the kernel may remember that a name is missing.
    pub(super) fn missing_valid(&self) -> Duration {
        if self.forgets_names.load(Ordering::Relaxed) || !self.vfs.may_be_taken() {
            return self.options.valid;
        }
        self.options.valid.min(MISSING_VALID)
    }

    /// Returns `ENOTCONN` once another daemon has taken the volume, except for requests that take
    /// back what the kernel has.
    pub(super) fn refuse_left(&self, opcode: Opcode) -> Outcome {
        let is_back = matches!(opcode, Opcode::Forget | Opcode::BatchForget | Opcode::Interrupt | Opcode::NotifyReply);
        if self.has_left.load(Ordering::Relaxed) && !is_back { Err(Failure::Errno(libc::ENOTCONN)) } else { Ok(()) }
    }

    /// Answers nothing more, and makes the kernel drop everything it has cached. Returns when it
    /// has. Not for a thread that serves: the kernel waits for requests in flight.
    pub(crate) fn leave(&self) {
        self.has_left.store(true, Ordering::SeqCst);
        let Some(notifier) = self.notifier.get() else { return };
        for _ in 0..ROUNDS {
            notifier.names_changed();
            let held = || self.vfs.held().into_iter().chain([Ino::ROOT]);
            // First the notices that wait for nobody.
            held().for_each(|ino| notifier.attributes_changed(ino));
            held().for_each(|ino| {
                notifier.content_changed(ino);
            });
        }
    }
}
