//! Every change of the tree as a value: what operations decide, memory applies and the intent log
//! keeps.
//!
//! A mutation holds all that was decided when it was made (numbers, times, owners), so that
//! applying it again to the same state gives the same state.

#![expect(missing_docs, reason = "fields are named for what they are, and variants say the rest")]

mod codec;
mod data;

pub use codec::{decode, encode};
pub use data::Data;

use std::borrow::Cow;
use weft_store::{Cookie, Ino, Kind, Name, Timestamp};

/// One change. Applied whole or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mutation<'a> {
    /// A new inode, with its first name unless it is an unnamed file.
    Make {
        /// The directory it is made in.
        parent: Ino,
        /// Its name and the position of that.
        name: Option<(Name, Cookie)>,
        /// The inode to make.
        inode: NewInode<'a>,
    },
    /// One more name.
    Link { ino: Ino, parent: Ino, name: Name, cookie: Cookie, time: Timestamp },
    /// One name less.
    Remove { parent: Ino, name: Name, time: Timestamp },
    /// A name moved, replacing what the target names, or swapped with it.
    Rename { from: (Ino, Name), to: (Ino, Name), exchange: bool, cookie: Cookie, time: Timestamp },
    /// A name moved, replacing what the target names, and a new inode that takes its old name.
    Whiteout { from: (Ino, Name), to: (Ino, Name), cookie: Cookie, inode: NewInode<'a>, time: Timestamp },
    /// Attributes set.
    Attributes { ino: Ino, set: SetRow<'a>, time: Timestamp },
    /// Bytes written.
    Write { ino: Ino, offset: u64, data: Data<'a>, lost: Lost, time: Timestamp },
    /// A range made zero: a hole where whole blocks lie in it. Then the size set, if given.
    Zero { ino: Ino, offset: u64, len: u64, size: u64, lost: Lost, time: Timestamp },
    /// `count` whole blocks of one file shared into another. Then the target's size set.
    Share { from: (Ino, u64), to: (Ino, u64), count: u64, size: u64, lost: Lost, time: Timestamp },
    /// All content of a file made something else.
    Replace { ino: Ino, with: Replacement<'a>, lost: Lost, time: Timestamp },
    /// An extended attribute set or removed, and permission bits that follow from it.
    Xattr { ino: Ino, name: Name, value: Option<Cow<'a, [u8]>>, permissions: Option<u32>, time: Timestamp },
}

/// No number in a volume is larger: SQL has signed ones, and POSIX `off_t` too.
const NUMBER_MAX: u64 = i64::MAX as u64;

impl Mutation<'_> {
    /// The inode that it changes first, or whose entries it does.
    pub fn ino(&self) -> Ino {
        match self {
            Mutation::Make { parent, .. } | Mutation::Remove { parent, .. } => *parent,
            Mutation::Rename { from, .. } | Mutation::Whiteout { from, .. } => from.0,
            Mutation::Share { to, .. } => to.0,
            Mutation::Link { ino, .. }
            | Mutation::Attributes { ino, .. }
            | Mutation::Write { ino, .. }
            | Mutation::Zero { ino, .. }
            | Mutation::Replace { ino, .. }
            | Mutation::Xattr { ino, .. } => *ino,
        }
    }

    /// True if its numbers are in the ranges that operations produce. A mutation from outside may
    /// have others.
    fn is_sound(&self) -> bool {
        let known = |ino: &Ino| (1..NUMBER_MAX).contains(&ino.0);
        let range = |start: u64, len: u64| start.checked_add(len).is_some_and(|end| end <= NUMBER_MAX);
        match self {
            Mutation::Make { parent, name, inode } => {
                known(parent) && known(&inode.ino) && name.as_ref().is_none_or(|(_, cookie)| cookie.0 < NUMBER_MAX)
            }
            Mutation::Link { ino, parent, cookie, .. } => known(ino) && known(parent) && cookie.0 < NUMBER_MAX,
            Mutation::Remove { parent, .. } => known(parent),
            Mutation::Rename { from, to, cookie, .. } => known(&from.0) && known(&to.0) && cookie.0 < NUMBER_MAX,
            Mutation::Whiteout { from, to, cookie, inode, .. } => {
                known(&from.0) && known(&to.0) && cookie.0 < NUMBER_MAX && known(&inode.ino)
            }
            Mutation::Attributes { ino, set, .. } => known(ino) && range(0, set.size.unwrap_or(0)),
            Mutation::Write { ino, offset, data, .. } => known(ino) && range(*offset, data.len() as u64),
            Mutation::Zero { ino, offset, len, size, .. } => known(ino) && range(*offset, *len) && range(0, *size),
            Mutation::Share { from, to, count, size, .. } => {
                let whole = range(from.1, *count) && range(to.1, *count) && range(0, *size);
                known(&from.0) && known(&to.0) && whole
            }
            Mutation::Replace { ino, with: Replacement::Bytes(_), .. } | Mutation::Xattr { ino, .. } => known(ino),
            Mutation::Replace { ino, with: Replacement::ContentOf(from), .. } => {
                known(ino) && known(from) && ino != from
            }
        }
    }
}

/// New content of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Replacement<'a> {
    /// These bytes.
    Bytes(Cow<'a, [u8]>),
    /// The content of this other file: its blocks are shared.
    ContentOf(Ino),
}

/// Privileges that a file loses when its content changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// The permission bits without set-user-id and set-group-id, if there are any to lose.
    pub permissions: Option<u32>,
    /// True if `security.capability` is removed.
    pub capability: bool,
}

/// Properties of a new inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewInode<'a> {
    pub ino: Ino,
    pub kind: Kind,
    pub permissions: u32,
    pub uid: u32,
    pub gid: u32,
    pub rdev: u32,
    /// Target of a symbolic link.
    pub target: Option<Cow<'a, [u8]>>,
    /// Inherited ACLs.
    pub access_acl: Option<Cow<'a, [u8]>>,
    pub default_acl: Option<Cow<'a, [u8]>>,
    pub time: Timestamp,
}

/// Attributes to set; `None` stays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetRow<'a> {
    pub permissions: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub atime: Option<Timestamp>,
    pub mtime: Option<Timestamp>,
    /// The access ACL as it follows from new permissions.
    pub access_acl: Option<Cow<'a, [u8]>>,
    /// True if `security.capability` is removed.
    pub drop_capability: bool,
}
