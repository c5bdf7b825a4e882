//! The border between the file system and what keeps its rows.

use crate::batch::{Batch, Counters, NewBlock, SplitBlock};
use crate::disk_cache::DiskCacheStats;
use crate::error::{Error, Result};
use crate::log::Behind;
use crate::name::Name;
use crate::past::PastStore;
use crate::round_trips::RoundTrips;
use crate::row::{BlockRef, CommitNo, CommitRow, Cookie, Ino, InodeRow, ListedRow, NameRow, Span, Timestamp};
use crate::{missing, sums};
use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Duration;
use weft_block::Block;
use weft_digest::Digest;

/// Rows of a volume.
///
/// Reads give the state of some commit no older than the last one that ended before the call. All
/// methods may be called from any thread.
pub trait RowStore: Send + Sync {
    /// Options and counters as of the last commit.
    fn header(&self) -> Result<Header>;

    /// Up to `limit` inodes numbered `from` or above, ascending.
    fn inodes(&self, from: Ino, limit: usize) -> Result<Vec<InodeRow>>;

    /// The row of inode `ino`, and with it up to `limit` rows that follow, as far as that takes
    /// little longer. Empty if there is no such inode, or begins with another one.
    fn inodes_near(&self, ino: Ino, limit: usize) -> Result<Vec<InodeRow>> {
        self.inodes(ino, limit)
    }

    /// The row of inode `ino`; none if there is no such inode.
    fn row_of(&self, ino: Ino) -> Result<Option<InodeRow>> {
        Ok(self.inodes(ino, 1)?.pop().filter(|row| row.ino == ino))
    }

    /// The entry `name` of the directory `parent`.
    fn name(&self, parent: Ino, name: &Name) -> Result<Option<NameRow>>;

    /// Up to `limit` entries of `parent` with a cookie above `after`, in cookie order.
    fn names(&self, parent: Ino, after: Cookie, limit: usize) -> Result<Vec<NameRow>>;

    /// The same of those entries alone whose rows are as they were written, where
    /// [`RowStore::names`] fails.
    fn whole_names(&self, parent: Ino, after: Cookie, limit: usize) -> Result<Vec<NameRow>> {
        self.names(parent, after, limit)
    }

    /// The extents of `ino` that start in `range`, ascending: what bytes they cover, and their
    /// blocks. Bytes that none covers are a hole. None crosses a multiple of the block size.
    fn extents(&self, ino: Ino, range: Range<u64>) -> Result<Vec<(Span, BlockRef)>>;

    /// The start of an extent of `ino` that starts in `range`, counted from an end of it; none if
    /// there are not as many.
    fn nth_extent(&self, ino: Ino, range: Range<u64>, nth: Nth) -> Result<Option<u64>> {
        let found = self.extents(ino, range)?;
        let at = match nth {
            Nth::FromStart(skipped) => Some(skipped),
            Nth::FromEnd(skipped) => (found.len() as u64).checked_sub(skipped.saturating_add(1)),
        };
        let at = at.and_then(|at| usize::try_from(at).ok());
        Ok(at.and_then(|at| found.get(at)).map(|(span, _)| span.start))
    }

    /// Fails with `Corrupt` if entries of `directory` are gone or damaged: whole ones are not as
    /// many as its row says. Takes time in proportion to the directory.
    fn refuse_missing_names(&self, _directory: Ino) -> Result<()> {
        Ok(())
    }

    /// Fails with `Corrupt` if rows of blocks of `ino` are gone or damaged, so that a block without
    /// a row may be no hole: those that are whole hold fewer bytes than the file's row says. Takes
    /// time in proportion to the file's blocks.
    fn refuse_missing_blocks(&self, _ino: Ino) -> Result<()> {
        Ok(())
    }

    /// Some directories that name `ino`, and the names; none where the store cannot tell.
    fn names_of(&self, _ino: Ino) -> Result<Vec<(Ino, Name)>> {
        Ok(Vec::new())
    }

    /// All extended attributes of `ino`, in name order.
    fn xattrs(&self, ino: Ino) -> Result<Vec<(Name, Vec<u8>)>>;

    /// Inodes that no name leads to: what was unlinked while open when the daemon ended.
    fn orphans(&self) -> Result<Vec<Ino>>;

    /// Returns those of [`RowStore::orphans`] that a name leads to: they are damaged, and no
    /// orphans.
    fn misnamed(&self) -> Result<Vec<Ino>> {
        Ok(Vec::new())
    }

    /// The digest of `ino` as of the last commit: of a file or anything else by what a directory
    /// lists it, of a directory its own (docs/reference/digest.md). None if there is no such inode,
    /// or no digest of it.
    fn digest(&self, _ino: Ino) -> Result<Option<Digest>> {
        Ok(None)
    }

