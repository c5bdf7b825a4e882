//! Fragments of files: blocks that are stored in several parts since small writes came, and making
//! one of those again.
//!
//! Merging changes nothing of a file: neither its bytes nor its times, and no version comes of it.

use crate::volume::Vfs;
use weft_store::{BlockRef, Durability, Ino, Nth, Place, Span};
use weft_tree::{Cached, Result};

/// Bytes of a file that one commit merges.
pub(crate) const BYTES_TOGETHER: u64 = 16 << 20;

/// Most parts of a file that are looked at in one step.
const LOOKS_MAX: usize = 64;

/// Bytes of a file whose extents are asked for together.
const BYTES_LOOKED_AT: u64 = 1 << 30;

/// The way in which a file is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fragments {
    /// Stored blocks.
    pub stored: u64,
    /// Stored blocks that would do.
    pub blocks: u64,
    /// Runs of stored blocks that lie one after another.
    pub runs: u64,
    /// Bytes in the stored blocks.
    pub bytes: u64,
}

/// Result of one step of [`Vfs::defragment`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Defragmented {
    /// Blocks of the file that became one stored block each.
    pub merged: u64,
    /// The byte from which to go on; none at the end of the file.
    pub next: Option<u64>,
}

impl Vfs {
    /// Tells how file `ino` is stored. Reads no bytes of it, and commits what was written to it.
    /// `Invalid` if it is no file; `NotFound`.
    pub fn fragments(&self, ino: Ino) -> Result<Fragments> {
        let (size, is_changed) = self.run(|state| {
            let file = state.tree.file(ino)?;
            Ok((file.row.size, file.is_pinned()))
        })?;
        if is_changed {
            self.commit()?;
        }
        let (mut all, mut end) = (Fragments::default(), None);
        let mut at = 0;
        // However long it is: what holds nothing is passed over.
        while let Some(start) = self.store.nth_extent(ino, at..size.max(at), Nth::FromStart(0))? {
            at = start - start % u64::from(self.block_size);
            let to = at.saturating_add(BYTES_LOOKED_AT).min(i64::MAX.unsigned_abs());
            let extents = self.store.extents(ino, at..to)?;
            let index = |span: &Span| span.start / u64::from(self.block_size);
            for of_block in extents.chunk_by(|(one, _), (next, _)| index(one) == index(next)) {
                all.blocks += needed(of_block, u64::from(self.block_size));
            }
            for (_, block) in extents {
                all.stored += 1;
                all.bytes += u64::from(block.length);
                let place = match block.place {
                    Place::Segment { segment, offset } => Some((segment, offset)),
                    Place::Database | Place::File(_) | Place::Own(_) => None,
                };
                all.runs += u64::from(place.is_none() || place != end);
                let taken = u64::from(block.length).next_multiple_of(Span::LENGTH_MIN.into());
                end = place.map(|(segment, offset)| (segment, offset + taken));
            }
            at = to;
        }
        Ok(all)
    }

    /// Makes one stored block of each block of file `ino` that is stored in several without a hole,
    /// from byte `from` on as far as one commit goes. Those that are just written to stay.
    /// `Invalid` if it is no file; `NotFound`, `ReadOnly`, and the errors of a commit.
    pub fn defragment(&self, ino: Ino, from: u64) -> Result<Defragmented> {
        self.merge_some(ino, from, BYTES_TOGETHER)
    }

    /// The same, of at most so many `bytes` of it, but of one block at least.
    pub(crate) fn merge_some(&self, ino: Ino, from: u64, bytes: u64) -> Result<Defragmented> {
        if self.is_read_only() {
            return Err(weft_tree::ErrorKind::ReadOnly.into());
        }
        let block_size = u64::from(self.block_size);
        let together = (bytes.min(BYTES_TOGETHER) / block_size).max(1);
        let mut turn = self.committing.lock();
        let (mut at, mut merged) = (from, 0);
        // What is stored whole costs a look alone. Nobody else can commit meanwhile, so there are
        // few.
        for _ in 0..LOOKS_MAX {
            let size = self.run(|state| Ok(state.tree.file(ino)?.row.size))?;
            let next = self.store.nth_extent(ino, at..size.max(at), Nth::FromStart(0))?;
            let Some(start) = next else { return Ok(Defragmented { merged, next: None }) };
            let index = start / block_size;
            let range = index..index.saturating_add(together).min(size.div_ceil(block_size));
            at = range.end.saturating_mul(block_size);
            merged = self.run(|state| state.tree.merge_blocks(ino, range.clone()))?;
            if merged > 0 {
                self.commit_once(&mut turn, Durability::Eventual)?;
                break;
            }
        }
        Ok(Defragmented { merged, next: Some(at) })
    }
}

/// Number of stored blocks that would do for a block of a file, of `block_size` bytes, that has
/// `extents`. Those with holes are not merged.
fn needed(extents: &[(Span, BlockRef)], block_size: u64) -> u64 {
    let stored = extents.len() as u64;
    let start = extents.first().map_or(0, |(span, _)| span.start - span.start % block_size);
    let is_dense = extents
        .iter()
        .try_fold(start, |end, (span, block)| (span.start == end).then(|| span.start + u64::from(block.length)));
    let held = is_dense.and_then(|end| usize::try_from(end - start).ok());
    held.map_or(stored, |held| stored.min(weft_tree::extents_needed(held) as u64))
}
