//! The connection that writes: the rows of a commit, and afterwards the space of dead blocks.
//!
//! Space is given back only after the commit that freed it is durable: until then a power cut may
//! bring back the rows that name it. `freed` remembers it across crashes.

use super::Settled;
use super::behind::{notice, tail_of};
use super::connection::{Access, AtClose, at_close};
use super::digests::Rows;
use super::extents::{self, Freed, Stored};
use super::history::keeping::Keeping;
use super::history::retaining;
use super::merge;
use super::proof::is_any_behind;
use super::put::{put_inode, put_name};
use super::read::{self, sql, unsigned};
use super::reclaim::{FreedSpace, Ongoing, Reclaimer};
use super::renew::{Database, renew, verify};
use super::room::Room;
use super::segments::{Segments, Tail, Unowned};
use super::sums::{BLOCK, FREED};
use super::wal::Wal;
use crate::batch::{Batch, InodeChange, NameChange, NewBlock, SplitBlock};
use crate::digests::{CommitDigests, Digester, ZeroValues};
use crate::error::{Error, ErrorKind, Result};
use crate::history::kept::COMMITS_KEPT;
use crate::log::{Behind, Loss};
use crate::past::History;
use crate::references::{ExtentPlan, Merging, References};
use crate::row::{BlockRef, CommitNo, CommitRow, Ino, NameRow, Place};
use crate::store::{Durability, Header, Limits};
use crate::sums;
use rusqlite::Connection;
use rustc_hash::FxHashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use weft_digest::Digest;

/// Time that a connection waits for another one, as rusqlite has it.
const BUSY: Duration = Duration::from_secs(5);

/// Bytes of write-ahead log after which it is copied into the database.
const WAL_BYTES_MAX: u64 = 32 << 20;

/// Blocks of the highest ids among which the last one in the segments is looked for.
const LAST_BLOCKS: u32 = 4096;

/// Bytes of freed space after which commits are made durable, so that it can be given back.
const FREED_BYTES_MAX: u64 = 64 << 20;

/// The one connection that writes.
pub(super) struct Writer {
    connection: Connection,
    /// None if nothing is ever written.
    database: Option<Arc<Database>>,
    /// SQLite's write-ahead log.
    wal: PathBuf,
    room: Arc<Room>,
    /// True if something that was committed may not be on the disk though no sync will tell
    /// (`renew`).
    in_doubt: bool,
    /// True if something could not be committed for want of space, and what it took of that has not
    /// been given back yet.
    is_full: bool,
    /// True if segments stay as they are found, for what is given up may be brought back.
    keeps_segments: bool,
    /// True from the first commit on, whose epoch tells that an intent log is needed.
    is_first_copied: bool,
    /// True if the list of free pages was found to be as it was left.
    is_list_known: bool,
    /// True if the database has no seal of that list.
    is_unsealed: bool,
    /// True if what an earlier process left was found and counted.
    has_taken_over: bool,
    /// Space that held what the database did not know of: this process does not touch it.
    held: Vec<Unowned>,
    /// Those parts of it that the next commit notes in `freed`.
    unnoted: Vec<Unowned>,
    /// Rows of `freed` that note them.
    noted: Vec<i64>,
    /// Notices for the user.
    notices: Vec<String>,
    tail: Tail,
    /// Number of the next row of `freed`.
    next_freed: i64,
    /// Space freed by commits that are not durable yet.
    waiting: FreedSpace,
    reclaimer: Option<Reclaimer>,
    segments: Option<Arc<Segments>>,
    block_size: u64,
    /// Sum of the columns of the volume's row that commits do not change.
    sum: i64,
    /// None if the volume keeps no digests.
    digester: Option<Digester>,
    /// The history; none while it is off.
    history: Option<History>,
}

/// Work that the rows of a commit leave for the time when it is there.
pub(super) struct Written {
    /// Space that they free.
    freed: FreedSpace,
    /// The history from then on.
    history: Option<History>,
    /// The sum from then on of what commits do not change in the volume's row.
    sum: i64,
}

/// The rows and blocks that a commit writes.
#[derive(Clone, Copy)]
pub(super) struct NewRows<'a> {
    pub(super) batch: &'a Batch,
    pub(super) blocks: &'a [Stored],
    /// The end of the blocks.
    pub(super) tail: Tail,
    /// Returns when the bytes of the blocks lie where they should.
    pub(super) wait: &'a dyn Fn(),
}

