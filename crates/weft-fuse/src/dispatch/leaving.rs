//! The end of a mount whose volume another daemon has taken.
//!
//! The kernel answers much from its caches, for as long as it was told that it may, and opens reach
//! nobody. So before the daemon lets go of the device, no request is answered with what it knows
//! any more, and then the kernel forgets names, attributes and content. Whoever asks later is told
//! that nobody is there.

use super::{Failure, Outcome, Server};
use crate::protocol::Opcode;
use std::sync::atomic::Ordering;
use std::time::Duration;
use weft_vfs::Ino;

/// Version of the protocol (7.x) from which on a kernel forgets all names at once when it is told
/// to (Linux 6.16).
const MINOR_EPOCHS: u32 = 44;

/// How long an older one may remember that a name is missing, in a volume that others may take: no
/// longer than any lease.
const MISSING_VALID: Duration = Duration::from_secs(1);

/// What was answered meanwhile by threads that had begun before is forgotten, too.
const ROUNDS: usize = 2;

impl Server {
    /// Takes in the kernel's version of the protocol.
    pub(super) fn meets(&self, minor: u32) {
        self.forgets_names.store(minor >= MINOR_EPOCHS, Ordering::Relaxed);
    }

    /// How long the kernel may remember that a name is missing.
    pub(super) fn missing_valid(&self) -> Duration {
        if self.forgets_names.load(Ordering::Relaxed) || !self.vfs.may_be_taken() {
            return self.options.valid;
        }
        self.options.valid.min(MISSING_VALID)
    }

    /// `ENOTCONN` once the volume is another daemon's, unless it is a request that takes back
    /// what the kernel has.
    pub(super) fn refuse_left(&self, opcode: Opcode) -> Outcome {
        let is_back = matches!(opcode, Opcode::Forget | Opcode::BatchForget | Opcode::Interrupt | Opcode::NotifyReply);
        if self.has_left.load(Ordering::Relaxed) && !is_back { Err(Failure::Errno(libc::ENOTCONN)) } else { Ok(()) }
    }

    /// Answers nothing more, and has the kernel forget what it was told. Returns when it has. Not
    /// for a thread that serves: the kernel waits for requests that are in flight.
    pub(crate) fn leave(&self) {
        self.has_left.store(true, Ordering::SeqCst);
        let Some(notifier) = self.notifier.get() else { return };
        for _ in 0..ROUNDS {
            notifier.names_changed();
            let held = || self.vfs.held().into_iter().chain([Ino::ROOT]);
            // First what nobody has to be waited for.
            held().for_each(|ino| notifier.attributes_changed(ino));
            held().for_each(|ino| {
                notifier.content_changed(ino);
            });
        }
    }
}
