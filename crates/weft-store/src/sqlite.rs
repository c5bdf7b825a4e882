//! The embedded store: metadata in SQLite, blocks in segment files or in the same database.
//!
//! One connection writes; a few read, each inside an open read transaction that ends with the next
//! commit (a transaction for every read would cost more than the read). `docs/reference/format.md`
//! says what lies where.

mod apply;
mod aside;
mod behind;
mod belonging;
mod blocks;
mod check;
mod closed;
mod commits;
mod compact;
mod connection;
mod convert;
mod copy;
mod damaged_bytes;
mod digests;
mod engine;
mod extents;
mod file_header;
mod foreign;
mod free_list;
mod gap;
mod held;
mod history;
mod holder;
mod inlined;
mod inspect;
mod layout;
mod lost_segments;
mod lost_wal;
mod making;
mod medium;
mod merge;
mod missing;
mod names;
mod network;
mod open;
mod pages;
mod proof;
mod put;
mod read;
mod readers;
mod reclaim;
mod renew;
mod replacing;
mod room;
mod salvage;
mod scan;
mod schema;
mod scrub;
mod segments;
mod shape;
mod split;
mod sums;
mod torn;
mod transaction;
mod unfinished;
mod upgrade;
mod waiting;
mod wal;
mod writing;

pub use belonging::{Giving, give_to_owner};
pub use check::check;
pub(crate) use check::{Elsewhere, check_copy};
pub use closed::{Closing, close_to_others};
pub use commits::commits;
pub use compact::{Compacted, Stop, compact};
pub use convert::convert;
pub(crate) use copy::Copy;
pub(crate) use engine::VolumeFiles;
pub use holder::{Holder, InUse};
pub use layout::{Layout, replaceable};
pub use lost_segments::lost_segment_files;
pub use making::{Made, Making};
pub use medium::left_in_wal;
pub use open::{Volume, create, header, is_volume, open, open_beside, open_to_read, open_with};
pub use salvage::{Missing, Salvaged, salvage};
pub use scrub::scrub;
pub use upgrade::{downgrade, upgrade};
pub use waiting::waiting;

/// Gives all rows of the volume at `path` the sums of what they hold: for tests that make what no
/// Weft writes.
#[doc(hidden)]
pub fn seal(path: &std::path::Path) -> Result<()> {
    sums::seal(&open::connect(&Layout::find(path)?.database, 8)?)
}

/// Has SQLite run `statements` on the volume at `path`, which nobody holds: for tests that damage
/// its rows.
#[doc(hidden)]
pub fn edit(path: &std::path::Path, statements: &str) -> Result<()> {
    let connection = open::connect(&Layout::find(path)?.database, 8)?;
    connection.execute_batch(statements).map_err(|source| Error::Sqlite { what: "cannot edit", source })
}

use crate::Name;
use crate::digests::ZeroValues;
use crate::error::{Error, Result};
use crate::log::{Behind, doubt_behind, needs_log};
use crate::past::{
    ChangedExtent, ChangedNames, ExtentKey, History, NameKey, PastContent, PastExtent, PastName, PastStore,
    PastVersion, Pin, VersionCounts,
};
use crate::row::{BlockRef, CommitNo, CommitRow, Cookie, Ino, InodeRow, ListedRow, NameRow, Span, Timestamp};
use crate::store::{
    BlockStore, CommitStore, Durability, Header, Maintenance, Nth, ReadMode, RowStore, Space, Transaction,
};
use crate::user::{AtEnd, Rights};
use history::changes::Between;
use history::costs;
use history::reading::{self, Past};
use history::retaining;
use names::Names;
use parking_lot::Mutex;
use readers::Readers;
use room::Room;
use segments::Segments;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use weft_block::Block;
use weft_digest::Digest;

/// Treatment of the write-ahead log once its content is in the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Settled {
    /// It stays as long as it is.
    Copied,
    /// It is emptied if nobody reads it. The next commit then does not overwrite an older one: a
    /// power cut may leave sectors of that, which look like rot.
    Emptied,
}

/// More is not left free for the write-ahead log: commits are not larger, as what they change has a
/// bound in memory.
const LOG_BYTES_MAX: u64 = 256 << 20;

