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
    /// Change number of a transformation link: it differs when the content may differ, and is 0 for
    /// a link that gives nothing for now. None for any other inode.
    pub computed: Option<u64>,
    /// The users who may be told them.
    pub reach: Reach,
}

/// The users who may be told the attributes and the content of an inode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// Everybody who can look it up.
    #[default]
    Everybody,
    /// The user who asked, and perhaps others: each of them has to be asked about.
    Some,
    /// Not the user who asked: these attributes say nothing of what a transformation link leads to.
    Nobody,
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
    /// Privileges of the caller: they decide which of set-user-id and set-group-id a truncation or
    /// a change of owner clears.
    pub writer: Writer,
}

/// Class of the user who changes a file's content or owner. Its set-user-id and set-group-id bits
/// depend on it (Linux `setattr_should_drop_suidgid()`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Writer {
    /// One with `CAP_FSETID`: a change of content leaves both bits.
    #[default]
    Privileged,
    /// One in the file's group: set-user-id goes, and set-group-id where the group may execute.
    Member,
    /// Anybody else: both go.
    Stranger,
}

impl From<bool> for Writer {
    /// True if privileges are lost, as they are where nothing is known of groups.
    fn from(kills_privileges: bool) -> Writer {
        if kills_privileges { Writer::Member } else { Writer::Privileged }
    }
}

impl Writer {
    /// The bits that are left of `permissions` of a file that it writes to.
    pub fn leaves(self, permissions: u32) -> u32 {
        match self {
            Writer::Privileged => permissions,
            Writer::Member | Writer::Stranger => self.leaves_as_owner(permissions),
        }
    }

    /// The bits that are left of `permissions` of a file that it gives to another owner or group:
    /// privilege keeps set-group-id alone, and
    /// only where the group may not execute.
    pub fn leaves_as_owner(self, permissions: u32) -> u32 {
        let takes_group = self == Writer::Stranger || permissions & libc::S_IXGRP != 0;
        let group = if takes_group { libc::S_ISGID } else { 0 };
        permissions & !(libc::S_ISUID | group)
    }
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The time of the call.
    Now,
    /// This time.
    To(Timestamp),
}

/// Treatment of an existing target by `rename`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenameMode {
    /// Replace it (POSIX rename()).
    Replace,
    /// Fail with `Exists` (`RENAME_NOREPLACE`).
    NoReplace,
    /// Swap the two (`RENAME_EXCHANGE`).
    Exchange,
}

/// Effect of `allocate` on its range (Linux fallocate(2)).
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

/// Effect of a write on the file's privileges (set-user-id, set-group-id).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Privileges {
    /// They are as they were.
    Kept,
    /// They are gone: whoever caches the permission bits must be told.
    Dropped,
}

/// Target of `seek` (Linux lseek(2)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whence {
    /// The next data (`SEEK_DATA`).
    Data,
    /// The next hole (`SEEK_HOLE`); the end of the file counts as one.
    Hole,
}

/// Treatment of an existing attribute by `set_xattr` (setxattr(2)).
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
    /// The inode that the entry names.
    pub ino: Ino,
    /// Kind of what it names.
    pub kind: Kind,
    /// Position from which a listing continues after it.
    pub cookie: Cookie,
}

/// Space and inodes of the volume, as `statvfs()` tells them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statfs {
    /// Block size in bytes.
    pub block_size: u32,
    /// Size in bytes: the quota, or the space of the place the volume lies in.
    pub bytes_total: u64,
    /// Bytes that are free.
    pub bytes_free: u64,
    /// Bytes that can still be written: some of the free ones are kept back for what makes them
    /// free.
    pub bytes_available: u64,
    /// Inodes the volume may hold.
    pub inodes_total: u64,
    /// Inodes that can still be made.
    pub inodes_free: u64,
}
