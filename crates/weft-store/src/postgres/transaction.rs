//! One commit: blocks as they come, then the rows that name them, in one transaction of the server.
//!
//! Nothing but blocks is sent before the end; then all rows go out together and cost one round trip. If the connection breaks on the way
//! nobody knows whether the server has committed: it is asked as soon as it can be reached again.

use super::PostgresStore;
use super::connection::{Call, Connection};
use super::digests::{Known, Rows};
use super::prefetch::prefetch;
use super::read::{self, int, unsigned};
use super::statements as sql;
use super::write::{self, Extents, Home, References};
use crate::batch::{Batch, ExtentChange, InodeChange, NameChange, NewBlock};
use crate::digests::{DigestRows, Digester, ZeroValues};
use crate::error::{Error, Result};
use crate::round_trips::Class;
use crate::row::{BlockId, BlockRef, CommitRow, Ino, Place};
use crate::store::{Header, Transaction};
use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use tokio_postgres::error::SqlState;
use weft_digest::Digest;

const WHAT: &str = "cannot commit";

/// Bytes of blocks that are sent with the rows; more of them go out as soon as they come.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// Commits kept in `commits` while history is off.
const COMMITS_KEPT: u64 = 1024;

/// What commits need, one at a time.
pub(super) struct Writer {
    /// Replaced when it has broken; none while blocks are on their way.
    connection: Option<Connection>,
    /// Whether a commit may have happened that nobody knows of.
    in_doubt: bool,
    known: Known,
    last: Option<CommitRow>,
    /// Of the lease.
    epoch: i64,
    block_size: u64,
    /// Inodes from this one on have no rows.
    fresh: Ino,
    /// None if the volume keeps no digests.
    digester: Option<Digester>,
}

impl Writer {
    pub(super) fn new(
        connection: Connection,
        header: &Header,
        last: Option<CommitRow>,
        epoch: i64,
        zeros: Arc<ZeroValues>,
    ) -> Writer {
        Writer {
            connection: Some(connection),
            in_doubt: false,
            known: Known::default(),
            last,
            epoch,
            block_size: u64::from(header.options.block_size),
            fresh: Ino(header.counters.next_id),
            digester: header.options.digests.then(|| Digester::new(zeros)),
        }
    }
}

impl Writer {
    /// Takes in what the last commit left; tells the header.
    fn look(&mut self) -> Result<Header> {
        let header = read::header(self.connection())?;
        self.last = read::commits(self.connection(), header.commit, 1)?.pop();
        self.fresh = Ino(header.counters.next_id);
        self.known = Known::default();
        self.in_doubt = false;
        Ok(header)
    }

    /// What `error` comes to if the connection has broken: nothing was committed yet.
    fn interrupted(&mut self, error: Error) -> Error {
        match error {
            Error::Postgres { .. } if self.connection().is_closed() => Error::Interrupted,
            other => other,
        }
    }

    fn connection(&mut self) -> &mut Connection {
        self.connection.as_mut().expect("it is here but while blocks are on their way")
    }
}

/// Blocks on their way: gives back the connection, and tells how many the server took.
type Sending = JoinHandle<(Connection, Result<u64>)>;

/// A transaction that has the writer until it ends. Dropped, it is rolled back.
pub(super) struct PostgresTransaction<'a> {
    store: &'a PostgresStore,
    writer: MutexGuard<'a, Writer>,
    /// Whether the server knows of it.
    is_begun: bool,
    kept: Vec<NewBlock>,
    kept_bytes: usize,
    /// The blocks that were sent: whose they are, and the digest of a file that is no more than one.
    sent: HashMap<BlockId, (Ino, Option<Digest>)>,
    sending: Option<Sending>,
    /// How many blocks were sent last.
    expected: u64,
}