fn failed(source: rusqlite::Error) -> Error {
    Error::Sqlite { what: "cannot write the database", source }
}

fn is_constraint(error: &Error) -> bool {
    let Error::Sqlite { source, .. } = error else { return false };
    source.sqlite_error_code() == Some(rusqlite::ErrorCode::ConstraintViolation)
}

impl Writer {
    /// Begins in doubt: nobody knows what the last process heard of its syncs.
    pub(super) fn open(
        connection: Connection,
        database: (&Path, Access, Option<Arc<Database>>),
        (segments, loss): (Option<&Arc<Segments>>, Loss),
        header: &Header,
        zeros: &Arc<ZeroValues>,
    ) -> Result<Writer> {
        let options = &header.options;
        let tail = tail_of(&connection)?;
        refuse_lost_tail(&connection, tail)?;
        let (path, access, database) = database;
        let wal_bytes = std::fs::metadata(Wal::path_of(path)).map_or(0, |metadata| metadata.len());
        let reclaimer = segments.map(|segments| Reclaimer::new(segments.clone(), path, access));
        let history = retaining::history(&connection)?;
        Ok(Writer {
            connection,
            history,
            database,
            wal: Wal::path_of(path),
            room: Arc::new(Room::of_log(wal_bytes)),
            in_doubt: true,
            is_full: false,
            keeps_segments: loss == Loss::Accept,
            is_first_copied: false,
            is_list_known: false,
            is_unsealed: false,
            has_taken_over: false,
            held: Vec::new(),
            unnoted: Vec::new(),
            noted: Vec::new(),
            notices: Vec::new(),
            tail,
            next_freed: 1,
            waiting: FreedSpace::default(),
            reclaimer,
            segments: segments.cloned(),
            block_size: u64::from(options.block_size),
            sum: header.fixed_sum(),
            digester: options.digests.then(|| Digester::new(zeros.clone())),
        })
    }

    /// Before the first commit, which nobody makes who does not believe what is there: goes behind
    /// what belongs to no block, and finds what is to be given back once that commit is durable.
    fn take_over(&mut self) -> Result<()> {
        if self.has_taken_over {
            return Ok(());
        }
        if let Some(segments) = self.segments.clone() {
            self.go_behind(&segments)?;
            segments.sweep(self.tail, &self.segment_ids()?)?;
            let rows = self.freed_rows()?;
            self.next_freed = self.last_freed()?.saturating_add(1);
            let is_unproved = !rows.is_empty();
            self.waiting = FreedSpace { rows, is_unproved, ..FreedSpace::default() };
        }
        self.has_taken_over = true;
        Ok(())
    }

    /// Has blocks appended where nothing lies.
    fn go_behind(&mut self, segments: &Segments) -> Result<()> {
        if !self.held.is_empty() {
            // Done by a try that failed later.
            return Ok(());
        }
        let is_any = segments.is_any_behind(self.tail)?;
        if is_any && !self.keeps_segments && is_any_behind(&self.connection, self.tail)? {
            return Err(lost_tail());
        }
        let held = segments.behind(self.tail)?;
        if self.keeps_segments || !held.is_empty() {
            self.tail = Tail { segment: segments.last()?.max(self.tail.segment).saturating_add(1), length: 0 };
        } else if is_any {
            segments.recover(self.tail)?;
        }
        if !self.keeps_segments {
            self.notices.extend(notice(segments, &held));
            self.unnoted.clone_from(&held);
        }
        self.held = held;
        Ok(())
    }

    fn segment_ids(&self) -> Result<Vec<u32>> {
        let mut statement = self.connection.prepare("SELECT id FROM segments").map_err(failed)?;
        let ids = statement.query_map((), |row| row.get(0)).map_err(failed)?;
        ids.collect::<rusqlite::Result<_>>().map_err(failed)
    }

    /// The highest number of a row of `freed`, damaged ones included. Numbers that no Weft gives
    /// must leave room for its own.
    fn last_freed(&self) -> Result<i64> {
        let last = "SELECT coalesce(max(id), 0) FROM freed WHERE id < ?1";
        self.connection.query_row(last, (i64::MAX / 2,), |row| row.get(0)).map_err(failed)
    }

