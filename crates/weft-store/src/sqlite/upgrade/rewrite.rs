//! The rows of a database of an older format, written anew as this format has them.

use super::super::check::refuse_damaged_rows;
use super::super::connection::uri;
use super::super::digests::Rows;
use super::super::held::Held;
use super::super::layout::Layout;
use super::super::read::unsigned;
use super::super::replacing::Rewriting;
use super::super::scan::{Scan, go_on};
use super::super::schema::{self, APPLICATION_ID};
use super::super::sums::{self, ALL};
use super::extents;
use super::{NEW_TABLES, VERSION_TABLES, WITH_COUNTS, WITH_VERSIONS, WITHOUT_SUMS, failed};
use crate::FORMAT;
use crate::digests::{Digester, ZeroValues};
use crate::error::{Error, Result};
use crate::finding::Progress;
use rusqlite::{Connection, OpenFlags};
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

/// Rewrites the database of `layout`, of `format` and with no commit in its write-ahead log. `old`
/// is its file.
pub(super) fn rewrite(layout: &Layout, old: &File, format: u32, progress: &mut dyn FnMut(Progress)) -> Result<()> {
    let rewriting = Rewriting { by: "an upgrade", suffix: "-upgrade" };
    rewriting.replace((layout, old), |new, progress| fill(new, layout, format, progress), progress)
}

fn fill(new: &Path, layout: &Layout, format: u32, progress: &mut dyn FnMut(Progress)) -> Result<()> {
    let connection = connect(new, &layout.database)?;
    let run = |statement: &str| connection.execute_batch(statement).map_err(failed);
    run("BEGIN")?;
    run(&schema::statements())?;
    schema::make_views(&connection)?;
    let tables = tables(&connection, "main")?;
    let has_versions = format >= WITH_VERSIONS;
    refuse_other_tables(&connection, &tables, has_versions)?;
    if !has_versions {
        refuse_versions(&connection)?;
    }
    let is_of_versions = |table: &str| NEW_TABLES.contains(&table) || VERSION_TABLES.contains(&table);
    let is_copied = |table: &String| has_versions || !is_of_versions(table);
    let tables = tables.into_iter().filter(is_copied).collect::<Vec<_>>();
    let total = tables.len() as u64;
    for (done, table) in (0..).zip(&tables) {
        progress(Progress { step: "writing rows", done, total });
        copy(&connection, table, format)?;
    }
    // An odd one would need an intent log.
    run("UPDATE volume SET epoch = epoch + epoch % 2")?;
    sums::VOLUME.seal(&connection)?;
    run("COMMIT; DETACH old")?;
    progress(Progress { step: "writing rows", done: total, total });
    verify_tree(&connection)?;
    connection.pragma_update(None, "user_version", FORMAT).map_err(failed)?;
    // As every volume has it.
    run("PRAGMA journal_mode = WAL")?;
    // Now it is a volume.
    connection.pragma_update(None, "application_id", APPLICATION_ID).map_err(failed)?;
    let copied = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |row| row.get::<_, bool>(0));
    if copied.map_err(failed)? {
        return Err(Error::Bug("somebody reads a database that is not there yet".into()));
    }
    connection.close().map_err(|(_, source)| failed(source))
}

/// Returns a connection to the empty file `new`, with the database `old` attached. Nothing of `new`
/// need survive before it is synced as a whole.
fn connect(new: &Path, old: &Path) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_NOFOLLOW
        | OpenFlags::SQLITE_OPEN_URI;
    let (new, old) = (Held::at(new)?, Held::at(old)?);
    let connection = Connection::open_with_flags(uri(&new.path, "mode=rw"), flags);
    let connection = connection.map_err(|error| failed(new.explain(error)))?;
    let settings = "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -65536; \
                    PRAGMA temp_store = MEMORY; PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON";
    connection.execute_batch(settings).map_err(failed)?;
    sums::register(&connection)?;
    connection.execute("ATTACH ?1 AS old", (uri(&old.path, "immutable=1"),)).map_err(failed)?;
    new.keep(&connection)?;
    old.keep(&connection)?;
    Ok(connection)
}

fn list(connection: &Connection, query: &str) -> Result<Vec<String>> {
    let mut statement = connection.prepare(query).map_err(failed)?;
    let rows = statement.query_map((), |row| row.get(0)).map_err(failed)?;
    rows.collect::<rusqlite::Result<_>>().map_err(failed)
}

