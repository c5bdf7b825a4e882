//! The records of a stream, as types.

use crate::Name;
use crate::past::HistoryFor;
use crate::row::{CommitNo, Cookie, Ino, InodeRow, Span, Timestamp};
use crate::store::VolumeOptions;
use std::ops::Range;
use weft_digest::{Digest, Kind};

/// The volume that a stream is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamVolume {
    /// Its random bytes.
    pub uuid: [u8; 16],
    /// Time at which it was made.
    pub created: Timestamp,
    /// Its options.
    pub options: VolumeOptions,
    /// True if it lies in files.
    pub in_files: bool,
    /// The rule by which it keeps history, and those who may read that; none while it keeps none.
    pub history: Option<(String, HistoryFor)>,
}

/// A commit as streams name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamCommit {
    /// Its number in the volume that was sent.
    pub number: CommitNo,
    /// Time at which it was made.
    pub time: Timestamp,
    /// The digest of its tree; none if the volume keeps no digests.
    pub root: Option<Digest>,
}

/// A snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Snapshot {
    pub(super) name: Vec<u8>,
    pub(super) made: Timestamp,
    pub(super) held_until: Option<Timestamp>,
}

/// The beginning of a part: a whole tree, or what another commit changed of the one before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// The commit that it changes; none: it is a whole tree.
    pub(super) from: Option<StreamCommit>,
    /// The commit that it leads to.
    pub(super) to: StreamCommit,
    /// The next number for an inode or a cookie.
    pub(super) next_id: u64,
    /// Bytes of content that may follow, to show how far it is.
    pub(super) bytes_about: u64,
    /// Snapshots of that commit.
    pub(super) snapshots: Vec<Snapshot>,
}

/// Counts of what was sent or received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamCounts {
    /// Inodes.
    pub inodes: u64,
    /// Inodes that are gone.
    pub gone: u64,
    /// Entries of directories, those that are gone included.
    pub names: u64,
    /// Blocks.
    pub blocks: u64,
    /// Bytes in blocks.
    pub bytes: u64,
}

impl StreamCounts {
    /// Adds those of another part.
    pub(super) fn add(&mut self, other: &StreamCounts) {
        self.inodes += other.inodes;
        self.gone += other.gone;
        self.names += other.names;
        self.blocks += other.blocks;
        self.bytes += other.bytes;
    }

    /// Counts `record`.
    pub(super) fn count(&mut self, record: &Record) {
        match record {
            Record::Inode { .. } => self.inodes += 1,
            Record::Gone { .. } => self.gone += 1,
            Record::Name { .. } | Record::NoName { .. } => self.names += 1,
            Record::Block { bytes, .. } => {
                self.blocks += 1;
                self.bytes += bytes.len() as u64;
            }
            _ => {}
        }
    }
}

/// One record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Record {
    /// The first one.
    Volume(StreamVolume),
    Part(Part),
    /// An inode, whose row had the digest `base` before, if it was there.
    Inode {
        base: Option<Digest>,
        row: InodeRow,
    },
    /// An attribute of the inode before, or none of that name any more.
    Xattr {
        name: Name,
        value: Option<Vec<u8>>,
    },
    /// The inode before has no extents that start in these bytes, but those that follow.
    Clear {
        range: Range<u64>,
    },
    /// A block of the inode before.
    Block {
        span: Span,
        base: u64,
        bytes: Vec<u8>,
    },
    /// A block of the inode before, which is that of another one at byte `at`.
    Shared {
        span: Span,
        ino: Ino,
        at: u64,
    },
    /// An inode that was there before, and is not any more.
    Gone {
        ino: Ino,
        base: Digest,
    },
    /// Entries that follow are of this directory.
    Directory {
        ino: Ino,
    },
    Name {
        name: Name,
        ino: Ino,
        kind: Kind,
        cookie: Cookie,
    },
    NoName {
        name: Name,
    },
    /// The part is whole.
    PartEnd(StreamCounts),
    /// The stream is whole.
    End,
}
