//! The tables of a volume's schema, compared with those of a new volume, by the catalogs of the
//! server.
//!
//! Catalogs are PostgreSQL's own; where another engine answers, nothing is compared.

use super::connection::{Call, Connection};
use super::own::PREFIX;
use super::read::get;
use super::rights;
use crate::error::Result;
use crate::shape::{Misfit, Weight, differing, quoted, refuse};
use crate::tables::{self, Dialect, Made, is_of_versions};
use crate::views;
use std::collections::{BTreeMap, BTreeSet};
use tokio_postgres::Row;

const WHAT: &str = "cannot read the schema of the volume";

/// The engine.
const VERSION: &str = "SELECT version()::text";

/// Tables: name, kind, row security, what PUBLIC, which is everybody, may do with them, their owner
/// and that of the volume, as SQL names them. A table that a crash empties is reported elsewhere
/// (`settings`).
const RELATIONS: &str = "SELECT c.relname::text, c.relkind::text, \
    c.relrowsecurity OR c.relforcerowsecurity, coalesce((SELECT string_agg(a.privilege_type, ', ' \
    ORDER BY a.privilege_type) FROM aclexplode(c.relacl) a WHERE a.grantee = 0), ''), \
    quote_ident(pg_get_userbyid(c.relowner)), coalesce((SELECT quote_ident(pg_get_userbyid(v.relowner)) \
    FROM pg_catalog.pg_class v WHERE v.relnamespace = c.relnamespace AND v.relname = 'volume'), '') \
    FROM pg_catalog.pg_class c WHERE c.relnamespace = current_schema()::regnamespace::oid \
    AND c.relkind IN ('r', 'p', 'v', 'm', 'f') ORDER BY 1";

/// Columns of tables, as they would be said.
const COLUMNS: &str = "SELECT c.relname::text, a.attname::text || ' ' || format_type(a.atttypid, a.atttypmod) \
    || CASE WHEN a.attnotnull THEN ' NOT NULL' ELSE '' END \
    || CASE WHEN a.attgenerated <> '' THEN ' GENERATED' ELSE '' END \
    FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_class c ON c.oid = a.attrelid \
    WHERE c.relnamespace = current_schema()::regnamespace::oid AND c.relkind IN ('r', 'p') AND a.attnum > 0 \
    AND NOT a.attisdropped ORDER BY c.relname, a.attnum";

/// Indices: table, name, definition, whether it is whole, and the constraint that it is for. The
/// server quotes the columns whose names are words of SQL, such as `time`.
const INDICES: &str = "SELECT t.relname::text, i.relname::text, \
    CASE WHEN x.indisunique THEN 'UNIQUE ' ELSE '' END \
    || '(' || (SELECT string_agg(replace(pg_get_indexdef(x.indexrelid, n, true), chr(34), ''), ', ' ORDER BY n) \
    FROM generate_series(1, x.indnatts) n) || ')' || CASE WHEN x.indpred IS NULL THEN '' ELSE ' WHERE' END, \
    x.indisvalid AND x.indisready, coalesce((SELECT o.contype::text FROM pg_catalog.pg_constraint o \
    WHERE o.conindid = x.indexrelid AND o.contype IN ('p', 'u', 'x') LIMIT 1), '') \
    FROM pg_catalog.pg_index x JOIN pg_catalog.pg_class i ON i.oid = x.indexrelid \
    JOIN pg_catalog.pg_class t ON t.oid = x.indrelid \
    WHERE t.relnamespace = current_schema()::regnamespace::oid AND t.relkind IN ('r', 'p') ORDER BY 1, 2";

/// Constraints other than keys and NOT NULL, triggers and rules: what it is, its table and its
/// name. Extensions (Citus) have triggers of the catalog's functions.
const OTHERS: &str = "SELECT 'constraint'::text, t.relname::text, o.conname::text FROM pg_catalog.pg_constraint o \
    JOIN pg_catalog.pg_class t ON t.oid = o.conrelid WHERE t.relnamespace = current_schema()::regnamespace::oid \
    AND o.contype NOT IN ('p', 'n', 't') AND NOT (o.contype = 'c' AND o.conname::text = t.relname::text || '_id_check') \
    UNION ALL SELECT 'trigger', t.relname::text, g.tgname::text FROM pg_catalog.pg_trigger g \
    JOIN pg_catalog.pg_class t ON t.oid = g.tgrelid JOIN pg_catalog.pg_proc p ON p.oid = g.tgfoid \
    WHERE t.relnamespace = current_schema()::regnamespace::oid AND NOT g.tgisinternal \
    AND p.pronamespace <> 'pg_catalog'::regnamespace::oid \
    UNION ALL SELECT 'rule', t.relname::text, r.rulename::text FROM pg_catalog.pg_rewrite r \
    JOIN pg_catalog.pg_class t ON t.oid = r.ev_class WHERE t.relnamespace = current_schema()::regnamespace::oid \
    AND t.relkind IN ('r', 'p') ORDER BY 1, 2, 3";

