//! The schema of a database, compared with the one of a new volume.

use super::schema::{make_views, statements};
use crate::error::{Error, Result};
use crate::finding::{Finding, Repair};
use crate::shape::{Misfit, Weight, differing, is_hopeless, quoted, refuse};
use crate::tables::{self, Dialect, is_of_versions};
use crate::views;
use rusqlite::Connection;
use std::collections::BTreeMap;

/// Advice where the schema is damaged: no other command reads its tables.
const SALVAGE: &str = "have 'weft check --salvage VOLUME NEW' bring what can be read to a new volume";

fn failed(source: rusqlite::Error) -> Error {
    Error::Sqlite { what: "cannot read the schema of the database", source }
}

/// Tables, indices and so on: by kind and name, the table they are of and the statement that made
/// them.
type Objects = BTreeMap<(String, String), (String, String)>;

fn objects(connection: &Connection) -> Result<Objects> {
    // An index that a key of a table made has no statement, and what SQLite keeps for itself is
    // none of ours.
    let all = "SELECT type, name, tbl_name, sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%'";
    let mut statement = connection.prepare(all).map_err(failed)?;
    let read = |row: &rusqlite::Row<'_>| {
        let sql: String = row.get(3)?;
        // Blanks mean nothing.
        let sql = sql.split_whitespace().collect::<Vec<_>>().join(" ");
        Ok(((row.get(0)?, row.get(1)?), (row.get(2)?, sql)))
    };
    let rows = statement.query_map((), read).map_err(failed)?;
    rows.collect::<rusqlite::Result<_>>().map_err(failed)
}

/// The differences between the schema that `connection` sees and that of a new volume.
pub(super) fn misfits(connection: &Connection) -> Result<Vec<Misfit>> {
    let new = Connection::open_in_memory().map_err(failed)?;
    new.execute_batch(&statements()).map_err(failed)?;
    make_views(&new)?;
    let (mut expected, found) = (objects(&new)?, objects(connection)?);
    // Volumes that were made before the views of the past have none of these.
    expected.retain(|key, _| found.contains_key(key) || !views::NAMES.contains(&key.1.as_str()));
    if expected == found {
        return Ok(Vec::new());
    }
    let is_ours = |table: &str| expected.contains_key(&("table".into(), table.into()));
    let mut misfits = Vec::new();
    // What is too much goes first: a trigger would see the rest being put right.
    for ((kind, name), (table, _)) in found.iter().filter(|(key, _)| !expected.contains_key(*key)) {
        misfits.push(match kind.as_str() {
            "trigger" | "index" if is_ours(table) || views::is_ours(table) => {
                let drop = format!("DROP {kind} {}", quoted(name));
                Misfit::new(Weight::Surplus, format!("the {kind} {name} on {table} is none of Weft's"), Some(drop))
            }
            _ => Misfit::new(Weight::Note, format!("the {kind} {name} is none of Weft's"), None),
        });
    }
    for ((kind, name), (_, made)) in &expected {
        let there = found.get(&(kind.clone(), name.clone())).map(|(_, sql)| sql);
        if there != Some(made) {
            misfits.push(lacking((kind, name), made, there.is_some(), (&new, connection))?);
        }
    }
    Ok(misfits)
}

/// The difference that object `name` of a kind makes, which `made` makes and which is changed or
/// gone.
fn lacking(
    (kind, name): (&str, &str),
    made: &str,
    is_there: bool,
    (new, connection): (&Connection, &Connection),
) -> Result<Misfit> {
    let weight = if kind == "view" { Weight::View } else { Weight::Lacking };
    // Nothing is in the tables of history.
    let can_be_made = kind != "table" || is_of_versions(name);
    Ok(match (kind, is_there) {
        ("table", true) => {
            let differing = differing(&columns(new, name)?, &columns(connection, name)?);
            Misfit::new(weight, format!("the table {name} {differing}"), None)
        }
        (_, true) => {
            let anew = format!("DROP {kind} {}; {made}", quoted(name));
            Misfit::new(weight, format!("the {kind} {name} is not the one that Weft makes"), Some(anew))
        }
        (_, false) => {
            Misfit::new(weight, format!("the {kind} {name} is missing"), can_be_made.then(|| made.to_owned()))
        }
    })
}

