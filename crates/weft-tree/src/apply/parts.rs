//! Changes that drop very many blocks, a part at a time.
//!
//! A part drops what one commit deletes in little time, and needs as much of a file's map in
//! memory. It is a change of its own, from the end back: of a file that is cut, a crash leaves one
//! that is longer than it was to be.

use crate::inode::Changed;
use crate::mutation::{Lost, Mutation, SetRow};
use crate::stop::{Miss, Stop};
use crate::tree::{ROW_BYTES, Tree};
use std::ops::Range;
use weft_store::{Ino, Kind, Timestamp};

/// Most blocks of a part.
pub const PART_BLOCKS: u64 = 4096;

/// Most blocks that a file drops at once when it becomes empty or is deleted: none of them has to
/// be known for that.
const EMPTIED_BLOCKS: u64 = 1 << 18;

/// Inodes that are drained and deleted together.
const DRAINED_TOGETHER: usize = 1024;

impl Tree {
    /// Cuts a part off the end of file `ino`, which is to be `size` bytes long, and stops with
    /// [`Miss::Rest`], as long as there is more to drop than fits one part. Times stay.
    pub fn shorten(&mut self, ino: Ino, size: u64) -> Result<(), Stop> {
        let block_size = self.block_size();
        let row = &self.file(ino)?.row;
        let (indices, time) = (size.div_ceil(block_size)..row.size.div_ceil(block_size), row.ctime);
        if size == 0 && indices.end <= EMPTIED_BLOCKS {
            return Ok(());
        }
        let Some(from) = self.last_part(ino, indices)? else { return Ok(()) };
        self.room(PART_BLOCKS * ROW_BYTES)?;
        let set = SetRow { size: Some(from * block_size), ..SetRow::default() };
        self.perform(&Mutation::Attributes { ino, set, time })?;
        Err(Miss::Rest.into())
    }

    /// Makes the last part of `range` of file `ino` a hole, and stops, as [`Tree::shorten`] does.
    pub fn punch(&mut self, ino: Ino, range: Range<u64>, time: Timestamp) -> Result<(), Stop> {
        let block_size = self.block_size();
        let size = self.file(ino)?.row.size;
        let indices = range.start.div_ceil(block_size)..range.end.min(size) / block_size;
        let end = indices.end;
        let Some(from) = self.last_part(ino, indices)? else { return Ok(()) };
        self.room(PART_BLOCKS * ROW_BYTES)?;
        let (offset, len) = (from * block_size, (end - from) * block_size);
        self.perform(&Mutation::Zero { ino, offset, len, size, lost: Lost::default(), time })?;
        Err(Miss::Rest.into())
    }

    /// Finds where a part begins that is to be dropped before the rest of `range`. None if there is
    /// no more than a part in all.
    fn last_part(&mut self, ino: Ino, range: Range<u64>) -> Result<Option<u64>, Stop> {
        if range.end.saturating_sub(range.start) <= PART_BLOCKS {
            return Ok(None);
        }
        let data = self.file(ino)?.data();
        let known = data.known.tail_of(range.clone());
        let last = data.extents.range(known..range.end).rev().take(PART_BLOCKS as usize);
        let from = match (last.clone().count() as u64, last.last()) {
            (PART_BLOCKS, Some((index, _))) => *index,
            (1.., _) => known,
            _ if known > range.start => return Err(Miss::LastExtents(ino, range.start..known).into()),
            _ => return Ok(None),
        };
        Ok(Some(from).filter(|from| *from > range.start))
    }

    /// The work of a commit that drops all blocks of file `ino`, which is in memory, as bytes.
    pub(crate) fn work_of_removal(&self, ino: Ino) -> u64 {
        self.blocks_stored(ino) * ROW_BYTES
    }

    /// Blocks that file `ino`, which is in memory, has in the store, at most.
    fn blocks_stored(&self, ino: Ino) -> u64 {
        let inode = self.inodes.peek(&ino).filter(|inode| inode.stored && inode.row.inline.is_none());
        inode.map_or(0, |inode| inode.row.size.div_ceil(self.block_size()).min(inode.row.allocated))
    }

    /// Has inode `ino`, which is in memory and which nothing needs any more, drained before it is
    /// deleted, if it has too many blocks to be deleted at once, or the store does not know yet to
    /// whom it was closed. Tells whether it is.
    pub fn drain(&mut self, ino: Ino) -> bool {
        let is_closed = self.inodes.peek(&ino).is_some_and(|inode| inode.closed != Changed::CLEAN);
        if !is_closed && self.blocks_stored(ino) <= EMPTIED_BLOCKS {
            return false;
        }
        self.orphans.insert(ino);
        self.draining.push(ino);
        self.touch(ino);
        true
    }

    /// Cuts a part off the first of the inodes that are drained, or deletes some of them; tells
    /// whether there are others. It is no operation: nobody sees it, and the next mount goes on
    /// with it.
    pub fn drain_part(&mut self) -> Result<bool, Stop> {
        for _ in 0..DRAINED_TOGETHER {
            let Some(ino) = self.draining.first() else { return Ok(false) };
            let is_needless = self.orphans.contains(&ino) && !self.holds.contains_key(&ino);
            // One that is gone already cannot be read.
            if is_needless && self.inode(ino)?.row.nlink == 0 {
                let inode = self.inode(ino)?;
                if inode.closed != Changed::CLEAN {
                    // A commit that follows tells the store.
                    return Ok(false);
                }
                if inode.row.kind == Kind::File && self.cut_part(ino)? {
                    return Ok(true);
                }
                self.delete_drained(ino);
            }
            self.draining.remove_first();
        }
        Ok(!self.draining.is_empty())
    }

    /// Cuts the last part off file `ino`, if it has too many blocks to be deleted at once. Tells
    /// whether it has.
    fn cut_part(&mut self, ino: Ino) -> Result<bool, Stop> {
        let block_size = self.block_size();
        let blocks = self.file(ino)?.row.size.div_ceil(block_size);
        if blocks > EMPTIED_BLOCKS
            && let Some(from) = self.last_part(ino, 0..blocks)?
        {
            self.apply_size(ino, from * block_size)?;
            self.touch(ino);
            return Ok(true);
        }
        Ok(false)
    }
}
