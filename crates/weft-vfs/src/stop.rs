//! Why an operation on the state in memory stops: an error, or something to fetch first.

use crate::error::{Error, ErrorKind};
use std::ops::Range;
use weft_store::{Ino, InvalidName, Name};

/// What an operation must have before it can go on. It has changed nothing yet, or
/// done a part of its own, and is tried again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Miss {
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
    /// How long what this transformation link gives is.
    Length(Ino),
    /// What this name shows in this view, which has to be read for that.
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

/// Why an operation stops.
#[derive(Debug)]
pub(crate) enum Stop {
    /// It cannot go on yet.
    Miss(Miss),
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
