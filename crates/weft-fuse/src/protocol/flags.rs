//! Bits of the protocol.

/// INIT: what kernel and daemon can do.
pub(crate) mod init {
    pub(crate) const ASYNC_READ: u64 = 1 << 0;
    pub(crate) const POSIX_LOCKS: u64 = 1 << 1;
    pub(crate) const EXPORT_SUPPORT: u64 = 1 << 4;
    pub(crate) const BIG_WRITES: u64 = 1 << 5;
    pub(crate) const DONT_MASK: u64 = 1 << 6;
    pub(crate) const FLOCK_LOCKS: u64 = 1 << 10;
    pub(crate) const DO_READDIRPLUS: u64 = 1 << 13;
    pub(crate) const READDIRPLUS_AUTO: u64 = 1 << 14;
    pub(crate) const WRITEBACK_CACHE: u64 = 1 << 16;
    pub(crate) const NO_OPEN_SUPPORT: u64 = 1 << 17;
    pub(crate) const PARALLEL_DIROPS: u64 = 1 << 18;
    pub(crate) const POSIX_ACL: u64 = 1 << 20;
    pub(crate) const MAX_PAGES: u64 = 1 << 22;
    pub(crate) const CACHE_SYMLINKS: u64 = 1 << 23;
    pub(crate) const NO_OPENDIR_SUPPORT: u64 = 1 << 24;
    pub(crate) const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    pub(crate) const SETXATTR_EXT: u64 = 1 << 29;
    pub(crate) const INIT_EXT: u64 = 1 << 30;
    pub(crate) const OVER_IO_URING: u64 = 1 << 41;
}

/// SETATTR: which attributes are meant.
pub(crate) mod fattr {
    pub(crate) const MODE: u32 = 1 << 0;
    pub(crate) const UID: u32 = 1 << 1;
    pub(crate) const GID: u32 = 1 << 2;
    pub(crate) const SIZE: u32 = 1 << 3;
    pub(crate) const ATIME: u32 = 1 << 4;
    pub(crate) const MTIME: u32 = 1 << 5;
    pub(crate) const ATIME_NOW: u32 = 1 << 7;
    pub(crate) const MTIME_NOW: u32 = 1 << 8;
    pub(crate) const KILL_SUIDGID: u32 = 1 << 11;
}

/// GETATTR: for a file that a program reads, or the end of which it seeks.
pub(crate) const GETATTR_FH: u32 = 1 << 0;

/// WRITE: from the page cache, where it was changed some time before.
pub(crate) const WRITE_CACHE: u32 = 1 << 0;

/// WRITE: the program asks, and not the page cache.
pub(crate) const WRITE_LOCKOWNER: u32 = 1 << 1;

/// WRITE: the writer may not keep set-user-id and set-group-id.
pub(crate) const WRITE_KILL_SUIDGID: u32 = 1 << 2;

/// SETXATTR: setting this ACL clears set-group-id.
pub(crate) const SETXATTR_ACL_KILL_SGID: u32 = 1 << 0;

/// OPEN: nothing is read from the page cache, or written to it.
pub(crate) const FOPEN_DIRECT_IO: u32 = 1 << 0;
/// OPEN: what the page cache holds stays valid.
pub(crate) const FOPEN_KEEP_CACHE: u32 = 1 << 1;
/// The kernel may keep a listing and give it to all who may list the directory.
pub(crate) const FOPEN_CACHE_DIR: u32 = 1 << 3;
/// OPEN: nobody needs to know of each close().
pub(crate) const FOPEN_NOFLUSH: u32 = 1 << 5;

/// READ: the program asks, and not the page cache.
pub(crate) const READ_LOCKOWNER: u32 = 1 << 1;

/// GETLK, SETLK, SETLKW: flock(2), not fcntl().
pub(crate) const LK_FLOCK: u32 = 1 << 0;

/// RELEASE: there may be an flock(2) lock to give up.
pub(crate) const RELEASE_FLOCK_UNLOCK: u32 = 1 << 1;