/// An index that Weft makes.
struct Index {
    table: String,
    definition: String,
    made: String,
}

/// The tables of a new volume, by name.
fn made_tables() -> BTreeMap<String, Made> {
    tables::made(Dialect::Postgres).into_iter().map(|made| (made.name.clone(), made)).collect()
}

/// The indices of a new volume, by name.
fn made_indices() -> BTreeMap<&'static str, Index> {
    let made = tables::indices(Dialect::Postgres).into_iter().map(|(table, index)| {
        let (definition, made) = (index.definition(Dialect::Postgres), index.text(&table, Dialect::Postgres));
        (index.name, Index { table, definition, made })
    });
    made.collect()
}

/// The schema as the server's catalog describes it.
struct Catalog {
    relations: Vec<Row>,
    columns: BTreeMap<String, Vec<String>>,
    indices: Vec<Row>,
    others: Vec<Row>,
}

impl Catalog {
    /// Reads the catalog. None where another engine than PostgreSQL answers.
    fn read(connection: &mut Connection) -> Result<Option<Catalog>> {
        let version: String = match connection.query(WHAT, VERSION, Vec::new())?.first() {
            Some(row) => get(row, 0)?,
            None => String::new(),
        };
        if !version.starts_with("PostgreSQL ") || version.contains("-YB-") {
            return Ok(None);
        }
        let calls = [RELATIONS, COLUMNS, INDICES, OTHERS].map(|statement| Call::once(statement.to_owned(), Vec::new()));
        let mut answers = connection.query_all(WHAT, &calls)?.into_iter();
        let mut next = || answers.next().unwrap_or_default();
        let (relations, said, indices, others) = (next(), next(), next(), next());
        let mut columns = BTreeMap::<String, Vec<String>>::new();
        for row in &said {
            columns.entry(get(row, 0)?).or_default().push(get(row, 1)?);
        }
        Ok(Some(Catalog { relations, columns, indices, others }))
    }
}

/// The differences between the volume's schema and a new one.
pub(super) fn misfits(connection: &mut Connection) -> Result<Vec<Misfit>> {
    let Some(catalog) = Catalog::read(connection)? else { return Ok(Vec::new()) };
    let (tables, indices) = (made_tables(), made_indices());
    let mut misfits = Vec::new();
    others(&catalog, &tables, &mut misfits)?;
    relations(&catalog, &tables, &mut misfits)?;
    for (name, table) in &tables {
        let Some(found) = catalog.columns.get(name) else { continue };
        let made = table.columns.iter().map(|(name, said)| format!("{name} {said}")).collect::<Vec<_>>();
        let differ = |these: &[String]| these.iter().cloned().collect::<BTreeSet<_>>();
        if differ(&made) != differ(found) {
            let what = format!("the table {name} {}", differing(&made, found));
            misfits.push(Misfit::new(Weight::Lacking, what, None));
        }
    }
    compare_indices(&catalog, &tables, &indices, &mut misfits)?;
    Ok(misfits)
}

fn is_ours(table: &str, tables: &BTreeMap<String, Made>) -> bool {
    tables.contains_key(table) || table.starts_with(PREFIX)
}

/// Finds constraints, triggers and rules.
fn others(catalog: &Catalog, tables: &BTreeMap<String, Made>, misfits: &mut Vec<Misfit>) -> Result<()> {
    for row in &catalog.others {
        let (kind, table, name) = (get::<String>(row, 0)?, get::<String>(row, 1)?, get::<String>(row, 2)?);
        if is_ours(&table, tables) {
            let (on, dropped) = (quoted(&table), quoted(&name));
            let drop = match kind.as_str() {
                "constraint" => format!("ALTER TABLE {on} DROP CONSTRAINT {dropped}"),
                _ => format!("DROP {kind} {dropped} ON {on}"),
            };
            let what = format!("the {kind} {name} on {table} is none of Weft's");
            misfits.push(Misfit::new(Weight::Surplus, what, Some(drop)));
        }
    }
    Ok(())
}

