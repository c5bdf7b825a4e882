//! The asker of each request, and links that are closed to it ([`weft_vfs::Reach`]).
//!
//! The kernel has one set of attributes and one page cache for each node, and answers all users
//! from them. So a link has several nodes: one while everybody may know of it; one for each user to
//! whom it is open otherwise ([`super::personal::PersonalNodes`]); and one for all to whom it is
//! closed, whose number has one bit more ([`CLOSED`]). That one always looks the same and cannot be
//! opened. The latter two are not cached: each path lookup asks again. A user who comes to a node
//! that is not for that user gets `ESTALE`; the kernel then looks the name up again. A descriptor
//! that was passed on shows its holder the attributes if both the holder and the node's user may
//! know them.
//!
//! Views have one node, since a directory that is in use keeps it (getcwd(), mounts). If a view is
//! not for everybody, the kernel caches nothing that follows from its content: it asks for the
//! permission bits each time, and the volume is asked about each name and each listing.
//!
//! Pages that one user may see and another may not are kept out of the page cache. Links that are
//! not for everybody are opened past it, and a read that fills it gets what everybody may read.
//! This takes a mount that reports opens. On a shared mount that does not, links that are not for
//! everybody are closed to all; the first lookup of one makes the next mount report opens. A link
//! that is read past the cache, or written, is used with the rights of its opener, whatever user
//! holds the descriptor later.

use super::personal::is_personal;
use super::{Failure, Outcome, Server};
use crate::protocol::{Body, Header, Opcode, Reply, Valid};
use std::sync::atomic::Ordering;
use std::time::Duration;
use weft_links::MADE_AS;
use weft_vfs::opaque::Detail;
use weft_vfs::{Asker, Attributes, Caller, Ino, Kind, Reach};

/// Set in the number of a link's node for those to whom it is closed. No inode has it.
const CLOSED: u64 = 1 << 63;

/// A file as the kernel knows it.
#[derive(Clone, Copy)]
pub(super) struct Node {
    pub(super) ino: Ino,
    pub(super) door: Door,
}

/// Users who may use a node of a link.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Door {
    Everybody,
    User(u32),
    /// Users to whom it is closed.
    Closed,
}

/// Returns the asker of a request.
pub(super) fn asker(header: &Header) -> Asker {
    Asker::thread(header.uid, header.gid, header.pid)
}

impl Server {
    /// Returns the node that has this number; none if the kernel has been made to forget it.
    pub(super) fn node(&self, number: u64) -> Option<Node> {
        if is_personal(number) {
            let (ino, user) = self.personal.get(number)?;
            return Some(Node { ino, door: Door::User(user) });
        }
        let door = if number & CLOSED == 0 { Door::Everybody } else { Door::Closed };
        Some(Node { ino: Ino(number & !CLOSED), door })
    }

    /// Notes that the kernel has forgotten `times` lookups of node `number`.
    pub(super) fn forgotten(&self, number: u64, times: u64) {
        let Some(node) = self.node(number) else { return };
        if is_personal(number) {
            self.personal.forget(number, times);
        }
        self.vfs.release(node.ino, times);
    }

    /// Returns the number of the node that `user` finds, who sees `attributes`, and counts the
    /// lookup.
    pub(super) fn tell_node(&self, user: u32, attributes: &Attributes) -> u64 {
        let ino = attributes.ino;
        match attributes.reach {
            Reach::Nobody if attributes.kind == Kind::File => ino.0 | CLOSED,
            Reach::Some if attributes.kind == Kind::File && self.is_shared() => self.personal.tell(ino, user),
            _ => ino.0,
        }
    }

    /// Replaces `seen`, the attributes that `user` sees of the file behind `node`, by those the
    /// kernel may cache there. None if the node is not for that user. Fails with `WouldBlock` and
    /// others.
    pub(super) fn told_at(&self, node: Node, user: u32, seen: Attributes) -> weft_vfs::Result<Option<Attributes>> {
        if seen.computed.is_none() {
            return Ok(Some(seen));
        }
        let attributes = self.as_told(seen)?;
        if attributes.kind != Kind::File || !self.is_shared() && attributes.reach != Reach::Nobody {
            return Ok(Some(attributes));
        }
        let is_for = match (node.door, attributes.reach) {
            (Door::Everybody | Door::User(_), Reach::Everybody) => true,
            (Door::User(of), Reach::Some) => of == user || self.is_open_to(of, node.ino)?,
            _ => false,
        };
        Ok(is_for.then_some(attributes))
    }

