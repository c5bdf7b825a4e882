//! Refuses a schema in which another role can have the connected role run that role's code.
//!
//! Statements name tables and operators without their schema. An operator or function in the
//! volume's schema that takes exactly the types of an expression wins over the server's own, and
//! runs as the connected role (CVE-2018-1058). So each new session looks at the schema with a
//! `search_path` of `pg_catalog` alone, and adds the schema only if nobody can get in between.
//!
//! Trusted are roles that can become the connected role anyway (itself, its members, superusers),
//! the role that owns the volume's table `volume`, and the owner of the database unless a superuser
//! is connected.

use super::address::Address;
use super::connection::Connection;
use super::own::PREFIX;
use super::read::get;
use crate::error::{Error, Result};
use crate::tables::{self, Dialect};
use crate::views;
use tokio_postgres::error::SqlState;

const WHAT: &str = "cannot look at who may use the schema";

/// Sets the search path of the session while the schema is not trusted yet.
pub(super) const PIN: &str = "SET search_path TO pg_catalog";

/// The expected state of a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// A volume lies there: who owns its tables is trusted.
    Open,
    /// A volume is to be made there.
    Make,
}

/// Selects the schema, its owner, and who is trusted. The owner of `public` stands for the owner of
/// the database.
const US: &str = "WITH us AS (SELECT n.oid AS schema, n.nspacl AS acl, n.nspowner AS owned, d.datdba AS dba, \
    CASE WHEN pg_get_userbyid(n.nspowner) = 'pg_database_owner' THEN d.datdba ELSE n.nspowner END AS owner, \
    current_setting('is_superuser') = 'on' AS is_super, \
    (SELECT v.relowner FROM pg_class v WHERE {is_open} AND v.relnamespace = n.oid AND v.relname = 'volume' \
    AND v.relkind IN ('r', 'p')) AS maker \
    FROM pg_namespace n JOIN pg_database d ON d.datname = current_database() WHERE n.nspname = '{schema}')";

/// True if role `$role` can become the connected role.
macro_rules! is_us {
    ($role:literal) => {
        concat!("coalesce(pg_has_role(", $role, ", current_user, 'MEMBER'), false)")
    };
}

/// True if role `$role` is trusted.
macro_rules! is_trusted {
    ($role:literal) => {
        concat!(
            is_us!($role),
            " OR coalesce(pg_has_role(",
            $role,
            ", us.maker, 'MEMBER'), false) OR (",
            $role,
            " = us.dba AND NOT us.is_super)"
        )
    };
}

/// Selects who else can make objects in the schema: kind, name, what it is on.
const OTHERS: &str = concat!(
    "SELECT 'owner'::text, pg_get_userbyid(us.owned)::text, ''::text FROM us WHERE NOT (",
    is_trusted!("us.owner"),
    ") UNION ALL SELECT 'create', CASE a.grantee WHEN 0 THEN '' ELSE pg_get_userbyid(a.grantee)::text END, '' \
     FROM us, aclexplode(us.acl) a WHERE a.privilege_type = 'CREATE' AND a.grantee <> us.owned \
     AND CASE WHEN a.grantee = 0 THEN true ELSE NOT (",
    is_trusted!("a.grantee"),
    " OR coalesce(pg_has_role(a.grantee, us.owner, 'MEMBER'), false)) END"
);

/// Selects objects of the schema that statements would find. Tables have row types, and arrays of
/// these.
const OBJECTS: &str = "SELECT 'ROUTINE', p.oid::regprocedure::text, '' FROM us JOIN pg_proc p ON p.pronamespace = us.schema \
    UNION ALL SELECT 'OPERATOR', o.oid::regoperator::text, '' FROM us JOIN pg_operator o ON o.oprnamespace = us.schema \
    UNION ALL SELECT 'OPERATOR CLASS', c.opcname::text, '' FROM us JOIN pg_opclass c ON c.opcnamespace = us.schema \
    UNION ALL SELECT 'OPERATOR FAMILY', f.opfname::text, '' FROM us JOIN pg_opfamily f ON f.opfnamespace = us.schema \
    UNION ALL SELECT 'COLLATION', c.collname::text, '' FROM us JOIN pg_collation c ON c.collnamespace = us.schema \
    UNION ALL SELECT 'CONVERSION', c.conname::text, '' FROM us JOIN pg_conversion c ON c.connamespace = us.schema \
    UNION ALL SELECT 'TYPE', t.oid::regtype::text, '' FROM us JOIN pg_type t ON t.typnamespace = us.schema \
    LEFT JOIN pg_type e ON e.typarray = t.oid LEFT JOIN pg_class c ON c.oid = coalesce(e.typrelid, t.typrelid) \
    WHERE c.oid IS NULL OR c.relkind = 'c'";

