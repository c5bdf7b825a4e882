//! The rows of a commit, in one go, and what ends it.
//!
//! It knows all kinds of rows as `write` makes statements of them, and their order: what belongs to
//! blocks first, the row of the commit last, behind the lease.

use super::digests::Digested;
use super::references::Plan;
use super::{PostgresTransaction, WHAT};
use crate::batch::Batch;
use crate::error::{Error, Result};
use crate::history::kept::COMMITS_KEPT;
use crate::overlay::Changes;
use crate::postgres::connection::{Call, Parameter};
use crate::postgres::digests::Known;
use crate::postgres::keep::{Age, Keeping, Replaced};
use crate::postgres::read::int;
use crate::postgres::statements as sql;
use crate::postgres::write::{self, BlockRow, Entries, Extents, Outgoing};
use crate::postgres::{intents, settings};
use crate::row::{CommitNo, CommitRow, Ino, InodeRow};
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use weft_digest::{Digest, Kind};

/// Inodes that are put with another access time at most, and the commits that their rows are of.
type Same = FxHashMap<Ino, CommitNo>;

/// State that a commit leaves for the next one.
pub(super) struct Committed {
    pub(super) commit: CommitRow,
    pub(super) known: Known,
    /// Owners whose own tables are to be dropped.
    pub(super) empty: BTreeSet<Ino>,
    pub(super) keeps_history: bool,
    /// The sum from then on of what commits do not change in the volume's row.
    pub(super) sum: i64,
}

