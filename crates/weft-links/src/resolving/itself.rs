//! Views that would show themselves: those in a directory that they are views of.
//!
//! Such a view ends nowhere, and no export of the volume would be whole, so none is made. One may
//! be moved there later; then it is `ELOOP` in itself.

use super::reach::{MAY_SEARCH, Step};
use super::walk::{SYMLINKS_MAX, components};
use crate::definition::{LinkDefinition, ViewKind};
use crate::linked_tree::LinkedTree;
use weft_store::{Ino, Kind};
use weft_tree::Stop;

impl LinkedTree<'_> {
    /// True if a link of this definition in directory `parent` would be a view of a directory that
    /// it lies in, as far as the asker may know.
    pub(crate) fn would_show_itself(&mut self, definition: &LinkDefinition, parent: Ino) -> Result<bool, Stop> {
        let (ViewKind::Directory { .. }, Some(network)) = (&definition.view, definition.parse()) else {
            return Ok(false);
        };
        let mut data = definition.targets.iter().enumerate().filter(|(number, _)| !network.modules().contains(number));
        let Some((_, path)) = data.next() else { return Ok(false) };
        let source = match self.directory_at(path) {
            Err(Stop::Opaque | Stop::Fail(_)) => None,
            found => found?,
        };
        source.map_or(Ok(false), |source| self.tree.is_within(parent, source))
    }

    /// The directory at `path`, without views on the way; none if the asker may not look there.
    fn directory_at(&mut self, path: &[u8]) -> Result<Option<Ino>, Stop> {
        let (mut names, mut at, mut symlinks) = (components(path), Ino::ROOT, 0);
        self.links.resolving.restart();
        while let Some(name) = names.pop() {
            self.links.resolving.take_alone(1)?;
            let row = &self.tree.directory(at)?.row;
            let (parent, step) = (row.parent, Step::of(row));
            if self.rights_to(step, MAY_SEARCH)?.of_these & MAY_SEARCH == 0 {
                return Ok(None);
            }
            if name == b".." {
                at = if at == Ino::ROOT { at } else { parent };
                continue;
            }
            let found = self.tree.existing(at, &name)?;
            if found.kind != Kind::Symlink {
                at = found.ino;
                continue;
            }
            symlinks += 1;
            let target = self.tree.inode(found.ino)?.row.inline.clone().unwrap_or_default();
            if symlinks > SYMLINKS_MAX || target.starts_with(b"/") {
                return Ok(None);
            }
            names.extend(components(&target));
        }
        Ok((self.tree.inode(at)?.row.kind == Kind::Directory).then_some(at))
    }
}
