//! The handshake.

use super::{Failure, Outcome, Server};
use crate::protocol::flags::init;
use crate::protocol::{Offer, Reply};
use crate::transport::handler::Via;

/// Flags to ask for where the kernel offers them: those that let it answer from its own caches
/// (this daemon is the only writer), and the checks and clean-ups that it leaves to the file
/// system.
///
/// Without `FUSE_ASYNC_DIO`: after an asynchronous write around the page cache, the kernel does not
/// drop pages that a reader has filled meanwhile with the old data (xfstests generic/451).
pub(crate) const WANTED: u64 = init::ASYNC_READ
    | init::EXPORT_SUPPORT
    | init::BIG_WRITES
    | init::DONT_MASK
    | init::DO_READDIRPLUS
    | init::READDIRPLUS_AUTO
    | init::NO_OPEN_SUPPORT
    | init::PARALLEL_DIROPS
    | init::POSIX_ACL
    | init::MAX_PAGES
    | init::CACHE_SYMLINKS
    | init::NO_OPENDIR_SUPPORT
    | init::HANDLE_KILLPRIV_V2
    | init::SETXATTR_EXT
    | init::INIT_EXT;

/// Flags to add where the volume keeps the locks of programs.
const LOCKS: u64 = init::POSIX_LOCKS | init::FLOCK_LOCKS;

impl Server {
    /// Answers INIT. `EPROTO` if the kernel is too old.
    pub(crate) fn init(&self, offer: &Offer, via: Via, reply: &mut Reply) -> Outcome {
        let minor = offer.minor().ok_or(Failure::Errno(libc::EPROTO))?;
        self.meets(minor);
        let rings = if via == Via::Rings { init::OVER_IO_URING } else { 0 };
        let writeback = if self.options.writeback { init::WRITEBACK_CACHE } else { 0 };
        let locks = if self.locks.is_some() { LOCKS } else { 0 };
        offer.accept(WANTED | rings | writeback | locks, reply);
        Ok(())
    }
}
