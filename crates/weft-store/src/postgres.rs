//! The store in a PostgreSQL database: metadata and blocks as rows, over its wire protocol.
//!
//! One daemon at a time holds a volume, by a lease that is a row (see `lease`). One connection
//! commits; a few read, made when they are needed. If the server goes away, operations wait for it;
//! those that cannot go on after that fail with `Unavailable`. The SQL is the part that engines of
//! the same protocol share (see `statements`). `docs/reference/format.md` says what lies where.

mod address;
mod check;
mod columns;
mod connection;
mod convert;
mod costs;
mod digests;
mod engine;
mod given_up;
mod identity;
mod intents;
mod keep;
mod lease;
mod missing;
mod open;
mod own;
mod parameters;
mod past;
mod prefetch;
mod prefetcher;
mod read;
mod repair;
mod rights;
mod schema;
mod seal;
mod sending;
mod service;
mod settings;
mod shape;
mod statements;
mod tls;
mod transaction;
mod trust;
mod unfinished;
mod upgrade;
mod waiting;
mod write;

pub use address::{Address, is_address, shown};
pub use check::check;
pub use convert::convert;
pub use intents::{IntentSync, Intents};
/// Gives all rows of the volume at `address` the sums of what they hold: for tests that make what
/// no Weft writes.
#[doc(hidden)]
pub fn seal(address: &Address) -> Result<()> {
    seal::seal(&mut open::connect(address)?)
}

pub(crate) use engine::VolumeSchema;
pub use open::{FORMAT, commits, create, header, open, open_beside, remove, size};
pub use upgrade::{downgrade, upgrade};
pub use waiting::waiting;

use crate::Name;
use crate::digests::ZeroValues;
use crate::disk_cache::{DiskCache, DiskCacheStats};
use crate::error::{Error, ErrorKind, Result};
use crate::overlay::Snapshot;
use crate::past::{
    ExtentKey, History, NameKey, PastContent, PastExtent, PastName, PastStore, PastVersion, Pin, VersionCounts,
};
use crate::round_trips::{Class, RoundTrips};
use crate::row::{BlockRef, CommitNo, CommitRow, Cookie, Ino, InodeRow, ListedRow, NameRow, Span, Timestamp};
use crate::store::{
    BlockStore, CommitStore, Durability, Header, Maintenance, Nth, ReadMode, RowStore, Space, Transaction,
};
use connection::{Call, Connection};
use digests::{Known, Rows, Stored};
use given_up::{IsGivenUp, never};
use lease::Lease;
use open::Connector;
use parking_lot::Mutex;
use past::PastCommit;
use prefetcher::Prefetcher;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use transaction::{PostgresTransaction, Writer};
use weft_block::Block;
use weft_digest::Digest;

/// Connections that are kept for readers.
const READERS_KEPT: usize = 4;

/// Blocks that are asked for together.
const BLOCKS_TOGETHER: usize = 64;

/// A volume in PostgreSQL, held by this process until dropped, or read beside its holder.
pub struct PostgresStore {
    header: Mutex<Header>,
    readers: Mutex<Vec<Connection>>,
    writer: Mutex<Writer>,
    zeros: Arc<ZeroValues>,
    prefetcher: Prefetcher,
    disk_cache: Option<DiskCache>,
    /// The reason that the volume is lost to this process, if it is.
    lost: Mutex<Option<Lost>>,
    /// True if there may be rows of the intent log.
    has_intents: AtomicBool,
    /// True if a commit may have left what it could not store.
    has_carried: AtomicBool,
    connector: Connector,
    /// The action to take where synced operations are lost.
    loss: crate::log::Loss,
    /// Time to wait for a server that has gone, since it went.
    patience: Duration,
    /// Since when it could not be reached.
    away: Mutex<Option<Instant>>,
    /// When it could be reached again.
    back: Mutex<Option<Instant>>,
    /// Tells whether whoever waits for this thread's reading was killed.
    is_given_up: IsGivenUp,
    /// Ended last: nobody else may have the volume before all is done. None of a store that only
    /// reads.
    lease: Option<Lease>,
}