/// Selects code that runs when the volume's tables are used, and was put there by a role that
/// cannot become the connected one. (Their owner's own mistakes are reported by `shape`.)
const CODE: &str = concat!(
    ", tables AS (SELECT c.oid, c.relname::text AS name, c.relowner AS owner, us.schema FROM us \
     JOIN pg_class c ON c.relnamespace = us.schema WHERE c.relkind IN ('r', 'p') \
     AND (c.relname IN ({tables}) OR starts_with(c.relname::text, '{prefix}'))), \
     theirs AS (SELECT t.* FROM tables t WHERE NOT ",
    is_us!("t.owner"),
    ")"
);

/// The second part of [`CODE`].
const RUN: &str = concat!(
    "SELECT 'trigger', g.tgname::text, t.name FROM tables t JOIN pg_trigger g ON g.tgrelid = t.oid \
     JOIN pg_proc p ON p.oid = g.tgfoid WHERE NOT g.tgisinternal \
     AND (p.pronamespace <> 'pg_catalog'::regnamespace::oid OR g.tgqual IS NOT NULL) \
     AND NOT (",
    is_us!("t.owner"),
    " AND ",
    is_us!("p.proowner"),
    ") UNION ALL SELECT 'rule', r.rulename::text, t.name FROM theirs t JOIN pg_rewrite r ON r.ev_class = t.oid \
     UNION ALL SELECT 'policy', p.polname::text, t.name FROM theirs t JOIN pg_policy p ON p.polrelid = t.oid \
     UNION ALL SELECT 'constraint', o.conname::text, t.name FROM theirs t JOIN pg_constraint o ON o.conrelid = t.oid \
     WHERE o.contype NOT IN ('p', 'n', 't') AND pg_get_constraintdef(o.oid) <> 'CHECK ((id = 1))' \
     UNION ALL SELECT 'default', a.attname::text, t.name FROM theirs t JOIN pg_attrdef d ON d.adrelid = t.oid \
     JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum = d.adnum \
     WHERE a.attgenerated <> '' OR coalesce(pg_get_expr(d.adbin, d.adrelid), '') NOT IN \
     ('''-1''::integer', '''-1''::bigint', '(-1)', '''-1''::integer::bigint', '(''-1''::integer)::bigint') \
     UNION ALL SELECT 'column', a.attname::text, t.name FROM theirs t JOIN pg_attribute a ON a.attrelid = t.oid \
     JOIN pg_type y ON y.oid = a.atttypid WHERE a.attnum > 0 AND y.typnamespace <> 'pg_catalog'::regnamespace::oid \
     UNION ALL SELECT 'index', i.relname::text, t.name FROM theirs t JOIN pg_index x ON x.indrelid = t.oid \
     JOIN pg_class i ON i.oid = x.indexrelid WHERE x.indexprs IS NOT NULL \
     OR (x.indpred IS NOT NULL AND coalesce(pg_get_expr(x.indpred, x.indrelid), '') <> '(nlink = 0)') \
     UNION ALL SELECT 'partition', i.inhrelid::regclass::text, t.name FROM theirs t \
     JOIN pg_inherits i ON i.inhparent = t.oid \
     UNION ALL SELECT 'view', c.relname::text, '' FROM us JOIN pg_class c ON c.relnamespace = us.schema \
     WHERE c.relkind IN ('v', 'm', 'f') AND NOT (c.relname IN ({views}) AND c.relkind = 'v') AND NOT ",
    is_us!("c.relowner")
);

/// Selects all that makes the schema not to be trusted.
fn faults(schema: &str, used: Use) -> String {
    let is_open = if used == Use::Open { "true" } else { "false" };
    let tables = tables::names(Dialect::Postgres).map(|table| format!("'{table}'")).collect::<Vec<_>>().join(", ");
    // A schema's name has no quotes.
    let us = US.replace("{is_open}", is_open).replace("{schema}", schema);
    let code = CODE.replace("{tables}", &tables).replace("{prefix}", PREFIX);
    let views = views::NAMES.iter().chain([&views::FILES]).map(|view| format!("'{view}'")).collect::<Vec<_>>();
    let run = RUN.replace("{views}", &views.join(", "));
    format!("{us}{code} {OTHERS} UNION ALL {OBJECTS} UNION ALL {run}")
}

