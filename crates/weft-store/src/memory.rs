//! A store in memory, for tests and for measuring what lies above it.
//!
//! It keeps the rows in plain maps and checks what a batch promises. Cloning it takes a snapshot.

use crate::Name;
use crate::batch::{Batch, Counters, ExtentChange, InodeChange, NameChange, NewBlock};
use crate::error::{Error, Result};
use crate::past::PastStore;
use crate::row::{BlockId, BlockRef, CommitNo, Cookie, Ino, InodeRow, NameRow, Place, Timestamp};
use crate::store::{
    BlockStore, CommitStore, Durability, Header, Maintenance, ReadMode, RowStore, Space, Transaction, VolumeOptions,
};
use parking_lot::{Mutex, MutexGuard, RwLock};
use std::collections::BTreeMap;
use std::ops::Range;
use weft_block::Block;

#[derive(Clone)]
struct Rows {
    header: Header,
    inodes: BTreeMap<Ino, InodeRow>,
    names: BTreeMap<(Ino, Name), NameRow>,
    cookies: BTreeMap<(Ino, Cookie), Name>,
    extents: BTreeMap<(Ino, u64), BlockRef>,
    xattrs: BTreeMap<(Ino, Name), Vec<u8>>,
    blocks: BTreeMap<BlockId, (BlockRef, Block, i64)>,
}

/// The store.
pub struct MemoryStore {
    rows: RwLock<Rows>,
    /// Held by a transaction.
    writing: Mutex<()>,
}

/// A commit on its way: a copy of the rows.
struct MemoryTransaction<'a> {
    store: &'a MemoryStore,
    _writing: MutexGuard<'a, ()>,
    next: Rows,
    blocks: Vec<BlockId>,
}

impl Clone for MemoryStore {
    fn clone(&self) -> MemoryStore {
        MemoryStore { rows: RwLock::new(self.rows.read().clone()), writing: Mutex::default() }
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
        let root = InodeRow::new_root(0, 0, Timestamp(0));
        MemoryStore {
            rows: RwLock::new(Rows {
                header,
                inodes: BTreeMap::from([(Ino::ROOT, root)]),
                names: BTreeMap::new(),
                cookies: BTreeMap::new(),
                extents: BTreeMap::new(),
                xattrs: BTreeMap::new(),
                blocks: BTreeMap::new(),
            }),
            writing: Mutex::default(),
        }
    }

    /// Goes back to what `earlier` holds.
    pub fn restore(&self, earlier: &MemoryStore) {
        let rows = earlier.rows.read().clone();
        *self.rows.write() = rows;
    }

    /// Returns the numbers of references to blocks.
    #[cfg(test)]
    pub(crate) fn references(&self) -> BTreeMap<BlockId, i64> {
        self.rows.read().blocks.iter().map(|(id, (.., refs))| (*id, *refs)).collect()
    }

    /// Returns the number of stored blocks.
    pub fn block_count(&self) -> usize {
        self.rows.read().blocks.len()
    }
}

impl Rows {
    fn refer(&mut self, id: BlockId, change: i64) {
        if let Some((_, _, refs)) = self.blocks.get_mut(&id) {
            *refs += change;
        }
    }

    fn clear(&mut self, ino: Ino, range: Range<u64>) {
        let gone: Vec<_> = self.extents.range((ino, range.start)..(ino, range.end)).map(|(k, v)| (*k, v.id)).collect();
        for (key, id) in gone {
            self.extents.remove(&key);
            self.refer(id, -1);
        }
    }

    fn remove_name(&mut self, parent: Ino, name: &Name) {
        if let Some(row) = self.names.remove(&(parent, name.clone())) {
            self.cookies.remove(&(parent, row.cookie));
        }
    }

