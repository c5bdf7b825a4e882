//! All that lies below a place as of a commit.

use super::rows::{Rows, Versioned};
use super::{Restoring, refused};
use rustc_hash::FxHashMap;
use weft_store::{Ino, InodeRow, Kind, Name, NameRow};

/// Entries of one subtree. Larger ones are restored in parts.
const ENTRIES_MAX: usize = 1 << 22;

/// The inodes and entries of a subtree.
#[derive(Debug, Default)]
pub(super) struct Subtree {
    /// The inodes.
    pub(super) inodes: FxHashMap<Ino, Versioned>,
    /// Their numbers, those of directories before what lies in them.
    pub(super) order: Vec<Ino>,
    /// The entries of each directory.
    pub(super) names: FxHashMap<Ino, Vec<NameRow>>,
    /// Names that each inode has in the subtree, that of its top included.
    pub(super) counts: FxHashMap<Ino, u32>,
    /// Entries in all.
    pub(super) entries: usize,
}

impl Subtree {
    /// Reads the subtree of `top`. Of the directories at its first depths only the entry is taken
    /// that `only` names there.
    pub(super) fn read(rows: Rows<'_>, top: Ino, only: &[Name]) -> Restoring<Subtree> {
        let mut subtree = Subtree::default();
        let (mut level, mut depth) = (vec![top], 0);
        while !level.is_empty() {
            level.iter().for_each(|ino| *subtree.counts.entry(*ino).or_default() += 1);
            level.sort_unstable();
            level.dedup();
            level.retain(|ino| !subtree.inodes.contains_key(ino));
            let found = rows.inodes(&level)?;
            let mut next = Vec::new();
            for ino in level {
                let Some((row, _)) = found.get(&ino) else { return Err(rows.gone("the row", ino).into()) };
                subtree.order.push(ino);
                if row.kind != Kind::Directory {
                    continue;
                }
                let mut names = rows.names(row)?;
                if let Some(only) = only.get(depth) {
                    names.retain(|entry| entry.name == *only);
                }
                next.extend(names.iter().map(|entry| entry.ino));
                subtree.entries += names.len();
                subtree.names.insert(ino, names);
            }
            if subtree.entries > ENTRIES_MAX {
                return refused(format!("it has more than {ENTRIES_MAX} entries; restore parts of it"));
            }
            subtree.inodes.extend(found);
            (level, depth) = (next, depth + 1);
        }
        Ok(subtree)
    }

    /// The rows of all that is in it.
    pub(super) fn rows(&self) -> impl Iterator<Item = &InodeRow> {
        self.order.iter().map(|ino| &self.inodes[ino].0)
    }

    /// Leaves out what `is_out` says, none of which is a directory.
    pub(super) fn leave_out(&mut self, is_out: impl Fn(Ino) -> bool) {
        self.order.retain(|ino| !is_out(*ino));
        self.inodes.retain(|ino, _| !is_out(*ino));
        self.counts.retain(|ino, _| !is_out(*ino));
        self.names.values_mut().for_each(|names| names.retain(|entry| !is_out(entry.ino)));
        self.entries = self.names.values().map(Vec::len).sum();
    }

    /// The entries of directory `ino`; none of anything else.
    pub(super) fn names_of(&self, ino: Ino) -> &[NameRow] {
        self.names.get(&ino).map_or(&[], Vec::as_slice)
    }

    /// The number of names that `ino` has in the subtree.
    pub(super) fn count(&self, ino: Ino) -> u32 {
        self.counts.get(&ino).copied().unwrap_or(0)
    }

    /// The path of `ino` from the top: empty for that.
    pub(super) fn paths(&self) -> FxHashMap<Ino, Vec<u8>> {
        let mut paths = FxHashMap::default();
        if let Some(top) = self.order.first() {
            paths.insert(*top, Vec::new());
        }
        for directory in &self.order {
            for entry in self.names_of(*directory) {
                if !paths.contains_key(&entry.ino) {
                    let above: &[u8] = paths.get(directory).map_or(b"", Vec::as_slice);
                    let path = [above, b"/", entry.name.as_bytes()].concat();
                    paths.insert(entry.ino, path);
                }
            }
        }
        paths
    }
}
