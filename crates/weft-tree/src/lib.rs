//! What a file system is, as data: inodes, names, content, permissions, and each change of them as
//! a numbered [`Mutation`] that is applied in one way, live and when the intent log is replayed.
//!
//! Deterministic: no threads, no locks, no clock, no store. What is not in memory stops an
//! operation with a [`Miss`], and whoever runs the tree brings it ([`Tree`]). It knows nothing of
//! transformation links but that an inode may be opaque ([`Attached`]), or virtual
//! ([`is_virtual`]).

mod acl;
mod ancestry;
mod apply;
mod attributes;
mod caller;
mod clock_map;
mod data;
mod draining;
mod error;
mod inode;
mod inodes;
pub mod journal;
mod learning;
mod mutation;
mod names;
mod pending_commit;
mod permission;
mod restoration;
mod stop;
mod tree;

pub use acl::Acl;
pub use apply::{ACCESS_ACL, CAPABILITY, DEFAULT_ACL, PART_BLOCKS, taken};
pub use attributes::{
    AllocateMode, Attributes, DirEntry, Privileges, Reach, RenameMode, SetAttributes, SetTime, SetXattr, Statfs,
    Whence, Writer,
};
pub use caller::{Caller, Credentials, FileId, Holds, MakeNode};
pub use clock_map::{Cached, ClockMap, Spared};
pub use data::{
    Base, FileData, Frozen, Layout, Leaf, NewPart, Part, PartsLayout, Pieces, Ranges, Split, Stored, extents_needed,
};
pub use error::{Error, ErrorKind, Result};
pub use inode::{Added, Attached, Changed, Directory, Inode, LISTED_MAX, Xattrs};
pub use inodes::{FIRST_PAST, FIRST_VIRTUAL, Inodes, is_past, is_virtual};
pub use journal::Journal;
pub use mutation::{Data, Lost, Mutation, NewInode, Replacement, SetRow, decode, encode};
pub use names::{Entry, NameKey, NameSlot};
pub use pending_commit::{Job, JobReason, PendingCommit};
pub use permission::{Access, Rights};
pub use restoration::{ParentChange, Restoration, RestoredContent, RestoredInode, RestoredXattrs};
pub use stop::{Miss, Stop};
pub use tree::{ROW_BYTES, Tree, recount};