    fn freed_rows(&self) -> Result<Vec<(i64, u32, u64, u64)>> {
        // What is damaged may name space that is in use.
        let whole = format!("SELECT id, segment, position, length FROM freed WHERE {} ORDER BY id", FREED.holds());
        let mut statement = self.connection.prepare(&whole).map_err(failed)?;
        let rows = statement.query_map((), |row| Ok((row.get(0)?, row.get(1)?, unsigned(row, 2)?, unsigned(row, 3)?)));
        rows.map_err(failed)?.collect::<rusqlite::Result<_>>().map_err(failed)
    }

    /// Returns what is kept of the past; none if nothing is.
    pub(super) fn history(&self) -> Option<&History> {
        self.history.as_ref()
    }

    /// Returns the place of the next block.
    pub(super) fn tail(&self) -> Tail {
        self.tail
    }

    /// Sees that all that was committed is on the disk, if that is in doubt.
    fn renew(&mut self) -> Result<()> {
        if self.in_doubt {
            let database = self.database.as_ref().ok_or_else(|| Error::Bug("a volume that is only read".into()))?;
            renew(&self.connection, database)?;
            self.in_doubt = false;
        }
        Ok(())
    }

    /// Before anything is changed: fails if the list of free pages is damaged.
    fn know_list(&mut self) -> Result<()> {
        if !self.is_list_known {
            self.database.as_ref().map_or(Ok(()), |database| database.refuse_damaged_list())?;
            self.is_list_known = true;
        }
        Ok(())
    }

    /// Begins a transaction, which [`Writer::commit`] or [`Writer::roll_back`] ends.
    pub(super) fn begin(&mut self, durability: Durability) -> Result<()> {
        self.know_list()?;
        self.renew()?;
        if self.is_full {
            // Once the database has what the log holds, the log is written from its beginning
            // again, and takes no more than it has: what makes space free needs some. There is none
            // for that if others took it.
            let _ = self.checkpoint();
            self.is_full = false;
        }
        self.take_over()?;
        let synchronous = match durability {
            Durability::Eventual => "PRAGMA synchronous = NORMAL; BEGIN IMMEDIATE",
            Durability::Durable => "PRAGMA synchronous = FULL; BEGIN IMMEDIATE",
        };
        self.connection.execute_batch(synchronous).map_err(failed)
    }

    /// Ends the transaction, whose blocks end at `tail`; `written` is what [`Writer::write_rows`]
    /// told.
    pub(super) fn commit(&mut self, written: Written, tail: Tail) -> Result<()> {
        let Written { freed, history, sum } = written;
        let committed = self.connection.execute_batch("COMMIT").map_err(failed);
        self.in_doubt |= committed.is_err();
        committed?;
        self.tail = tail;
        self.history = history;
        self.sum = sum;
        self.next_freed += i64::try_from(freed.rows.len() + freed.noted.len()).unwrap_or(i64::MAX);
        self.noted.extend(&freed.noted);
        self.unnoted.clear();
        self.waiting.add(freed);
        Ok(())
    }

    /// Notes that a commit has failed. If it lacked space, its remains in the log are cut off
    /// before anything else is written, so that they take no space themselves.
    pub(super) fn has_failed(&mut self, error: &Error) {
        if error.kind() == ErrorKind::Full {
            self.in_doubt = true;
            self.is_full = true;
        }
    }

    /// Ends the transaction without a trace.
    pub(super) fn roll_back(&self) {
        if !self.connection.is_autocommit() {
            // The error that led here says more than one of the rollback would.
            let _ = self.connection.execute_batch("ROLLBACK");
        }
    }

