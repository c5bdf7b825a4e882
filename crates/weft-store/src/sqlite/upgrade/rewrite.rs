//! Rewrite of a database, in a file that then takes its place.

use super::super::check::refuse_damaged_rows;
use super::super::connection::{Access, uri};
use super::super::digests::Rows;
use super::super::held::Held;
use super::super::layout::{Layout, beside, remove_database, remove_file};
use super::super::read::unsigned;
use super::super::scan::{Scan, go_on};
use super::super::schema::{self, APPLICATION_ID};
use super::super::sums::{self, ALL};
use super::extents;
use super::{NEW_TABLES, VERSION_TABLES, WITH_COUNTS, WITH_VERSIONS, WITHOUT_SUMS, failed};
use crate::FORMAT;
use crate::copies::sync_directory;
use crate::digests::{Digester, ZeroValues};
use crate::error::{Error, Result};
use crate::files;
use crate::finding::Progress;
use rusqlite::{Connection, OpenFlags};
use rustix::fs::{XattrFlags, fgetxattr, fremovexattr, fsetxattr};
use std::fs::{File, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::Path;
use std::sync::Arc;

fn io(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    move |source| Error::Io { what, path: path.into(), source }
}

/// The attribute of a database that an upgrade is writing.
const UNFINISHED: &str = "user.weft.unfinished";

/// Rewrites the database of `layout`, of `format` and with no commit in its write-ahead log. `old`
/// is its file. Interrupted anywhere, it leaves the old database or the new one; a file that is not
/// whole is no volume, and the next upgrade removes it.
pub(super) fn rewrite(layout: &Layout, old: &File, format: u32, progress: &mut dyn FnMut(Progress)) -> Result<()> {
    let new = beside(&layout.database, "-upgrade");
    remove_left(&new, &layout.database)?;
    make(&new)?;
    let filled = fill(&new, layout, format, progress).and_then(|()| {
        let file = files::open(files::options().read(true).write(true), &new).map_err(io("cannot open", &new))?;
        belong_like(old, &file).map_err(io("cannot give the owner and permissions of the database to", &new))?;
        let _ = fremovexattr(&file, UNFINISHED);
        file.sync_all().map_err(io("cannot sync", &new))
    });
    if let Err(error) = filled.and_then(|()| take_place(layout, &new, progress)) {
        // The error is what the user must see.
        let _ = remove_database(&new);
        return Err(error);
    }
    Ok(())
}

/// Removes the file at `new` if it is what an upgrade of the database `old` left that was killed:
/// not whole yet, or the same moment of the same volume. Errors: it is anything else.
fn remove_left(new: &Path, old: &Path) -> Result<()> {
    let others = |path: &Path| {
        Error::Unusable(format!(
            "{} exists, and is not what an upgrade left that was ended: the new database gets the name {} until it takes \
             the place of the old one; move the file away, with what belongs to it",
            path.display(),
            new.display()
        ))
    };
    let file = match files::open(files::options().read(true), new) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let beside = ["-wal", "-shm", "-journal"].map(|suffix| beside(new, suffix));
            let left = beside.iter().find(|path| path.symlink_metadata().is_ok());
            return left.map_or(Ok(()), |left| Err(others(left)));
        }
        file => file.map_err(io("cannot open", new))?,
    };
    let is_empty = file.metadata().map_err(io("cannot look at", new))?.len() == 0;
    let is_begun = fgetxattr(&file, UNFINISHED, &mut [0; 8][..]).is_ok();
    if is_empty || is_begun || is_same_moment(new, old) {
        return remove_database(new);
    }
    Err(others(new))
}

/// True if two databases are volumes of the same commit, as far as all formats tell.
fn is_same_moment(one: &Path, other: &Path) -> bool {
    let moment = |path: &Path| {
        let connection = super::connect(path, 1, Access::Immutable).ok()?;
        let moment = "SELECT created, number, op, next_id, next_block FROM volume";
        let read = |row: &rusqlite::Row<'_>| {
            (0..5).map(|column| row.get::<_, i64>(column)).collect::<rusqlite::Result<Vec<_>>>()
        };
        connection.query_row(moment, (), read).ok()
    };
    moment(one).is_some_and(|one| moment(other) == Some(one))
}

/// Gives `new` the owner and permissions of `old`.
fn belong_like(old: &File, new: &File) -> std::io::Result<()> {
    let (old, made) = (old.metadata()?, new.metadata()?);
    if (old.uid(), old.gid()) != (made.uid(), made.gid()) {
        fchown(new, Some(old.uid()), Some(old.gid()))?;
    }
    new.set_permissions(Permissions::from_mode(old.mode() & 0o7777))
}

/// Puts `new`, which is on the disk, where the database of `layout` is.
fn take_place(layout: &Layout, new: &Path, progress: &mut dyn FnMut(Progress)) -> Result<()> {
    // They belong to the old file, and nothing is in them.
    remove_file(&layout.wal())?;
    remove_file(&beside(&layout.database, "-shm"))?;
    progress(Progress { step: "replacing the database", done: 0, total: 1 });
    std::fs::rename(new, &layout.database).map_err(io("cannot rename", new))?;
    sync_directory(files::parent_of(&layout.database))?;
    progress(Progress { step: "replacing the database", done: 1, total: 1 });
    Ok(())
}

/// Makes the empty file `new`, marked as what an upgrade is writing.
fn make(new: &Path) -> Result<()> {
    let made = files::open(files::options().write(true).create_new(true), new).map_err(io("cannot make", new))?;
    // Where files have no attributes, the user who ends an upgrade has to remove the file.
    let _ = fsetxattr(&made, UNFINISHED, b"1", XattrFlags::empty());
    Ok(())
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
