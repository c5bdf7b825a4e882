//! Operations of a user on nodes of the past. The volume as of the node's commit checks the user's
//! rights, which are narrowed to those that hold now.

use super::User;
use crate::past::{Found, MomentError, MovingName, PastNode};
use weft_block::Rope;
use weft_store::{CommitNo, Cookie, Kind};
use weft_tree::{Access, Attributes, DirEntry, ErrorKind, FileId, Result, is_past};

impl User<'_> {
    /// Returns the root of the volume as of a moment, which `text` names (see
    /// [`weft_store::Moment`]), and the commit that it stands for.
    pub fn root_at(&self, text: &str) -> Result<(FileId, CommitNo), MomentError> {
        let _asking = self.asks();
        let (root, commit) = self.vfs.root_at(self.caller(), text)?;
        Ok((FileId::from(&root), commit))
    }

    /// The directory of the present whose past `directory` belongs to; itself if it is no node of
    /// the past.
    pub(super) fn present_of(&self, directory: FileId) -> Result<FileId> {
        if !is_past(directory.ino) {
            return Ok(directory);
        }
        let ino = match self.vfs.node_of_past(directory.ino).ok_or(ErrorKind::Stale)? {
            PastNode::Entrance(ino) | PastNode::Moments(ino) | PastNode::Moment(ino, _) => ino,
            PastNode::Inode(inode) => inode.top,
        };
        Ok(FileId { ino, generation: self.vfs.attributes(ino)?.generation })
    }

    pub(super) fn past_attributes(&self, file: FileId) -> Result<Attributes> {
        let _asking = self.asks();
        match self.vfs.find_past(file.ino)? {
            Found::Made(_) => self.vfs.attributes(file.ino),
            Found::Inode(view, inode) => {
                let attributes = view.user(self.who).attributes(FileId { ino: inode.ino, ..file })?;
                Ok(Attributes { ino: file.ino, ..attributes })
            }
        }
    }

    pub(super) fn past_access<const N: usize>(
        &self,
        file: FileId,
        rights: [Access; N],
    ) -> Result<([bool; N], Attributes)> {
        let _asking = self.asks();
        let changes = |right| [Access::WRITE, Access::WRITE | Access::EXECUTE].contains(&right);
        match self.vfs.find_past(file.ino)? {
            Found::Made(_) => {
                let attributes = self.vfs.attributes(file.ino)?;
                Ok((rights.map(|right| !changes(right)), attributes))
            }
            Found::Inode(view, inode) => {
                let (mut has, attributes) = view.user(self.who).access(FileId { ino: inode.ino, ..file }, rights)?;
                has.iter_mut().zip(rights).for_each(|(has, right)| *has &= !changes(right));
                Ok((has, Attributes { ino: file.ino, ..attributes }))
            }
        }
    }

    pub(super) fn past_lookup(&self, parent: FileId, name: &[u8]) -> Result<(Attributes, Attributes)> {
        let _asking = self.asks();
        let above = self.attributes(parent)?;
        if name == b"." {
            return Ok((above, above));
        }
        if name == b".." {
            return Ok((self.vfs.parent(self.caller(), parent.ino)?, above));
        }
        let found = match self.vfs.find_past(parent.ino)? {
            Found::Made(_) => self.vfs.past_lookup(self.caller(), parent.ino, name, MovingName::Directory)?,
            Found::Inode(view, inode) => {
                let (found, _) = view.user(self.who).lookup(FileId { ino: inode.ino, ..parent }, name)?;
                self.vfs.past_of(&view, inode, found)?
            }
        };
        Ok((found, above))
    }

    pub(super) fn past_read(&self, file: FileId, offset: u64, len: usize) -> Result<(Rope, Attributes)> {
        match self.vfs.find_past(file.ino)? {
            Found::Made(_) => Err(ErrorKind::IsDirectory.into()),
            Found::Inode(view, inode) => {
                let (data, attributes) = view.user(self.who).read(FileId { ino: inode.ino, ..file }, offset, len)?;
                Ok((data, Attributes { ino: file.ino, ..attributes }))
            }
        }
    }

    pub(super) fn past_list(&self, directory: FileId, after: Cookie, limit: usize) -> Result<Vec<DirEntry>> {
        let _asking = self.asks();
        let ([may_list], attributes) = self.past_access(directory, [Access::READ])?;
        match attributes.kind {
            Kind::Directory if may_list => self.vfs.read_directory(directory.ino, after, limit),
            Kind::Directory => Err(ErrorKind::AccessDenied.into()),
            _ => Err(ErrorKind::NotDirectory.into()),
        }
    }

    pub(super) fn past_list_attributes(
        &self,
        directory: FileId,
        after: Cookie,
        limit: usize,
    ) -> Result<Vec<(DirEntry, Option<Attributes>)>> {
        let _asking = self.asks();
        let ([may_list, may_look], _) = self.past_access(directory, [Access::READ, Access::EXECUTE])?;
        if !may_list || !may_look {
            let entries = self.past_list(directory, after, limit)?;
            return Ok(entries.into_iter().map(|entry| (entry, None)).collect());
        }
        self.vfs.read_directory_attributes(self.caller(), directory.ino, after, limit)
    }
}