    /// Writes rows; tells what that leaves to be done.
    pub(super) fn write_rows(&self, new: &NewRows<'_>) -> Result<Written> {
        let NewRows { batch, blocks, tail, wait } = *new;
        let connection = &self.connection;
        let touched = if self.history.is_some() { batch.touched() } else { FxHashSet::default() };
        let keeping = self.history.as_ref().map(|_| Keeping::new(connection, batch.commit, &touched)).transpose()?;
        // A damaged volume may have extents of inodes that are new by its counters.
        let plan = ExtentPlan::of(batch, Ino(u64::MAX), Merging::Apart, |block| Ok(block.id))?;
        let mut references = References::default();
        extents::replace((connection, keeping), batch.commit, &plan, &mut references)?;
        merge::merge(connection, self.history.as_ref(), &batch.merged, &mut references)?;
        extents::insert(connection, blocks, &mut references)?;
        let rows = Rows { connection, segments: self.segments.as_deref(), wait, elsewhere: None, keeping };
        let mut digests = self.digester.as_ref().map(|digester| digester.begin(&rows, self.block_size));
        if let Some(digests) = &mut digests {
            plan.cleared.into_iter().for_each(|(ino, range)| digests.clear(ino, range));
            plan.put.iter().for_each(|(ino, span, _)| digests.put(*ino, *span));
            let alone = blocks.iter().filter_map(|stored| Some((stored.block.id, stored.alone?)));
            alone.chain(batch.alone.iter().copied()).for_each(|(block, digest)| digests.alone(block, digest));
        }
        self.write_inodes(batch, keeping, digests.as_mut())?;
        self.write_names(batch, keeping, digests.as_mut())?;
        if let Some(digests) = digests {
            digests.finish()?;
        }
        self.write_xattrs(batch, keeping)?;
        let history = retaining::change(connection, self.history.clone(), batch, &mut references)?;
        let freed = extents::settle(connection, &references)?;
        let freed = self.write_segments(blocks, &freed, tail)?;
        let sum = batch.limits.map_or(Ok(self.sum), |limits| self.set_limits(limits))?;
        self.write_counters(batch, sum, history.as_ref())?;
        Ok(Written { freed, history, sum })
    }

    fn write_inodes(
        &self,
        batch: &Batch,
        keeping: Option<Keeping<'_>>,
        mut digests: Option<&mut CommitDigests<'_>>,
    ) -> Result<()> {
        let connection = &self.connection;
        let mut puts = Vec::new();
        for change in &batch.inodes {
            match change {
                InodeChange::Put(row) => puts.push(row),
                InodeChange::Remove(ino) => {
                    keeping.map_or(Ok(()), |keeping| keeping.removed(*ino))?;
                    if let Some(digests) = &mut digests {
                        digests.remove(*ino)?;
                    }
                    for statement in ["DELETE FROM fileatt WHERE ino = ?1", "DELETE FROM xattr WHERE ino = ?1"] {
                        let mut statement = connection.prepare_cached(statement).map_err(failed)?;
                        statement.execute((sql(ino.0),)).map_err(failed)?;
                    }
                }
            }
        }
        puts.sort_unstable_by_key(|row| row.ino);
        for row in puts {
            let digest = digests.as_mut().map(|digests| digests.inode(row)).transpose()?.flatten();
            let since = keeping.map_or(Ok(batch.commit), |keeping| keeping.inode(row, digest.as_ref()))?;
            put_inode(connection, since, row, digest.as_ref())?;
        }
        Ok(())
    }

    fn write_names(
        &self,
        batch: &Batch,
        keeping: Option<Keeping<'_>>,
        mut digests: Option<&mut CommitDigests<'_>>,
    ) -> Result<()> {
        let mut remove =
            self.connection.prepare_cached("DELETE FROM naming WHERE parent = ?1 AND name = ?2").map_err(failed)?;
        let mut puts: Vec<&NameRow> = Vec::new();
        for change in &batch.names {
            match change {
                NameChange::Put(row) => puts.push(row),
                NameChange::Remove { parent, name } => {
                    keeping.map_or(Ok(()), |keeping| keeping.removed_name(*parent, name.as_bytes()))?;
                    remove.execute((sql(parent.0), name.as_bytes())).map_err(failed)?;
                    if let Some(digests) = &mut digests {
                        digests.remove_name(*parent, name);
                    }
                }
            }
        }
        puts.sort_unstable_by(|a, b| (a.parent, &a.name).cmp(&(b.parent, &b.name)));
        // An entry renamed in its directory keeps its position. The row of its old name may hold
        // that until this batch gives it another: such entries go last, when no row holds what they
        // have lost.
        let mut late = Vec::new();
        for row in puts {
            let digest = digests.as_mut().map(|digests| digests.name(row)).transpose()?.flatten();
            let since = keeping.map_or(Ok(batch.commit), |keeping| keeping.name(row))?;
            match put_name(&self.connection, since, row, digest.as_ref()) {
                Err(error) if is_constraint(&error) => late.push((row, digest)),
                other => other?,
            }
        }
        for (row, _) in &late {
            remove.execute((sql(row.parent.0), row.name.as_bytes())).map_err(failed)?;
        }
        late.into_iter().try_for_each(|(row, digest)| put_name(&self.connection, batch.commit, row, digest.as_ref()))
    }

