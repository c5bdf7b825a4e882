//! Content: writing, allocating, seeking, copying.

use super::attributes::SIZE_MAX;
use crate::refusal::Refusal;
use crate::state::State;
use crate::volume::Vfs;
use std::ops::Range;
use weft_store::{Ino, Timestamp};
use weft_tree::{
    AllocateMode, Data, ErrorKind, FileData, Mutation, Privileges, ROW_BYTES, Replacement, Result, Stop, Whence,
    Writer, is_past,
};

/// Most bytes copied by one mutation where blocks cannot be shared.
const COPY_BYTES: u64 = 1 << 20;

/// Most bytes that one call copies: whoever waits for it in the kernel cannot be killed.
const CALL_BYTES: u64 = 1 << 30;

/// Most of them that are read and written, not shared.
const CALL_BYTES_MOVED: u64 = 64 << 20;

/// Most blocks shared by one mutation, so that the lock is not held for long, and what is loaded
/// for it stays until it is done.
const SHARE_BLOCKS: u64 = 1024;

/// Most blocks among which a hole is sought while the lock is held.
const SOUGHT_BLOCKS: u64 = 1 << 16;

impl Vfs {
    /// Writes all of `data` at `offset` of file `ino` (POSIX pwrite()), which loses privileges as
    /// `writer` says.
    /// `TooBig`, `NoSpace`, `QuotaExceeded`, `Io`, `ReadOnly`.
    pub fn write(&self, ino: Ino, offset: u64, data: &[u8], writer: impl Into<Writer>) -> Result<Privileges> {
        let (time, writer) = (self.now(), writer.into());
        let shared = Data::shared_copy(offset, data, self.block_size);
        match self.try_change(|state| state.write(ino, offset, Data::of(shared.as_ref(), data), writer, time)) {
            Err(Refusal::Opaque) => self.opaque.write(self, ino, offset, data, writer),
            written => Ok(written?),
        }
    }

    /// Writes all of `data` at the end of file `ino` (POSIX write() with O_APPEND), which the
    /// writer takes to be at `offset`: somebody else may have moved it. Returns also where it was.
    /// Errors as of [`Vfs::write`].
    pub fn write_at_end(
        &self,
        ino: Ino,
        offset: u64,
        data: &[u8],
        writer: impl Into<Writer>,
    ) -> Result<(Privileges, u64)> {
        let (time, writer, mut end) = (self.now(), writer.into(), offset);
        loop {
            let shared = Data::shared_copy(end, data, self.block_size);
            let written = self.try_change(|state| {
                let size = state.tree.file(ino)?.row.size;
                if size != end {
                    return Ok(Err(size));
                }
                state.write(ino, end, Data::of(shared.as_ref(), data), writer, time).map(Ok)
            });
            match written {
                Ok(Ok(privileges)) => return Ok((privileges, end)),
                Ok(Err(size)) => end = size,
                Err(Refusal::Opaque) => {
                    return Ok((self.opaque.write(self, ino, offset, data, writer)?, offset));
                }
                Err(refusal) => return Err(refusal.into()),
            }
        }
    }

    /// Allocates, punches or zeroes a range (Linux fallocate(2)). Allocating reserves nothing
    /// ahead: space is checked, then found by the writes. Times move and privileges are lost as by
    /// a write of one in the file's group, also where nothing else changes. `Invalid` (empty
    /// range), `TooBig`, `NoSpace`, `QuotaExceeded`.
    pub fn allocate(&self, ino: Ino, offset: u64, len: u64, mode: AllocateMode) -> Result<()> {
        self.allocate_as(Writer::Member, ino, (offset, len), mode)
    }

