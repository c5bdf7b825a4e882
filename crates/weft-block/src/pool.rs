//! Memory of blocks that are gone, kept for the next ones: memory fresh from the system costs a page fault for each
//! page, which takes longer than filling it.
//!
//! One pool for the process, bounded; [`release`] gives all of it back.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Most bytes kept.
pub const POOL_BYTES_MAX: usize = 128 << 20;

/// Less than this comes quickly from the allocator.
const BYTES_MIN: usize = 16 << 10;

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
}

fn pool() -> MutexGuard<'static, Pool> {
    // Whoever panicked meanwhile left the list and its sum at worst apart.
    POOL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// `len` bytes of any content, to be written over: what an earlier block held may show.
pub fn any_bytes(len: usize) -> Vec<u8> {
    let taken = pool().take(len);
    let Some(mut bytes) = taken else { return vec![0; len] };
    bytes.resize(len, 0);
    bytes
}

/// A copy of `bytes`.
pub fn copy_of(bytes: &[u8]) -> Vec<u8> {
    let mut copy = pool().take(bytes.len()).unwrap_or_default();
    copy.clear();
    copy.extend_from_slice(bytes);
    copy
}

/// Keeps the memory of `bytes` unless there is enough.
pub(crate) fn keep(bytes: Vec<u8>) {
    let capacity = bytes.capacity();
    if capacity < BYTES_MIN {
        return;
    }
    let mut pool = pool();
    if pool.bytes + capacity <= POOL_BYTES_MAX {
        pool.bytes += capacity;
        pool.spare.push(bytes);
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
    use crate::Block;

    /// The pool is the process's: one test, so that no other is in its way.
    #[test]
    fn memory_of_blocks_comes_back_within_bounds() {
        let len = 64 << 10;
        let address = {
            let block = Block::new(any_bytes(len));
            block.as_ptr()
        };
        let copy = copy_of(&vec![3; len]);
        assert_eq!((copy.as_ptr(), copy.len()), (address, len));
        assert!(copy.iter().all(|byte| *byte == 3));
        drop(Block::new(copy));
        assert_eq!(any_bytes(len / 4).len(), len / 4, "one that is much too large stays");
        assert_eq!(any_bytes(2 * len).len(), 2 * len, "one that is too small stays");
        assert_eq!(any_bytes(len - 1).len(), len - 1);
        let many: Vec<Block> = (0..2 * POOL_BYTES_MAX / len).map(|_| Block::new(vec![0; len])).collect();
        drop(many);
        assert_eq!(pool().bytes, POOL_BYTES_MAX);
        release();
        let pool = pool();
        assert_eq!((pool.bytes, pool.spare.len()), (0, 0));
    }
}
