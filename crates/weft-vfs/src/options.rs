//! How a volume is mounted: bounds of memory, intervals, policies.

use std::path::PathBuf;
use std::time::Duration;

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
    /// Most bytes kept of what transformation links give; 0: nothing is kept.
    pub memo_bytes_max: u64,
    /// Bounds on what the networks of links keep while they run.
    pub networks: weft_transform::Bounds,
    /// Users whose links show anything, and who may push networks onto their files.
    pub links: LinkOwners,
    /// Users whose links may run code of their own ([`weft_transform::Network::is_exported`]).
    pub exported: Exported,
    /// Keys that links may use, if any.
    pub keys: Option<Keys>,
    /// Policy for access times.
    pub atime: AtimePolicy,
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
            memo_bytes_max: 4 << 30,
            networks: weft_transform::Bounds::default(),
            links: LinkOwners::Everybody,
            exported: Exported::Root,
            keys: None,
            atime: AtimePolicy::Relative,
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

/// Keys that lie outside of the volume, each in a file.
#[derive(Clone, Debug)]
pub struct Keys {
    /// The directory.
    pub directory: PathBuf,
    /// Owner: links of that user and of the super-user may use them.
    pub uid: u32,
}

impl Options {
    /// True if links of user `uid` may use keys.
    pub(crate) fn gives_keys(&self, uid: u32) -> bool {
        uid == 0 || self.keys.as_ref().is_some_and(|keys| keys.uid == uid)
    }
}

/// Users whose links may run code that their maker brings. The code runs without
/// privileges and with bounds, but it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exported {
    /// Nobody's.
    Nobody,
    /// Those of the super-user.
    Root,
    /// Everybody's.
    Everybody,
}

impl Exported {
    /// True if links of user `uid` are among them.
    pub(crate) fn allows(self, uid: u32) -> bool {
        match self {
            Exported::Nobody => false,
            Exported::Root => uid == 0,
            Exported::Everybody => true,
        }
    }
}

/// Users whose links work. The kernel locks an inode while it asks for its length, so that a link
/// that takes long can hold up those who use its directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkOwners {
    /// Nobody.
    Nobody,
    /// The super-user, and the user of this process.
    Own,
    /// Everybody.
    Everybody,
}

impl LinkOwners {
    /// True if user `uid` is among them.
    pub(crate) fn allows(self, uid: u32) -> bool {
        match self {
            LinkOwners::Nobody => false,
            LinkOwners::Own => uid == 0 || uid == rustix::process::geteuid().as_raw(),
            LinkOwners::Everybody => true,
        }
    }
}
