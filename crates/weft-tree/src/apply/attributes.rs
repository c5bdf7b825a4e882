//! Applies changes of attributes and extended attributes.

use super::entries::ACCESS_ACL;
use crate::inode::{Inode, Xattrs};
use crate::mutation::{Lost, SetRow};
use crate::stop::{Miss, Stop};
use crate::tree::Tree;
use weft_store::{Ino, InodeRow, Name, Timestamp};

/// Name of the file capability attribute (capabilities(7)).
pub const CAPABILITY: &[u8] = b"security.capability";

impl Tree {
    /// The extended attributes of inode `ino`.
    pub fn xattrs(&mut self, ino: Ino) -> Result<&mut Xattrs, Stop> {
        let inode = self.inode(ino)?;
        if inode.xattrs.is_none() && inode.row.has_xattrs() {
            return Err(Miss::Xattrs(ino).into());
        }
        Ok(inode.xattrs.get_or_insert_default())
    }

    pub(super) fn apply_attributes(&mut self, ino: Ino, set: &SetRow<'_>, time: Timestamp) -> Result<(), Stop> {
        if set.access_acl.is_some() || set.drop_capability {
            self.xattrs(ino)?;
        }
        if let Some(size) = set.size {
            self.apply_size(ino, size)?;
        }
        let now = self.counters.op.next();
        let inode = self.inode(ino)?;
        if set.size.is_some() {
            inode.content = now;
        }
        let before = rights(&inode.row);
        let row = &mut inode.row;
        row.permissions = set.permissions.unwrap_or(row.permissions);
        row.uid = set.uid.unwrap_or(row.uid);
        row.gid = set.gid.unwrap_or(row.gid);
        row.atime = set.atime.unwrap_or(row.atime);
        row.mtime = set.mtime.unwrap_or(row.mtime);
        row.ctime = time;
        if let Some(acl) = &set.access_acl {
            set_xattr(inode, Name::of_xattr(ACCESS_ACL).expect("a constant name"), Some(acl));
        }
        if set.drop_capability {
            set_xattr(inode, Name::of_xattr(CAPABILITY).expect("a constant name"), None);
        }
        self.close_if(ino, before, set.access_acl.is_some());
        self.touch(ino);
        Ok(())
    }

    /// Notes that inode `ino`, which is in memory and had these rights before, is closed to
    /// somebody. The past of a removed file is as closed as the file was last: so the store must
    /// learn of it before the file is gone.
    fn close_if(&mut self, ino: Ino, (permissions, uid, gid): (u32, u32, u32), has_other_list: bool) {
        let generation = self.generation;
        let inode = self.inodes.get(&ino).expect("a changed inode is in memory");
        let now = rights(&inode.row);
        let is_closed = permissions & !now.0 & 0o777 != 0 || (uid, gid) != (now.1, now.2) || has_other_list;
        // What the log brings back is deleted at once: a mount begins without orphans.
        if inode.stored && is_closed && !self.keep_orphans {
            inode.closed = generation;
        }
    }

    pub(super) fn apply_xattr(
        &mut self,
        ino: Ino,
        name: &Name,
        value: Option<&[u8]>,
        permissions: Option<u32>,
        time: Timestamp,
    ) -> Result<(), Stop> {
        self.xattrs(ino)?;
        self.work_bytes += value.map_or(0, |value| value.len() as u64);
        let inode = self.inode(ino)?;
        let before = rights(&inode.row);
        set_xattr(inode, name.clone(), value);
        inode.row.permissions = permissions.unwrap_or(inode.row.permissions);
        self.close_if(ino, before, name.as_bytes() == ACCESS_ACL);
        self.touch_ctime(ino, time);
        self.inodes.reweigh(&ino);
        Ok(())
    }

    /// Makes sure that what [`Tree::apply_written`] changes is in memory.
    pub(super) fn know_lost(&mut self, ino: Ino, lost: Lost) -> Result<(), Stop> {
        if lost.capability { self.xattrs(ino).map(|_| ()) } else { Ok(()) }
    }

    /// Applies the consequences of a change of content: times, and lost privileges. The inode is in
    /// memory.
    pub(super) fn apply_written(&mut self, ino: Ino, lost: Lost, time: Timestamp) {
        let now = self.counters.op.next();
        let inode = self.inodes.get(&ino).expect("a written inode is in memory");
        inode.content = now;
        inode.row.permissions = lost.permissions.unwrap_or(inode.row.permissions);
        inode.row.mtime = time;
        inode.row.ctime = time;
        if lost.capability {
            set_xattr(inode, Name::of_xattr(CAPABILITY).expect("a constant name"), None);
        }
        self.touch(ino);
    }
}

/// Permissions, user and group.
fn rights(row: &InodeRow) -> (u32, u32, u32) {
    (row.permissions, row.uid, row.gid)
}

fn set_xattr(inode: &mut Inode, name: Name, value: Option<&[u8]>) {
    let xattrs = inode.xattrs.get_or_insert_default();
    match value {
        Some(value) => xattrs.map.insert(name.clone(), value.to_vec()),
        None => xattrs.map.remove(&name),
    };
    xattrs.changed.insert(name);
    inode.row.xattrs = xattrs.count();
}
