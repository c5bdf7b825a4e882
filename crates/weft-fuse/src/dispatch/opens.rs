//! Requests about files being opened and closed, which come only if one of these wants them: links that say so, or locks that the volume keeps.

use super::{Failure, Outcome, Server};
use crate::protocol::flags::{FOPEN_DIRECT_IO, FOPEN_KEEP_CACHE, FOPEN_NOFLUSH, RELEASE_FLOCK_UNLOCK};
use crate::protocol::{Body, Reply};
use weft_vfs::locks::{LockKind, LockRange};
use weft_vfs::{Ino, Opening};

/// The number by which the kernel names what was opened, when that is to be written as a whole; else it is 0.
const DRAFT: u64 = 1;

impl Server {
    /// Whether the kernel is to tell of opens.
    fn wants_opens(&self) -> bool {
        self.opens || self.locks.is_some()
    }

    pub(super) fn open(&self, ino: Ino, mut body: Body<'_>, reply: &mut Reply) -> Option<Outcome> {
        if !self.wants_opens() {
            // The kernel then keeps what it needs itself, and does not ask again.
            return Some(Err(Failure::Errno(libc::ENOSYS)));
        }
        let writes = body.u32()?.cast_signed() & libc::O_ACCMODE != libc::O_RDONLY;
        let opening = if self.opens { self.vfs.opened(ino, writes) } else { Ok(Opening::Plain) };
        let opening = match opening {
            Ok(opening) => opening,
            Err(error) => return Some(Err(error.into())),
        };
        // Closing one is told once, not by each process, where nothing follows from that.
        let noflush = if self.locks.is_some() { 0 } else { FOPEN_NOFLUSH };
        let (number, flags) = match opening {
            Opening::Plain => (0, FOPEN_KEEP_CACHE | noflush),
            Opening::Unmeasured => (0, FOPEN_DIRECT_IO | noflush),
            Opening::Draft { is_measured: true } => (DRAFT, FOPEN_KEEP_CACHE),
            Opening::Draft { is_measured: false } => (DRAFT, FOPEN_DIRECT_IO),
        };
        reply.u64(number);
        reply.u32(flags);
        reply.u32(0);
        Some(Ok(()))
    }

    /// A process has closed the file once: it holds no ranges of it any more (POSIX close()).
    pub(super) fn flush(&self, ino: Ino, mut body: Body<'_>) -> Option<Outcome> {
        if !self.wants_opens() {
            return Some(Err(Failure::Errno(libc::ENOSYS)));
        }
        let number = body.u64()?;
        body.skip(8)?;
        if let Some(locks) = &self.locks {
            let owner = locks.owner(body.u64()?);
            self.vfs.locks().unlock(ino, &owner, LockKind::Range, LockRange::ALL);
        }
        Some(self.stored(ino, number))
    }

    /// The file was closed for the last time.
    pub(super) fn release(&self, ino: Ino, mut body: Body<'_>) -> Option<Outcome> {
        let number = body.u64()?;
        body.skip(4)?;
        if let Some(locks) = &self.locks
            && body.u32()? & RELEASE_FLOCK_UNLOCK != 0
        {
            let owner = locks.owner(body.u64()?);
            self.vfs.locks().unlock(ino, &owner, LockKind::File, LockRange::ALL);
        }
        Some(if number == DRAFT { self.vfs.closed(ino).map_err(Failure::from) } else { Ok(()) })
    }

    pub(super) fn fsync(&self, ino: Ino, mut body: Body<'_>) -> Option<Outcome> {
        let number = body.u64()?;
        Some(self.stored(ino, number).and_then(|()| self.vfs.sync().map_err(Failure::from)))
    }

    /// What was written to what was opened as `number` is where it belongs.
    fn stored(&self, ino: Ino, number: u64) -> Outcome {
        if number == DRAFT { self.vfs.flush(ino).map_err(Failure::from) } else { Ok(()) }
    }

    /// Where bytes go that a program writes at `offset` of what was opened as `number`, or `appends`: the kernel may not know where a draft ends.
    pub(super) fn place(&self, ino: Ino, number: u64, offset: u64, appends: bool) -> Result<u64, Failure> {
        if number != DRAFT || !appends {
            return Ok(offset);
        }
        Ok(self.vfs.end_of_draft(ino)?.unwrap_or(offset))
    }
}
