//! The cache of verified blocks, and before what is only this process's what others share.
//!
//! It is cut into shards by the numbers of blocks, so that threads that read different blocks
//! seldom wait for each other. Adjacent blocks of a file have adjacent numbers, mostly.

use super::SharedCache;
use parking_lot::{Mutex, MutexGuard};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use weft_block::shared::Pool;
use weft_block::{Block, Slice};
use weft_store::BlockId;
use weft_tree::{Cached, ClockMap};

/// All of a block, or a part of it.
struct Entry {
    start: usize,
    bytes: Block,
    whole: bool,
}

impl Cached for Entry {
    fn is_pinned(&self) -> bool {
        false
    }
    fn weight(&self) -> usize {
        self.bytes.len() + 64
    }
}

/// Result of a lookup of bytes of a block.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// The bytes asked for.
    Bytes(Slice),
    /// Those just before.
    Before,
    /// None.
    Nothing,
}

/// Most shards of a cache.
const SHARDS_MAX: u64 = 16;

/// Bytes that a shard has at least, so that a few long blocks do not fill it.
const SHARD_BYTES_MIN: u64 = 16 << 20;

/// Blocks read or written lately. Blocks never change, so nothing here is ever stale.
pub(crate) struct BlockCache {
    shards: Box<[Mutex<ClockMap<BlockId, Entry>>]>,
    enabled: bool,
    pub(crate) shared: SharedCache,
    pub(crate) hits: AtomicU64,
    pub(crate) misses: AtomicU64,
}

impl BlockCache {
    /// A cache for `bytes_max` bytes beside what is in `shared`; 0 switches it off.
    pub(crate) fn new(bytes_max: u64, shared: SharedCache) -> BlockCache {
        let count = (bytes_max / SHARD_BYTES_MIN).clamp(1, SHARDS_MAX);
        let bytes = usize::try_from(bytes_max / count).unwrap_or(usize::MAX);
        // Blocks may have megabytes: none is kept for its own sake.
        let shards = (0..count).map(|_| Mutex::new(ClockMap::new(bytes).strictly())).collect();
        let (hits, misses) = (AtomicU64::new(0), AtomicU64::new(0));
        BlockCache { shards, enabled: bytes_max > 0, shared, hits, misses }
    }

