//! How a volume is mounted: bounds of memory, intervals, policies.

use std::time::Duration;
use weft_store::Name;

/// Usual name of the directory that leads to the past.
pub const HISTORY_NAME: &[u8] = b".weft";

/// Options of a mount; nothing here changes what the volume is.
#[derive(Clone, Debug)]
pub struct Options {
    /// Longest time between a change and when it is durable: in the commit that holds it, or in the
    /// intent log before.
    pub commit_interval: Duration,
    /// Longest time for which that commit is put off where programs sync.
    pub defer_max: Duration,
    /// Most bytes of changes kept in memory; writers wait beyond.
    pub dirty_bytes_max: u64,
    /// Most bytes of cached inodes and names.
    pub metadata_cache_bytes: u64,
    /// Most bytes of cached blocks.
    pub block_cache_bytes: u64,
    /// Most bytes of memory that programs map to read blocks in place
    /// ([`crate::Vfs::read_shared`]), beside that cache; 0: none.
    pub shared_bytes_max: u64,
    /// Keep blocks in that cache as they are written. For protocols above which nothing keeps them,
    /// as the kernel does above a mount: whoever reads what was just written then finds it.
    pub keep_written: bool,
    /// Bytes read ahead of each program that reads a file from front to back, at most a quarter of
    /// the block cache; 0: nothing. If nobody says: 8 MiB, 16 where blocks come from a server.
    pub read_ahead_bytes: Option<u64>,
    /// Name of the directory in each directory that leads to the past of a volume that keeps
    /// history; none: there is no such directory.
    pub history_name: Option<Name>,
    /// Policy for access times.
    pub atime: AtimePolicy,
    /// Store files in one piece again, in the background, that small writes have fragmented.
    pub merge: bool,
    /// Refuse every change with `ReadOnly`.
    pub read_only: bool,
    /// Have threads of its own, which commit at each interval and read ahead. Without them only
    /// `sync` and `commit` commit (tests).
    pub background: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            commit_interval: Duration::from_secs(1),
            defer_max: Duration::from_secs(10),
            dirty_bytes_max: 256 << 20,
            metadata_cache_bytes: 256 << 20,
            block_cache_bytes: 64 << 20,
            shared_bytes_max: 64 << 20,
            keep_written: false,
            read_ahead_bytes: None,
            history_name: Some(Name::new(HISTORY_NAME).expect("a name")),
            atime: AtimePolicy::Relative,
            merge: true,
            read_only: false,
            background: true,
        }
    }
}

/// Policy for moving the access time when a file is read. Reads that the kernel answers from its
/// own cache do not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AtimePolicy {
    /// If it is not after mtime and ctime, or older than a day (`relatime`).
    #[default]
    Relative,
    /// Never (`noatime`).
    Never,
    /// Always (`strictatime`).
    Always,
}
