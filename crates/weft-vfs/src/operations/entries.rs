//! Names: looking up, making, linking, removing, renaming.

use crate::opaque::Detail;
use crate::past::MovingName;
use crate::refusal::Refusal;
use crate::state::State;
use crate::volume::Vfs;
use std::borrow::Cow;
use weft_store::{Cookie, Ino, Kind, Name, Timestamp};
use weft_tree::{
    Acl, Attributes, Caller, DEFAULT_ACL, Entry, ErrorKind, MakeNode, Mutation, NewInode, ROW_BYTES, RenameMode,
    Result, Stop, is_past,
};

/// Most links of one inode.
const LINKS_MAX: u32 = i32::MAX as u32;

/// Longest target of a symbolic link in bytes (`PATH_MAX` with its NUL).
const TARGET_BYTES_MAX: usize = 4095;

const SET_GROUP_ID: u32 = libc::S_ISGID;

/// A symbolic link as POSIX symlink() makes it.
pub(crate) const SYMLINK: MakeNode = MakeNode { kind: Kind::Symlink, permissions: 0o777, umask: 0, rdev: 0 };

/// True if a rename changes anything.
#[derive(PartialEq, Eq)]
enum Renaming {
    Moves,
    Nothing,
}

/// Checks that a symbolic link can have `target`: `NotFound` if it is empty, `NameTooLong` past
/// 4095 bytes.
pub(crate) fn check_target(target: &[u8]) -> Result<()> {
    match target.len() {
        0 => Err(ErrorKind::NotFound.into()),
        len if len > TARGET_BYTES_MAX => Err(ErrorKind::NameTooLong.into()),
        _ => Ok(()),
    }
}

impl Vfs {
    /// Attributes of what `name` in directory `parent` names. `NotFound`, `NotDirectory`.
    pub fn lookup(&self, caller: Caller, parent: Ino, name: &[u8]) -> Result<Attributes> {
        self.lookup_by(caller, parent, name, State::attributes)
    }

    /// As [`Vfs::lookup`], but computes no length of a link: one that is not known is 0, and
    /// [`Attributes::computed`] too, so that whoever wants it asks again. For a way in by which
    /// nobody gets into the directory while a name is looked up.
    pub fn lookup_at_once(&self, caller: Caller, parent: Ino, name: &[u8]) -> Result<Attributes> {
        self.lookup_by(caller, parent, name, |state, ino| state.attributes_in(ino, Detail::AtOnce))
    }

    fn lookup_by(
        &self,
        caller: Caller,
        parent: Ino,
        name: &[u8],
        attributes: impl Fn(&mut State, Ino) -> Result<Attributes, Stop>,
    ) -> Result<Attributes> {
        if name.len() > weft_store::NAME_BYTES_MAX {
            return Err(ErrorKind::NameTooLong.into());
        }
        if is_past(parent) {
            return self.past_lookup(caller, parent, name, MovingName::Symlink);
        }
        let found = self.try_run(|state| {
            let entry = state.tree.existing(parent, name)?;
            let attributes = attributes(state, entry.ino)?;
            state.tree.hold_by(caller, entry.ino);
            Ok(attributes)
        });
        match found {
            Err(Refusal::Opaque) => self.opaque.lookup(self, caller, parent, name),
            Err(Refusal::Error(error)) if error.kind() == ErrorKind::NotFound && self.past.is_named(name) => {
                self.enter_past(caller, parent)
            }
            found => Ok(found?),
        }
    }

    /// The inode that `name` in directory `parent` names, of which nothing else is looked at.
    /// `NotFound`, `NotDirectory`.
    pub fn named(&self, parent: Ino, name: &[u8]) -> Result<Ino> {
        self.run(|state| Ok(state.tree.existing(parent, name)?.ino))
    }

    /// The directory that holds directory `ino`; the root holds itself. `NotDirectory`.
    pub fn parent(&self, caller: Caller, ino: Ino) -> Result<Attributes> {
        if is_past(ino) {
            return self.past_parent(caller, ino);
        }
        self.run(|state| {
            let parent = state.tree.directory(ino)?.row.parent;
            let attributes = state.tree.inode(parent)?.attributes();
            state.tree.hold_by(caller, parent);
            Ok(attributes)
        })
    }