/// The reason that a volume is lost, and the kind of error.
struct Lost {
    why: String,
    as_error: fn(String) -> Error,
}

impl Lost {
    fn error(&self) -> Error {
        (self.as_error)(self.why.clone())
    }
}

impl PostgresStore {
    /// The intent log: as rows beside the others.
    pub fn intents(self: &Arc<PostgresStore>) -> Intents {
        Intents::new(self.clone())
    }

    /// Returns the number of blocks in the database.
    pub fn block_count(&self) -> Result<u64> {
        self.read(Class::Blocks, |connection| {
            let rows = connection.query("cannot count", statements::BLOCK_COUNT, Vec::new())?;
            rows.first().map_or(Ok(0), |row| read::unsigned(row, 0))
        })
    }

    /// `taker` is words for the process that has it now, if that was seen.
    fn taken(&self, taker: Option<String>) -> Error {
        let who = taker.unwrap_or_else(|| "another process".into());
        let what = "this one had not renewed its lease in time (it was suspended, or did not reach the server)";
        let why = format!("{} was taken over by {who}: {what}", self.connector.address);
        self.lose(Lost { as_error: Error::Held, why })
    }

    /// Remembers that the volume is lost, and why.
    fn lose(&self, lost: Lost) -> Error {
        self.lost.lock().get_or_insert(lost).error()
    }

    fn gone_back(&self, found: CommitNo, ours: CommitNo) -> Error {
        let what = "it was restored, or a standby without the last commits took over";
        let address = &self.connector.address;
        let advice = "unmount it (--lazy), then mount it again";
        let why = format!("{address} is at commit {} and not at {} any more: {what}; {advice}", found.0, ours.0);
        self.lose(Lost { as_error: Error::Unusable, why })
    }

    /// Returns the lease by which the volume is changed.
    fn held(&self) -> Result<&Lease> {
        self.lease.as_ref().ok_or_else(|| Error::Bug("a change of a volume that is only read".into()))
    }

    fn refuse_lost(&self) -> Result<()> {
        self.lost().map_or(Ok(()), Err)
    }

    /// A new connection for a commit, to a server that has all that was committed, as soon as there
    /// can be one. `GivenUp` if the program that waits for that was killed.
    fn reconnect(&self) -> Result<Connection> {
        self.reconnect_for(never)
    }

    /// A new connection, whose waits end when they are `given_up`; the wait for it ends when
    /// whoever asks was killed.
    #[expect(clippy::disallowed_methods, reason = "what is waited for is a server, which no test's clock moves")]
    fn reconnect_for(&self, given_up: IsGivenUp) -> Result<Connection> {
        let mut pause = Duration::from_millis(50);
        loop {
            let began = Instant::now();
            match self.connect_unless(given_up) {
                Err(error) if error.kind() == ErrorKind::Unavailable => {
                    // One patience for all that is asked: a program asks for many things.
                    let away = *self.away.lock().get_or_insert(began);
                    if away.elapsed() >= self.patience {
                        return Err(error);
                    }
                    if (self.is_given_up)() {
                        return Err(Error::GivenUp);
                    }
                    std::thread::sleep(pause);
                    pause = (pause * 2).min(Duration::from_secs(1));
                }
                other => {
                    if self.away.lock().take().is_some() {
                        *self.back.lock() = Some(Instant::now());
                    }
                    return other;
                }
            }
        }
    }

    fn connect(&self) -> Result<Connection> {
        self.connect_unless(never)
    }

    fn connect_unless(&self, is_given_up: IsGivenUp) -> Result<Connection> {
        let mut connection = self.connector.connect_unless(is_given_up)?;
        self.refuse_other(&mut connection)?;
        Ok(connection)
    }

