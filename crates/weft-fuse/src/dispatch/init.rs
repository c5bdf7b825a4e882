//! The handshake.

use super::{Failure, Outcome, Server};
use crate::protocol::flags::init;
use crate::protocol::{Body, CutShort, DATA_BYTES_MAX, MAJOR, MINOR, Reply};

/// Flags to ask for where the kernel offers them: those that let it answer from its own caches
/// (this daemon is the only writer), and the checks and clean-ups that it leaves to the file
/// system.
///
/// Without `FUSE_ASYNC_DIO`: after an asynchronous write around the page cache, the kernel does not
/// drop pages that a reader has filled meanwhile with the old data (xfstests generic/451).
const WANTED: u64 = init::ASYNC_READ
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

/// Requests that may wait in the kernel in the background (read-ahead, write-back).
const BACKGROUND_MAX: u16 = 64;

/// Oldest protocol spoken (Linux 5.4): the first with all fields of the replies here.
const MINOR_MIN: u32 = 31;

/// Version and features that the kernel offers (`struct fuse_init_in`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offer {
    major: u32,
    minor: u32,
    readahead: u32,
    flags: u64,
}

impl Offer {
    /// Reads `struct fuse_init_in`.
    pub(crate) fn parse(mut body: Body<'_>) -> Result<Offer, CutShort> {
        let (major, minor, readahead, low) = (body.u32()?, body.u32()?, body.u32()?, body.u32()?);
        let high = if u64::from(low) & init::INIT_EXT != 0 { body.u32()? } else { 0 };
        Ok(Offer { major, minor, readahead, flags: u64::from(low) | u64::from(high) << 32 })
    }

    /// True if an answer ends the handshake: a kernel of a later major version asks once more.
    pub(crate) fn is_settled(&self) -> bool {
        self.major <= MAJOR
    }

    /// True if requests may come over io_uring.
    pub(crate) fn has_rings(&self) -> bool {
        self.flags & init::OVER_IO_URING != 0
    }
}

/// Transport of the requests to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Via {
    /// Over the device alone.
    Device,
    /// Over io_uring, those without a reply over the device.
    Rings,
}

impl Server {
    /// Answers INIT.
    pub(crate) fn init(&self, offer: &Offer, via: Via, reply: &mut Reply) -> Outcome {
        if offer.major < MAJOR || offer.major == MAJOR && offer.minor < MINOR_MIN {
            return Err(Failure::Errno(libc::EPROTO));
        }
        self.meets(offer.minor);
        reply.u32(MAJOR);
        if offer.major > MAJOR {
            // The kernel asks again, in this version's format.
            reply.u32(MINOR);
            reply.raw(&[0; 56]);
            return Ok(());
        }
        let rings = if via == Via::Rings { init::OVER_IO_URING } else { 0 };
        let writeback = if self.options.writeback { init::WRITEBACK_CACHE } else { 0 };
        let locks = if self.locks.is_some() { LOCKS } else { 0 };
        let agreed = offer.flags & (WANTED | rings | writeback | locks);
        reply.u32(MINOR.min(offer.minor));
        reply.u32(offer.readahead);
        reply.u32(u32::try_from(agreed & u64::from(u32::MAX)).expect("masked"));
        reply.u16(BACKGROUND_MAX);
        reply.u16(BACKGROUND_MAX / 4 * 3);
        reply.u32(u32::try_from(DATA_BYTES_MAX).expect("1 MiB"));
        reply.u32(1); // times to the nanosecond
        reply.u16(u16::try_from(DATA_BYTES_MAX / 4096).expect("256 pages"));
        reply.u16(0);
        reply.u32(u32::try_from(agreed >> 32).expect("shifted"));
        reply.raw(&[0; 28]);
        Ok(())
    }
}
