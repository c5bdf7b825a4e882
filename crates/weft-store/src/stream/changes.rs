//! What a commit changed of the tree of an earlier one, found by the versions of rows, and sent.

use super::attributes::{self, Xattrs};
use super::record::Record;
use super::send::Sender;
use crate::error::Result;
use crate::past::{ChangedExtent, ChangedNames};
use crate::row::{BlockRef, CommitNo, Cookie, Ino, InodeRow, Span};
use crate::store::Store;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use weft_digest::Kind;

/// Entries of a new directory that are asked for together.
const NAMES_TOGETHER: usize = 1 << 16;

/// Bytes of a file that are looked at together; more where a file is very long.
const WINDOW: u64 = 64 << 30;

/// Windows of a file at most.
const WINDOWS_MAX: u64 = 1024;

/// The inodes that a part names, and the changed entries of directories that were there before.
#[derive(Default)]
struct Changed {
    inodes: BTreeSet<Ino>,
    names: BTreeMap<Ino, ChangedNames>,
    /// New directories, each with the number of its entries.
    directories: BTreeMap<Ino, u64>,
}

/// Returns the row of `ino`, if a name leads to it.
pub(super) fn named(store: &dyn Store, ino: Ino) -> Result<Option<InodeRow>> {
    Ok(store.row_of(ino)?.filter(|row| row.nlink > 0))
}

impl Sender<'_, '_> {
    /// Sends what commit `to` changed of the tree of commit `from`.
    pub(super) fn changes(&mut self, from: CommitNo, to: CommitNo) -> Result<()> {
        let Some(before) = self.from.clone() else { return Ok(()) };
        let changed = self.find((from, to), &*before)?;
        let mut gone = Vec::new();
        for ino in changed.inodes {
            match (named(&*before, ino)?, named(&*self.to, ino)?) {
                (None, None) => {}
                (None, Some(new)) => self.inode(&new, None)?,
                (Some(old), None) => {
                    self.refuse_forgotten(&*before, &old)?;
                    gone.push(old);
                }
                (Some(old), Some(new)) => self.changed_inode((from, to), &*before, (&old, &new))?,
            }
        }
        for old in gone {
            let base = super::codec::row_digest(&old);
            self.out.put(&Record::Gone { ino: old.ino, base })?;
        }
        for (ino, names) in changed.names {
            self.changed_names(ino, names)?;
        }
        changed.directories.into_iter().try_for_each(|(ino, size)| self.names(ino, size))
    }

    /// Finds what changed: rows of inodes, entries of directories among them, and what entries name
    /// that was not there before.
    fn find(&self, commits: (CommitNo, CommitNo), before: &dyn Store) -> Result<Changed> {
        let mut changed = Changed::default();
        let mut new = Vec::new();
        for ino in self.store.changed_inodes(commits)? {
            changed.inodes.insert(ino);
            let Some(old) = named(before, ino)? else { continue };
            if old.kind == Kind::Directory {
                let names = self.store.changed_names(commits, ino)?;
                new.extend(names.values().flatten().map(|row| (row.ino, row.kind)));
                changed.names.insert(ino, names);
            }
        }
        let mut seen = BTreeSet::new();
        while let Some((ino, kind)) = new.pop() {
            if !seen.insert(ino) || named(before, ino)?.is_some() {
                continue;
            }
            changed.inodes.insert(ino);
            if kind == Kind::Directory {
                self.find_below(ino, &mut new)?;
                let size = named(&*self.to, ino)?.map_or(0, |row| row.size);
                changed.directories.insert(ino, size);
            }
        }
        Ok(changed)
    }

    /// Adds to `new` what the new directory names.
    fn find_below(&self, directory: Ino, new: &mut Vec<(Ino, Kind)>) -> Result<()> {
        let mut after = Cookie(0);
        loop {
            let names = self.to.names(directory, after, NAMES_TOGETHER)?;
            let Some(last) = names.last() else { return Ok(()) };
            after = last.cookie;
            new.extend(names.iter().map(|row| (row.ino, row.kind)));
        }
    }

