//! Rights of roles: what a daemon needs is looked for before it commits, and nothing is for
//! everybody.

use super::address::Address;
use super::connection::Connection;
use super::own::PREFIX;
use super::read::get;
use crate::error::{Error, Result};
use crate::tables::{self, Dialect};

/// Tables, a right that the role lacks there, the owner of the table, that of the volume, and the
/// role, as SQL names them; of rights, `OWN` is what the owner alone has, and `MAKE` the owner's
/// own right to make tables in the schema.
const LACKING: &str = "SELECT c.relname::text, p.said, quote_ident(pg_get_userbyid(c.relowner)), \
    quote_ident(pg_get_userbyid(v.relowner)), quote_ident(current_user) \
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_class v ON v.relnamespace = c.relnamespace AND v.relname = 'volume' \
    CROSS JOIN unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'OWN', 'MAKE']) AS p (said) \
    WHERE c.relnamespace = current_schema()::regnamespace::oid AND c.relkind IN ('r', 'p') \
    AND NOT CASE p.said WHEN 'OWN' THEN pg_has_role(c.relowner, 'USAGE') AND pg_has_role(c.relowner, \
    CASE WHEN current_setting('server_version_num')::integer < 160000 THEN 'MEMBER' ELSE 'SET' END) \
    WHEN 'MAKE' THEN has_schema_privilege(c.relowner, current_schema(), 'CREATE') \
    ELSE has_table_privilege(c.oid, p.said) END \
    ORDER BY c.relname <> 'volume', 1, p.said <> 'OWN', 2";

/// The owner of the volume, as SQL names it, if that is another role than the connected one.
const OTHER_OWNER: &str = "SELECT quote_ident(pg_get_userbyid(c.relowner)) FROM pg_catalog.pg_class c \
    WHERE c.relnamespace = current_schema()::regnamespace::oid AND c.relname = 'volume' AND c.relkind IN ('r', 'p') \
    AND pg_get_userbyid(c.relowner) <> current_user";

/// The table whose owner is the owner of the volume.
const OWNED: &str = "volume";

/// The purpose for which a role uses a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Task {
    /// Read all rows.
    Read,
    /// Take the lease.
    Hold,
    /// Commit: change the rows of all tables.
    Serve,
    /// The same where large files have tables of their own, which are made and dropped.
    ServeOwnTables,
    /// Change tables.
    Alter,
}

impl Task {
    /// Returns the action that the role may not do if it lacks `right` on `table`, if the task
    /// needs it.
    fn lacks(self, table: &str, right: &str) -> Option<String> {
        match (self, right) {
            (Task::Read, "SELECT") if is_used(table) => Some(format!("SELECT rows of the table {table}")),
            (Task::Hold, "SELECT" | "UPDATE") if table == "lease" => Some(format!("{right} rows of the table lease")),
            (Task::Serve | Task::ServeOwnTables, "SELECT" | "INSERT" | "UPDATE" | "DELETE") if is_used(table) => {
                Some(format!("{right} rows of the table {table}"))
            }
            // Else it could not drop it.
            (Task::ServeOwnTables, "OWN") if table.starts_with(PREFIX) => Some(format!("drop the table {table}")),
            (Task::ServeOwnTables, "OWN" | "MAKE") if table == OWNED => {
                Some("make tables like the table blocks_of".into())
            }
            (Task::Alter, "OWN") if is_made(table) || table.starts_with(PREFIX) => {
                Some(format!("change the table {table}"))
            }
            _ => None,
        }
    }
}

/// Refuses `task` to a role that lacks a right for it, and says how to give it: operations that
/// were acknowledged could never be committed, and what was begun not be ended.
pub(super) fn refuse_lacking(connection: &mut Connection, address: &Address, task: Task) -> Result<()> {
    let Ok(rows) = connection.query("cannot look at the role's rights", LACKING, Vec::new()) else {
        // An engine that cannot say, or a connection that breaks again when it is used.
        return Ok(());
    };
    for row in &rows {
        let [table, right, owner, volumes, role] = [0, 1, 2, 3, 4].map(|column| get::<String>(row, column));
        let (table, right, owner, volumes, role) = (table?, right?, owner?, volumes?, role?);
        let Some(what) = task.lacks(&table, &right) else { continue };
        let schema = &address.schema;
        let remedy = match right.as_str() {
            _ if owner != volumes && table.starts_with(PREFIX) => format!(
                "the table belongs to role {owner} and not to {volumes}, which owns the volume; run 'weft check \
                 --repair' as role {owner}, or have an administrator run {}",
                give(&format!("{schema}.{table}"), &volumes)
            ),
            "OWN" => format!(
                "it lacks the rights of their owner; connect as role {owner}, which owns the tables, or have an \
                 administrator run GRANT {owner} TO {role}"
            ),
            "MAKE" => format!(
                "their owner, role {owner}, lacks the right CREATE on schema {schema}; have an administrator run \
                 GRANT CREATE ON SCHEMA {schema} TO {owner}"
            ),
            right => format!(
                "it lacks the right {right} there; connect as role {owner}, which owns the tables, or have an \
                 administrator run GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role}"
            ),
        };
        return Err(Error::Unusable(format!(
            "role {role} may not {what} of {address}: {remedy} (docs/guide/postgresql.md, 'Roles and rights')"
        )));
    }
    Ok(())
}

/// Returns the owner of the volume, as SQL names it, if that is another role than the connected
/// one.
pub(super) fn other_owner(connection: &mut Connection) -> Option<String> {
    // An engine that cannot say has no such roles.
    let rows = connection.query("cannot look for the volume's owner", OTHER_OWNER, Vec::new()).ok()?;
    get(rows.first()?, 0).ok()
}

/// Returns `statements`, which make tables in the transaction under way, between those that take on
/// the role of `owner`: tables are the owner's then, with the rights that the owner gives new ones
/// by default (ALTER DEFAULT PRIVILEGES).
pub(super) fn made_by(owner: Option<&str>, statements: impl IntoIterator<Item = String>) -> Vec<String> {
    let (before, after) = match owner {
        // Local, the role ends with the transaction in any case.
        Some(owner) => (Some(format!("SET LOCAL ROLE {owner}")), Some("SET LOCAL role TO DEFAULT".to_owned())),
        None => (None, None),
    };
    before.into_iter().chain(statements).chain(after).collect()
}

/// Makes `table` the property of role `owner`.
pub(super) fn give(table: &str, owner: &str) -> String {
    format!("ALTER TABLE {table} OWNER TO {owner}")
}

/// True if Weft makes `table` with the volume.
fn is_made(table: &str) -> bool {
    tables::names(Dialect::Postgres).any(|made| made == table)
}

/// True if commits read or write `table`: those of history once that is switched on, by a daemon
/// that has the volume already.
fn is_used(table: &str) -> bool {
    is_made(table) || table.starts_with(PREFIX)
}

/// Has nobody but the role that makes the tables of `schema` read them, whatever rights it gives
/// new tables by default (ALTER DEFAULT PRIVILEGES).
pub(super) fn revoke_all(schema: &str) -> String {
    format!("REVOKE ALL ON ALL TABLES IN SCHEMA {schema} FROM PUBLIC")
}

/// The same of one table.
pub(super) fn revoke(table: &str) -> String {
    format!("REVOKE ALL ON {table} FROM PUBLIC")
}
