//! Attributes: reading and setting them; what follows from a change of owner, mode or content.

use crate::opaque::Detail;
use crate::options::AtimePolicy;
use crate::refusal::Refusal;
use crate::state::State;
use crate::volume::Vfs;
use std::borrow::Cow;
use weft_store::{Ino, InodeRow, Kind, Timestamp};
use weft_tree::{
    ACCESS_ACL, Acl, Attributes, CAPABILITY, Error, ErrorKind, Lost, Mutation, ROW_BYTES, Result, SetAttributes,
    SetRow, SetTime, Stop, Writer, is_past,
};

/// Largest size and offset: what `off_t` holds.
pub(crate) const SIZE_MAX: u64 = i64::MAX as u64;

const DAY: i64 = 24 * 3600 * 1_000_000_000;

impl Vfs {
    /// Attributes of inode `ino`. `Stale` if there is no such inode.
    pub fn attributes(&self, ino: Ino) -> Result<Attributes> {
        if is_past(ino) {
            return self.past_attributes(ino, Detail::Usual);
        }
        self.run(|state| state.attributes(ino))
    }

    /// The same in a `detail`, which makes a difference if it is opaque.
    pub fn attributes_in(&self, ino: Ino, detail: Detail) -> Result<Attributes> {
        if is_past(ino) {
            return self.past_attributes(ino, detail);
        }
        self.run(|state| state.attributes_in(ino, detail))
    }

    /// Sets attributes (POSIX chmod(), chown(), truncate(), utimensat()); tells them all as they
    /// are then. `TooBig`, `IsDirectory` or `Invalid` for the size of anything but a file,
    /// `NoSpace`, `QuotaExceeded`, `NotSynchronized` for the owner of one that is written anew
    /// through what its owner pushed.
    pub fn set_attributes(&self, ino: Ino, changes: SetAttributes) -> Result<Attributes> {
        self.prepare_owner(ino, &changes)?;
        let time = self.now();
        let set = match self.try_change(|state| state.set_attributes(ino, changes, time)) {
            Err(Refusal::Opaque) => self.opaque.set_attributes(self, ino, changes),
            set => set.map_err(Error::from),
        };
        self.rights_changed(ino, &changes);
        set
    }

    /// Makes sure that `ino` can get the owner that `changes` say, if they say one.
    pub(crate) fn prepare_owner(&self, ino: Ino, changes: &SetAttributes) -> Result<()> {
        match changes.uid {
            Some(owner) if self.has_substitutes() => self.opaque.prepare_owner(self, ino, owner),
            _ => Ok(()),
        }
    }

    /// The owner of `ino` itself, of which nothing else is looked at. `Stale`.
    pub fn owner(&self, ino: Ino) -> Result<u32> {
        self.run(|state| Ok(state.tree.inode(ino)?.row.uid))
    }

    /// The group of `ino` if its set-group-id bit stays or goes by whether a writer is in it: the
    /// group may not execute then.
    pub fn group_that_keeps_set_id(&self, ino: Ino) -> Result<Option<u32>> {
        self.run(|state| {
            let row = &state.tree.inode(ino)?.row;
            let is_kept = row.permissions & (libc::S_ISGID | libc::S_IXGRP) == libc::S_ISGID;
            Ok(is_kept.then_some(row.gid))
        })
    }

    /// Applies a change of rights: users who could not read `ino` before must not see its earlier
    /// content, and nothing of its former owner's stays in its place.
    pub(crate) fn rights_changed(&self, ino: Ino, changes: &SetAttributes) {
        if changes.permissions.is_some() || changes.uid.is_some() || changes.gid.is_some() {
            self.blocks.shared.renew(ino);
            self.past_rights_changed(ino);
        }
        if changes.uid.is_some()
            && self.has_substitutes()
            && let Ok(owner) = self.owner(ino)
        {
            self.opaque.owner_changed(self, ino, owner);
        }
    }

    /// Moves the access time of `ino` after a read, as the policy says. Not an operation of its
    /// own: it goes with the next commit.
    pub fn read_moves_atime(&self, ino: Ino) {
        let mut state = self.state.lock();
        let Ok(inode) = state.tree.inode(ino) else { return };
        if self.is_atime_due(&inode.row) {
            inode.row.atime = self.now();
            state.tree.touch(ino);
        }
    }

