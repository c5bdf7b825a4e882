//! The past of a volume: rows as earlier commits left them, and which commits can still be read.
//!
//! While history is on, a commit keeps the versions of rows that it replaces. A version held from
//! the commit that wrote it up to the one that replaced it. A commit is *kept* if it is not older
//! than [`History::first`] or if a [`Pin`] names it; versions that no kept commit sees are removed
//! by and by ([`HistoryChange::Forget`]).

mod at;
mod costs;
mod difference;
mod forgotten;
mod kept;
mod moment;

pub use at::{At, PastFilter};
pub use costs::{
    Counted, ExtentKey, NameKey, PastBytes, PastContent, PastCosts, PastCount, PastExtent, PastName, PastVersion,
    VersionCounts,
};
pub use forgotten::{FORGOTTEN, FORGOTTEN_BYTES_MAX, FORGOTTEN_MAX, FORGOTTEN_TOTAL_MAX};
pub use kept::KeptCommits;
pub(crate) use moment::Rfc3339;
pub use moment::{InvalidMoment, Moment};

use crate::Name;
use crate::error::{Error, Result};
use crate::row::{BlockRef, CommitNo, CommitRow, Cookie, Ino, InodeRow, NameRow, Span, Timestamp};
use crate::store::RowStore;
use std::collections::BTreeMap;
use std::ops::Range;
use weft_digest::Digest;

/// The part of its past that a volume keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History {
    /// The rule by which commits are kept, as it is written.
    pub rule: String,
    /// Those who may read the past.
    pub readers: HistoryFor,
    /// From this commit on all are kept.
    pub first: CommitNo,
    /// Nothing that no kept commit sees is left of versions that were replaced up to this commit.
    pub swept: CommitNo,
}

/// A commit that is kept for a reason of its own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pin {
    /// The commit.
    pub commit: CommitNo,
    /// The reason.
    pub kind: PinKind,
    /// The name of a snapshot; empty for all else.
    pub name: Vec<u8>,
    /// Time at which it was made.
    pub made: Timestamp,
    /// Time before which nobody may remove it, if that was said.
    pub held_until: Option<Timestamp>,
}

/// Those who may read the past, as far as its rights let them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HistoryFor {
    /// Everybody.
    #[default]
    All,
    /// The owner of each file as of then.
    Owner,
    /// Root.
    Root,
}

impl HistoryFor {
    /// Returns its name in the volume's tables, and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            HistoryFor::All => "all",
            HistoryFor::Owner => "owner",
            HistoryFor::Root => "root",
        }
    }

    /// The one of that name.
    pub fn named(name: &str) -> Option<HistoryFor> {
        [HistoryFor::All, HistoryFor::Owner, HistoryFor::Root].into_iter().find(|readers| readers.name() == name)
    }
}

impl PinKind {
    /// Returns its number in the volume's tables.
    pub(crate) fn number(self) -> i64 {
        match self {
            PinKind::Point => 1,
            PinKind::Snapshot => 2,
        }
    }

    /// The one of that number.
    pub(crate) fn numbered(number: i64) -> Option<PinKind> {
        [PinKind::Point, PinKind::Snapshot].into_iter().find(|kind| kind.number() == number)
    }
}

/// The reason why a commit is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PinKind {
    /// The rule keeps it, and not those around it.
    Point,
    /// A user gave it a name.
    Snapshot,
}

/// A change of what is kept, as a part of a commit. Changes take effect in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HistoryChange {
    /// Keep history from this commit on, by this rule and for these readers; or change both.
    Keep(String, HistoryFor),
    /// Keep none any more, and remove all versions and pins. `Unusable` while there are snapshots.
    End,
    /// Add a pin, or replace the one of the same commit, kind and name. `Unusable` if the commit is
    /// not kept, or later than this one, or if that pin is held for longer.
    Pin(Pin),
    /// Remove a pin. Harmless if there is none; `Unusable` if it is held until later than this
    /// commit.
    Unpin(CommitNo, PinKind, Vec<u8>),
    /// Give the snapshot of a commit, with its hold, another name. Harmless if there is none of the
    /// first name; `Unusable` if there is one of the second, of any commit.
    Rename(CommitNo, Vec<u8>, Vec<u8>),
    /// All commits are kept from this one on, where that was an earlier one. Harmless if it was a
    /// later one; `Unusable` if this commit is earlier.
    First(CommitNo),
    /// Empty all versions of a file that later commits replaced: their blocks and content in rows
    /// go, and their digests. As of those commits the file is there and has no bytes. Harmless if
    /// there are none.
    Empty(Ino),
    /// Remove versions that no kept commit sees, of at most so many rows.
    Forget(usize),
}

/// Reads rows as of earlier commits. All that is asked as of a commit which is not kept is
/// undefined: ask [`PastStore::is_kept`] first.
pub trait PastStore: RowStore {
    /// Returns what is kept of the past; none while history is off.
    fn history(&self) -> Result<Option<History>> {
        Ok(None)
    }

    /// All pins, by commit.
    fn pins(&self) -> Result<Vec<Pin>> {
        Ok(Vec::new())
    }

    /// True if rows can be read as of `commit`.
    fn is_kept(&self, commit: CommitNo) -> Result<bool> {
        let Some(history) = self.history()? else { return Ok(false) };
        if commit > self.header()?.commit {
            return Ok(false);
        }
        Ok(commit >= history.first || self.pins()?.iter().any(|pin| pin.commit == commit))
    }

    /// The last commit at or before `time`, of those that are remembered, kept or not.
    fn commit_at(&self, _time: Timestamp) -> Result<Option<CommitRow>> {
        Ok(None)
    }

