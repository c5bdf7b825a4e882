//! One commit: blocks as they come, then, in the same SQL transaction, the rows that name them.
//!
//! Blocks in segments are written as they come and synced before the rows are committed.

use super::SqliteStore;
use super::apply::Writer;
use super::segments::Tail;
use crate::batch::{Batch, NewBlock};
use crate::error::Result;
use crate::row::{BlockRef, Place};
use crate::store::{Durability, Transaction};
use parking_lot::MutexGuard;
use weft_digest::Parts;

/// A transaction that has the writer until it ends. Dropped, it is rolled back.
pub(super) struct SqliteTransaction<'a> {
    store: &'a SqliteStore,
    writer: MutexGuard<'a, Writer>,
    durability: Durability,
    blocks: Vec<(BlockRef, Parts)>,
    /// Where the next block goes if this is committed.
    tail: Tail,
}

impl<'a> SqliteTransaction<'a> {
    pub(super) fn begin(store: &'a SqliteStore, durability: Durability) -> Result<SqliteTransaction<'a>> {
        let writer = store.writer.lock();
        writer.begin(durability)?;
        let tail = writer.tail();
        Ok(SqliteTransaction { store, writer, durability, blocks: Vec::new(), tail })
    }

    fn store_bytes(&mut self, blocks: &[NewBlock]) -> Result<Vec<Place>> {
        let Some(segments) = &self.store.segments else {
            self.writer.write_bytes(blocks)?;
            return Ok(vec![Place::Database; blocks.len()]);
        };
        let (places, tail) = segments.append(self.tail, blocks)?;
        self.tail = tail;
        Ok(places)
    }
}

impl Transaction for SqliteTransaction<'_> {
    fn put_blocks(&mut self, blocks: &[NewBlock]) -> Result<Vec<BlockRef>> {
        if blocks.is_empty() {
            return Ok(Vec::new());
        }
        let places = self.store_bytes(blocks)?;
        let stored = blocks.iter().zip(places).map(|(block, place)| block.at(place)).collect::<Vec<_>>();
        self.blocks.extend(stored.iter().copied().zip(blocks.iter().map(|block| block.parts.clone())));
        Ok(stored)
    }

    fn commit(mut self: Box<Self>, batch: &Batch) -> Result<()> {
        let transaction = &mut *self;
        let store = transaction.store;
        if let Some(segments) = &store.segments {
            segments.sync(transaction.blocks.iter().map(|(block, _)| block.place))?;
        }
        transaction.writer.commit(batch, &transaction.blocks, transaction.tail)?;
        {
            let mut header = store.header.lock();
            header.commit = batch.commit;
            header.counters = batch.counters;
        }
        store.readers.end_transactions();
        transaction.writer.after_commit(transaction.durability);
        Ok(())
    }
}

impl Drop for SqliteTransaction<'_> {
    fn drop(&mut self) {
        self.writer.roll_back();
    }
}
