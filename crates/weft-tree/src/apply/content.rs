//! Applies changes of content: writes, zeros, new sizes, shared blocks.
//!
//! Keeps `allocated` exact: for each block touched, what it will take when stored, before and
//! after.

use crate::data::{FileData, Frozen, Stored};
use crate::inode::Inode;
use crate::mutation::Data;
use crate::stop::{Miss, Stop};
use crate::tree::{ROW_BYTES, Tree, recount};
use std::ops::Range;
use weft_store::Ino;

/// Indices read from the store at once.
const INDICES_READ: u64 = 512;

impl Tree {
    /// Makes sure that the stored blocks of `range` are known for file `ino`, which is in memory.
    pub fn know_extents(&mut self, ino: Ino, range: Range<u64>) -> Result<(), Stop> {
        let Some(gap) = self.file(ino)?.data().known.first_gap(range) else { return Ok(()) };
        let start = gap.start - gap.start % INDICES_READ;
        let end = gap.end.checked_next_multiple_of(INDICES_READ).unwrap_or(u64::MAX);
        Err(Miss::Extents(ino, start..end).into())
    }

    /// Forgets the stored blocks that are known for inode `ino`, if it is a file in memory and they
    /// are those of the store.
    pub fn forget_extents(&mut self, ino: Ino) {
        let Some(inode) = self.inodes.get(&ino).filter(|inode| inode.stored && inode.row.inline.is_none()) else {
            return;
        };
        if let Some(data) = inode.data.as_mut().filter(|_| inode.row.allocated > 0) {
            data.forget();
            self.inodes.reweigh(&ino);
        }
    }

    /// Changes inode `ino` by `change` and accounts for what blocks `range` take before and after,
    /// with the block that the end of the file lies in.
    fn account(&mut self, ino: Ino, range: Range<u64>, change: impl FnOnce(&mut Inode, u64) -> i64) {
        let block_size = self.block_size();
        let inode = self.inodes.get(&ino).expect("a changed file is in memory");
        let tail = inode.row.size / block_size;
        let tail = if range.contains(&tail) { tail..tail } else { tail..tail + 1 };
        let before = taken(inode, &range, block_size) + taken(inode, &tail, block_size);
        let extents = |inode: &Inode| inode.data.as_ref().map_or(0, |data| data.extents.len());
        let extents_before = extents(inode);
        let dirty = change(inode, block_size);
        let dropped = extents_before.saturating_sub(extents(inode)) as u64;
        let after = taken(inode, &range, block_size) + taken(inode, &tail, block_size);
        recount(&mut inode.row.allocated, after, before);
        recount(&mut self.counters.bytes_used, after, before);
        self.dirty_bytes = self.dirty_bytes.checked_add_signed(dirty).expect("dirty bytes are counted exactly");
        self.work_bytes += dropped * ROW_BYTES;
    }

    pub(super) fn apply_write(&mut self, ino: Ino, offset: u64, data: &Data<'_>) -> Result<(), Stop> {
        let block_size = self.block_size();
        let end = offset + data.len() as u64;
        let indices = offset / block_size..end.div_ceil(block_size);
        self.know_extents(ino, indices.clone())?;
        self.file(ino)?;
        self.spill_inline(ino, end);
        self.account(ino, indices, |inode, block_size| {
            inode.row.size = inode.row.size.max(end);
            put(inode.data(), offset, data, block_size)
        });
        self.bytes_written += data.len() as u64;
        Ok(())
    }

    /// Puts back `data` that belongs over a damaged block and that no commit could store: no
    /// operation of its own.
    pub fn apply_carried(&mut self, ino: Ino, offset: u64, data: &Data<'_>) -> Result<(), Stop> {
        self.apply_write(ino, offset, data)?;
        self.touch(ino);
        Ok(())
    }

    /// Moves inline content into dirty block 0 if a file of `size` bytes may no longer be inline.
    fn spill_inline(&mut self, ino: Ino, size: u64) {
        let inline_max = u64::from(self.volume.inline_max);
        let inode = self.inodes.get(&ino).expect("a written file is in memory");
        if size <= inline_max {
            return;
        }
        let Some(inline) = inode.row.inline.take() else { return };
        let bytes = inline.len() as u64;
        let data = inode.data.get_or_insert_with(|| Box::new(FileData::without_extents()));
        let pieces = &mut data.dirty.entry(0).or_default().pieces;
        let before = pieces.cost();
        pieces.thaw(&Frozen::at_start(inline));
        let after = pieces.cost();
        if bytes == 0 && pieces.is_empty() {
            data.dirty.remove(&0);
        }
        self.dirty_bytes += after;
        self.dirty_bytes -= before;
    }

