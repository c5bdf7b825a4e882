//! Requests about inodes as such.

use super::closed::Node;
use super::{Outcome, Server};
use crate::protocol::arguments::{Forget, Getattr, Setattr};
use crate::protocol::flags::{GETATTR_FH, fattr};
use crate::protocol::{Body, Header, Reply};
use weft_links::looking;
use weft_vfs::opaque::Detail;
use weft_vfs::{Attributes, ErrorKind, Ino, SetAttributes, SetTime, Timestamp, Writer};

impl Server {
    pub(super) fn forget(&self, number: u64, body: Body<'_>, reply: &mut Reply) -> Outcome {
        reply.cancel();
        self.forgotten(number, Forget::parse(body)?.count);
        Ok(())
    }

    pub(super) fn batch_forget(&self, body: Body<'_>, reply: &mut Reply) -> Outcome {
        reply.cancel();
        Forget::parse_batch(body)?.for_each(|(number, forget)| self.forgotten(number, forget.count));
        Ok(())
    }

    pub(super) fn getattr(&self, header: &Header, node: Node, body: Body<'_>, reply: &mut Reply) -> Outcome {
        // A program that reads the file waits for its length.
        let reads = Getattr::parse(body)?.flags & GETATTR_FH != 0;
        let attributes = if reads { self.look_at(header, node) } else { self.looked_at(header, node) }?;
        reply.attr_out(&attributes, self.valid_at(node, &attributes));
        Ok(())
    }

    /// Answers STATX. Kernels since Linux 6.6 send it for the time of creation alone; they ask for
    /// the rest by GETATTR.
    pub(super) fn statx(&self, header: &Header, node: Node, reply: &mut Reply) -> Outcome {
        let attributes = self.looked_at(header, node)?;
        reply.statx_out(&attributes, self.valid_at(node, &attributes));
        Ok(())
    }

    /// Returns the attributes of `node` to a user who looks at it and does no more.
    fn looked_at(&self, header: &Header, node: Node) -> weft_vfs::Result<Attributes> {
        looking(&self.vfs, header.uid, node.ino, || self.look_at(header, node))
    }

    fn look_at(&self, header: &Header, node: Node) -> weft_vfs::Result<Attributes> {
        let mut attributes = self.vfs.attributes(node.ino)?;
        if attributes.computed.is_some() {
            self.links.settle(&self.vfs, node.ino)?;
            attributes = self.vfs.attributes(node.ino)?;
        }
        // The kernel looks the name up again, and finds the node that is for this user.
        let attributes = self.told_at(node, header.uid, attributes)?.ok_or(ErrorKind::Stale)?;
        self.vfs.seen_attributes(attributes)
    }

    pub(super) fn setattr(&self, header: &Header, node: Node, body: Body<'_>, reply: &mut Reply) -> Outcome {
        let ino = node.ino;
        let Setattr { valid, size, atime, mtime, mode, uid, gid } = Setattr::parse(body)?;
        let has = |bit: u32| valid & bit != 0;
        let time = |set: u32, now: u32, (seconds, nanos): (u64, u32)| match (has(now), has(set)) {
            (true, _) => Some(SetTime::Now),
            (_, true) => Some(SetTime::To(Timestamp::from_parts(seconds.cast_signed(), nanos))),
            _ => None,
        };
        let seen = self.vfs.seen(ino, None);
        let mut changes = SetAttributes {
            permissions: has(fattr::MODE).then_some(mode & 0o7777),
            uid: has(fattr::UID).then_some(uid),
            gid: has(fattr::GID).then_some(gid),
            size: has(fattr::SIZE).then_some(size),
            atime: time(fattr::ATIME, fattr::ATIME_NOW, atime),
            mtime: time(fattr::MTIME, fattr::MTIME_NOW, mtime),
            writer: Writer::Privileged,
        };
        if changes.size.is_some() {
            changes.writer = self.writer(header, seen, has(fattr::KILL_SUIDGID));
        } else if changes.uid.is_some() || changes.gid.is_some() {
            changes.writer = self.writer(header, seen, header.uid != 0);
        }
        if changes == SetAttributes::default() {
            // chown() to nobody else, or the kernel's word before a write that privileges go, which
            // the write says itself.
            let attributes = self.vfs.attributes(seen)?;
            if header.uid != 0 && header.uid != attributes.uid {
                return self.reply_set(header, node, self.vfs.seen_roughly(attributes), reply);
            }
            changes.uid = Some(attributes.uid);
            changes.writer = self.writer(header, seen, header.uid != 0);
        }
        let set = if seen == ino { self.vfs.set_attributes(ino, changes) } else { self.set_seen(ino, seen, changes) };
        self.reply_set(header, node, set?, reply)
    }

    /// Sets the size of the file that `ino` is seen as, and the rest of `ino` itself.
    fn set_seen(&self, ino: Ino, seen: Ino, changes: SetAttributes) -> weft_vfs::Result<Attributes> {
        let (size, writer) = (changes.size, changes.writer);
        if size.is_some() {
            self.vfs.set_attributes(seen, SetAttributes { size, writer, ..SetAttributes::default() })?;
        }
        let rest = SetAttributes { size: None, writer: Writer::Privileged, ..changes };
        let set = if rest == SetAttributes::default() {
            self.vfs.attributes(ino)?
        } else {
            self.vfs.set_attributes(ino, rest)?
        };
        Ok(self.vfs.seen_roughly(set))
    }

    /// Answers with attributes that were set.
    fn reply_set(&self, header: &Header, node: Node, attributes: Attributes, reply: &mut Reply) -> Outcome {
        let attributes = match self.told_at(node, header.uid, attributes) {
            Ok(Some(told)) => told,
            // They are set, whether they may be reported or not.
            Ok(None) | Err(_) => self.vfs.attributes_in(node.ino, Detail::Closed)?,
        };
        reply.attr_out(&attributes, self.valid_at(node, &attributes));
        Ok(())
    }

    pub(super) fn readlink(&self, ino: Ino, reply: &mut Reply) -> Outcome {
        reply.raw(&self.vfs.read_symlink(ino)?);
        Ok(())
    }

    pub(super) fn statfs(&self, reply: &mut Reply) -> Outcome {
        let stat = self.vfs.statfs()?;
        let unit = 4096;
        reply.u64(stat.bytes_total / unit);
        reply.u64(stat.bytes_free / unit);
        reply.u64(stat.bytes_available / unit);
        reply.u64(stat.inodes_total);
        reply.u64(stat.inodes_free);
        for value in [4096, 255, 4096, 0] {
            reply.u32(value);
        }
        reply.raw(&[0; 24]);
        Ok(())
    }
}
