//! Memory of blocks that are gone, kept for the next ones: memory fresh from the system costs a page fault for each
//! page, which takes longer than filling it.
//!
//! One pool for the process, bounded; [`release`] gives all of it back.

use memmap2::MmapMut;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Most bytes kept.
pub const POOL_BYTES_MAX: usize = 128 << 20;

static POOL: Mutex<Pool> = Mutex::new(Pool { spare: Vec::new(), bytes: 0 });

struct Pool {
    spare: Vec<MmapMut>,
    /// In all of them together.
    bytes: usize,
}

impl Pool {
    /// Memory for `len` bytes that is not much too large. Only the last is looked at: blocks are mostly of one size.
    fn take(&mut self, len: usize) -> Option<MmapMut> {
        let taken = self.spare.pop_if(|spare| (len..=2 * len).contains(&spare.len()))?;
        self.bytes -= taken.len();
        Some(taken)
    }

    /// Keeps `memory`, or gives it back if there is enough.
    fn keep(&mut self, memory: MmapMut) -> Option<MmapMut> {
        if self.bytes + memory.len() > POOL_BYTES_MAX {
            return Some(memory);
        }
        self.bytes += memory.len();
        self.spare.push(memory);
        None
    }
}

fn pool() -> MutexGuard<'static, Pool> {
    // Whoever panicked meanwhile left the list and its sum at worst apart.
    POOL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Memory for `len` bytes, with whatever it held.
pub(crate) fn take(len: usize) -> Option<MmapMut> {
    pool().take(len)
}

/// Keeps `memory` unless there is enough.
pub(crate) fn keep(memory: MmapMut) {
    let surplus = pool().keep(memory);
    drop(surplus);
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
        let mut pool = Pool { spare: Vec::new(), bytes: 0 };
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
}