/// A volume in SQLite, held by this process until dropped.
pub struct SqliteStore {
    layout: Layout,
    header: Mutex<Header>,
    /// The history as of the last commit, where this process makes the commits.
    history: Mutex<Option<History>>,
    /// Closed before the writer, whose last checkpoint would else wait for what they see.
    readers: Readers,
    writer: Mutex<apply::Writer>,
    room: Arc<Room>,
    segments: Option<Arc<Segments>>,
    zeros: Arc<ZeroValues>,
    names: Arc<Names>,
    /// True if anything may be committed.
    writes: bool,
    /// Private copies, removed once nobody reads them.
    _directory: Option<tempfile::TempDir>,
    /// Closed after all that SQLite has open, for the same reason as the hold.
    _database: Option<Arc<renew::Database>>,
    /// Closed last: the hold of the volume, and no other descriptor of the database may be closed
    /// while SQLite has it open (its POSIX locks would go).
    _hold: Option<open::Hold>,
    /// Rights by which all these are closed.
    rights_at_end: AtEnd,
}

impl SqliteStore {
    /// The rights by which files of the volume are opened and removed.
    fn rights(&self) -> Result<Rights> {
        self.layout.rights()
    }

    /// Has it be known, before blocks are put into segments, that a process which ends now leaves
    /// them behind the last commit. That goes without saying while a mount has an epoch.
    fn doubt_behind(&self) -> Result<()> {
        let header = {
            let header = self.header.lock();
            if needs_log(header.counters.epoch) {
                return Ok(());
            }
            header.clone()
        };
        doubt_behind(&self.layout.log, &header)
    }

    /// Fails if what would be committed could be lost at once.
    fn may_commit(&self) -> Result<()> {
        if !self.writes {
            return Err(Error::Bug("a commit to a volume that is only read".into()));
        }
        self.check_names(false)
    }

    /// Fails if a file of the volume is not where it was. Looks at `all` segments, or as far as is
    /// cheap.
    fn check_names(&self, all: bool) -> Result<()> {
        self.names.check()?;
        self.segments.as_ref().map_or(Ok(()), |segments| segments.check_names(all))
    }
}