    /// Splits a block where it lies, as [`crate::Transaction::split_block`].
    pub(super) fn split_block(&self, split: &SplitBlock) -> Result<Option<Vec<BlockRef>>> {
        super::split::split(&self.connection, split)
    }

    /// Puts the bytes of `blocks` into the database.
    pub(super) fn write_bytes(&self, blocks: &[NewBlock]) -> Result<()> {
        let statement = "INSERT INTO block_bytes (id, bytes) VALUES (?1, ?2)";
        let mut statement = self.connection.prepare_cached(statement).map_err(failed)?;
        for new in blocks {
            let bytes = new.bytes.contiguous();
            statement.execute((sql(new.id.0), &bytes[..])).map_err(failed)?;
        }
        Ok(())
    }

    fn write_xattrs(&self, batch: &Batch, keeping: Option<Keeping<'_>>) -> Result<()> {
        let put = "INSERT INTO xattr (ino, name, value, since, sum) VALUES (?1, ?2, ?3, ?4, ?5) \
                   ON CONFLICT (ino, name) DO UPDATE SET value = excluded.value, since = excluded.since, sum = excluded.sum";
        let mut put = self.connection.prepare_cached(put).map_err(failed)?;
        let mut remove =
            self.connection.prepare_cached("DELETE FROM xattr WHERE ino = ?1 AND name = ?2").map_err(failed)?;
        for change in &batch.xattrs {
            let (ino, name) = (sql(change.ino.0), change.name.as_bytes());
            keeping.map_or(Ok(()), |keeping| keeping.xattr(change.ino, name))?;
            match &change.value {
                Some(value) => {
                    let sum = sums::xattr(change.ino, name, value, batch.commit);
                    put.execute((ino, name, value, sql(batch.commit.0), sum)).map_err(failed)?
                }
                None => remove.execute((ino, name)).map_err(failed)?,
            };
        }
        Ok(())
    }

    /// Accounts for the space of new and dead blocks.
    fn write_segments(&self, blocks: &[Stored], freed: &Freed, tail: Tail) -> Result<FreedSpace> {
        let connection = &self.connection;
        let mut live = std::collections::BTreeMap::<u32, (i64, u64)>::new();
        for Stored { block, .. } in blocks {
            if let Place::Segment { segment, offset } = block.place {
                let entry = live.entry(segment).or_default();
                let taken = super::segments::taken(u64::from(block.length));
                entry.0 += sql(taken);
                entry.1 = entry.1.max(offset + taken);
            }
        }
        for ((segment, _), length) in freed {
            live.entry(*segment).or_default().0 -= sql(*length);
        }
        if !self.unnoted.is_empty() {
            // From now on they lie before the tail, as all space that is to be given back does:
            // where it is given back, nothing is written meanwhile.
            live.entry(self.tail.segment).or_default();
        }
        // A damaged row stays as it is, so that it is found.
        let put = "INSERT INTO segments (id, length, live, sum) VALUES (?1, ?2, ?3, weft_sum('segments', ?1, ?2, ?3)) \
                   ON CONFLICT (id) DO UPDATE SET live = live + excluded.live, length = max(length, excluded.length), \
                   sum = weft_sum('segments', id, max(length, excluded.length), live + excluded.live) \
                   WHERE sum IS weft_sum('segments', id, length, live)";
        let mut put = connection.prepare_cached(put).map_err(failed)?;
        for (segment, (change, end)) in live {
            put.execute((segment, sql(end), change)).map_err(failed)?;
        }
        let forget = "DELETE FROM segments WHERE live <= 0 AND id < ?1 AND sum IS weft_sum('segments', id, length, live) \
                      RETURNING id";
        let mut forget = connection.prepare_cached(forget).map_err(failed)?;
        let emptied = forget.query_map((tail.segment,), |row| row.get(0)).map_err(failed)?;
        let mut emptied = emptied.collect::<rusqlite::Result<Vec<u32>>>().map_err(failed)?;
        emptied.retain(|id| self.held.iter().all(|unowned| unowned.segment != *id));
        self.forget_freed()?;
        let mut insert = connection
            .prepare_cached(
                "INSERT INTO freed (id, segment, position, length, sum) \
                 VALUES (?1, ?2, ?3, ?4, weft_sum('freed', ?2, ?3, ?4))",
            )
            .map_err(failed)?;
        let mut numbers = self.next_freed..;
        let mut noted = Vec::with_capacity(self.unnoted.len());
        for (row, Unowned { segment, offset, length }) in numbers.by_ref().zip(&self.unnoted) {
            insert.execute((row, segment, sql(*offset), sql(*length))).map_err(failed)?;
            noted.push(row);
        }
        let mut rows = Vec::with_capacity(freed.len());
        for (row, ((segment, offset), length)) in numbers.zip(freed) {
            insert.execute((row, segment, sql(*offset), sql(*length))).map_err(failed)?;
            rows.push((row, *segment, *offset, *length));
        }
        Ok(FreedSpace { rows, emptied, noted, is_unproved: false })
    }

