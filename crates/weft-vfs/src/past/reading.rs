//! Operations on nodes of the past, by their numbers. Each is the operation of the same name on the
//! volume as of the node's commit.

use super::node::{PastInode, PastNode};
use super::views::View;
use super::{Found, MovingName};
use crate::opaque::Detail;
use crate::volume::Vfs;
use weft_block::Rope;
use weft_store::{Cookie, Ino, Name};
use weft_tree::{ACCESS_ACL, Acl, Attributes, Caller, DirEntry, ErrorKind, Holds, Result, Whence};

impl Vfs {
    /// `attributes` of `inode`, with its number here.
    pub(super) fn as_past(
        &self,
        view: &View,
        inode: PastInode,
        attributes: Attributes,
        holds: Holds,
    ) -> Result<Attributes> {
        let node = PastNode::Inode(inode);
        let ino = self.past.numbers.give(view.identity(inode)?, node, holds);
        Ok(self.as_shown(Attributes { ino, ..attributes }))
    }

    /// `attributes` of an inode in the same view as `near`, with its number here. It is not held.
    pub(crate) fn past_of(&self, view: &View, near: PastInode, attributes: Attributes) -> Result<Attributes> {
        self.as_past(view, PastInode { ino: attributes.ino, ..near }, attributes, Holds::None)
    }

    pub(crate) fn past_lookup(
        &self,
        caller: Caller,
        parent: Ino,
        name: &[u8],
        moving: MovingName,
    ) -> Result<Attributes> {
        let (view, inode) = match self.find_past(parent)? {
            Found::Made(node) => return self.lookup_made(caller, node, name, moving),
            Found::Inode(view, inode) => (view, inode),
        };
        let found = view.vfs.lookup_at_once(caller, inode.ino, name)?;
        let told = self.as_past(&view, PastInode { ino: found.ino, ..inode }, found, caller.holds);
        if caller.holds == Holds::Counted && (!weft_tree::is_virtual(found.ino) || told.is_err()) {
            // What is stored is there whether somebody holds it or not.
            view.vfs.release(found.ino, 1);
        }
        told
    }

    pub(crate) fn past_parent(&self, caller: Caller, ino: Ino) -> Result<Attributes> {
        let found = self.find_past(ino)?;
        self.above(caller, found)
    }

    pub(crate) fn past_attributes(&self, ino: Ino, detail: Detail) -> Result<Attributes> {
        match self.find_past(ino)? {
            Found::Made(node) => Ok(Attributes { ino, ..self.made(node, Holds::None)? }),
            Found::Inode(view, inode) => {
                let attributes = view.vfs.attributes_in(inode.ino, detail)?;
                Ok(self.as_shown(Attributes { ino, ..attributes }))
            }
        }
    }

    pub(crate) fn past_read(&self, ino: Ino, offset: u64, len: usize) -> Result<Rope> {
        match self.find_past(ino)? {
            Found::Made(_) => Err(ErrorKind::IsDirectory.into()),
            Found::Inode(view, inode) => view.vfs.read(inode.ino, offset, len),
        }
    }

    pub(crate) fn past_seek(&self, ino: Ino, offset: u64, whence: Whence) -> Result<u64> {
        match self.find_past(ino)? {
            Found::Made(_) => Err(ErrorKind::IsDirectory.into()),
            Found::Inode(view, inode) => view.vfs.seek(inode.ino, offset, whence),
        }
    }

    pub(crate) fn past_symlink(&self, ino: Ino) -> Result<Vec<u8>> {
        match self.find_past(ino)? {
            Found::Made(node) => self.target_of_made(node),
            Found::Inode(view, inode) => view.vfs.read_symlink(inode.ino),
        }
    }

