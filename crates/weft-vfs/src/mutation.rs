//! Every change of the tree as a value: what operations decide, memory applies and the intent log keeps.
//!
//! A mutation holds all that was decided when it was made (numbers, times, owners), so that applying
//! it again to the same state gives the same state.

mod codec;

pub(crate) use codec::{decode, encode};

use std::borrow::Cow;
use weft_store::{Cookie, Ino, Kind, Name, Timestamp};

/// One change. Applied whole or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Mutation<'a> {
    /// A new inode, with its first name unless it is an unnamed file.
    Make {
        /// The directory it is made in.
        parent: Ino,
        /// Its name and the position of that.
        name: Option<(Name, Cookie)>,
        /// What it is.
        inode: NewInode<'a>,
    },
    /// One more name.
    Link { ino: Ino, parent: Ino, name: Name, cookie: Cookie, time: Timestamp },
    /// One name less.
    Remove { parent: Ino, name: Name, time: Timestamp },
    /// A name moved, replacing what the target names, or swapped with it.
    Rename { from: (Ino, Name), to: (Ino, Name), exchange: bool, cookie: Cookie, time: Timestamp },
    /// Attributes set.
    Attributes { ino: Ino, set: SetRow<'a>, time: Timestamp },
    /// Bytes written.
    Write { ino: Ino, offset: u64, data: Cow<'a, [u8]>, lost: Lost, time: Timestamp },
    /// A range made zero: a hole where whole blocks lie in it. Then the size set, if given.
    Zero { ino: Ino, offset: u64, len: u64, size: u64, lost: Lost, time: Timestamp },
    /// `count` whole blocks of one file shared into another. Then the target's size set.
    Share { from: (Ino, u64), to: (Ino, u64), count: u64, size: u64, lost: Lost, time: Timestamp },
    /// An extended attribute set or removed, and permission bits that follow from it.
    Xattr { ino: Ino, name: Name, value: Option<Cow<'a, [u8]>>, permissions: Option<u32>, time: Timestamp },
}

/// Privileges that a file loses when its content changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lost {
    /// The permission bits without set-user-id and set-group-id, if there are any to lose.
    pub(crate) permissions: Option<u32>,
    /// Whether `security.capability` goes.
    pub(crate) capability: bool,
}

/// What a new inode is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NewInode<'a> {
    pub(crate) ino: Ino,
    pub(crate) kind: Kind,
    pub(crate) permissions: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) rdev: u32,
    /// Target of a symbolic link.
    pub(crate) target: Option<Cow<'a, [u8]>>,
    /// Inherited ACLs.
    pub(crate) access_acl: Option<Cow<'a, [u8]>>,
    pub(crate) default_acl: Option<Cow<'a, [u8]>>,
    pub(crate) time: Timestamp,
}

/// Attributes to set; `None` stays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SetRow<'a> {
    pub(crate) permissions: Option<u32>,
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
    pub(crate) size: Option<u64>,
    pub(crate) atime: Option<Timestamp>,
    pub(crate) mtime: Option<Timestamp>,
    /// The access ACL as it follows from new permissions.
    pub(crate) access_acl: Option<Cow<'a, [u8]>>,
    /// Whether `security.capability` goes.
    pub(crate) drop_capability: bool,
}