    /// Deletes the rows of `freed` whose space was given back.
    fn forget_freed(&self) -> Result<()> {
        let Some(reclaimer) = &self.reclaimer else { return Ok(()) };
        let statement = "DELETE FROM freed WHERE id > ?1 AND id < ?2 \
                         AND sum IS weft_sum('freed', segment, position, length)";
        let mut statement = self.connection.prepare_cached(statement).map_err(failed)?;
        let mut after = i64::MIN;
        let mut kept = reclaimer.refuted();
        kept.extend(&self.noted);
        kept.sort_unstable();
        for before in kept.into_iter().chain([i64::MAX]) {
            let end = before.min(reclaimer.done().saturating_add(1));
            statement.execute((after, end)).map_err(failed)?;
            after = before;
        }
        Ok(())
    }

    /// Writes other limits of the volume; returns the sum of what commits do not change in its row.
    fn set_limits(&self, limits: Limits) -> Result<i64> {
        let mut header = super::open::read_header(&self.connection)?;
        header.options.set_limits(limits);
        let mut set = self
            .connection
            .prepare_cached("UPDATE volume SET bytes_max = ?1, inodes_max = ?2 WHERE id = 1")
            .map_err(failed)?;
        set.execute((limits.bytes_max.map(sql), limits.inodes_max.map(sql))).map_err(failed)?;
        Ok(header.fixed_sum())
    }

