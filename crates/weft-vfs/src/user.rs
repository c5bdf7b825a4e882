//! The volume as one user may use it: each operation checks the user's rights, and tells how what
//! it changed looked before and after, all in one step. For protocols whose requests name inodes by
//! handles and come from anyone (NFS).
//!
//! A client keeps the attributes of a handle for all its users. So a link that is closed to a user
//! ([`Reach::Nobody`]) has another handle for that one, with a generation that no inode has
//! ([`CLOSED`]): it always looks the same, and gives nothing. By the handle that others have, such
//! a user is told nothing at all.

mod append;
mod past;
mod replacement;

use crate::asker::{Asker, Asking};
use crate::observe::Change;
use crate::opaque::Detail;
use crate::operations::{SYMLINK, check_target};
use crate::refusal::Refusal;
use crate::state::State;
use crate::volume::Vfs;
use std::ops::Range;
use weft_block::Rope;
use weft_store::{Cookie, Ino, Kind, Name, Timestamp};
use weft_tree::{
    Access, Attributes, Caller, Credentials, Data, DirEntry, Error, ErrorKind, FileId, Holds, MakeNode, ROW_BYTES,
    Reach, RenameMode, Result, Rights, SetAttributes, Stop, Writer, is_past,
};

pub use replacement::name_beside;

/// A user's view of a volume, from [`Vfs::user`].
#[derive(Clone, Copy)]
pub struct User<'a> {
    vfs: &'a Vfs,
    who: &'a Credentials,
}

/// Set in the generation of a handle that a user has to whom the link is closed.
const CLOSED: u32 = 1 << 31;

/// Result of an operation, with the attributes of the inode that it changed (of the directory, if
/// it is about a name).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Changed<T> {
    /// The result.
    pub value: T,
    /// As they were when it began.
    pub before: Attributes,
    /// As they were when it ended, nothing else having happened in between.
    pub after: Attributes,
}

/// Treatment of a file that exists already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfExists {
    /// Set those of the attributes that can be set again (its size), and take it.
    Take,
    /// Fail with `Exists`.
    Fail,
    /// Take it if it is empty and has these times still, else fail with `Exists`.
    TakeWithTimes {
        /// Time of its last access.
        atime: Timestamp,
        /// Time of its last change.
        mtime: Timestamp,
    },
}

impl Vfs {
    /// The volume as user `who` may use it.
    pub fn user<'a>(&'a self, who: &'a Credentials) -> User<'a> {
        User { vfs: self, who }
    }
}

impl State {
    /// The inode that `file` names. `Stale` if it is gone.
    fn known(&mut self, file: FileId) -> Result<Ino, Stop> {
        let row = &self.tree.inode(file.ino)?.row;
        let (kind, generation, nlink) = (row.kind, row.generation, row.nlink);
        if nlink == 0 && self.tree.draining.contains(file.ino) {
            return Err(ErrorKind::Stale.into());
        }
        let is_it = file.generation == generation || kind == Kind::Transformation && is_closed(file, generation);
        if is_it { Ok(file.ino) } else { Err(ErrorKind::Stale.into()) }
    }

    /// True if `file` is a handle to which its inode, which is known, is closed.
    fn is_closed(&mut self, file: FileId) -> Result<bool, Stop> {
        Ok(is_closed(file, self.tree.inode(file.ino)?.row.generation))
    }

    /// Attributes of `file`, as the user sees them. `AccessDenied` if its inode is closed to that
    /// user, and `file` is what others call it.
    fn look_by(&mut self, file: FileId) -> Result<Attributes, Stop> {
        let ino = self.known(file)?;
        if self.is_closed(file)? {
            return self.attributes_in(ino, Detail::Closed);
        }
        let attributes = self.look(ino)?;
        let is_closed = attributes.reach == Reach::Nobody && attributes.kind == Kind::File;
        if is_closed { Err(ErrorKind::AccessDenied.into()) } else { Ok(attributes) }
    }

