//! One commit of what a stream brings: blocks go to the store as they come, rows are gathered.

use super::wrong;
use crate::batch::{Batch, ExtentChange, NewBlock};
use crate::error::Result;
use crate::row::{BlockId, BlockRef, Ino, InodeRow, Span, Timestamp};
use crate::store::{Durability, Store, Transaction};
use rustc_hash::FxHashMap;
use weft_block::Rope;
use weft_digest::{Digest, Kind};

/// Bytes of blocks that are put together.
const BYTES_TOGETHER: usize = 4 << 20;

/// A commit that is being gathered. Dropped before [`Pending::commit`] it changes nothing.
pub(super) struct Pending<'a> {
    store: &'a dyn Store,
    /// Begun with the first block.
    transaction: Option<Box<dyn Transaction + 'a>>,
    durability: Durability,
    pub(super) batch: Batch,
    block_size: u32,
    queue: Vec<(Span, NewBlock)>,
    queued: usize,
    /// Blocks of this commit, by the byte at which they were put.
    places: FxHashMap<(Ino, u64), BlockRef>,
    /// Bytes of blocks so far, and those that whoever fills the batch adds.
    pub(super) bytes: u64,
    /// True while all that comes is in the store already, and so is not put there again.
    pub(super) is_there: bool,
}

impl<'a> Pending<'a> {
    /// A commit after the last one of `store`, made at `time`, or then.
    pub(super) fn new(store: &'a dyn Store, time: Timestamp, durability: Durability) -> Result<Pending<'a>> {
        let header = store.header()?;
        let last = store.commits(header.commit, 1)?.pop().map_or(time, |last| last.time);
        let (commit, counters) = (header.commit.next(), header.counters);
        let batch = Batch { commit, time: time.max(last), counters, ..Batch::default() };
        Ok(Pending {
            store,
            transaction: None,
            durability,
            batch,
            block_size: header.options.block_size,
            queue: Vec::new(),
            queued: 0,
            places: FxHashMap::default(),
            bytes: 0,
            is_there: false,
        })
    }

    /// Puts a new block of the file `row`. Returns its length.
    pub(super) fn block(&mut self, row: &InodeRow, span: Span, base: u64, bytes: Vec<u8>) -> Result<u64> {
        let length = bytes.len() as u64;
        self.refuse_place(row, span, length)?;
        let length_for = u32::try_from(length).map_or(span.length, Span::length_for);
        let is_block = length > 0 && base.is_multiple_of(length_for.into());
        if !is_block || base > i64::MAX.unsigned_abs() {
            return Err(wrong(&format!("inode {} has a block that is none", row.ino.0)));
        }
        if self.is_there {
            return Ok(length);
        }
        let id = BlockId(self.batch.counters.next_block);
        self.batch.counters.next_block += 1;
        self.queued += bytes.len();
        self.bytes += length;
        self.queue.push((span, NewBlock::new(id, row.ino, Rope::from(bytes), base)));
        if self.queued >= BYTES_TOGETHER {
            self.flush()?;
        }
        Ok(length)
    }

    /// Puts the block that the file of inode `other` has at byte `at` into the file `row`, too.
    /// Returns its length.
    pub(super) fn shared(&mut self, row: &InodeRow, span: Span, (other, at): (Ino, u64)) -> Result<u64> {
        self.flush()?;
        let there = match self.places.get(&(other, at)) {
            Some(block) => Some(*block),
            None => self.store.extents(other, at..at + 1)?.pop().map(|(_, block)| block),
        };
        let block = there.ok_or_else(|| wrong(&format!("inode {} shares a block that is not there", row.ino.0)))?;
        self.refuse_place(row, span, block.length.into())?;
        self.put(row.ino, span, block);
        Ok(block.length.into())
    }

    /// Refuses a block where the file `row` can have none.
    fn refuse_place(&self, row: &InodeRow, span: Span, length: u64) -> Result<()> {
        let fits = span.is_valid(self.block_size) && length <= span.length.into();
        let end = span.start.checked_add(length).filter(|_| fits);
        let has_blocks = row.kind == Kind::File && row.inline.is_none();
        match end {
            Some(end) if has_blocks && end <= row.size => Ok(()),
            _ => Err(wrong(&format!("inode {} has a block where it can have none", row.ino.0))),
        }
    }

    fn put(&mut self, ino: Ino, span: Span, block: BlockRef) {
        if self.is_there {
            return;
        }
        self.places.insert((ino, span.start), block);
        self.batch.extents.push(ExtentChange::Put { ino, span, block });
    }

    /// Gives the blocks so far to the store.
    fn flush(&mut self) -> Result<()> {
        if self.queue.is_empty() {
            return Ok(());
        }
        let (places, blocks): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.queue).into_iter().map(|(span, new)| ((new.owner, span), new)).unzip();
        self.queued = 0;
        let stored = self.transaction()?.put_blocks(blocks)?;
        for ((ino, span), block) in places.into_iter().zip(stored) {
            self.put(ino, span, block);
        }
        Ok(())
    }

    fn transaction(&mut self) -> Result<&mut Box<dyn Transaction + 'a>> {
        if self.transaction.is_none() {
            self.transaction = Some(self.store.begin(self.durability)?);
        }
        Ok(self.transaction.as_mut().expect("just begun"))
    }

    /// Forgets the rows that were gathered.
    pub(super) fn forget(&mut self) {
        let Batch { inodes, names, xattrs, .. } = &mut self.batch;
        inodes.clear();
        names.clear();
        xattrs.clear();
        self.bytes = 0;
    }

    /// Number of rows gathered so far.
    pub(super) fn rows(&self) -> usize {
        let Batch { inodes, names, extents, xattrs, .. } = &self.batch;
        inodes.len() + names.len() + extents.len() + xattrs.len() + self.queue.len()
    }

    /// Commits. Fails if the tree would have another digest than `root`, and changes nothing then.
    pub(super) fn commit(&mut self, root: Option<Digest>) -> Result<()> {
        self.flush()?;
        self.transaction()?;
        self.batch.expected_root = root;
        match self.transaction.take() {
            Some(transaction) => transaction.commit(&self.batch),
            None => Ok(()),
        }
    }
}
