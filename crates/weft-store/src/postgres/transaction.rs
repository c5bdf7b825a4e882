//! One commit: blocks as they come, then the rows that name them, in one transaction of the server.
//!
//! Nothing but blocks is sent before the end; then the rows go out, and what is not too much for
//! once together with what ends the commit, in one round trip. If the connection breaks on the way
//! nobody knows whether the server has committed: it is asked as soon as it can be reached again.

use super::PostgresStore;
use super::connection::{Call, Connection};
use super::digests::{Known, Rows, Stored};
use super::intents;
use super::own::{self, OwnTables};
use super::prefetch::prefetch;
use super::read::{self, int, unsigned};
use super::rights::{self, Task};
use super::sending::{Back, Sending, Table};
use super::settings;
use super::statements as sql;
use super::write::{self, BlockRow, Extents, Home, Outgoing, References};
use crate::batch::{Batch, ExtentChange, InodeChange, NameChange, NewBlock};
use crate::digests::{Digester, ZeroValues};
use crate::error::{Error, Result};
use crate::overlay::Snapshot;
use crate::round_trips::Class;
use crate::row::{BlockId, BlockRef, CommitNo, CommitRow, Ino, Place};
use crate::store::{Header, Transaction};
use crate::sums;
use parking_lot::MutexGuard;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio_postgres::Row;
use tokio_postgres::error::SqlState;
use weft_digest::{Digest, Value};

const WHAT: &str = "cannot commit";

/// Bytes of blocks that are sent with the rows; more of them go out as soon as they come.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// Removed files whose extents are asked for in one statement: their rows are in memory together.
const REMOVED_MAX: usize = 4096;

/// Files remembered to have a table of their own.
const TABLES_MAX: usize = 65536;

/// Commits kept in `commits` while history is off.
const COMMITS_KEPT: u64 = 1024;

/// State for commits, which use it one at a time.
pub(super) struct Writer {
    /// Replaced when it has broken; none while blocks are on their way.
    connection: Option<Connection>,
    /// True if a commit is in doubt.
    in_doubt: bool,
    known: Known,
    last: Option<CommitRow>,
    /// Epoch of the lease.
    epoch: i64,
    /// Sum of the columns of the volume's row that commits do not change.
    sum: i64,
    block_size: u64,
    /// Inodes from this one on have no rows.
    fresh: Ino,
    /// None if the volume keeps no digests.
    digester: Option<Digester>,
    own_table_from: Option<u64>,
    /// The role that owns the volume, if it is not the connected one.
    owner_role: Option<String>,
    /// Some of the files that have a table of their own.
    tables: BTreeSet<Ino>,
    /// Files whose own table has nothing left but could not be dropped yet.
    dropped: BTreeSet<Ino>,
    /// True once the role's rights were found to be enough.
    may_write: bool,
    /// True if `dropped` has files of an earlier holder that were not tried since.
    has_leftovers: bool,
}

impl Writer {
    pub(super) fn new(
        connection: Connection,
        header: &Header,
        last: Option<CommitRow>,
        epoch: i64,
        zeros: Arc<ZeroValues>,
        own: OwnTables,
    ) -> Writer {
        Writer {
            connection: Some(connection),
            in_doubt: false,
            known: Known::default(),
            last,
            epoch,
            sum: sums::volume(header.created, &header.uuid, &header.options),
            block_size: u64::from(header.options.block_size),
            fresh: Ino(header.counters.next_id),
            digester: header.options.digests.then(|| Digester::new(zeros)),
            own_table_from: header.options.own_table_from,
            owner_role: None,
            tables: BTreeSet::new(),
            may_write: false,
            has_leftovers: !own.dropped.is_empty(),
            dropped: own.dropped,
        }
    }
}

impl Writer {
    /// Takes in what the last commit left, which is durable then; tells the header.
    fn look(&mut self, store: &PostgresStore) -> Result<Header> {
        store.refuse_other(self.connection())?;
        store.confirm(self.connection())?;
        let header = read::header(self.connection())?;
        self.last = read::last_commit(self.connection(), header.commit)?;
        self.fresh = Ino(header.counters.next_id);
        self.known = Known::default();
        self.tables.clear();
        self.dropped = own::dropped(self.connection())?;
        self.in_doubt = false;
        Ok(header)
    }

