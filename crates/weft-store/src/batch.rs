//! One atomic change of a volume.

use crate::error::{Error, Result};
use crate::past::HistoryChange;
use crate::row::{BlockRef, CommitNo, Ino, InodeRow, NameRow, OpNo, Place, Span, Timestamp};
use crate::store::Limits;
use crate::{BlockId, Name};
use rustc_hash::FxHashSet;
use std::ops::Range;
use weft_block::Rope;
use weft_digest::{Digest, Hashed, Parts, Value};

/// All that one commit changes. Applied as one transaction: all of it or nothing.
///
/// A batch names each inode, each (parent, name) and each (inode, xattr name) at most once. Extents
/// are changed in two steps: all `Clear`, then all `Put`. Those that are put do not overlap, and
/// what overlaps one without lying inside it is cleared before.
/// A removed inode appears in no other change.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// The commit's number: one more than the last.
    pub commit: CommitNo,
    /// Time at which the commit was made.
    pub time: Timestamp,
    /// Counters as they are after it.
    pub counters: Counters,
    /// Blocks to write before the rows that name them, for [`crate::CommitStore::apply`]. Their ids
    /// are new and ascending.
    pub blocks: Vec<NewBlock>,
    /// Changes of `fileatt`.
    pub inodes: Vec<InodeChange>,
    /// Digests of files that consist of one block each, of blocks that are not among its own: those
    /// need not be read to know the digest of such a file.
    pub alone: Vec<(BlockId, Digest)>,
    /// Changes of `naming`.
    pub names: Vec<NameChange>,
    /// Changes of `extents`.
    pub extents: Vec<ExtentChange>,
    /// Blocks that take the place of several.
    pub merged: Vec<MergedBlock>,
    /// Changes of `xattr`.
    pub xattrs: Vec<XattrChange>,
    /// Changes of what is kept of the past.
    pub history: Vec<HistoryChange>,
    /// Other limits of the volume than before, if they change.
    pub limits: Option<Limits>,
    /// Operations that it could not store ([`crate::log::LogAppends::carry`]), for a store whose
    /// intent log has rows.
    pub carried: Vec<u8>,
    /// Digest that its tree must have, if that is known: with another one it is refused
    /// ([`Error::Stream`]). Nothing is compared where the volume keeps no digests.
    pub expected_root: Option<Digest>,
}

impl Batch {
    /// True if it sets the rule by which history is kept.
    pub(crate) fn sets_history(&self) -> bool {
        self.history.iter().any(|change| matches!(change, HistoryChange::Keep(..)))
    }

    /// Fails if its tree, whose digest is `root`, is not the one that was expected.
    pub(crate) fn refuse_other_tree(&self, root: Option<&Digest>) -> Result<()> {
        match (self.expected_root.as_ref(), root) {
            (Some(expected), Some(root)) if expected != root => Err(Error::Stream(format!(
                "the tree would have digest {}, and should have {}",
                weft_digest::hex(root),
                weft_digest::hex(expected)
            ))),
            _ => Ok(()),
        }
    }

    /// Inodes of which other rows change than their own: extents, extended attributes, entries and
    /// names. Their own rows are of this commit even if they are put as they were: two changes may
    /// have one time by the clock, and what tells versions apart is the row.
    pub(crate) fn touched(&self) -> FxHashSet<Ino> {
        let extents = self.extents.iter().map(|change| match change {
            ExtentChange::Put { ino, .. } | ExtentChange::Clear { ino, .. } => *ino,
        });
        let names = self.names.iter().flat_map(|change| match change {
            NameChange::Put(row) => [row.parent, row.ino],
            NameChange::Remove { parent, .. } => [*parent; 2],
        });
        extents.chain(names).chain(self.xattrs.iter().map(|change| change.ino)).collect()
    }

    /// The inodes that it removes.
    pub(crate) fn removed(&self) -> impl Iterator<Item = Ino> {
        self.inodes.iter().filter_map(|change| match change {
            InodeChange::Remove(ino) => Some(*ino),
            InodeChange::Put(_) => None,
        })
    }

    /// The rows of inodes that it puts.
    pub(crate) fn put_inodes(&self) -> impl Iterator<Item = &InodeRow> {
        self.inodes.iter().filter_map(|change| match change {
            InodeChange::Put(row) => Some(row),
            InodeChange::Remove(_) => None,
        })
    }
}

