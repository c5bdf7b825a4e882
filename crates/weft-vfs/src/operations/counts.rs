//! Lines and words of files, counted once for each block: what is counted of a block is as true as
//! its bytes as long as it is, and that is for ever.

use super::attributes::SIZE_MAX;
use super::reading::Part;
use crate::blocking::{self, Wait};
use crate::refusal::Refusal;
use crate::volume::Vfs;
use parking_lot::Mutex;
use std::ops::Range;
use weft_block::Slice;
use weft_block::counting::Counts;
use weft_store::{BlockId, BlockRef, Ino};
use weft_tree::{Cached, ClockMap, ErrorKind, Result};

/// Bytes of a file that are counted at once, and that the attribute
/// [`weft_attributes::Attribute::Counts`] tells of, as [`Counts`]'s text: nobody can stop that.
pub const COUNTS_BYTES: u64 = 64 << 20;

/// Bytes of what is kept.
const KEPT_BYTES: usize = 16 << 20;

/// Counts of one block.
struct BlockCounts(Counts);

impl Cached for BlockCounts {
    fn is_pinned(&self) -> bool {
        false
    }
    fn weight(&self) -> usize {
        96
    }
}

/// Cache of recent counts, by block.
pub(crate) struct CountsCache(Mutex<ClockMap<BlockId, BlockCounts>>);

impl Default for CountsCache {
    fn default() -> CountsCache {
        CountsCache(Mutex::new(ClockMap::new(KEPT_BYTES).strictly()))
    }
}

impl CountsCache {
    fn get(&self, id: BlockId) -> Option<Counts> {
        self.0.lock().get(&id).map(|counts| counts.0)
    }

    fn keep(&self, id: BlockId, counts: Counts) {
        let mut kept = self.0.lock();
        kept.insert(id, BlockCounts(counts));
        while kept.evict().is_some() {}
    }
}

impl Vfs {
    /// Counts the [`COUNTS_BYTES`] bytes of file `ino` from `offset` on; fewer at its end.
    /// `NotSupported` for an opaque inode, else as [`Vfs::read`].
    pub fn counts(&self, ino: Ino, offset: u64) -> Result<Counts> {
        if offset > SIZE_MAX {
            return Err(ErrorKind::Invalid.into());
        }
        let len = usize::try_from(COUNTS_BYTES).expect("it is short");
        let plan = || {
            self.try_run(|state| state.plan_read(ino, offset, len)).map_err(|refusal| match refusal {
                Refusal::Opaque => ErrorKind::NotSupported.into(),
                Refusal::Error(error) => error,
            })
        };
        let is_counted = |part: &Part| match part {
            Part::Stored { block, over, .. } => over.is_empty() && self.counts.get(block.id).is_some(),
            Part::Zeros(_) => true,
            Part::Bytes(_) | Part::Over { .. } => false,
        };
        let mut parts = plan()?;
        if !parts.iter().all(is_counted) {
            self.may_wait(Wait::Network)?;
        }
        blocking::waiting(|| {
            loop {
                let counted: Result<Counts> =
                    parts.iter().try_fold(Counts::default(), |all, part| Ok(all.then(self.count(part)?)));
                let Err(error) = counted else { return counted };
                parts = self.plan_anew((ino, &error), &parts, plan, |parts| parts)?.ok_or_else(|| error.about(ino))?;
            }
        })
    }

    fn count(&self, part: &Part) -> Result<Counts> {
        match part {
            Part::Bytes(bytes) => Ok(Counts::of(bytes)),
            Part::Zeros(len) => Ok(Counts::of_zeros(*len as u64)),
            Part::Stored { block, range, over } if over.is_empty() => self.count_block(block, range),
            Part::Stored { .. } | Part::Over { .. } => {
                let rope = self.gather(std::slice::from_ref(part))?;
                Ok(rope.slices().iter().map(|slice: &Slice| Counts::of(slice)).fold(Counts::default(), Counts::then))
            }
        }
    }

    fn count_block(&self, block: &BlockRef, range: &Range<usize>) -> Result<Counts> {
        let end = range.end.min(block.length as usize);
        let zeros = Counts::of_zeros((range.end - end.max(range.start)) as u64);
        if range.start >= end {
            return Ok(zeros);
        }
        if (range.start, end) != (0, block.length as usize) {
            return Ok(Counts::of(&self.block(block)?[range.start..end]).then(zeros));
        }
        let counts = match self.counts.get(block.id) {
            Some(counts) => counts,
            None => {
                let counts = Counts::of(&self.block(block)?);
                self.counts.keep(block.id, counts);
                counts
            }
        };
        Ok(counts.then(zeros))
    }
}
