//! The costs of history: rows of versions, and bytes that no row of the present names.
//!
//! The count walks the versions in the order of their keys, a bounded number at a time, so that no
//! reader sees one commit for long. A block belongs to the past alone if versions are all that name
//! it. Its row says how many rows do: one reference decides at once, and more are compared with the
//! versions that the walk found. What commits change meanwhile is counted or not; a block counts at
//! most once. Sums of rows are not verified: that is for a check.

use super::{History, PastStore, PinKind};
use crate::error::Result;
use crate::row::{BlockId, CommitNo, Ino};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// Blocks with several references that one count tells apart; what is beyond belongs to the
/// present.
const SHARED_MAX: usize = 1 << 18;

/// A version of an extent, with what is known of its block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PastExtent {
    /// Its key, for the next question.
    pub key: ExtentKey,
    /// The file.
    pub ino: Ino,
    /// The commits in which it held.
    pub held: (CommitNo, CommitNo),
    /// The block.
    pub block: BlockId,
    /// Length of the block in bytes; 0 if it has no row.
    pub length: u64,
    /// Rows that name the block, of the present and versions.
    pub references: u64,
}

/// The key of a version of an extent in its table; by default one before all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtentKey(pub(crate) [i64; 4]);

impl Default for ExtentKey {
    fn default() -> ExtentKey {
        ExtentKey([i64::MIN; 4])
    }
}

/// A version of content that lay in the row of its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PastContent {
    /// The file, or a directory.
    pub ino: Ino,
    /// The commits in which it held.
    pub held: (CommitNo, CommitNo),
    /// Bytes of content in the row.
    pub length: u64,
}

/// A version of an inode's attributes, as far as those need it who look at all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PastVersion {
    /// The inode.
    pub ino: Ino,
    /// The commit that replaced it.
    pub until: CommitNo,
    /// True if it is of a file, and has bytes that are stored.
    pub has_content: bool,
}

/// Numbers of versions, by the table that they are of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct VersionCounts {
    /// Of attributes of inodes.
    pub inodes: u64,
    /// Of digests, and of content in rows.
    pub contents: u64,
    /// Of entries of directories.
    pub names: u64,
    /// Of extents of files.
    pub extents: u64,
    /// Of extended attributes.
    pub xattrs: u64,
}

impl VersionCounts {
    /// Returns the number of all of them.
    pub fn all(&self) -> u64 {
        self.inodes + self.contents + self.names + self.extents + self.xattrs
    }
}

/// Bytes that the past alone has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PastBytes {
    /// Bytes that come back once all is forgotten that no snapshot has.
    pub unpinned: u64,
    /// Bytes that snapshots hold.
    pub pinned: u64,
}

impl PastBytes {
    /// Returns all of them.
    pub fn all(&self) -> u64 {
        self.unpinned + self.pinned
    }

    fn add(&mut self, length: u64, is_pinned: bool) {
        *(if is_pinned { &mut self.pinned } else { &mut self.unpinned }) += length;
    }
}

/// The bytes that a count found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PastCosts {
    /// Those of blocks.
    pub blocks: PastBytes,
    /// Those of content in rows of the database.
    pub rows: PastBytes,
    /// Those of some inodes, where that was asked for: a block counts for one of its files.
    pub by_inode: BTreeMap<Ino, u64>,
    /// The first inode that is not among them, though it was asked for; none if all are.
    pub next_inode: Option<Ino>,
    /// False if so many blocks have several references that some of them were left out.
    pub is_complete: bool,
}

impl PastCosts {
    /// Returns the bytes of blocks and rows.
    pub fn all(&self) -> PastBytes {
        PastBytes { unpinned: self.blocks.unpinned + self.rows.unpinned, pinned: self.blocks.pinned + self.rows.pinned }
    }
}

/// The parts of the past that a count looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// Blocks alone.
    Blocks,
    /// Blocks and content in rows.
    All,
    /// The same; by inode as well, from one on: of up to so many inodes that have any.
    ByInode(Ino, usize),
}

/// A block that several rows name, as far as the walk has come.
struct SharedBlock {
    ino: Ino,
    found: u64,
    references: u64,
    length: u64,
    is_pinned: bool,
}

/// The place that a walk has reached.
#[derive(Clone, Copy)]
enum Reached {
    Extents(ExtentKey),
    Contents(Ino, CommitNo),
    End,
}

/// A count under way.
pub struct PastCount {
    counted: Counted,
    /// Commits of snapshots, ascending.
    snapshots: Vec<CommitNo>,
    /// What was kept when it began.
    history: History,
    reached: Reached,
    shared: FxHashMap<BlockId, SharedBlock>,
    costs: PastCosts,
    versions: u64,
}