    /// The shard that block `id` belongs to.
    fn shard(&self, id: BlockId) -> MutexGuard<'_, ClockMap<BlockId, Entry>> {
        let count = self.shards.len() as u64;
        self.shards[usize::try_from(id.0 % count).expect("less than their count")].lock()
    }

    /// All of block `id`, if it is here.
    pub(crate) fn get(&self, id: BlockId) -> Option<Block> {
        let whole = |entry: &mut Entry| entry.whole.then(|| entry.bytes.clone());
        let found = if self.enabled { self.shard(id).get(&id).and_then(whole) } else { None };
        let found = found.or_else(|| self.shared.any(id));
        self.count(found.is_some());
        found
    }

    /// Bytes `range` of block `id`, which reaches as far.
    pub(crate) fn find(&self, id: BlockId, range: &Range<usize>) -> Found {
        let bytes = |entry: &mut Entry| {
            let end = entry.start + entry.bytes.len();
            let here = entry.start <= range.start && range.end <= end;
            if here {
                Found::Bytes(entry.bytes.slice(range.start - entry.start..range.end - entry.start))
            } else if (entry.start..=end).contains(&range.start) {
                Found::Before
            } else {
                Found::Nothing
            }
        };
        let found = if self.enabled { self.shard(id).get(&id).map(bytes) } else { None };
        let found = match found {
            Some(found @ Found::Bytes(_)) => found,
            found => match self.shared.any(id) {
                Some(block) => Found::Bytes(block.slice(range.clone())),
                None => found.unwrap_or(Found::Nothing),
            },
        };
        self.count(matches!(found, Found::Bytes(_)));
        found
    }

    fn count(&self, hit: bool) {
        let counter = if hit { &self.hits } else { &self.misses };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// True if all of block `id` is cached.
    pub(crate) fn has_whole(&self, id: BlockId) -> bool {
        self.shard(id).peek(&id).is_some_and(|entry| entry.whole) || self.shared.has(id)
    }

    /// Keeps `block`, which lies in `pool`, and nothing else of it.
    pub(crate) fn share(&self, id: BlockId, pool: &Arc<Pool>, block: Block) {
        self.shared.insert(id, pool, block);
        self.forget(id);
    }

    /// Keeps `block`.
    pub(crate) fn insert(&self, id: BlockId, block: Block) {
        self.keep(id, Entry { start: 0, bytes: block, whole: true });
    }

    /// Keeps `block`, made of block `old`, if that is here or there is room: whoever goes round
    /// more of them than fit would else never find any. (`old` is read until the commit is over;
    /// then [`BlockCache::forget`] it.)
    pub(crate) fn succeed(&self, old: BlockId, id: BlockId, block: Block) {
        let entry = Entry { start: 0, bytes: block, whole: true };
        let has_room = self.shard(id).has_room(entry.weight());
        if has_room || self.has_whole(old) {
            self.keep(id, entry);
        }
    }

    /// Drops block `id`, for which others have more use here.
    pub(crate) fn forget(&self, id: BlockId) {
        let gone = self.shard(id).remove(&id);
        drop(gone);
    }

    /// Keeps the bytes from `start` on of a block, unless all of it is here.
    pub(crate) fn insert_part(&self, id: BlockId, start: usize, bytes: Block) {
        self.keep(id, Entry { start, bytes, whole: false });
    }

    fn keep(&self, id: BlockId, entry: Entry) {
        if !self.enabled {
            return;
        }
        let mut blocks = self.shard(id);
        if !entry.whole && blocks.peek(&id).is_some_and(|old| old.whole) {
            return;
        }
        blocks.insert(id, entry);
        while blocks.evict().is_some() {}
    }

    /// Bytes kept.
    pub(crate) fn bytes(&self) -> u64 {
        self.shards.iter().map(|shard| shard.lock().weight() as u64).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_store::Ino;

    #[test]
    fn a_part_gives_its_own_bytes_until_the_whole_is_there() {
        let cache = BlockCache::new(1000, SharedCache::new(0, 4096));
        let id = BlockId(1);
        assert_eq!(cache.find(id, &(0..1)), Found::Nothing);
        cache.insert_part(id, 10, Block::copy_of(b"abcdef"));
        assert_eq!(cache.find(id, &(12..14)), Found::Bytes(Block::copy_of(b"cd").whole()));
        assert_eq!(cache.find(id, &(9..12)), Found::Nothing);
        assert_eq!(cache.find(id, &(17..18)), Found::Nothing);
        assert_eq!([cache.find(id, &(14..17)), cache.find(id, &(16..18))], [Found::Before, Found::Before]);
        assert!(cache.get(id).is_none() && !cache.has_whole(id));
        cache.insert(id, Block::copy_of(&[7; 20]));
        cache.insert_part(id, 0, Block::copy_of(&[0; 5]));
        assert_eq!(cache.find(id, &(0..20)), Found::Bytes(Block::copy_of(&[7; 20]).whole()));
    }

    #[test]
    fn what_is_shared_is_found_and_here_once() {
        let cache = BlockCache::new(1 << 20, SharedCache::new(1 << 20, 4096));
        let id = BlockId(1);
        cache.insert(id, Block::copy_of(&[7; 4096]));
        let pool = cache.shared.pool(Ino(5)).expect("it is on");
        let shared = cache.shared.copy(&pool, &[7; 4096], 0).unwrap().expect("room");
        cache.share(id, &pool, shared.clone());
        assert_eq!(cache.bytes(), 0);
        assert_eq!(cache.get(id).expect("here").as_ptr(), shared.as_ptr());
        assert_eq!(cache.find(id, &(1..3)), Found::Bytes(shared.slice(1..3)));
        assert!(cache.has_whole(id));
    }

    #[test]
    fn a_block_made_of_another_takes_its_place_or_room_that_is_free() {
        let cache = BlockCache::new(5 * 1064 - 1, SharedCache::new(0, 4096));
        let block = || Block::copy_of(&[7; 1000]);
        for id in 0..3 {
            cache.insert(BlockId(id), block());
        }
        cache.succeed(BlockId(100), BlockId(3), block());
        assert!(cache.has_whole(BlockId(3)), "there is room");
        cache.succeed(BlockId(101), BlockId(4), block());
        assert!(!cache.has_whole(BlockId(4)), "there is none");
        cache.succeed(BlockId(3), BlockId(5), block());
        assert!(cache.has_whole(BlockId(5)));
        cache.forget(BlockId(5));
        assert!(!cache.has_whole(BlockId(5)));
    }

    #[test]
    fn large_blocks_stay_within_the_bound() {
        let cache = BlockCache::new(1 << 20, SharedCache::new(0, 4096));
        for id in 0..100 {
            cache.insert(BlockId(id), Block::new(vec![0; 1 << 18]));
        }
        assert!(cache.bytes() <= 5 << 18, "{}", cache.bytes());
    }
}
