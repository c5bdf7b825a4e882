//! The asker of each request, and links that are closed to it ([`weft_vfs::Reach`]).
//!
//! The kernel has one set of attributes and one page cache for each node, and answers everybody
//! from them. So a closed link has a node of its own, whose number has one bit more ([`CLOSED`]).
//! That node always looks the same, cannot be opened, and is not cached: each path lookup asks
//! again. A user who comes to the link's other node without the right to it gets `ESTALE`; the
//! kernel then looks the name up again. Views have one node, since directories have no pages;
//! the kernel asks for their permission bits each time.
//!
//! Pages that one user may see and another may not are kept out of the page cache. Links that are
//! not for everybody are opened past it, and a read that fills it is answered with what everybody
//! may read. This takes a mount that is told of opens. On a shared mount that is not, links that
//! are not for everybody are closed to all; the first lookup of one has the next mount told. A link
//! that is read past the cache, or written, is used with the rights of its opener, whoever holds
//! the descriptor later.

use super::opens::Opened;
use super::{Failure, Outcome, Server};
use crate::protocol::flags::{READ_LOCKOWNER, WRITE_CACHE};
use crate::protocol::{Body, Header, Opcode, Reply};
use std::sync::atomic::Ordering;
use std::time::Duration;
use weft_vfs::{Asker, Attributes, Caller, Ino, Kind, Reach};

/// Set in the number of a link's node for those to whom it is closed. No inode has it.
const CLOSED: u64 = 1 << 63;

/// The inode of node `number`, and whether it is the one of a closed link.
pub(super) fn of_node(number: u64) -> (Ino, bool) {
    (Ino(number & !CLOSED), number & CLOSED != 0)
}

/// The number of the node that a file with these attributes has.
pub(crate) fn node_of(attributes: &Attributes) -> u64 {
    let is_closed = attributes.reach == Reach::Nobody && attributes.kind == Kind::File;
    attributes.ino.0 | if is_closed { CLOSED } else { 0 }
}

/// Returns the asker of a request.
pub(super) fn asker(header: &Header) -> Asker {
    Asker::thread(header.uid, header.gid, header.pid)
}

impl Server {
    /// True if several users are answered from one page cache, without a request for each open.
    fn shares_pages(&self) -> bool {
        self.is_shared.load(Ordering::Relaxed) && !self.opens
    }

    /// `attributes` as they can be told on this mount.
    pub(super) fn as_told(&self, attributes: Attributes) -> weft_vfs::Result<Attributes> {
        if attributes.reach != Reach::Some || attributes.kind != Kind::File || !self.shares_pages() {
            return Ok(attributes);
        }
        if !self.has_asked_for_opens.swap(true, Ordering::Relaxed) {
            let asked = self.vfs.want_opens();
            let path = self.vfs.path(attributes.ino);
            weft_vfs::say(format_args!(
                "{} leads to what not everybody may read: until the volume is mounted anew such links are closed{}",
                String::from_utf8_lossy(&path),
                if asked.is_ok() { "" } else { ", and then if it is mounted with --opens" }
            ));
        }
        self.vfs.closed_attributes(attributes.ino)
    }

    /// Returns the asker of a read.
    pub(super) fn reader(&self, header: &Header, opened: Opened, flags: u32) -> Asker {
        // Pages go to others, too; mapping what is opened past the cache also asks for pages.
        if flags & READ_LOCKOWNER == 0 && self.is_shared.load(Ordering::Relaxed) {
            return Asker::Anybody;
        }
        self.opener(opened).unwrap_or_else(|| asker(header))
    }

    /// Returns who has opened this, if that is kept.
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

    /// Serves a request about the node of a link that is closed.
    pub(super) fn dispatch_closed(
        &self,
        opcode: Opcode,
        header: &Header,
        (caller, ino): (Caller, Ino),
        body: Body<'_>,
        reply: &mut Reply,
    ) -> Option<Outcome> {
        match opcode {
            Opcode::Forget => self.forget(ino, body, reply),
            Opcode::Getattr => Some(self.closed_attributes(ino).map(|closed| reply.attr_out(&closed, Duration::ZERO))),
            Opcode::Statx => Some(self.closed_attributes(ino).map(|closed| reply.statx_out(&closed, Duration::ZERO))),
            Opcode::Setattr => {
                let outcome = self.setattr(header, ino, body, reply)?;
                Some(outcome.and_then(|()| self.closed_attributes(ino)).map(|closed| {
                    reply.truncate(0);
                    reply.attr_out(&closed, Duration::ZERO);
                }))
            }
            Opcode::Setxattr => self.setxattr(caller, ino, body),
            Opcode::Getxattr => self.getxattr(caller, ino, body, reply),
            Opcode::Listxattr => self.listxattr(caller, ino, body, reply),
            Opcode::Removexattr => self.removexattr(ino, body),
            // It may have been opened before.
            Opcode::Flush => self.flush(header, ino, body),
            Opcode::Release => self.release(ino, body),
            _ => Some(Err(Failure::Errno(libc::EACCES))),
        }
    }

    fn closed_attributes(&self, ino: Ino) -> Result<Attributes, Failure> {
        Ok(self.vfs.closed_attributes(ino)?)
    }
}