/// Finds tables that are gone, are something else, hide rows or belong to another role than the
/// volume.
fn relations(catalog: &Catalog, tables: &BTreeMap<String, Made>, misfits: &mut Vec<Misfit>) -> Result<()> {
    let (mut there, mut maker) = (BTreeSet::new(), None);
    for row in &catalog.relations {
        let (name, kind): (String, String) = (get(row, 0)?, get(row, 1)?);
        let public: String = get(row, 3)?;
        if !public.is_empty() && (views::is_ours(&name) || is_ours(&name, tables)) {
            let what = format!("every role of the server may {public} rows of {name}, if it may use the schema");
            misfits.push(Misfit::new(Weight::Note, what, Some(rights::revoke(&quoted(&name)))));
        }
        if !is_ours(&name, tables) {
            if kind != "v" || !views::is_ours(&name) {
                misfits.push(Misfit::new(Weight::Note, format!("the table or view {name} is none of Weft's"), None));
            }
            continue;
        }
        let on = quoted(&name);
        if !matches!(kind.as_str(), "r" | "p") {
            misfits.push(Misfit::new(Weight::Lacking, format!("{name} is not a table"), None));
        }
        if get::<bool>(row, 2)? {
            let off = format!("ALTER TABLE {on} DISABLE ROW LEVEL SECURITY, NO FORCE ROW LEVEL SECURITY");
            let what = format!("row security hides rows of the table {name}");
            misfits.push(Misfit::new(Weight::Surplus, what, Some(off)));
        }
        let (owner, volumes): (String, String) = (get(row, 4)?, get(row, 5)?);
        if owner != volumes && !volumes.is_empty() {
            let what = format!("the table {name} belongs to role {owner} and not to {volumes}, which owns the volume");
            misfits.push(Misfit::new(Weight::Note, what, Some(rights::give(&on, &volumes))));
        }
        maker = Some(volumes).filter(|volumes| !volumes.is_empty());
        there.insert(name);
    }
    for (name, table) in tables.iter().filter(|(name, _)| !there.contains(*name)) {
        // Without versions of rows the past cannot be read, and all else is whole.
        let remedy = Some(&table.text).filter(|_| is_of_versions(name));
        let maker = maker.as_deref();
        let remedy = remedy.map(|made| rights::made_by(maker, [made.clone(), rights::revoke(name)]).join("; "));
        misfits.push(Misfit::new(Weight::Lacking, format!("the table {name} is missing"), remedy));
    }
    Ok(())
}

fn compare_indices(
    catalog: &Catalog,
    tables: &BTreeMap<String, Made>,
    indices: &BTreeMap<&'static str, Index>,
    misfits: &mut Vec<Misfit>,
) -> Result<()> {
    let (mut there, mut keys) = (BTreeSet::new(), BTreeSet::new());
    for row in &catalog.indices {
        let (table, name, definition): (String, String, String) = (get(row, 0)?, get(row, 1)?, get(row, 2)?);
        let (is_whole, constraint): (bool, String) = (get(row, 3)?, get(row, 4)?);
        let drop = format!("DROP INDEX {}", quoted(&name));
        if constraint == "p" {
            keys.insert((table, definition));
        } else if let Some(index) = indices.get(name.as_str()).filter(|index| index.table == table) {
            if definition != index.definition || !is_whole {
                let what = format!("the index {name} is not the one that Weft makes");
                misfits.push(Misfit::new(Weight::Lacking, what, Some(format!("{drop}; {}", index.made))));
            }
            there.insert(name);
        } else if constraint.is_empty() && is_ours(&table, tables) {
            let what = format!("the index {name} on {table} is none of Weft's");
            misfits.push(Misfit::new(Weight::Surplus, what, Some(drop)));
        }
    }
    for (name, index) in indices.iter().filter(|(name, _)| !there.contains(**name)) {
        let what = format!("the index {name} is missing");
        misfits.push(Misfit::new(Weight::Lacking, what, Some(index.made.clone())));
    }
    for (name, table) in tables.iter().filter(|(name, _)| catalog.columns.contains_key(*name)) {
        let key = format!("({})", table.key.join(", "));
        if !keys.contains(&(name.clone(), format!("UNIQUE {key}"))) {
            let what = format!("the table {name} has not the primary key {key}");
            let added = format!("ALTER TABLE {name} ADD PRIMARY KEY {key}");
            misfits.push(Misfit::new(Weight::Lacking, what, Some(added)));
        }
    }
    Ok(())
}

/// Refuses a volume that cannot be written safely.
pub(super) fn refuse_to_write(connection: &mut Connection) -> Result<()> {
    refuse(&misfits(connection)?, Weight::Surplus, "undo that change")
}

/// Refuses a volume that cannot be read.
pub(super) fn refuse_to_read(connection: &mut Connection) -> Result<()> {
    refuse(&misfits(connection)?, Weight::Lacking, "undo that change")
}

/// True if there is anything to put right.
pub(super) fn is_mendable(misfits: &[Misfit]) -> bool {
    misfits.iter().any(|misfit| misfit.remedy.is_some())
}

/// Puts right what can be, in the transaction under way.
pub(super) fn mend(connection: &mut Connection, misfits: &[Misfit]) -> Result<()> {
    let remedies = misfits.iter().filter_map(|misfit| misfit.remedy.as_ref());
    remedies.into_iter().try_for_each(|remedy| connection.run(WHAT, remedy))
}
