//! Requests about names.

use super::{Failure, Outcome, Server, links};
use crate::protocol::arguments::{Link, Mkdir, Mknod, Named, Rename, Symlink, Tmpfile};
use crate::protocol::flags::FOPEN_KEEP_CACHE;
use crate::protocol::{Body, Reply};
use weft_vfs::{Attributes, Caller, ErrorKind, Holds, Ino, Kind, MakeNode, RenameMode};

impl Server {
    fn reply_entry(&self, caller: Caller, result: weft_vfs::Result<Attributes>, reply: &mut Reply) -> Outcome {
        // The operation is done: nothing may fail here.
        let attributes = self.vfs.seen_roughly(result?);
        let node = self.tell_node(caller.uid, &attributes);
        let is_computed = attributes.computed.is_some() && attributes.kind == Kind::File;
        if is_computed && !weft_vfs::is_virtual(attributes.ino) {
            // The kernel ignores the attributes in a reply about a file that it knows if it was
            // notified, since it asked, that they changed. With a changed length it would wait for
            // reads of the file, with the directory locked.
            self.attributes_changed(Ino(node));
        }
        reply.entry_out(node, &attributes, self.valid(&attributes));
        Ok(())
    }

    pub(super) fn lookup(&self, caller: Caller, parent: Ino, body: Body<'_>, reply: &mut Reply) -> Outcome {
        let Named { name } = Named::parse(body)?;
        let result = match name {
            // Asked for by kernel NFS exports.
            b"." => self.vfs.attributes(parent).inspect(|_| self.vfs.hold(parent)),
            b".." => self.vfs.parent(caller, parent),
            // The kernel lets nobody change the directory meanwhile.
            name => self.vfs.lookup_at_once(caller, parent, name),
        };
        match result {
            // The kernel remembers that there is nothing.
            Err(error) if error.kind() == ErrorKind::NotFound => {
                reply.no_entry(self.missing_valid_in(parent, name));
                Ok(())
            }
            Ok(attributes) => {
                self.settled(attributes).and_then(|attributes| self.reply_entry(caller, Ok(attributes), reply))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Waits until the kernel has dropped stale data of a link that was looked up, since the
    /// program may use the kernel's caches next. Releases the link if that fails.
    fn settled(&self, attributes: Attributes) -> Result<Attributes, Failure> {
        if attributes.computed.is_some() {
            if attributes.kind == Kind::File && self.options.writeback {
                self.vfs.release(attributes.ino, 1);
                return Err(links::WRITEBACK);
            }
            let settled = self.links.settle(&self.vfs, attributes.ino).and_then(|()| self.as_told(attributes));
            return Ok(settled.inspect_err(|_| self.vfs.release(attributes.ino, 1))?);
        }
        Ok(attributes)
    }

    pub(super) fn mknod(&self, caller: Caller, parent: Ino, body: Body<'_>, reply: &mut Reply) -> Outcome {
        let Mknod { mode, rdev, umask, name } = Mknod::parse(body)?;
        let Some(kind) = Kind::from_mode(mode) else { return Err(Failure::Errno(libc::EINVAL)) };
        let node = MakeNode { kind, permissions: mode & 0o7777, umask, rdev };
        let made = self.vfs.make(caller, parent, name, node);
        // The kernel found no such name a moment ago. It makes a file for open(2), too, which is to
        // open one that came meanwhile: told that what it knows is stale, it looks again.
        let came_meanwhile = kind == Kind::File
            && made.as_ref().is_err_and(|error| error.kind() == ErrorKind::Exists)
            && self.vfs.lookup_at_once(Caller { holds: Holds::None, ..caller }, parent, name).is_ok();
        if came_meanwhile {
            return Err(Failure::Errno(libc::ESTALE));
        }
        self.reply_entry(caller, made, reply)
    }

    pub(super) fn mkdir(&self, caller: Caller, parent: Ino, body: Body<'_>, reply: &mut Reply) -> Outcome {
        let Mkdir { mode, umask, name } = Mkdir::parse(body)?;
        let node = MakeNode { kind: Kind::Directory, permissions: mode & 0o7777, umask, rdev: 0 };
        self.reply_entry(caller, self.vfs.make(caller, parent, name, node), reply)
    }

    pub(super) fn tmpfile(&self, caller: Caller, parent: Ino, body: Body<'_>, reply: &mut Reply) -> Outcome {
        let Tmpfile { mode, umask } = Tmpfile::parse(body)?;
        let node = MakeNode { kind: Kind::File, permissions: mode & 0o7777, umask, rdev: 0 };
        let outcome = self.reply_entry(caller, self.vfs.make_unnamed(caller, parent, node), reply);
        reply.u64(0);
        reply.u32(FOPEN_KEEP_CACHE);
        reply.u32(0);
        outcome
    }

    pub(super) fn symlink(&self, caller: Caller, parent: Ino, body: Body<'_>, reply: &mut Reply) -> Outcome {
        let Symlink { name, target } = Symlink::parse(body)?;
        self.reply_entry(caller, self.vfs.make_symlink(caller, parent, name, target), reply)
    }

    pub(super) fn link(&self, caller: Caller, parent: Ino, body: Body<'_>, reply: &mut Reply) -> Outcome {
        let Link { node, name } = Link::parse(body)?;
        let Some(node) = self.node(node) else { return Err(Failure::Errno(libc::ESTALE)) };
        if weft_vfs::is_past(node.ino) {
            return Err(Failure::Errno(libc::EXDEV));
        }
        let linked = self.vfs.link(caller, node.ino, parent, name);
        let told = linked.map(|attributes| self.as_told(attributes).unwrap_or(attributes));
        self.reply_entry(caller, told, reply)
    }

    pub(super) fn unlink(&self, parent: Ino, body: Body<'_>) -> Outcome {
        let Named { name } = Named::parse(body)?;
        Ok(self.vfs.unlink(parent, name)?)
    }

    pub(super) fn rmdir(&self, parent: Ino, body: Body<'_>) -> Outcome {
        let Named { name } = Named::parse(body)?;
        Ok(self.vfs.remove_directory(parent, name)?)
    }

    pub(super) fn rename(&self, parent: Ino, body: Body<'_>) -> Outcome {
        let Rename { to, old, new, .. } = Rename::parse(body)?;
        self.refuse_target_in_past(to)?;
        Ok(self.vfs.rename((parent, old), (Ino(to), new), RenameMode::Replace)?)
    }

    fn refuse_target_in_past(&self, directory: u64) -> Outcome {
        if weft_vfs::is_past(Ino(directory)) { Err(Failure::Errno(libc::EROFS)) } else { Ok(()) }
    }

    pub(super) fn rename2(&self, caller: Caller, parent: Ino, body: Body<'_>) -> Outcome {
        let Rename { to, flags, old, new } = Rename::parse_with_flags(body)?;
        self.refuse_target_in_past(to)?;
        let to = Ino(to);
        let mode = match flags & !libc::RENAME_WHITEOUT {
            0 => RenameMode::Replace,
            libc::RENAME_NOREPLACE => RenameMode::NoReplace,
            libc::RENAME_EXCHANGE => RenameMode::Exchange,
            _ => return Err(Failure::Errno(libc::EINVAL)),
        };
        let (from, to) = ((parent, old), (to, new));
        let renamed = if flags & libc::RENAME_WHITEOUT == 0 {
            self.vfs.rename(from, to, mode)
        } else {
            // The kernel looks up again what its old name names.
            self.vfs.rename_leaving_whiteout(Caller { holds: Holds::None, ..caller }, from, to, mode)
        };
        Ok(renamed?)
    }
}