    pub(super) fn apply_zero(&mut self, ino: Ino, range: Range<u64>, size: u64) -> Result<(), Stop> {
        let block_size = self.block_size();
        let old_size = self.file(ino)?.row.size;
        let end = range.end.min(old_size.max(size));
        let range = range.start.min(end)..end;
        let indices = range.start / block_size..range.end.div_ceil(block_size);
        self.know_extents(ino, indices.clone())?;
        self.spill_inline(ino, size);
        self.account(ino, indices, |inode, block_size| {
            inode.row.size = inode.row.size.max(size);
            zero_range(inode, range, block_size)
        });
        Ok(())
    }

    /// Sets the size of file `ino`: cuts off or extends with a hole.
    pub(super) fn apply_size(&mut self, ino: Ino, size: u64) -> Result<(), Stop> {
        let block_size = self.block_size();
        let old = self.file(ino)?.row.size;
        if size >= old {
            self.know_extents(ino, old / block_size..(old / block_size + 1).min(size.div_ceil(block_size)))?;
            self.spill_inline(ino, size);
            self.account(ino, 0..0, |inode, _| {
                inode.row.size = size;
                0
            });
            return Ok(());
        }
        if size == 0 {
            self.account_empty(ino);
            return Ok(());
        }
        let indices = size / block_size..u64::MAX;
        self.know_extents(ino, indices.clone())?;
        self.account(ino, indices, |inode, block_size| {
            let dirty = cut(inode, size, block_size);
            inode.row.size = size;
            dirty
        });
        Ok(())
    }

    /// Makes file `ino`, which is in memory, empty without looking at what it had.
    fn account_empty(&mut self, ino: Ino) {
        self.work_bytes += self.work_of_removal(ino);
        let inode = self.inodes.get(&ino).expect("a changed file is in memory");
        inode.row.inline = None;
        let clean = inode.data().drop_blocks(0..u64::MAX);
        recount(&mut self.counters.bytes_used, 0, inode.row.allocated);
        inode.row.allocated = 0;
        inode.row.size = 0;
        self.dirty_bytes -= clean;
    }

    /// Makes `bytes` all that file `ino` holds.
    pub(super) fn apply_replace(&mut self, ino: Ino, bytes: &[u8]) -> Result<(), Stop> {
        self.file(ino)?;
        self.account_empty(ino);
        // Of an empty file nothing has to be fetched.
        self.apply_write(ino, 0, &bytes.into())
    }

    /// Makes what file `from` holds all that file `ino` does.
    pub(super) fn apply_replace_by(&mut self, ino: Ino, from: Ino) -> Result<(), Stop> {
        let block_size = self.block_size();
        let row = &self.file(from)?.row;
        let (size, inline) = (row.size, row.inline.clone());
        let count = size.div_ceil(block_size);
        self.know_extents(from, 0..count)?;
        if !self.file(from)?.data().dirty.is_empty() {
            return Err(Miss::Commit.into());
        }
        self.file(ino)?;
        self.account_empty(ino);
        match inline {
            Some(bytes) => self.apply_write(ino, 0, &bytes[..].into())?,
            None => self.apply_share((from, 0), (ino, 0), count, size)?,
        }
        self.apply_size(ino, size)
    }

    pub(super) fn apply_share(&mut self, from: (Ino, u64), to: (Ino, u64), count: u64, size: u64) -> Result<(), Stop> {
        let block_size = self.block_size();
        let source = from.1..from.1 + count;
        let target = to.1..to.1 + count;
        self.know_extents(from.0, source.clone())?;
        self.know_extents(to.0, target.clone())?;
        self.file(to.0)?;
        let data = self.file(from.0)?.data();
        if data.dirty.range(source.clone()).next().is_some() {
            return Err(Miss::Commit.into());
        }
        let blocks: Vec<_> =
            data.extents.range(source).map(|(index, stored)| (index - from.1 + to.1, stored.clone())).collect();
        let work = blocks.iter().map(|(index, stored)| work_of_sharing(*index, stored, block_size)).sum::<u64>();
        self.spill_inline(to.0, u64::MAX);
        self.account(to.0, target.clone(), |inode, _| {
            let clean = inode.data().drop_blocks(target);
            for (index, block) in blocks {
                inode.data().extents.insert(index, block);
                inode.data().shared.insert(index);
            }
            inode.row.size = inode.row.size.max(size);
            -i64::try_from(clean).expect("dirty data is bounded")
        });
        self.work_bytes += work;
        self.inodes.reweigh(&to.0);
        Ok(())
    }
}

