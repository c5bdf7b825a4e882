//! Content in memory that programs map, so that they read it in place.

use super::attributes::SIZE_MAX;
use super::reading::Part;
use crate::refusal::Refusal;
use crate::volume::Vfs;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use weft_block::shared::Pool;
use weft_block::{Rope, Slice};
use weft_store::{BlockRef, Ino};
use weft_tree::{ErrorKind, Result};

/// Bytes that are expected to be read of a file together, at least, if it is as long.
const TOGETHER: usize = 1 << 20;

/// A part of what a file holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SharedPart {
    /// Bytes that lie in the memory that readers of the file map.
    Bytes(Slice),
    /// So many zeros, which lie nowhere.
    Zeros(usize),
}

impl SharedPart {
    /// Bytes of it.
    pub fn len(&self) -> usize {
        match self {
            SharedPart::Bytes(bytes) => bytes.len(),
            SharedPart::Zeros(len) => *len,
        }
    }

    /// Never: there is no such part.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Parts that are put where readers find them, as long as there is room.
struct Gathering<'a> {
    vfs: &'a Vfs,
    pool: &'a Arc<Pool>,
    parts: Vec<SharedPart>,
    /// Bytes of the file after those gathered.
    left: usize,
}

/// Result of placing a part: enough room, or none left.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Room {
    Enough,
    Spent,
}

impl Vfs {
    /// The memory that readers of file `ino` map; none where nothing is shared
    /// ([`crate::Options::shared_bytes_max`]).
    pub fn shared_pool(&self, ino: Ino) -> Option<Arc<Pool>> {
        self.blocks.shared.pool(ino)
    }

    /// Most bytes of memory that is shared.
    pub fn shared_bytes_max(&self) -> usize {
        self.blocks.shared.bytes_max()
    }

    /// Up to `len` bytes of file `ino` from `offset` on, in the memory of `pool`, which is
    /// [`Vfs::shared_pool`]'s; fewer at the file's end, and where there is no room for more. None
    /// if there is none at all, as all is in use. `Invalid` (no file is as long), else as
    /// [`Vfs::read`].
    pub fn read_shared(&self, ino: Ino, pool: &Arc<Pool>, offset: u64, len: usize) -> Result<Option<Vec<SharedPart>>> {
        if offset > SIZE_MAX {
            return Err(ErrorKind::Invalid.into());
        }
        let plan = || {
            self.try_run(|state| {
                let size = state.tree.file(ino)?.row.size;
                Ok((state.plan_read(ino, offset, len)?, size))
            })
        };
        let gathering = |size: u64| {
            let left = usize::try_from(size.saturating_sub(offset)).unwrap_or(usize::MAX).min(len.max(TOGETHER));
            Gathering { vfs: self, pool, parts: Vec::new(), left }
        };
        let (mut parts, mut size) = match plan() {
            Err(Refusal::Opaque) => {
                let rope = self.opaque.read(self, ino, offset, len)?;
                let mut gathering = gathering(offset.saturating_add(rope.len() as u64));
                return gathering.add_rope(&rope).map(|room| gathering.result(room));
            }
            planned => planned?,
        };
        self.read_ahead_of(ino, offset, len);
        let result = loop {
            let mut gathering = gathering(size);
            match gathering.add_all(&parts) {
                Ok(room) => break gathering.result(room),
                Err(error) => {
                    let again = self.plan_anew((ino, &error), &parts, || Ok(plan()?), |(parts, _)| parts)?;
                    (parts, size) = again.ok_or_else(|| error.about(ino))?;
                }
            }
        };
        let read: usize = result.iter().flatten().map(SharedPart::len).sum();
        self.bytes_read.fetch_add(read as u64, Ordering::Relaxed);
        self.read_moves_atime(ino);
        Ok(result)
    }
}

/// Whoever is told that there is no room reads as ever.
fn no_memory<T>(error: std::io::Error) -> Option<T> {
    tracing::warn!("no memory to share: {error}");
    None
}

impl Gathering<'_> {
    fn add_all(&mut self, parts: &[Part]) -> Result<Room> {
        for part in parts {
            let room = match part {
                Part::Bytes(bytes) => self.add_rope(&Rope::from(bytes.clone()))?,
                Part::Zeros(len) => self.add_zeros(*len),
                Part::Stored { block, range, over } if over.is_empty() => self.add_block(block, range)?,
                Part::Stored { .. } | Part::Over { .. } => {
                    self.add_rope(&self.vfs.gather(std::slice::from_ref(part))?)?
                }
            };
            if room == Room::Spent {
                return Ok(room);
            }
        }
        Ok(Room::Enough)
    }

    /// Adds a copy of `rope`, which nothing keeps.
    fn add_rope(&mut self, rope: &Rope) -> Result<Room> {
        let block_bytes = self.pool.block_bytes();
        let mut at = 0;
        while at < rope.len() {
            let piece = rope.cut(at..rope.len().min(at + block_bytes));
            at += piece.len();
            let place = self.vfs.blocks.shared.place(self.pool, self.left.saturating_sub(piece.len()));
            let Some(mut place) = place.unwrap_or_else(no_memory) else { return Ok(Room::Spent) };
            let mut filled = 0;
            for slice in piece.slices() {
                place[filled..filled + slice.len()].copy_from_slice(slice);
                filled += slice.len();
            }
            weft_block::copied(filled);
            self.add(place.freeze(filled).whole());
        }
        Ok(Room::Enough)
    }

    /// Adds bytes `range` of a stored block. All of it comes to lie in shared memory, and stays
    /// there for others as long as there is room.
    fn add_block(&mut self, block: &BlockRef, range: &Range<usize>) -> Result<Room> {
        let end = range.end.min(block.length as usize);
        if range.start < end {
            let blocks = &self.vfs.blocks;
            let here = match blocks.shared.get(block.id, self.pool) {
                Some(here) => here,
                None => {
                    let bytes = self.vfs.block(block)?;
                    let copied = blocks.shared.copy(self.pool, &bytes, self.left.saturating_sub(bytes.len()));
                    let Some(copy) = copied.unwrap_or_else(no_memory) else { return Ok(Room::Spent) };
                    blocks.share(block.id, self.pool, copy.clone());
                    copy
                }
            };
            self.add(here.slice(range.start..end));
        }
        Ok(self.add_zeros(range.end - end.max(range.start)))
    }

    fn add(&mut self, bytes: Slice) {
        self.left = self.left.saturating_sub(bytes.len());
        self.parts.push(SharedPart::Bytes(bytes));
    }

    fn add_zeros(&mut self, len: usize) -> Room {
        self.left = self.left.saturating_sub(len);
        match self.parts.last_mut() {
            _ if len == 0 => {}
            Some(SharedPart::Zeros(before)) => *before += len,
            _ => self.parts.push(SharedPart::Zeros(len)),
        }
        Room::Enough
    }

    fn result(self, room: Room) -> Option<Vec<SharedPart>> {
        (room == Room::Enough || !self.parts.is_empty()).then_some(self.parts)
    }
}