    fn apply_names(&mut self, batch: &Batch) -> Result<()> {
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

    fn apply_extents(&mut self, batch: &Batch) -> Result<()> {
        for change in &batch.extents {
            if let ExtentChange::Clear { ino, range } = change {
                self.clear(*ino, range.clone());
            }
        }
        for change in &batch.extents {
            let ExtentChange::Put { ino, index, block } = change else { continue };
            self.clear(*ino, *index..index + 1);
            let stored = self.blocks.get(&block.id).map(|(stored, _, _)| *stored);
            let stored = stored.ok_or_else(|| Error::Bug(format!("extent names unknown block {}", block.id.0)))?;
            self.extents.insert((*ino, *index), stored);
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
        for change in &batch.inodes {
            match change {
                InodeChange::Put(row) => {
                    self.inodes.insert(row.ino, row.clone());
                }
                InodeChange::Remove(ino) => {
                    self.inodes.remove(ino);
                    self.clear(*ino, 0..u64::MAX);
                    self.xattrs.retain(|(owner, _), _| owner != ino);
                }
            }
        }
        self.apply_names(batch)?;
        self.apply_extents(batch)?;
        for change in &batch.xattrs {
            let key = (change.ino, change.name.clone());
            match &change.value {
                Some(value) => self.xattrs.insert(key, value.clone()),
                None => self.xattrs.remove(&key),
            };
        }
        if let Some(id) = blocks.iter().find(|id| self.blocks.get(id).is_some_and(|(_, _, refs)| *refs == 0)) {
            return Err(Error::Bug(format!("no extent names new block {}", id.0)));
        }
        self.blocks.retain(|_, (_, _, refs)| *refs > 0);
        self.header.commit = batch.commit;
        self.header.counters = batch.counters;
        Ok(())
    }
}

impl RowStore for MemoryStore {
    fn header(&self) -> Result<Header> {
        Ok(self.rows.read().header.clone())
    }

    fn inodes(&self, from: Ino, limit: usize) -> Result<Vec<InodeRow>> {
        Ok(self.rows.read().inodes.range(from..).take(limit).map(|(_, row)| row.clone()).collect())
    }

    fn name(&self, parent: Ino, name: &Name) -> Result<Option<NameRow>> {
        Ok(self.rows.read().names.get(&(parent, name.clone())).cloned())
    }

    fn names(&self, parent: Ino, after: Cookie, limit: usize) -> Result<Vec<NameRow>> {
        let rows = self.rows.read();
        let cookies = rows.cookies.range((parent, after.next())..(parent.next(), Cookie(0)));
        Ok(cookies.take(limit).filter_map(|(_, name)| rows.names.get(&(parent, name.clone())).cloned()).collect())
    }

    fn extents(&self, ino: Ino, range: Range<u64>) -> Result<Vec<(u64, BlockRef)>> {
        let rows = self.rows.read();
        let found = rows.extents.range((ino, range.start)..(ino, range.end));
        Ok(found.map(|((_, index), block)| (*index, *block)).collect())
    }

    fn xattrs(&self, ino: Ino) -> Result<Vec<(Name, Vec<u8>)>> {
        let rows = self.rows.read();
        let own = rows.xattrs.iter().filter(|((owner, _), _)| *owner == ino);
        Ok(own.map(|((_, name), value)| (name.clone(), value.clone())).collect())
    }

    fn orphans(&self) -> Result<Vec<Ino>> {
        Ok(self.rows.read().inodes.values().filter(|row| row.nlink == 0).map(|row| row.ino).collect())
    }

    fn misnamed(&self) -> Result<Vec<Ino>> {
        let rows = self.rows.read();
        let is_named = |ino: &Ino| rows.names.values().any(|name| name.ino == *ino);
        Ok(rows.inodes.values().filter(|row| row.nlink == 0).map(|row| row.ino).filter(is_named).collect())
    }
}

impl BlockStore for MemoryStore {
    fn read_block(&self, block: &BlockRef, _mode: ReadMode) -> Result<Option<Block>> {
        let rows = self.rows.read();
        let (_, bytes, _) =
            rows.blocks.get(&block.id).ok_or_else(|| Error::Corrupt(format!("block {} is missing", block.id.0)))?;
        if !block.verify(bytes) {
            return Err(Error::Corrupt(format!("block {} has other bytes than were written", block.id.0)));
        }
        Ok(Some(bytes.clone()))
    }
}

impl CommitStore for MemoryStore {
    fn begin(&self, _durability: Durability) -> Result<Box<dyn Transaction + '_>> {
        let writing = self.writing.lock();
        let next = self.rows.read().clone();
        Ok(Box::new(MemoryTransaction { store: self, _writing: writing, next, blocks: Vec::new() }))
    }
}

impl PastStore for MemoryStore {}

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
        *self.store.rows.write() = self.next;
        Ok(())
    }
}
