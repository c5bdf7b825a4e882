//! Memory of blocks that are gone, kept for the next ones: memory fresh from the system costs a page fault for each
//! page, which takes longer than filling it.
//!
//! One pool for the process, bounded; [`release`] gives all of it back.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Most bytes kept.
pub const POOL_BYTES_MAX: usize = 128 << 20;

/// Less than this comes quickly from the allocator.
pub(crate) const BYTES_MIN: usize = 16 << 10;

static POOL: Mutex<Pool> = Mutex::new(Pool { spare: Vec::new(), bytes: 0 });

struct Pool {
    spare: Vec<Vec<u8>>,
    /// Their capacities together.
    bytes: usize,
}

impl Pool {
    /// Memory for `len` bytes that is not much too large. Only the last is looked at: blocks are mostly of one size.
    fn take(&mut self, len: usize) -> Option<Vec<u8>> {
        let fits = |spare: &Vec<u8>| (len..=2 * len).contains(&spare.capacity());
        let taken = if len < BYTES_MIN { None } else { self.spare.pop_if(|spare| fits(spare)) }?;
        self.bytes -= taken.capacity();
        Some(taken)
    }

    /// Keeps the memory of `bytes`, or gives it back if there is enough.
    fn keep(&mut self, bytes: Vec<u8>) -> Option<Vec<u8>> {
        if self.bytes + bytes.capacity() > POOL_BYTES_MAX {
            return Some(bytes);
        }
        self.bytes += bytes.capacity();
        self.spare.push(bytes);
        None
    }
}

fn pool() -> MutexGuard<'static, Pool> {
    // Whoever panicked meanwhile left the list and its sum at worst apart.
    POOL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Memory for `len` bytes, with whatever it held.
pub(crate) fn take(len: usize) -> Option<Vec<u8>> {
    pool().take(len)
}

/// Keeps the memory of `bytes` unless there is enough.
pub(crate) fn keep(bytes: Vec<u8>) {
    if bytes.capacity() >= BYTES_MIN {
        let surplus = pool().keep(bytes);
        drop(surplus);
    }
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
    fn memory_comes_back_if_it_fits_and_within_bounds() {
        let mut pool = Pool { spare: Vec::new(), bytes: 0 };
        let len = 64 << 10;
        let memory = vec![7; len];
        let address = memory.as_ptr();
        assert_eq!(pool.keep(memory), None);
        assert_eq!(pool.take(len / 4), None, "it is much too large");
        assert_eq!(pool.take(len + 1), None, "it is too small");
        let again = pool.take(len - 1).expect("it fits");
        assert_eq!((again.as_ptr(), pool.bytes), (address, 0));
        let surplus = (0..=POOL_BYTES_MAX / len).filter_map(|_| pool.keep(vec![0; len])).count();
        assert_eq!((surplus, pool.bytes), (1, POOL_BYTES_MAX));
    }
}