fn tables(connection: &Connection, database: &str) -> Result<Vec<String>> {
    let all = format!("SELECT name FROM {database}.sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'");
    list(connection, &all)
}

fn columns(connection: &Connection, table: &str, database: &str) -> Result<Vec<String>> {
    list(connection, &format!("SELECT name FROM pragma_table_info('{table}', '{database}')"))
}

/// Refuses a database that lacks a table or has one that no Weft made, which would be lost.
fn refuse_other_tables(connection: &Connection, tables_of_new: &[String], has_versions: bool) -> Result<()> {
    let old = tables(connection, "old")?;
    let is_known = |table: &str| has_versions || !NEW_TABLES.contains(&table);
    let is_missing = |table: &&String| !old.contains(table) && is_known(table);
    if let Some(table) = tables_of_new.iter().find(is_missing) {
        return Err(Error::Corrupt(format!("the database is damaged: its table {table} is missing")));
    }
    match old.iter().find(|table| !tables_of_new.contains(table)) {
        None => Ok(()),
        Some(table) => Err(Error::Unusable(format!(
            "the database has a table that no Weft made and that an upgrade would lose: {table}; \
             move it to another database with 'sqlite3' first"
        ))),
    }
}

/// Refuses a database with versions of rows, which no Weft of its format wrote.
fn refuse_versions(connection: &Connection) -> Result<()> {
    for table in VERSION_TABLES {
        let any = format!("SELECT EXISTS (SELECT 1 FROM old.{table})");
        if connection.query_row(&any, (), |row| row.get(0)).map_err(failed)? {
            return Err(Error::Corrupt(format!("the table {table} has rows that no Weft of its format wrote")));
        }
    }
    Ok(())
}

/// Copies the rows of `table`, of a database of `format`.
fn copy(connection: &Connection, table: &str, format: u32) -> Result<()> {
    if let Some(copy) = extents::copy(table, format) {
        return connection.execute(&copy, ()).map(drop).map_err(failed);
    }
    let old = columns(connection, table, "old")?;
    let (mut names, mut values) = (Vec::new(), Vec::new());
    for column in columns(connection, table, "main")? {
        let is_counted = format < WITH_COUNTS && table == "fileatt" && column == "sum";
        let summed = ALL.iter().find(|summed| summed.table == table && summed.column == column);
        let value = match summed {
            // That of the volume's row is of an id that it does not have yet.
            Some(_) if format == WITHOUT_SUMS && table == "volume" => continue,
            Some(summed) if format == WITHOUT_SUMS || is_counted => summed.expression(),
            None if table == "volume" && column == "uuid" && !old.contains(&column) => "?1".into(),
            _ => column.clone(),
        };
        names.push(column);
        values.push(value);
    }
    let (names, values) = (names.join(", "), values.join(", "));
    let rows = match table {
        "fileatt" if format < WITH_COUNTS => {
            "(SELECT *, (SELECT count(*) FROM old.xattr x WHERE x.ino = f.ino) AS xattrs FROM old.fileatt f)"
        }
        _ => &format!("old.{table}"),
    };
    let copy = format!("INSERT INTO main.{table} ({names}) SELECT {values} FROM {rows}");
    let copied = match copy.contains("?1") {
        true => connection.execute(&copy, (crate::uuid::new()?,)),
        false => connection.execute(&copy, ()),
    };
    copied.map(drop).map_err(failed)
}

/// Fails if the stored digests do not follow from the rows that have sums now: names, the inodes
/// that they name, and the owners of blocks were not verified before.
fn verify_tree(connection: &Connection) -> Result<()> {
    refuse_damaged_rows(connection)?;
    let kept = "SELECT block_size, digests FROM volume";
    let read = |row: &rusqlite::Row<'_>| Ok((unsigned(row, 0)?, row.get::<_, bool>(1)?));
    let (block_size, has_digests) = connection.query_row(kept, (), read).map_err(failed)?;
    if !has_digests {
        return Ok(());
    }
    let digester = Digester::new(Arc::new(ZeroValues::default()));
    let rows = Rows::of(connection);
    match (Scan { digester: &digester, rows: &rows, block_size }).wrong(false, &mut go_on)?.first() {
        None => Ok(()),
        Some((ino, what)) => Err(Error::Corrupt(format!(
            "inode {}: {what}, so that it cannot be upgraded; 'weft check' of the weft that made it tells more",
            ino.0
        ))),
    }
}