    /// Looks whether the volume is still ours, and as we left it, and all of it can be reached.
    fn refuse_other(&self, connection: &mut Connection) -> Result<()> {
        // Noted first: commits go on while the server is asked.
        let ours = self.header.lock().commit;
        let asked = [statements::NUMBER, statements::REACH];
        let asked = &asked[..if connection.lies_apart { 2 } else { 1 }];
        let calls = asked.iter().map(|statement| Call::new(*statement, Vec::new())).collect::<Vec<_>>();
        let row = connection.query_all("cannot look at the volume", &calls)?.swap_remove(0).pop();
        let row = row.ok_or_else(|| Error::Corrupt("the table volume has no row".into()))?;
        let epoch = self.lease.as_ref().map(Lease::epoch);
        if epoch.is_some() && epoch != Some(read::get::<i64>(&row, 1)?) {
            return Err(self.taken(lease::holder_named(connection)));
        }
        let found = CommitNo(read::unsigned(&row, 0)?);
        if found < ours { Err(self.gone_back(found, ours)) } else { Ok(()) }
    }

    /// Makes sure that what `connection` saw committed is durable as the server's settings have it,
    /// on synchronous standbys, too. A commit whose acknowledgement was lost, or came with a
    /// warning, may not be: a server that restarts, or is told to cancel, gives up waiting and
    /// keeps the commit. A later one of our own that is acknowledged stands behind it.
    fn confirm(&self, connection: &mut Connection) -> Result<()> {
        connection.take_warning();
        let epoch = self.held()?.epoch();
        if connection.query("cannot confirm a commit", statements::CONFIRM, vec![Box::new(epoch)])?.is_empty() {
            return Err(self.taken(lease::holder_named(connection)));
        }
        if connection.take_warning() { Err(Error::Unconfirmed) } else { Ok(()) }
    }

    /// A new connection for a reader.
    fn new_reader(&self) -> Result<Connection> {
        let mut connection = self.reconnect_for(self.is_given_up)?;
        settings::read_by_index(&mut connection);
        Ok(connection)
    }

    /// Reads on some connection; again on a new one if it breaks.
    fn read<T>(&self, class: Class, mut read: impl FnMut(&mut Connection) -> Result<T>) -> Result<T> {
        self.refuse_lost()?;
        let kept = self.readers.lock().pop();
        let mut connection = match kept {
            Some(connection) => connection,
            None => self.new_reader()?,
        };
        connection.count_as(class);
        let mut result = read(&mut connection);
        let began = Instant::now();
        while result.is_err() && connection.is_closed() && began.elapsed() < self.patience {
            if (self.is_given_up)() {
                return Err(Error::GivenUp);
            }
            // The others broke with it.
            self.readers.lock().retain(|other| !other.is_closed());
            connection = self.new_reader()?;
            connection.count_as(class);
            result = read(&mut connection);
        }
        if !connection.is_closed() {
            let mut readers = self.readers.lock();
            if readers.len() < READERS_KEPT {
                readers.push(connection);
            }
        }
        result
    }

    /// Reads rows as of `commit`.
    fn read_at<T>(
        &self,
        class: Class,
        commit: CommitNo,
        mut read: impl FnMut(&mut Connection, &PastCommit) -> Result<T>,
    ) -> Result<T> {
        let last = self.header.lock().commit;
        // Beside a holder it is the last commit when the volume was opened.
        let at = if self.lease.is_some() { PastCommit::new(commit, last) } else { PastCommit::beside(commit, last) };
        self.read(class, |connection| read(connection, &at))
    }

    /// Reads rows as digests need them, all as one commit left them.
    fn read_rows<T>(&self, read: impl Fn(&Rows<'_>) -> Result<T>) -> Result<T> {
        self.read(Class::Digests, |connection| {
            let mut known = Known::default();
            connection.say_first(statements::BEGIN_READING);
            let result = read(&Rows::new(Stored::new(connection, &mut known, Ino(u64::MAX))));
            if connection.unsay() {
                return result;
            }
            // After an error it ends the transaction as well.
            let ended = connection.run("cannot read the database", statements::COMMIT);
            result.and_then(|result| ended.map(|()| result))
        })
    }
}

impl RowStore for PostgresStore {
    fn header(&self) -> Result<Header> {
        Ok(self.header.lock().clone())
    }

