//! Requests that open and close files. They come only if links need them or the volume keeps locks.

use super::closed::{Door, Node, asker};
use super::{Failure, Outcome, Server};
use crate::protocol::arguments::{Flush, Fsync, Open, Release};
use crate::protocol::flags::{
    FOPEN_DIRECT_IO, FOPEN_KEEP_CACHE, FOPEN_NOFLUSH, READ_LOCKOWNER, RELEASE_FLOCK_UNLOCK, WRITE_CACHE,
};
use crate::protocol::{Body, Header, Reply};
use std::sync::atomic::Ordering;
use weft_links::{Opening, WithLinks};
use weft_vfs::locks::{LockKind, LockRange};
use weft_vfs::{Asker, Ino};

/// The kernel's handle of an open file: a unique number with flags of how it was opened. 0 if opens
/// are not reported.
#[derive(Clone, Copy)]
pub(super) struct Opened(pub(super) u64);

impl Opened {
    /// The file is written as a whole.
    const DRAFT: u64 = 1;
    /// Reads and writes bypass the page cache.
    const DIRECT: u64 = 2;
    /// Reads return available data at once.
    const OPEN: u64 = 4;
    /// The opener is recorded, and its rights count.
    const OPENER: u64 = 8;
    /// Unit of the numbers: they are multiples of this.
    const UNIT: u64 = 16;

    fn direct(is_open: bool) -> u64 {
        if is_open { Opened::DIRECT | Opened::OPEN } else { Opened::DIRECT }
    }

    /// True if a read returns available data at once, so that fewer bytes than asked for do not
    /// mean the end.
    pub(super) fn is_open(self) -> bool {
        self.0 & Opened::OPEN != 0
    }

    pub(super) fn is_draft(self) -> bool {
        self.0 & Opened::DRAFT != 0
    }

    pub(super) fn is_direct(self) -> bool {
        self.0 & Opened::DIRECT != 0
    }

    /// True if its opener is recorded.
    pub(super) fn has_opener(self) -> bool {
        self.0 & Opened::OPENER != 0
    }

    /// True if its open was reported.
    pub(super) fn is_told(self) -> bool {
        self.0 >= Opened::UNIT
    }
}

/// Returns `opening` past the page cache, for a node whose changes the kernel is not told of.
fn past_cache(opening: Opening) -> Opening {
    match opening {
        Opening::Plain => Opening::Direct { is_open: false },
        Opening::Draft { is_open, .. } => Opening::Draft { is_direct: true, is_open },
        Opening::Direct { .. } => opening,
    }
}

impl Server {
    /// Returns the asker of a read.
    pub(super) fn reader(&self, header: &Header, opened: Opened, flags: u32) -> Asker {
        // Pages go to others, too; mapping what is opened past the cache also asks for pages.
        if flags & READ_LOCKOWNER == 0 && self.is_shared() {
            return Asker::Anybody;
        }
        self.opener(opened).unwrap_or_else(|| asker(header))
    }

    /// Returns the opener, if it is recorded.
    pub(super) fn opener(&self, opened: Opened) -> Option<Asker> {
        if opened.has_opener() { self.openers.lock().get(&opened.0).cloned() } else { None }
    }

    /// Returns the asker of a write, a flush or an fsync.
    pub(super) fn write_asker(&self, header: &Header, opened: Opened, flags: u32) -> Asker {
        if let Some(opener) = self.opener(opened) {
            return opener;
        }
        // The writer of a mapped page is unknown.
        if flags & WRITE_CACHE != 0 { Asker::Anybody } else { asker(header) }
    }

    /// True if the kernel is to report opens.
    fn wants_opens(&self) -> bool {
        self.opens || self.locks.is_some()
    }

    pub(super) fn open(&self, header: &Header, node: Node, body: Body<'_>, reply: &mut Reply) -> Outcome {
        let ino = node.ino;
        if self.wants_opens() && weft_vfs::is_past(ino) {
            return self.open_past(node, body, reply);
        }
        if !self.wants_opens() {
            // The kernel then keeps what it needs itself, and does not ask again.
            return Err(Failure::Errno(libc::ENOSYS));
        }
        let writes = Open::parse(body)?.flags.cast_signed() & libc::O_ACCMODE != libc::O_RDONLY;
        let (seen, opening) = self.opening(ino, writes)?;
        let opening = if node.door == Door::Everybody { opening } else { past_cache(opening) };
        // The last close is reported, not each process's, where nothing follows from those.
        let noflush = if self.locks.is_some() { 0 } else { FOPEN_NOFLUSH };
        let (how, flags) = match opening {
            Opening::Plain => (0, FOPEN_KEEP_CACHE | noflush),
            Opening::Direct { is_open } => (Opened::direct(is_open), FOPEN_DIRECT_IO | noflush),
            Opening::Draft { is_direct: false, .. } => (Opened::DRAFT, FOPEN_KEEP_CACHE),
            Opening::Draft { is_direct: true, is_open } => (Opened::DRAFT | Opened::direct(is_open), FOPEN_DIRECT_IO),
        };
        let how =
            if how != 0 || writes && self.vfs.is_opaque(seen).unwrap_or(false) { how | Opened::OPENER } else { how };
        let number = self.opened.fetch_add(1, Ordering::Relaxed) * Opened::UNIT;
        if matches!(opening, Opening::Draft { .. }) {
            self.drafts.lock().insert(number | how, seen);
        }
        if Opened(how).has_opener() {
            self.openers.lock().insert(number | how, asker(header).lasting());
        }
        reply.u64(number | how);
        reply.u32(flags);
        reply.u32(0);
        Ok(())
    }