    /// Takes in whose own tables the last commit used, and drops those that it left empty.
    fn keep_tables(&mut self, used: BTreeSet<Ino>, empty: BTreeSet<Ino>) {
        if self.tables.len() > TABLES_MAX {
            self.tables.clear();
        }
        self.tables.extend(used);
        self.tables.retain(|owner| !empty.contains(owner));
        if !empty.is_empty() || self.has_leftovers {
            self.has_leftovers = false;
            self.dropped.extend(empty);
            let connection = self.connection.as_mut().expect("no blocks are on their way");
            // What cannot be dropped now is tried again with the next one.
            let _ = own::drop_tables(connection, &mut self.dropped, self.epoch);
        }
    }

    /// Maps `error` to `Interrupted` if the connection has broken: nothing was committed yet.
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

/// A block of this transaction.
struct New {
    table: Table,
    owner: Ino,
    /// The digest of a file that is no more than it.
    alone: Option<Digest>,
    length: u32,
    base: u64,
    value: Value,
}

/// A transaction that has the writer until it ends. Dropped, it is rolled back.
pub(super) struct PostgresTransaction<'a> {
    store: &'a PostgresStore,
    writer: MutexGuard<'a, Writer>,
    /// True if it was committed, or rolled back.
    is_over: bool,
    new: BTreeMap<BlockId, New>,
    /// New blocks that are not sent yet.
    kept: BTreeMap<BlockId, NewBlock>,
    kept_bytes: usize,
    /// Files whose own table is touched.
    touched: BTreeSet<Ino>,
    /// Files among these that may have no table yet.
    unmade: BTreeSet<Ino>,
    sending: Option<Sending>,
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
            let header = writer.look(store);
            *store.header.lock() = header.map_err(|error| writer.interrupted(error))?;
            // A commit of which nobody knew may have outdated what came along.
            store.prefetcher.forget();
        }
        writer.connection().count_as(Class::Commits);
        if !writer.may_write {
            let task = if writer.own_table_from.is_some() { Task::ServeOwnTables } else { Task::Serve };
            rights::refuse_lacking(writer.connection(), &store.connector.address, task)?;
            writer.owner_role = writer.own_table_from.and_then(|_| rights::other_owner(writer.connection()));
            writer.may_write = true;
        }
        writer.connection().say_first(sql::BEGIN);
        Ok(PostgresTransaction {
            store,
            writer,
            is_over: false,
            new: BTreeMap::new(),
            kept: BTreeMap::new(),
            kept_bytes: 0,
            touched: BTreeSet::new(),
            unmade: BTreeSet::new(),
            sending: None,
        })
    }

    /// Returns the table for a new block.
    fn table_for(&mut self, new: &NewBlock) -> Table {
        let owner = new.owner;
        let may_own = self.writer.own_table_from.is_some_and(|from| new.base >= from)
            && (self.touched.contains(&owner) || self.touched.len() < own::TOUCHED_MAX)
            && !self.writer.dropped.contains(&owner);
        if !may_own {
            return Table::Common;
        }
        if self.touched.insert(owner) && !self.writer.tables.contains(&owner) {
            self.unmade.insert(owner);
        }
        Table::Own(owner)
    }

    /// Sends the blocks that are kept: by `COPY` where there are many for one table.
    fn send(&mut self) -> Result<()> {
        let mut parcels = BTreeMap::<Table, Vec<NewBlock>>::new();
        for (id, new) in std::mem::take(&mut self.kept) {
            parcels.entry(self.new[&id].table).or_default().push(new);
        }
        self.kept_bytes = 0;
        let bytes = |blocks: &[NewBlock]| blocks.iter().map(|new| new.bytes.len()).sum::<usize>();
        let is_little = |table: &Table, blocks: &[NewBlock]| *table != Table::Common && bytes(blocks) < KEPT_BYTES_MAX;
        let (little, much): (BTreeMap<_, _>, BTreeMap<_, _>) =
            parcels.into_iter().partition(|(table, blocks)| is_little(table, blocks));
        let mut calls = self.make_tables();
        calls.extend(little.iter().map(own_blocks));
        if !calls.is_empty() {
            self.receive()?;
            self.writer.connection().query_all(WHAT, &calls)?;
        }
        much.into_iter().try_for_each(|(table, blocks)| self.copy(table, blocks))
    }

    /// Returns the calls that make the tables which files may not have yet.
    fn make_tables(&mut self) -> Vec<Call> {
        own::make(std::mem::take(&mut self.unmade), self.writer.owner_role.as_deref())
    }

    fn copy(&mut self, table: Table, mut blocks: Vec<NewBlock>) -> Result<()> {
        if let Some(sending) = &mut self.sending {
            match sending.go_on(table, blocks) {
                Ok(()) => return Ok(()),
                Err(refused) => blocks = refused,
            }
        }
        self.receive()?;
        let connection = self.writer.connection.take().expect("nothing is on its way");
        match Sending::begin(connection, table, blocks) {
            Ok(sending) => {
                self.sending = Some(sending);
                Ok(())
            }
            Err(back) => self.take_back(back),
        }
    }

    /// Waits until what was sent has arrived.
    fn receive(&mut self) -> Result<()> {
        self.sending.take().map_or(Ok(()), |sending| self.take_back(sending.end()))
    }

    fn take_back(&mut self, back: Back) -> Result<()> {
        let (connection, sent) = *back;
        self.writer.connection = Some(connection);
        sent
    }

    /// Returns the home of a block of this batch, or of an older one.
    fn home(&self, block: &BlockRef) -> Result<Home> {
        let unknown = || Error::Bug(format!("block {} has no place in this database", block.id.0));
        let own = self.new.get(&block.id).map(|new| (new.owner, block.id));
        own.or_else(|| write::home(block.place, block.id)).ok_or_else(unknown)
    }

    /// The ranges of extents that `batch` clears or replaces, of files that may have any and stay.
    fn replaced(&self, batch: &Batch, put: &[(Ino, u64, Home)]) -> Vec<(Ino, Range<u64>)> {
        let mut replaced = Vec::new();
        for change in &batch.extents {
            if let ExtentChange::Clear { ino, range } = change {
                replaced.push((*ino, range.clone()));
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

    /// Counts the changes of references to blocks, those of this transaction included, as extents
    /// are `replaced` and files `removed`.
    fn count(&mut self, replaced: &[(Ino, Range<u64>)], removed: &[i64], put: &[(Ino, u64, Home)]) -> Result<Counted> {
        let ranges = replaced.iter().map(|(ino, range)| {
            Call::new(sql::PLACED, vec![Box::new(int(ino.0)), Box::new(int(range.start)), Box::new(int(range.end))])
        });
        let files = removed.chunks(REMOVED_MAX).map(|inos| Call::new(sql::PLACED_OF, vec![Box::new(inos.to_vec())]));
        let calls = ranges.chain(files).collect::<Vec<_>>();
        let (mut counted, mut seen) = (Counted::default(), HashSet::new());
        self.writer
            .connection()
            .take_all(WHAT, &calls, |_, rows| rows.iter().try_for_each(|row| counted.lose(row, &mut seen)))?;
        self.count_others(&mut counted)?;
        // How many name a block whose row is damaged is not known: it stays.
        let Counted { references, damaged, .. } = &mut counted;
        references.retain(|home, _| !damaged.contains(home));
        for (.., home) in put {
            *counted.references.entry(*home).or_insert(0) += 1;
        }
        Ok(counted)
    }

    /// Looks at the rows of other files' blocks that lose references.
    fn count_others(&mut self, counted: &mut Counted) -> Result<()> {
        let mut blocks = BTreeMap::<Ino, Vec<i64>>::new();
        for (owner, id) in std::mem::take(&mut counted.others) {
            blocks.entry(owner).or_default().push(int(id.0));
        }
        let owners = blocks.keys().copied().collect::<Vec<_>>();
        let call =
            |(owner, ids): (Ino, Vec<i64>)| Call::new(sql::OTHERS_REFS, vec![Box::new(int(owner.0)), Box::new(ids)]);
        let calls = blocks.into_iter().map(call).collect::<Vec<_>>();
        self.writer.connection().take_all(WHAT, &calls, |place, rows| {
            rows.iter().try_for_each(|row| counted.look((owners[place], BlockId(unsigned(row, 6)?)), row, 0))
        })
    }

    /// The rows of new blocks that are not there yet; takes the kept blocks.
    fn new_rows(&mut self, references: &mut References) -> Result<Vec<BlockRow>> {
        let mut rows = Vec::new();
        for (id, new) in &self.new {
            let home = (new.owner, *id);
            let refs =
                references.get_mut(&home).ok_or_else(|| Error::Bug(format!("no extent names new block {}", id.0)))?;
            let kept = self.kept.get(id);
            if new.table == Table::Common && kept.is_none() {
                // It was sent with one.
                *refs -= 1;
                continue;
            }
            let bytes = kept.filter(|_| new.table == Table::Common).map(|kept| kept.bytes.clone());
            rows.push(BlockRow { home, refs: *refs, length: new.length, base: new.base, value: new.value, bytes });
            references.remove(&home);
        }
        Ok(rows)
    }

    /// Returns the calls that put blocks into files' own tables and remove them, and the owners
    /// whose tables have nothing left.
    fn own_tables(&mut self, counted: &Counted) -> Result<(Vec<Call>, BTreeSet<Ino>)> {
        let mut little = BTreeMap::<Table, Vec<NewBlock>>::new();
        for (id, kept) in &self.kept {
            if let table @ Table::Own(_) = self.new[id].table {
                little.entry(table).or_default().push(kept.clone());
            }
        }
        let mut calls = self.make_tables();
        calls.extend(little.iter().map(own_blocks));
        let mut dead = BTreeMap::<Ino, Vec<BlockId>>::new();
        for (home, refs) in &counted.own {
            if refs + counted.references.get(home).unwrap_or(&0) <= 0 {
                dead.entry(home.0).or_default().push(home.1);
            }
        }
        // Those that get new blocks stay.
        let losing = dead.iter().filter(|(owner, _)| !self.touched.contains(owner));
        let losing = losing.map(|(owner, blocks)| (*owner, blocks.len() as u64)).collect::<Vec<_>>();
        let count = |(owner, dead): &(Ino, u64)| {
            Call::new(sql::COUNT_OWN, vec![Box::new(int(owner.0)), Box::new(int(dead + 1))])
        };
        let counts = self.writer.connection().query_all(WHAT, &losing.iter().map(count).collect::<Vec<_>>())?;
        let mut empty = BTreeSet::new();
        for ((owner, gone), count) in losing.into_iter().zip(counts) {
            let all = count.first().map(|row| unsigned(row, 0)).transpose()?;
            if all == Some(gone) {
                dead.remove(&owner);
                empty.insert(owner);
            }
        }
        calls.extend(dead.iter().map(|(owner, blocks)| own::remove(*owner, blocks)));
        if !empty.is_empty() {
            let owners = empty.iter().map(|owner| int(owner.0)).collect::<Vec<_>>();
            calls.push(Call::new(sql::ADD_DROPPED, vec![Box::new(owners)]));
        }
        Ok((calls, empty))
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
        let removed = batch.removed().filter(|ino| *ino < self.writer.fresh).map(|ino| int(ino.0)).collect::<Vec<_>>();
        let mut counted = self.count(&replaced, &removed, &put)?;
        let (own_calls, empty) = self.own_tables(&counted)?;
        let new_rows = self.new_rows(&mut counted.references)?;
        let writer = &mut *self.writer;
        let mut known = std::mem::take(&mut writer.known);
        let connection = writer.connection.as_mut().expect("no blocks are on their way any more");
        let rows = Rows::new(Stored::new(connection, &mut known, writer.fresh));
        self.kept.values().for_each(|new| rows.put_block(new.id, new.bytes.clone()));
        if writer.digester.is_some() {
            prefetch(rows.snapshot(), batch, writer.block_size)?;
        }
        let alone = self.new.iter().filter_map(|(id, new)| Some((*id, new.alone?)));
        digests(writer.digester.as_ref(), &rows, batch, alone, writer.block_size)?;
        let root = match &writer.digester {
            Some(_) => rows.inode(Ino::ROOT)?.and_then(|inode| inode.digest),
            None => None,
        };
        let changes = rows.into_changes();
        let previous = writer.last.filter(|last| last.number.next() == batch.commit).and_then(|last| last.digest());
        let previous = previous.filter(|_| writer.digester.is_some());
        let commit = CommitRow { number: batch.commit, time: batch.time, op: batch.counters.op, root, previous };
        self.kept.clear();
        let fresh = self.writer.fresh;
        let connection = self.writer.connection();
        let mut out = Outgoing::new(own_calls, |calls: &[Call]| connection.query_all(WHAT, calls).map(drop));
        write::contents(batch, &changes, &new_rows, &mut out)?;
        let extents = Extents { removed: &replaced, put: &put, references: &counted.references };
        write::rows(batch, &changes, &extents, fresh, &mut out)?;
        let mut calls = out.rest();
        if self.store.has_intents.swap(false, Ordering::Relaxed) {
            calls.push(Call::new(sql::FORGET_INTENTS, vec![Box::new(int(batch.counters.op.0))]));
        }
        let header = self.store.header.lock().clone();
        calls.extend(intents::begin_epoch(&header, batch.counters.epoch));
        calls.extend(intents::carry(&header, batch, &self.store.has_carried));
        let connection = self.writer.connection();
        calls.push(settings::refuse_weak_call(connection, &self.store.connector.address, &header.uuid));
        calls.extend(settings::refuse_emptied_call(connection, &self.store.connector.address));
        calls.extend(write::end(batch, &commit, self.writer.epoch, self.writer.sum, COMMITS_KEPT));
        let connection = self.writer.connection();
        connection.take_warning();
        match connection.query_all(WHAT, &calls) {
            Ok(_) => {
                self.is_over = true;
                if batch.carried.is_empty() {
                    self.store.has_carried.store(false, Ordering::Relaxed);
                }
                if connection.take_warning() {
                    self.store.confirm(connection)?;
                }
            }
            Err(error) => self.settle(error, &commit)?,
        }
        known.learn(changes);
        Ok(Committed { commit, known, empty })
    }

    /// After `error`: if nobody knows whether the commit happened, asks until the server can be
    /// reached. Ok if it has happened and is durable.
    fn settle(&mut self, error: Error, commit: &CommitRow) -> Result<()> {
        if !self.writer.connection().is_closed() {
            let is_fenced = matches!(&error, Error::Postgres { source, .. } if source.code() == Some(&SqlState::NOT_NULL_VIOLATION));
            if !is_fenced && !settings::is_weak(&error) {
                return Err(error);
            }
            self.writer.connection().run(WHAT, "ROLLBACK")?;
            self.is_over = true;
            self.store.refuse_other(self.writer.connection())?;
            if !is_fenced {
                return Err(settings::why_weak(self.writer.connection(), &self.store.connector.address));
            }
        } else {
            self.writer.connection = Some(self.store.reconnect()?);
        }
        self.is_over = true;
        let found = read::last_commit(self.writer.connection(), commit.number)?;
        // One of that number may be what an earlier try left.
        if found.is_none_or(|found| found != *commit) {
            return Err(Error::Interrupted);
        }
        self.store.confirm(self.writer.connection())
    }
}

struct Committed {
    commit: CommitRow,
    known: Known,
    /// Owners whose own tables are to be dropped.
    empty: BTreeSet<Ino>,
}

/// Changes of the references to blocks.
#[derive(Default)]
struct Counted {
    references: References,
    /// Blocks in files' own tables that lose references, with the number they had.
    own: BTreeMap<Home, i64>,
    /// Blocks of other files that lose references; the number they had is not known yet.
    others: BTreeSet<Home>,
    /// Blocks that lose some and have damaged rows.
    damaged: BTreeSet<Home>,
}

impl Counted {
    /// The extent of a row of [`sql::PLACED`], or one like it, goes. Ranges may overlap: `seen` has
    /// those that went.
    fn lose(&mut self, row: &Row, seen: &mut HashSet<(u64, u64)>) -> Result<()> {
        if !seen.insert((unsigned(row, 0)?, unsigned(row, 1)?)) {
            return Ok(());
        }
        let home = (Ino(unsigned(row, 2)?), BlockId(unsigned(row, 3)?));
        let extent = (Ino(unsigned(row, 0)?), unsigned(row, 1)?);
        let sum = sums::owned_extent(extent, (home.0, home.1.0), CommitNo(unsigned(row, 4)?));
        if !read::holds(row, 5, sum) {
            // It may name a block that others need.
            return Ok(());
        }
        *self.references.entry(home).or_insert(0) -= 1;
        if home.0 != extent.0 {
            self.others.insert(home);
            return Ok(());
        }
        self.look(home, row, 6)
    }

    /// The row of a block that loses references: columns from `first` on have these, its length,
    /// base, value and sum, and whether its bytes lie in a table of the file's own.
    fn look(&mut self, home: Home, row: &Row, first: usize) -> Result<()> {
        // What has no row has nothing to lose.
        let Some(refs) = read::get::<Option<i64>>(row, first)? else { return Ok(()) };
        match BlockRow::holds(home, refs, row, first + 1) {
            true if read::get(row, first + 5)? => drop(self.own.insert(home, refs)),
            true => {}
            false => drop(self.damaged.insert(home)),
        }
        Ok(())
    }
}

fn own_blocks((table, blocks): (&Table, &Vec<NewBlock>)) -> Call {
    let Table::Own(owner) = table else { unreachable!("those of the common table go with their rows") };
    own::put(*owner, blocks)
}

/// Passes all changes of `batch` to `rows`, and updates digests.
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
        let mut placed = Vec::with_capacity(blocks.len());
        for new in blocks {
            let table = self.table_for(&new);
            let block = new.at(match table {
                Table::Common => Place::File(new.owner),
                Table::Own(owner) => Place::Own(owner),
            });
            let BlockRef { id, length, base, value, .. } = block;
            self.new.insert(id, New { table, owner: new.owner, alone: new.alone, length, base, value });
            if let Some(cache) = &self.store.disk_cache {
                // Whatever becomes of the commit: it is found by its bytes alone.
                cache.keep(value, new.bytes.clone());
            }
            self.kept_bytes += new.bytes.len();
            self.kept.insert(id, new);
            placed.push(block);
        }
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
        // It may have happened even if it failed.
        self.store.prefetcher.forget();
        if written.is_err() {
            self.writer.in_doubt = true;
            // What it would have removed may still be there.
            self.store.has_intents.store(true, Ordering::Relaxed);
        }
        let Committed { commit, known, empty } = written.map_err(|error| self.writer.interrupted(error))?;
        {
            let mut header = self.store.header.lock();
            header.commit = batch.commit;
            header.counters = batch.counters;
        }
        let touched = std::mem::take(&mut self.touched);
        let writer = &mut *self.writer;
        writer.known = known;
        writer.last = Some(commit);
        writer.fresh = Ino(batch.counters.next_id);
        writer.keep_tables(touched, empty);
        Ok(())
    }
}

impl Drop for PostgresTransaction<'_> {
    fn drop(&mut self) {
        // Why it failed, if it did, has been told.
        let _ = self.receive();
        let was_said = !self.writer.connection().unsay();
        if !self.is_over && was_said && !self.writer.connection().is_closed() {
            // If it fails the connection has broken, and the server rolls back by itself.
            let _ = self.writer.connection().run(WHAT, "ROLLBACK");
        }
    }
}