    fn inodes(&self, from: Ino, limit: usize) -> Result<Vec<InodeRow>> {
        self.read(Class::Inodes, |connection| read::inodes(connection, from, limit))
    }

    fn name(&self, parent: Ino, name: &Name) -> Result<Option<NameRow>> {
        self.read(Class::Names, |connection| read::name(connection, parent, name))
    }

    fn names(&self, parent: Ino, after: Cookie, limit: usize) -> Result<Vec<NameRow>> {
        self.refuse_lost()?;
        let asked = if after == Cookie(0) { self.prefetcher.names(parent, limit) } else { Err(None) };
        asked.or_else(|wanted| {
            let prefetcher = wanted.as_ref().map(|wanted| (&self.prefetcher, wanted));
            self.read(Class::Names, |connection| read::names(connection, parent, after, limit, prefetcher))
        })
    }

    fn whole_names(&self, parent: Ino, after: Cookie, limit: usize) -> Result<Vec<NameRow>> {
        self.read(Class::Names, |connection| read::whole_names(connection, parent, after, limit))
    }

    fn extents(&self, ino: Ino, range: Range<u64>) -> Result<Vec<(Span, BlockRef)>> {
        self.refuse_lost()?;
        self.prefetcher.extents(ino, &range).or_else(|wanted| {
            let prefetcher = wanted.as_ref().map(|wanted| (&self.prefetcher, wanted));
            self.read(Class::Extents, |connection| read::extents(connection, ino, &range, prefetcher))
        })
    }

    fn nth_extent(&self, ino: Ino, range: Range<u64>, nth: Nth) -> Result<Option<u64>> {
        self.read(Class::Extents, |connection| read::nth_extent(connection, ino, &range, nth))
    }

    fn refuse_missing_names(&self, directory: Ino) -> Result<()> {
        self.read(Class::Names, |connection| missing::names(connection, directory))
    }

    fn refuse_missing_blocks(&self, ino: Ino) -> Result<()> {
        let block_size = u64::from(self.header.lock().options.block_size);
        self.read(Class::Extents, |connection| missing::block(connection, ino, block_size))
    }

    fn wants_more(&self) -> bool {
        self.prefetcher.is_due()
    }

    fn prefetch(&self) -> Result<()> {
        self.prefetcher.bring(|wanted| self.read(Class::Extents, |connection| read::more_extents(connection, wanted)))
    }

    fn names_of(&self, ino: Ino) -> Result<Vec<(Ino, Name)>> {
        self.read_rows(|rows| rows.names_of(ino))
    }

    fn xattrs(&self, ino: Ino) -> Result<Vec<(Name, Vec<u8>)>> {
        self.read(Class::Xattrs, |connection| read::xattrs(connection, ino))
    }

    fn orphans(&self) -> Result<Vec<Ino>> {
        self.read(Class::Inodes, read::orphans)
    }

    fn digest(&self, ino: Ino) -> Result<Option<Digest>> {
        self.read_rows(|rows| Ok(rows.inode(ino)?.and_then(|inode| inode.digest)))
    }

    fn listed(&self, parent: Ino, after: Cookie, limit: usize) -> Result<Vec<ListedRow>> {
        self.read(Class::Digests, |connection| read::listed(connection, parent, after, limit))
    }

    fn content_digest(&self, ino: Ino) -> Result<Option<Digest>> {
        let block_size = u64::from(self.header.lock().options.block_size);
        self.read_rows(|rows| self.zeros.content(rows, ino, block_size))
    }

    fn commits(&self, from: CommitNo, limit: usize) -> Result<Vec<CommitRow>> {
        self.read(Class::Digests, |connection| read::commits(connection, from, limit))
    }
}

impl BlockStore for PostgresStore {
    fn read_block(&self, block: &BlockRef, mode: ReadMode) -> Result<Option<Block>> {
        if let Some(here) = self.prefetcher.block(block.id).filter(|_| self.lost().is_none()) {
            return Ok(Some(here));
        }
        if mode == ReadMode::CachedOnly {
            return Ok(None);
        }
        let mut read = None;
        self.read_blocks(&[*block], &mut |_, result| read = Some(result))?;
        read.ok_or_else(|| Error::Bug("one block was asked for".into()))?.map(Some)
    }

