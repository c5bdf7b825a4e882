//! The way to a target: directories, views and symbolic links.

use super::attributes::SEARCH;
use super::reach::{MAY_SEARCH, Step};
use super::resolve::Resolved;
use super::rights::{Owner, rights};
use super::watch::Of;
use crate::linked_tree::LinkedTree;
use std::sync::Arc;
use weft_store::{Ino, InodeRow, Kind, Name};
use weft_tree::{ACCESS_ACL, ErrorKind, Result, Stop};

/// Symbolic links on the way to a target (Linux `MAXSYMLINKS`).
pub(crate) const SYMLINKS_MAX: usize = 40;

impl LinkedTree<'_> {
    /// The inode at `path`, and what the classes of `owner` may do there for all that the
    /// directories on the way allow. Adds what that follows from to `resolved`. `AccessDenied`
    /// before it looks for a name where those who ask may not.
    pub(super) fn walk(&mut self, path: &[u8], owner: Owner, resolved: &mut Resolved) -> Result<(Ino, u32), Stop> {
        let mut names: Vec<Vec<u8>> = components(path);
        let (mut at, mut allowed, mut symlinks) = (Ino::ROOT, 0o777, 0);
        // Views know no way back.
        let mut way = Vec::new();
        while let Some(name) = names.pop() {
            self.links.resolving.take(1)?;
            let search = self.search(at, owner, resolved)?;
            allowed &= search | search << 1 | search << 2;
            if name == b".." {
                at = way.pop().unwrap_or(Ino::ROOT);
                continue;
            }
            let name = Name::new(&name)?;
            self.follows_from(at, Of::Name(name.clone()), Arc::make_mut(&mut resolved.causes).own())?;
            let found = self.within(at, &name)?;
            if self.tree.inode(found)?.row.kind != Kind::Symlink {
                way.push(at);
                at = found;
                continue;
            }
            symlinks += 1;
            if symlinks > SYMLINKS_MAX {
                return Err(ErrorKind::Loop.into());
            }
            let target = self.tree.inode(found)?.row.inline.clone().unwrap_or_default();
            if target.starts_with(b"/") {
                // It leads out of the volume, wherever that is mounted.
                return Err(ErrorKind::NotFound.into());
            }
            names.extend(components(&target));
        }
        Ok((at, allowed))
    }

    /// Returns the search rights of the classes of `owner` on `at`, a directory or a view, as
    /// permission bits. Adds the causes of that to `resolved`.
    fn search(&mut self, at: Ino, owner: Owner, resolved: &mut Resolved) -> Result<u32, Stop> {
        resolved.follows_from((at, Of::Itself));
        if self.tree.inode(at)?.row.kind != Kind::Transformation {
            let step = Step::of(&self.tree.directory(at)?.row);
            self.reached(resolved, step, MAY_SEARCH, false)?;
            let has_acl = self.has_acl(at)?;
            return Ok(rights(&self.tree.inode(at)?.row, has_acl, owner) & SEARCH);
        }
        let view = self.resolve(at)?;
        self.links.resolving.take(view.steps())?;
        if view.link.looks.is_none() {
            return Err(ErrorKind::NotDirectory.into());
        }
        let step = Step::of(&self.tree.inode(at)?.row);
        self.reached(resolved, step, MAY_SEARCH, false)?;
        resolved.is_for_all &= view.is_for_all;
        Arc::make_mut(&mut resolved.causes).add(&view.causes);
        Ok(self.rights_of_link(at, &view, owner)? & SEARCH)
    }

    /// Returns the rights of the classes of `owner` on link `ino`, which leads to `resolved`, as
    /// permission bits.
    pub(super) fn rights_of_link(&mut self, ino: Ino, resolved: &Resolved, owner: Owner) -> Result<u32, Stop> {
        let row = self.tree.inode(ino)?.row.clone();
        let permissions = row.permissions & resolved.permissions();
        Ok(rights(&InodeRow { permissions, ..row }, false, owner))
    }

    /// True if inode `ino` has an access control list beyond its permission bits.
    pub(super) fn has_acl(&mut self, ino: Ino) -> Result<bool, Stop> {
        if !self.tree.inode(ino)?.row.has_xattrs() {
            return Ok(false);
        }
        Ok(self.tree.xattrs(ino)?.map.contains_key(ACCESS_ACL))
    }
}

/// The names in `path`, the last first.
pub(crate) fn components(path: &[u8]) -> Vec<Vec<u8>> {
    let names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".");
    names.rev().map(<[u8]>::to_vec).collect()
}
