//! One commit: blocks as they come, then, in the same SQL transaction, the rows that name them.
//!
//! Blocks in segments are written on a thread of their own, in their order, while the committing
//! thread makes the next ones or the rows; the rows are committed when all blocks are written and
//! synced.

use super::SqliteStore;
use super::apply::{NewRows, Writer};
use super::extents::Stored;
use super::segments::{Segments, Tail};
use super::writing::{Work, Writing};
use crate::batch::{Batch, NewBlock, SplitBlock};
use crate::error::Result;
use crate::row::{BlockRef, Place};
use crate::store::{Durability, Transaction};
use crate::user::Rights;
use parking_lot::MutexGuard;
use std::sync::mpsc::channel;

/// A transaction that has the writer until it ends. Dropped, it is rolled back.
pub(super) struct SqliteTransaction<'a> {
    store: &'a SqliteStore,
    writer: MutexGuard<'a, Writer>,
    durability: Durability,
    blocks: Vec<Stored>,
    /// The place of the next block if this is committed.
    tail: Tail,
    writing: Option<Writing>,
    /// Rights of the volume's owner, until all is done. Dropped last.
    _rights: Rights,
}

impl<'a> SqliteTransaction<'a> {
    pub(super) fn begin(
        store: &'a SqliteStore,
        durability: Durability,
        rights: Rights,
    ) -> Result<SqliteTransaction<'a>> {
        let mut writer = store.writer.lock();
        writer.begin(durability)?;
        let tail = writer.tail();
        Ok(SqliteTransaction { store, writer, durability, blocks: Vec::new(), tail, writing: None, _rights: rights })
    }

    /// Puts the bytes of `blocks` where they will lie.
    fn store_bytes(&mut self, blocks: Vec<NewBlock>) -> Result<Vec<Place>> {
        let Some(segments) = self.store.segments.clone() else {
            self.writer.write_bytes(&blocks)?;
            return Ok(vec![Place::Database; blocks.len()]);
        };
        self.store.doubt_behind()?;
        let (places, tail) = Segments::assign(self.tail, &blocks);
        self.tail = tail;
        let writing = self.writing.get_or_insert_with(|| Writing::start(segments));
        writing.append(blocks, places.clone())?;
        Ok(places)
    }

    /// Puts blocks as [`Transaction::put_blocks`] does.
    fn put(&mut self, mut blocks: Vec<NewBlock>) -> Result<Vec<BlockRef>> {
        if blocks.is_empty() {
            return Ok(Vec::new());
        }
        let stored = |new: &mut NewBlock| {
            let block = new.at(Place::Database);
            Stored { block, parts: std::mem::take(&mut new.parts), alone: new.alone }
        };
        let stored = blocks.iter_mut().map(stored).collect::<Vec<_>>();
        let places = self.store_bytes(blocks)?;
        let placed = |(stored, place): (Stored, Place)| Stored { block: BlockRef { place, ..stored.block }, ..stored };
        let first = self.blocks.len();
        self.blocks.extend(stored.into_iter().zip(places).map(placed));
        Ok(self.blocks[first..].iter().map(|stored| stored.block).collect())
    }

    /// Has all blocks written and synced while the rows of `batch` are made, then commits these.
    fn write(&mut self, batch: &Batch) -> Result<()> {
        let (freed, synced) = if let Some(segments) = self.store.segments.clone() {
            let writing = self.writing.take();
            let places = self.blocks.iter().map(|stored| stored.block.place).collect::<Vec<_>>();
            let (tell, written) = channel::<()>();
            let syncing = Work::start(move || {
                let result = writing.map_or(Ok(()), Writing::finish);
                drop(tell);
                result.and_then(|()| segments.sync(&places))
            });
            // Nothing is ever sent: the end of what would send is told.
            let wait = || {
                let _ = written.recv();
            };
            let rows = NewRows { batch, blocks: &self.blocks, tail: self.tail, wait: &wait };
            let freed = self.writer.write_rows(&rows);
            (freed, syncing.finish())
        } else {
            let rows = NewRows { batch, blocks: &self.blocks, tail: self.tail, wait: &|| () };
            (self.writer.write_rows(&rows), Ok(()))
        };
        synced?;
        self.writer.commit(freed?, self.tail)
    }
}

impl Transaction for SqliteTransaction<'_> {
    fn put_blocks(&mut self, blocks: Vec<NewBlock>) -> Result<Vec<BlockRef>> {
        let put = self.put(blocks);
        put.inspect_err(|error| self.writer.has_failed(error))
    }

    fn split_block(&mut self, split: &SplitBlock) -> Result<Option<Vec<BlockRef>>> {
        let parts = self.writer.split_block(split);
        parts.inspect_err(|error| self.writer.has_failed(error))
    }

    fn commit(mut self: Box<Self>, batch: &Batch) -> Result<()> {
        if let Err(error) = self.write(batch) {
            self.writer.has_failed(&error);
            return Err(error);
        }
        self.store.header.lock().follow(batch);
        *self.store.history.lock() = self.writer.history().cloned();
        self.store.readers.end_transactions();
        let durability = self.durability;
        self.writer.after_commit(durability);
        Ok(())
    }
}

impl Drop for SqliteTransaction<'_> {
    fn drop(&mut self) {
        // The next transaction will write to the same places. Why this one failed has been told.
        let _ = self.writing.take().map(Writing::finish);
        self.writer.roll_back();
    }
}