    /// Makes an inode of any kind but a symbolic link (POSIX open() with `O_CREAT | O_EXCL`,
    /// mkdir(), mknod()). `Exists`, `NotFound` (the directory was removed), `NotDirectory`,
    /// `NameTooLong`, `NoSpace`, `QuotaExceeded`, `ReadOnly`.
    pub fn make(&self, caller: Caller, parent: Ino, name: &[u8], node: MakeNode) -> Result<Attributes> {
        let name = Name::new(name)?;
        if matches!(node.kind, Kind::Symlink | Kind::Transformation) {
            return Err(ErrorKind::Invalid.into());
        }
        let time = self.now();
        self.change(|state| state.make(caller, parent, Some(&name), node, None, time))
    }

    /// Makes a file without a name (Linux `O_TMPFILE`). It is held once, whatever `caller.holds`.
    pub fn make_unnamed(&self, caller: Caller, parent: Ino, node: MakeNode) -> Result<Attributes> {
        let time = self.now();
        let caller = Caller { holds: crate::Holds::Counted, ..caller };
        self.change(|state| state.make(caller, parent, None, node, None, time))
    }

    /// Makes a symbolic link to `target`, any bytes (POSIX symlink()). As `make`, and `NotFound`
    /// for an empty target, `NameTooLong` for one past 4095 bytes.
    pub fn make_symlink(&self, caller: Caller, parent: Ino, name: &[u8], target: &[u8]) -> Result<Attributes> {
        let name = Name::new(name)?;
        check_target(target)?;
        let time = self.now();
        self.change(|state| state.make(caller, parent, Some(&name), SYMLINK, Some(target), time))
    }

    /// Returns the target of symbolic link `ino`. `Invalid` if it is none.
    pub fn read_symlink(&self, ino: Ino) -> Result<Vec<u8>> {
        if is_past(ino) {
            return self.past_symlink(ino);
        }
        self.run(|state| {
            let row = &state.tree.inode(ino)?.row;
            if row.kind != Kind::Symlink {
                return Err(ErrorKind::Invalid.into());
            }
            Ok(row.inline.as_ref().map(|target| target.to_vec()).unwrap_or_default())
        })
    }

    /// Gives inode `ino` one more name (POSIX link()). `NotPermitted` for a directory,
    /// `TooManyLinks`, `Exists`. An inode without a name that is still held gets one (Linux
    /// linkat() of an `O_TMPFILE`); that the kernel refuses this for an unlinked file is its own
    /// rule.
    pub fn link(&self, caller: Caller, ino: Ino, parent: Ino, name: &[u8]) -> Result<Attributes> {
        let name = Name::new(name)?;
        let time = self.now();
        self.change(|state| {
            let attributes = state.link(ino, parent, &name, time)?;
            state.tree.hold_by(caller, ino);
            Ok(attributes)
        })
    }

    /// Removes a name of anything but a directory (POSIX unlink()). `IsDirectory`, `NotFound`.
    pub fn unlink(&self, parent: Ino, name: &[u8]) -> Result<()> {
        let name = Name::new(name)?;
        let time = self.now();
        self.change(|state| state.unlink(parent, &name, time))
    }

    /// Removes an empty directory (POSIX rmdir()). `NotEmpty`, `NotDirectory`, `NotFound`.
    pub fn remove_directory(&self, parent: Ino, name: &[u8]) -> Result<()> {
        let name = Name::new(name)?;
        let time = self.now();
        self.change(|state| state.remove_directory(parent, &name, time))
    }

    /// Moves a name (POSIX rename(), Linux renameat2()): names in the two directories, replacing
    /// what the target names unless `mode` says otherwise. `Invalid` (a directory would come to lie
    /// below itself), `NotEmpty`, `IsDirectory`, `NotDirectory`, `Exists` (`NoReplace`),
    /// `NotFound`.
    pub fn rename(&self, from: (Ino, &[u8]), to: (Ino, &[u8]), mode: RenameMode) -> Result<()> {
        let from = (from.0, Name::new(from.1)?);
        let to = (to.0, Name::new(to.1)?);
        let time = self.now();
        self.change(|state| state.rename((from.0, &from.1), (to.0, &to.1), mode, time))
    }
}

impl Vfs {
    /// The same, and leaves a whiteout at the old name (Linux `RENAME_WHITEOUT`): a character
    /// device 0/0, by which overlayfs says that a name is
    /// gone. All of it happens at once. `mode` is not `Exchange` (`Invalid`); `QuotaExceeded`.
    pub fn rename_leaving_whiteout(
        &self,
        caller: Caller,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        mode: RenameMode,
    ) -> Result<()> {
        let from = (from.0, Name::new(from.1)?);
        let to = (to.0, Name::new(to.1)?);
        if mode == RenameMode::Exchange {
            return Err(ErrorKind::Invalid.into());
        }
        let time = self.now();
        self.change(|state| state.rename_leaving_whiteout(caller, (from.0, &from.1), (to.0, &to.1), mode, time))
    }
}

