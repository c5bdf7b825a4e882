//! Connections to the database, by the way in which it can be had.

use super::held::Held;
use super::layout::{Layout, beside};
use crate::error::{Error, Result};
use percent_encoding::{NON_ALPHANUMERIC, percent_encode};
use rusqlite::config::DbConfig;
use rusqlite::ffi;
use rusqlite::{Connection, OpenFlags};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The way that connections share the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// With other processes, by an index of the write-ahead log in a file beside it.
    Shared,
    /// Among those of this process alone, with that index in memory: where there is no room for the
    /// file.
    Own,
    /// With the process that holds the volume, which alone writes to it.
    Beside,
    /// Read as it lies, without locks: nobody can write to it, and it has no write-ahead log.
    Immutable,
}

/// The fate of the write-ahead log when the last connection to a database closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AtClose {
    /// It stays as it is.
    Leave,
    /// It is copied into the database and removed.
    Copy,
}

/// Sets the fate of the write-ahead log should `connection` be the last that closes.
pub(super) fn at_close(connection: &Connection, fate: AtClose) -> Result<()> {
    let set = connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, fate == AtClose::Leave);
    set.map(drop).map_err(|source| Error::Sqlite { what: "cannot set what closing does to the database", source })
}

/// The name by which SQLite opens the file at `path` with `options`.
pub(super) fn uri(path: &Path, options: &str) -> String {
    format!("file:{}?{options}", percent_encode(path.as_os_str().as_bytes(), NON_ALPHANUMERIC))
}

fn failed(source: rusqlite::Error) -> Error {
    Error::Sqlite { what: "cannot open the database", source }
}

/// Returns a connection with a page cache of `cache_mib` MiB.
pub(super) fn connect(database: &Path, cache_mib: u32, access: Access) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let writing = flags | OpenFlags::SQLITE_OPEN_READ_WRITE;
    let held = Held::at(database)?;
    let connection = match access {
        Access::Shared => Connection::open_with_flags(&held.path, writing),
        Access::Own => Connection::open_with_flags_and_vfs(&held.path, writing, c"unix-excl"),
        Access::Beside => Connection::open_with_flags(&held.path, flags | OpenFlags::SQLITE_OPEN_READ_ONLY),
        Access::Immutable => {
            let reading = flags | OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
            Connection::open_with_flags(uri(&held.path, "immutable=1"), reading)
        }
    };
    let connection = connection.map_err(|error| failed(held.explain(error)))?;
    held.keep(&connection)?;
    connection.set_prepared_statement_cache_capacity(64);
    let has_frames = beside(database, "-wal").metadata().is_ok_and(|wal| wal.len() > 0);
    let writes = matches!(access, Access::Shared | Access::Own);
    if has_frames && writes {
        // A log that was found is not copied by who closes the database, but by who has looked at
        // it.
        at_close(&connection, AtClose::Leave)?;
    }
    if writes {
        let log = "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA wal_autocheckpoint = 0; \
                   PRAGMA journal_size_limit = 16777216;";
        connection.execute_batch(log).map_err(failed)?;
    }
    let rest = format!(
        "PRAGMA cache_size = -{}; PRAGMA temp_store = MEMORY; PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON;",
        cache_mib * 1024
    );
    connection.execute_batch(&rest).map_err(failed)?;
    // Keeps plans from being remade at each binding.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map_err(failed)?;
    super::sums::register(&connection)?;
    super::shape::refuse_views(&connection)?;
    Ok(connection)
}

/// Returns a connection that shares the database if it can be shared, and tells how it has it.
pub(super) fn connect_somehow(layout: &Layout, cache_mib: u32) -> Result<(Connection, Access)> {
    match connect(&layout.database, cache_mib, Access::Shared) {
        Err(error) if lacks_index(&error) => Ok((connect(&layout.database, cache_mib, Access::Own)?, Access::Own)),
        connected => Ok((connected?, Access::Shared)),
    }
}

/// True if the file of the index could not be made or grow: on a full disk.
fn lacks_index(error: &Error) -> bool {
    let Error::Sqlite { source: rusqlite::Error::SqliteFailure(code, _), .. } = error else { return false };
    [
        ffi::SQLITE_IOERR_SHMOPEN,
        ffi::SQLITE_IOERR_SHMSIZE,
        ffi::SQLITE_IOERR_SHMMAP,
        ffi::SQLITE_CANTOPEN,
        ffi::SQLITE_FULL,
    ]
    .contains(&code.extended_code)
}

/// Returns a connection that only reads, beside the process that holds the volume.
pub(super) fn connect_beside(database: &Path) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let held = Held::at(database)?;
    let connection = Connection::open_with_flags(&held.path, flags).map_err(|error| failed(held.explain(error)))?;
    held.keep(&connection)?;
    // Opens the logs. If they cannot be opened, reads return the error.
    let _ = connection.query_row("PRAGMA schema_version", (), |_| Ok(()));
    super::sums::register(&connection)?;
    super::shape::refuse_views(&connection)?;
    Ok(connection)
}
