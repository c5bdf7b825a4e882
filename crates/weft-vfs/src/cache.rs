//! Bounded memory: a map that forgets what was not used lately, and the cache of blocks.

mod block_cache;
mod clock_map;
mod shared_cache;

pub(crate) use block_cache::{BlockCache, Found};
pub(crate) use clock_map::{Cached, ClockMap, Spared};
pub(crate) use shared_cache::SharedCache;
