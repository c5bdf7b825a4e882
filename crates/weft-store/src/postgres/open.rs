//! Connecting, making a volume, opening one.

use super::PostgresStore;
use super::address::Address;
use super::connection::{Connection, runtime};
use super::given_up::{IsGivenUp, never};
use super::identity::Identity;
use super::lease::{Holder, Lease};
use super::own::OwnTables;
use super::prefetcher::Prefetcher;
use super::read::{self, int};
use super::rights::{self, Task};
use super::schema::{self, TUNING};
use super::transaction::{Opened, Writer};
use super::{past, settings, shape, tls, trust, unfinished, write};
use crate::batch::Counters;
use crate::digests::ZeroValues;
use crate::disk_cache::DiskCache;
use crate::engine::OpenOptions;
use crate::error::{Error, Result};
use crate::round_trips::Counts;
use crate::row::{CommitNo, CommitRow, InodeRow, OpNo, Timestamp};
use crate::store::{BlockHome, Header, VolumeOptions};
use crate::sums;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use tokio_postgres::error::SqlState;

/// Version of what lies in the database.
pub const FORMAT: u32 = crate::FORMAT;

/// Connects, as often as is needed.
#[derive(Clone)]
pub(super) struct Connector {
    pub(super) address: Address,
    pub(super) counts: Arc<Counts>,
    /// Name of its connections at the server, if they have one of their own.
    name: Option<String>,
    lies_apart: bool,
    /// The volume, once it is known.
    pub(super) identity: Option<Arc<Identity>>,
}

impl Connector {
    /// A new connection that looks at the volume's schema.
    pub(super) fn connect(&self) -> Result<Connection> {
        self.connect_unless(never)
    }

    /// The same, but connecting ends when it `is_given_up`, and so do waits for answers.
    pub(super) fn connect_unless(&self, is_given_up: IsGivenUp) -> Result<Connection> {
        let runtime = runtime()?;
        let warned = Arc::new(AtomicBool::new(false));
        let connected = tls::connect(&runtime, &self.address, (&warned, is_given_up))?;
        let (counts, ends) = (self.counts.clone(), (warned, is_given_up));
        let mut connection = Connection::new(runtime, connected, &self.address.server, counts, ends);
        connection.lies_apart = self.lies_apart;
        settings::begin(&mut connection, &self.address, self.name.as_deref())?;
        connection.identity.clone_from(&self.identity);
        connection.compares = !self.lies_apart;
        Ok(connection)
    }

    fn new(address: &Address) -> Connector {
        let (address, counts) = (address.clone(), Arc::default());
        Connector { address, counts, name: None, lies_apart: false, identity: None }
    }

    /// Makes a connector whose connections the next holder can tell from others, unless the user
    /// has a name for them.
    fn of(address: &Address, holder: &Holder) -> Connector {
        let name = (!address.names_application()).then(|| holder.application(&address.schema));
        Connector { name, ..Connector::new(address) }
    }
}

/// `Unusable` if the schema has tables already, of a volume or of something else.
fn refuse_taken(connection: &mut Connection, schema: &str) -> Result<()> {
    let tables = "SELECT table_name::text FROM information_schema.tables WHERE table_schema = $1 \
                  ORDER BY table_name <> 'fileatt' LIMIT 1";
    if let Some(row) = connection.query("cannot make the volume", tables, vec![Box::new(schema.to_owned())])?.first() {
        let table: String = read::get(row, 0)?;
        if table == "fileatt" && is_unfinished(connection, schema) {
            return Err(Error::Unusable(format!(
                "in schema '{schema}' a volume is being received, or lies what a 'weft receive' that was killed left; in \
                 the latter case remove it ('DROP SCHEMA {schema} CASCADE')"
            )));
        }
        let there = if table == "fileatt" {
            "a volume is there already, in schema".into()
        } else {
            format!("a table '{table}' of something else is there already, in schema")
        };
        return Err(Error::Unusable(format!(
            "{there} '{schema}'; name another schema for a new one, as in 'postgres:///DATABASE?schema=NAME'"
        )));
    }
    Ok(())
}

/// True if the volume in `schema` is not whole.
fn is_unfinished(connection: &mut Connection, schema: &str) -> bool {
    let format = format!("SELECT 1::bigint FROM {schema}.volume WHERE format = {}", unfinished::UNFINISHED);
    connection.query("cannot make the volume", format, Vec::new()).is_ok_and(|rows| !rows.is_empty())
}

