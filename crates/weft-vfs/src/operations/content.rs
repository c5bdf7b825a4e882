//! Content: reading, writing, allocating, seeking, copying.

use super::attributes::SIZE_MAX;
use crate::attributes::{AllocateMode, Privileges, Whence};
use crate::blocking::Wait;
use crate::data::{Base, FileData};
use crate::error::{ErrorKind, Result};
use crate::mutation::Mutation;
use crate::state::{ROW_BYTES, State};
use crate::stop::Stop;
use crate::volume::Vfs;
use std::borrow::Cow;
use std::ops::Range;
use std::sync::atomic::Ordering;
use weft_block::{Block, Rope, Slice, pool};
use weft_store::{BlockRef, Ino, Patience};

/// Most bytes copied by one mutation where blocks cannot be shared.
const COPY_BYTES: u64 = 1 << 20;

/// Most blocks shared by one mutation, so that the lock is not held for long.
const SHARE_BLOCKS: u64 = 4096;

/// A part of what a read gives.
enum Part {
    /// Bytes in memory.
    Bytes(Slice),
    /// Zeros.
    Zeros(usize),
    /// Bytes `range` of a block in the store, under newer bytes at places counted from `range.start`.
    Stored { block: BlockRef, range: Range<usize>, over: Vec<(usize, Slice)> },
}

impl Vfs {
    /// Up to `len` bytes of file `ino` from `offset`; fewer only at its end. `IsDirectory`, `Invalid` (not a
    /// file), `Io`, `Corrupt` (what is stored is not what was written), `WouldBlock`.
    pub fn read(&self, ino: Ino, offset: u64, len: usize) -> Result<Rope> {
        let mut parts = self.run(|state| state.plan_read(ino, offset, len))?;
        let rope = loop {
            match self.gather(&parts) {
                Ok(rope) => break rope,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Err(error.about(ino)),
                Err(error) => {
                    // A commit may have freed a block between the plan and its reading: then the plan changed.
                    let again = self.run(|state| state.plan_read(ino, offset, len))?;
                    if same_blocks(&parts, &again) {
                        return Err(error.about(ino));
                    }
                    parts = again;
                }
            }
        };
        self.bytes_read.fetch_add(rope.len() as u64, Ordering::Relaxed);
        self.read_moves_atime(ino);
        Ok(rope)
    }

    fn gather(&self, parts: &[Part]) -> Result<Rope> {
        let mut rope = Rope::new();
        for part in parts {
            match part {
                Part::Bytes(bytes) => rope.push(bytes.clone()),
                Part::Zeros(len) => self.push_zeros(&mut rope, *len),
                Part::Stored { block, range, over } => {
                    let below = self.block(block)?;
                    self.overlay(&mut rope, &below, range.clone(), over);
                }
            }
        }
        Ok(rope)
    }

    fn push_zeros(&self, rope: &mut Rope, mut len: usize) {
        while len > 0 {
            let now = len.min(self.zeros.len());
            rope.push(self.zeros.slice(0..now));
            len -= now;
        }
    }

    fn overlay(&self, rope: &mut Rope, below: &Block, range: Range<usize>, over: &[(usize, Slice)]) {
        let stored = below.slice(range.start.min(below.len())..range.end.min(below.len()));
        if over.is_empty() {
            let missing = range.len() - stored.len();
            rope.push(stored);
            self.push_zeros(rope, missing);
            return;
        }
        let mut bytes = pool::copy_of(&stored);
        bytes.resize(range.len(), 0);
        for (start, newer) in over {
            bytes[*start..start + newer.len()].copy_from_slice(newer);
        }
        rope.push(Slice::from(bytes));
    }

    /// The bytes of a stored block, verified.
    pub(crate) fn block(&self, block: &BlockRef) -> Result<Block> {
        if let Some(cached) = self.blocks.get(block.id) {
            return Ok(cached);
        }
        let read = match self.store.read_block(block, Patience::None)? {
            Some(read) => read,
            None => {
                self.may_wait(Wait::Read)?;
                self.store.read_block(block, Patience::Forever)?.ok_or(ErrorKind::Io)?
            }
        };
        self.blocks.insert(block.id, read.clone());
        Ok(read)
    }

