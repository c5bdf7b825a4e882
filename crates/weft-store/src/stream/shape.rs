//! The shape of a tree that a stream brings: that its rows and names make one tree.
//!
//! A store takes any rows. So whatever a stream says is counted here against what else it says:
//! each inode has as many names as its row says, each directory one name and as many entries, and
//! all lead to the root.

use super::bounds::FIRST_ID;
use super::wrong;
use crate::error::Result;
use crate::row::{Ino, InodeRow, NameRow};
use crate::store::VolumeOptions;
use weft_digest::Kind;

/// Most bytes in the target of a symbolic link (`PATH_MAX` with its NUL).
const TARGET_BYTES_MAX: usize = 4095;

/// Most bytes in the definition of a transformation link.
const DEFINITION_BYTES_MAX: usize = 1 << 20;

/// Largest size of a file.
const SIZE_MAX: u64 = i64::MAX.unsigned_abs();

/// Refuses a row that no volume with these options has.
pub(super) fn refuse_row(row: &InodeRow, next_id: u64, options: &VolumeOptions) -> Result<()> {
    let refused = |why: &str| Err(wrong(&format!("inode {} {why}", row.ino.0)));
    if row.ino != Ino::ROOT && !(FIRST_ID..next_id).contains(&row.ino.0) {
        return refused("has a number that none can have");
    }
    if row.nlink == 0 || row.size > SIZE_MAX {
        return refused("has no name, or is too long");
    }
    let is_directory = row.kind == Kind::Directory;
    if is_directory != (row.parent.0 != 0) || is_directory && row.nlink < 2 {
        return refused("is a directory, or lies in one, in a way that is none");
    }
    if (row.ino == Ino::ROOT) != (row.parent == row.ino) || row.ino == Ino::ROOT && !is_directory {
        return refused("is a root, or not, in a way that is none");
    }
    let inline_len = row.inline.as_ref().map_or(0, |inline| inline.len());
    let (stored, is_inline) = (inline_len as u64, row.inline.is_some());
    let is_as_said = match row.kind {
        Kind::File => !is_inline || row.allocated == stored && stored <= row.size.min(options.inline_max.into()),
        Kind::Symlink | Kind::Transformation => {
            let most = if row.kind == Kind::Symlink { TARGET_BYTES_MAX } else { DEFINITION_BYTES_MAX };
            (1..=most).contains(&inline_len) && row.allocated == stored && row.size == stored
        }
        _ => !is_inline && row.allocated == 0,
    };
    if is_as_said { Ok(()) } else { refused("has content in its row that it cannot have") }
}

/// The inodes of a whole tree, as far as names lead to them.
#[derive(Default)]
pub(super) struct Shape {
    /// By number, ascending.
    nodes: Vec<Node>,
}

/// An inode, and what is still to come of it.
struct Node {
    ino: Ino,
    kind: Kind,
    /// Of a directory the one that holds it.
    parent: Ino,
    names: u32,
    /// Of a directory.
    entries: u64,
    /// Of a directory, directories in it.
    directories: u32,
    /// True if it is known to lead to the root.
    is_reached: bool,
}

impl Shape {
    /// Adds an inode whose row is not refused by itself. They come by number, ascending.
    pub(super) fn inode(&mut self, row: &InodeRow) -> Result<()> {
        if self.nodes.last().is_some_and(|last| last.ino >= row.ino) {
            return Err(wrong(&format!("inode {} is there twice, or in no order", row.ino.0)));
        }
        let is_directory = row.kind == Kind::Directory;
        let names = match row.ino {
            Ino::ROOT => 0,
            _ if is_directory => 1,
            _ => row.nlink,
        };
        let (entries, directories) = if is_directory { (row.size, row.nlink - 2) } else { (0, 0) };
        let (ino, kind, parent, is_reached) = (row.ino, row.kind, row.parent, row.ino == Ino::ROOT);
        self.nodes.push(Node { ino, kind, parent, names, entries, directories, is_reached });
        Ok(())
    }

    fn find(&mut self, ino: Ino) -> Option<&mut Node> {
        let at = self.nodes.binary_search_by_key(&ino, |node| node.ino).ok()?;
        Some(&mut self.nodes[at])
    }

    /// True if there is a directory of that number.
    pub(super) fn has_directory(&mut self, ino: Ino) -> bool {
        self.find(ino).is_some_and(|node| node.kind == Kind::Directory)
    }

