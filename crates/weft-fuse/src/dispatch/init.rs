//! The handshake.

use super::{Outcome, Server};
use crate::protocol::flags::init;
use crate::protocol::{Body, DATA_BYTES_MAX, MAJOR, MINOR, Reply};

/// What is asked for where the kernel offers it: everything that lets it answer from its own caches (this
/// daemon is the only writer), and the checks and clean-ups that it leaves to the file system.
const WANTED: u64 = init::ASYNC_READ
    | init::EXPORT_SUPPORT
    | init::BIG_WRITES
    | init::DONT_MASK
    | init::DO_READDIRPLUS
    | init::READDIRPLUS_AUTO
    | init::ASYNC_DIO
    | init::NO_OPEN_SUPPORT
    | init::PARALLEL_DIROPS
    | init::POSIX_ACL
    | init::MAX_PAGES
    | init::CACHE_SYMLINKS
    | init::NO_OPENDIR_SUPPORT
    | init::HANDLE_KILLPRIV_V2
    | init::SETXATTR_EXT
    | init::INIT_EXT;

/// Requests that may wait in the kernel in the background (read-ahead, write-back).
const BACKGROUND_MAX: u16 = 64;

impl Server {
    pub(super) fn init(&self, mut body: Body<'_>, reply: &mut Reply) -> Option<Outcome> {
        let (major, minor) = (body.u32()?, body.u32()?);
        if major != MAJOR || minor < 31 {
            return Some(Err(super::Failure::Errno(libc::EPROTO)));
        }
        let readahead = body.u32()?;
        let low = body.u32()?;
        let high = body.u32().unwrap_or(0);
        let offered = u64::from(low) | u64::from(high) << 32;
        let agreed = offered & WANTED;
        reply.u32(MAJOR);
        reply.u32(MINOR.min(minor));
        reply.u32(readahead);
        reply.u32(u32::try_from(agreed & u64::from(u32::MAX)).expect("masked"));
        reply.u16(BACKGROUND_MAX);
        reply.u16(BACKGROUND_MAX / 4 * 3);
        reply.u32(u32::try_from(DATA_BYTES_MAX).expect("1 MiB"));
        reply.u32(1); // times to the nanosecond
        reply.u16(u16::try_from(DATA_BYTES_MAX / 4096).expect("256 pages"));
        reply.u16(0);
        reply.u32(u32::try_from(agreed >> 32).expect("shifted"));
        reply.raw(&[0; 28]);
        Some(Ok(()))
    }
}