/// Puts `data` at `offset`; tells how many more bytes are dirty (fewer: negative).
fn put(file: &mut FileData, offset: u64, data: &Data<'_>, block_size: u64) -> i64 {
    let (mut at, mut dirty) = (offset, 0);
    match data {
        Data::Bytes(bytes) => {
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let start = at % block_size;
                let (now, later) = rest.split_at(rest.len().min(usize_of(block_size - start)));
                dirty += file.write(at / block_size, usize_of(start), now);
                at += now.len() as u64;
                rest = later;
            }
        }
        Data::Shared(rope) => {
            for slice in rope.slices() {
                debug_assert_eq!(at / block_size, (at + slice.len() as u64 - 1) / block_size, "a slice a block");
                dirty += file.share(at / block_size, usize_of(at % block_size), slice);
                at += slice.len() as u64;
            }
        }
    }
    dirty
}

/// The work of a commit that puts `stored` at `index` of another file, as bytes: it is hashed as if
/// it were written, unless its blocks are whole ones that go where they came from; then there are
/// rows to change.
fn work_of_sharing(index: u64, stored: &Stored, block_size: u64) -> u64 {
    let extents = stored.extents(index, block_size);
    let is_known = extents.iter().all(|(span, block)| block.base == span.start && block.length == span.length);
    if is_known { block_size / 8 } else { block_size }
}

fn usize_of(value: u64) -> usize {
    usize::try_from(value).expect("less than a block")
}

/// Bytes that the blocks of `range` take when stored. Looks only at blocks that hold something.
pub fn taken(inode: &Inode, range: &Range<u64>, block_size: u64) -> u64 {
    let inline = inode.row.inline.as_ref();
    let size = inode.row.size;
    let left = |index: u64| size.saturating_sub(index.saturating_mul(block_size));
    let Some(data) = inode.data.as_ref() else {
        return if range.contains(&0) { left(0).min(inline.map_or(0, |bytes| bytes.len() as u64)) } else { 0 };
    };
    let of = |index: u64| data.block_taken(index, inline, left(index));
    if range.end - range.start <= 32 {
        return range.clone().map(of).sum();
    }
    let stored = data.extents.range(range.clone()).map(|(index, _)| *index);
    let dirty = data.dirty.range(range.clone()).map(|(index, _)| *index).filter(|i| !data.extents.contains_key(i));
    let mut sum: u64 = stored.chain(dirty).map(of).sum();
    let counted = data.extents.contains_key(&0) || data.dirty.contains_key(&0);
    if range.contains(&0) && inline.is_some() && !counted {
        sum += of(0);
    }
    sum
}

/// Makes `range` of the file zero; tells how dirty bytes changed.
fn zero_range(inode: &mut Inode, range: Range<u64>, block_size: u64) -> i64 {
    if range.is_empty() {
        return 0;
    }
    let whole = range.start.div_ceil(block_size)..range.end / block_size;
    let mut dirty = 0;
    if !whole.is_empty() {
        dirty -= i64::try_from(drop_whole(inode, whole.clone())).expect("dirty data is bounded");
    }
    let edges = if whole.start > whole.end {
        [range, 0..0]
    } else {
        [range.start..whole.start * block_size, whole.end * block_size..range.end]
    };
    for edge in edges.into_iter().filter(|edge| !edge.is_empty()) {
        let index = edge.start / block_size;
        let start = edge.start - index * block_size;
        let end = edge.end - index * block_size;
        let inline = inode.row.inline.clone();
        let data = inode.data();
        let block_end = data.block_end(index, inline.as_ref());
        dirty += data.zero(index, usize_of(start)..usize_of(end), block_end);
    }
    dirty
}

/// Makes blocks `range` holes, the inline content with them; tells how many bytes are no longer
/// dirty.
fn drop_whole(inode: &mut Inode, range: Range<u64>) -> u64 {
    if range.contains(&0) {
        inode.row.inline = None;
    }
    inode.data().drop_blocks(range)
}

/// Cuts the file's content at `size`; tells how dirty bytes changed.
fn cut(inode: &mut Inode, size: u64, block_size: u64) -> i64 {
    let (index, offset) = (size / block_size, usize_of(size % block_size));
    let first_dropped = if offset == 0 { index } else { index + 1 };
    let mut dirty = -i64::try_from(drop_whole(inode, first_dropped..u64::MAX)).expect("dirty data is bounded");
    if offset == 0 {
        return dirty;
    }
    if index == 0
        && let Some(inline) = inode.row.inline.take()
    {
        inode.row.inline = Some(inline.slice(0..inline.len().min(offset)));
    }
    let inline = inode.row.inline.clone();
    let data = inode.data();
    if let Some(block) = data.dirty.get_mut(&index) {
        let before = block.pieces.cost();
        block.pieces.truncate(offset);
        dirty -= i64::try_from(before - block.pieces.cost()).expect("less than a block");
        if block.pieces.is_empty() && block.frozen.is_none() {
            data.dirty.remove(&index);
        }
    }
    // What a stored or frozen layer holds past the cut must not come back when the file grows
    // again.
    let end = data.block_end(index, inline.as_ref());
    dirty + data.zero(index, offset..end, end)
}