    /// The same on behalf of `writer`, from an offset on for a length.
    pub fn allocate_as(&self, writer: Writer, ino: Ino, range: (u64, u64), mode: AllocateMode) -> Result<()> {
        let (offset, len) = range;
        let end = offset.checked_add(len).filter(|end| *end <= SIZE_MAX).ok_or(ErrorKind::TooBig)?;
        if len == 0 {
            return Err(ErrorKind::Invalid.into());
        }
        let time = self.now();
        self.change(|state| {
            state.tree.room(2 * state.tree.block_size())?;
            let size = state.tree.file(ino)?.row.size;
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
            state.tree.punch(ino, offset..offset + len, time)?;
            let lost = state.lost(ino, writer)?;
            state.perform(&Mutation::Zero { ino, offset, len, size: new_size, lost, time })
        })
    }

    /// Returns the offset of the next data or hole (Linux lseek(2)). `NoData` at or past the end,
    /// or when no data follows.
    pub fn seek(&self, ino: Ino, offset: u64, whence: Whence) -> Result<u64> {
        if is_past(ino) {
            return self.past_seek(ino, offset, whence);
        }
        // What was looked at is not looked at again, and need not stay in memory.
        let first = offset / u64::from(self.block_size);
        let mut from = first;
        loop {
            let sought = self.run(|state| {
                let from = if whence == Whence::Hole { state.behind_data(ino, from) } else { from };
                state.seek_part(ino, offset, whence, from)
            })?;
            match sought {
                Sought::At(position) => {
                    if whence == Whence::Hole {
                        let end = position / u64::from(self.block_size);
                        self.state.lock().note_data(ino, first..end);
                    }
                    return Ok(position);
                }
                Sought::Behind(index) => from = index,
            }
        }
    }

    /// Copies up to `len` bytes between files, or parts of one that do not overlap (Linux
    /// copy_file_range(2)); whole blocks that line up are shared, not copied, and holes stay holes.
    /// Tells how many bytes, fewer than `len` where that would take long; 0 at the source's end.
    /// Privileges are lost as by a write of one in the file's group. `Invalid` (overlap), `TooBig`,
    /// `NotSupported` (a transformation link), and as `write`.
    pub fn copy_range(&self, from: (Ino, u64), to: (Ino, u64), len: u64) -> Result<u64> {
        self.copy_range_as(Writer::Member, from, to, len)
    }

