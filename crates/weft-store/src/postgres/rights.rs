//! Rights of roles: what a daemon needs is looked for before it commits, and nothing is for everybody.

use super::address::Address;
use super::connection::Connection;
use super::own::PREFIX;
use super::read::get;
use super::schema::TABLES;
use crate::error::{Error, Result};

/// Tables and a right that the role lacks, and the table that others are made like if the role is
/// not its owner, or may make none in the schema.
const LACKING: &str = "SELECT c.relname::text, p.said FROM pg_catalog.pg_class c \
    CROSS JOIN unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS p (said) \
    WHERE c.relnamespace = current_schema()::regnamespace::oid AND c.relkind IN ('r', 'p') \
    AND NOT has_table_privilege(c.oid, p.said) \
    UNION ALL SELECT c.relname::text, 'OWN' FROM pg_catalog.pg_class c \
    WHERE c.oid = 'blocks_of'::regclass::oid AND NOT (pg_has_role(c.relowner, 'MEMBER') \
    AND has_schema_privilege(current_schema(), 'CREATE')) ORDER BY 1, 2";

/// Refuses to write as a role that may not change the rows of all tables, or, of a volume that
/// `makes_tables`, that may make none: operations that were acknowledged could never be committed.
pub(super) fn refuse_lacking(connection: &mut Connection, address: &Address, makes_tables: bool) -> Result<()> {
    let Ok(rows) = connection.query("cannot look at the role's rights", LACKING, Vec::new()) else {
        // An engine that cannot say, or a connection that breaks again when it is used.
        return Ok(());
    };
    for row in &rows {
        let (table, right) = (get::<String>(row, 0)?, get::<String>(row, 1)?);
        let lacking = match right.as_str() {
            "OWN" if makes_tables => "make tables like".to_owned(),
            "OWN" => continue,
            right if is_used(&table) => format!("{right} rows of"),
            _ => continue,
        };
        return Err(Error::Unusable(format!(
            "the role may not {lacking} the table {table} of {address}, as whoever serves the volume must; \
             grant that (docs/guide/postgresql.md lists what), or connect as the role that made the volume"
        )));
    }
    Ok(())
}

/// True if commits read or write `table`. Nothing is in those of history.
fn is_used(table: &str) -> bool {
    let is_made = TABLES.iter().any(|made| made.starts_with(&format!("CREATE TABLE {table} (")));
    (is_made && !table.ends_with("_history")) || table.starts_with(PREFIX)
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