    fn look(&mut self, ino: Ino) -> Result<Attributes, Stop> {
        self.attributes_in(ino, Detail::Measured)
    }
}

/// True if `file` is the handle of a closed link of that `generation`.
fn is_closed(file: FileId, generation: u32) -> bool {
    file.generation == generation ^ CLOSED
}

/// `attributes` of what a user finds, with the generation that its handle is to have.
fn found(attributes: Attributes) -> Attributes {
    let is_closed = attributes.reach == Reach::Nobody && attributes.kind == Kind::File;
    Attributes { generation: attributes.generation ^ if is_closed { CLOSED } else { 0 }, ..attributes }
}

impl User<'_> {
    /// The thread works for the user.
    fn asks(&self) -> Asking {
        Asker::user(self.who).asks()
    }

    fn caller(&self) -> Caller {
        Caller { uid: self.who.uid, gid: self.who.gid, holds: Holds::None }
    }

    /// Runs `operation` on the inode of `file`, and tells how it looked before and after.
    fn change<T>(
        &self,
        file: FileId,
        mut operation: impl FnMut(&mut State, Ino) -> Result<T, Stop>,
    ) -> Result<Changed<T>, Refusal> {
        if is_past(file.ino) {
            return Err(Error::new(ErrorKind::ReadOnly, file.ino).into());
        }
        let _asking = self.asks();
        let changed = self.vfs.try_change(|state| {
            let ino = state.known(file)?;
            let before = state.look(ino)?;
            let value = operation(state, ino)?;
            Ok(Changed { value, before, after: state.attributes_after(ino)? })
        });
        changed.map_err(|refusal| refusal.about(file.ino))
    }

    /// Does `work` to what link `file` leads to, which was permitted; not in one step with what is
    /// told of it.
    fn through(&self, file: FileId, work: impl FnOnce() -> Result<()>) -> Result<Changed<()>> {
        let before = self.attributes(file)?;
        work()?;
        Ok(Changed { value: (), before, after: self.attributes(file)? })
    }

    fn entry_changed(&self, parent: FileId, name: &Name) -> Change {
        Change::Entry { parent: parent.ino, name: name.clone() }
    }

    /// Attributes of an inode. `Stale`.
    pub fn attributes(&self, file: FileId) -> Result<Attributes> {
        if is_past(file.ino) {
            return self.past_attributes(file);
        }
        let _asking = self.asks();
        self.vfs.run(|state| state.look_by(file))
    }

    /// Returns which of `rights` the user has on an inode, and the inode's attributes.
    pub fn access<const N: usize>(&self, file: FileId, rights: [Access; N]) -> Result<([bool; N], Attributes)> {
        if is_past(file.ino) {
            return self.past_access(file, rights);
        }
        let _asking = self.asks();
        self.vfs.run(|state| {
            let attributes = state.look_by(file)?;
            let mut has = [false; N];
            if attributes.reach == Reach::Nobody {
                return Ok((has, attributes));
            }
            for (has, right) in has.iter_mut().zip(rights) {
                *has = state.allows(self.who, file.ino, right)?;
            }
            Ok((has, attributes))
        })
    }

    /// True if directory `directory` is `top` or lies below it, at any depth.
    pub fn is_within(&self, directory: FileId, top: Ino) -> Result<bool> {
        let directory = self.present_of(directory)?;
        self.vfs.run(|state| {
            let directory = state.known(directory)?;
            state.tree.is_within(directory, top)
        })
    }

    /// Returns the attributes of the inode named `name` in directory `parent`, and of the
    /// directory. `NotFound`, `AccessDenied`, `NotDirectory`, `NameTooLong`.
    pub fn lookup(&self, parent: FileId, name: &[u8]) -> Result<(Attributes, Attributes)> {
        if name.len() > weft_store::NAME_BYTES_MAX {
            return Err(ErrorKind::NameTooLong.into());
        }
        if is_past(parent.ino) {
            return self.past_lookup(parent, name);
        }
        let _asking = self.asks();
        let looked_up = self.vfs.try_run(|state| {
            let ino = state.known(parent)?;
            let is_link = state.tree.inode(ino)?.row.kind == Kind::Transformation;
            if !is_link {
                state.tree.directory(ino)?;
            }
            state.permit(self.who, ino, Access::EXECUTE)?;
            if is_link {
                // It may look like a directory; no more can be said here.
                return Err(Stop::Opaque);
            }
            let named = match name {
                b"." => ino,
                b".." => state.tree.directory(ino)?.row.parent,
                name => state.tree.existing(ino, name)?.ino,
            };
            Ok((found(state.look(named)?), state.look(ino)?))
        });
        match looked_up {
            Err(Refusal::Opaque) => {
                let in_view = self.vfs.opaque.lookup(self.vfs, self.caller(), parent.ino, name)?;
                Ok((found(in_view), self.attributes(parent)?))
            }
            Err(Refusal::Error(error)) if error.kind() == ErrorKind::NotFound && self.vfs.past.is_named(name) => {
                Ok((self.vfs.enter_past(self.caller(), parent.ino)?, self.attributes(parent)?))
            }
            looked_up => Ok(looked_up?),
        }
    }

    /// Sets attributes, if ctime is `guard` where one is given (`NotSynchronized` if not); as
    /// [`Vfs::set_attributes`], `NotPermitted`, `AccessDenied`.
    pub fn set_attributes(
        &self,
        file: FileId,
        changes: SetAttributes,
        mut guard: impl FnMut(&Attributes) -> bool,
    ) -> Result<Changed<()>> {
        let _asking = self.asks();
        self.vfs.prepare_owner(file.ino, &changes)?;
        let time = self.vfs.now();
        let mut permitted = changes;
        let changed = self.change(file, |state, ino| {
            if !guard(&state.look(ino)?) {
                return Err(ErrorKind::NotSynchronized.into());
            }
            let changes = state.permit_attributes(self.who, ino, changes)?;
            permitted = changes;
            state.set_attributes(ino, changes, time).map(|_| ())
        });
        let changed = match changed {
            Err(Refusal::Opaque) => {
                self.vfs.opaque.permit_unopened(self.vfs, file.ino)?;
                self.through(file, || self.vfs.set_attributes(file.ino, permitted).map(|_| ()))?
            }
            changed => changed?,
        };
        self.vfs.rights_changed(file.ino, &changes);
        let cut = changed.before.size.min(changed.after.size);
        self.vfs.announce([match changes.size {
            Some(_) => Change::Content { ino: file.ino, range: cut..u64::MAX },
            None => Change::Attributes { ino: file.ino },
        }]);
        Ok(changed)
    }

    /// Reads as [`Vfs::read`], and tells the attributes then. `AccessDenied`.
    pub fn read(&self, file: FileId, offset: u64, len: usize) -> Result<(Rope, Attributes)> {
        if is_past(file.ino) {
            return self.past_read(file, offset, len);
        }
        let _asking = self.asks();
        self.vfs.run(|state| {
            let ino = state.known(file)?;
            if state.is_closed(file)? {
                return Err(ErrorKind::AccessDenied.into());
            }
            if state.tree.inode(ino)?.row.kind != Kind::Transformation {
                state.tree.file(ino)?;
            }
            state.permit_opened(self.who, ino, Access::READ)
        })?;
        let data = self.vfs.read(file.ino, offset, len)?;
        Ok((data, self.attributes(file)?))
    }

    /// Writes as [`Vfs::write`]. `AccessDenied`.
    pub fn write(&self, file: FileId, offset: u64, data: &[u8]) -> Result<Changed<()>> {
        let _asking = self.asks();
        let time = self.vfs.now();
        let mut writer = Writer::Stranger;
        let range = offset..offset.saturating_add(data.len() as u64);
        self.have_written_back(file, &range);
        let shared = Data::shared_copy(offset, data, self.vfs.block_size);
        let changed = self.change(file, |state, ino| {
            if state.tree.inode(ino)?.row.kind != Kind::Transformation {
                state.tree.file(ino)?;
            }
            state.permit_opened(self.who, ino, Access::WRITE)?;
            writer = state.writer(self.who, ino)?;
            state.write(ino, offset, Data::of(shared.as_ref(), data), writer, time).map(|_| ())
        });
        let changed = match changed {
            Err(Refusal::Opaque) => {
                self.vfs.opaque.permit_unopened(self.vfs, file.ino)?;
                self.through(file, || self.vfs.write(file.ino, offset, data, writer).map(|_| ()))?
            }
            changed => changed?,
        };
        self.vfs.announce([Change::Content { ino: file.ino, range }]);
        Ok(changed)
    }

    /// Has what programs changed in pages that they have mapped written, if this user may write to
    /// `file`: a kernel writes all of a page, and would do so over what this user writes in it.
    fn have_written_back(&self, file: FileId, range: &Range<u64>) {
        let may_write = self.vfs.run(|state| {
            let ino = state.known(file)?;
            state.permit_opened(self.who, ino, Access::WRITE)
        });
        if may_write.is_ok() {
            self.vfs.announce([Change::Content { ino: file.ino, range: range.clone() }]);
        }
    }

    /// Makes a file in directory `parent` and sets `changes` on it; or takes one that is there. As
    /// [`Vfs::make`].
    pub fn create(
        &self,
        parent: FileId,
        name: &[u8],
        node: MakeNode,
        changes: SetAttributes,
        if_exists: IfExists,
    ) -> Result<Changed<Attributes>> {
        let name = Name::new(name)?;
        let time = self.vfs.now();
        let mut made = false;
        let changed = self.change(parent, |state, parent| {
            state.tree.directory(parent)?;
            state.permit(self.who, parent, Access::EXECUTE)?;
            let Some(entry) = state.tree.entry(parent, name.as_bytes())? else {
                made = true;
                return self.make_in(state, parent, &name, node, None, changes, time);
            };
            let there = found(state.look(entry.ino)?);
            match if_exists {
                IfExists::Take if there.kind == Kind::File => {
                    let again = SetAttributes { size: changes.size, ..SetAttributes::default() };
                    let Some(_) = again.size else { return Ok(there) };
                    let again = state.permit_attributes(self.who, entry.ino, again)?;
                    state.set_attributes(entry.ino, again, time)
                }
                IfExists::TakeWithTimes { atime, mtime }
                    if there.kind == Kind::File && there.size == 0 && (there.atime, there.mtime) == (atime, mtime) =>
                {
                    Ok(there)
                }
                _ => Err(ErrorKind::Exists.into()),
            }
        })?;
        let truncated = Change::Content { ino: changed.value.ino, range: changes.size.unwrap_or(0)..u64::MAX };
        match (made, changes.size) {
            (true, _) => self.vfs.announce([self.entry_changed(parent, &name)]),
            (false, Some(_)) => self.vfs.announce([truncated]),
            (false, None) => {}
        }
        Ok(changed)
    }

    /// Makes anything but a regular file in directory `parent`; a symbolic link if there is a
    /// `target`. As [`Vfs::make`], `AccessDenied`, `NotPermitted` (a device, by anyone but the
    /// super-user).
    pub fn make(
        &self,
        parent: FileId,
        name: &[u8],
        node: MakeNode,
        target: Option<&[u8]>,
        changes: SetAttributes,
    ) -> Result<Changed<Attributes>> {
        let name = Name::new(name)?;
        let time = self.vfs.now();
        target.map_or(Ok(()), check_target)?;
        if matches!(node.kind, Kind::CharDevice | Kind::BlockDevice) && !self.who.is_root() {
            return Err(ErrorKind::NotPermitted.into());
        }
        let node = if target.is_some() { SYMLINK } else { node };
        let changed =
            self.change(parent, |state, parent| self.make_in(state, parent, &name, node, target, changes, time))?;
        self.vfs.announce([self.entry_changed(parent, &name)]);
        Ok(changed)
    }

    #[expect(clippy::too_many_arguments, reason = "what is made, where, and what it is then set to")]
    fn make_in(
        &self,
        state: &mut State,
        parent: Ino,
        name: &Name,
        node: MakeNode,
        target: Option<&[u8]>,
        changes: SetAttributes,
        time: Timestamp,
    ) -> Result<Attributes, Stop> {
        state.tree.linked_directory(parent)?;
        state.absent(parent, name)?;
        state.permit_adding(self.who, parent)?;
        // For both: once it is made there is no going back.
        state.tree.room(8 * ROW_BYTES)?;
        let gives_away = changes.uid.is_some_and(|uid| uid != self.who.uid)
            || changes.gid.is_some_and(|gid| !self.who.is_member(gid));
        if gives_away && !self.who.is_root() {
            return Err(ErrorKind::NotPermitted.into());
        }
        let permissions = state.permitted_bits(self.who, parent, node.kind, node.permissions)?;
        let node = MakeNode { permissions, ..node };
        let made = state.make(self.caller(), parent, Some(name), node, target, time)?;
        // It is empty as it is.
        let changes = SetAttributes { size: changes.size.filter(|size| *size > 0), ..changes };
        if changes == SetAttributes::default() {
            return Ok(made);
        }
        state.set_attributes(made.ino, changes, time)
    }

    /// Gives inode `file` one more name. As [`Vfs::link`], `AccessDenied`; tells its attributes.
    pub fn link(&self, file: FileId, parent: FileId, name: &[u8]) -> Result<Changed<Attributes>> {
        let name = Name::new(name)?;
        let time = self.vfs.now();
        let changed = self.change(parent, |state, parent| {
            if is_past(file.ino) {
                return Err(ErrorKind::CrossDevice.into());
            }
            let ino = state.known(file)?;
            if state.tree.inode(ino)?.row.nlink == 0 {
                return Err(ErrorKind::NotFound.into());
            }
            state.permit_adding(self.who, parent)?;
            state.link(ino, parent, &name, time)
        })?;
        self.vfs.announce([self.entry_changed(parent, &name), Change::Attributes { ino: file.ino }]);
        Ok(changed)
    }

    /// Removes a name of anything but a directory. As [`Vfs::unlink`], `AccessDenied`,
    /// `NotPermitted` (the directory is sticky).
    pub fn unlink(&self, parent: FileId, name: &[u8]) -> Result<Changed<()>> {
        let name = Name::new(name)?;
        let time = self.vfs.now();
        let mut removed = None;
        let changed = self.change(parent, |state, parent| {
            state.permit_removing(self.who, parent, name.as_bytes())?;
            removed = state.tree.entry(parent, name.as_bytes())?.map(|entry| entry.ino);
            state.unlink(parent, &name, time)
        })?;
        let removed = removed.map(|ino| Change::Attributes { ino });
        self.vfs.announce([self.entry_changed(parent, &name)].into_iter().chain(removed));
        Ok(changed)
    }

    /// Removes an empty directory. As [`Vfs::remove_directory`], `AccessDenied`, `NotPermitted`.
    pub fn remove_directory(&self, parent: FileId, name: &[u8]) -> Result<Changed<()>> {
        let name = Name::new(name)?;
        let time = self.vfs.now();
        let changed = self.change(parent, |state, parent| {
            state.permit_removing(self.who, parent, name.as_bytes())?;
            state.remove_directory(parent, &name, time)
        })?;
        self.vfs.announce([self.entry_changed(parent, &name)]);
        Ok(changed)
    }

    /// Moves a name, replacing what the target names. As [`Vfs::rename`], `AccessDenied`,
    /// `NotPermitted`; tells of both directories, that it came from and that it went to.
    pub fn rename(&self, from: (FileId, &[u8]), to: (FileId, &[u8])) -> Result<[Changed<()>; 2]> {
        self.rename_as(from, to, RenameMode::Replace)
    }

    /// The same, unless something has the new name: `Exists`.
    pub fn rename_to_new(&self, from: (FileId, &[u8]), to: (FileId, &[u8])) -> Result<[Changed<()>; 2]> {
        self.rename_as(from, to, RenameMode::NoReplace)
    }

    fn rename_as(&self, from: (FileId, &[u8]), to: (FileId, &[u8]), mode: RenameMode) -> Result<[Changed<()>; 2]> {
        if is_past(to.0.ino) {
            return Err(Error::new(ErrorKind::ReadOnly, to.0.ino));
        }
        let names = (Name::new(from.1)?, Name::new(to.1)?);
        let time = self.vfs.now();
        let changed = self.change(from.0, |state, source| {
            let target = state.known(to.0)?;
            let before = state.look(target)?;
            state.permit_removing(self.who, source, names.0.as_bytes())?;
            state.permit_removing(self.who, target, names.1.as_bytes())?;
            let moved = state.tree.existing(source, names.0.as_bytes())?;
            state.permit_moving(self.who, moved, source, target)?;
            let replaced = state.tree.entry(target, names.1.as_bytes())?.map(|entry| entry.ino);
            state.rename((source, &names.0), (target, &names.1), mode, time)?;
            Ok((replaced, before, state.look(target)?))
        })?;
        let (replaced, before, after) = changed.value;
        let replaced = replaced.map(|ino| Change::Attributes { ino });
        let entries = [self.entry_changed(from.0, &names.0), self.entry_changed(to.0, &names.1)];
        self.vfs.announce(entries.into_iter().chain(replaced));
        let source = Changed { value: (), before: changed.before, after: changed.after };
        Ok([source, Changed { value: (), before, after }])
    }

    /// Returns the target of symbolic link `file`, and its attributes. `Invalid` if it is none.
    pub fn read_symlink(&self, file: FileId) -> Result<(Vec<u8>, Attributes)> {
        let attributes = self.attributes(file)?;
        Ok((self.vfs.read_symlink(file.ino)?, attributes))
    }

    /// Entries of directory `directory`, as [`Vfs::read_directory`]. `AccessDenied`.
    pub fn read_directory(&self, directory: FileId, after: Cookie, limit: usize) -> Result<Vec<DirEntry>> {
        if is_past(directory.ino) {
            return self.past_list(directory, after, limit);
        }
        let _asking = self.asks();
        self.permit_listing(directory)?;
        self.vfs.read_directory(directory.ino, after, limit)
    }

    fn permit_listing(&self, directory: FileId) -> Result<()> {
        self.vfs.run(|state| {
            let ino = state.known(directory)?;
            if state.tree.inode(ino)?.row.kind != Kind::Transformation {
                state.tree.directory(ino)?;
            }
            state.permit(self.who, ino, Access::READ)
        })
    }

    /// The same with attributes, where the user may look names up and nobody has removed what was
    /// listed.
    pub fn read_directory_attributes(
        &self,
        directory: FileId,
        after: Cookie,
        limit: usize,
    ) -> Result<Vec<(DirEntry, Option<Attributes>)>> {
        if is_past(directory.ino) {
            return self.past_list_attributes(directory, after, limit);
        }
        let _asking = self.asks();
        let entries = self.read_directory(directory, after, limit)?;
        let ([may_look], _) = self.access(directory, [Access::EXECUTE])?;
        let told = |entry: DirEntry| {
            let attributes = if may_look { self.vfs.listed_attributes(self.caller(), &entry)? } else { None };
            Ok((entry, attributes))
        };
        entries.into_iter().map(told).collect()
    }
}
