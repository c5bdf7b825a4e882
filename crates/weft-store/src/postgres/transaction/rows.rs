//! The rows of a commit, in one go, and what ends it.
//!
//! It knows all kinds of rows as `write` makes statements of them, and their order: what belongs to
//! blocks first, the row of the commit last, behind the lease.

use super::digests::Digested;
use super::references::Counted;
use super::{PostgresTransaction, WHAT};
use crate::batch::{Batch, ExtentChange};
use crate::error::{Error, Result};
use crate::overlay::Changes;
use crate::postgres::connection::Call;
use crate::postgres::digests::Known;
use crate::postgres::read::int;
use crate::postgres::statements as sql;
use crate::postgres::write::{self, BlockRow, Extents, Home, Outgoing, References};
use crate::postgres::{intents, settings};
use crate::row::{CommitRow, Ino};
use std::collections::BTreeSet;
use std::ops::Range;
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

/// Rows that follow from extents and blocks.
struct Content<'a> {
    new_rows: &'a [BlockRow],
    replaced: &'a [(Ino, Range<u64>)],
    put: &'a [(Ino, u64, Home)],
    references: &'a References,
}

impl PostgresTransaction<'_> {
    /// Writes the rows of `batch`, and commits.
    pub(super) fn write(&mut self, batch: &Batch) -> Result<Committed> {
        if batch.commit != self.store.header.lock().commit.next() {
            return Err(Error::Bug(format!("commit {} does not follow the last one", batch.commit.0)));
        }
        self.receive()?;
        let put = self.put_extents(batch)?;
        let replaced = self.replaced(batch, &put);
        let removed = batch.removed().filter(|ino| *ino < self.writer.fresh).map(|ino| int(ino.0)).collect::<Vec<_>>();
        let mut counted = self.count(&replaced, &removed, &put)?;
        let (own_calls, empty) = self.own_tables(&counted)?;
        let new_rows = self.new_rows(&mut counted.references)?;
        let Digested { changes, mut known, root } = self.digested(batch)?;
        let commit = self.commit_row(batch, root);
        self.kept.clear();
        let Counted { references, .. } = &counted;
        let content = Content { new_rows: &new_rows, replaced: &replaced, put: &put, references };
        let calls = self.send_rows(batch, &changes, &content, own_calls)?;
        self.end(batch, calls, &commit)?;
        known.learn(changes);
        Ok(Committed { commit, known, empty })
    }

    /// Returns the extents that `batch` puts, in their order.
    fn put_extents(&self, batch: &Batch) -> Result<Vec<(Ino, u64, Home)>> {
        let mut put = Vec::new();
        for change in &batch.extents {
            if let ExtentChange::Put { ino, index, block } = change {
                put.push((*ino, *index, self.home(block)?));
            }
        }
        put.sort_unstable();
        Ok(put)
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
        content: &Content<'_>,
        first: Vec<Call>,
    ) -> Result<Vec<Call>> {
        let Content { new_rows, replaced, put, references } = *content;
        let fresh = self.writer.fresh;
        let connection = self.writer.connection();
        let mut out = Outgoing::new(first, |calls: &[Call]| connection.query_all(WHAT, calls).map(drop));
        write::contents(batch, changes, new_rows, &mut out)?;
        let extents = Extents { removed: replaced, put, references };
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