    fn read_blocks(&self, blocks: &[BlockRef], visit: &mut dyn FnMut(usize, Result<Block>)) -> Result<()> {
        self.refuse_lost()?;
        let mut next = 0;
        // What came along is visited while it lasts; those after it go out together.
        while let Some(here) = blocks.get(next).and_then(|block| self.prefetcher.block(block.id)) {
            visit(next, Ok(here));
            next += 1;
        }
        if next == blocks.len() {
            return Ok(());
        }
        while next < blocks.len() {
            if let Some(here) = self.disk_cache.as_ref().and_then(|cache| cache.read(&blocks[next])) {
                visit(next, Ok(here));
                next += 1;
                continue;
            }
            // With those after it that only the server has.
            let together = &blocks[next..blocks.len().min(next + BLOCKS_TOGETHER)];
            let is_cached = |block: &BlockRef| self.disk_cache.as_ref().is_some_and(|cache| cache.has(block));
            let count = 1 + together[1..].iter().take_while(|block| !is_cached(block)).count();
            let end = next + count;
            self.read(Class::Blocks, |connection| {
                read::blocks(connection, &blocks[next..end], &mut |result| {
                    if let (Some(cache), Ok(bytes)) = (&self.disk_cache, &result) {
                        cache.missed(&blocks[next], bytes);
                    }
                    visit(next, result);
                    next += 1;
                })
            })?;
        }
        Ok(())
    }

    fn run_bytes(&self) -> u64 {
        2 << 20
    }
}

impl CommitStore for PostgresStore {
    /// Every commit is durable: there are so few that waiting for the disk costs nothing, and a
    /// server that crashed and came back without some of them would not be what is in memory here.
    fn are_commits_durable(&self) -> bool {
        true
    }

    fn begin(&self, _durability: Durability) -> Result<Box<dyn Transaction + '_>> {
        Ok(Box::new(PostgresTransaction::begin(self)?))
    }

    fn lost(&self) -> Option<Error> {
        if let Some(replaced) = self.connector.identity.as_ref().and_then(|identity| identity.replaced()) {
            return Some(replaced);
        }
        if let Some(lease) = self.lease.as_ref().filter(|lease| lease.is_lost()) {
            return Some(self.taken(lease.taker()));
        }
        self.lost.lock().as_ref().map(Lost::error)
    }
}

impl PastStore for PostgresStore {
    fn history(&self) -> Result<Option<History>> {
        self.read(Class::Inodes, past::history)
    }

    fn pins(&self) -> Result<Vec<Pin>> {
        self.read(Class::Inodes, past::pins)
    }

    fn is_kept(&self, commit: CommitNo) -> Result<bool> {
        if commit > self.header.lock().commit {
            return Ok(false);
        }
        let (history, pins) = self.read(Class::Inodes, |connection| past::kept(connection, (commit, commit)))?;
        Ok(history.is_some_and(|history| commit >= history.first || !pins.is_empty()))
    }

    fn commit_at(&self, time: Timestamp) -> Result<Option<CommitRow>> {
        self.read(Class::Digests, |connection| past::commit_at(connection, time))
    }

    fn inodes_at(&self, commit: CommitNo, inos: Range<Ino>, limit: usize) -> Result<Vec<(InodeRow, CommitNo)>> {
        self.read_at(Class::Inodes, commit, |connection, at| past::inodes(connection, at, &inos, limit))
    }

    fn name_at(&self, commit: CommitNo, parent: Ino, name: &Name) -> Result<Option<NameRow>> {
        self.read_at(Class::Names, commit, |connection, at| past::name(connection, at, parent, name))
    }

