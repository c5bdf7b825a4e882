//! On whose behalf an operation runs.

use weft_store::Kind;

/// Who calls. Permission is checked before: by the kernel for FUSE (`default_permissions`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Owner of what the call makes.
    pub uid: u32,
    /// Group of what the call makes, unless its directory has the set-group-id bit.
    pub gid: u32,
    /// Whether inodes that the call returns are held until [`crate::Vfs::release`].
    pub holds: Holds,
}

/// Whether a protocol keeps count of the inodes it was told of. A held inode outlives its last name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// Each inode returned is held once more (FUSE's lookup count).
    Counted,
    /// Nothing is held (import, export, stateless protocols).
    None,
}

impl Caller {
    /// The super-user, holding nothing.
    pub const ROOT: Caller = Caller { uid: 0, gid: 0, holds: Holds::None };
}

/// What `make` makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MakeNode {
    /// Any kind but a symbolic link.
    pub kind: Kind,
    /// Permission bits before `umask`.
    pub permissions: u32,
    /// Bits to take away, unless the directory has a default ACL (POSIX.1e 23.5.1).
    pub umask: u32,
    /// Device number of a device node, else 0.
    pub rdev: u32,
}