    /// Adds an entry of a directory that is there.
    pub(super) fn name(&mut self, row: &NameRow) -> Result<()> {
        let unlike = || wrong(&format!("an entry of directory {} is none of its tree", row.parent.0));
        let child = self.find(row.ino).filter(|child| child.kind == row.kind).ok_or_else(unlike)?;
        let is_directory = child.kind == Kind::Directory;
        if is_directory && child.parent != row.parent {
            return Err(unlike());
        }
        child.names = child.names.checked_sub(1).ok_or_else(unlike)?;
        let parent = self.find(row.parent).ok_or_else(unlike)?;
        parent.entries = parent.entries.checked_sub(1).ok_or_else(unlike)?;
        if is_directory {
            parent.directories = parent.directories.checked_sub(1).ok_or_else(unlike)?;
        }
        Ok(())
    }

    /// Fails unless all is there, and leads to the root.
    pub(super) fn finish(mut self) -> Result<()> {
        if !self.has_directory(Ino::ROOT) {
            return Err(wrong("it has no root directory"));
        }
        if let Some(node) = self.nodes.iter().find(|node| node.names + node.directories > 0 || node.entries > 0) {
            return Err(wrong(&format!("names of inode {} are missing, or entries of it", node.ino.0)));
        }
        let directories = self.nodes.iter().filter(|node| node.kind == Kind::Directory);
        directories.map(|node| node.ino).collect::<Vec<_>>().into_iter().try_for_each(|ino| self.reach(ino))
    }

    /// Fails if directory `ino` does not lead to the root.
    fn reach(&mut self, ino: Ino) -> Result<()> {
        let (mut way, mut at, limit) = (Vec::new(), ino, self.nodes.len());
        loop {
            let node = self.find(at).filter(|_| way.len() <= limit);
            let node = node.ok_or_else(|| wrong(&format!("directory {} does not lead to the root", ino.0)))?;
            if node.is_reached {
                break;
            }
            way.push(at);
            at = node.parent;
        }
        way.into_iter().for_each(|ino| self.find(ino).into_iter().for_each(|node| node.is_reached = true));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Name;
    use crate::row::{Cookie, Timestamp};

    fn directory(ino: u64, parent: u64, size: u64, nlink: u32) -> InodeRow {
        InodeRow { ino: Ino(ino), parent: Ino(parent), size, nlink, ..InodeRow::new_root(0, 0, Timestamp(0)) }
    }

    fn file(ino: u64, nlink: u32) -> InodeRow {
        InodeRow { ino: Ino(ino), kind: Kind::File, parent: Ino(0), nlink, ..InodeRow::new_root(0, 0, Timestamp(0)) }
    }

    fn tree(rows: &[InodeRow], names: &[(u64, u64)]) -> Result<()> {
        let mut shape = Shape::default();
        rows.iter()
            .try_for_each(|row| refuse_row(row, 100, &VolumeOptions::default()).and_then(|()| shape.inode(row)))?;
        for (cookie, (parent, ino)) in (3..).zip(names) {
            let kind = rows.iter().find(|row| row.ino.0 == *ino).map_or(Kind::File, |row| row.kind);
            let name = Name::new(format!("n{cookie}").as_bytes()).expect("a name");
            shape.name(&NameRow { parent: Ino(*parent), name, ino: Ino(*ino), kind, cookie: Cookie(cookie) })?;
        }
        shape.finish()
    }

    #[test]
    fn a_tree_is_taken() {
        let rows = [directory(1, 1, 2, 3), directory(16, 1, 1, 2), file(17, 2)];
        tree(&rows, &[(1, 16), (1, 17), (16, 17)]).unwrap();
        tree(&[directory(1, 1, 0, 2)], &[]).unwrap();
    }

    #[test]
    fn what_is_no_tree_is_refused() {
        let root = || directory(1, 1, 1, 2);
        tree(&[], &[]).unwrap_err();
        tree(&[root()], &[]).unwrap_err();
        tree(&[root(), file(17, 1), file(17, 1)], &[(1, 17)]).unwrap_err();
        tree(&[root(), file(17, 1), file(16, 1)], &[(1, 17), (1, 16)]).unwrap_err();
        tree(&[root(), file(17, 2)], &[(1, 17)]).unwrap_err();
        tree(&[root(), file(17, 1)], &[(1, 17), (1, 17)]).unwrap_err();
        tree(&[root(), file(17, 1)], &[(17, 17)]).unwrap_err();
        tree(&[root(), file(17, 1)], &[(1, 18)]).unwrap_err();
        tree(&[directory(1, 1, 1, 3)], &[(1, 1)]).unwrap_err();
        tree(&[file(1, 1)], &[]).unwrap_err();
        tree(&[root(), file(200, 1)], &[(1, 200)]).unwrap_err();
    }

    #[test]
    fn directories_in_a_circle_are_refused() {
        let rows = [directory(1, 1, 0, 2), directory(16, 17, 1, 3), directory(17, 16, 1, 3)];
        let error = tree(&rows, &[(16, 17), (17, 16)]).unwrap_err();
        assert!(error.to_string().contains("does not lead to the root"), "{error}");
    }
}
