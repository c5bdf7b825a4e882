//! Making links, and telling how they were made.

use super::compiled::Link;
use super::link_definition::{LinkDefinition, LinkOrder};
use crate::attachment::Attachment;
use crate::layer::Links;
use crate::linked_tree::LinkedTree;
use std::sync::Arc;
use weft_store::{Ino, Kind, Name};
use weft_tree::{Attributes, Caller, Error, ErrorKind, MakeNode, ROW_BYTES, Result, SetAttributes, Stop};
use weft_vfs::Asker;

impl Links<'_> {
    /// Makes a transformation link, which to all who use it is a regular file. As
    /// [`weft_vfs::Vfs::make`]; `Invalid` if [`LinkDefinition::check`] says what is wrong,
    /// `NotPermitted` if the caller may make none that runs code of its own, or none that uses
    /// keys, `AccessDenied` if the asker may not add names to the directory: whoever may set its
    /// attributes need not. `Loop` if it would be a view in the directory that it shows.
    pub fn make_link(
        &self,
        caller: Caller,
        parent: Ino,
        name: &[u8],
        permissions: u32,
        definition: &LinkDefinition,
    ) -> Result<Attributes> {
        let name = Name::new(name)?;
        definition.check().map_err(|_| ErrorKind::Invalid)?;
        let options = &self.layer.options;
        let is_allowed = options.owners.allows(caller.uid);
        if !is_allowed || definition.is_exported() && !options.exported.allows(caller.uid) {
            return Err(ErrorKind::NotPermitted.into());
        }
        if definition.has_keys() && !options.gives_keys(caller.uid) {
            return Err(ErrorKind::NotPermitted.into());
        }
        let wants_opens = definition.wants_opens();
        let target = LinkDefinition { trusted: definition.is_exported(), ..definition.clone() }.encode();
        let node = MakeNode { kind: Kind::Transformation, permissions, umask: 0, rdev: 0 };
        let time = self.now();
        let made = self.change(|state| {
            let gid = LinkedTree::of(state).permit_made(definition, parent, caller)?;
            // Once it is made there is no going back.
            state.tree().room(9 * ROW_BYTES)?;
            let notes_opens = wants_opens && state.may_want_opens()?;
            let made = state.make(caller, parent, Some(&name), node, Some(&target), time)?;
            if notes_opens {
                self.put_opens(state)?;
            }
            let set = SetAttributes { gid: Some(gid), ..SetAttributes::default() };
            if made.gid == gid { Ok(made) } else { state.set_attributes(made.ino, set, time) }
        })?;
        // Resolving it may have taken more than there was when it was made.
        if !wants_opens && !self.run(|state| state.is_for_all(made.ino)).unwrap_or(false) {
            self.want_opens()?;
        }
        Ok(made)
    }

    /// Returns the order that would make transformation link `ino`, without a name; none if it is
    /// no such link. Its permission bits are its own, whatever it leads to. `Corrupt` if its row
    /// makes no sense, `AccessDenied` if the asker may not see the definition.
    pub fn link_order(&self, ino: Ino) -> Result<Option<LinkOrder>> {
        self.run(|state| {
            let row = &state.tree.inode(ino)?.row;
            let (kind, permissions) = (row.kind, row.permissions & 0o777);
            if kind != Kind::Transformation {
                return Ok(None);
            }
            let definition = state.link_of(ino)?.definition().into_owned();
            state.permit_definition(ino)?;
            Ok(Some(LinkOrder { name: Vec::new(), permissions, definition }))
        })
    }
}

impl LinkedTree<'_> {
    /// Checks that `caller` may make a link in directory `parent`. Returns the link's group.
    fn permit_made(&mut self, definition: &LinkDefinition, parent: Ino, caller: Caller) -> Result<u32, Stop> {
        if !self.asker_may_add(parent)? {
            return Err(ErrorKind::AccessDenied.into());
        }
        if self.would_show_itself(definition, parent)? {
            return Err(ErrorKind::Loop.into());
        }
        self.gid_of_made(parent, caller)
    }

    /// The group of a link that `caller` makes in directory `parent`: one that the caller is in,
    /// for the maker's rights are that group's, too. A directory gives its group to no links of
    /// strangers.
    fn gid_of_made(&mut self, parent: Ino, caller: Caller) -> Result<u32, Stop> {
        let directory = &self.tree.directory(parent)?.row;
        let (gid, gives) = (directory.gid, directory.permissions & libc::S_ISGID != 0);
        let is_member = |asker: &Asker| match asker {
            Asker::User(person) => person.is_member(gid) == Some(true),
            Asker::Holder | Asker::Anybody => false,
        };
        let may = caller.uid == 0 || caller.gid == gid || Asker::now(is_member);
        Ok(if gives && may { gid } else { caller.gid })
    }

    /// The definition of transformation link `ino`. `Corrupt` if it cannot be read, which a later
    /// Weft may still do.
    pub(crate) fn link_of(&mut self, ino: Ino) -> Result<Arc<Link>, Stop> {
        let inode = self.tree.inode(ino)?;
        if let Some(link) = Attachment::link(inode) {
            return Ok(link.clone());
        }
        if let Some(shows) = Attachment::shows(inode).cloned() {
            let view = inode.row.parent;
            return self.link_shown(ino, view, &shows);
        }
        let link = Link::read(inode).ok_or_else(|| Error::new(ErrorKind::Corrupt, ino))?;
        let link = Arc::new(link);
        Attachment::Link(link.clone()).put(inode);
        self.tree.inodes.reweigh(&ino);
        Ok(link)
    }
}
