//! Why an operation on the state in memory stops: an error, or something to fetch first.

use crate::error::{Error, ErrorKind};
use std::ops::Range;
use weft_store::{Ino, InvalidName, Name};

/// A precondition that an operation lacks. The operation has changed nothing yet, or done a part of
/// its own, and is retried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Miss {
    /// This inode from the store.
    Inode(Ino),
    /// This directory from the store, and those above it.
    Ancestors(Ino),
    /// This entry from the store.
    Name(Ino, Name),
    /// This part of a file's map from the store.
    Extents(Ino, Range<u64>),
    /// The end of this part of a file's map from the store.
    LastExtents(Ino, Range<u64>),
    /// This inode's extended attributes from the store.
    Xattrs(Ino),
    /// The length of this transformation link's content.
    Length(Ino),
    /// The entry of this view under this name: the view has to be read for that.
    Shown(Ino, Name),
    /// Nothing: a part is done, and others get the state before the next.
    Rest,
    /// A turn of those who resolve links at length.
    Turn,
    /// Room for so many more bytes of changes.
    Room(u64),
    /// A commit of what is dirty.
    Commit,
    /// Space under the volume: a commit may free some, and what was free may have changed.
    Space,
}

/// Reason why an operation stops.
#[derive(Debug)]
pub enum Stop {
    /// It cannot go on yet.
    Miss(Miss),
    /// It is on an opaque inode: whoever computes that does it, or nobody.
    Opaque,
    /// It fails.
    Fail(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Fail(error)
    }
}

impl From<ErrorKind> for Stop {
    fn from(kind: ErrorKind) -> Stop {
        Stop::Fail(kind.into())
    }
}

impl From<InvalidName> for Stop {
    fn from(error: InvalidName) -> Stop {
        Stop::Fail(error.into())
    }
}

impl From<Miss> for Stop {
    fn from(miss: Miss) -> Stop {
        Stop::Miss(miss)
    }
}