    /// Up to `limit` entries of directory `parent` after position `after`, as [`RowStore::names`],
    /// with what its digest says of them. `Corrupt` if the row of what one of them names is gone.
    fn listed(&self, parent: Ino, after: Cookie, limit: usize) -> Result<Vec<ListedRow>> {
        let listed = |name: NameRow| {
            let inode = self.row_of(name.ino)?;
            let permissions = inode.ok_or_else(|| Error::Corrupt(missing::inode(name.ino)))?.permissions;
            Ok(ListedRow { permissions, digest: self.digest(name.ino)?, name })
        };
        self.names(parent, after, limit)?.into_iter().map(listed).collect()
    }

    /// BLAKE3 of the content of file `ino` as of the last commit. None if there is no such file, no
    /// digest of it, or so many zeros that hashing them would take long: more than 256 times 4 MiB
    /// in whole pieces.
    fn content_digest(&self, _ino: Ino) -> Result<Option<Digest>> {
        Ok(None)
    }

    /// The first `limit` of the commits that are remembered from `from` on, in their order.
    fn commits(&self, _from: CommitNo, _limit: usize) -> Result<Vec<CommitRow>> {
        Ok(Vec::new())
    }

    /// The commit of this number, if it is remembered.
    fn commit_row(&self, number: CommitNo) -> Result<Option<CommitRow>> {
        Ok(self.commits(number, 1)?.into_iter().find(|row| row.number == number))
    }

    /// True if [`RowStore::prefetch`] would bring something. Asked after extents were.
    fn wants_more(&self) -> bool {
        false
    }

    /// Prefetches what readers are likely to ask for next: for a thread that may wait.
    fn prefetch(&self) -> Result<()> {
        Ok(())
    }
}

/// Bytes of blocks. Where a block lies is known here alone.
pub trait BlockStore: Send + Sync {
    /// The bytes of a block, verified against its digest (`Corrupt` if they differ). `None` only
    /// with `ReadMode::CachedOnly` when the bytes would have to be waited for.
    fn read_block(&self, block: &BlockRef, mode: ReadMode) -> Result<Option<Block>>;

    /// Bytes `range` of a block, as far as it reaches, verified as by [`BlockStore::read_block`]:
    /// whatever part of the block can be read and verified alone and holds them, with where in the
    /// block it begins.
    fn read_part(&self, block: &BlockRef, _range: Range<usize>, mode: ReadMode) -> Result<Option<(usize, Block)>> {
        Ok(self.read_block(block, mode)?.map(|bytes| (0, bytes)))
    }

    /// Has `visit` look at each of `blocks`, with its place among them, in their order and as soon
    /// as it is here: read as by [`BlockStore::read_block`]. Those that lie together are read
    /// together. Fails if all that was not visited cannot be had.
    fn read_blocks(&self, blocks: &[BlockRef], visit: &mut dyn FnMut(usize, Result<Block>)) -> Result<()> {
        for (at, block) in blocks.iter().enumerate() {
            let read = self.read_block(block, ReadMode::Blocking);
            visit(at, read.and_then(|read| read.ok_or_else(|| Error::Bug("nobody waited".into()))));
        }
        Ok(())
    }

    /// Bytes of blocks that are best read together by [`BlockStore::read_blocks`]: so many that
    /// nothing is waited for in between, so few that others may read meanwhile.
    fn run_bytes(&self) -> u64 {
        1 << 20
    }
}

/// Commits to a volume. Transactions run one at a time.
pub trait CommitStore: Send + Sync {
    /// True if every commit is durable, whatever was asked for.
    fn are_commits_durable(&self) -> bool {
        false
    }

    /// True if durable commits lie in a log of the store's own for a while, and it cannot tell if
    /// that is lost: then somebody else must name them, or have them settled.
    fn must_be_named(&self) -> bool {
        false
    }

    /// Copies durable commits from such a log to where they stay, as far as there is room and
    /// nobody reads what they replace.
    fn settle(&self) -> Result<()> {
        Ok(())
    }

    /// Cuts off, durably, what lies in segments and belongs to no commit. Tells what is left.
    fn cut(&self) -> Result<Behind> {
        Ok(Behind::Unknown)
    }

    /// Begins a commit. Waits for the end of one that was begun before.
    fn begin(&self, durability: Durability) -> Result<Box<dyn Transaction + '_>>;

    /// Applies `batch`, its blocks included, whole, or fails and changes nothing.
    fn apply(&self, batch: &Batch, durability: Durability) -> Result<Applied> {
        let mut transaction = self.begin(durability)?;
        let blocks = transaction.put_blocks(batch.blocks.clone())?;
        transaction.commit(batch)?;
        Ok(Applied { blocks })
    }