impl State {
    /// As [`Vfs::link`].
    pub(crate) fn link(&mut self, ino: Ino, parent: Ino, name: &Name, time: Timestamp) -> Result<Attributes, Stop> {
        self.tree.room(2 * ROW_BYTES)?;
        let row = &self.tree.inode(ino)?.row;
        match row.nlink {
            _ if row.kind == Kind::Directory => return Err(ErrorKind::NotPermitted.into()),
            LINKS_MAX.. => return Err(ErrorKind::TooManyLinks.into()),
            _ => {}
        }
        self.tree.linked_directory(parent)?;
        self.absent(parent, name)?;
        self.ready_for_attributes_after(ino)?;
        let cookie = Cookie(self.tree.next_id());
        self.perform(&Mutation::Link { ino, parent, name: name.clone(), cookie, time })?;
        self.attributes_after(ino)
    }

    /// As [`Vfs::unlink`].
    pub(crate) fn unlink(&mut self, parent: Ino, name: &Name, time: Timestamp) -> Result<(), Stop> {
        let entry = self.tree.existing(parent, name.as_bytes())?;
        if entry.kind == Kind::Directory || self.is_view(entry)? {
            return Err(ErrorKind::IsDirectory.into());
        }
        self.perform(&Mutation::Remove { parent, name: name.clone(), time })
    }

    /// As [`Vfs::remove_directory`].
    pub(crate) fn remove_directory(&mut self, parent: Ino, name: &Name, time: Timestamp) -> Result<(), Stop> {
        let entry = self.tree.existing(parent, name.as_bytes())?;
        // Of a view nothing is stored, so it is empty.
        if !self.is_view(entry)? && self.tree.directory(entry.ino)?.row.size > 0 {
            return Err(ErrorKind::NotEmpty.into());
        }
        self.perform(&Mutation::Remove { parent, name: name.clone(), time })
    }

    /// True if `entry` is a link that looks like a directory.
    fn is_view(&mut self, entry: Entry) -> Result<bool, Stop> {
        Ok(entry.kind == Kind::Transformation && self.looks_like_directory(entry.ino)?)
    }

    /// As [`Vfs::rename`].
    pub(crate) fn rename(
        &mut self,
        from: (Ino, &Name),
        to: (Ino, &Name),
        mode: RenameMode,
        time: Timestamp,
    ) -> Result<(), Stop> {
        if self.permit_rename(from, to, mode)? == Renaming::Nothing {
            return Ok(());
        }
        let exchange = mode == RenameMode::Exchange;
        let cookie = Cookie(self.tree.next_id());
        let (from, to) = ((from.0, from.1.clone()), (to.0, to.1.clone()));
        self.perform(&Mutation::Rename { from, to, exchange, cookie, time })
    }

    /// As [`Vfs::rename_leaving_whiteout`].
    fn rename_leaving_whiteout(
        &mut self,
        caller: Caller,
        from: (Ino, &Name),
        to: (Ino, &Name),
        mode: RenameMode,
        time: Timestamp,
    ) -> Result<(), Stop> {
        self.tree.room(3 * ROW_BYTES)?;
        self.may_grow(0, 1)?;
        if self.permit_rename(from, to, mode)? == Renaming::Nothing {
            return Ok(());
        }
        let directory = &self.tree.directory(from.0)?.row;
        let inherit_group = directory.permissions & SET_GROUP_ID != 0;
        let gid = if inherit_group { directory.gid } else { caller.gid };
        let cookie = Cookie(self.tree.next_id());
        let inode = NewInode {
            // Above the cookie: neither is used again.
            ino: Ino(cookie.0 + 1),
            kind: Kind::CharDevice,
            permissions: 0,
            uid: caller.uid,
            gid,
            rdev: 0,
            target: None,
            access_acl: None,
            default_acl: None,
            time,
        };
        let (from, to) = ((from.0, from.1.clone()), (to.0, to.1.clone()));
        self.perform(&Mutation::Whiteout { from, to, cookie, inode, time })
    }

