//! The beginning of a commit, and its fence: a connection to the volume that is ours, as the last
//! commit left it, by a role that may write.
//!
//! It knows no batch. Nothing is sent: the first statement of the transaction goes along with the
//! next one.

use super::{PostgresTransaction, Writer};
use crate::error::Result;
use crate::postgres::PostgresStore;
use crate::postgres::rights::{self, Task};
use crate::postgres::statements as sql;
use crate::round_trips::Class;
use std::collections::{BTreeMap, BTreeSet};

impl<'a> PostgresTransaction<'a> {
    pub(in crate::postgres) fn begin(store: &'a PostgresStore) -> Result<PostgresTransaction<'a>> {
        store.held()?;
        let mut writer = store.writer.lock();
        store.refuse_lost()?;
        writer.refresh(store)?;
        writer.connection().count_as(Class::Commits);
        writer.refuse_lacking_rights(store)?;
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
}

impl Writer {
    /// Connects again if the connection has broken; looks at what the last commit left if that is
    /// in doubt.
    fn refresh(&mut self, store: &PostgresStore) -> Result<()> {
        if self.connection().is_closed() {
            self.connection = Some(store.reconnect()?);
            // It may be another server now.
            self.in_doubt = true;
        }
        if self.in_doubt {
            let header = self.look(store);
            *store.header.lock() = header.map_err(|error| self.interrupted(error))?;
            // A commit of which nobody knew may have outdated what came along.
            store.prefetcher.forget();
        }
        Ok(())
    }

    fn refuse_lacking_rights(&mut self, store: &PostgresStore) -> Result<()> {
        if self.may_write {
            return Ok(());
        }
        let task = if self.own_table_from.is_some() { Task::ServeOwnTables } else { Task::Serve };
        rights::refuse_lacking(self.connection(), &store.connector.address, task)?;
        self.owner_role = self.own_table_from.and_then(|_| rights::other_owner(self.connection()));
        self.may_write = true;
        Ok(())
    }
}
