//! Reading content: planned under the lock, gathered from memory and the store without it.

use crate::blocking::Wait;
use crate::cache::Found;
use crate::refusal::Refusal;
use crate::state::State;
use crate::volume::Vfs;
use std::ops::Range;
use std::sync::atomic::Ordering;
use weft_block::{Block, Buffer, Rope, Slice};
use weft_store::{BlockRef, Ino, ReadMode};
use weft_tree::Part as StoredPart;
use weft_tree::{Base, Error, ErrorKind, FileData, Result, Stop, Stored, is_past};

/// Bytes from the start of a file that are read together if they lie far away.
const FIRST_BYTES: u64 = 512 << 10;

/// A part of what a read gives.
pub(super) enum Part {
    /// Bytes in memory.
    Bytes(Slice),
    /// Zeros.
    Zeros(usize),
    /// Bytes `range` of a block in the store, under newer bytes at places counted from
    /// `range.start`.
    Stored { block: BlockRef, range: Range<usize>, over: Vec<(usize, Slice)> },
    /// `len` bytes that begin with those `below`, and are zero behind them, under newer ones.
    Over { below: Slice, len: usize, over: Vec<(usize, Slice)> },
}

impl Vfs {
    /// Up to `len` bytes of file `ino` from `offset`; fewer only at its end. `IsDirectory`,
    /// `Invalid` (not a file), `Io`, `Corrupt` (what is stored is not what was written),
    /// `WouldBlock`.
    pub fn read(&self, ino: Ino, offset: u64, len: usize) -> Result<Rope> {
        if is_past(ino) {
            return self.past_read(ino, offset, len);
        }
        let mut moves_atime = false;
        let plan = self.try_run(|state| {
            let parts = state.plan_read(ino, offset, len)?;
            moves_atime = self.is_atime_due(&state.tree.inode(ino)?.row);
            Ok(parts)
        });
        let mut parts = match plan {
            Err(Refusal::Opaque) => return self.opaque.read(self, ino, offset, len),
            parts => parts?,
        };
        self.read_ahead_of(ino, offset, len);
        self.read_together(ino, offset, &parts)?;
        let rope = loop {
            match self.gather(&parts) {
                Ok(rope) => break rope,
                Err(error) => {
                    let plan = || self.run(|state| state.plan_read(ino, offset, len));
                    parts =
                        self.plan_anew((ino, &error), &parts, plan, |parts| parts)?.ok_or_else(|| error.about(ino))?;
                }
            }
        };
        self.bytes_read.fetch_add(rope.len() as u64, Ordering::Relaxed);
        if moves_atime {
            self.read_moves_atime(ino);
        }
        Ok(rope)
    }

    /// Calls `plan` again after the blocks of `before`, an earlier plan, could not be read because
    /// of `error`. Returns the new plan. None if the error is not corruption, or the new plan names
    /// the same blocks: then the stored data are corrupt.
    ///
    /// A commit may have freed a block between the plan and its reading. Memory follows a moment
    /// after the store, so a commit in flight may have, too: it is waited for. Where another one
    /// commits, or this shows the past, memory does not follow at all if blocks are split or
    /// merged: so what it knows of the blocks of `ino` is forgotten, and asked for again.
    /// `WouldBlock`.
    pub(super) fn plan_anew<T>(
        &self,
        (ino, error): (Ino, &Error),
        before: &[Part],
        plan: impl Fn() -> Result<T>,
        parts: impl Fn(&T) -> &[Part],
    ) -> Result<Option<T>> {
        if error.kind() != ErrorKind::Corrupt {
            return Ok(None);
        }
        let again = plan()?;
        if !same_blocks(before, parts(&again)) {
            return Ok(Some(again));
        }
        self.await_commit()?;
        self.state.lock().tree.forget_extents(ino);
        let again = plan()?;
        Ok(Some(again).filter(|again| !same_blocks(before, parts(again))))
    }

