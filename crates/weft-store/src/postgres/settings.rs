//! Settings of the server that the volume depends on: set for each session, or checked, never
//! believed.
//!
//! ALTER ROLE and ALTER DATABASE give sessions other defaults than the server has (PostgreSQL
//! documentation, "Server Configuration"). What a session may set is set; what only the server can
//! have is read, and refused where an acknowledged commit would not survive a crash. An address
//! that says `durability=server` takes all of that as it is.

use super::address::Address;
use super::connection::{Call, Connection};
use super::lease::Holder;
use super::open::Connector;
use super::read::get;
use super::statements as sql;
use super::trust;
use crate::error::{Error, Result};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio_postgres::error::SqlState;

const CONNECT: &str = "cannot connect";
const WHAT: &str = "cannot look at the server's settings";

/// Values that statements and transactions depend on. A user who names one of them in the address's
/// `options` has that value. Each is set only where the server has such a setting.
const SESSION: &[(&str, &str)] = &[
    ("bytea_output", "hex"),
    // The server's word that a commit did not wait for its standbys is a warning.
    ("client_min_messages", "warning"),
    ("datestyle", "ISO, MDY"),
    ("default_transaction_deferrable", "off"),
    ("default_transaction_isolation", "read committed"),
    ("default_transaction_read_only", "off"),
    // A daemon that has vanished must not hold rows locked, the lease perhaps, for the hours that
    // TCP takes to notice.
    ("idle_in_transaction_session_timeout", "60000"),
    ("idle_session_timeout", "0"),
    ("intervalstyle", "postgres"),
    // Statements about many rows look dear to the planner, and take less than to compile them.
    ("jit", "off"),
    ("lock_timeout", "0"),
    // Rows that a policy hides are an error then, and not missing.
    ("row_security", "off"),
    ("standard_conforming_strings", "on"),
    ("tcp_keepalives_count", "3"),
    ("tcp_keepalives_idle", "10"),
    ("tcp_keepalives_interval", "5"),
    ("tcp_user_timeout", "20000"),
    ("transaction_timeout", "0"),
];

/// True if the user has set `name`, by the address.
fn is_chosen(address: &Address, name: &str) -> bool {
    address.config.get_options().is_some_and(|options| options.to_ascii_lowercase().contains(name))
}

/// Has a new session look at the volume's schema, if that is to be trusted, gives it the settings
/// that statements depend on, and the `name` by which the server knows it. All of it is one
/// message: behind a pooler the next one may have another session.
pub(super) fn begin(connection: &mut Connection, address: &Address, name: Option<&str>) -> Result<()> {
    let mut basics = trust::PIN.to_owned();
    if !is_chosen(address, "statement_timeout") {
        // Before the next one, which it may be too short for.
        basics = format!("SET statement_timeout = 0; {basics}");
    }
    if let Some(name) = name {
        basics = format!("{basics}; SET application_name = '{name}'");
    }
    let settings = SESSION.iter().filter(|(name, _)| !is_chosen(address, name));
    let settings = settings.map(|(name, value)| format!("('{name}', '{value}')")).collect::<Vec<_>>();
    // Stronger than `on` is `remote_apply` alone: `remote_write` does not wait for a standby's
    // disk.
    let synchronous = if address.trusts_server {
        ""
    } else {
        "; SELECT set_config('synchronous_commit', CASE current_setting('synchronous_commit') WHEN 'remote_apply' \
         THEN 'remote_apply' ELSE 'on' END, false)"
    };
    let mark = new_mark();
    let marked = format!("SELECT set_config('weft.session', '{mark}', false)");
    let all = format!(
        "{basics}; SELECT set_config(d.name, d.value, false) FROM (VALUES {}) AS d (name, value) \
         WHERE current_setting(d.name, true) IS NOT NULL; {marked}{synchronous}",
        settings.join(", ")
    );
    let (refusal, look) = (trust::refusal(address), format!("SET search_path TO {}", address.schema));
    let whole = format!("{all}; {refusal}; {look}");
    let mut begun = connection.run(CONNECT, &whole);
    if is_unclear(&begun, connection) {
        if !trust::is_postgres(connection)? {
            // Another engine has no such settings, and other ones for it, or no such catalogs.
            return connection.run(CONNECT, &format!("{basics}; {look}"));
        }
        // Catalogs that others change meanwhile, as they drop a schema, are an error at times.
        begun = connection.run(CONNECT, &whole);
    }
    if is_unclear(&begun, connection) {
        begun = connection.run(CONNECT, &format!("{basics}; {marked}; {refusal}; {look}"));
    }
    match begun {
        Err(error) if trust::is_refusal(&error) => Err(trust::why(connection, address)),
        begun => {
            connection.mark = begun.is_ok().then_some(mark);
            begun
        }
    }
}

