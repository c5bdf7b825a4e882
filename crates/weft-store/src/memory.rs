//! A store in memory, for tests and for measuring what lies above it.
//!
//! It keeps the rows in plain maps and checks what a batch promises. While history is on it keeps
//! those maps of every commit. Cloning it takes a snapshot.

mod history;
mod rows;
#[cfg(test)]
mod tests;

use crate::Name;
use crate::batch::{Batch, Counters, ExtentChange, NewBlock};
use crate::error::{Error, Result};
use crate::past::{History, PastStore, Pin};
use crate::row::{
    BlockId, BlockRef, CommitNo, CommitRow, Cookie, Ino, InodeRow, NameRow, OpNo, Place, Span, Timestamp,
};
use crate::store::{
    BlockStore, CommitStore, Durability, Header, Maintenance, ReadMode, RowStore, Space, Transaction, VolumeOptions,
};
use history::Past;
use parking_lot::{Mutex, MutexGuard, RwLock};
use rows::Rows;
use std::collections::BTreeMap;
use std::ops::Range;
use weft_block::Block;
use weft_digest::Digest;

/// Commits that are remembered while history is off.
const COMMITS_MAX: usize = 1024;

#[derive(Clone)]
struct Volume {
    header: Header,
    rows: Rows,
    blocks: BTreeMap<BlockId, (BlockRef, Block, i64)>,
    commits: BTreeMap<CommitNo, CommitRow>,
    past: Option<Past>,
}

/// The store.
pub struct MemoryStore {
    volume: RwLock<Volume>,
    /// Held by a transaction.
    writing: Mutex<()>,
}

/// A commit on its way: a copy of the volume.
struct MemoryTransaction<'a> {
    store: &'a MemoryStore,
    _writing: MutexGuard<'a, ()>,
    next: Volume,
    blocks: Vec<BlockId>,
}

impl Clone for MemoryStore {
    fn clone(&self) -> MemoryStore {
        MemoryStore { volume: RwLock::new(self.volume.read().clone()), writing: Mutex::default() }
    }
}

impl MemoryStore {
    /// A volume with a root directory, as commit 1 makes it.
    pub fn new(options: VolumeOptions) -> MemoryStore {
        let header = Header {
            format: crate::FORMAT,
            uuid: *b"in-memory volume",
            options,
            commit: CommitNo(1),
            created: Timestamp(0),
            counters: Counters { next_id: 16, next_block: 1, inodes_used: 1, ..Counters::default() },
        };
        let commits = BTreeMap::from([(header.commit, commit_row(header.commit, Timestamp(0), header.counters.op))]);
        let volume = Volume { header, rows: Rows::new(), blocks: BTreeMap::new(), commits, past: None };
        MemoryStore { volume: RwLock::new(volume), writing: Mutex::default() }
    }

    /// Goes back to what `earlier` holds.
    pub fn restore(&self, earlier: &MemoryStore) {
        let volume = earlier.volume.read().clone();
        *self.volume.write() = volume;
    }

    /// Returns the numbers of references to blocks.
    #[cfg(test)]
    pub(crate) fn references(&self) -> BTreeMap<BlockId, i64> {
        self.volume.read().blocks.iter().map(|(id, (.., refs))| (*id, *refs)).collect()
    }

    /// Returns the number of stored blocks.
    pub fn block_count(&self) -> usize {
        self.volume.read().blocks.len()
    }

    /// Reads the rows that `commit` left.
    fn at<T>(&self, commit: CommitNo, read: impl FnOnce(&Rows) -> T) -> Result<T> {
        let volume = self.volume.read();
        let past = volume.past.as_ref().ok_or_else(crate::past::no_history)?;
        Ok(read(past.rows(commit)?))
    }
}

fn commit_row(number: CommitNo, time: Timestamp, op: OpNo) -> CommitRow {
    CommitRow { number, time, op, root: None, previous: None }
}

impl Volume {
    fn refer(&mut self, id: BlockId, change: i64) {
        if let Some((_, _, refs)) = self.blocks.get_mut(&id) {
            *refs += change;
        }
    }

    fn clear(&mut self, ino: Ino, range: Range<u64>) {
        for id in self.rows.clear(ino, range) {
            self.refer(id, -1);
        }
    }