/// Makes the schema of `address`.
fn make_schema(connection: &mut Connection, address: &Address) -> Result<()> {
    let schema = &address.schema;
    let made = connection.run("cannot make the volume", &format!("CREATE SCHEMA {schema}"));
    if made.as_ref().is_err_and(|error| has_code(error, &SqlState::INSUFFICIENT_PRIVILEGE)) {
        return Err(Error::Unusable(format!(
            "this role may make no schema in the database of {address}; let the owner of the database run 'CREATE SCHEMA \
             {schema} AUTHORIZATION ROLE', with this role, then try again"
        )));
    }
    made
}

/// Makes a volume at `address`: its schema may be there, empty. It has a root directory owned by
/// `owner` (user, group) with permissions 0755, made by commit 1 at `time`. Leaves nothing behind
/// if it fails.
pub fn create(address: &Address, options: &VolumeOptions, owner: (u32, u32), time: Timestamp) -> Result<()> {
    create_as(FORMAT, address, options, owner, time)
}

/// The same of a volume that says that it has `format`.
pub(super) fn create_as(
    format: u32,
    address: &Address,
    options: &VolumeOptions,
    owner: (u32, u32),
    time: Timestamp,
) -> Result<()> {
    options.check()?;
    let connector = Connector::new(address);
    let mut connection = connector.connect()?;
    let schema = &address.schema;
    let what = "cannot make the volume";
    // Until it is known whose the schema is, which somebody may make meanwhile.
    connection.run(what, trust::PIN)?;
    settings::refuse_pooled(&mut connection, &connector)?;
    settings::refuse_weak(&mut connection, address)?;
    connection.run(what, "BEGIN")?;
    // A role that was given a schema may have no right to make one.
    let there = "SELECT 1::bigint FROM information_schema.schemata WHERE schema_name = $1";
    if connection.query(what, there, vec![Box::new(schema.clone())])?.is_empty() {
        make_schema(&mut connection, address)?;
        // One that was there may be of other programs, too.
        connection.run(what, &rights::revoke(&format!("SCHEMA {schema}")))?;
    }
    trust::refuse(&mut connection, address, trust::Use::Make)?;
    refuse_taken(&mut connection, schema)?;
    connection.run(what, &format!("SET search_path TO {schema}"))?;
    connection.run(what, &schema::statements().join(";\n"))?;
    connection.run(what, &rights::revoke_all(schema))?;
    let uuid = crate::uuid::new()?;
    let counters = Counters { next_id: 16, next_block: 1, inodes_used: 1, ..Counters::default() };
    // Its blocks are in the database, whatever was asked for.
    let header = Header {
        format: FORMAT,
        uuid,
        options: VolumeOptions { home: BlockHome::Database, ..options.clone() },
        commit: CommitNo(1),
        created: time,
        counters,
    };
    connection.query(
        what,
        "INSERT INTO volume (id, format, created, uuid, block_size, inline_max, bytes_max, inodes_max, digests, own_table_from, \
         number, op, next_id, next_block, epoch, bytes_used, inodes_used, sum) \
         VALUES (1, $1, $2, $3, $4, $5, $6, $7, $8, $9, 1, 0, 16, 1, 0, 0, 1, $10)",
        vec![
            Box::new(i64::from(format)),
            Box::new(time.0),
            Box::new(uuid.to_vec()),
            Box::new(i64::from(options.block_size)),
            Box::new(i64::from(options.inline_max)),
            Box::new(options.bytes_max.map(int)),
            Box::new(options.inodes_max.map(int)),
            Box::new(options.digests),
            Box::new(options.own_table_from.map(int)),
            Box::new(header.sum()),
        ],
    )?;
    connection.run(what, "INSERT INTO lease VALUES (1, 0, '', NULL)")?;
    let digest = options.digests.then(|| weft_digest::directory([]));
    let root = InodeRow::new_root(owner.0, owner.1, time);
    connection.query_all(what, &[write::put_inodes(&[(&root, digest, CommitNo(1))])])?;
    let first = CommitRow { number: CommitNo(1), time, op: OpNo(0), root: digest, previous: None };
    let commit = "INSERT INTO commits (number, time, op, root_digest, sum) VALUES (1, $1, 0, $2, $3)";
    let root = digest.map(|digest| digest.to_vec());
    connection.query(what, commit, vec![Box::new(time.0), Box::new(root), Box::new(sums::commit(&first))])?;
    connection.run(what, "COMMIT")?;
    for statement in TUNING {
        // An engine that has no such setting needs none.
        let _ = connection.run(what, statement);
    }
    // People alone need them.
    let _ = schema::make_views(&mut connection, None);
    Ok(())
}

/// Removes a volume with all that is in it, its schema included.
pub fn remove(address: &Address) -> Result<()> {
    let mut connection = Connector::new(address).connect()?;
    connection.run("cannot remove the volume", &format!("DROP SCHEMA {} CASCADE", address.schema))
}