    /// Sends how an inode that was there before is now.
    fn changed_inode(
        &mut self,
        commits: (CommitNo, CommitNo),
        before: &dyn Store,
        (old, new): (&InodeRow, &InodeRow),
    ) -> Result<()> {
        self.refuse_forgotten(before, old)?;
        self.refuse_forgotten(&*self.to, new)?;
        let ((old_sent, old_xattrs), (new_sent, xattrs)) =
            (attributes::sent(before, old)?, attributes::sent(&*self.to, new)?);
        self.row(&new_sent, Some(&old_sent))?;
        self.changed_xattrs(old_xattrs, xattrs)?;
        if new.kind != Kind::File {
            return Ok(());
        }
        let block_size = u64::from(self.to.header()?.options.block_size);
        let size = old.size.max(new.size);
        let window = WINDOW.max(size.div_ceil(WINDOWS_MAX).next_multiple_of(block_size));
        let mut at = 0;
        while at < size {
            let end = at.saturating_add(window).min(size);
            let extents = self.store.changed_extents(commits, new.ino, at..end)?;
            self.changed_extents(new.ino, &self.by_blocks(new.ino, extents, block_size)?)?;
            at = end;
        }
        Ok(())
    }

    /// Makes `extents` changes of all of the blocks of `block_size` of a file that any of them is a
    /// part of. One that was split since may be whole where this is received.
    fn by_blocks(&self, ino: Ino, extents: Vec<ChangedExtent>, block_size: u64) -> Result<Vec<ChangedExtent>> {
        let index = |extent: &ChangedExtent| extent.span.start / block_size;
        let mut all = Vec::with_capacity(extents.len());
        for of_block in extents.chunk_by(|one, next| index(one) == index(next)) {
            if of_block.iter().all(|extent| u64::from(extent.span.length) == block_size) {
                all.extend(of_block.iter().cloned());
                continue;
            }
            let start = index(&of_block[0]) * block_size;
            let length = u32::try_from(block_size).expect("a block size");
            all.push(ChangedExtent { span: Span { start, length }, was_there: true, now: None });
            let now = self.to.extents(ino, start..start + block_size)?.into_iter();
            all.extend(now.map(|(span, block)| ChangedExtent { span, was_there: false, now: Some(block) }));
        }
        Ok(all)
    }

    fn changed_xattrs(&mut self, old: Xattrs, new: Xattrs) -> Result<()> {
        let mut old = old.into_iter().collect::<BTreeMap<_, _>>();
        for (name, value) in new {
            if old.remove(&name).as_ref() != Some(&value) {
                self.out.put(&Record::Xattr { name, value: Some(value) })?;
            }
        }
        old.into_keys().try_for_each(|name| self.out.put(&Record::Xattr { name, value: None }))
    }

    fn changed_extents(&mut self, ino: Ino, extents: &[ChangedExtent]) -> Result<()> {
        let mut cleared = Vec::<Range<u64>>::new();
        for extent in extents.iter().filter(|extent| extent.was_there) {
            match cleared.last_mut() {
                Some(last) if last.end == extent.span.start => last.end = extent.span.end(),
                _ => cleared.push(extent.span.range()),
            }
        }
        cleared.into_iter().try_for_each(|range| self.out.put(&Record::Clear { range }))?;
        let put = extents.iter().filter_map(|extent| Some((extent.span, extent.now?)));
        self.put_blocks(ino, &put.collect::<Vec<(Span, BlockRef)>>())
    }

    fn changed_names(&mut self, directory: Ino, names: ChangedNames) -> Result<()> {
        if names.is_empty() {
            return Ok(());
        }
        self.out.put(&Record::Directory { ino: directory })?;
        for (name, row) in names {
            match row {
                Some(row) => self.name(row)?,
                None => self.out.put(&Record::NoName { name })?,
            }
        }
        Ok(())
    }
}