    /// Writes all of `data` at `offset` of file `ino` (POSIX pwrite()). `kill_privileges` as in
    /// [`crate::SetAttributes`]. `TooBig`, `NoSpace`, `QuotaExceeded`, `Io`, `ReadOnly`.
    pub fn write(&self, ino: Ino, offset: u64, data: &[u8], kill_privileges: bool) -> Result<Privileges> {
        let len = data.len() as u64;
        if offset.checked_add(len).is_none_or(|end| end > SIZE_MAX) {
            return Err(ErrorKind::TooBig.into());
        }
        if data.is_empty() {
            return Ok(Privileges::Kept);
        }
        let time = self.now();
        self.change(|state| {
            state.room(len + ROW_BYTES)?;
            state.may_grow(len, 0)?;
            state.file(ino)?;
            let lost = state.lost(ino, kill_privileges)?;
            let data = Cow::Borrowed(data);
            state.perform(&Mutation::Write { ino, offset, data, lost, time })?;
            Ok(if lost.permissions.is_some() { Privileges::Dropped } else { Privileges::Kept })
        })
    }

    /// Allocates, punches or zeroes a range (Linux fallocate(2)). Allocating reserves nothing ahead: space
    /// is checked, then found by the writes. Privileges are lost as by a write. `Invalid` (empty range), `TooBig`, `NoSpace`, `QuotaExceeded`.
    pub fn allocate(&self, ino: Ino, offset: u64, len: u64, mode: AllocateMode) -> Result<()> {
        let end = offset.checked_add(len).filter(|end| *end <= SIZE_MAX).ok_or(ErrorKind::TooBig)?;
        if len == 0 {
            return Err(ErrorKind::Invalid.into());
        }
        let time = self.now();
        self.change(|state| {
            state.room(2 * state.block_size())?;
            let size = state.file(ino)?.row.size;
            let new_size = match mode {
                AllocateMode::Extend | AllocateMode::ZeroRange => size.max(end),
                AllocateMode::KeepSize | AllocateMode::PunchHole | AllocateMode::ZeroRangeKeepSize => size,
            };
            let len = match mode {
                AllocateMode::Extend | AllocateMode::KeepSize => {
                    state.may_allocate(len)?;
                    0
                }
                AllocateMode::PunchHole | AllocateMode::ZeroRange | AllocateMode::ZeroRangeKeepSize => len,
            };
            if len == 0 && new_size == size {
                return Ok(());
            }
            let lost = state.lost(ino, true)?;
            state.perform(&Mutation::Zero { ino, offset, len, size: new_size, lost, time })
        })
    }

    /// Where the next data or hole begins (Linux lseek(2)). `NoData` at or past the end, or when no data follows.
    pub fn seek(&self, ino: Ino, offset: u64, whence: Whence) -> Result<u64> {
        self.run(|state| {
            let block_size = state.block_size();
            let inode = state.file(ino)?;
            let size = inode.row.size;
            if offset >= size {
                return Err(ErrorKind::NoData.into());
            }
            let dense = inode.row.allocated >= size;
            if !dense {
                state.know_extents(ino, offset / block_size..size.div_ceil(block_size))?;
            }
            let inode = state.file(ino)?;
            let inline = inode.row.inline.is_some();
            let first = offset / block_size;
            let found = match whence {
                Whence::Data if dense => Some(offset),
                Whence::Data => next_data(inode.data(), inline, first, size.div_ceil(block_size)),
                Whence::Hole if dense => Some(size),
                Whence::Hole => Some(next_hole(inode.data(), inline, first)),
            };
            match (found, dense) {
                (Some(position), true) => Ok(position),
                (Some(index), false) => Ok(index.saturating_mul(block_size).clamp(offset, size)),
                (None, _) => Err(ErrorKind::NoData.into()),
            }
        })
    }

