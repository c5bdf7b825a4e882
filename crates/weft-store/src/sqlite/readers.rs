//! Connections that read.
//!
//! Each keeps a read transaction open between reads. A commit ends those of idle connections, so
//! that none holds back a checkpoint; one in use then is refreshed when it comes back or is taken
//! again.

use super::connection::{Access, connect};
use super::layout::Layout;
use super::names::Names;
use crate::error::{Error, Result};
use parking_lot::Mutex;
use rusqlite::Connection;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Most idle connections kept.
const IDLE_MAX: usize = 8;

/// The pool.
pub(super) struct Readers {
    layout: Layout,
    access: Access,
    names: Arc<Names>,
    idle: Mutex<Vec<Reader>>,
    commits: AtomicU64,
}

struct Reader {
    connection: Connection,
    /// `commits` when its transaction began.
    commits: u64,
    in_transaction: bool,
}

impl Readers {
    pub(super) fn new(layout: &Layout, access: Access, names: Arc<Names>) -> Readers {
        Readers { layout: layout.clone(), access, names, idle: Mutex::default(), commits: AtomicU64::new(0) }
    }

    /// Closes those that are idle.
    pub(super) fn close(&self) {
        self.idle.lock().clear();
    }

    fn open(&self) -> Result<Reader> {
        // By its name another volume may be there by now.
        self.names.check()?;
        let connection = connect(&self.layout.database, 8, self.access)?;
        Ok(Reader { connection, commits: 0, in_transaction: false })
    }

    /// Runs `read` on a connection that sees every commit made before the call.
    pub(super) fn with<T>(&self, read: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
        // SQLite opens and removes files by their paths when it likes.
        let _rights = self.layout.rights()?;
        let taken = self.idle.lock().pop();
        let mut reader = match taken {
            Some(reader) => reader,
            None => self.open()?,
        };
        let commits = self.commits.load(Ordering::Acquire);
        if reader.in_transaction && reader.commits != commits {
            reader.end()?;
        }
        if !reader.in_transaction {
            reader.connection.execute_batch("BEGIN").map_err(|source| Error::Sqlite { what: "cannot read", source })?;
            reader.in_transaction = true;
            reader.commits = commits;
        }
        let result = read(&reader.connection);
        // Nobody tells of commits of another process, and what a reader sees stays in its log.
        let is_beside = self.access == Access::Beside;
        if result.is_err() || is_beside || self.commits.load(Ordering::Acquire) != reader.commits {
            reader.end()?;
        }
        let mut idle = self.idle.lock();
        if idle.len() < IDLE_MAX {
            idle.push(reader);
        }
        result
    }

    /// A commit was made: lets go of what idle connections still see.
    pub(super) fn end_transactions(&self) {
        self.commits.fetch_add(1, Ordering::AcqRel);
        // One that cannot end its transaction is of no more use.
        self.idle.lock().retain_mut(|reader| !reader.in_transaction || reader.end().is_ok());
    }
}

impl Reader {
    fn end(&mut self) -> Result<()> {
        self.in_transaction = false;
        self.connection.execute_batch("COMMIT").map_err(|source| Error::Sqlite { what: "cannot end a read", source })
    }
}
