//! Applies changes of names: made, linked, removed, renamed.

use crate::data::FileData;
use crate::inode::{Changed, Directory, Inode, Xattrs};
use crate::mutation::NewInode;
use crate::names::Entry;
use crate::stop::Stop;
use crate::tree::{Tree, recount};
use std::collections::BTreeMap;
use weft_block::Slice;
use weft_store::{Cookie, Generation, Ino, InodeRow, Kind, Name, OpNo, Timestamp};

/// Name of the attribute that an access ACL is in (acl(5)).
pub const ACCESS_ACL: &[u8] = b"system.posix_acl_access";
/// Name of the attribute that the ACL is in that a directory gives what is made in it.
pub const DEFAULT_ACL: &[u8] = b"system.posix_acl_default";

impl Tree {
    pub(super) fn apply_make(
        &mut self,
        parent: Ino,
        name: Option<&(Name, Cookie)>,
        new: &NewInode<'_>,
    ) -> Result<(), Stop> {
        self.directory(parent)?;
        let is_directory = new.kind == Kind::Directory;
        // Numbers may repeat after a crash, but not before the volume is opened again.
        let generation = u32::try_from(self.counters.epoch & 0x7fff_ffff).expect("31 bits");
        let inode = new_inode(parent, name.is_some(), generation, new);
        recount(&mut self.counters.bytes_used, inode.row.allocated, 0);
        recount(&mut self.counters.inodes_used, 1, 0);
        self.counters.next_id = self.counters.next_id.max(new.ino.0 + 1);
        self.inodes.insert(new.ino, Box::new(inode));
        self.touch(new.ino);
        match name {
            Some((name, cookie)) => {
                self.counters.next_id = self.counters.next_id.max(cookie.0 + 1);
                self.put_name(parent, name, Entry { ino: new.ino, kind: new.kind, cookie: *cookie });
                self.add_subdirectory(parent, is_directory);
                self.touch_directory(parent, 1, new.time);
            }
            None => {
                self.orphans.insert(new.ino);
            }
        }
        self.evict();
        Ok(())
    }

    /// A directory `parent` gained a directory.
    fn add_subdirectory(&mut self, parent: Ino, is_directory: bool) {
        if is_directory {
            self.inodes.get(&parent).expect("the parent is in memory").row.nlink += 1;
        }
    }

    /// A directory `parent` lost a directory.
    fn remove_subdirectory(&mut self, parent: Ino, is_directory: bool) {
        if is_directory {
            self.inodes.get(&parent).expect("the parent is in memory").row.nlink -= 1;
        }
    }

    pub(super) fn apply_link(
        &mut self,
        ino: Ino,
        to: (Ino, &Name),
        cookie: Cookie,
        time: Timestamp,
    ) -> Result<(), Stop> {
        self.directory(to.0)?;
        let inode = self.inode(ino)?;
        inode.row.nlink += 1;
        let kind = inode.row.kind;
        self.orphans.remove(&ino);
        self.touch_ctime(ino, time);
        self.counters.next_id = self.counters.next_id.max(cookie.0 + 1);
        self.put_name(to.0, to.1, Entry { ino, kind, cookie });
        self.touch_directory(to.0, 1, time);
        self.evict();
        Ok(())
    }

    pub(super) fn apply_remove(&mut self, parent: Ino, name: &Name, time: Timestamp) -> Result<(), Stop> {
        let entry = self.existing(parent, name.as_bytes())?;
        self.inode(entry.ino)?;
        self.remove_name(parent, name);
        self.remove_subdirectory(parent, entry.kind == Kind::Directory);
        self.touch_directory(parent, -1, time);
        self.lose_name(entry.ino, time);
        Ok(())
    }

    /// Inode `ino`, which is in memory, lost a name (a directory: its only one).
    pub(crate) fn lose_name(&mut self, ino: Ino, time: Timestamp) {
        let inode = self.inodes.get(&ino).expect("the inode is in memory");
        let row = &mut inode.row;
        if row.nlink == 0 {
            // A damaged row: nobody knows whether other names lead there, so its content stays.
            return self.touch(ino);
        }
        row.nlink = if row.kind == Kind::Directory { 0 } else { row.nlink - 1 };
        row.ctime = time;
        if row.nlink > 0 {
            self.touch(ino);
        } else if self.keep_orphans || self.holds.contains_key(&ino) {
            self.orphans.insert(ino);
            self.touch(ino);
        } else {
            self.delete_inode(ino);
        }
    }

