//! Memory of blocks that are gone, kept for the next ones: memory fresh from the system costs a page fault for each
//! page, which takes longer than filling it.
//!
//! One pool for the process, bounded, also together with the memory of the blocks that there are ([`bound`]); [`release`] gives all of it back.

use memmap2::{MmapMut, MmapOptions};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Most bytes kept.
pub const POOL_BYTES_MAX: usize = 128 << 20;

static POOL: Mutex<Pool> = Mutex::new(Pool::new());

struct Pool {
    spare: Vec<MmapMut>,
    /// In all of them together.
    bytes: usize,
    /// Of pages that blocks lie in.
    used: usize,
    /// Nothing is kept beyond so many bytes of either kind; none: no more than [`POOL_BYTES_MAX`].
    total_max: Option<usize>,
}

impl Pool {
    const fn new() -> Pool {
        Pool { spare: Vec::new(), bytes: 0, used: 0, total_max: None }
    }

    /// Memory for `len` bytes that is not much too large. Only the last is looked at: blocks are mostly of one size.
    fn take(&mut self, len: usize) -> Option<MmapMut> {
        let taken = self.spare.pop_if(|spare| (len..=2 * len).contains(&spare.len()))?;
        self.bytes -= taken.len();
        self.used += taken.len();
        Some(taken)
    }

    /// Keeps `memory`, which was used, or gives it back if there is enough.
    fn keep(&mut self, memory: MmapMut) -> Option<MmapMut> {
        self.used = self.used.saturating_sub(memory.len());
        let kept = self.bytes + memory.len();
        if kept > POOL_BYTES_MAX || self.total_max.is_some_and(|most| self.used + kept > most) {
            return Some(memory);
        }
        self.bytes = kept;
        self.spare.push(memory);
        None
    }
}

fn pool() -> MutexGuard<'static, Pool> {
    // Whoever panicked meanwhile left the list and its sum at worst apart.
    POOL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Memory for `len` bytes, with whatever it held. None if the system gives no more.
pub(crate) fn take(len: usize) -> Option<MmapMut> {
    if let Some(taken) = pool().take(len) {
        return Some(taken);
    }
    // All of it is about to be filled: its pages come at once instead of with a fault each.
    let fresh = MmapOptions::new().len(len).populate().map_anon().ok()?;
    pool().used += fresh.len();
    Some(fresh)
}

/// Keeps `memory` that was taken, unless there is enough.
pub(crate) fn keep(memory: MmapMut) {
    let surplus = pool().keep(memory);
    drop(surplus);
}

/// Keeps nothing beyond `total_max` bytes of memory that is kept or that blocks lie in; of several such bounds the highest holds.
pub fn bound(total_max: usize) {
    let mut pool = pool();
    pool.total_max = pool.total_max.max(Some(total_max));
}

/// Gives back all that is kept.
pub fn release() {
    let mut pool = pool();
    pool.bytes = 0;
    let spare = std::mem::take(&mut pool.spare);
    drop(pool);
    drop(spare);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "Miri does not know pages of their own")]
    fn memory_comes_back_if_it_fits_and_within_bounds() {
        let mut pool = Pool::new();
        let len = 64 << 10;
        let memory = |len| MmapMut::map_anon(len).expect("pages");
        let first = memory(len);
        let address = first.as_ptr();
        assert!(pool.keep(first).is_none());
        assert!(pool.take(len / 4).is_none(), "it is much too large");
        assert!(pool.take(len + 1).is_none(), "it is too small");
        let again = pool.take(len - 1).expect("it fits");
        assert_eq!((again.as_ptr(), pool.bytes), (address, 0));
        let surplus = (0..=POOL_BYTES_MAX / len).filter_map(|_| pool.keep(memory(len))).count();
        assert_eq!((surplus, pool.bytes), (1, POOL_BYTES_MAX));
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri does not know pages of their own")]
    fn what_blocks_lie_in_counts_too() {
        let len = 64 << 10;
        let memory = || MmapMut::map_anon(len).expect("pages");
        let mut pool = Pool { used: 3 * len, total_max: Some(2 * len), ..Pool::new() };
        assert!(pool.keep(memory()).is_some(), "two are used: that is all there may be");
        assert!(pool.keep(memory()).is_none(), "one is used, and one kept");
        assert!(pool.keep(memory()).is_none(), "both are kept");
        assert_eq!((pool.used, pool.bytes), (0, 2 * len));
    }
}
