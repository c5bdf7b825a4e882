//! Rows of a volume in plain maps.

use crate::Name;
use crate::batch::{Batch, InodeChange, NameChange, XattrChange};
use crate::error::{Error, Result};
use crate::row::{BlockId, BlockRef, CommitNo, Cookie, Ino, InodeRow, NameRow, Span, Timestamp};
use std::collections::BTreeMap;
use std::ops::Range;

/// All rows but those of blocks.
#[derive(Clone)]
pub(super) struct Rows {
    /// Each with the commit that last changed anything of it but its access time.
    pub(super) inodes: BTreeMap<Ino, (InodeRow, CommitNo)>,
    pub(super) names: BTreeMap<(Ino, Name), NameRow>,
    cookies: BTreeMap<(Ino, Cookie), Name>,
    pub(super) extents: BTreeMap<(Ino, Span), BlockRef>,
    xattrs: BTreeMap<(Ino, Name), Vec<u8>>,
}

impl Rows {
    /// Those of a new volume.
    pub(super) fn new() -> Rows {
        let root = InodeRow::new_root(0, 0, Timestamp(0));
        Rows {
            inodes: BTreeMap::from([(Ino::ROOT, (root, CommitNo(1)))]),
            names: BTreeMap::new(),
            cookies: BTreeMap::new(),
            extents: BTreeMap::new(),
            xattrs: BTreeMap::new(),
        }
    }

    pub(super) fn inodes(&self, inos: Range<Ino>, limit: usize) -> Vec<(InodeRow, CommitNo)> {
        self.inodes.range(inos).take(limit).map(|(_, found)| found.clone()).collect()
    }

    pub(super) fn name(&self, parent: Ino, name: &Name) -> Option<NameRow> {
        self.names.get(&(parent, name.clone())).cloned()
    }

    pub(super) fn names(&self, parent: Ino, after: Cookie, limit: usize) -> Vec<NameRow> {
        let cookies = self.cookies.range((parent, after.next())..(parent.next(), Cookie(0)));
        cookies.take(limit).filter_map(|(_, name)| self.name(parent, name)).collect()
    }

    pub(super) fn extents(&self, ino: Ino, range: Range<u64>) -> Vec<(Span, BlockRef)> {
        let at = |start| (ino, Span { start, length: 0 });
        let found = self.extents.range(at(range.start)..at(range.end.max(range.start)));
        found.map(|((_, span), block)| (*span, *block)).collect()
    }

    pub(super) fn xattrs(&self, ino: Ino) -> Vec<(Name, Vec<u8>)> {
        let own = self.xattrs.iter().filter(|((owner, _), _)| *owner == ino);
        own.map(|((_, name), value)| (name.clone(), value.clone())).collect()
    }

    pub(super) fn orphans(&self) -> Vec<Ino> {
        self.inodes.values().filter(|(row, _)| row.nlink == 0).map(|(row, _)| row.ino).collect()
    }

    /// The blocks that files have.
    pub(super) fn blocks(&self) -> impl Iterator<Item = BlockId> {
        self.extents.values().map(|block| block.id)
    }

    /// Removes the blocks of `range`, and returns them.
    pub(super) fn clear(&mut self, ino: Ino, range: Range<u64>) -> Vec<BlockId> {
        let gone = self.extents(ino, range);
        gone.into_iter().filter_map(|(span, _)| self.extents.remove(&(ino, span))).map(|block| block.id).collect()
    }

    pub(super) fn apply_inodes(&mut self, batch: &Batch) {
        let touched = batch.touched();
        for change in &batch.inodes {
            match change {
                InodeChange::Put(row) => self.put_inode(row, batch.commit, touched.contains(&row.ino)),
                InodeChange::Remove(ino) => {
                    self.inodes.remove(ino);
                    self.xattrs.retain(|(owner, _), _| owner != ino);
                }
            }
        }
    }

    fn put_inode(&mut self, row: &InodeRow, commit: CommitNo, is_touched: bool) {
        let before = self.inodes.get(&row.ino);
        let since = before
            .filter(|(before, _)| !is_touched && is_same_version(before, row))
            .map_or(commit, |(_, since)| *since);
        self.inodes.insert(row.ino, (row.clone(), since));
    }

    pub(super) fn apply_names(&mut self, batch: &Batch) -> Result<()> {
        for change in &batch.names {
            match change {
                NameChange::Remove { parent, name } => self.remove_name(*parent, name),
                NameChange::Put(row) => self.remove_name(row.parent, &row.name),
            }
        }
        for change in &batch.names {
            let NameChange::Put(row) = change else { continue };
            if self.cookies.insert((row.parent, row.cookie), row.name.clone()).is_some() {
                return Err(Error::Bug(format!("cookie {} given twice in {}", row.cookie.0, row.parent.0)));
            }
            self.names.insert((row.parent, row.name.clone()), row.clone());
        }
        Ok(())
    }

    fn remove_name(&mut self, parent: Ino, name: &Name) {
        if let Some(row) = self.names.remove(&(parent, name.clone())) {
            self.cookies.remove(&(parent, row.cookie));
        }
    }

    pub(super) fn apply_xattrs(&mut self, changes: &[XattrChange]) {
        for change in changes {
            let key = (change.ino, change.name.clone());
            match &change.value {
                Some(value) => self.xattrs.insert(key, value.clone()),
                None => self.xattrs.remove(&key),
            };
        }
    }
}

/// True if two rows of an inode differ in the access time at most: reading makes no version.
fn is_same_version(before: &InodeRow, after: &InodeRow) -> bool {
    *before == InodeRow { atime: before.atime, ..after.clone() }
}
