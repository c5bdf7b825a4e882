//! The rows of a volume, as types.

use crate::Name;
use std::ops::Range;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use weft_block::Slice;
use weft_digest::{Digest, Kind, Value, ZERO};

/// Begins the names of extended attributes that a volume keeps for itself; no namespace of
/// attributes does.
pub const OWN_XATTRS: &[u8] = b"weft.";

macro_rules! number {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u64);
        impl $name {
            /// The number after this one.
            #[must_use]
            pub fn next(self) -> $name {
                $name(self.0 + 1)
            }
        }
    };
}

number! {
    /// Inode number. Never used twice in the life of a volume. At most `i64::MAX`.
    Ino
}
number! {
    /// Number of an immutable block; grows with each block written.
    BlockId
}
number! {
    /// Number of a commit; the first commit of a volume is 1.
    CommitNo
}
number! {
    /// Number of a mutating operation; operations are numbered in the order they took effect.
    OpNo
}
number! {
    /// Position of an entry in its directory; unique in the directory and stable while the entry
    /// lives there. Entries are listed in cookie order. Cookies 0, 1 and 2 are never given out.
    Cookie
}

impl Ino {
    /// The root directory.
    pub const ROOT: Ino = Ino(1);

    /// Behind all inodes.
    pub const MAX: Ino = Ino(i64::MAX.unsigned_abs());
}

/// Distinguishes two inodes of the same number across a crash (for NFS handles).
pub type Generation = u32;

/// Nanoseconds since 1970-01-01T00:00:00Z; spans the years 1677 to 2262.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// Makes a time from seconds and nanoseconds, clamped to the representable span.
    pub fn from_parts(seconds: i64, nanoseconds: u32) -> Timestamp {
        Timestamp(seconds.saturating_mul(1_000_000_000).saturating_add(i64::from(nanoseconds)))
    }

    /// Whole seconds, rounded down, and the nanoseconds after them.
    pub fn parts(self) -> (i64, u32) {
        let nanoseconds = self.0.rem_euclid(1_000_000_000);
        (self.0.div_euclid(1_000_000_000), u32::try_from(nanoseconds).expect("below 10^9"))
    }
}

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Timestamp {
        let nanos = |d: Duration| i64::try_from(d.as_nanos()).unwrap_or(i64::MAX);
        match time.duration_since(UNIX_EPOCH) {
            Ok(after) => Timestamp(nanos(after)),
            Err(before) => Timestamp(-nanos(before.duration())),
        }
    }
}

/// One row of `fileatt`: an inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InodeRow {
    /// Number.
    pub ino: Ino,
    /// Generation.
    pub generation: Generation,
    /// Kind; never changes.
    pub kind: Kind,
    /// Permission bits, `0o7777` at most.
    pub permissions: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Names that lead here; for a directory 2 and one for each directory in it. 0: an orphan.
    pub nlink: u32,
    /// Device number of a device node (Linux `dev_t` as `stat` gives it, 32 bits), else 0.
    pub rdev: u32,
    /// Length in bytes; for a directory the number of its entries.
    pub size: u64,
    /// Bytes stored for the content.
    pub allocated: u64,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of content.
    pub mtime: Timestamp,
    /// Last change of content or attributes.
    pub ctime: Timestamp,
    /// Creation.
    pub btime: Timestamp,
    /// The directory that holds this directory (the root holds itself); `Ino(0)` for other kinds.
    pub parent: Ino,
    /// Rows of `xattr` for it: fewer that are there are damage.
    pub xattrs: u32,
    /// All content of a small file (bytes past its end up to `size` read as zero; such a file has
    /// no extents), or the target of a symbolic link.
    pub inline: Option<Slice>,
}

impl InodeRow {
    /// The root directory of a new volume.
    pub fn new_root(uid: u32, gid: u32, time: Timestamp) -> InodeRow {
        InodeRow {
            ino: Ino::ROOT,
            generation: 0,
            kind: Kind::Directory,
            permissions: 0o755,
            uid,
            gid,
            nlink: 2,
            rdev: 0,
            size: 0,
            allocated: 0,
            atime: time,
            mtime: time,
            ctime: time,
            btime: time,
            parent: Ino::ROOT,
            xattrs: 0,
            inline: None,
        }
    }

    /// True if it has extended attributes.
    pub fn has_xattrs(&self) -> bool {
        self.xattrs > 0
    }
}

