//! Requests about extended attributes. The root has one more, which tells the mount's counters.

use super::{Failure, Outcome, Server, links};
use crate::protocol::flags::SETXATTR_ACL_KILL_SGID;
use crate::protocol::{Body, Reply};
use crate::session::Inviter;
use std::sync::atomic::Ordering;
use weft_vfs::{CONTROL, COUNTS, Caller, Ino, LENT, LINK, LinkOrder, NETWORK, NONCE, SetXattr};

/// The attribute of the root that tells counters as JSON.
const STATS: &[u8] = b"user.weft.stats";

/// The attribute of the root that has all that networks compute end when it is read, by the
/// super-user or whose the daemon is: something that may be waited for keeps a mount from going.
pub const STOP_COMPUTING: &str = "user.weft.stop-computing";

impl Server {
    pub(super) fn setxattr(&self, caller: Caller, ino: Ino, mut body: Body<'_>) -> Option<Outcome> {
        let (size, flags, more) = (body.u32()?, body.u32()?, body.u32()?);
        body.skip(4)?;
        let name = body.string()?;
        let value = body.bytes(size as usize)?;
        let mode = match flags.cast_signed() {
            0 => SetXattr::Any,
            libc::XATTR_CREATE => SetXattr::Create,
            libc::XATTR_REPLACE => SetXattr::Replace,
            _ => return Some(Err(Failure::Errno(libc::EINVAL))),
        };
        if name.starts_with(CONTROL) {
            return Some(self.control(caller, ino, name, value));
        }
        let kill = more & SETXATTR_ACL_KILL_SGID != 0;
        Some(self.vfs.set_xattr(ino, name, value, mode, kill).map_err(Failure::from))
    }

    /// Does what the attribute `name` of `directory` orders, if `value` begins with the caller's
    /// nonce: one that comes from an archive is of no effect ([`weft_vfs::Nonces`]).
    fn control(&self, caller: Caller, directory: Ino, name: &[u8], value: &[u8]) -> Outcome {
        let nonces = self.nonces.as_ref().ok_or(Failure::Errno(libc::EIO))?;
        let value = nonces.verified(caller.uid, directory, value)?;
        if name == LINK {
            return self.make_link(caller, directory, value);
        }
        let network = name.strip_prefix(NETWORK).filter(|_| directory == Ino::ROOT);
        let network = network.ok_or(Failure::Errno(libc::EOPNOTSUPP))?;
        let text = |bytes| std::str::from_utf8(bytes).map_err(|_| Failure::Errno(libc::EINVAL));
        // No network is nothing at all.
        let defined = Some(text(value)?).filter(|text| !text.is_empty());
        Ok(self.vfs.define_network(text(network)?, defined)?)
    }

    /// Makes a transformation link in directory `parent`. The kernel has checked that the caller
    /// may set attributes there, not that it may add names. It does not know of the link, so whoever
    /// asks for one takes a name that nobody has looked for, and renames it.
    fn make_link(&self, caller: Caller, parent: Ino, value: &[u8]) -> Outcome {
        if self.options.writeback {
            return Err(links::WRITEBACK);
        }
        let order = LinkOrder::decode(value).ok_or(Failure::Errno(libc::EINVAL))?;
        let caller = Caller { holds: weft_vfs::Holds::None, ..caller };
        self.vfs.make_link(caller, parent, &order.name, order.permissions, &order.definition)?;
        Ok(())
    }

    pub(super) fn getxattr(&self, caller: Caller, ino: Ino, mut body: Body<'_>, reply: &mut Reply) -> Option<Outcome> {
        let size = body.u32()?;
        body.skip(4)?;
        let name = body.string()?;
        if name == NONCE {
            let nonces = self.nonces.as_ref().ok_or(Failure::Errno(libc::EIO));
            return Some(nonces.and_then(|nonces| sized(reply, size, &nonces.of(caller.uid, ino))));
        }
        if ino == Ino::ROOT && name == STOP_COMPUTING.as_bytes() {
            if caller.uid != 0 && caller.uid != rustix::process::geteuid().as_raw() {
                return Some(Err(Failure::Errno(libc::EPERM)));
            }
            self.vfs.stop_computing(false);
            return Some(sized(reply, size, b"stopped"));
        }
        if ino == Ino::ROOT && name == STATS {
            return Some(sized(reply, size, self.stats(caller.uid).to_string().as_bytes()));
        }
        if name == LENT {
            let Some(Inviter(invite)) = &self.options.inviter else { return Some(Err(Failure::Errno(libc::ENODATA))) };
            if !self.vfs.is_for_everybody(self.vfs.seen(ino, None)) {
                // Memory that programs share is for all of them.
                return Some(Err(Failure::Errno(libc::ENODATA)));
            }
            // Whoever asks may read the file, as the kernel has seen to (xattr(7)).
            let invitation = invite(caller.uid, ino).map_err(|_| Failure::Errno(libc::EAGAIN));
            return Some(invitation.and_then(|invitation| sized(reply, size, &invitation)));
        }
        if name.starts_with(COUNTS) && (self.options.writeback || self.vfs.seen(ino, None) != ino) {
            // The kernel may hold what is to be counted, or readers see something else.
            return Some(Err(Failure::Errno(libc::EOPNOTSUPP)));
        }
        Some(self.vfs.xattr(ino, name).map_err(Failure::from).and_then(|value| sized(reply, size, &value)))
    }

    pub(super) fn listxattr(&self, caller: Caller, ino: Ino, mut body: Body<'_>, reply: &mut Reply) -> Option<Outcome> {
        let size = body.u32()?;
        // Capabilities are not told; the kernel lets nobody without them read such a value (xattr(7)).
        let hidden: &[u8] = if caller.uid == 0 { b"" } else { b"trusted." };
        Some(self.vfs.xattr_names(ino).map_err(Failure::from).and_then(|names| {
            let mut list = Vec::new();
            for name in names {
                if !hidden.is_empty() && name.as_bytes().starts_with(hidden) {
                    continue;
                }
                list.extend_from_slice(name.as_bytes());
                list.push(0);
            }
            sized(reply, size, &list)
        }))
    }

    pub(super) fn removexattr(&self, ino: Ino, mut body: Body<'_>) -> Option<Outcome> {
        let name = body.string()?;
        Some(self.vfs.remove_xattr(ino, name).map_err(Failure::from))
    }

    /// Counters of the volume and of this mount as JSON, as far as they are for `user`.
    pub(crate) fn stats(&self, user: u32) -> serde_json::Value {
        let mut volume = self.vfs.stats();
        if user != 0 && user != rustix::process::geteuid().as_raw() {
            volume.hide_others(user);
        }
        let requests: serde_json::Map<String, serde_json::Value> =
            self.counts().map(|(name, count)| (name.to_owned(), count.into())).collect();
        serde_json::json!({
            "pid": std::process::id(),
            "transport": if self.over_rings.load(Ordering::Relaxed) { "io_uring" } else { "device" },
            "placement": self.options.placement.to_string(),
            "volume": volume,
            "bytes_given": self.bytes_given.load(Ordering::Relaxed),
            "requests": requests,
        })
    }
}

/// The value, or its size where the caller asks for that (`size` 0).
fn sized(reply: &mut Reply, size: u32, value: &[u8]) -> Outcome {
    let len = u32::try_from(value.len()).map_err(|_| Failure::Errno(libc::E2BIG))?;
    match size {
        0 => {
            reply.u32(len);
            reply.u32(0);
        }
        size if size < len => return Err(Failure::Errno(libc::ERANGE)),
        _ => reply.raw(value),
    }
    Ok(())
}
