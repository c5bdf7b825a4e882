//! Requests about extended attributes. The root has one more, with the mount's counters.

use super::{Failure, Outcome, Server, links};
use crate::options::Inviter;
use crate::protocol::arguments::{Getxattr, Listxattr, Named, Setxattr};
use crate::protocol::flags::SETXATTR_ACL_KILL_SGID;
use crate::protocol::{Body, Reply};
use std::sync::atomic::Ordering;
use weft_attributes::{Attribute, is_reserved};
use weft_links::{LinkOrder, WithLinks, is_for_everybody};
use weft_vfs::blocking::Wait;
use weft_vfs::{Caller, Ino, Report, SetXattr};

/// True if `user` is the super-user or the daemon's.
fn is_in_charge(user: u32) -> bool {
    user == 0 || user == rustix::process::geteuid().as_raw()
}

/// Refuses all others.
fn refuse_others(caller: Caller) -> Outcome {
    if is_in_charge(caller.uid) { Ok(()) } else { Err(Failure::Errno(libc::EPERM)) }
}

impl Server {
    pub(super) fn setxattr(&self, caller: Caller, ino: Ino, body: Body<'_>) -> Outcome {
        let Setxattr { flags, setxattr_flags, name, value } = Setxattr::parse(body)?;
        let mode = match flags.cast_signed() {
            0 => SetXattr::Any,
            libc::XATTR_CREATE => SetXattr::Create,
            libc::XATTR_REPLACE => SetXattr::Replace,
            _ => return Err(Failure::Errno(libc::EINVAL)),
        };
        if is_reserved(name) {
            return self.control(caller, ino, name, value);
        }
        let kill = setxattr_flags & SETXATTR_ACL_KILL_SGID != 0;
        Ok(self.vfs.set_xattr(ino, name, value, mode, kill)?)
    }

    /// Executes the order in attribute `name` of `directory`, if `value` begins with the caller's
    /// nonce: an attribute restored from an archive has no effect ([`weft_vfs::Nonces`]).
    fn control(&self, caller: Caller, directory: Ino, name: &[u8], value: &[u8]) -> Outcome {
        let nonces = self.nonces.as_ref().ok_or(Failure::Errno(libc::EIO))?;
        let value = nonces.verified(caller.uid, directory, value)?;
        match Attribute::parse(name) {
            Some(Attribute::Link) => self.make_link(caller, directory, value),
            Some(Attribute::Network(network)) if directory == Ino::ROOT => {
                let text = std::str::from_utf8(value).map_err(|_| Failure::Errno(libc::EINVAL))?;
                // No network is nothing at all.
                Ok(self.vfs.links()?.define_network(network, Some(text).filter(|text| !text.is_empty()))?)
            }
            _ => Err(Failure::Errno(libc::EOPNOTSUPP)),
        }
    }

    /// Makes a transformation link in directory `parent`. The kernel has checked that the caller
    /// may set attributes there, not that it may add names. The kernel does not know of the link,
    /// so the program uses a name that nobody has looked up, and renames it.
    fn make_link(&self, caller: Caller, parent: Ino, value: &[u8]) -> Outcome {
        if self.options.writeback {
            return Err(links::WRITEBACK);
        }
        let order = LinkOrder::decode(value).ok_or(Failure::Errno(libc::EINVAL))?;
        let caller = Caller { holds: weft_vfs::Holds::None, ..caller };
        self.vfs.links()?.make_link(caller, parent, &order.name, order.permissions, &order.definition)?;
        Ok(())
    }

    pub(super) fn getxattr(&self, caller: Caller, ino: Ino, body: Body<'_>, reply: &mut Reply) -> Outcome {
        let Getxattr { size, name } = Getxattr::parse(body)?;
        let told = match Attribute::parse(name) {
            Some(Attribute::Nonce) => {
                let nonces = self.nonces.as_ref().ok_or(Failure::Errno(libc::EIO));
                nonces.map(|nonces| nonces.of(caller.uid, ino).to_vec())
            }
            Some(Attribute::StopComputing) if ino == Ino::ROOT => self.stop_computing(caller),
            Some(Attribute::Commit) if ino == Ino::ROOT => self.commit(caller),
            Some(Attribute::Stats) if ino == Ino::ROOT => self.stats(caller.uid),
            Some(Attribute::Lent) => self.invitation(caller, ino),
            // The kernel may cache data that is to be counted, or readers see another file.
            Some(Attribute::Counts { .. }) if self.options.writeback || self.vfs.seen(ino, None) != ino => {
                Err(Failure::Errno(libc::EOPNOTSUPP))
            }
            _ => self.vfs.xattr(ino, name).map_err(Failure::from),
        };
        sized(reply, size, &told?)
    }

