//! Live counters of a mounted volume.

/// A snapshot of the counters. Counts are since the mount.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Stats {
    /// Why nothing is committed any more, if the volume was removed, moved or taken.
    pub lost: Option<String>,
    /// Mutating operations.
    pub operations: u64,
    /// Lookups of an inode in memory that found it.
    pub inode_hits: u64,
    /// Lookups of an inode that went to the database.
    pub inode_misses: u64,
    /// Lookups of a name in memory that found it, or found it absent.
    pub name_hits: u64,
    /// Lookups of a name that went to the database.
    pub name_misses: u64,
    /// Blocks read from memory.
    pub block_hits: u64,
    /// Blocks read from the store.
    pub block_misses: u64,
    /// Blocks read before they were asked for.
    pub blocks_read_ahead: u64,
    /// Bytes of inodes and names in memory.
    pub metadata_bytes: u64,
    /// Bytes of blocks in memory.
    pub block_bytes: u64,
    /// Bytes of memory that programs may map to read blocks in place.
    pub shared_bytes: u64,
    /// Bytes kept of what transformation links give.
    pub memo_bytes: u64,
    /// Results of networks that were begun to be computed.
    pub results_computed: u64,
    /// Bytes that links which keep places gave and that were computed before somebody asked for them.
    pub bytes_computed_ahead: u64,
    /// Results of networks that were kept of something that was the same.
    pub results_found: u64,
    /// Requests that wait for networks now, and users whose they are.
    pub requests_computing: u64,
    /// See there.
    pub users_computing: u64,
    /// Requests ended while they waited for networks: their programs were killed, or all computing
    /// was stopped.
    pub computing_interrupted: u64,
    /// Requests refused because a user had enough networks at work already.
    pub computing_refused: u64,
    /// Bytes of changes not yet committed.
    pub dirty_bytes: u64,
    /// Commits made.
    pub commits: u64,
    /// Commits that failed and were tried again.
    pub commits_failed: u64,
    /// Syncs answered by the intent log alone.
    pub log_appends: u64,
    /// Bytes read by operations.
    pub bytes_read: u64,
    /// Bytes written by operations.
    pub bytes_written: u64,
    /// Bytes copied from one memory of this process into another.
    pub bytes_copied: u64,
    /// Inodes in the volume.
    pub inodes_used: u64,
    /// Bytes stored in the volume.
    pub bytes_used: u64,
    /// Inodes held by protocols.
    pub held_inodes: u64,
    /// Of the cache of blocks on a local disk, if there is one.
    pub disk_cache: Option<weft_store::DiskCacheStats>,
    /// Round trips to the database's server.
    pub round_trips: weft_store::RoundTrips,
}