impl PastCount {
    /// Begins a count of the past of `store`. None if it keeps no history.
    pub fn begin(store: &(impl PastStore + ?Sized), counted: Counted) -> Result<Option<PastCount>> {
        let Some(history) = store.history()? else { return Ok(None) };
        let snapshots = store.pins()?.into_iter().filter(|pin| pin.kind == PinKind::Snapshot);
        let mut snapshots = snapshots.map(|pin| pin.commit).collect::<Vec<_>>();
        snapshots.sort_unstable();
        Ok(Some(PastCount {
            counted,
            snapshots,
            history,
            reached: Reached::Extents(ExtentKey::default()),
            shared: FxHashMap::default(),
            costs: PastCosts { is_complete: true, ..PastCosts::default() },
            versions: 0,
        }))
    }

    /// Returns the number of versions that it has looked at.
    pub fn versions(&self) -> u64 {
        self.versions
    }

    /// Looks at up to `limit` more versions of `store`. False once there are none.
    pub fn step(&mut self, store: &(impl PastStore + ?Sized), limit: usize) -> Result<bool> {
        self.reached = match self.reached {
            Reached::Extents(after) => {
                let extents = store.past_extents(after, limit)?;
                extents.iter().for_each(|extent| self.add_extent(extent));
                match (extents.last(), self.counted) {
                    (Some(last), _) => Reached::Extents(last.key),
                    (None, Counted::All | Counted::ByInode(..)) => Reached::Contents(Ino(0), CommitNo(0)),
                    (None, Counted::Blocks) => Reached::End,
                }
            }
            Reached::Contents(ino, until) => {
                let contents = store.past_contents((ino, until), limit)?;
                contents.iter().for_each(|content| self.add_content(content));
                contents.last().map_or(Reached::End, |last| Reached::Contents(last.ino, last.held.1))
            }
            Reached::End => Reached::End,
        };
        Ok(!matches!(self.reached, Reached::End))
    }

    /// Ends the count of `store`; returns what it found.
    pub fn end(mut self, store: &(impl PastStore + ?Sized)) -> Result<PastCosts> {
        // Versions that went meanwhile may have been found: then their blocks' rows say less.
        let is_same = store.history()?.is_some_and(|now| now.swept == self.history.swept);
        self.costs.is_complete &= is_same || self.shared.is_empty();
        for block in std::mem::take(&mut self.shared).into_values().filter(|_| is_same) {
            if block.found == block.references {
                self.count(block.ino, block.length, block.is_pinned);
            }
        }
        Ok(self.costs)
    }

    fn count(&mut self, ino: Ino, length: u64, is_pinned: bool) {
        self.costs.blocks.add(length, is_pinned);
        self.charge(ino, length);
    }

    fn charge(&mut self, ino: Ino, length: u64) {
        let Counted::ByInode(from, limit) = self.counted else { return };
        let costs = &mut self.costs;
        if length == 0 || ino < from || costs.next_inode.is_some_and(|next| ino >= next) {
            return;
        }
        *costs.by_inode.entry(ino).or_default() += length;
        if costs.by_inode.len() > limit {
            costs.next_inode = costs.by_inode.pop_last().map(|(ino, _)| ino);
        }
    }

    fn is_pinned(&self, (since, until): (CommitNo, CommitNo)) -> bool {
        let first = self.snapshots.partition_point(|commit| *commit < since);
        self.snapshots.get(first).is_some_and(|commit| *commit < until)
    }

    fn add_extent(&mut self, extent: &PastExtent) {
        self.versions += 1;
        let is_pinned = self.is_pinned(extent.held);
        if extent.references <= 1 {
            return self.count(extent.ino, extent.length, is_pinned);
        }
        if self.shared.len() >= SHARED_MAX && !self.shared.contains_key(&extent.block) {
            self.costs.is_complete = false;
            return;
        }
        let PastExtent { ino, length, references, .. } = *extent;
        let new = || SharedBlock { ino, found: 0, references, length, is_pinned: false };
        let block = self.shared.entry(extent.block).or_insert_with(new);
        block.found += 1;
        block.references = extent.references;
        block.is_pinned |= is_pinned;
    }

    fn add_content(&mut self, content: &PastContent) {
        self.versions += 1;
        let is_pinned = self.is_pinned(content.held);
        self.costs.rows.add(content.length, is_pinned);
        self.charge(content.ino, content.length);
    }
}

/// A version of an entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastName {
    /// Its key, for the next question.
    pub key: NameKey,
    /// The inode that it named.
    pub ino: Ino,
    /// True if it named a directory.
    pub is_directory: bool,
}

/// The key of a version of an entry in its table: its fork, directory, name, and the commit that
/// replaced it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameKey {
    pub(crate) fork: i64,
    /// The directory.
    pub parent: Ino,
    /// The name.
    pub name: Vec<u8>,
    /// The commit that replaced it.
    pub until: CommitNo,
}

impl Default for NameKey {
    fn default() -> NameKey {
        NameKey { fork: i64::MIN, parent: Ino(0), name: Vec::new(), until: CommitNo(0) }
    }
}