    /// Returns the reason that nothing can be committed here any more, if so: another process has
    /// taken the volume (`Held`), or it is not as this one left it, or its files were removed or
    /// moved (`Unusable`).
    fn lost(&self) -> Option<Error> {
        None
    }
}

/// The place that a volume lies in, and what it costs.
pub trait Maintenance: Send + Sync {
    /// True if reading rows means waiting for a server.
    fn is_remote(&self) -> bool {
        false
    }

    /// Returns the time since a server last answered, if it should have answered meanwhile.
    fn unanswered(&self) -> Option<Duration> {
        None
    }

    /// Returns the number of round trips to a server.
    fn round_trips(&self) -> RoundTrips {
        RoundTrips::default()
    }

    /// Returns counters of the cache of blocks on a local disk, if there is one.
    fn disk_cache(&self) -> Option<DiskCacheStats> {
        None
    }

    /// Space of the place the volume lies in.
    fn space(&self) -> Result<Space>;

    /// Returns the bytes of blocks that commits freed and that were given back to that place since
    /// the volume was opened. None if space of blocks does not come back there.
    fn given_back(&self) -> Option<u64> {
        None
    }

    /// Returns notices for the user since the last call.
    fn notices(&self) -> Vec<String> {
        Vec::new()
    }

    /// Brings all that was committed to where it stays, before the store is dropped, and tells what
    /// kept it from there. Everything works on after that.
    fn close(&self) -> Result<()> {
        Ok(())
    }

    /// Waits until what commits freed is given back to that place, as far as it can be; tells its
    /// space then.
    fn reclaim(&self) -> Result<Space> {
        self.space()
    }

    /// Has room given back that rows of failed commits and rows that were replaced still take,
    /// after a commit found none. True if the same commit may find some now.
    fn make_room(&self) -> Result<bool> {
        Ok(false)
    }
}

/// All that keeps a volume.
pub trait Store: RowStore + BlockStore + CommitStore + Maintenance + PastStore {}

impl<T: RowStore + BlockStore + CommitStore + Maintenance + PastStore> Store for T {}

/// A path from the root to `ino`, by what `names_of` tells of each on the way; `#` and the number
/// of the first that has no name.
pub fn path_to(ino: Ino, names_of: impl Fn(Ino) -> Result<Vec<(Ino, Name)>>) -> Result<Vec<u8>> {
    let (mut parts, mut at, mut seen) = (Vec::new(), ino, BTreeSet::new());
    while at != Ino::ROOT {
        let name = names_of(at)?.into_iter().next();
        let Some((parent, name)) = name.filter(|_| seen.insert(at)) else {
            parts.push(format!("#{}", at.0).into_bytes());
            parts.reverse();
            return Ok(parts.join(&b'/'));
        };
        parts.push(name.as_bytes().to_vec());
        at = parent;
    }
    parts.push(Vec::new());
    parts.reverse();
    Ok(if parts.len() == 1 { b"/".to_vec() } else { parts.join(&b'/') })
}

/// A commit on its way: it takes blocks as they are built, so that not all of them need be in
/// memory together, then the rows that name them. Dropped before [`Transaction::commit`] it changes
/// nothing.
pub trait Transaction {
    /// Stores `blocks`, whose ids are above those of the blocks before them; tells where each will
    /// lie: they may be on their way until the next call. After an error, which may be of earlier
    /// blocks, nothing but dropping the transaction is left.
    fn put_blocks(&mut self, blocks: Vec<NewBlock>) -> Result<Vec<BlockRef>>;

    /// Makes several blocks of one, where its bytes lie, and has as many extents name them as of
    /// the commit since which the one named it: what the file holds, and held, stays the same.
    /// Tells the blocks. None if it cannot be, as others name the block too or the store writes
    /// bytes of blocks elsewhere; then nothing has changed. The batch must not name the block that
    /// was split.
    fn split_block(&mut self, _split: &SplitBlock) -> Result<Option<Vec<BlockRef>>> {
        Ok(None)
    }

    /// Applies the rows of `batch` and the blocks taken so far whole, or fails and changes nothing;
    /// `batch.blocks` is not looked at. Reads meanwhile see the commit or not, in no order; all
    /// later ones do.
    fn commit(self: Box<Self>, batch: &Batch) -> Result<()>;
}

/// Permission of a read to wait for a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadMode {
    /// Answer only from memory.
    CachedOnly,
    /// Wait as long as it takes.
    Blocking,
}