    pub(super) fn gather(&self, parts: &[Part]) -> Result<Rope> {
        let mut rope = Rope::new();
        for part in parts {
            match part {
                Part::Bytes(bytes) => rope.push(bytes.clone()),
                Part::Zeros(len) => self.push_zeros(&mut rope, *len),
                Part::Stored { block, range, over } => {
                    let below = self.block_bytes(block, range)?;
                    self.overlay(&mut rope, below, range.len(), over);
                }
                Part::Over { below, len, over } => self.overlay(&mut rope, below.clone(), *len, over),
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

    /// Adds `stored` and what lies over it, `len` bytes in all; what neither has is zero.
    fn overlay(&self, rope: &mut Rope, stored: Slice, len: usize, over: &[(usize, Slice)]) {
        if over.is_empty() {
            let missing = len - stored.len();
            rope.push(stored);
            self.push_zeros(rope, missing);
            return;
        }
        let mut bytes = Buffer::copy_of(&stored);
        bytes.resize(len);
        for (start, newer) in over {
            bytes[*start..start + newer.len()].copy_from_slice(newer);
        }
        rope.push(bytes.freeze().whole());
    }

    /// The bytes of a stored block, verified.
    pub(crate) fn block(&self, block: &BlockRef) -> Result<Block> {
        if let Some(cached) = self.blocks.get(block.id) {
            return Ok(cached);
        }
        let read = self.waiting_if_need_be(|mode| self.store.read_block(block, mode))?;
        self.blocks.insert(block.id, read.clone());
        Ok(read)
    }

    /// Bytes `range` of a stored block, as far as it reaches, verified.
    fn block_bytes(&self, block: &BlockRef, range: &Range<usize>) -> Result<Slice> {
        let end = range.end.min(block.length as usize);
        if range.start >= end {
            return Ok(Slice::default());
        }
        let range = range.start..end;
        let mut found = self.blocks.find(block.id, &range);
        if found == Found::Nothing && self.await_read_ahead(block)? {
            found = self.blocks.find(block.id, &range);
        }
        match found {
            Found::Bytes(bytes) => Ok(bytes),
            // Whoever goes on in a block will read the rest of it.
            Found::Before => match self.block(block) {
                // Another part of it may be damaged.
                Err(error) if error.kind() == ErrorKind::Corrupt => self.part_bytes(block, range),
                whole => Ok(whole?.slice(range)),
            },
            Found::Nothing => self.part_bytes(block, range),
        }
    }

    /// Bytes `range` of a stored block, from the store: no more of it is verified than need be.
    fn part_bytes(&self, block: &BlockRef, range: Range<usize>) -> Result<Slice> {
        let (start, bytes) = self.waiting_if_need_be(|mode| self.store.read_part(block, range.clone(), mode))?;
        let slice = bytes.slice(range.start - start..range.end - start);
        if bytes.len() == block.length as usize {
            self.blocks.insert(block.id, bytes);
        } else {
            self.blocks.insert_part(block.id, start, bytes);
        }
        Ok(slice)
    }

    /// Has blocks read that a program that goes on as it did will need.
    pub(super) fn read_ahead_of(&self, ino: Ino, offset: u64, len: usize) {
        let Some(ahead) = &self.read_ahead else { return };
        let Some(range) = ahead.observe(ino, offset..offset.saturating_add(len as u64)) else { return };
        // What fails here fails again, and is told, when it is read.
        if let Ok(blocks) = self.run(|state| state.stored_blocks(ino, &range)) {
            self.note_read(ino, range.end - range.start, blocks.len());
            ahead.ask(blocks);
        }
    }

    /// Reads several blocks at once that lie far away, where each alone would be waited for: those
    /// of `parts`, or of a file that is read from its start what the program is likely to go on
    /// with. `WouldBlock`.
    fn read_together(&self, ino: Ino, offset: u64, parts: &[Part]) -> Result<()> {
        let Some(ahead) = self.read_ahead.as_ref().filter(|_| self.store.is_remote()) else { return Ok(()) };
        let missing = parts.iter().filter_map(|part| match part {
            Part::Stored { block, .. } if !self.blocks.has_whole(block.id) => Some(*block),
            Part::Stored { .. } | Part::Bytes(_) | Part::Zeros(_) | Part::Over { .. } => None,
        });
        let mut blocks = missing.collect::<Vec<_>>();
        if offset == 0 && !blocks.is_empty() {
            let first = self.run(|state| state.stored_blocks(ino, &(0..FIRST_BYTES)))?;
            let is_new = |block: &BlockRef| !blocks.contains(block) && !self.blocks.has_whole(block.id);
            let more = first.into_iter().filter(is_new).collect::<Vec<_>>();
            blocks.extend(more);
        }
        // What came along with something else need not be waited for.
        blocks.retain(|block| match self.store.read_block(block, ReadMode::CachedOnly) {
            Ok(Some(here)) => {
                self.blocks.insert(block.id, here);
                false
            }
            Ok(None) => true,
            // Whoever reads it is told.
            Err(_) => false,
        });
        if blocks.len() > 1 {
            self.may_wait(Wait::Read)?;
            // What fails here fails again, and is told, when it is read.
            ahead.read(blocks);
        }
        Ok(())
    }

    /// If `block` is on its way, waits until it is here; tells whether it was.
    fn await_read_ahead(&self, block: &BlockRef) -> Result<bool> {
        let Some(ahead) = self.read_ahead.as_ref().filter(|ahead| ahead.is_coming(block.id)) else { return Ok(false) };
        self.may_wait(Wait::Read)?;
        ahead.bring(block.id);
        Ok(true)
    }

    fn waiting_if_need_be<T>(&self, read: impl Fn(ReadMode) -> weft_store::Result<Option<T>>) -> Result<T> {
        if let Some(read) = read(ReadMode::CachedOnly)? {
            return Ok(read);
        }
        self.may_wait(Wait::Read)?;
        Ok(read(ReadMode::Blocking)?.ok_or(ErrorKind::Io)?)
    }
}

impl State {
    /// The stored blocks of bytes `range` of a file that nothing was written over, in their order.
    fn stored_blocks(&mut self, ino: Ino, range: &Range<u64>) -> Result<Vec<BlockRef>, Stop> {
        let block_size = self.tree.block_size();
        let end = range.end.min(self.tree.file(ino)?.row.size);
        let indices = range.start / block_size..end.div_ceil(block_size);
        if indices.is_empty() {
            return Ok(Vec::new());
        }
        self.tree.know_extents(ino, indices.clone())?;
        let data = self.tree.file(ino)?.data();
        let clean = data.extents.range(indices).filter(|(index, _)| !data.dirty.contains_key(index));
        Ok(clean.flat_map(|(_, stored)| stored.blocks()).copied().collect())
    }

    pub(super) fn plan_read(&mut self, ino: Ino, offset: u64, len: usize) -> Result<Vec<Part>, Stop> {
        let block_size = self.tree.block_size();
        let inode = self.tree.file(ino)?;
        let end = inode.row.size.min(offset.saturating_add(len as u64));
        if offset >= end {
            return Ok(Vec::new());
        }
        if let Some(inline) = &inode.row.inline
            && inode.data.as_ref().is_none_or(|data| data.dirty.is_empty())
        {
            return Ok(plan_inline(inline, offset, end));
        }
        self.tree.know_extents(ino, offset / block_size..end.div_ceil(block_size))?;
        let inode = self.tree.file(ino)?;
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
        over.extend(newer.map(|(at, bytes)| (at - range.start, bytes)));
    }
    if let Some((0, bytes)) = over.last()
        && bytes.len() == range.len()
    {
        parts.push(Part::Bytes(bytes.clone()));
        return;
    }
    let end = over.iter().try_fold(0, |end, (at, bytes)| (end == *at).then_some(at + bytes.len()));
    if end == Some(range.len()) {
        parts.extend(over.into_iter().map(|(_, bytes)| Part::Bytes(bytes)));
        return;
    }
    match layers.base {
        Base::Stored(Stored::Whole(block)) => parts.push(Part::Stored { block, range, over }),
        Base::Stored(Stored::Parts(stored)) => plan_parts(&stored, range, &over, parts),
        Base::Hole if over.is_empty() => parts.push(Part::Zeros(range.len())),
        Base::Hole | Base::Inline(_) => {
            let below = if let Base::Inline(bytes) = layers.base { bytes } else { Slice::default() };
            let below = below.slice(range.start.min(below.len())..range.end.min(below.len()));
            parts.push(Part::Over { below, len: range.len(), over });
        }
    }
}

/// Adds how bytes `range` of a block are made that is stored in parts, under newer bytes.
fn plan_parts(stored: &[StoredPart], range: Range<usize>, over: &[(usize, Slice)], parts: &mut Vec<Part>) {
    let mut at = range.start;
    for part in stored {
        let held = part.bytes();
        let (start, end) = (held.start.clamp(at, range.end), held.end.clamp(at, range.end));
        if start == end {
            continue;
        }
        plan_zeros(at..start, &range, over, parts);
        let own = start - held.start..end - held.start;
        parts.push(Part::Stored { block: part.block, range: own, over: within(&(start..end), &range, over) });
        at = end;
    }
    plan_zeros(at..range.end, &range, over, parts);
}

/// Adds zeros, under newer bytes.
fn plan_zeros(zeros: Range<usize>, range: &Range<usize>, over: &[(usize, Slice)], parts: &mut Vec<Part>) {
    let over = within(&zeros, range, over);
    match over.is_empty() {
        _ if zeros.is_empty() => {}
        true => parts.push(Part::Zeros(zeros.len())),
        false => parts.push(Part::Over { below: Slice::default(), len: zeros.len(), over }),
    }
}

/// Those newer bytes of `range` that lie in `part` of it.
fn within(part: &Range<usize>, range: &Range<usize>, over: &[(usize, Slice)]) -> Vec<(usize, Slice)> {
    let inside = |(at, bytes): &(usize, Slice)| {
        let (first, last) = (range.start + at, range.start + at + bytes.len());
        let (start, end) = (first.max(part.start), last.min(part.end));
        (start < end).then(|| (start - part.start, bytes.slice(start - first..end - first)))
    };
    over.iter().filter_map(inside).collect()
}

fn same_blocks(a: &[Part], b: &[Part]) -> bool {
    let blocks = |parts: &[Part]| -> Vec<BlockRef> {
        let stored = parts.iter().filter_map(|part| match part {
            Part::Stored { block, .. } => Some(*block),
            Part::Bytes(_) | Part::Zeros(_) | Part::Over { .. } => None,
        });
        stored.collect()
    };
    blocks(a) == blocks(b)
}