    /// Writes the counters, and the row of the commit; `sum` is of what commits do not change in
    /// the volume's row.
    fn write_counters(&self, batch: &Batch, sum: i64, history: Option<&History>) -> Result<()> {
        let counters = &batch.counters;
        let statement = "UPDATE volume SET number = ?1, op = ?2, next_id = ?3, next_block = ?4, epoch = ?5, \
                         bytes_used = ?6, inodes_used = ?7, sum = ?8 WHERE id = 1 AND number = ?1 - 1";
        let changed = self
            .connection
            .prepare_cached(statement)
            .map_err(failed)?
            .execute((
                sql(batch.commit.0),
                sql(counters.op.0),
                sql(counters.next_id),
                sql(counters.next_block),
                sql(counters.epoch),
                sql(counters.bytes_used),
                sql(counters.inodes_used),
                sums::add(sum, sums::counters(batch.commit, counters)),
            ))
            .map_err(failed)?;
        if changed != 1 {
            return Err(Error::Bug(format!("commit {} does not follow the last one", batch.commit.0)));
        }
        let (root, previous) = match self.digester {
            Some(_) => (read::digest_of(&self.connection, Ino::ROOT)?, self.previous_commit(batch)?),
            None => (None, None),
        };
        batch.refuse_other_tree(root.as_ref())?;
        let sum = sums::commit(&CommitRow { number: batch.commit, time: batch.time, op: counters.op, root, previous });
        let [root, previous] = [&root, &previous].map(|digest| digest.as_ref().map(|digest| &digest[..]));
        self.connection
            .prepare_cached(
                "INSERT INTO commits (number, time, op, root_digest, previous_digest, sum) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            )
            .map_err(failed)?
            .execute((sql(batch.commit.0), batch.time.0, sql(counters.op.0), root, previous, sum))
            .map_err(failed)?;
        if let Some(history) = history {
            return retaining::forget_old_commits(&self.connection, history, batch.commit);
        }
        let old = sql(batch.commit.0.saturating_sub(COMMITS_KEPT));
        let mut forget = self.connection.prepare_cached("DELETE FROM commits WHERE number <= ?1").map_err(failed)?;
        forget.execute((old,)).map(drop).map_err(failed)
    }

    /// The digest of the commit before `batch`; none if that kept no digest of its tree, or is
    /// damaged.
    fn previous_commit(&self, batch: &Batch) -> Result<Option<Digest>> {
        let number = batch.commit.0 - 1;
        let row = match read::commits(&self.connection, CommitNo(number), 1) {
            Err(error) if error.kind() == ErrorKind::Corrupt => None,
            read => read?.pop(),
        };
        Ok(row.filter(|row| row.number.0 == number).and_then(|row| row.digest()))
    }

    /// After a commit that succeeded: keeps the write-ahead log short and gives back space. What
    /// fails here is tried again after the next commit.
    pub(super) fn after_commit(&mut self, durability: Durability) {
        let mut durable = durability == Durability::Durable;
        if durable && !self.is_first_copied {
            // The database alone must say that the logs beside it are needed, should they be lost.
            self.is_first_copied = self.checkpoint().unwrap_or(false);
        }
        if self.wal_bytes() > WAL_BYTES_MAX || (!durable && self.waiting.bytes() > FREED_BYTES_MAX) {
            durable |= self.checkpoint().unwrap_or(false);
        }
        if durable && !self.in_doubt {
            self.reclaim();
        }
        self.room.look(&self.connection, &self.wal);
    }

    /// Cuts off what commits that failed left behind the last block. What was found at the opening
    /// and kept stays.
    pub(super) fn cut(&mut self) -> Result<Behind> {
        let Some(segments) = self.segments.as_ref().filter(|_| self.has_taken_over) else { return Ok(Behind::Nothing) };
        if segments.is_any_behind(self.tail)? {
            segments.recover(self.tail)?;
            segments.sync_cut(self.tail)?;
        }
        let tail = tail_of(&self.connection)?;
        if !segments.behind(tail)?.is_empty() {
            return Ok(Behind::Kept);
        }
        if segments.is_any_behind(tail)? {
            segments.recover(tail)?;
            segments.sync_cut(tail)?;
        }
        Ok(Behind::Nothing)
    }

    /// Copies commits into the database, so that the write-ahead log may be lost.
    pub(super) fn settle(&mut self, settled: Settled) -> Result<()> {
        let copied = match self.checkpoint() {
            // It is in the log alone until there is room.
            Err(error) if error.kind() == ErrorKind::Full => return Ok(()),
            copied => copied?,
        };
        if copied && settled == Settled::Emptied {
            self.connection.busy_timeout(Duration::ZERO).map_err(failed)?;
            let emptied = self.copy_log("PRAGMA wal_checkpoint(TRUNCATE)");
            self.connection.busy_timeout(BUSY).map_err(failed)?;
            emptied?;
        }
        Ok(())
    }

    /// Room for rows, as it is after each commit.
    pub(super) fn room(&self) -> Arc<Room> {
        self.room.clone()
    }

    /// Has everything that commits freed given back, as far as they can be made durable; tells what
    /// goes on then.
    pub(super) fn give_back(&mut self) -> Option<Ongoing> {
        let is_any = !self.waiting.rows.is_empty() || !self.waiting.emptied.is_empty();
        let is_kept = self.room.waiting.load(Ordering::Relaxed) > 0;
        // What cannot be made durable now will be by a later commit.
        if (is_any || is_kept) && self.checkpoint().unwrap_or(false) {
            self.reclaim();
        }
        self.room.look(&self.connection, &self.wal);
        self.reclaimer.as_ref().map(Reclaimer::ongoing)
    }

    /// Returns notices for the user since the last call.
    pub(super) fn notices(&mut self) -> Vec<String> {
        let mut notices = std::mem::take(&mut self.notices);
        notices.extend(self.reclaimer.iter().flat_map(Reclaimer::notices));
        notices
    }

    fn wal_bytes(&self) -> u64 {
        std::fs::metadata(&self.wal).map_or(0, |metadata| metadata.len())
    }

    /// Sees that a checkpoint copies what was committed. If not, nothing can be committed any more
    /// either: what follows a frame that is not whole would be lost.
    fn verify(&mut self) -> Result<()> {
        let verified = self.database.as_ref().map_or(Ok(()), |database| verify(&self.connection, database));
        self.in_doubt |= verified.is_err();
        verified
    }

    /// Copies the write-ahead log into the database, durably, as far as readers allow. Tells
    /// whether all of it was: SQLite syncs nothing when readers leave it nothing to copy.
    fn checkpoint(&mut self) -> Result<bool> {
        self.copy_log("PRAGMA wal_checkpoint(PASSIVE)")
    }

    fn copy_log(&mut self, how: &str) -> Result<bool> {
        self.know_list()?;
        self.renew()?;
        self.verify()?;
        let is_any = self.wal_bytes() > 0;
        // If that fails, SQLite's own descriptor is to be told by a sync now, not at the next try.
        let unsealed = if is_any { self.unseal() } else { Ok(()) };
        let all = |row: &rusqlite::Row<'_>| Ok(row.get::<_, i64>(0)? == 0 && row.get::<_, i64>(1)? == row.get(2)?);
        let copied = self.connection.query_row(how, (), all).map_err(failed);
        self.in_doubt |= copied.is_err() || unsealed.is_err();
        unsealed?;
        if let (Ok(true), true, Some(database)) = (&copied, is_any, &self.database) {
            database.seal();
            self.is_unsealed = false;
        }
        copied
    }

    /// Takes the seal from the list of free pages before the database changes.
    fn unseal(&mut self) -> Result<()> {
        if !self.is_unsealed {
            self.database.as_ref().map_or(Ok(()), |database| database.unseal())?;
            self.is_unsealed = true;
        }
        Ok(())
    }

    /// Copies all of the write-ahead log into the database, durably, and empties it, unless
    /// somebody else still reads it. One that nothing was committed to stays as it was found.
    pub(super) fn close(&mut self) -> Result<()> {
        if !self.has_taken_over {
            return Ok(());
        }
        self.renew()?;
        if let Some(reclaimer) = &self.reclaimer {
            reclaimer.ongoing().wait();
            // So that the next opening finds nothing to prove.
            let forgotten = self.forget_freed();
            self.in_doubt |= forgotten.is_err();
            forgotten?;
        }
        let how = "PRAGMA wal_checkpoint(TRUNCATE)";
        let emptied = match self.copy_log(how) {
            // Some of the room that was missing may be what renewing cuts off.
            Err(error) if error.kind() == ErrorKind::Full => self.copy_log(how),
            emptied => emptied,
        };
        emptied.map(drop)
    }

    /// Gives back the space that durable commits freed.
    fn reclaim(&mut self) {
        if let Some(reclaimer) = &mut self.reclaimer {
            self.room.given_back.fetch_add(self.waiting.bytes(), Ordering::Relaxed);
            reclaimer.reclaim(std::mem::take(&mut self.waiting));
        }
    }
}

/// Opening cuts segments off after the tail: it must not lie before the last block. That is one of
/// the highest ids, since blocks are appended in the order of their ids; parts of a block that was
/// split have higher ones.
pub(super) fn refuse_lost_tail(connection: &Connection, tail: Tail) -> Result<()> {
    let last = format!(
        "SELECT segment, position + length FROM blocks WHERE segment IS NOT NULL AND {} ORDER BY id DESC LIMIT {LAST_BLOCKS}",
        BLOCK.holds()
    );
    let mut last = connection.prepare(&last).map_err(failed)?;
    let ends = last.query_map((), |row| Ok((row.get::<_, u32>(0)?, unsigned(row, 1)?))).map_err(failed)?;
    let last = ends.collect::<rusqlite::Result<Vec<_>>>().map_err(failed)?.into_iter().max();
    match last {
        Some(end) if end > (tail.segment, tail.length) => Err(lost_tail()),
        _ => Ok(()),
    }
}

fn lost_tail() -> Error {
    Error::Corrupt("the table of segments ends before the last block; 'weft check --repair' puts it right".into())
}

impl Drop for Writer {
    fn drop(&mut self) {
        // Its thread may have the database open.
        self.reclaimer = None;
        // Best effort: what is not copied now is copied at the next opening.
        let closed = self.close().is_ok();
        if (closed && self.has_taken_over) || self.wal_bytes() == 0 {
            let _ = at_close(&self.connection, AtClose::Copy);
        }
    }
}