    /// The same on behalf of `writer`.
    pub fn copy_range_as(&self, writer: Writer, from: (Ino, u64), to: (Ino, u64), len: u64) -> Result<u64> {
        // Whoever asked copies links by reading and writing.
        let by_hand = |refusal| match refusal {
            Refusal::Opaque => ErrorKind::NotSupported.into(),
            Refusal::Error(error) => error,
        };
        let size = self.try_run(|state| Ok(state.tree.file(from.0)?.row.size)).map_err(by_hand)?;
        self.try_run(|state| state.tree.file(to.0).map(|_| ())).map_err(by_hand)?;
        let len = len.min(size.saturating_sub(from.1));
        if to.1.checked_add(len).is_none_or(|end| end > SIZE_MAX) {
            return Err(ErrorKind::TooBig.into());
        }
        if from.0 == to.0 && from.1 < to.1 + len && to.1 < from.1 + len {
            return Err(ErrorKind::Invalid.into());
        }
        let len = len.min(CALL_BYTES);
        let (mut copied, mut moved) = (0, 0);
        while copied < len && moved < CALL_BYTES_MOVED {
            let step = self.copy_step(writer, (from.0, from.1 + copied), (to.0, to.1 + copied), len - copied);
            match step {
                Ok(Step::Without(0) | Step::Moved(0)) => break,
                Ok(Step::Without(bytes)) => copied += bytes,
                Ok(Step::Moved(bytes)) => (copied, moved) = (copied + bytes, moved + bytes),
                Err(_) if copied > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(copied)
    }

    fn copy_step(&self, writer: Writer, from: (Ino, u64), to: (Ino, u64), len: u64) -> Result<Step> {
        let block_size = u64::from(self.block_size);
        let time = self.now();
        if from.1.is_multiple_of(block_size) && to.1.is_multiple_of(block_size) {
            let shared = self.change(|state| state.share(writer, from, to, len, time))?;
            if shared > 0 {
                return Ok(Step::Without(shared));
            }
        }
        let hole = match self.seek(from.0, from.1, Whence::Data) {
            Ok(data) => (data - from.1).min(len),
            Err(error) if error.kind() == ErrorKind::NoData => len,
            Err(error) => return Err(error),
        };
        if hole > 0 {
            self.allocate_as(writer, to.0, (to.1, hole), AllocateMode::ZeroRange)?;
            return Ok(Step::Without(hole));
        }
        // Up to where blocks line up, if they ever do.
        let lines_up = from.1 % block_size == to.1 % block_size;
        let to_boundary = if lines_up { block_size - from.1 % block_size } else { COPY_BYTES };
        let bytes = self.read(from.0, from.1, usize::try_from(len.min(to_boundary)).unwrap_or(usize::MAX))?;
        self.write(to.0, to.1, &bytes.contiguous(), writer)?;
        Ok(Step::Moved(bytes.len() as u64))
    }
}

/// The place that a part of a search has come to.
enum Sought {
    /// It has found this position.
    At(u64),
    /// It is to go on at this index.
    Behind(u64),
}

/// Bytes that one step of a copy has copied.
enum Step {
    /// Without reading or writing one: their blocks are shared, or they are a hole.
    Without(u64),
    /// One by one.
    Moved(u64),
}

impl State {
    /// Returns the index behind the data that was found to reach from `index` on without a hole;
    /// the index itself if nothing is known of it. The kernel locks a file while somebody seeks in
    /// it: who asks again and again keeps others waiting no longer than once.
    fn behind_data(&mut self, ino: Ino, index: u64) -> u64 {
        let Some(inode) = self.tree.inodes.get(&ino) else { return index };
        match inode.data.as_ref().and_then(|data| data.without_hole.as_ref()) {
            Some((content, range)) if *content == inode.content && range.contains(&index) => range.end,
            _ => index,
        }
    }

    /// Notes that `range` of file `ino` holds data without a hole. Should that have changed
    /// meanwhile, a hole is told of as data, which it may be (lseek(2)).
    fn note_data(&mut self, ino: Ino, range: Range<u64>) {
        let Some(inode) = self.tree.inodes.get(&ino).filter(|_| !range.is_empty()) else { return };
        let content = inode.content;
        if let Some(data) = &mut inode.data {
            data.without_hole = Some((content, range));
        }
    }

    /// Looks from index `first` on for what [`Vfs::seek`] seeks, as far as it is known.
    fn seek_part(&mut self, ino: Ino, offset: u64, whence: Whence, first: u64) -> Result<Sought, Stop> {
        let is_opaque = self.is_opaque(ino)?;
        let block_size = self.tree.block_size();
        // What is computed has no holes.
        let (size, dense) = if is_opaque {
            (self.attributes(ino)?.size, true)
        } else {
            let row = &self.tree.file(ino)?.row;
            (row.size, row.allocated >= row.size)
        };
        if offset >= size {
            return Err(ErrorKind::NoData.into());
        }
        if dense {
            return Ok(Sought::At(if whence == Whence::Data { offset } else { size }));
        }
        let end = size.div_ceil(block_size);
        // The file may have been cut meanwhile.
        let first = first.min(end);
        let inode = self.tree.file(ino)?;
        let inline = inode.row.inline.is_some();
        let data = inode.data();
        let known = data.known.first_gap(first..end).map_or(end, |gap| gap.start);
        let (found, seen) = match whence {
            Whence::Data => (next_data(data, inline, first, known), known),
            Whence::Hole => {
                let seen = known.min(first.saturating_add(SOUGHT_BLOCKS));
                (next_hole(data, inline, first..seen), seen)
            }
        };
        let found = found.or((seen == end && whence == Whence::Hole).then_some(end));
        match found {
            Some(index) => Ok(Sought::At(index.saturating_mul(block_size).clamp(offset, size))),
            None if seen == end => Err(ErrorKind::NoData.into()),
            None if seen > first => Ok(Sought::Behind(seen)),
            None => {
                self.tree.know_extents(ino, first..end)?;
                Ok(Sought::Behind(first))
            }
        }
    }

    /// As [`Vfs::write`].
    pub(crate) fn write(
        &mut self,
        ino: Ino,
        offset: u64,
        data: Data<'_>,
        writer: Writer,
        time: Timestamp,
    ) -> Result<Privileges, Stop> {
        let len = data.len() as u64;
        if offset.checked_add(len).is_none_or(|end| end > SIZE_MAX) {
            return Err(ErrorKind::TooBig.into());
        }
        if data.is_empty() {
            return Ok(Privileges::Kept);
        }
        self.tree.room(len + ROW_BYTES * (3 + len / self.tree.block_size()))?;
        self.may_grow(len, 0)?;
        self.tree.file(ino)?;
        let lost = self.lost(ino, writer)?;
        self.perform(&Mutation::Write { ino, offset, data, lost, time })?;
        Ok(if lost.permissions.is_some() { Privileges::Dropped } else { Privileges::Kept })
    }

    /// Makes all that file `ino` holds something else, whole or not at all, whenever the volume
    /// crashes. As [`Vfs::write`].
    pub fn replace(&mut self, ino: Ino, with: &Replacement<'_>, time: Timestamp) -> Result<(), Stop> {
        let (bytes, rows) = match with {
            Replacement::Bytes(bytes) => (bytes.len() as u64, bytes.len() as u64),
            Replacement::ContentOf(from) => {
                let row = &self.tree.file(*from)?.row;
                // Its blocks take no more room for being shared.
                (0, row.size)
            }
        };
        self.tree.file(ino)?;
        self.tree.room(rows.min(self.tree.dirty_bytes_max / 2) + ROW_BYTES)?;
        self.may_grow(bytes, 0)?;
        let lost = self.lost(ino, Writer::Member)?;
        self.perform(&Mutation::Replace { ino, with: with.clone(), lost, time })
    }

    /// Shares as many whole blocks as `len` bytes hold (the last may be cut by the source's end if
    /// the target ends there too); tells how many bytes that are, 0 if none can be.
    fn share(
        &mut self,
        writer: Writer,
        from: (Ino, u64),
        to: (Ino, u64),
        len: u64,
        time: Timestamp,
    ) -> Result<u64, Stop> {
        let block_size = self.tree.block_size();
        let source = &self.tree.file(from.0)?.row;
        let (source_size, inline) = (source.size, source.inline.is_some());
        let target_size = self.tree.file(to.0)?.row.size;
        let most = SHARE_BLOCKS.min(self.tree.dirty_bytes_max / 4 / block_size).max(1);
        let whole = (len / block_size).min(most);
        let at_end = from.1 + len == source_size && to.1 + len >= target_size && from.0 != to.0;
        let count = if at_end && whole < most { len.div_ceil(block_size) } else { whole };
        if count == 0 || inline {
            return Ok(0);
        }
        let bytes = len.min(count * block_size);
        self.tree.room(block_size * count)?;
        self.may_grow(bytes, 0)?;
        let size = target_size.max(to.1 + bytes);
        let (from, to) = ((from.0, from.1 / block_size), (to.0, to.1 / block_size));
        let lost = self.lost(to.0, writer)?;
        self.perform(&Mutation::Share { from, to, count, size, lost, time })?;
        Ok(bytes)
    }
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

/// The first index of `range` that holds no data.
fn next_hole(data: &FileData, inline: bool, range: Range<u64>) -> Option<u64> {
    let mut stored = data.extents.range(range.clone()).map(|(index, _)| *index).peekable();
    let mut range = range;
    range.find(|index| {
        let is_stored = stored.next_if_eq(index).is_some();
        !(is_stored || data.dirty.contains_key(index) || inline && *index == 0)
    })
}