    fn apply_extents(&mut self, batch: &Batch) -> Result<()> {
        for change in &batch.extents {
            if let ExtentChange::Clear { ino, range } = change {
                self.clear(*ino, range.clone());
            }
        }
        let put = batch.extents.iter().filter_map(|change| match change {
            ExtentChange::Put { ino, span, block } => Some((ino, span, block)),
            ExtentChange::Clear { .. } => None,
        });
        let merged = batch.merged.iter().map(|merged| (&merged.ino, &merged.span, &merged.block));
        for (ino, span, block) in put.chain(merged) {
            self.clear(*ino, span.range());
            let stored = self.blocks.get(&block.id).map(|(stored, _, _)| *stored);
            let stored = stored.ok_or_else(|| Error::Bug(format!("extent names unknown block {}", block.id.0)))?;
            self.rows.extents.insert((*ino, *span), stored);
            self.refer(block.id, 1);
        }
        Ok(())
    }

    fn put_block(&mut self, new: &NewBlock) -> Result<BlockRef> {
        let block = Block::new(new.bytes.to_vec());
        let stored = new.at(Place::Database);
        if self.blocks.insert(new.id, (stored, block, 0)).is_some() {
            return Err(Error::Bug(format!("block {} written twice", new.id.0)));
        }
        Ok(stored)
    }

    fn apply(&mut self, batch: &Batch, blocks: &[BlockId]) -> Result<()> {
        if batch.commit != self.header.commit.next() {
            return Err(Error::Bug(format!("commit {} after {}", batch.commit.0, self.header.commit.0)));
        }
        self.rows.apply_inodes(batch);
        for ino in batch.removed() {
            self.clear(ino, 0..u64::MAX);
        }
        self.rows.apply_names(batch)?;
        self.apply_extents(batch)?;
        self.rows.apply_xattrs(&batch.xattrs);
        if let Some(id) = blocks.iter().find(|id| self.blocks.get(id).is_some_and(|(_, _, refs)| *refs == 0)) {
            return Err(Error::Bug(format!("no extent names new block {}", id.0)));
        }
        history::apply(&mut self.past, batch, &self.rows)?;
        let of_the_past = self.past.as_ref().map(Past::blocks).unwrap_or_default();
        self.blocks.retain(|id, (_, _, refs)| *refs > 0 || of_the_past.contains(id));
        self.header.follow(batch);
        self.commits.insert(batch.commit, commit_row(batch.commit, batch.time, batch.counters.op));
        if self.past.is_none() && self.commits.len() > COMMITS_MAX {
            self.commits.pop_first();
        }
        Ok(())
    }
}

impl RowStore for MemoryStore {
    fn header(&self) -> Result<Header> {
        Ok(self.volume.read().header.clone())
    }

    fn inodes(&self, from: Ino, limit: usize) -> Result<Vec<InodeRow>> {
        let rows = self.volume.read().rows.inodes(from..Ino::MAX, limit);
        Ok(rows.into_iter().map(|(row, _)| row).collect())
    }

    fn name(&self, parent: Ino, name: &Name) -> Result<Option<NameRow>> {
        Ok(self.volume.read().rows.name(parent, name))
    }

    fn names(&self, parent: Ino, after: Cookie, limit: usize) -> Result<Vec<NameRow>> {
        Ok(self.volume.read().rows.names(parent, after, limit))
    }

    fn extents(&self, ino: Ino, range: Range<u64>) -> Result<Vec<(Span, BlockRef)>> {
        Ok(self.volume.read().rows.extents(ino, range))
    }

    fn xattrs(&self, ino: Ino) -> Result<Vec<(Name, Vec<u8>)>> {
        Ok(self.volume.read().rows.xattrs(ino))
    }

    fn orphans(&self) -> Result<Vec<Ino>> {
        Ok(self.volume.read().rows.orphans())
    }

    fn misnamed(&self) -> Result<Vec<Ino>> {
        let volume = self.volume.read();
        let is_named = |ino: &Ino| volume.rows.names.values().any(|name| name.ino == *ino);
        Ok(volume.rows.orphans().into_iter().filter(is_named).collect())
    }