/// A statement that fails if the schema of `address` is not to be trusted, by [`is_refusal`]. The
/// session must look at `pg_catalog` alone.
pub(super) fn refusal(address: &Address) -> String {
    format!("SELECT 1 / CASE WHEN EXISTS ({}) THEN 0 ELSE 1 END", faults(&address.schema, Use::Open))
}

/// True if `error` is that of [`refusal`].
pub(super) fn is_refusal(error: &Error) -> bool {
    matches!(error, Error::Postgres { source, .. } if source.code() == Some(&SqlState::DIVISION_BY_ZERO))
}

/// True if the server is PostgreSQL, or made of it: others may not answer [`refusal`].
pub(super) fn is_postgres(connection: &mut Connection) -> Result<bool> {
    // Not prepared: behind a pooler the next statement may have another session.
    let probe = "SELECT 1 / (pg_catalog.version() LIKE 'PostgreSQL %')::int";
    match connection.run(WHAT, probe) {
        Err(error) if is_refusal(&error) => Ok(false),
        probed => probed.map(|()| true),
    }
}

/// Returns the reason that [`refusal`] failed.
pub(super) fn why(connection: &mut Connection, address: &Address) -> Error {
    // A transaction has one session, also behind a pooler.
    let refused = connection
        .run(WHAT, "BEGIN; SET LOCAL search_path TO pg_catalog")
        .and_then(|()| refuse(connection, address, Use::Open));
    refused.err().unwrap_or_else(|| {
        Error::Unusable(format!("schema '{}' of {address} was changed by somebody at this moment", address.schema))
    })
}

/// Refuses a schema that is not to be trusted, and says what to do about it. The session must look
/// at `pg_catalog` alone.
pub(super) fn refuse(connection: &mut Connection, address: &Address, used: Use) -> Result<()> {
    // Where an engine has answered when the session began it answers now.
    if connection.mark.is_none() && !is_postgres(connection)? {
        return Ok(());
    }
    let rows = connection.query(WHAT, faults(&address.schema, used), Vec::new())?;
    let Some(row) = rows.first() else { return Ok(()) };
    let (kind, name, table): (String, String, String) = (get(row, 0)?, get(row, 1)?, get(row, 2)?);
    Err(Error::Unusable(fault(address, &kind, &printable(&name), &printable(&table))))
}

/// Describes the fault of the schema, its possible consequences, and the remedy.
fn fault(address: &Address, kind: &str, name: &str, table: &str) -> String {
    let schema = &address.schema;
    let risk = "could run code of their own as the role that is connected here";
    match kind {
        "owner" => format!(
            "schema '{schema}' of {address} belongs to role '{name}', which is neither the one that is connected nor \
             the volume's owner, and {risk}; give it to the role that makes volumes (ALTER SCHEMA {schema} OWNER TO …), \
             or name another schema with ?schema=NAME"
        ),
        "create" => {
            let (who, role) = match name {
                "" => ("everybody".to_owned(), "PUBLIC"),
                name => (format!("role '{name}'"), name),
            };
            format!(
                "{who} may make objects in schema '{schema}' of {address}, and {risk}; run REVOKE CREATE ON SCHEMA \
                 {schema} FROM {role}, or name another schema with ?schema=NAME"
            )
        }
        "ROUTINE" | "OPERATOR" | "OPERATOR CLASS" | "OPERATOR FAMILY" | "COLLATION" | "CONVERSION" | "TYPE" => {
            format!(
                "schema '{schema}' of {address} holds the {} {name}, which would be used in place of the server's own; \
                 a volume's schema holds tables alone: see who made it, then drop it (DROP {kind} …), or name another \
                 schema with ?schema=NAME",
                if kind == "ROUTINE" { "function".to_owned() } else { kind.to_lowercase() }
            )
        }
        "view" => format!(
            "schema '{schema}' of {address} holds the view or foreign table {name} of another role, which could run \
             its code here; see who made it, then drop it"
        ),
        kind => format!(
            "the {kind} {name} on {table} in schema '{schema}' of {address} is none of Weft's, and would run code of \
             another role as the one that is connected here; see who made it, then drop it, or connect as the \
             role that owns the volume"
        ),
    }
}

/// Names in messages: others chose them.
fn printable(name: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_graphic() || letter == ' ' || letter.is_alphanumeric();
    name.chars().map(|letter| if is_plain(letter) { letter } else { '?' }).collect()
}