    /// Copies up to `len` bytes between files, or parts of one that do not overlap (Linux
    /// copy_file_range(2)); whole blocks that line up are shared, not copied. Tells how many bytes; 0 at
    /// the source's end. `Invalid` (overlap), `TooBig`, and as `write`.
    pub fn copy_range(&self, from: (Ino, u64), to: (Ino, u64), len: u64) -> Result<u64> {
        let size = self.run(|state| Ok(state.file(from.0)?.row.size))?;
        self.run(|state| state.file(to.0).map(|_| ()))?;
        let len = len.min(size.saturating_sub(from.1));
        if to.1.checked_add(len).is_none_or(|end| end > SIZE_MAX) {
            return Err(ErrorKind::TooBig.into());
        }
        if from.0 == to.0 && from.1 < to.1 + len && to.1 < from.1 + len {
            return Err(ErrorKind::Invalid.into());
        }
        let mut copied = 0;
        while copied < len {
            let step = self.copy_step((from.0, from.1 + copied), (to.0, to.1 + copied), len - copied);
            match step {
                Ok(0) => break,
                Ok(bytes) => copied += bytes,
                Err(_) if copied > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(copied)
    }

    fn copy_step(&self, from: (Ino, u64), to: (Ino, u64), len: u64) -> Result<u64> {
        let block_size = u64::from(self.block_size);
        let time = self.now();
        if from.1.is_multiple_of(block_size) && to.1.is_multiple_of(block_size) {
            let shared = self.change(|state| state.share(from, to, len, time))?;
            if shared > 0 {
                return Ok(shared);
            }
        }
        // Up to where blocks line up, if they ever do.
        let lines_up = from.1 % block_size == to.1 % block_size;
        let to_boundary = if lines_up { block_size - from.1 % block_size } else { COPY_BYTES };
        let bytes = self.read(from.0, from.1, usize::try_from(len.min(to_boundary)).unwrap_or(usize::MAX))?;
        self.write(to.0, to.1, &bytes.contiguous(), true)?;
        Ok(bytes.len() as u64)
    }
}

impl State {
    /// Shares as many whole blocks as `len` bytes hold (the last may be cut by the source's end if the target
    /// ends there too); tells how many bytes that are, 0 if none can be.
    fn share(&mut self, from: (Ino, u64), to: (Ino, u64), len: u64, time: weft_store::Timestamp) -> Result<u64, Stop> {
        let block_size = self.block_size();
        let source = &self.file(from.0)?.row;
        let (source_size, inline) = (source.size, source.inline.is_some());
        let target_size = self.file(to.0)?.row.size;
        let whole = (len / block_size).min(SHARE_BLOCKS);
        let at_end = from.1 + len == source_size && to.1 + len >= target_size && from.0 != to.0;
        let count = if at_end && whole < SHARE_BLOCKS { len.div_ceil(block_size) } else { whole };
        if count == 0 || inline {
            return Ok(0);
        }
        let bytes = len.min(count * block_size);
        self.room(ROW_BYTES * count)?;
        self.may_grow(bytes, 0)?;
        let size = target_size.max(to.1 + bytes);
        let (from, to) = ((from.0, from.1 / block_size), (to.0, to.1 / block_size));
        let lost = self.lost(to.0, true)?;
        self.perform(&Mutation::Share { from, to, count, size, lost, time })?;
        Ok(bytes)
    }

    fn plan_read(&mut self, ino: Ino, offset: u64, len: usize) -> Result<Vec<Part>, Stop> {
        let block_size = self.block_size();
        let inode = self.file(ino)?;
        let end = inode.row.size.min(offset.saturating_add(len as u64));
        if offset >= end {
            return Ok(Vec::new());
        }
        if let Some(inline) = &inode.row.inline
            && inode.data.as_ref().is_none_or(|data| data.dirty.is_empty())
        {
            return Ok(plan_inline(inline, offset, end));
        }
        self.know_extents(ino, offset / block_size..end.div_ceil(block_size))?;
        let inode = self.file(ino)?;
        let inline = inode.row.inline.clone();
        let data = inode.data();
        let mut parts = Vec::new();
        let mut at = offset;
        while at < end {
            let index = at / block_size;
            let start = at - index * block_size;
            let stop = (end - index * block_size).min(block_size);
            let range = usize::try_from(start).expect("in a block")..usize::try_from(stop).expect("in a block");
            plan_block(data, index, inline.as_ref(), range, &mut parts);
            at = index * block_size + stop;
        }
        Ok(parts)
    }
}

fn plan_inline(inline: &Slice, offset: u64, end: u64) -> Vec<Part> {
    let stored = inline.len() as u64;
    let (from, to) = (offset.min(stored), end.min(stored));
    let as_usize = |value: u64| usize::try_from(value).expect("no longer than a slice");
    let mut parts = vec![Part::Bytes(inline.slice(as_usize(from)..as_usize(to)))];
    let mut zeros = end - offset - (to - from);
    while zeros > 0 {
        let now = zeros.min(1 << 30);
        parts.push(Part::Zeros(as_usize(now)));
        zeros -= now;
    }
    parts
}

/// Adds how bytes `range` of block `index` are made.
fn plan_block(data: &FileData, index: u64, inline: Option<&Slice>, range: Range<usize>, parts: &mut Vec<Part>) {
    let layers = data.layers(index, inline);
    let mut over: Vec<(usize, Slice)> = Vec::new();
    if let Some(dirty) = layers.dirty {
        if let Some(frozen) = &dirty.frozen {
            over.extend(frozen.within(range.clone()).map(|(at, bytes)| (at - range.start, bytes)));
        }
        let newer = dirty.pieces.within(range.clone());
        over.extend(newer.map(|(at, bytes)| (at - range.start, Slice::from(bytes.to_vec()))));
    }
    if let Some((0, bytes)) = over.last()
        && bytes.len() == range.len()
    {
        parts.push(Part::Bytes(bytes.clone()));
        return;
    }
    match layers.base {
        Base::Stored(block) => parts.push(Part::Stored { block, range, over }),
        Base::Hole if over.is_empty() => parts.push(Part::Zeros(range.len())),
        Base::Hole | Base::Inline(_) => {
            let below = if let Base::Inline(bytes) = &layers.base { &bytes[..] } else { &[] };
            let stored = &below[range.start.min(below.len())..range.end.min(below.len())];
            let mut bytes = stored.to_vec();
            bytes.resize(range.len(), 0);
            for (at, newer) in over {
                bytes[at..at + newer.len()].copy_from_slice(&newer);
            }
            parts.push(Part::Bytes(Slice::from(bytes)));
        }
    }
}

fn same_blocks(a: &[Part], b: &[Part]) -> bool {
    let blocks = |parts: &[Part]| -> Vec<BlockRef> {
        let stored = parts.iter().filter_map(|part| match part {
            Part::Stored { block, .. } => Some(*block),
            Part::Bytes(_) | Part::Zeros(_) => None,
        });
        stored.collect()
    };
    blocks(a) == blocks(b)
}

/// The first index from `first` on, below `end`, that holds data.
fn next_data(data: &FileData, inline: bool, first: u64, end: u64) -> Option<u64> {
    if inline && first == 0 {
        return Some(0);
    }
    let stored = data.extents.range(first..end).next().map(|(index, _)| *index);
    let dirty = data.dirty.range(first..end).next().map(|(index, _)| *index);
    stored.into_iter().chain(dirty).min()
}

/// The first index from `first` on that holds no data.
fn next_hole(data: &FileData, inline: bool, first: u64) -> u64 {
    let holds = |index| data.extents.contains_key(&index) || data.dirty.contains_key(&index) || inline && index == 0;
    (first..).find(|index| !holds(*index)).expect("a file has fewer blocks than numbers")
}