    pub(crate) fn past_list(&self, ino: Ino, after: Cookie, limit: usize) -> Result<Vec<DirEntry>> {
        let (view, inode) = match self.find_past(ino)? {
            Found::Made(node) => return self.list_made(node, after, limit),
            Found::Inode(view, inode) => (view, inode),
        };
        let mut entries = view.vfs.read_directory(inode.ino, after, limit)?;
        for entry in &mut entries {
            let inode = PastInode { ino: entry.ino, ..inode };
            entry.ino = match view.identity(inode) {
                Ok(identity) => self.past.numbers.give(identity, PastNode::Inode(inode), Holds::None),
                // Whoever asks for one that is damaged is told. It must not hide the others.
                Err(error) if matches!(error.kind(), ErrorKind::Stale | ErrorKind::Corrupt) => ino,
                Err(error) => return Err(error),
            };
        }
        Ok(entries)
    }

    pub(crate) fn past_list_attributes(
        &self,
        caller: Caller,
        ino: Ino,
        after: Cookie,
        limit: usize,
    ) -> Result<Vec<(DirEntry, Option<Attributes>)>> {
        let (view, inode) = match self.find_past(ino)? {
            Found::Made(node) => {
                let entries = self.list_made(node, after, limit)?;
                return Ok(entries.into_iter().map(|entry| (entry, None)).collect());
            }
            Found::Inode(view, inode) => (view, inode),
        };
        let held_by_none = Caller { holds: Holds::None, ..caller };
        let listed = view.vfs.read_directory_attributes(held_by_none, inode.ino, after, limit)?;
        let told = |(entry, attributes): (DirEntry, Option<Attributes>)| {
            let inode = PastInode { ino: entry.ino, ..inode };
            let known =
                attributes.map(|attributes| self.as_past(&view, inode, attributes, caller.holds)).transpose()?;
            let ino = match &known {
                Some(attributes) => attributes.ino,
                None => self.number_of(PastNode::Inode(inode), Holds::None).unwrap_or(ino),
            };
            Ok((DirEntry { ino, ..entry }, known))
        };
        listed.into_iter().map(told).collect()
    }

    pub(crate) fn past_xattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        match self.find_past(ino)? {
            Found::Made(_) => Err(ErrorKind::NoAttribute.into()),
            Found::Inode(view, inode) => {
                let value = view.vfs.xattr(inode.ino, name)?;
                let is_hiding = name == ACCESS_ACL && self.hides_write(view.vfs.attributes(inode.ino)?.kind);
                match Acl::parse(&value) {
                    Ok(list) if is_hiding => Ok(list.without_write().to_bytes()),
                    _ => Ok(value),
                }
            }
        }
    }

    pub(crate) fn past_xattr_names(&self, ino: Ino) -> Result<Vec<Name>> {
        match self.find_past(ino)? {
            Found::Made(_) => Ok(Vec::new()),
            Found::Inode(view, inode) => view.vfs.xattr_names(inode.ino),
        }
    }

    pub(crate) fn past_is_opaque(&self, ino: Ino) -> Result<bool> {
        match self.find_past(ino)? {
            Found::Made(_) => Ok(false),
            Found::Inode(view, inode) => view.vfs.is_opaque(inode.ino),
        }
    }

    /// A path of `ino`, for messages.
    pub(crate) fn past_path(&self, ino: Ino) -> Vec<u8> {
        match self.find_past(ino) {
            Ok(Found::Inode(view, inode)) => {
                let commit = format!(" as of commit {}", inode.commit.0);
                [&view.vfs.path(inode.ino)[..], commit.as_bytes()].concat()
            }
            Ok(Found::Made(_)) | Err(_) => b"a path of the past".to_vec(),
        }
    }

    pub(crate) fn past_hold(&self, ino: Ino) {
        self.past.numbers.hold(ino);
    }

    pub(crate) fn past_release(&self, ino: Ino, count: u64) {
        let node = self.past.numbers.node(ino);
        self.past.numbers.release(ino, count);
        if let Some(PastNode::Inode(inode)) = node
            && weft_tree::is_virtual(inode.ino)
            && let Ok(view) = self.view(inode.commit)
        {
            view.vfs.release(inode.ino, count);
        }
    }
}