    fn commits(&self, from: CommitNo, limit: usize) -> Result<Vec<CommitRow>> {
        Ok(self.volume.read().commits.range(from..).take(limit).map(|(_, row)| *row).collect())
    }
}

impl PastStore for MemoryStore {
    fn history(&self) -> Result<Option<History>> {
        let volume = self.volume.read();
        Ok(volume.past.as_ref().map(|past| past.history()))
    }

    fn pins(&self) -> Result<Vec<Pin>> {
        Ok(self.volume.read().past.as_ref().map(Past::pins).unwrap_or_default())
    }

    fn is_kept(&self, commit: CommitNo) -> Result<bool> {
        let volume = self.volume.read();
        Ok(commit <= volume.header.commit && volume.past.as_ref().is_some_and(|past| past.keeps(commit)))
    }

    fn commit_at(&self, time: Timestamp) -> Result<Option<CommitRow>> {
        Ok(self.volume.read().commits.values().rfind(|row| row.time <= time).copied())
    }

    fn inodes_at(&self, commit: CommitNo, inos: Range<Ino>, limit: usize) -> Result<Vec<(InodeRow, CommitNo)>> {
        self.at(commit, |rows| rows.inodes(inos, limit))
    }

    fn name_at(&self, commit: CommitNo, parent: Ino, name: &Name) -> Result<Option<NameRow>> {
        self.at(commit, |rows| rows.name(parent, name))
    }

    fn names_at(&self, commit: CommitNo, parent: Ino, after: Cookie, limit: usize) -> Result<Vec<NameRow>> {
        self.at(commit, |rows| rows.names(parent, after, limit))
    }

    fn extents_at(&self, commit: CommitNo, ino: Ino, range: Range<u64>) -> Result<Vec<(Span, BlockRef)>> {
        self.at(commit, |rows| rows.extents(ino, range))
    }

    fn xattrs_at(&self, commit: CommitNo, ino: Ino) -> Result<Vec<(Name, Vec<u8>)>> {
        self.at(commit, |rows| rows.xattrs(ino))
    }

    fn digest_at(&self, commit: CommitNo, _ino: Ino) -> Result<Option<Digest>> {
        self.at(commit, |_| None)
    }

    fn versions(&self, ino: Ino, until: CommitNo, limit: usize) -> Result<Vec<(InodeRow, Range<CommitNo>)>> {
        let volume = self.volume.read();
        let past = volume.past.as_ref().ok_or_else(crate::past::no_history)?;
        Ok(past.versions(ino, until, limit))
    }
}

impl BlockStore for MemoryStore {
    fn read_block(&self, block: &BlockRef, _mode: ReadMode) -> Result<Option<Block>> {
        let volume = self.volume.read();
        let (_, bytes, _) =
            volume.blocks.get(&block.id).ok_or_else(|| Error::Corrupt(format!("block {} is missing", block.id.0)))?;
        if !block.verify(bytes) {
            return Err(Error::Corrupt(format!("block {} has other bytes than were written", block.id.0)));
        }
        Ok(Some(bytes.clone()))
    }
}

impl CommitStore for MemoryStore {
    fn begin(&self, _durability: Durability) -> Result<Box<dyn Transaction + '_>> {
        let writing = self.writing.lock();
        let next = self.volume.read().clone();
        Ok(Box::new(MemoryTransaction { store: self, _writing: writing, next, blocks: Vec::new() }))
    }
}

impl Maintenance for MemoryStore {
    fn space(&self) -> Result<Space> {
        Ok(Space { bytes_total: u64::MAX / 2, bytes_free: u64::MAX / 2, bytes_reserved: 0 })
    }
}

impl Transaction for MemoryTransaction<'_> {
    fn put_blocks(&mut self, blocks: Vec<NewBlock>) -> Result<Vec<BlockRef>> {
        self.blocks.extend(blocks.iter().map(|new| new.id));
        blocks.iter().map(|new| self.next.put_block(new)).collect()
    }

    fn commit(mut self: Box<Self>, batch: &Batch) -> Result<()> {
        self.next.apply(batch, &self.blocks)?;
        *self.store.volume.write() = self.next;
        Ok(())
    }
}