/// Has a session that reads find rows by indices, from each row to the next: what the planner knows
/// of a table may be of when that was small, or nothing, and then it reads all of a large one. An
/// engine without such settings does as it likes.
pub(super) fn read_by_index(connection: &mut Connection) {
    let off = "SELECT set_config(d.name, 'off', false) FROM (VALUES ('enable_hashjoin'), ('enable_mergejoin')) \
               AS d (name) WHERE current_setting(d.name, true) IS NOT NULL";
    let _ = connection.run(CONNECT, off);
}

/// True if a session did not begin, for a reason that says nothing of the volume.
fn is_unclear(begun: &Result<()>, connection: &Connection) -> bool {
    begun.as_ref().is_err_and(|error| !trust::is_refusal(error) && !connection.is_closed())
}

/// Returns a mark that no other session has, of this process or another.
fn new_mark() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let plain = |letter: &char| letter.is_ascii_alphanumeric() || "-._/ []:".contains(*letter);
    let process: String = Holder::this("").to_row().chars().filter(plain).collect();
    format!("{process} {}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Transactions that must all meet the session which began the connection.
const POOLER_PROBES: usize = 8;

/// Most addresses that are remembered to lead to the server itself.
const DIRECT_MAX: usize = 64;

/// Refuses a pooler that gives transactions of one session to different sessions of the server:
/// settings would be lost, and prepared statements be others'.
///
/// Another connection is begun. Where there is one session only, or the one used last is given
/// first, its mark has taken the place of ours. Where sessions take turns, transactions that follow
/// one another meet different ones. A process looks once at each address: a command opens several
/// connections, and a commit asks again for its mark.
pub(super) fn refuse_pooled(connection: &mut Connection, connector: &Connector) -> Result<()> {
    static DIRECT: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let Some(mark) = connection.mark.clone() else { return Ok(()) };
    let address = connector.address.to_string();
    if DIRECT.lock().contains(&address) {
        return Ok(());
    }
    let _other = connector.connect()?;
    (0..POOLER_PROBES).try_for_each(|_| refuse_session(connection, &mark, connector))?;
    let mut direct = DIRECT.lock();
    if direct.len() < DIRECT_MAX {
        direct.insert(address);
    }
    Ok(())
}

/// Fails if the next transaction has another session than the one with `mark`. No statement is
/// prepared for that, as giving it up would be one transaction more.
fn refuse_session(connection: &mut Connection, mark: &str, connector: &Connector) -> Result<()> {
    // A mark has no quotes.
    let probe = format!("SELECT 1 / (coalesce(current_setting('weft.session', true), '') = '{mark}')::int");
    match connection.run(WHAT, &probe) {
        Err(error) if trust::is_refusal(&error) => Err(pooled(&connector.address)),
        probed => probed,
    }
}

fn pooled(address: &Address) -> Error {
    Error::Unusable(format!(
        "{address} is reached through a pooler that gives each transaction another session of the server (pgbouncer's \
         pool_mode = transaction or statement); use pool_mode = session, or the server's own address"
    ))
}

/// A setting without which a server that crashes loses what it acknowledged, or does not notice
/// what it lost.
struct Needed {
    name: &'static str,
    value: &'static str,
    /// The consequence of another value.
    risk: &'static str,
}

const NEEDED: &[Needed] = &[
    Needed { name: "fsync", value: "on", risk: "a crash of its machine would lose or damage what it acknowledged" },
    Needed { name: "full_page_writes", value: "on", risk: "a crash of its machine could leave pages half written" },
    Needed {
        name: "data_sync_retry",
        value: "off",
        risk: "it would go on after a failed sync that lost what it had acknowledged",
    },
    Needed { name: "zero_damaged_pages", value: "off", risk: "damaged pages would be read as empty ones" },
    Needed { name: "ignore_checksum_failure", value: "off", risk: "damaged pages would be read as whole ones" },
];

/// The part of them that can change while a volume is mounted, as a condition that statements
/// contain. Missing settings are those of another engine.
macro_rules! is_durable {
    () => {
        "coalesce(current_setting('fsync', true), 'on') = 'on' \
         AND coalesce(current_setting('full_page_writes', true), 'on') = 'on' \
         AND coalesce(current_setting('synchronous_commit', true), 'on') IN ('on', 'remote_apply')"
    };
}
pub(super) use is_durable;

/// Refuses a server whose settings let a crash lose what it acknowledged, unless the address takes
/// it as it is.
pub(super) fn refuse_weak(connection: &mut Connection, address: &Address) -> Result<()> {
    if address.trusts_server {
        return Ok(());
    }
    let names = NEEDED.iter().map(|needed| needed.name.to_owned());
    let names = names.chain(["synchronous_commit".to_owned()]).collect::<Vec<_>>();
    let asked = "SELECT name, current_setting(name, true) FROM unnest($1::text[]) AS d (name)";
    let rows = connection.query(WHAT, asked, vec![Box::new(names)])?;
    for row in &rows {
        let (name, value) = (get::<String>(row, 0)?, get::<Option<String>>(row, 1)?);
        let Some(value) = value else { continue };
        if let Some(needed) = NEEDED.iter().find(|needed| needed.name == name) {
            if value != needed.value {
                return Err(weak(address, &format!("{name} is {value}: {}", needed.risk), &set(needed)));
            }
        } else if value != "on" && value != "remote_apply" {
            let risk =
                format!("{name} is {value}, and this session may not change it: it acknowledges commits too early");
            return Err(weak(address, &risk, "connect without a pooler that changes settings"));
        }
    }
    Ok(())
}

/// Refuses a volume if somebody has changed one of its tables so that a crash empties it, unless
/// the address takes that as it is.
pub(super) fn refuse_emptied(connection: &mut Connection, address: &Address) -> Result<()> {
    if address.trusts_server {
        return Ok(());
    }
    let asked = "SELECT c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
                 WHERE n.nspname = $1 AND c.relkind = 'r' AND c.relpersistence <> 'p' LIMIT 1";
    // An engine that cannot tell has no such tables.
    let rows = connection.query(WHAT, asked, vec![Box::new(address.schema.clone())]).unwrap_or_default();
    let Some(row) = rows.first() else { return Ok(()) };
    let table = format!("{}.{}", address.schema, get::<String>(row, 0)?);
    let risk = format!("a crash would empty its table {table}, which is not logged");
    Err(weak(address, &risk, &format!("run ALTER TABLE {table} SET LOGGED")))
}

/// Fails if a table in schema $1 is one that a crash empties. Tables are found by their names:
/// those have an index, and a schema may have thousands of files' own tables, which are passed
/// over.
const REFUSE_EMPTIED: &str = "SELECT 1 / CASE WHEN EXISTS (SELECT 1 FROM pg_class c \
    JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relpersistence <> 'p' \
    AND c.relname IN ('volume', 'lease', 'intents', 'commits', 'fileatt', 'naming', 'extents', 'blocks', 'dropped', \
    'branches', 'nodes', 'xattr', 'retention', 'pins', 'fileatt_history', 'content_history', 'naming_history', \
    'extents_history', 'xattr_history')) THEN 0 ELSE 1 END";

/// Fails, among the statements of a commit, if somebody has made a table of the volume one that a
/// crash empties: by [`is_weak`]. None where the address takes that as it is, or the engine may
/// have no such tables.
pub(super) fn refuse_emptied_call(connection: &Connection, address: &Address) -> Option<Call> {
    let is_asked = !address.trusts_server && connection.mark.is_some() && !connection.lies_apart;
    is_asked.then(|| Call::new(REFUSE_EMPTIED, vec![Box::new(address.schema.clone())]))
}

fn set(needed: &Needed) -> String {
    let (name, value) = (needed.name, needed.value);
    format!("set {name} = {value} for the server, and for the role or database that has another value")
}

fn weak(address: &Address, risk: &str, advice: &str) -> Error {
    Error::NotDurable(format!(
        "the server of {address} may lose what it acknowledges: {risk}; {advice}, or add durability=server to the \
         address to take the server's settings as they are"
    ))
}

/// Returns the statement of a commit that fails, by [`is_weak`], if its `volume`, its session or
/// the settings are not what they were.
pub(super) fn refuse_weak_call(connection: &Connection, address: &Address, volume: &[u8]) -> Call {
    let mark = connection.mark.clone();
    Call::new(sql::REFUSE_WEAK, vec![Box::new(mark), Box::new(address.trusts_server), Box::new(volume.to_vec())])
}

/// True if `error` is that of [`refuse_weak_call`] or [`refuse_emptied_call`].
pub(super) fn is_weak(error: &Error) -> bool {
    matches!(error, Error::Postgres { source, .. } if source.code() == Some(&SqlState::DIVISION_BY_ZERO))
}

/// Returns the reason that one of these calls failed, unless it has passed.
pub(super) fn why_weak(connection: &mut Connection, address: &Address) -> Error {
    let reason = refuse_weak(connection, address).and_then(|()| refuse_emptied(connection, address)).err();
    reason.unwrap_or_else(|| {
        Error::NotDurable(format!(
            "{address} had settings for a moment, or a session, in which a commit is not durable"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::REFUSE_EMPTIED;
    use crate::tables::{Dialect, names};

    #[test]
    fn each_table_that_a_volume_needs_is_looked_at_by_commits() {
        // Nothing is in the one that others are made like.
        for table in names(Dialect::Postgres).filter(|table| table != "blocks_of") {
            assert!(REFUSE_EMPTIED.contains(&format!("'{table}'")), "{table}");
        }
    }
}
