//! What operations take and give: attributes of inodes, entries of directories, modes of calls.

use weft_store::{Cookie, Generation, Ino, Kind, Name, Timestamp};

/// Attributes of an inode, as `stat()` tells them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Number.
    pub ino: Ino,
    /// Distinguishes inodes of one number across crashes.
    pub generation: Generation,
    /// Kind.
    pub kind: Kind,
    /// Permission bits, `0o7777` at most.
    pub permissions: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Links.
    pub nlink: u32,
    /// Device number of a device node (Linux 32-bit encoding), else 0.
    pub rdev: u32,
    /// Length in bytes; for a directory the number of its entries.
    pub size: u64,
    /// Bytes stored (`st_blocks` times 512).
    pub allocated: u64,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of content.
    pub mtime: Timestamp,
    /// Last change of content or attributes.
    pub ctime: Timestamp,
    /// Creation.
    pub btime: Timestamp,
    /// Of a transformation link a number that is another one when its content may be, 0 of one that gives nothing for now; else none.
    pub computed: Option<u64>,
}

/// Attributes to change; what is `None` stays. A change of owner, group, mode or size moves ctime.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttributes {
    /// New permission bits.
    pub permissions: Option<u32>,
    /// New owner.
    pub uid: Option<u32>,
    /// New group.
    pub gid: Option<u32>,
    /// New length: cuts off, or extends with a hole.
    pub size: Option<u64>,
    /// New access time.
    pub atime: Option<SetTime>,
    /// New modification time.
    pub mtime: Option<SetTime>,
    /// Drop set-user-id, set-group-id (where the group may execute) and file capabilities, as a write or a
    /// truncation by one without `CAP_FSETID` does, or chown by anyone.
    pub kill_privileges: bool,
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The time of the call.
    Now,
    /// This time.
    To(Timestamp),
}

/// How `rename` treats an existing target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenameMode {
    /// Replace it (POSIX rename()).
    Replace,
    /// Fail with `Exists` (`RENAME_NOREPLACE`).
    NoReplace,
    /// Swap the two (`RENAME_EXCHANGE`).
    Exchange,
}

/// What `allocate` does to its range (Linux fallocate(2)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllocateMode {
    /// Make sure writes there find space; the size grows to the end of the range (mode 0).
    Extend,
    /// The same, the size stays (`FALLOC_FL_KEEP_SIZE`).
    KeepSize,
    /// The range becomes a hole; the size stays (`PUNCH_HOLE | KEEP_SIZE`).
    PunchHole,
    /// The range reads as zeros; the size grows to its end (`ZERO_RANGE`).
    ZeroRange,
    /// The same, the size stays (`ZERO_RANGE | KEEP_SIZE`).
    ZeroRangeKeepSize,
}

/// What a write did to the file's privileges (set-user-id, set-group-id).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Privileges {
    /// They are as they were.
    Kept,
    /// They are gone: whoever caches the permission bits must be told.
    Dropped,
}

/// What `seek` looks for (Linux lseek(2)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whence {
    /// The next data (`SEEK_DATA`).
    Data,
    /// The next hole (`SEEK_HOLE`); the end of the file counts as one.
    Hole,
}

/// How `set_xattr` treats an existing attribute (setxattr(2)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetXattr {
    /// Make it or replace it.
    Any,
    /// Only make it: `Exists` if it is there (`XATTR_CREATE`).
    Create,
    /// Only replace it: `NoAttribute` if it is not there (`XATTR_REPLACE`).
    Replace,
}

/// One entry of a directory, as `read_directory` lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// Its name; `.` and `..` are not listed.
    pub name: Name,
    /// What it names.
    pub ino: Ino,
    /// Kind of what it names.
    pub kind: Kind,
    /// Where to go on after it.
    pub cookie: Cookie,
}

/// Space and inodes of the volume, as `statvfs()` tells them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statfs {
    /// Block size in bytes.
    pub block_size: u32,
    /// Size in bytes: the quota, or the space of the place the volume lies in.
    pub bytes_total: u64,
    /// Bytes that can still be written.
    pub bytes_free: u64,
    /// Inodes the volume may hold.
    pub inodes_total: u64,
    /// Inodes that can still be made.
    pub inodes_free: u64,
}
