//! One commit: blocks as they come, then the rows that name them, in one transaction of the server.
//!
//! Nothing but blocks is sent before the end; then the rows go out, and what is not too much for
//! once together with what ends the commit, in one round trip. If the connection breaks on the way
//! nobody knows whether the server has committed: it is asked as soon as it can be reached again.
//!
//! | module | knows |
//! |---|---|
//! | `writer` | state between commits |
//! | `begin` | the fence: the volume is ours, and as we left it |
//! | `blocks` | new blocks on their way |
//! | `references` | extents that go, and what blocks lose or gain |
//! | `own_tables` | files' own tables, and those that get empty |
//! | `digests` | digests that follow from the batch |
//! | `rows` | all rows, their order, and the end |
//! | `history` | what is kept of the past, and changes of that |
//! | `forget` | versions that no kept commit sees |
//! | `doubt` | an end of which nobody heard |

mod begin;
mod blocks;
mod digests;
mod doubt;
mod forget;
mod history;
mod own_tables;
mod references;
mod rows;
mod writer;

pub(super) use writer::{Opened, Writer};

use super::PostgresStore;
use super::sending::{Sending, Table};
use super::{rights, schema};
use crate::batch::{Batch, NewBlock};
use crate::error::Result;
use crate::row::{BlockId, BlockRef, Ino};
use crate::store::Transaction;
use parking_lot::MutexGuard;
use rows::Committed;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use weft_digest::{Digest, Value};

const WHAT: &str = "cannot commit";

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

impl Transaction for PostgresTransaction<'_> {
    fn put_blocks(&mut self, blocks: Vec<NewBlock>) -> Result<Vec<BlockRef>> {
        let placed = blocks.into_iter().map(|new| self.keep(new)).collect();
        self.send_if_many()?;
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
        let Committed { commit, known, empty, keeps_history, sum } =
            written.map_err(|error| self.writer.interrupted(error))?;
        self.store.header.lock().follow(batch);
        let touched = std::mem::take(&mut self.touched);
        let writer = &mut *self.writer;
        writer.known = known;
        writer.keeps_history = keeps_history;
        writer.sum = sum;
        writer.last = Some(commit);
        writer.fresh = Ino(batch.counters.next_id);
        writer.keep_tables(touched, empty);
        if batch.sets_history() {
            let owner = rights::other_owner(writer.connection());
            // People alone need them.
            let _ = schema::make_views(writer.connection(), owner.as_deref());
        }
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
