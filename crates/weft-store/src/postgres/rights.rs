//! Rights of roles: what a daemon needs is looked for before it commits, and nothing is for
//! everybody.

use super::address::Address;
use super::connection::Connection;
use super::own::PREFIX;
use super::read::get;
use super::schema::TABLES;
use crate::error::{Error, Result};

/// Tables, a right that the role lacks there, who owns the table, and the role, both as SQL names
/// them; of rights, `OWN` is what the owner alone has, and `MAKE` that to make tables in the
/// schema.
const LACKING: &str = "SELECT c.relname::text, p.said, quote_ident(pg_get_userbyid(c.relowner)), quote_ident(current_user) \
    FROM pg_catalog.pg_class c CROSS JOIN unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'OWN', 'MAKE']) AS p (said) \
    WHERE c.relnamespace = current_schema()::regnamespace::oid AND c.relkind IN ('r', 'p') \
    AND NOT CASE p.said WHEN 'OWN' THEN pg_has_role(c.relowner, 'USAGE') \
    WHEN 'MAKE' THEN has_schema_privilege(current_schema(), 'CREATE') ELSE has_table_privilege(c.oid, p.said) END \
    ORDER BY 1, p.said <> 'OWN', 2";

/// The table that others are made like.
const LIKE: &str = "blocks_of";

/// The purpose for which a role uses a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Task {
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
            (Task::Hold, "SELECT" | "UPDATE") if table == "lease" => Some(format!("{right} rows of the table lease")),
            (Task::Serve | Task::ServeOwnTables, "SELECT" | "INSERT" | "UPDATE" | "DELETE") if is_used(table) => {
                Some(format!("{right} rows of the table {table}"))
            }
            (Task::ServeOwnTables, "OWN" | "MAKE") if table == LIKE => {
                Some(format!("make tables like the table {LIKE}"))
            }
            (Task::Alter, "OWN") if is_made(table) => Some(format!("change the table {table}")),
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
        let [table, right, owner, role] = [0, 1, 2, 3].map(|column| get::<String>(row, column));
        let (right, owner, role) = (right?, owner?, role?);
        let Some(what) = task.lacks(&table?, &right) else { continue };
        let schema = &address.schema;
        let (reason, grant) = match right.as_str() {
            "OWN" => ("it lacks the rights of their owner".to_owned(), format!("GRANT {owner} TO {role}")),
            "MAKE" => (
                format!("it lacks the right CREATE on schema {schema}"),
                format!("GRANT CREATE ON SCHEMA {schema} TO {role}"),
            ),
            right => (
                format!("it lacks the right {right} there"),
                format!("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role}"),
            ),
        };
        return Err(Error::Unusable(format!(
            "role {role} may not {what} of {address}: {reason}; connect as role {owner}, which owns the tables, or have \
             an administrator run {grant} (docs/guide/postgresql.md, 'Roles and rights')"
        )));
    }
    Ok(())
}

/// True if Weft makes `table` with the volume.
fn is_made(table: &str) -> bool {
    TABLES.iter().any(|made| made.starts_with(&format!("CREATE TABLE {table} (")))
}

/// True if commits read or write `table`. Nothing is in those of history.
fn is_used(table: &str) -> bool {
    (is_made(table) && !table.ends_with("_history")) || table.starts_with(PREFIX)
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