    pub(super) fn apply_rename(
        &mut self,
        from: &(Ino, Name),
        to: &(Ino, Name),
        cookie: Cookie,
        time: Timestamp,
    ) -> Result<(), Stop> {
        let moved = self.existing(from.0, from.1.as_bytes())?;
        let replaced = self.entry(to.0, to.1.as_bytes())?;
        self.inode(moved.ino)?;
        if let Some(replaced) = replaced {
            self.inode(replaced.ino)?;
        }
        let is_directory = moved.kind == Kind::Directory;
        let same_directory = from.0 == to.0;
        let cookie = if same_directory { moved.cookie } else { cookie };
        self.counters.next_id = self.counters.next_id.max(cookie.0 + 1);
        self.remove_name(from.0, &from.1);
        self.remove_subdirectory(from.0, is_directory);
        self.touch_directory(from.0, -1, time);
        self.put_name(to.0, &to.1, Entry { cookie, ..moved });
        self.add_subdirectory(to.0, is_directory);
        self.touch_directory(to.0, if replaced.is_some() { 0 } else { 1 }, time);
        if is_directory {
            self.inodes.get(&moved.ino).expect("the inode is in memory").row.parent = to.0;
        }
        self.touch_ctime(moved.ino, time);
        if let Some(replaced) = replaced {
            self.remove_subdirectory(to.0, replaced.kind == Kind::Directory);
            self.lose_name(replaced.ino, time);
        }
        self.evict();
        Ok(())
    }

    pub(super) fn apply_whiteout(
        &mut self,
        from: &(Ino, Name),
        to: &(Ino, Name),
        cookie: Cookie,
        inode: &NewInode<'_>,
        time: Timestamp,
    ) -> Result<(), Stop> {
        self.apply_rename(from, to, cookie, time)?;
        // The directory has changed, so it is still in memory: this cannot stop any more.
        self.apply_make(from.0, Some(&(from.1.clone(), Cookie(inode.ino.0))), inode)
    }

    pub(super) fn apply_exchange(&mut self, a: &(Ino, Name), b: &(Ino, Name), time: Timestamp) -> Result<(), Stop> {
        let at_a = self.existing(a.0, a.1.as_bytes())?;
        let at_b = self.existing(b.0, b.1.as_bytes())?;
        self.inode(at_a.ino)?;
        self.inode(at_b.ino)?;
        for (place, old, new) in [(a, at_a, at_b), (b, at_b, at_a)] {
            self.remove_subdirectory(place.0, old.kind == Kind::Directory);
            self.add_subdirectory(place.0, new.kind == Kind::Directory);
            self.put_name(place.0, &place.1, Entry { cookie: old.cookie, ..new });
            self.touch_directory(place.0, 0, time);
            if new.kind == Kind::Directory {
                self.inodes.get(&new.ino).expect("the inode is in memory").row.parent = place.0;
            }
            self.touch_ctime(new.ino, time);
        }
        Ok(())
    }
}

fn new_inode(parent: Ino, named: bool, generation: Generation, new: &NewInode<'_>) -> Inode {
    let target = new.target.as_ref().map(|target| Slice::from(target.to_vec()));
    let mut xattrs = Xattrs { map: BTreeMap::new(), ..Xattrs::default() };
    for (name, acl) in [(ACCESS_ACL, &new.access_acl), (DEFAULT_ACL, &new.default_acl)] {
        if let Some(acl) = acl {
            let name = Name::of_xattr(name).expect("a constant name");
            xattrs.changed.insert(name.clone());
            xattrs.map.insert(name, acl.to_vec());
        }
    }
    let is_directory = new.kind == Kind::Directory;
    let row = InodeRow {
        ino: new.ino,
        generation,
        kind: new.kind,
        permissions: new.permissions,
        uid: new.uid,
        gid: new.gid,
        nlink: u32::from(named) + u32::from(is_directory),
        rdev: new.rdev,
        size: target.as_ref().map_or(0, |target| target.len() as u64),
        allocated: target.as_ref().map_or(0, |target| target.len() as u64),
        atime: new.time,
        mtime: new.time,
        ctime: new.time,
        btime: new.time,
        parent: if is_directory { parent } else { Ino(0) },
        xattrs: xattrs.count(),
        inline: target,
    };
    Inode {
        row,
        changed: Changed::CLEAN,
        stored: false,
        closed: Changed::CLEAN,
        dead: false,
        content: OpNo(0),
        touched: OpNo(0),
        attached: None,
        data: (new.kind == Kind::File).then(|| Box::new(FileData::without_extents())),
        xattrs: (!xattrs.map.is_empty()).then(|| Box::new(xattrs)),
        directory: is_directory
            .then(|| Box::new(Directory { complete: true, listed: true, is_whole: true, ..Directory::default() })),
    }
}