    /// Returns the time for which the kernel may cache `attributes` at `node`.
    pub(super) fn valid_at(&self, node: Node, attributes: &Attributes) -> Duration {
        match node.door {
            Door::Everybody => self.valid(attributes).attributes,
            // Nobody tells of changes there.
            Door::User(_) | Door::Closed => Duration::ZERO,
        }
    }

    /// Returns the time for which the kernel may cache `attributes`, and the name that led to their
    /// node.
    pub(super) fn valid(&self, attributes: &Attributes) -> Valid {
        if weft_vfs::is_past(attributes.ino) {
            return self.valid_of_past(attributes);
        }
        self.links.valid(&self.vfs, attributes, self.options.valid)
    }

    /// True if link `ino` is open to `user` without any further groups.
    fn is_open_to(&self, user: u32, ino: Ino) -> weft_vfs::Result<bool> {
        let _asking = Asker::thread(user, u32::MAX, 0).asks();
        Ok(self.vfs.attributes(ino)?.reach != Reach::Nobody)
    }

    /// True if several users are answered from what the kernel keeps.
    pub(super) fn is_shared(&self) -> bool {
        self.is_shared.load(Ordering::Relaxed)
    }

    /// Returns `attributes` as this mount may report them.
    pub(super) fn as_told(&self, attributes: Attributes) -> weft_vfs::Result<Attributes> {
        if attributes.reach != Reach::Some || !self.is_shared() {
            return Ok(attributes);
        }
        if self.opens {
            let is_view = attributes.kind != Kind::File;
            return if is_view { self.vfs.attributes_in(attributes.ino, Detail::Guarded) } else { Ok(attributes) };
        }
        let path = || self.vfs.path(attributes.ino);
        // Under the name that it is made by, nobody would know it.
        let is_known = |path: &Vec<u8>| !path.windows(MADE_AS.len()).any(|part| part == MADE_AS.as_bytes());
        if !self.has_asked_for_opens.load(Ordering::Relaxed)
            && let Some(path) = Some(path()).filter(is_known)
            && !self.has_asked_for_opens.swap(true, Ordering::Relaxed)
        {
            let asked = self.vfs.want_opens();
            tracing::warn!(
                "{} leads to what not everybody may read: until the volume is mounted anew such links are closed{}",
                String::from_utf8_lossy(&path),
                if asked.is_ok() { "" } else { ", and then if it is mounted with --opens" }
            );
        }
        self.vfs.attributes_in(attributes.ino, Detail::Closed)
    }

    /// Serves a request about the node of a link that is closed.
    pub(super) fn dispatch_closed(
        &self,
        opcode: Opcode,
        header: &Header,
        (caller, node): (Caller, Node),
        body: Body<'_>,
        reply: &mut Reply,
    ) -> Outcome {
        let ino = node.ino;
        match opcode {
            Opcode::Getattr => self.closed_attributes(ino).map(|closed| reply.attr_out(&closed, Duration::ZERO)),
            Opcode::Statx => self.closed_attributes(ino).map(|closed| reply.statx_out(&closed, Duration::ZERO)),
            Opcode::Setattr => {
                self.setattr(header, node, body, reply)?;
                let closed = self.closed_attributes(ino)?;
                reply.truncate(0);
                reply.attr_out(&closed, Duration::ZERO);
                Ok(())
            }
            Opcode::Setxattr => self.setxattr(caller, ino, body),
            Opcode::Getxattr => self.getxattr(caller, ino, body, reply),
            Opcode::Listxattr => self.listxattr(caller, ino, body, reply),
            Opcode::Removexattr => self.removexattr(ino, body),
            // It may have been opened before.
            Opcode::Flush => self.flush(header, ino, body),
            Opcode::Release => self.release(ino, body),
            _ => Err(Failure::Errno(libc::EACCES)),
        }
    }

    fn closed_attributes(&self, ino: Ino) -> Result<Attributes, Failure> {
        Ok(self.vfs.attributes_in(ino, Detail::Closed)?)
    }
}
