//! A commit in doubt: its end failed, and nobody knows whether the server has it.
//!
//! It knows the row of the commit, by which the server tells, and nothing of what was written.

use super::{PostgresTransaction, WHAT};
use crate::error::{Error, Result};
use crate::postgres::{read, settings};
use crate::row::CommitRow;
use tokio_postgres::error::SqlState;

impl PostgresTransaction<'_> {
    /// After `error`: if nobody knows whether the commit happened, asks until the server can be
    /// reached. Ok if it has happened and is durable.
    pub(super) fn settle(&mut self, error: Error, commit: &CommitRow) -> Result<()> {
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
            let connection = self.store.reconnect().map_err(|error| match error {
                // Whoever commits next asks.
                Error::GivenUp => Error::Interrupted,
                error => error,
            });
            self.writer.connection = Some(connection?);
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