    /// Ends all computing of networks, for the super-user or the daemon's user: a program that
    /// waits for it keeps a mount from going.
    fn stop_computing(&self, caller: Caller) -> Result<Vec<u8>, Failure> {
        refuse_others(caller)?;
        self.vfs.links()?.stop_computing(false);
        Ok(b"stopped".to_vec())
    }

    /// Commits all changes and returns the number of the commit, for the super-user or the daemon's
    /// user: those who may ask the daemon for that by its socket, where there is one. For others it
    /// makes all changes durable, as an fsync of something that they changed does, and returns
    /// nothing.
    fn commit(&self, caller: Caller) -> Result<Vec<u8>, Failure> {
        let told = if is_in_charge(caller.uid) {
            self.vfs.may_wait(Wait::Commit)?;
            self.vfs.commit_durably()?.0.to_string().into_bytes()
        } else {
            self.vfs.sync()?;
            Vec::new()
        };
        match self.vfs.failed_writeback() {
            None => Ok(told),
            Some(_) => Err(Failure::Errno(libc::EIO)),
        }
    }

    /// Returns how file `ino` is shared in memory. The caller may read it: the kernel has checked
    /// that (xattr(7)).
    fn invitation(&self, caller: Caller, ino: Ino) -> Result<Vec<u8>, Failure> {
        // Memory that programs share is for all of them.
        let inviter = self.options.inviter.as_ref().filter(|_| is_for_everybody(&self.vfs, self.vfs.seen(ino, None)));
        let Inviter(invite) = inviter.ok_or(Failure::Errno(libc::ENODATA))?;
        invite(caller.uid, ino).map_err(|_| Failure::Errno(libc::EAGAIN))
    }

    pub(super) fn listxattr(&self, caller: Caller, ino: Ino, body: Body<'_>, reply: &mut Reply) -> Outcome {
        let Listxattr { size } = Listxattr::parse(body)?;
        // Requests carry no capabilities; the kernel lets nobody without them read such a value
        // (xattr(7)).
        let hidden: &[u8] = if caller.uid == 0 { b"" } else { b"trusted." };
        let mut list = Vec::new();
        for name in self.vfs.xattr_names(ino)? {
            if !hidden.is_empty() && name.as_bytes().starts_with(hidden) {
                continue;
            }
            list.extend_from_slice(name.as_bytes());
            list.push(0);
        }
        sized(reply, size, &list)
    }

    pub(super) fn removexattr(&self, ino: Ino, body: Body<'_>) -> Outcome {
        let Named { name } = Named::parse(body)?;
        Ok(self.vfs.remove_xattr(ino, name)?)
    }

    /// Returns counters of the volume and of this mount.
    pub(crate) fn report(&self) -> Report {
        let operations: Vec<_> = self.latencies().collect();
        Report {
            pid: std::process::id(),
            transport: if self.over_rings.load(Ordering::Relaxed) { "io_uring" } else { "device" },
            placement: Some(self.options.placement.to_string()),
            as_of_commit: self.options.as_of_commit,
            volume: self.vfs.stats(),
            bytes_given: Some(self.bytes_given.load(Ordering::Relaxed)),
            requests: operations.iter().map(|(name, latency)| (*name, latency.count())).collect(),
            operations,
            processes: self.processes.all(),
        }
    }

    /// Returns the same as JSON, as far as it is for `user`.
    fn stats(&self, user: u32) -> Result<Vec<u8>, Failure> {
        let mut report = self.report();
        if !is_in_charge(user) {
            report.volume.hide_others(user);
        }
        serde_json::to_vec(&report).map_err(|_| Failure::Errno(libc::EIO))
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
