//! INIT: the versions and features of both sides.

use super::flags::init;
use super::{Body, CutShort, DATA_BYTES_MAX, MAJOR, MINOR, Reply};

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

    /// The minor version of the kernel's protocol. None if that is too old to be spoken.
    pub(crate) fn minor(&self) -> Option<u32> {
        let is_spoken = self.major > MAJOR || self.major == MAJOR && self.minor >= MINOR_MIN;
        is_spoken.then_some(self.minor)
    }

    /// Answers with those of the features `wanted` that are offered (`struct fuse_init_out`).
    pub(crate) fn accept(&self, wanted: u64, reply: &mut Reply) {
        reply.u32(MAJOR);
        if self.major > MAJOR {
            // The kernel asks again, in this version's format.
            reply.u32(MINOR);
            reply.raw(&[0; 56]);
            return;
        }
        let agreed = self.flags & wanted;
        reply.u32(MINOR.min(self.minor));
        reply.u32(self.readahead);
        reply.u32(u32::try_from(agreed & u64::from(u32::MAX)).expect("masked"));
        reply.u16(BACKGROUND_MAX);
        reply.u16(BACKGROUND_MAX / 4 * 3);
        reply.u32(u32::try_from(DATA_BYTES_MAX).expect("1 MiB"));
        reply.u32(1); // times to the nanosecond
        reply.u16(u16::try_from(DATA_BYTES_MAX / 4096).expect("256 pages"));
        reply.u16(0);
        reply.u32(u32::try_from(agreed >> 32).expect("shifted"));
        reply.raw(&[0; 28]);
    }
}
