//! Who may do what: permission bits, ACLs, the sticky bit (POSIX 4.7, POSIX.1e 23.1.3, acl(5)).
//!
//! For users whose rights nobody has checked before. FUSE needs none of it: the kernel checks
//! (`default_permissions`).

use crate::acl::Acl;
use crate::apply::ACCESS_ACL;
use crate::attributes::{SetAttributes, SetTime, Writer};
use crate::caller::Credentials;
use crate::error::ErrorKind;
use crate::names::Entry;
use crate::stop::Stop;
use crate::tree::Tree;
use std::ops::BitOr;
use weft_store::{Ino, Kind};

/// Rights to ask for, as the three bits of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access(u32);

impl Access {
    /// To read a file, to list a directory.
    pub const READ: Access = Access(4);
    /// To write a file, to change a directory's entries.
    pub const WRITE: Access = Access(2);
    /// To run a file, to look names up in a directory.
    pub const EXECUTE: Access = Access(1);
}

impl BitOr for Access {
    type Output = Access;
    fn bitor(self, other: Access) -> Access {
        Access(self.0 | other.0)
    }
}

const STICKY: u32 = libc::S_ISVTX;

/// Rights on the inodes of a tree.
pub trait Rights {
    /// The tree.
    fn tree(&mut self) -> &mut Tree;

    /// The permission bits of inode `ino`. Those of an opaque one may follow from other inodes.
    fn permission_bits(&mut self, ino: Ino) -> Result<u32, Stop>;

    /// True if `who` has all of `wanted` on inode `ino`.
    fn allows(&mut self, who: &Credentials, ino: Ino, wanted: Access) -> Result<bool, Stop> {
        let bits = self.permission_bits(ino)?;
        let row = &self.tree().inode(ino)?.row;
        let (owner, group, has_xattrs) = (row.uid, row.gid, row.has_xattrs());
        if who.is_root() {
            // Nobody runs what nobody may run.
            let may_execute = row.kind == Kind::Directory || bits & 0o111 != 0;
            return Ok(may_execute || wanted.0 & Access::EXECUTE.0 == 0);
        }
        let grants = |bits: u32| bits & wanted.0 == wanted.0;
        if who.uid == owner {
            return Ok(grants(bits >> 6));
        }
        if has_xattrs && let Some(value) = self.tree().xattrs(ino)?.map.get(ACCESS_ACL) {
            let acl = Acl::parse(value)?;
            return Ok(acl.grants(group, wanted.0, |uid| uid == who.uid, |gid| who.is_member(gid)));
        }
        Ok(grants(if who.is_member(group) { bits >> 3 } else { bits }))
    }

    /// `AccessDenied` unless `who` has all of `wanted` on inode `ino`.
    fn permit(&mut self, who: &Credentials, ino: Ino, wanted: Access) -> Result<(), Stop> {
        if self.allows(who, ino, wanted)? { Ok(()) } else { Err(ErrorKind::AccessDenied.into()) }
    }

    /// `AccessDenied` unless `who` may read or write file `ino` as one does who has opened it. A
    /// stateless protocol asks again with every request, though rights may have gone since the file
    /// was opened: its owner keeps them, and whoever may run a file may read it (RFC 1813 4.4).
    fn permit_opened(&mut self, who: &Credentials, ino: Ino, wanted: Access) -> Result<(), Stop> {
        let row = &self.tree().inode(ino)?.row;
        // Its owner may lose the right to what a link leads to.
        let keeps_it = row.uid == who.uid && row.kind != Kind::Transformation;
        if keeps_it || wanted == Access::READ && self.allows(who, ino, Access::EXECUTE)? {
            return Ok(());
        }
        self.permit(who, ino, wanted)
    }

    /// Checks that `who` may add names to directory `parent`.
    fn permit_adding(&mut self, who: &Credentials, parent: Ino) -> Result<(), Stop> {
        self.tree().directory(parent)?;
        self.permit(who, parent, Access::WRITE | Access::EXECUTE)
    }

