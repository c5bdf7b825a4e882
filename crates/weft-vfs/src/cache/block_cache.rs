//! The cache of verified blocks.

use super::{Cached, ClockMap};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use weft_block::Block;
use weft_store::BlockId;

struct Entry(Block);

impl Cached for Entry {
    fn is_pinned(&self) -> bool {
        false
    }
    fn weight(&self) -> usize {
        self.0.len() + 64
    }
}

/// Blocks read or written lately. Blocks never change, so nothing here is ever stale.
pub(crate) struct BlockCache {
    blocks: Mutex<ClockMap<BlockId, Entry>>,
    enabled: bool,
    pub(crate) hits: AtomicU64,
    pub(crate) misses: AtomicU64,
}

impl BlockCache {
    /// A cache for `bytes_max` bytes; 0 switches it off.
    pub(crate) fn new(bytes_max: u64) -> BlockCache {
        BlockCache {
            blocks: Mutex::new(ClockMap::new(usize::try_from(bytes_max).unwrap_or(usize::MAX))),
            enabled: bytes_max > 0,
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        }
    }

    /// Block `id`, if it is here.
    pub(crate) fn get(&self, id: BlockId) -> Option<Block> {
        let found = if self.enabled { self.blocks.lock().get(&id).map(|entry| entry.0.clone()) } else { None };
        let counter = if found.is_some() { &self.hits } else { &self.misses };
        counter.fetch_add(1, Ordering::Relaxed);
        found
    }

    /// Keeps `block`.
    pub(crate) fn insert(&self, id: BlockId, block: Block) {
        if !self.enabled {
            return;
        }
        let mut blocks = self.blocks.lock();
        blocks.insert(id, Entry(block));
        while blocks.evict().is_some() {}
    }

    /// Bytes kept.
    pub(crate) fn bytes(&self) -> u64 {
        self.blocks.lock().weight() as u64
    }
}
