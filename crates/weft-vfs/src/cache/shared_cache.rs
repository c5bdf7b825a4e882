//! Blocks in memory that programs map to read in place.
//!
//! Who may read a file maps all of the memory that its blocks lie in, and nothing else: each file
//! has a pool of its own. A block that several files have lies in the memory of the one that was
//! read last.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Weak};
use weft_block::Block;
use weft_block::shared::{Budget, Place, Pool};
use weft_store::{BlockId, Ino};
use weft_tree::{Cached, ClockMap, Spared};

/// Pools looked through at least before those are forgotten that have nothing left.
const POOLS_MIN: usize = 64;

struct Entry {
    /// The pool that holds the block.
    pool: Weak<Pool>,
    block: Block,
}

impl Cached for Entry {
    fn is_pinned(&self) -> bool {
        false
    }
    fn weight(&self) -> usize {
        self.block.len() + 64
    }
}

/// The blocks, and the pools. Blocks never change, so nothing here is ever stale.
pub(crate) struct SharedCache {
    budget: Arc<Budget>,
    block_size: usize,
    blocks: Mutex<ClockMap<BlockId, Entry>>,
    pools: Mutex<Pools>,
}

struct Pools {
    of: HashMap<Ino, Arc<Pool>>,
    /// Number of pools from which on empty ones are looked for and dropped.
    many: usize,
}

impl SharedCache {
    /// One for `bytes_max` bytes of blocks of up to `block_size`; 0 switches it off.
    pub(crate) fn new(bytes_max: u64, block_size: u32) -> SharedCache {
        let bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
        SharedCache {
            budget: Budget::new(bytes_max),
            block_size: block_size as usize,
            // What is kept is bounded by where it lies.
            blocks: Mutex::new(ClockMap::new(usize::MAX).strictly()),
            pools: Mutex::new(Pools { of: HashMap::new(), many: POOLS_MIN }),
        }
    }

    /// The memory that readers of `ino` map; none if it is switched off.
    pub(crate) fn pool(&self, ino: Ino) -> Option<Arc<Pool>> {
        if self.budget.bytes_max() == 0 {
            return None;
        }
        let mut pools = self.pools.lock();
        if pools.of.len() >= pools.many {
            // Whoever uses one has it.
            pools.of.retain(|_, pool| Arc::strong_count(pool) > 1 || !pool.is_empty());
            pools.many = (2 * pools.of.len()).max(POOLS_MIN);
        }
        let pool = pools.of.entry(ino).or_insert_with(|| Arc::new(Pool::new(self.block_size, self.budget.clone())));
        Some(pool.clone())
    }

    /// Has those who open `ino` from now on map other memory than those before: what they may read
    /// now they might not have read then. Who has it open keeps what it was given.
    pub(crate) fn renew(&self, ino: Ino) {
        if self.is_empty() {
            return;
        }
        self.pools.lock().of.remove(&ino);
    }

    /// Block `id`, if it lies in `pool`.
    pub(crate) fn get(&self, id: BlockId, pool: &Pool) -> Option<Block> {
        let lies_there = |entry: &&mut Entry| std::ptr::eq(entry.pool.as_ptr(), pool);
        self.blocks.lock().get(&id).filter(lies_there).map(|entry| entry.block.clone())
    }

    /// Block `id`, wherever it lies.
    pub(crate) fn any(&self, id: BlockId) -> Option<Block> {
        if self.is_empty() {
            return None;
        }
        self.blocks.lock().get(&id).map(|entry| entry.block.clone())
    }

    /// True if block `id` is cached.
    pub(crate) fn has(&self, id: BlockId) -> bool {
        !self.is_empty() && self.blocks.lock().peek(&id).is_some()
    }

    /// True if nothing is cached. This is the common case: few programs read in place.
    fn is_empty(&self) -> bool {
        self.budget.taken() == 0
    }

    /// A copy of `bytes` in `pool`; else as [`SharedCache::place`].
    pub(crate) fn copy(&self, pool: &Pool, bytes: &[u8], more_bytes: usize) -> io::Result<Option<Block>> {
        Ok(self.place(pool, more_bytes)?.map(|place| place.holding(bytes)))
    }

    /// A place in `pool` to fill, for which others may have to go; none if everything is in use.
    /// `more_bytes` as in [`Pool::place`].
    pub(crate) fn place(&self, pool: &Pool, more_bytes: usize) -> io::Result<Option<Place>> {
        loop {
            if let Some(place) = pool.place(more_bytes)? {
                return Ok(Some(place));
            }
            if !self.spare() {
                return Ok(None);
            }
        }
    }

    /// Lets go of a block; false if there is none.
    fn spare(&self) -> bool {
        loop {
            // The lock is for others in between, and what goes is dropped without it: that may give
            // memory back to the system.
            let spared = match self.blocks.lock().spare() {
                Spared::Entry(_, spared) => spared,
                Spared::NotYet => continue,
                Spared::Nothing => return false,
            };
            drop(spared);
            return true;
        }
    }

    /// Keeps block `id`, which lies in `pool`.
    pub(crate) fn insert(&self, id: BlockId, pool: &Arc<Pool>, block: Block) {
        self.blocks.lock().insert(id, Entry { pool: Arc::downgrade(pool), block });
    }

    /// Bytes of memory taken.
    pub(crate) fn bytes(&self) -> u64 {
        self.budget.taken() as u64
    }

    /// Bytes of memory that may be taken.
    pub(crate) fn bytes_max(&self) -> usize {
        self.budget.bytes_max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_used_lately_goes_when_there_is_no_room() {
        let cache = SharedCache::new(4 * 4096, 4096);
        let keep = |id: u64, ino: Ino| {
            let pool = cache.pool(ino).expect("it is on");
            let block = cache.copy(&pool, &[7; 100], 0).unwrap()?;
            cache.insert(BlockId(id), &pool, block.clone());
            Some(block)
        };
        for id in 0..100 {
            assert!(keep(id, Ino(2 + id % 3)).is_some(), "others go for it");
        }
        assert!(cache.bytes() <= 4 * 4096);
        let [own, other] = [Ino(2), Ino(3)].map(|ino| cache.pool(ino).expect("it is on"));
        assert!(cache.get(BlockId(99), &own).is_some() && cache.get(BlockId(99), &other).is_none());
        cache.renew(Ino(2));
        assert!(!Arc::ptr_eq(&cache.pool(Ino(2)).expect("it is on"), &own), "for those who come now");
        assert!(cache.get(BlockId(99), &own).is_some());
        drop((own, other));
        assert!(cache.any(BlockId(99)).is_some() && !cache.has(BlockId(0)));
        let held: Vec<Option<Block>> = (100..104).map(|id| keep(id, Ino(9))).collect();
        assert!(held.iter().all(Option::is_some));
        assert!(keep(104, Ino(9)).is_none(), "everything is in use");
        drop(held);
        assert!(keep(104, Ino(9)).is_some());
    }

    #[test]
    fn pools_with_nothing_left_are_forgotten() {
        let cache = SharedCache::new(1 << 20, 4096);
        for ino in 0..10_000 {
            cache.pool(Ino(ino)).expect("it is on");
        }
        assert!(cache.pools.lock().of.len() <= 2 * POOLS_MIN);
        assert!(SharedCache::new(0, 4096).pool(Ino(1)).is_none());
    }
}