fn has_code(error: &Error, code: &SqlState) -> bool {
    matches!(error, Error::Postgres { source, .. } if source.code() == Some(code))
}

/// The error for a volume at `address` that the role may not even look at.
fn unreadable(address: &Address) -> Error {
    let (schema, role) = (&address.schema, address.config.get_user().unwrap_or_default());
    Error::Unusable(format!(
        "the role has no rights in schema '{schema}' of {address}; to read the volume, role '{role}' needs USAGE on \
         the schema and SELECT on its tables, and to mount it INSERT, UPDATE and DELETE (docs/guide/postgresql.md, \
         'Roles and rights')"
    ))
}

/// Returns the reason that no volume is seen at `address`. A schema that the role may not use is
/// passed over in silence until it is named.
fn absent(address: &Address, connection: &mut Connection) -> Error {
    let schema = &address.schema;
    let named = connection.run("cannot look for a volume", &format!("SELECT 1 FROM {schema}.volume"));
    if named.is_err_and(|error| has_code(&error, &SqlState::INSUFFICIENT_PRIVILEGE)) {
        return unreadable(address);
    }
    Error::Unusable(format!("there is no volume in schema '{schema}' of {address}; make one with 'weft init'"))
}

/// The format of the volume at `address`. It is read alone: another one may lack what else there
/// is.
pub(super) fn format(address: &Address, connection: &mut Connection) -> Result<u32> {
    match read::format(connection) {
        Err(error) if has_code(&error, &SqlState::UNDEFINED_TABLE) => Err(absent(address, connection)),
        Err(error) if has_code(&error, &SqlState::INSUFFICIENT_PRIVILEGE) => Err(unreadable(address)),
        format => format,
    }
}

/// A connection to what is at `address`, whatever that is.
pub(super) fn connect(address: &Address) -> Result<Connection> {
    Connector::new(address).connect()
}

/// Connects to the volume at `address`, which somebody else may hold, and reads its header. From
/// then on the connection reads no other volume.
pub(super) fn look(address: &Address) -> Result<(Connection, Header)> {
    look_for(FORMAT, address)
}

/// The same of a volume that says that it has the format `wanted`.
fn look_for(wanted: u32, address: &Address) -> Result<(Connection, Header)> {
    let connector = Connector::new(address);
    let mut connection = connector.connect()?;
    settings::refuse_pooled(&mut connection, &connector)?;
    let format = format(address, &mut connection)?;
    if format != wanted && format == unfinished::UNFINISHED {
        return Err(unfinished::refusal(address));
    }
    if format != wanted {
        let advice = if format > FORMAT { "use a newer weft" } else { "'weft upgrade' brings it up" };
        return Err(Error::Unusable(format!("{address} has format {format}, this program reads {FORMAT}; {advice}")));
    }
    let header = read::header(&mut connection)?;
    connection.identity = Some(Arc::new(Identity::new(address, header.uuid)));
    Ok((connection, header))
}

/// Reads the header of the volume at `address`, held or not, as of its last commit.
pub fn header(address: &Address) -> Result<Header> {
    Ok(look(address)?.1)
}

/// All commits that the volume at `address` remembers, in their order; also while it is held.
pub fn commits(address: &Address) -> Result<Vec<CommitRow>> {
    read::commits(&mut look(address)?.0, CommitNo(0), usize::MAX)
}

/// Bytes that the volume's tables and their indices take; none where the server cannot tell.
pub fn size(address: &Address) -> Result<Option<u64>> {
    let (mut connection, _) = look(address)?;
    let told = "SELECT sum(pg_total_relation_size(c.oid))::bigint FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
                WHERE n.nspname = $1 AND c.relkind = 'r'";
    let rows = connection.query("cannot tell the size", told, vec![Box::new(address.schema.clone())]);
    Ok(rows.ok().and_then(|rows| read::unsigned(rows.first()?, 0).ok()))
}

/// True if the engine spreads a volume's files over nodes and joins only rows on the same node.
fn lies_apart(connection: &mut Connection) -> bool {
    let citus = "SELECT extname::text FROM pg_catalog.pg_extension WHERE extname = 'citus'";
    connection.query("cannot look at the engine", citus, Vec::new()).is_ok_and(|rows| !rows.is_empty())
}

/// Takes the lease of the volume at `address`, for which more connections can be had then.
pub(super) fn hold(address: &Address, options: &OpenOptions) -> Result<(Lease, Connector)> {
    hold_any(look(address)?.0, address, options)
}