impl PostgresTransaction<'_> {
    /// Writes the rows of `batch`, and commits.
    pub(super) fn write(&mut self, batch: &Batch) -> Result<Committed> {
        if batch.commit != self.store.header.lock().commit.next() {
            return Err(Error::Bug(format!("commit {} does not follow the last one", batch.commit.0)));
        }
        self.receive()?;
        let mut history = self.plan_history(batch)?;
        let mut plan = self.plan(batch, &mut history)?;
        let (own_calls, empty) = self.own_tables(&plan)?;
        let new_rows = self.new_rows(&mut plan.references)?;
        let Digested { changes, mut known, root } = self.digested(batch)?;
        batch.refuse_other_tree(root.as_ref())?;
        let same = if history.keeps { self.same_inodes(batch, &changes, &mut known)? } else { Same::default() };
        let commit = self.commit_row(batch, root);
        self.kept.clear();
        let (sum, limits_call) = self.limits(batch);
        let first = own_calls.into_iter().chain(std::mem::take(&mut history.calls)).chain(limits_call).collect();
        let calls = self.send_rows(batch, &changes, (&plan, &new_rows), (first, &same, history.keeps))?;
        self.end(batch, calls, (&commit, sum), history.is_on)?;
        self.learn_ages(batch, &changes, (&same, history.is_on), &mut known);
        known.learn(changes);
        Ok(Committed { commit, known, empty, keeps_history: history.is_on, sum })
    }

    /// Returns the sum of what commits do not change in the volume's row, as it is from `batch` on,
    /// and the call that sets its limits.
    fn limits(&self, batch: &Batch) -> (i64, Option<Call>) {
        let Some(limits) = batch.limits else { return (self.writer.sum, None) };
        let mut header = self.store.header.lock().clone();
        header.options.set_limits(limits);
        let columns: Vec<Parameter> = vec![Box::new(limits.bytes_max.map(int)), Box::new(limits.inodes_max.map(int))];
        (header.fixed_sum(), Some(Call::new(sql::SET_LIMITS, columns)))
    }

    /// Returns the inodes whose rows `batch` puts with another access time at most, and of which it
    /// changes nothing else, with the commits that they are of.
    fn same_inodes(&mut self, batch: &Batch, changes: &Changes, known: &mut Known) -> Result<Same> {
        let (fresh, touched) = (self.writer.fresh, batch.touched());
        let put = || batch.put_inodes().filter(|row| row.ino < fresh && !touched.contains(&row.ino));
        let inos = put().map(|row| row.ino).collect::<Vec<_>>();
        let ages = known.ages(self.writer.connection(), &inos)?;
        let same = put().filter_map(|row| {
            let age = ages.get(&row.ino)?;
            age.is_of(row, changes.digest(row.ino).as_ref()).then_some((row.ino, age.since))
        });
        Ok(same.collect())
    }

    /// Remembers the rows that `batch` puts, where the next commits would ask for no more than that
    /// they know of them: of directories, and of all inodes where digests ask for none.
    fn learn_ages(&self, batch: &Batch, changes: &Changes, (same, is_on): (&Same, bool), known: &mut Known) {
        let keeps = |row: &InodeRow| is_on && (row.kind == Kind::Directory || self.writer.digester.is_none());
        let age = |row: &InodeRow| {
            let since = same.get(&row.ino).copied().unwrap_or(batch.commit);
            (row.ino, keeps(row).then(|| Age::new(row, since, changes.digest(row.ino).as_ref())))
        };
        known.learn_ages(batch.put_inodes().map(age).chain(batch.removed().map(|ino| (ino, None))));
    }

    /// Returns the row of the commit of `batch`, chained to the one before.
    fn commit_row(&self, batch: &Batch, root: Option<Digest>) -> CommitRow {
        let writer = &*self.writer;
        let previous = writer.last.filter(|last| last.number.next() == batch.commit).and_then(|last| last.digest());
        let previous = previous.filter(|_| writer.digester.is_some());
        CommitRow { number: batch.commit, time: batch.time, op: batch.counters.op, root, previous }
    }

    /// Sends the rows of `batch` behind `first`, but for the last ones: returns the calls for
    /// those.
    fn send_rows(
        &mut self,
        batch: &Batch,
        changes: &Changes,
        (plan, new_rows): (&Plan, &[BlockRow]),
        (first, same, keeps): (Vec<Call>, &Same, bool),
    ) -> Result<Vec<Call>> {
        let fresh = self.writer.fresh;
        let connection = self.writer.connection();
        let mut out = Outgoing::new(first, |calls: &[Call]| connection.query_all(WHAT, calls).map(drop));
        if keeps {
            let replaced = Replaced { batch, changes, extents: &plan.extents, same, fresh };
            Keeping::new(batch.commit).all(&replaced, &mut out)?;
        }
        write::contents(batch, changes, (new_rows, same), &mut out)?;
        let entries = if keeps { Entries::Kept } else { Entries::Written };
        let Plan { extents, references, dead, .. } = plan;
        let extents = Extents { removed: &extents.replaced, put: &extents.put, references, dead };
        write::rows(batch, changes, &extents, (fresh, entries), &mut out)?;
        Ok(out.rest())
    }

    /// Sends `calls` with those that end the commit, and forget old ones while history is off.
    fn end(
        &mut self,
        batch: &Batch,
        mut calls: Vec<Call>,
        (commit, sum): (&CommitRow, i64),
        keeps_history: bool,
    ) -> Result<()> {
        calls.extend(self.log_calls(batch));
        calls.extend(self.fence_calls());
        let forgotten = CommitNo(batch.commit.0.saturating_sub(COMMITS_KEPT));
        let forgotten = Some(forgotten).filter(|_| !keeps_history);
        calls.extend(write::end(batch, commit, (self.writer.epoch, sum), forgotten));
        let connection = self.writer.connection();
        connection.take_warning();
        match connection.query_all(WHAT, &calls) {
            Ok(_) => {
                self.is_over = true;
                if batch.carried.is_empty() {
                    self.store.has_carried.store(false, Ordering::Relaxed);
                }
                if connection.take_warning() { self.store.confirm(connection) } else { Ok(()) }
            }
            Err(error) => self.settle(error, commit),
        }
    }

    /// Returns the calls that change the intent log with the commit.
    fn log_calls(&self, batch: &Batch) -> Vec<Call> {
        let mut calls = Vec::new();
        if self.store.has_intents.swap(false, Ordering::Relaxed) {
            calls.push(Call::new(sql::FORGET_INTENTS, vec![Box::new(int(batch.counters.op.0))]));
        }
        let header = self.store.header.lock().clone();
        calls.extend(intents::begin_epoch(&header, batch.counters.epoch));
        calls.extend(intents::carry(&header, batch, &self.store.has_carried));
        calls
    }

    /// Returns the calls that refuse the commit where the server would not keep it.
    fn fence_calls(&mut self) -> Vec<Call> {
        let uuid = self.store.header.lock().uuid;
        let (connection, address) = (self.writer.connection(), &self.store.connector.address);
        let mut calls = vec![settings::refuse_weak_call(connection, address, &uuid)];
        calls.extend(settings::refuse_emptied_call(connection, address));
        calls
    }
}
