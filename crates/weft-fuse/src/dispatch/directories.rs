//! Requests that list directories. Offsets: 1 after `.`, 2 after `..`, then the entries' cookies.

use super::closed::asker;
use super::{Failure, Outcome, Server};
use crate::protocol::arguments::Read;
use crate::protocol::flags::{FOPEN_CACHE_DIR, FOPEN_KEEP_CACHE};
use crate::protocol::{Body, DATA_BYTES_MAX, Header, Reply};
use std::time::Duration;
use weft_links::is_for_everybody;
use weft_vfs::{Asker, Attributes, Caller, Cookie, DirEntry, Ino, Lasting, is_past};

/// Bytes of the smallest entry: its fixed part and a name of up to 8 bytes.
const DIRENT_BYTES_MIN: usize = 32;

/// Bytes of `struct fuse_entry_out`.
const ENTRY_BYTES: usize = 128;

const DIRECTORY_MODE: u32 = libc::S_IFDIR;

/// Handle of an open directory whose listing the kernel caches.
const SHARED: u64 = 0;
/// Handle of an open directory whose listing the kernel asks for each time.
const PRIVATE: u64 = 1;

impl Server {
    /// Answers OPENDIR. The kernel does not cache the listing of a view that is not for everybody,
    /// since that would also go to users who opened it before. A mount that does not report opens
    /// does not report these either, and lists no such views.
    pub(super) fn opendir(&self, ino: Ino, reply: &mut Reply) -> Outcome {
        if !self.opens || !self.is_shared() {
            return Err(Failure::Errno(libc::ENOSYS));
        }
        let is_private = if is_past(ino) {
            self.vfs.lasting(ino) == Lasting::Once || self.vfs.is_opaque(ino)?
        } else {
            !is_for_everybody(&self.vfs, ino)
        };
        let kept = (SHARED, FOPEN_KEEP_CACHE | FOPEN_CACHE_DIR);
        let (number, flags) = if is_private { (PRIVATE, 0) } else { kept };
        reply.u64(number);
        reply.u32(flags);
        reply.u32(0);
        Ok(())
    }

    /// Returns the asker of a listing: anybody if the kernel keeps it for all.
    fn lister(&self, header: &Header, number: u64) -> Asker {
        if number != PRIVATE && self.is_shared() { Asker::Anybody } else { asker(header) }
    }

    pub(super) fn readdir(&self, header: &Header, ino: Ino, body: Body<'_>, reply: &mut Reply) -> Outcome {
        let Read { handle, offset, size, .. } = Read::parse(body)?;
        let (_asking, size) = (self.lister(header, handle).asks(), (size as usize).min(DATA_BYTES_MAX));
        Ok(self.list(ino, offset, size, reply)?)
    }

    fn list(&self, ino: Ino, offset: u64, size: usize, reply: &mut Reply) -> weft_vfs::Result<()> {
        self.dots(ino, offset, reply, |_| {})?;
        let limit = size.saturating_sub(reply.len()) / DIRENT_BYTES_MIN;
        for entry in self.vfs.read_directory(ino, start(offset), limit.max(1))? {
            let before = reply.len();
            push(reply, &entry);
            if reply.len() > size {
                reply.truncate(before);
                break;
            }
        }
        Ok(())
    }

    pub(super) fn readdirplus(
        &self,
        header: &Header,
        caller: Caller,
        ino: Ino,
        body: Body<'_>,
        reply: &mut Reply,
    ) -> Outcome {
        let Read { handle, offset, size, .. } = Read::parse(body)?;
        let (_asking, size) = (self.lister(header, handle).asks(), (size as usize).min(DATA_BYTES_MAX));
        Ok(self.list_with_attributes(caller, ino, offset, size, reply)?)
    }

    fn list_with_attributes(
        &self,
        caller: Caller,
        ino: Ino,
        offset: u64,
        size: usize,
        reply: &mut Reply,
    ) -> weft_vfs::Result<()> {
        self.dots(ino, offset, reply, |reply| reply.no_entry(Duration::ZERO))?;
        let limit = size.saturating_sub(reply.len()) / (ENTRY_BYTES + DIRENT_BYTES_MIN);
        let listed = self.vfs.read_directory_attributes(caller, ino, start(offset), limit.max(1))?;
        let mut full = false;
        for (entry, attributes) in listed {
            // Links are among those without, and so are files seen through a pushed network: their
            // length may not be known, and the kernel would wait for reads of them.
            let is_told = |attributes: &Attributes| self.vfs.seen(attributes.ino, None) == attributes.ino;
            let told = attributes.filter(|attributes| !full && is_told(attributes));
            let before = reply.len();
            if !full {
                match &told {
                    Some(attributes) => reply.entry_out(attributes.ino.0, attributes, self.valid(attributes)),
                    // The kernel asks when a program wants to know.
                    None => reply.no_entry(Duration::ZERO),
                }
                push(reply, &entry);
                full = reply.len() > size;
                if full {
                    reply.truncate(before);
                }
            }
            if attributes.is_some() && (full || told.is_none()) {
                // The kernel does not hear of this one, so it does not hold it.
                self.vfs.release(entry.ino, 1);
            }
        }
        Ok(())
    }

    /// Lists `.` and `..`, at the start of a listing.
    fn dots(&self, ino: Ino, offset: u64, reply: &mut Reply, before: impl Fn(&mut Reply)) -> weft_vfs::Result<()> {
        if offset < 1 {
            before(reply);
            reply.dirent(ino.0, 1, DIRECTORY_MODE, b".");
        }
        if offset < 2 {
            let caller = Caller { holds: weft_vfs::Holds::None, ..Caller::ROOT };
            let parent = self.vfs.parent(caller, ino).map_or(ino, |parent| parent.ino);
            before(reply);
            reply.dirent(parent.0, 2, DIRECTORY_MODE, b"..");
        }
        Ok(())
    }
}

fn start(offset: u64) -> Cookie {
    if offset <= 2 { Cookie(0) } else { Cookie(offset) }
}

fn push(reply: &mut Reply, entry: &DirEntry) {
    reply.dirent(entry.ino.0, entry.cookie.0, entry.kind.mode_bits(), entry.name.as_bytes());
}
