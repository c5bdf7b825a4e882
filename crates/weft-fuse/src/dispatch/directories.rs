//! Requests that list directories. Offsets: 1 after `.`, 2 after `..`, then the entries' cookies.

use super::{Failure, Outcome, Server};
use crate::protocol::{Body, DATA_BYTES_MAX, Reply};
use std::time::Duration;
use weft_vfs::{Caller, Cookie, DirEntry, Ino};

/// Bytes of the smallest entry: its fixed part and a name of up to 8 bytes.
const DIRENT_BYTES_MIN: usize = 32;

/// Bytes of `struct fuse_entry_out`.
const ENTRY_BYTES: usize = 128;

const DIRECTORY_MODE: u32 = libc::S_IFDIR;

impl Server {
    pub(super) fn readdir(&self, ino: Ino, mut body: Body<'_>, reply: &mut Reply) -> Option<Outcome> {
        body.skip(8)?;
        let (offset, size) = (body.u64()?, (body.u32()? as usize).min(DATA_BYTES_MAX));
        Some(self.list(ino, offset, size, reply).map_err(Failure::from))
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
        caller: Caller,
        ino: Ino,
        mut body: Body<'_>,
        reply: &mut Reply,
    ) -> Option<Outcome> {
        body.skip(8)?;
        let (offset, size) = (body.u64()?, (body.u32()? as usize).min(DATA_BYTES_MAX));
        Some(self.list_with_attributes(caller, ino, offset, size, reply).map_err(Failure::from))
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
            let before = reply.len();
            if !full {
                match attributes.map(|attributes| self.vfs.seen_roughly(attributes)) {
                    Some(attributes) => {
                        let attributes = &attributes;
                        // Links are among those without.
                        reply.entry_out(attributes.ino.0, attributes, self.valid(attributes));
                    }
                    // The kernel asks when somebody wants to know.
                    None => reply.no_entry(Duration::ZERO),
                }
                push(reply, &entry);
                full = reply.len() > size;
            }
            if full {
                // The kernel does not hear of this one, so it does not hold it.
                reply.truncate(before.min(reply.len()));
                if attributes.is_some() {
                    self.vfs.release(entry.ino, 1);
                }
            }
        }
        Ok(())
    }

    /// `.` and `..`, at the start of a listing.
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