    /// True if reading the inode of `row` sets its access time.
    pub(crate) fn is_atime_due(&self, row: &InodeRow) -> bool {
        if self.is_read_only() || self.options.atime == AtimePolicy::Never {
            return false;
        }
        let now = self.now();
        let is_old = row.atime <= row.mtime || row.atime <= row.ctime || now.0.saturating_sub(row.atime.0) >= DAY;
        row.atime != now && (is_old || self.options.atime == AtimePolicy::Always)
    }
}

impl State {
    /// As [`Vfs::set_attributes`].
    pub fn set_attributes(&mut self, ino: Ino, changes: SetAttributes, time: Timestamp) -> Result<Attributes, Stop> {
        if changes.size.is_some_and(|size| size > SIZE_MAX) {
            return Err(ErrorKind::TooBig.into());
        }
        if changes.size.is_none_or(|size| size > 0) {
            self.tree.room(ROW_BYTES)?;
        }
        if changes.size.is_some() {
            self.tree.file(ino)?;
        }
        self.ready_for_attributes_after(ino)?;
        let set = self.decide(ino, changes, time)?;
        if let Some(size) = changes.size {
            self.tree.shorten(ino, size)?;
        }
        self.perform(&Mutation::Attributes { ino, set, time })?;
        self.attributes_after(ino)
    }

    fn decide(&mut self, ino: Ino, changes: SetAttributes, time: Timestamp) -> Result<SetRow<'static>, Stop> {
        let row = &self.tree.inode(ino)?.row;
        let (kind, old, has_xattrs) = (row.kind, row.permissions, row.has_xattrs());
        let owner_changes = changes.uid.is_some() || changes.gid.is_some();
        let wanted = changes.permissions.map(|bits| bits & 0o7777);
        let (bits, writer) = (wanted.unwrap_or(old), changes.writer);
        let left = match kind {
            Kind::Directory => bits,
            _ if owner_changes && wanted.is_none() => writer.leaves_as_owner(bits),
            _ if changes.size.is_some() => writer.leaves(bits),
            _ => bits,
        };
        let permissions = if left == bits { wanted } else { Some(left) };
        let access_acl = match wanted {
            Some(bits) if has_xattrs => self.acl_after_chmod(ino, bits)?,
            _ => None,
        };
        let drop_capability = (owner_changes || changes.size.is_some()) && self.has_capability(ino)?;
        let at = |set: SetTime| match set {
            SetTime::Now => time,
            SetTime::To(time) => time,
        };
        Ok(SetRow {
            permissions: permissions.filter(|bits| wanted.is_some() || *bits != old),
            uid: changes.uid,
            gid: changes.gid,
            size: changes.size,
            atime: changes.atime.map(at),
            mtime: changes.mtime.map(at).or(changes.size.map(|_| time)),
            access_acl: access_acl.map(Cow::Owned),
            drop_capability,
        })
    }

    fn acl_after_chmod(&mut self, ino: Ino, permissions: u32) -> Result<Option<Vec<u8>>, Stop> {
        let Some(value) = self.tree.xattrs(ino)?.map.get(ACCESS_ACL) else { return Ok(None) };
        Ok(Some(Acl::parse(value)?.with_permissions(permissions).to_bytes()))
    }

    /// Returns the privileges that file `ino` loses when `writer` changes its content. Capabilities
    /// are always lost.
    pub(crate) fn lost(&mut self, ino: Ino, writer: Writer) -> Result<Lost, Stop> {
        let capability = self.has_capability(ino)?;
        let old = self.tree.inode(ino)?.row.permissions;
        Ok(Lost { permissions: Some(writer.leaves(old)).filter(|bits| *bits != old), capability })
    }

    /// True if file `ino` has capabilities to lose.
    fn has_capability(&mut self, ino: Ino) -> Result<bool, Stop> {
        if !self.tree.inode(ino)?.row.has_xattrs() {
            return Ok(false);
        }
        Ok(self.tree.xattrs(ino)?.map.contains_key(CAPABILITY))
    }
}