    /// Checks that a name may be moved. Returns whether there is anything to do.
    fn permit_rename(&mut self, from: (Ino, &Name), to: (Ino, &Name), mode: RenameMode) -> Result<Renaming, Stop> {
        let moved = self.tree.existing(from.0, from.1.as_bytes())?;
        self.tree.linked_directory(to.0)?;
        let target = self.tree.entry(to.0, to.1.as_bytes())?;
        let exchange = mode == RenameMode::Exchange;
        match (mode, target) {
            (RenameMode::NoReplace, Some(_)) => return Err(ErrorKind::Exists.into()),
            (RenameMode::Exchange, None) => return Err(ErrorKind::NotFound.into()),
            (_, None) if self.reserved.as_ref() == Some(to.1) => return Err(ErrorKind::Exists.into()),
            // Two names of one inode: nothing happens (POSIX rename()).
            (_, Some(target)) if target.ino == moved.ino => return Ok(Renaming::Nothing),
            _ => {}
        }
        self.not_below(moved, to.0)?;
        match target {
            Some(target) if exchange => self.not_below(target, from.0)?,
            Some(target) => self.replaceable(moved, target)?,
            None => {}
        }
        Ok(Renaming::Moves)
    }

    /// As [`Vfs::make`], [`Vfs::make_unnamed`] without a name, [`Vfs::make_symlink`] with a target.
    pub fn make(
        &mut self,
        caller: Caller,
        parent: Ino,
        name: Option<&Name>,
        node: MakeNode,
        target: Option<&[u8]>,
        time: Timestamp,
    ) -> Result<Attributes, Stop> {
        self.tree.room(3 * ROW_BYTES)?;
        self.may_grow(0, 1)?;
        let directory = self.tree.linked_directory(parent)?;
        let (directory_gid, directory_bits) = (directory.row.gid, directory.row.permissions);
        if let Some(name) = name {
            self.absent(parent, name)?;
        }
        let is_link = matches!(node.kind, Kind::Symlink | Kind::Transformation);
        let default_acl = if is_link { None } else { self.default_acl(parent)? };
        let mut permissions = node.permissions & 0o7777;
        let mut access_acl = None;
        match &default_acl {
            Some(acl) => {
                let acl = acl.clone().inherited(permissions);
                permissions = permissions & !0o777 | acl.permissions();
                access_acl = (!acl.is_minimal()).then(|| Cow::Owned(acl.to_bytes()));
            }
            None => permissions &= !node.umask,
        }
        let is_directory = node.kind == Kind::Directory;
        let inherit_group = directory_bits & SET_GROUP_ID != 0;
        if inherit_group && is_directory {
            permissions |= SET_GROUP_ID;
        }
        let ino = Ino(self.tree.next_id());
        let inode = NewInode {
            ino,
            kind: node.kind,
            permissions,
            uid: caller.uid,
            gid: if inherit_group { directory_gid } else { caller.gid },
            rdev: node.rdev,
            target: target.map(Cow::Borrowed),
            access_acl,
            default_acl: default_acl.filter(|_| is_directory).map(|acl| Cow::Owned(acl.to_bytes())),
            time,
        };
        let name = name.map(|name| (name.clone(), Cookie(ino.0)));
        self.perform(&Mutation::Make { parent, name, inode })?;
        self.tree.hold_by(caller, ino);
        self.attributes_after(ino)
    }

    fn default_acl(&mut self, parent: Ino) -> Result<Option<Acl>, Stop> {
        if !self.tree.directory(parent)?.row.has_xattrs() {
            return Ok(None);
        }
        let value = self.tree.xattrs(parent)?.map.get(DEFAULT_ACL);
        Ok(value.map(|value| Acl::parse(value)).transpose()?)
    }

    /// `Exists` if `name` is in `parent`, or leads to its past.
    pub(crate) fn absent(&mut self, parent: Ino, name: &Name) -> Result<(), Stop> {
        let is_there = self.tree.entry(parent, name.as_bytes())?.is_some() || self.reserved.as_ref() == Some(name);
        if is_there { Err(ErrorKind::Exists.into()) } else { Ok(()) }
    }

    /// `Invalid` if `directory` is a directory that holds `place`, at any depth, or is it.
    fn not_below(&mut self, directory: Entry, place: Ino) -> Result<(), Stop> {
        if directory.kind == Kind::Directory && self.tree.is_within(place, directory.ino)? {
            return Err(ErrorKind::Invalid.into());
        }
        Ok(())
    }

    /// Checks that `moved` may replace `target` (POSIX rename()).
    fn replaceable(&mut self, moved: Entry, target: Entry) -> Result<(), Stop> {
        match (moved.kind == Kind::Directory, target.kind == Kind::Directory) {
            (true, false) => Err(ErrorKind::NotDirectory.into()),
            (false, true) => Err(ErrorKind::IsDirectory.into()),
            (true, true) if self.tree.directory(target.ino)?.row.size > 0 => Err(ErrorKind::NotEmpty.into()),
            _ => Ok(()),
        }
    }
}
