//! On whose behalf an operation runs.

use crate::attributes::Attributes;
use weft_store::{Generation, Ino, Kind};

/// The caller of an operation. Permission is checked before: by the kernel for FUSE
/// (`default_permissions`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Owner of what the call makes.
    pub uid: u32,
    /// Group of what the call makes, unless its directory has the set-group-id bit.
    pub gid: u32,
    /// Hold policy for inodes that the call returns: counted ones are held until they are released.
    pub holds: Holds,
}

/// Hold policy of a protocol: whether it counts the inodes returned to it. A held inode outlives
/// its last name.
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

/// The node that `make` creates.
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

/// Credentials of a caller whose permission nobody has checked before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Credentials {
    /// User; 0 is the super-user.
    pub uid: u32,
    /// Group of what the user makes.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
}

impl Credentials {
    /// True for the super-user: only the kind of an inode limits its operations.
    pub fn is_root(&self) -> bool {
        self.uid == 0
    }

    /// True if the user is in group `gid`.
    pub fn is_member(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }
}

/// Names an inode for as long as the volume lives: a handle that a protocol gives out holds one.
/// Numbers of inodes that a crash has undone are used again, with another generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId {
    /// Its number.
    pub ino: Ino,
    /// Its generation.
    pub generation: Generation,
}

impl From<&Attributes> for FileId {
    fn from(attributes: &Attributes) -> FileId {
        FileId { ino: attributes.ino, generation: attributes.generation }
    }
}
