//! Memory of blocks that are gone, kept for the next ones: memory fresh from the system costs a
//! page fault for each page, which takes longer than filling it.
//!
//! One pool for the process, bounded, also together with the memory of the blocks that there are
//! ([`bound`]) and of changes that lie elsewhere ([`leave_room`]); [`release`] gives all of it
//! back.

use memmap2::{MmapMut, MmapOptions};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Most bytes kept.
pub const POOL_BYTES_MAX: usize = 256 << 20;

static POOL: Mutex<Pool> = Mutex::new(Pool::new());

struct Pool {
    spare: Vec<MmapMut>,
    /// Bytes of all of them together.
    bytes: usize,
    /// Bytes of pages that blocks lie in.
    used: usize,
    /// Bytes of changes and of cached blocks as their owner counts them, in pages or elsewhere.
    held: usize,
    /// Nothing is kept beyond so many bytes of either kind; none: no more than [`POOL_BYTES_MAX`].
    total_max: Option<usize>,
    /// Bytes of these that cached blocks may take.
    cached_max: usize,
}

/// Bytes that the pool keeps, and those that it and changes may take, to be looked at without its
/// lock.
static KEPT: AtomicUsize = AtomicUsize::new(0);
static CHANGES_MAX: AtomicUsize = AtomicUsize::new(usize::MAX);
/// Bytes of changes that [`leave_room`] was told last.
static CHANGES: AtomicUsize = AtomicUsize::new(0);

impl Pool {
    const fn new() -> Pool {
        Pool { spare: Vec::new(), bytes: 0, used: 0, held: 0, total_max: None, cached_max: 0 }
    }

    /// Most bytes to be kept now. What is held lies in pages that are used, or not: the larger
    /// counts.
    fn most(&self) -> usize {
        let left = self.total_max.map_or(POOL_BYTES_MAX, |most| most.saturating_sub(self.used.max(self.held)));
        left.min(POOL_BYTES_MAX)
    }

    /// Takes out spare pages beyond that.
    fn surplus(&mut self) -> Vec<MmapMut> {
        let mut surplus = Vec::new();
        while self.bytes > self.most()
            && let Some(spare) = self.spare.pop()
        {
            self.bytes -= spare.len();
            surplus.push(spare);
        }
        surplus
    }

    /// Memory for `len` bytes that is not much too large. Only the last is looked at: blocks are
    /// mostly of one size.
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
        if kept > self.most() {
            return Some(memory);
        }
        self.bytes = kept;
        self.spare.push(memory);
        None
    }
}

fn pool() -> MutexGuard<'static, Pool> {
    // A thread that panicked meanwhile left the list and its sum at worst apart.
    POOL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Memory for `len` bytes, with whatever it held. None if the system gives no more.
pub(crate) fn take(len: usize) -> Option<MmapMut> {
    {
        let mut pool = pool();
        if let Some(taken) = pool.take(len) {
            KEPT.store(pool.bytes, Ordering::Relaxed);
            return Some(taken);
        }
    }
    // All of it is about to be filled: its pages come at once instead of with a fault each.
    let fresh = MmapOptions::new().len(len).populate().map_anon().ok()?;
    pool().used += fresh.len();
    Some(fresh)
}

/// Keeps `memory` that was taken, unless there is enough.
pub(crate) fn keep(memory: MmapMut) {
    let surplus = {
        let mut pool = pool();
        pool.held = CHANGES.load(Ordering::Relaxed).saturating_add(pool.cached_max);
        let surplus = pool.keep(memory);
        KEPT.store(pool.bytes, Ordering::Relaxed);
        surplus
    };
    drop(surplus);
}

/// Keeps nothing beyond `changes_max` and `cached_max` bytes together, of memory that is kept, that
/// blocks lie in, or that changes do; of several such bounds the highest holds.
pub fn bound(changes_max: usize, cached_max: usize) {
    let mut pool = pool();
    pool.total_max = pool.total_max.max(Some(changes_max.saturating_add(cached_max)));
    pool.cached_max = pool.cached_max.max(cached_max);
    let changes_max = pool.total_max.unwrap_or(usize::MAX).saturating_sub(pool.cached_max);
    CHANGES_MAX.store(changes_max, Ordering::Relaxed);
}

/// Notes the bytes of `changes` now, most of which may be too short for pages of their own, and
/// gives back pooled pages in place of them.
pub fn leave_room(changes: usize) {
    CHANGES.store(changes, Ordering::Relaxed);
    let kept = KEPT.load(Ordering::Relaxed);
    if kept == 0 || changes.saturating_add(kept) <= CHANGES_MAX.load(Ordering::Relaxed) {
        return;
    }
    let surplus = {
        let mut pool = pool();
        pool.held = changes.saturating_add(pool.cached_max);
        let surplus = pool.surplus();
        KEPT.store(pool.bytes, Ordering::Relaxed);
        surplus
    };
    drop(surplus);
}

/// Gives back all that is kept.
pub fn release() {
    let mut pool = pool();
    pool.bytes = 0;
    KEPT.store(0, Ordering::Relaxed);
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

    /// Many short writes lie among small objects: they and the pooled pages are within the bound
    /// together.
    #[test]
    #[cfg_attr(miri, ignore = "Miri does not know pages of their own")]
    fn what_is_kept_makes_room_for_changes_elsewhere() {
        let len = 64 << 10;
        let memory = || MmapMut::map_anon(len).expect("pages");
        let mut pool = Pool { total_max: Some(8 * len), cached_max: 2 * len, ..Pool::new() };
        (0..8).for_each(|_| assert!(pool.keep(memory()).is_none()));
        for (changes, kept) in [(0, 6), (3, 3), (5, 1), (6, 0), (9, 0)] {
            pool.held = changes * len + pool.cached_max;
            pool.surplus();
            assert_eq!(pool.bytes, kept * len, "beside {changes}");
        }
        assert!(pool.keep(memory()).is_some());
        // Of what lies in pages, the pages count.
        let mut pool = Pool { used: 4 * len, held: 4 * len, total_max: Some(8 * len), ..Pool::new() };
        assert!(pool.keep(memory()).is_none());
        assert_eq!(pool.most(), 4 * len);
    }
}