impl<'a> PostgresTransaction<'a> {
    pub(super) fn begin(store: &'a PostgresStore) -> Result<PostgresTransaction<'a>> {
        let mut writer = store.writer.lock();
        store.refuse_lost()?;
        if writer.connection().is_closed() {
            writer.connection = Some(store.reconnect()?);
            // It may be another server now.
            writer.in_doubt = true;
        }
        if writer.in_doubt {
            let header = writer.look();
            *store.header.lock() = header.map_err(|error| writer.interrupted(error))?;
        }
        writer.connection().count_as(Class::Commits);
        writer.connection().say_first(sql::BEGIN);
        let (kept, sent) = (Vec::new(), HashMap::new());
        Ok(PostgresTransaction {
            store,
            writer,
            is_begun: false,
            kept,
            kept_bytes: 0,
            sent,
            sending: None,
            expected: 0,
        })
    }

    /// Sends the blocks that were kept, on a thread of its own if one can be had: whoever commits makes the next ones meanwhile.
    fn send(&mut self) -> Result<()> {
        self.receive()?;
        self.is_begun = true;
        let blocks = std::mem::take(&mut self.kept);
        self.kept_bytes = 0;
        self.sent.extend(blocks.iter().map(|new| (new.id, (new.owner, new.alone))));
        self.expected = blocks.len() as u64;
        // Shared, so that they are not lost with a thread that cannot be started.
        let shared = Arc::new(Mutex::new(self.writer.connection.take().zip(Some(blocks))));
        let take = |shared: &Mutex<Option<_>>| shared.lock().take().expect("taken once");
        let copy = |(mut connection, blocks): (Connection, Vec<NewBlock>)| {
            let rows = connection.copy(WHAT, sql::COPY_BLOCKS, write::copied(&blocks));
            (connection, rows)
        };
        let own = shared.clone();
        match thread::Builder::new().name("weft-copy".into()).spawn(move || copy(take(&own))) {
            Ok(sending) => {
                self.sending = Some(sending);
                Ok(())
            }
            Err(_) => self.take_back(copy(take(&shared))),
        }
    }

    /// Waits until what was sent has arrived.
    fn receive(&mut self) -> Result<()> {
        match self.sending.take() {
            Some(sending) => self.take_back(sending.join().expect("sending does not panic")),
            None => Ok(()),
        }
    }

    fn take_back(&mut self, (connection, rows): (Connection, Result<u64>)) -> Result<()> {
        self.writer.connection = Some(connection);
        if rows? == self.expected { Ok(()) } else { Err(Error::Bug("blocks were copied in part".into())) }
    }

    /// Where a block of this batch, or an older one, is.
    fn home(&self, block: &BlockRef) -> Result<Home> {
        let kept = || self.kept.binary_search_by_key(&block.id, |new| new.id).ok().map(|at| self.kept[at].owner);
        let own = self.sent.get(&block.id).map(|(owner, _)| *owner).or_else(kept).map(|owner| (owner, block.id));
        let unknown = || Error::Bug(format!("block {} has no place in this database", block.id.0));
        own.or_else(|| write::home(block.place, block.id)).ok_or_else(unknown)
    }

    /// The ranges of extents that `batch` clears or replaces, of files that have any.
    fn replaced(&self, batch: &Batch, put: &[(Ino, u64, Home)]) -> Vec<(Ino, Range<u64>)> {
        let mut replaced = Vec::new();
        for change in &batch.extents {
            if let ExtentChange::Clear { ino, range } = change {
                replaced.push((*ino, range.clone()));
            }
        }
        for change in &batch.inodes {
            if let InodeChange::Remove(ino) = change {
                replaced.push((*ino, 0..u64::MAX));
            }
        }
        for (ino, index, _) in put {
            match replaced.last_mut() {
                Some((last, range)) if last == ino && range.contains(index) => {}
                Some((last, range)) if last == ino && range.end == *index => range.end += 1,
                _ => replaced.push((*ino, *index..*index + 1)),
            }
        }
        replaced.retain(|(ino, _)| *ino < self.writer.fresh);
        replaced
    }

    /// What becomes of the references to blocks; those of blocks that are kept here are taken out.
    fn references(
        &mut self,
        replaced: &[(Ino, Range<u64>)],
        put: &[(Ino, u64, Home)],
    ) -> Result<(References, Vec<i64>)> {
        let call = |(ino, range): &(Ino, Range<u64>)| {
            Call::new(sql::PLACED, vec![Box::new(int(ino.0)), Box::new(int(range.start)), Box::new(int(range.end))])
        };
        let mut references = References::new();
        let mut seen = std::collections::HashSet::new();
        let found = self.writer.connection().query_all(WHAT, &replaced.iter().map(call).collect::<Vec<_>>())?;
        self.is_begun |= !replaced.is_empty();
        for ((ino, _), rows) in replaced.iter().zip(found) {
            for row in &rows {
                // Ranges may overlap.
                if seen.insert((*ino, unsigned(row, 0)?)) {
                    let home = (Ino(unsigned(row, 1)?), BlockId(unsigned(row, 2)?));
                    *references.entry(home).or_insert(0) -= 1;
                }
            }
        }
        for (.., home) in put {
            *references.entry(*home).or_insert(0) += 1;
        }
        let unnamed = |id: BlockId| Error::Bug(format!("no extent names new block {}", id.0));
        for (id, (owner, _)) in &self.sent {
            let more = references.get_mut(&(*owner, *id)).ok_or_else(|| unnamed(*id))?;
            // They were sent with one.
            *more -= 1;
        }
        let own = self.kept.iter().map(|new| references.remove(&(new.owner, new.id)).ok_or_else(|| unnamed(new.id)));
        let own = own.collect::<Result<Vec<_>>>()?;
        Ok((references, own))
    }

    fn write(&mut self, batch: &Batch) -> Result<Committed> {
        if batch.commit != self.store.header.lock().commit.next() {
            return Err(Error::Bug(format!("commit {} does not follow the last one", batch.commit.0)));
        }
        self.receive()?;
        let mut put = Vec::new();
        for change in &batch.extents {
            if let ExtentChange::Put { ino, index, block } = change {
                put.push((*ino, *index, self.home(block)?));
            }
        }
        put.sort_unstable();
        let replaced = self.replaced(batch, &put);
        let (references, own) = self.references(&replaced, &put)?;
        let writer = &mut *self.writer;
        let mut known = std::mem::take(&mut writer.known);
        let connection = writer.connection.as_mut().expect("no blocks are on their way any more");
        let rows = Rows::new(connection, &mut known, writer.fresh);
        self.kept.iter().for_each(|new| rows.put_block(new.id, new.bytes.clone()));
        if writer.digester.is_some() {
            prefetch(&rows, batch)?;
        }
        let sent = self.sent.iter().map(|(id, (_, alone))| (*id, *alone));
        let alone = self.kept.iter().map(|new| (new.id, new.alone)).chain(sent);
        let alone = alone.filter_map(|(id, alone)| Some((id, alone?)));
        digests(writer.digester.as_ref(), &rows, batch, alone, writer.block_size)?;
        let root = match &writer.digester {
            Some(_) => rows.inode(Ino::ROOT)?.and_then(|inode| inode.digest),
            None => None,
        };
        let pending = rows.into_pending();
        let previous = writer.last.filter(|last| last.number.next() == batch.commit).and_then(|last| last.digest());
        let previous = previous.filter(|_| writer.digester.is_some());
        let commit = CommitRow { number: batch.commit, time: batch.time, op: batch.counters.op, root, previous };
        let mut calls = Vec::new();
        if !self.kept.is_empty() {
            let blocks = std::mem::take(&mut self.kept);
            calls.push(write::put_blocks(&blocks.into_iter().zip(own).collect::<Vec<_>>()));
        }
        let extents = Extents { removed: &replaced, put: &put, references: &references };
        calls.extend(write::rows(batch, &pending, &extents, writer.fresh));
        if self.store.has_intents.swap(false, Ordering::Relaxed) {
            calls.push(Call::new(sql::FORGET_INTENTS, vec![Box::new(int(batch.counters.op.0))]));
        }
        calls.extend(write::end(batch, &commit, writer.epoch, COMMITS_KEPT));
        self.is_begun = true;
        match self.writer.connection().query_all(WHAT, &calls) {
            Ok(_) => self.is_begun = false,
            Err(error) => self.settle(error, &commit)?,
        }
        known.learn(pending);
        Ok(Committed { commit, known })
    }

    /// After `error`: if nobody knows whether the commit happened, asks until the server can be reached. Ok if it has happened.
    fn settle(&mut self, error: Error, commit: &CommitRow) -> Result<()> {
        if !self.writer.connection().is_closed() {
            let is_fenced = matches!(&error, Error::Postgres { source, .. } if source.code() == Some(&SqlState::NOT_NULL_VIOLATION));
            if !is_fenced {
                return Err(error);
            }
            self.writer.connection().run(WHAT, "ROLLBACK")?;
            self.store.refuse_other(self.writer.connection())?;
        } else {
            self.writer.connection = Some(self.store.reconnect()?);
        }
        self.is_begun = false;
        let found = read::commits(self.writer.connection(), commit.number, 1)?.pop();
        // One of that number may be what an earlier try left.
        if found.is_some_and(|found| found == *commit) { Ok(()) } else { Err(Error::Interrupted) }
    }
}

struct Committed {
    commit: CommitRow,
    known: Known,
}

/// Tells `rows` all that `batch` changes, and makes digests follow.
fn digests(
    digester: Option<&Digester>,
    rows: &Rows<'_>,
    batch: &Batch,
    alone: impl Iterator<Item = (BlockId, Digest)>,
    block_size: u64,
) -> Result<()> {
    let mut digests = digester.map(|digester| digester.begin(rows, block_size));
    let mut puts = Vec::new();
    for change in &batch.extents {
        match change {
            ExtentChange::Clear { ino, range } => {
                rows.clear_extents(*ino, range.clone());
                if let Some(digests) = &mut digests {
                    digests.clear(*ino, range.clone());
                }
            }
            ExtentChange::Put { ino, index, block } => puts.push((*ino, *index, *block)),
        }
    }
    puts.sort_unstable_by_key(|(ino, index, _)| (*ino, *index));
    for (ino, index, block) in puts {
        rows.put_extent(ino, index, block);
        if let Some(digests) = &mut digests {
            digests.put(ino, index);
        }
    }
    if let Some(digests) = &mut digests {
        alone.for_each(|(id, digest)| digests.alone(id, digest));
    }
    let mut inodes = Vec::new();
    for change in &batch.inodes {
        match change {
            InodeChange::Put(row) => inodes.push(row),
            InodeChange::Remove(ino) => {
                if let Some(digests) = &mut digests {
                    digests.remove(*ino)?;
                }
                rows.remove_inode(*ino);
                rows.clear_extents(*ino, 0..u64::MAX);
            }
        }
    }
    for row in inodes {
        let digest = digests.as_mut().map(|digests| digests.inode(row)).transpose()?.flatten();
        rows.put_inode(row, digest);
    }
    let mut names = Vec::new();
    for change in &batch.names {
        match change {
            NameChange::Put(row) => names.push(row),
            NameChange::Remove { parent, name } => {
                rows.remove_name(*parent, name);
                if let Some(digests) = &mut digests {
                    digests.remove_name(*parent, name);
                }
            }
        }
    }
    for row in names {
        let hash = digests.as_mut().map(|digests| digests.name(row)).transpose()?.flatten();
        rows.put_name(row, hash);
    }
    digests.map_or(Ok(()), |digests| digests.finish())
}

impl Transaction for PostgresTransaction<'_> {
    fn put_blocks(&mut self, blocks: Vec<NewBlock>) -> Result<Vec<BlockRef>> {
        let placed = blocks.iter().map(|new| new.at(Place::File(new.owner))).collect();
        self.kept_bytes += blocks.iter().map(|new| new.bytes.len()).sum::<usize>();
        self.kept.extend(blocks);
        if self.kept_bytes > KEPT_BYTES_MAX {
            let sent = self.send();
            if sent.is_err() {
                self.writer.in_doubt = true;
            }
            sent.map_err(|error| self.writer.interrupted(error))?;
        }
        Ok(placed)
    }

    fn commit(mut self: Box<Self>, batch: &Batch) -> Result<()> {
        let written = self.write(batch);
        if written.is_err() {
            self.writer.in_doubt = true;
            // What it would have removed may still be there.
            self.store.has_intents.store(true, Ordering::Relaxed);
        }
        let Committed { commit, known } = written.map_err(|error| self.writer.interrupted(error))?;
        self.writer.known = known;
        self.writer.last = Some(commit);
        self.writer.fresh = Ino(batch.counters.next_id);
        let mut header = self.store.header.lock();
        header.commit = batch.commit;
        header.counters = batch.counters;
        Ok(())
    }
}

impl Drop for PostgresTransaction<'_> {
    fn drop(&mut self) {
        // Why it failed, if it did, has been told.
        let _ = self.receive();
        let was_said = !self.writer.connection().unsay();
        if self.is_begun && was_said && !self.writer.connection().is_closed() {
            // If it fails the connection has broken, and the server rolls back by itself.
            let _ = self.writer.connection().run(WHAT, "ROLLBACK");
        }
    }
}