    /// The permission bits that `who` may give a new inode of `kind` in directory `parent`: a
    /// program that runs as a group is not for those to make who are not in it, also where the
    /// directory gives its group on (Linux `mode_strip_sgid`).
    fn permitted_bits(&mut self, who: &Credentials, parent: Ino, kind: Kind, bits: u32) -> Result<u32, Stop> {
        const RUNS_AS_GROUP: u32 = libc::S_ISGID | libc::S_IXGRP;
        let directory = &self.tree().directory(parent)?.row;
        let gives_group = directory.permissions & libc::S_ISGID != 0 && kind != Kind::Directory;
        let may = who.is_root() || who.is_member(directory.gid);
        let is_program = bits & RUNS_AS_GROUP == RUNS_AS_GROUP;
        Ok(if gives_group && is_program && !may { bits & !libc::S_ISGID } else { bits })
    }

    /// Checks that `who` may remove `name` from directory `parent`: from a sticky one only the
    /// owner of either may. `NotPermitted`, `AccessDenied`. Succeeds if the name does not exist:
    /// the operation reports that.
    fn permit_removing(&mut self, who: &Credentials, parent: Ino, name: &[u8]) -> Result<(), Stop> {
        self.permit_adding(who, parent)?;
        let directory = &self.tree().directory(parent)?.row;
        if directory.permissions & STICKY == 0 || who.is_root() || directory.uid == who.uid {
            return Ok(());
        }
        let Some(entry) = self.tree().entry(parent, name)? else { return Ok(()) };
        if self.tree().inode(entry.ino)?.row.uid == who.uid { Ok(()) } else { Err(ErrorKind::NotPermitted.into()) }
    }

    /// Checks that `who` may move `moved` to another directory: a moved directory gets another
    /// `..`.
    fn permit_moving(&mut self, who: &Credentials, moved: Entry, from: Ino, to: Ino) -> Result<(), Stop> {
        if moved.kind == Kind::Directory && from != to {
            self.permit(who, moved.ino, Access::WRITE)?;
        }
        Ok(())
    }

    /// Returns the class of `who` for the set-user-id and set-group-id bits of `ino`.
    fn writer(&mut self, who: &Credentials, ino: Ino) -> Result<Writer, Stop> {
        let group = self.tree().inode(ino)?.row.gid;
        Ok(match who.is_root() {
            true => Writer::Privileged,
            false if who.is_member(group) => Writer::Member,
            false => Writer::Stranger,
        })
    }

    /// Checks that `who` may make `changes`. Returns them with the adjustments for that user (POSIX
    /// chmod(), chown(), utimensat()). `NotPermitted`, `AccessDenied`.
    fn permit_attributes(
        &mut self,
        who: &Credentials,
        ino: Ino,
        mut changes: SetAttributes,
    ) -> Result<SetAttributes, Stop> {
        if changes.size.is_some() {
            self.permit_opened(who, ino, Access::WRITE)?;
        }
        changes.writer = self.writer(who, ino)?;
        let row = &self.tree().inode(ino)?.row;
        if who.is_root() {
            return Ok(changes);
        }
        let (owner, group, kind, old) = (row.uid, row.gid, row.kind, row.permissions);
        let is_owner = owner == who.uid;
        let gives_away = changes.uid.is_some_and(|uid| uid != owner)
            || changes.gid.is_some_and(|gid| gid != group && !who.is_member(gid));
        let owners_alone = changes.permissions.is_some() || changes.uid.is_some() || changes.gid.is_some();
        let sets_times = |time: Option<SetTime>| matches!(time, Some(SetTime::To(_)));
        if gives_away || !is_owner && (owners_alone || sets_times(changes.atime) || sets_times(changes.mtime)) {
            return Err(ErrorKind::NotPermitted.into());
        }
        if !is_owner && (changes.atime.is_some() || changes.mtime.is_some()) {
            self.permit(who, ino, Access::WRITE)?;
        }
        if let Some(bits) = &mut changes.permissions {
            if kind != Kind::Directory {
                // It means nothing there, and is the super-user's.
                *bits &= !(STICKY & !old);
            }
            if !who.is_member(changes.gid.unwrap_or(group)) {
                *bits &= !libc::S_ISGID;
            }
        }
        Ok(changes)
    }
}

impl Rights for Tree {
    fn tree(&mut self) -> &mut Tree {
        self
    }

    fn permission_bits(&mut self, ino: Ino) -> Result<u32, Stop> {
        Ok(self.inode(ino)?.row.permissions)
    }
}