impl SqliteStore {
    /// Reads rows as of `commit`. What is not kept may lack any of them: the rows that say what is
    /// kept are read in the same transaction.
    fn past<T>(&self, commit: CommitNo, read: impl FnOnce(&Past<'_>) -> Result<T>) -> Result<T> {
        self.readers.with(|connection| {
            retaining::refuse_unkept(connection, commit)?;
            read(&Past::new(connection, commit))
        })
    }

    /// Reads what changed between two commits, both of which must be kept.
    fn between<T>(&self, (after, to): (CommitNo, CommitNo), read: impl FnOnce(&Between<'_>) -> Result<T>) -> Result<T> {
        self.readers.with(|connection| {
            [after, to].into_iter().try_for_each(|commit| retaining::refuse_unkept(connection, commit))?;
            read(&Between { connection, after, to })
        })
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        self.rights_at_end.take(self.layout.owner().map(Arc::as_ref));
    }
}

impl RowStore for SqliteStore {
    fn header(&self) -> Result<Header> {
        Ok(self.header.lock().clone())
    }

    fn inodes(&self, from: Ino, limit: usize) -> Result<Vec<InodeRow>> {
        self.readers.with(|connection| read::inodes(connection, from, limit))
    }

    fn name(&self, parent: Ino, name: &Name) -> Result<Option<NameRow>> {
        self.readers.with(|connection| read::name(connection, parent, name))
    }

    fn names(&self, parent: Ino, after: Cookie, limit: usize) -> Result<Vec<NameRow>> {
        self.readers.with(|connection| read::names(connection, parent, after, limit))
    }

    fn whole_names(&self, parent: Ino, after: Cookie, limit: usize) -> Result<Vec<NameRow>> {
        self.readers.with(|connection| read::whole_names(connection, parent, after, limit))
    }

    fn extents(&self, ino: Ino, range: Range<u64>) -> Result<Vec<(Span, BlockRef)>> {
        self.readers.with(|connection| read::extents(connection, ino, &range))
    }

    fn nth_extent(&self, ino: Ino, range: Range<u64>, nth: Nth) -> Result<Option<u64>> {
        self.readers.with(|connection| read::nth_extent(connection, ino, &range, nth))
    }

    fn refuse_missing_names(&self, directory: Ino) -> Result<()> {
        self.readers.with(|connection| missing::names(connection, directory))
    }

    fn refuse_missing_blocks(&self, ino: Ino) -> Result<()> {
        self.readers.with(|connection| missing::block(connection, ino))
    }

    fn names_of(&self, ino: Ino) -> Result<Vec<(Ino, Name)>> {
        use crate::overlay::Snapshot;
        self.readers.with(|connection| digests::Rows::of(connection).names_of(ino))
    }

    fn xattrs(&self, ino: Ino) -> Result<Vec<(Name, Vec<u8>)>> {
        self.readers.with(|connection| read::xattrs(connection, ino))
    }

    fn orphans(&self) -> Result<Vec<Ino>> {
        self.readers.with(read::orphans)
    }

    fn digest(&self, ino: Ino) -> Result<Option<Digest>> {
        self.readers.with(|connection| read::digest_of(connection, ino))
    }

    fn listed(&self, parent: Ino, after: Cookie, limit: usize) -> Result<Vec<ListedRow>> {
        self.readers.with(|connection| read::listed(connection, parent, after, limit))
    }

    fn content_digest(&self, ino: Ino) -> Result<Option<Digest>> {
        let block_size = u64::from(self.header.lock().options.block_size);
        self.readers.with(|connection| {
            let rows = digests::Rows {
                connection,
                segments: self.segments.as_deref(),
                wait: &|| (),
                elsewhere: None,
                keeping: None,
            };
            self.zeros.content(&rows, ino, block_size)
        })
    }

    fn commits(&self, from: CommitNo, limit: usize) -> Result<Vec<CommitRow>> {
        self.readers.with(|connection| read::commits(connection, from, limit))
    }

    fn misnamed(&self) -> Result<Vec<Ino>> {
        self.readers.with(read::misnamed)
    }
}

impl BlockStore for SqliteStore {
    fn read_block(&self, block: &BlockRef, mode: ReadMode) -> Result<Option<Block>> {
        let _rights = self.rights()?;
        self.block(block, mode)
    }

    fn read_part(&self, block: &BlockRef, range: Range<usize>, mode: ReadMode) -> Result<Option<(usize, Block)>> {
        let _rights = self.rights()?;
        self.part(block, &range, mode)
    }

    fn read_blocks(&self, blocks: &[BlockRef], visit: &mut dyn FnMut(usize, Result<Block>)) -> Result<()> {
        let _rights = self.rights()?;
        self.blocks(blocks, visit);
        Ok(())
    }
}

impl CommitStore for SqliteStore {
    fn must_be_named(&self) -> bool {
        self.writes
    }

    fn cut(&self) -> Result<Behind> {
        let _rights = self.rights()?;
        if self.writes { self.writer.lock().cut() } else { Ok(Behind::Unknown) }
    }

    fn settle(&self) -> Result<()> {
        if !self.writes {
            return Ok(());
        }
        let _rights = self.rights()?;
        self.readers.end_transactions();
        // On a full disk the log keeps its room: what makes space free needs some.
        let has_room = self.layout.space()?.bytes_free > LOG_BYTES_MAX;
        self.writer.lock().settle(if has_room { Settled::Emptied } else { Settled::Copied })
    }

    fn begin(&self, durability: Durability) -> Result<Box<dyn Transaction + '_>> {
        let rights = self.rights()?;
        self.may_commit()?;
        Ok(Box::new(transaction::SqliteTransaction::begin(self, durability, rights)?))
    }

    fn lost(&self) -> Option<Error> {
        let looked = || self.rights().and_then(|_rights| self.check_names(false));
        if self.writes { looked().err() } else { None }
    }
}

impl PastStore for SqliteStore {
    fn history(&self) -> Result<Option<History>> {
        // It is asked where room is short, and a reader would keep the log from being emptied.
        if self.writes { Ok(self.history.lock().clone()) } else { self.readers.with(retaining::history) }
    }

    fn pins(&self) -> Result<Vec<Pin>> {
        self.readers.with(retaining::pins)
    }

    fn commit_at(&self, time: Timestamp) -> Result<Option<CommitRow>> {
        self.readers.with(|connection| reading::commit_at(connection, time))
    }

    fn inodes_at(&self, commit: CommitNo, inos: Range<Ino>, limit: usize) -> Result<Vec<(InodeRow, CommitNo)>> {
        self.past(commit, |past| past.inodes(inos, limit))
    }