/// Numbers that live with the volume and change with each commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// The last operation that the volume contains.
    pub op: OpNo,
    /// The next number for an inode or a cookie (they share one sequence).
    pub next_id: u64,
    /// The next number for a block.
    pub next_block: u64,
    /// Raised at each mount: tells records of the intent log of one mount from another's. Odd while
    /// the volume needs such a log, in a file, to be opened again.
    pub epoch: u64,
    /// Bytes stored by all inodes (the sum of `allocated`).
    pub bytes_used: u64,
    /// Inodes in the volume, the root included.
    pub inodes_used: u64,
}

/// A block to be stored.
#[derive(Clone, Debug)]
pub struct NewBlock {
    /// Its number.
    pub id: BlockId,
    /// The file that it is written for.
    pub owner: Ino,
    /// Its bytes; not empty.
    pub bytes: Rope,
    /// The byte of the file at which it stands.
    pub base: u64,
    /// Hash of its bytes at that position.
    pub value: Value,
    /// The digest of a file that consists of it, if it stands at the beginning.
    pub alone: Option<Digest>,
    /// Data that verifies parts of its bytes.
    pub parts: Parts,
}

impl NewBlock {
    /// Block `id` of `bytes`, written for `owner`, hashed as what stands at byte `base` of a file.
    ///
    /// # Panics
    /// If there are no bytes, or `base` is no multiple of a block size that holds them.
    pub fn new(id: BlockId, owner: Ino, bytes: Rope, base: u64) -> NewBlock {
        let Hashed { value, alone, parts } = Hashed::new(&bytes, base);
        NewBlock { id, owner, bytes, base, value, alone, parts }
    }

    /// Returns the reference to it, once its bytes lie at `place`.
    ///
    /// # Panics If it is longer than a block can be.
    pub fn at(&self, place: Place) -> BlockRef {
        let length = u32::try_from(self.bytes.len()).expect("a block has 4 MiB at most");
        BlockRef { id: self.id, length, base: self.base, value: self.value, place }
    }
}

/// A stored block that becomes several: the file goes on with some of its bytes alone.
#[derive(Clone, Debug)]
pub struct SplitBlock {
    /// The file.
    pub ino: Ino,
    /// The extent that names the block.
    pub span: Span,
    /// The block.
    pub block: BlockRef,
    /// The extents that take the place of that one, ascending, with their blocks: the bytes of
    /// these are together those of the block.
    pub parts: Vec<(Span, NewBlock)>,
}

/// A block that takes the place of several with the same bytes: what the file holds, and held,
/// stays the same, and so no version of it comes of that. No change of the batch is about these
/// bytes.
#[derive(Clone, Debug)]
pub struct MergedBlock {
    /// The file.
    pub ino: Ino,
    /// The extent of the block: all extents in it go.
    pub span: Span,
    /// The block: one of this batch's.
    pub block: BlockRef,
}

/// A change of one inode.
#[derive(Clone, Debug)]
pub enum InodeChange {
    /// Insert the row or replace it.
    Put(InodeRow),
    /// Delete the row with its extents and extended attributes. Harmless if there is none.
    Remove(Ino),
}

/// A change of one directory entry.
#[derive(Clone, Debug)]
pub enum NameChange {
    /// Insert the row or replace the one with the same parent and name.
    Put(NameRow),
    /// Delete the row. Harmless if there is none.
    Remove {
        /// The directory.
        parent: Ino,
        /// The name in it.
        name: Name,
    },
}

/// A change of a file's map from bytes to blocks.
#[derive(Clone, Debug)]
pub enum ExtentChange {
    /// Forget the extents that start in `range`.
    Clear {
        /// The file.
        ino: Ino,
        /// Bytes of the file; the end may be `u64::MAX`.
        range: Range<u64>,
    },
    /// The bytes of `span` are block `block`: one of this batch's, or one that some extent names
    /// already (shared).
    Put {
        /// The file.
        ino: Ino,
        /// The bytes that it covers: those past the end of the block are zeros.
        span: Span,
        /// The block; for one of this batch's own blocks `place` is not yet known and ignored.
        block: BlockRef,
    },
}

/// A change of one extended attribute.
#[derive(Clone, Debug)]
pub struct XattrChange {
    /// The inode.
    pub ino: Ino,
    /// Full name with its namespace, such as `user.comment`.
    pub name: Name,
    /// The new value, or none to delete it.
    pub value: Option<Vec<u8>>,
}
