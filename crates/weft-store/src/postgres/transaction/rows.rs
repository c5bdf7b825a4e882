//! The rows of a commit, in one go, and what ends it.
//!
//! It knows all kinds of rows as `write` makes statements of them, and their order: what belongs to
//! blocks first, the row of the commit last, behind the lease.

use super::digests::Digested;
use super::references::Plan;
use super::{PostgresTransaction, WHAT};
use crate::batch::Batch;
use crate::error::{Error, Result};
use crate::overlay::Changes;
use crate::postgres::connection::Call;
use crate::postgres::digests::Known;
use crate::postgres::read::int;
use crate::postgres::statements as sql;
use crate::postgres::write::{self, BlockRow, Extents, Outgoing};
use crate::postgres::{intents, settings};
use crate::row::{CommitRow, Ino};
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use weft_digest::Digest;

/// Commits kept in `commits` while history is off.
const COMMITS_KEPT: u64 = 1024;

/// State that a commit leaves for the next one.
pub(super) struct Committed {
    pub(super) commit: CommitRow,
    pub(super) known: Known,
    /// Owners whose own tables are to be dropped.
    pub(super) empty: BTreeSet<Ino>,
}

impl PostgresTransaction<'_> {
    /// Writes the rows of `batch`, and commits.
    pub(super) fn write(&mut self, batch: &Batch) -> Result<Committed> {
        if batch.commit != self.store.header.lock().commit.next() {
            return Err(Error::Bug(format!("commit {} does not follow the last one", batch.commit.0)));
        }
        self.receive()?;
        let mut plan = self.plan(batch)?;
        let (own_calls, empty) = self.own_tables(&plan)?;
        let new_rows = self.new_rows(&mut plan.references)?;
        let Digested { changes, mut known, root } = self.digested(batch)?;
        let commit = self.commit_row(batch, root);
        self.kept.clear();
        let calls = self.send_rows(batch, &changes, (&plan, &new_rows), own_calls)?;
        self.end(batch, calls, &commit)?;
        known.learn(changes);
        Ok(Committed { commit, known, empty })
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
        first: Vec<Call>,
    ) -> Result<Vec<Call>> {
        let fresh = self.writer.fresh;
        let connection = self.writer.connection();
        let mut out = Outgoing::new(first, |calls: &[Call]| connection.query_all(WHAT, calls).map(drop));
        write::contents(batch, changes, new_rows, &mut out)?;
        let Plan { extents, references, dead, .. } = plan;
        let extents = Extents { removed: &extents.replaced, put: &extents.put, references, dead };
        write::rows(batch, changes, &extents, fresh, &mut out)?;
        Ok(out.rest())
    }

    /// Sends `calls` with those that end the commit.
    fn end(&mut self, batch: &Batch, mut calls: Vec<Call>, commit: &CommitRow) -> Result<()> {
        calls.extend(self.log_calls(batch));
        calls.extend(self.fence_calls());
        calls.extend(write::end(batch, commit, self.writer.epoch, self.writer.sum, COMMITS_KEPT));
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