/// One row of `naming`: an entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameRow {
    /// The directory.
    pub parent: Ino,
    /// The name in it.
    pub name: Name,
    /// The inode that it names.
    pub ino: Ino,
    /// Kind of what it names.
    pub kind: Kind,
    /// Its position in the directory.
    pub cookie: Cookie,
}

/// An entry of a directory with what its digest says of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedRow {
    /// The entry.
    pub name: NameRow,
    /// The lower 12 bits of `st_mode` of what it names.
    pub permissions: u32,
    /// Hash by which the directory lists the entry; none where it is not stored.
    pub digest: Option<Digest>,
}

/// One row of `commits`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommitRow {
    /// Number.
    pub number: CommitNo,
    /// Time at which it was made.
    pub time: Timestamp,
    /// The last operation in it.
    pub op: OpNo,
    /// The digest of the tree it leaves; none if the volume keeps no digests.
    pub root: Option<Digest>,
    /// The digest of the commit before; none of the first.
    pub previous: Option<Digest>,
}

impl CommitRow {
    /// Returns the digest by which the commit after it names it. None if it has no digest of its
    /// tree.
    pub fn digest(&self) -> Option<Digest> {
        let previous = self.previous.unwrap_or(ZERO);
        Some(weft_digest::commit(self.number.0, self.time.0, &self.root?, &previous))
    }
}

/// The place of a block's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// In the database, in the row of the block.
    Database,
    /// In the database, with the blocks that were written for this file.
    File(Ino),
    /// In the database, in a table of this file's own.
    Own(Ino),
    /// In a segment file.
    Segment {
        /// Number of the segment.
        segment: u32,
        /// Offset in it in bytes.
        offset: u64,
    },
}

/// The bytes of a file that an extent covers: a power of two of them, from 4 KiB to the block size,
/// at a multiple of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    /// The first byte.
    pub start: u64,
    /// Their number.
    pub length: u32,
}

impl Span {
    /// The least number of bytes that an extent covers.
    pub const LENGTH_MIN: u32 = 4 << 10;

    /// The bytes of block `index`, of `block_size` bytes.
    pub fn of_block(index: u64, block_size: u32) -> Span {
        Span { start: index.saturating_mul(block_size.into()), length: block_size }
    }

    /// The least length of an extent that holds a block of `bytes` bytes.
    pub fn length_for(bytes: u32) -> u32 {
        bytes.next_power_of_two().max(Span::LENGTH_MIN)
    }

    /// The end of the bytes.
    pub fn end(&self) -> u64 {
        self.start.saturating_add(self.length.into())
    }

    /// The bytes as a range.
    pub fn range(&self) -> Range<u64> {
        self.start..self.end()
    }

    /// True if some bytes are in both.
    pub fn overlaps(&self, other: &Span) -> bool {
        self.start < other.end() && other.start < self.end()
    }

    /// True if an extent of a volume whose blocks have `block_size` bytes can cover them.
    pub fn is_valid(&self, block_size: u32) -> bool {
        self.length.is_power_of_two()
            && (Span::LENGTH_MIN..=block_size).contains(&self.length)
            && self.start.is_multiple_of(self.length.into())
            && i64::try_from(self.start).is_ok()
    }
}

/// A stored block: all that is needed to read and verify it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRef {
    /// Its number.
    pub id: BlockId,
    /// Its length in bytes: at most the volume's block size; bytes past it read as zero.
    pub length: u32,
    /// The byte at which it stood in the file that it was written for.
    pub base: u64,
    /// Hash of its bytes at that position; [`ZERO`] if they are all zeros.
    pub value: Value,
    /// The place of its bytes.
    pub place: Place,
}

impl BlockRef {
    /// A key that orders blocks as they lie: segment and offset, or, where they lie in a database,
    /// the number.
    pub fn order(&self) -> (u32, u64) {
        match self.place {
            Place::Segment { segment, offset } => (segment, offset),
            Place::Database | Place::File(_) | Place::Own(_) => (0, self.id.0),
        }
    }

    /// True if `bytes` are those that were written.
    pub fn verify(&self, bytes: &[u8]) -> bool {
        let holds = match self.value {
            ZERO => weft_digest::is_zero(bytes),
            other => weft_digest::value(self.base, bytes) == Some(other),
        };
        holds && bytes.len() == self.length as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_before_1970_splits_into_rounded_down_seconds() {
        assert_eq!(Timestamp(-1).parts(), (-1, 999_999_999));
        assert_eq!(Timestamp::from_parts(-1, 999_999_999), Timestamp(-1));
        assert_eq!(Timestamp::from_parts(i64::MAX, 0), Timestamp(i64::MAX));
    }
}