    /// Up to `limit` inodes whose numbers are in `inos`, ascending, as of `commit`; with each row
    /// the commit that wrote it. Takes time in proportion to the numbers that had an inode at any
    /// time.
    fn inodes_at(&self, _commit: CommitNo, _inos: Range<Ino>, _limit: usize) -> Result<Vec<(InodeRow, CommitNo)>> {
        Err(no_history())
    }

    /// The row of inode `ino` as of `commit`, and the commit that wrote it; none if there was no
    /// such inode.
    fn row_at(&self, commit: CommitNo, ino: Ino) -> Result<Option<(InodeRow, CommitNo)>> {
        Ok(self.inodes_at(commit, ino..ino.next(), 1)?.pop())
    }

    /// As [`crate::RowStore::name`], as of `commit`.
    fn name_at(&self, _commit: CommitNo, _parent: Ino, _name: &Name) -> Result<Option<NameRow>> {
        Err(no_history())
    }

    /// As [`crate::RowStore::names`], as of `commit`.
    fn names_at(&self, _commit: CommitNo, _parent: Ino, _after: Cookie, _limit: usize) -> Result<Vec<NameRow>> {
        Err(no_history())
    }

    /// As [`crate::RowStore::extents`], as of `commit`.
    fn extents_at(&self, _commit: CommitNo, _ino: Ino, _range: Range<u64>) -> Result<Vec<(Span, BlockRef)>> {
        Err(no_history())
    }

    /// As [`PastStore::extents_at`] for each of `files`, from its beginning to a byte.
    fn all_extents_at(&self, commit: CommitNo, files: &[(Ino, u64)]) -> Result<Vec<Vec<(Span, BlockRef)>>> {
        files.iter().map(|(ino, end)| self.extents_at(commit, *ino, 0..*end)).collect()
    }

    /// As [`PastStore::digest_at`] for each of `inos`.
    fn digests_at(&self, commit: CommitNo, inos: &[Ino]) -> Result<Vec<Option<Digest>>> {
        inos.iter().map(|ino| self.digest_at(commit, *ino)).collect()
    }

    /// As [`crate::RowStore::xattrs`], as of `commit`.
    fn xattrs_at(&self, _commit: CommitNo, _ino: Ino) -> Result<Vec<(Name, Vec<u8>)>> {
        Err(no_history())
    }

    /// As [`crate::RowStore::digest`], as of `commit`.
    fn digest_at(&self, _commit: CommitNo, _ino: Ino) -> Result<Option<Digest>> {
        Err(no_history())
    }

    /// Versions of inode `ino` that later commits replaced, newest first: up to `limit` that were
    /// replaced at or before `until`, each with the commits that wrote and replaced it.
    fn versions(&self, _ino: Ino, _until: CommitNo, _limit: usize) -> Result<Vec<(InodeRow, Range<CommitNo>)>> {
        Err(no_history())
    }

    /// Up to `limit` versions of extents behind the one of key `after`, in the order of their keys.
    fn past_extents(&self, _after: ExtentKey, _limit: usize) -> Result<Vec<PastExtent>> {
        Err(no_history())
    }

    /// Up to `limit` versions of content behind that of an inode which a commit replaced, in the
    /// order of both.
    fn past_contents(&self, _after: (Ino, CommitNo), _limit: usize) -> Result<Vec<PastContent>> {
        Err(no_history())
    }

    /// Up to `limit` versions of attributes behind that of an inode which a commit replaced, in the
    /// order of both.
    fn past_versions(&self, _after: (Ino, CommitNo), _limit: usize) -> Result<Vec<PastVersion>> {
        Err(no_history())
    }

    /// Up to `limit` versions of entries behind the one of key `after`, in the order of their keys.
    fn past_names(&self, _after: &NameKey, _limit: usize) -> Result<Vec<PastName>> {
        Err(no_history())
    }

    /// Counts versions. Takes time in proportion to them.
    fn version_counts(&self) -> Result<VersionCounts> {
        Err(no_history())
    }

    /// Inodes that there were as of the first of two commits, and whose rows are others or gone as
    /// of the second one, ascending. An access time alone does not count.
    fn changed_inodes(&self, commits: (CommitNo, CommitNo)) -> Result<Vec<Ino>> {
        difference::inodes(self, commits)
    }

    /// Entries of directory `parent` that are others, new or gone as of the second of two commits.
    fn changed_names(&self, commits: (CommitNo, CommitNo), parent: Ino) -> Result<ChangedNames> {
        difference::names(self, commits, parent)
    }

    /// Extents of `ino` that start in `range` and are others, new or gone as of the second of two
    /// commits, ascending.
    fn changed_extents(
        &self,
        commits: (CommitNo, CommitNo),
        ino: Ino,
        range: Range<u64>,
    ) -> Result<Vec<ChangedExtent>> {
        difference::extents(self, commits, ino, range)
    }
}

/// Entries of a directory that are others than at another commit, each with the row of the later
/// one: none if it is gone.
pub type ChangedNames = BTreeMap<Name, Option<NameRow>>;

/// An extent of a file that names another block than at another commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangedExtent {
    /// The bytes that it covers.
    pub span: Span,
    /// True if there was one at the earlier commit.
    pub was_there: bool,
    /// The one at the later commit.
    pub now: Option<BlockRef>,
}

/// The error of what needs history where none is kept.
pub fn no_history() -> Error {
    Error::Unusable("this volume keeps no history; 'weft history set' begins one".into())
}