    fn names_at(&self, commit: CommitNo, parent: Ino, after: Cookie, limit: usize) -> Result<Vec<NameRow>> {
        let place = (parent, after);
        self.read_at(Class::Names, commit, |connection, at| past::names(connection, at, place, limit))
    }

    fn extents_at(&self, commit: CommitNo, ino: Ino, range: Range<u64>) -> Result<Vec<(Span, BlockRef)>> {
        self.read_at(Class::Extents, commit, |connection, at| past::extents(connection, at, ino, &range))
    }

    fn all_extents_at(&self, commit: CommitNo, files: &[(Ino, u64)]) -> Result<Vec<Vec<(Span, BlockRef)>>> {
        self.read_at(Class::Extents, commit, |connection, at| past::all_extents(connection, at, files))
    }

    fn digests_at(&self, commit: CommitNo, inos: &[Ino]) -> Result<Vec<Option<Digest>>> {
        self.read_at(Class::Digests, commit, |connection, at| past::digests(connection, at, inos))
    }

    fn xattrs_at(&self, commit: CommitNo, ino: Ino) -> Result<Vec<(Name, Vec<u8>)>> {
        self.read_at(Class::Xattrs, commit, |connection, at| past::xattrs(connection, at, ino))
    }

    fn digest_at(&self, commit: CommitNo, ino: Ino) -> Result<Option<Digest>> {
        self.read_at(Class::Digests, commit, |connection, at| past::digest(connection, at, ino))
    }

    fn versions(&self, ino: Ino, until: CommitNo, limit: usize) -> Result<Vec<(InodeRow, Range<CommitNo>)>> {
        self.read(Class::Inodes, |connection| past::versions(connection, ino, until, limit))
    }

    fn past_extents(&self, after: ExtentKey, limit: usize) -> Result<Vec<PastExtent>> {
        self.read(Class::Extents, |connection| costs::extents(connection, after, limit))
    }

    fn past_contents(&self, after: (Ino, CommitNo), limit: usize) -> Result<Vec<PastContent>> {
        self.read(Class::Inodes, |connection| costs::contents(connection, after, limit))
    }

    fn past_versions(&self, after: (Ino, CommitNo), limit: usize) -> Result<Vec<PastVersion>> {
        self.read(Class::Inodes, |connection| costs::versions(connection, after, limit))
    }

    fn past_names(&self, after: &NameKey, limit: usize) -> Result<Vec<PastName>> {
        self.read(Class::Names, |connection| costs::names(connection, after, limit))
    }

    fn version_counts(&self) -> Result<VersionCounts> {
        self.read(Class::Inodes, costs::count)
    }

    fn changed_inodes(&self, (after, to): (CommitNo, CommitNo)) -> Result<Vec<Ino>> {
        self.read_at(Class::Inodes, after, |connection, after| past::changed_inodes(connection, after, to))
    }
}

impl Maintenance for PostgresStore {
    fn disk_cache(&self) -> Option<DiskCacheStats> {
        self.disk_cache.as_ref().map(DiskCache::stats)
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn unanswered(&self) -> Option<Duration> {
        let since = self.lease.as_ref()?.unanswered()?;
        // Whoever renews the lease may not have tried again yet.
        let is_back = self.back.lock().is_some_and(|back| back.elapsed() < since);
        (!is_back).then_some(since)
    }

    fn round_trips(&self) -> RoundTrips {
        self.connector.counts.read()
    }

    fn space(&self) -> Result<Space> {
        // The server tells nobody what its disks hold.
        Ok(Space { bytes_total: SPACE_ASSUMED, bytes_free: SPACE_ASSUMED, bytes_reserved: 0 })
    }

    fn make_room(&self) -> Result<bool> {
        // What a failed commit had sent, and blocks that went, are dead rows. Autovacuum finds them
        // in its own time, and each try until then would fill the disk anew.
        self.reconnect()?.run("cannot make room", "VACUUM blocks")?;
        Ok(true)
    }
}

/// Bytes that a server is taken to have room for: a pebibyte.
const SPACE_ASSUMED: u64 = 1 << 50;
