//! Bounded memory: the caches of blocks.

mod block_cache;
mod shared_cache;

pub(crate) use block_cache::{BlockCache, Found};
pub(crate) use shared_cache::SharedCache;