/// The same of a volume of any format, to which there is a connection.
pub(super) fn hold_any(
    mut connection: Connection,
    address: &Address,
    options: &OpenOptions,
) -> Result<(Lease, Connector)> {
    settings::refuse_weak(&mut connection, address)?;
    settings::refuse_emptied(&mut connection, address)?;
    rights::refuse_lacking(&mut connection, address, Task::Hold)?;
    let holder = Holder::this(&options.purpose);
    let mut connector = Connector::of(address, &holder);
    connector.lies_apart = lies_apart(&mut connection);
    connector.identity.clone_from(&connection.identity);
    Ok((Lease::take(connection, &connector, &holder, options)?, connector))
}

/// Refuses a volume whose own row is older than the rest of it: the next commit is there already,
/// and what its counters say is free is taken.
fn refuse_older_row(connection: &mut Connection, header: &Header) -> Result<()> {
    // Of a damaged row it is not known which commit it is of.
    let later = read::commits(connection, header.commit.next(), 1).unwrap_or_default();
    let Some(later) = later.first() else { return Ok(()) };
    Err(Error::Corrupt(format!(
        "the volume's own row is older than its other tables: it is of commit {}, and commit {} is there; restore all \
         tables from one moment, or have 'weft check --repair' count anew",
        header.commit.0, later.number.0
    )))
}

/// Takes hold of the volume at `address`, which lasts until the store is dropped.
pub fn open(address: &Address, options: OpenOptions) -> Result<Arc<PostgresStore>> {
    open_held(hold(address, &options)?, &options)
}

/// The same of a volume that is being received, which nobody else opens.
pub(super) fn open_unfinished(address: &Address, options: &OpenOptions) -> Result<Arc<PostgresStore>> {
    let (connection, _) = look_for(unfinished::UNFINISHED, address)?;
    open_held(hold_any(connection, address, options)?, options)
}

fn open_held((lease, connector): (Lease, Connector), options: &OpenOptions) -> Result<Arc<PostgresStore>> {
    let mut connection = connector.connect()?;
    shape::refuse_to_write(&mut connection)?;
    // What the last holder did is all there now.
    let header = read::header(&mut connection)?;
    refuse_older_row(&mut connection, &header)?;
    store(connection, header, connector, Some(lease), options)
}

/// Opens the volume at `address` to read what it has committed, beside the process that holds it,
/// if one does. It takes no lease, needs no right but to read, and keeps nobody from the volume.
pub fn open_beside(address: &Address, options: &OpenOptions) -> Result<Arc<PostgresStore>> {
    let (mut connection, header) = look(address)?;
    settings::refuse_emptied(&mut connection, address)?;
    rights::refuse_lacking(&mut connection, address, Task::Read)?;
    shape::refuse_to_read(&mut connection)?;
    let mut connector = Connector::new(address);
    connector.lies_apart = lies_apart(&mut connection);
    connection.lies_apart = connector.lies_apart;
    connector.identity.clone_from(&connection.identity);
    store(connection, header, connector, None, options)
}

/// Returns the store of a volume, which `lease` holds, or which is only read.
fn store(
    mut connection: Connection,
    header: Header,
    connector: Connector,
    lease: Option<Lease>,
    options: &OpenOptions,
) -> Result<Arc<PostgresStore>> {
    let last = read::last_commit(&mut connection, header.commit)?;
    let zeros = Arc::new(ZeroValues::default());
    let own = OwnTables::look(&mut connection)?;
    let (disk_cache, name) = (options.disk_cache.as_ref(), connector.address.to_string());
    let disk_cache = disk_cache.map(|cache| DiskCache::open(cache, &name, header.options.block_size));
    let keeps_history = past::is_on(&mut connection)?;
    let opened = Opened { last, keeps_history, own };
    // Holders are counted from 1.
    let epoch = lease.as_ref().map_or(0, Lease::epoch);
    // Whoever does not hold the volume reads alone. Where nodes may be away a reader asks for them.
    let reads = lease.is_none() && !connection.lies_apart;
    if reads {
        settings::read_by_index(&mut connection);
    }
    let (own, readers) = if reads { (None, vec![connection]) } else { (Some(connection), Vec::new()) };
    let writer = Writer::new(own, &header, epoch, zeros.clone(), opened);
    Ok(Arc::new(PostgresStore {
        header: Mutex::new(header),
        readers: Mutex::new(readers),
        writer: Mutex::new(writer),
        zeros,
        prefetcher: Prefetcher::default(),
        disk_cache,
        lost: Mutex::default(),
        has_intents: AtomicBool::new(true),
        has_carried: AtomicBool::new(true),
        connector,
        loss: options.loss,
        patience: options.patience,
        away: Mutex::default(),
        back: Mutex::default(),
        is_given_up: options.is_given_up,
        lease,
    }))
}