/// Requirement that a commit outlive a power cut once it returns. Either way commits survive only
/// as a prefix: none without all before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// It survives the daemon's death now and a power cut a little later.
    Eventual,
    /// It, and all commits before it, survive anything from now on.
    Durable,
}

/// The result of a successful `apply`.
#[derive(Clone, Debug, Default)]
pub struct Applied {
    /// References to the batch's new blocks, in their order.
    pub blocks: Vec<BlockRef>,
}

/// The header of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Version of the format.
    pub format: u32,
    /// Tells the volume from all others: random bytes, made with it. Copies of it have the same.
    pub uuid: [u8; 16],
    /// Chosen when the volume was made.
    pub options: VolumeOptions,
    /// The last commit.
    pub commit: CommitNo,
    /// Time at which the volume was made.
    pub created: Timestamp,
    /// Counters as of the last commit.
    pub counters: Counters,
}

impl Header {
    /// The sum of the volume's own row.
    pub(crate) fn sum(&self) -> i64 {
        sums::add(self.fixed_sum(), sums::counters(self.commit, &self.counters))
    }

    /// Has it say what it does after `batch`.
    pub(crate) fn follow(&mut self, batch: &Batch) {
        self.commit = batch.commit;
        self.counters = batch.counters;
        if let Some(limits) = batch.limits {
            self.options.set_limits(limits);
        }
    }

    /// The part of it that commits do not change, unless they change limits.
    pub(crate) fn fixed_sum(&self) -> i64 {
        sums::volume(self.created, &self.uuid, &self.options)
    }
}

/// Options of a volume, chosen when it is made.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct VolumeOptions {
    /// Bytes in a block: a power of two from 4 KiB to 4 MiB.
    pub block_size: u32,
    /// Files up to this many bytes lie in their inode's row; at most `block_size`.
    pub inline_max: u32,
    /// The storage of blocks.
    pub home: BlockHome,
    /// Most bytes the volume may store (`EDQUOT` beyond), if limited.
    pub bytes_max: Option<u64>,
    /// Most inodes the volume may hold (`EDQUOT` beyond), if limited.
    pub inodes_max: Option<u64>,
    /// True if it keeps digests of files and directories.
    pub digests: bool,
    /// First byte of a file whose blocks lie in a table of the file's own, where blocks lie in the
    /// database of a server; none: all lie in one table.
    pub own_table_from: Option<u64>,
}

/// Limits of what a volume holds: those of its options that can change ([`crate::Batch::limits`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// As [`VolumeOptions::bytes_max`].
    pub bytes_max: Option<u64>,
    /// As [`VolumeOptions::inodes_max`].
    pub inodes_max: Option<u64>,
}

impl VolumeOptions {
    /// The limits among them.
    pub fn limits(&self) -> Limits {
        Limits { bytes_max: self.bytes_max, inodes_max: self.inodes_max }
    }

    /// Changes the limits among them.
    pub fn set_limits(&mut self, limits: Limits) {
        (self.bytes_max, self.inodes_max) = (limits.bytes_max, limits.inodes_max);
    }

    /// Refuses options that no volume can be made with: [`Error::Unusable`].
    pub fn check(&self) -> Result<()> {
        let size = self.block_size;
        if !size.is_power_of_two() || !(4 << 10..=4 << 20).contains(&size) {
            return Err(Error::Unusable(format!("block size {size} is not a power of two from 4 KiB to 4 MiB")));
        }
        if self.inline_max > size {
            return Err(Error::Unusable(format!(
                "inline threshold {} is above the block size {size}",
                self.inline_max
            )));
        }
        Ok(())
    }
}

/// An extent of a range of a file, by the number of those that are skipped before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nth {
    /// From the start on.
    FromStart(u64),
    /// From the end back.
    FromEnd(u64),
}

impl Default for VolumeOptions {
    fn default() -> VolumeOptions {
        VolumeOptions {
            block_size: 64 << 10,
            inline_max: 4 << 10,
            home: BlockHome::Segments,
            bytes_max: None,
            inodes_max: None,
            digests: true,
            own_table_from: None,
        }
    }
}

/// The storage of a volume's blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum BlockHome {
    /// In rows of the database.
    Database,
    /// In append-only files beside the database.
    Segments,
}

impl BlockHome {
    /// Returns its name in the volume's row.
    pub(crate) fn name(self) -> &'static str {
        match self {
            BlockHome::Database => "database",
            BlockHome::Segments => "segments",
        }
    }
}

/// Space of the place a volume lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// All of it in bytes.
    pub bytes_total: u64,
    /// Bytes that can still be written.
    pub bytes_free: u64,
    /// Bytes that are free too, and kept for others: on many file systems for the super-user.
    pub bytes_reserved: u64,
}
