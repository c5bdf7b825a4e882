//! State between commits: the connection, rows that are known, and whether a commit is in doubt.
//!
//! It knows the server's tables and the header, and nothing of a batch.

use crate::digests::{Digester, ZeroValues};
use crate::error::{Error, Result};
use crate::postgres::PostgresStore;
use crate::postgres::connection::Connection;
use crate::postgres::digests::Known;
use crate::postgres::own::{self, OwnTables};
use crate::postgres::{past, read};
use crate::row::{CommitRow, Ino};
use crate::store::Header;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Files remembered to have a table of their own.
const TABLES_MAX: usize = 65536;

/// State for commits, which use it one at a time.
pub(in crate::postgres) struct Writer {
    /// Replaced when it has broken; none while blocks are on their way, or where nothing is
    /// written.
    pub(super) connection: Option<Connection>,
    /// True if a commit is in doubt.
    pub(super) in_doubt: bool,
    pub(super) known: Known,
    pub(super) last: Option<CommitRow>,
    /// Epoch of the lease.
    pub(super) epoch: i64,
    /// Sum of the columns of the volume's row that commits do not change.
    pub(super) sum: i64,
    pub(super) block_size: u64,
    /// Inodes from this one on have no rows.
    pub(super) fresh: Ino,
    /// None if the volume keeps no digests.
    pub(super) digester: Option<Digester>,
    pub(super) own_table_from: Option<u64>,
    /// The role that owns the volume, if it is not the connected one.
    pub(super) owner_role: Option<String>,
    /// Some of the files that have a table of their own.
    pub(super) tables: BTreeSet<Ino>,
    /// Files whose own table has nothing left but could not be dropped yet.
    pub(super) dropped: BTreeSet<Ino>,
    /// True if commits keep the versions of rows that they replace.
    pub(super) keeps_history: bool,
    /// True once the role's rights were found to be enough.
    pub(super) may_write: bool,
    /// True if `dropped` has files of an earlier holder that were not tried since.
    pub(super) has_leftovers: bool,
}

/// The state of a volume as it was opened.
pub(in crate::postgres) struct Opened {
    pub(in crate::postgres) last: Option<CommitRow>,
    pub(in crate::postgres) keeps_history: bool,
    pub(in crate::postgres) own: OwnTables,
}

impl Writer {
    pub(in crate::postgres) fn new(
        connection: Option<Connection>,
        header: &Header,
        epoch: i64,
        zeros: Arc<ZeroValues>,
        Opened { last, keeps_history, own }: Opened,
    ) -> Writer {
        Writer {
            connection,
            in_doubt: false,
            known: Known::default(),
            last,
            epoch,
            sum: header.fixed_sum(),
            block_size: u64::from(header.options.block_size),
            fresh: Ino(header.counters.next_id),
            digester: header.options.digests.then(|| Digester::new(zeros)),
            own_table_from: header.options.own_table_from,
            owner_role: None,
            tables: BTreeSet::new(),
            keeps_history,
            may_write: false,
            has_leftovers: !own.dropped.is_empty(),
            dropped: own.dropped,
        }
    }

    /// Takes in what the last commit left, which is durable then; tells the header.
    pub(super) fn look(&mut self, store: &PostgresStore) -> Result<Header> {
        store.refuse_other(self.connection())?;
        store.confirm(self.connection())?;
        let header = read::header(self.connection())?;
        self.last = read::last_commit(self.connection(), header.commit)?;
        self.sum = header.fixed_sum();
        self.keeps_history = past::is_on(self.connection())?;
        self.fresh = Ino(header.counters.next_id);
        self.known = Known::default();
        self.tables.clear();
        self.dropped = own::dropped(self.connection())?;
        self.in_doubt = false;
        Ok(header)
    }

    /// Takes in whose own tables the last commit used, and drops those that it left empty.
    pub(super) fn keep_tables(&mut self, used: BTreeSet<Ino>, empty: BTreeSet<Ino>) {
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
    pub(super) fn interrupted(&mut self, error: Error) -> Error {
        match error {
            Error::Postgres { .. } if self.connection().is_closed() => Error::Interrupted,
            other => other,
        }
    }

    pub(super) fn connection(&mut self) -> &mut Connection {
        self.connection.as_mut().expect("it is here but while blocks are on their way")
    }
}