/// The columns of a table, each with what is said of it.
fn columns(connection: &Connection, table: &str) -> Result<Vec<String>> {
    let all = "SELECT name || ' ' || type || CASE \"notnull\" WHEN 0 THEN '' ELSE ' NOT NULL' END \
               || coalesce(' DEFAULT ' || dflt_value, '') FROM pragma_table_xinfo(?1)";
    let mut statement = connection.prepare(all).map_err(failed)?;
    let rows = statement.query_map((table,), |row| row.get(0)).map_err(failed)?;
    rows.collect::<rusqlite::Result<_>>().map_err(failed)
}

/// Refuses a database in which something else than a table of its own has the name of one of
/// Weft's: reading of a view runs what it is made of, which may never end. What SQLite cannot tell
/// of the schema it tells whoever reads.
pub(super) fn refuse_views(connection: &Connection) -> Result<()> {
    let all = "SELECT type, name FROM sqlite_schema WHERE type = 'view' OR type = 'table' AND rootpage IS 0";
    let found = || -> rusqlite::Result<Option<(String, String)>> {
        let mut statement = connection.prepare(all)?;
        let mut rows = statement.query(())?;
        while let Some(row) = rows.next()? {
            let (kind, name): (String, String) = (row.get(0)?, row.get(1)?);
            // SQLite takes names for the same whose case differs.
            if tables::names(Dialect::Sqlite).any(|table| table.eq_ignore_ascii_case(&name)) {
                return Ok(Some((kind, name)));
            }
        }
        Ok(None)
    };
    let Ok(Some((kind, name))) = found() else { return Ok(()) };
    let what = if kind == "view" { "a view" } else { "a virtual table" };
    Err(Error::Corrupt(format!(
        "the tables of the volume are not as Weft made them: {name} is {what}, so that nothing is read of it; restore \
         the volume from a copy, or {SALVAGE}"
    )))
}

/// Refuses a database that cannot be written safely.
pub(super) fn refuse_to_write(connection: &Connection) -> Result<()> {
    refuse(&misfits(connection)?, Weight::Surplus, SALVAGE)
}

/// True if no repair puts the schema right.
pub(super) fn is_beyond_repair(connection: &Connection) -> bool {
    misfits(connection).map_or(true, |misfits| is_hopeless(&misfits))
}

/// Refuses a database that cannot be read.
pub(super) fn refuse_to_read(connection: &Connection) -> Result<()> {
    refuse(&misfits(connection)?, Weight::Lacking, SALVAGE)
}

/// The error that says more of a database which cannot be read: the schema's, if it is that.
pub(super) fn explain(error: Error, connection: &Connection) -> Error {
    match refuse_to_read(connection) {
        Err(better @ Error::Corrupt(_)) => better,
        _ => error,
    }
}

/// The findings about a database, and true if nothing else can be asked of it.
pub(super) fn findings(connection: &Connection) -> Result<(Vec<Finding>, bool)> {
    let misfits = misfits(connection)?;
    let is_lacking = misfits.iter().any(|misfit| misfit.weight == Weight::Lacking);
    Ok((misfits.iter().map(|misfit| advised(misfit, Repair::No)).collect(), is_lacking))
}

/// Puts the schema right in the transaction under way, which is committed if `repair` asks for it
/// and begun again. Tells what was found, and true if nothing else can be asked.
pub(super) fn mend(connection: &Connection, repair: Repair) -> Result<(Vec<Finding>, bool)> {
    let mut misfits = misfits(connection)?;
    for misfit in &mut misfits {
        if let Some(remedy) = &misfit.remedy
            && let Err(error) = connection.execute_batch(remedy)
        {
            misfit.what = format!("{} ({error})", misfit.what);
            misfit.remedy = None;
        }
    }
    let is_hopeless = is_hopeless(&misfits);
    let is_mended = misfits.iter().any(|misfit| misfit.remedy.is_some());
    if is_mended && repair != Repair::No {
        // It is no commit of the volume: no row has changed.
        connection.execute_batch("COMMIT; BEGIN IMMEDIATE").map_err(failed)?;
    }
    Ok((misfits.iter().map(|misfit| advised(misfit, repair)).collect(), is_hopeless))
}

/// Returns the finding for a misfit. A schema that nothing puts right can only be salvaged.
fn advised(misfit: &Misfit, repair: Repair) -> Finding {
    let mut finding = misfit.finding(repair);
    if is_hopeless(std::slice::from_ref(misfit)) {
        finding.what = format!("{}; {SALVAGE}", finding.what);
    }
    finding
}