    fn name_at(&self, commit: CommitNo, parent: Ino, name: &Name) -> Result<Option<NameRow>> {
        self.past(commit, |past| past.name(parent, name))
    }

    fn names_at(&self, commit: CommitNo, parent: Ino, after: Cookie, limit: usize) -> Result<Vec<NameRow>> {
        self.past(commit, |past| past.names(parent, after, limit))
    }

    fn extents_at(&self, commit: CommitNo, ino: Ino, range: Range<u64>) -> Result<Vec<(Span, BlockRef)>> {
        self.past(commit, |past| past.extents(ino, &range))
    }

    fn xattrs_at(&self, commit: CommitNo, ino: Ino) -> Result<Vec<(Name, Vec<u8>)>> {
        self.past(commit, |past| past.xattrs(ino))
    }

    fn digest_at(&self, commit: CommitNo, ino: Ino) -> Result<Option<Digest>> {
        self.past(commit, |past| past.digest(ino))
    }

    fn versions(&self, ino: Ino, until: CommitNo, limit: usize) -> Result<Vec<(InodeRow, Range<CommitNo>)>> {
        self.readers.with(|connection| reading::versions(connection, ino, until, limit))
    }

    fn past_extents(&self, after: ExtentKey, limit: usize) -> Result<Vec<PastExtent>> {
        self.readers.with(|connection| costs::extents(connection, after, limit))
    }

    fn past_contents(&self, after: (Ino, CommitNo), limit: usize) -> Result<Vec<PastContent>> {
        self.readers.with(|connection| costs::contents(connection, after, limit))
    }

    fn past_versions(&self, after: (Ino, CommitNo), limit: usize) -> Result<Vec<PastVersion>> {
        self.readers.with(|connection| costs::versions(connection, after, limit))
    }

    fn past_names(&self, after: &NameKey, limit: usize) -> Result<Vec<PastName>> {
        self.readers.with(|connection| costs::names(connection, after, limit))
    }

    fn version_counts(&self) -> Result<VersionCounts> {
        self.readers.with(costs::count)
    }

    fn changed_inodes(&self, commits: (CommitNo, CommitNo)) -> Result<Vec<Ino>> {
        self.between(commits, |between| between.inodes())
    }

    fn changed_names(&self, commits: (CommitNo, CommitNo), parent: Ino) -> Result<ChangedNames> {
        self.between(commits, |between| between.names(parent))
    }

    fn changed_extents(
        &self,
        commits: (CommitNo, CommitNo),
        ino: Ino,
        range: Range<u64>,
    ) -> Result<Vec<ChangedExtent>> {
        self.between(commits, |between| between.extents(ino, &range))
    }
}

impl Maintenance for SqliteStore {
    fn close(&self) -> Result<()> {
        if !self.writes {
            return Ok(());
        }
        let _rights = self.rights()?;
        self.check_names(true)?;
        self.readers.close();
        self.writer.lock().close()
    }

    fn notices(&self) -> Vec<String> {
        self.writer.lock().notices()
    }

    fn space(&self) -> Result<Space> {
        let _rights = self.rights()?;
        let space = self.layout.space()?;
        let free = space.bytes_free.saturating_sub(self.room.waiting.load(Ordering::Relaxed));
        let free = match self.segments {
            Some(_) => free,
            None => writable(free),
        };
        Ok(Space { bytes_free: free + self.room.within.load(Ordering::Relaxed), ..space })
    }

    fn given_back(&self) -> Option<u64> {
        self.segments.as_ref().filter(|_| self.writes).map(|_| self.room.given_back.load(Ordering::Relaxed))
    }

    fn reclaim(&self) -> Result<Space> {
        let _rights = self.rights()?;
        // What an idle connection still sees would keep the log from being copied, and emptied.
        self.readers.end_transactions();
        let ongoing = self.writer.lock().give_back();
        if let Some(ongoing) = ongoing {
            ongoing.wait();
        }
        self.space()
    }
}

/// Bytes that blocks in the database may take of `free` ones. Each is written to the log first:
/// what that holds must fit into the database after it, or nothing could be committed any more,
/// removals included.
fn writable(free: u64) -> u64 {
    free - (free / 2).min(LOG_BYTES_MAX)
}