    /// Tells the volume what the kernel keeps on this mount. It shows to all what one has stored to
    /// a mapping of a file of the past, until the volume refuses to write it: so nobody is to open
    /// one for writing where others can use the mount. Opens that are reported are refused; if they
    /// are not, the permissions have to do. With `--writeback`, lengths are kept, too.
    pub(crate) fn tell_what_is_kept(&self) {
        if self.is_shared() && !self.wants_opens() {
            self.vfs.hide_write_in_past();
        }
        if self.options.writeback {
            self.vfs.client_keeps_lengths();
        }
    }

    /// Opens a file of the past. That it is read past the cache where a link is not for everybody
    /// keeps its pages from others.
    fn open_past(&self, node: Node, body: Body<'_>, reply: &mut Reply) -> Outcome {
        if Open::parse(body)?.flags.cast_signed() & libc::O_ACCMODE != libc::O_RDONLY {
            return Err(Failure::Errno(libc::EROFS));
        }
        let is_plain = node.door == Door::Everybody && !self.vfs.is_opaque(node.ino)?;
        reply.u64(self.opened.fetch_add(1, Ordering::Relaxed) * Opened::UNIT);
        reply.u32(FOPEN_NOFLUSH | if is_plain { FOPEN_KEEP_CACHE } else { FOPEN_DIRECT_IO });
        reply.u32(0);
        Ok(())
    }

    /// Returns the file that `ino` is seen as, and the kind of open.
    fn opening(&self, ino: Ino, writes: bool) -> weft_vfs::Result<(Ino, Opening)> {
        loop {
            let seen = self.vfs.seen(ino, None);
            let opening = if self.opens { self.vfs.links()?.opened(seen, writes)? } else { Opening::Plain };
            if !matches!(opening, Opening::Draft { .. }) || self.vfs.seen(ino, None) == seen {
                return Ok((seen, opening));
            }
            // Something was pushed or popped meanwhile; nothing was written.
            self.vfs.links()?.closed(seen)?;
        }
    }

    /// Notes that a process has closed the file once: it holds no ranges of it any more (POSIX
    /// close()).
    pub(super) fn flush(&self, header: &Header, ino: Ino, body: Body<'_>) -> Outcome {
        if !self.wants_opens() {
            return Err(Failure::Errno(libc::ENOSYS));
        }
        let Flush { handle, lock_owner } = Flush::parse(body)?;
        let opened = Opened(handle);
        if let Some(locks) = &self.locks {
            let owner = locks.owner(lock_owner);
            // Giving up all takes no room.
            let _ = self.vfs.locks().unlock(ino, &owner, LockKind::Range, LockRange::ALL);
        }
        let _asking = self.write_asker(header, opened, 0).asks();
        if let Some(draft) = self.draft(opened) {
            self.vfs.links()?.flush_written(draft)?;
        }
        Ok(())
    }

    /// Notes that the file was closed for the last time.
    pub(super) fn release(&self, ino: Ino, body: Body<'_>) -> Outcome {
        let Release { handle, release_flags, lock_owner } = Release::parse(body)?;
        let opened = Opened(handle);
        if let Some(locks) = &self.locks
            && release_flags & RELEASE_FLOCK_UNLOCK != 0
        {
            let owner = locks.owner(lock_owner);
            let _ = self.vfs.locks().unlock(ino, &owner, LockKind::File, LockRange::ALL);
        }
        // The processes that closed it may have no rights to do so any more.
        let _asking = self.opener(opened).unwrap_or_default().asks();
        if let Some(draft) = self.draft(opened) {
            self.vfs.links()?.closed(draft)?;
        }
        self.drafts.lock().remove(&opened.0);
        if opened.has_opener() {
            self.openers.lock().remove(&opened.0);
        }
        if self.vfs.has_substitutes() {
            self.vfs.links()?.pop_all(ino, opened.0);
        }
        Ok(())
    }

    pub(super) fn fsync(&self, header: &Header, body: Body<'_>) -> Outcome {
        let opened = Opened(Fsync::parse(body)?.handle);
        let _asking = self.write_asker(header, opened, 0).asks();
        self.stored(opened)?;
        Ok(self.vfs.sync_inode(Ino(header.nodeid))?)
    }

    pub(super) fn fsyncdir(&self, header: &Header) -> Outcome {
        let _asking = asker(header).asks();
        Ok(self.vfs.sync_inode(Ino(header.nodeid))?)
    }

    /// Stores what was written to the open file.
    fn stored(&self, opened: Opened) -> Outcome {
        self.draft(opened).map_or(Ok(()), |draft| Ok(self.vfs.links()?.flush(draft)?))
    }

    /// Returns the link that was opened to be written as a whole, if `opened` is such an open.
    fn draft(&self, opened: Opened) -> Option<Ino> {
        opened.is_draft().then(|| self.drafts.lock().get(&opened.0).copied()).flatten()
    }

    /// Returns the file that a program reads or writes as `ino`. Unless it `is_direct`, the page
    /// cache asks.
    pub(super) fn seen(&self, ino: Ino, opened: Opened, is_direct: bool) -> Ino {
        self.vfs.seen(ino, (is_direct && opened.is_told()).then_some(opened.0))
    }

    /// Returns the offset of a write at `offset` of `seen`, or at its end if it `appends`: the
    /// kernel may not know where a draft ends.
    pub(super) fn place(&self, seen: Ino, opened: Opened, offset: u64, appends: bool) -> Result<u64, Failure> {
        if !opened.is_draft() || !appends {
            return Ok(offset);
        }
        Ok(self.vfs.links()?.end_of_draft(seen)?.unwrap_or(offset))
    }
}
