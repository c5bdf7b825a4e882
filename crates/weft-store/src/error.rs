//! Errors below the file system, named for the caller's duty.

use crate::sqlite::InUse;
use std::path::PathBuf;
use std::sync::Arc;

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The caller's duty after an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// Another transaction was in the way: try again.
    Conflict,
    /// The database or a file cannot be reached or answered with an I/O error: wait, then try
    /// again.
    Unavailable,
    /// No space: free some, then try again.
    Full,
    /// The bytes read are not those that were written: report it; do not use them.
    Corrupt,
    /// Another daemon holds the volume.
    Locked,
    /// There is no volume there, or it cannot be used by this program: tell the user.
    Unusable,
    /// A mistake in Weft.
    Bug,
}

/// An error of a store.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file of the volume could not be read or written.
    #[error("{what} {}: {source}", path.display())]
    Io {
        /// The action that was tried, such as "cannot append to".
        what: &'static str,
        /// The file concerned.
        path: PathBuf,
        /// The reason for the failure.
        source: std::io::Error,
    },
    /// The database refused a statement.
    #[error("{what}: {}", in_words(source))]
    Sqlite {
        /// The action that was tried.
        what: &'static str,
        /// The reason for the failure.
        source: rusqlite::Error,
    },
    /// The server refused a statement, or went away.
    #[error("{what}: {server}: {}", full(source))]
    Postgres {
        /// The action that was tried.
        what: &'static str,
        /// Words for the server and its database.
        server: Arc<str>,
        /// The reason for the failure.
        source: tokio_postgres::Error,
    },
    /// The connection broke while a commit was on its way, which has not happened so far.
    #[error("the connection to the database broke before the commit")]
    Interrupted,
    /// The program that waited for the server was killed.
    #[error("the program that waited for the server was killed")]
    GivenUp,
    /// Another process holds the volume, by its lease.
    #[error("{0}")]
    Held(String),
    /// The server's settings let a crash lose what it acknowledges.
    #[error("{0}")]
    NotDurable(String),
    /// A commit is in the database, and nobody knows whether the synchronous standby has it, too.
    #[error(
        "the server stopped waiting for a synchronous standby, which may lack the last commit; \
         it counts as durable once a later one was acknowledged in full"
    )]
    Unconfirmed,
    /// Damage found.
    #[error("damaged: {0}")]
    Corrupt(String),
    /// Opening the volume would lose what was synced.
    #[error("{0}")]
    Lost(String),
    /// Another process holds the volume.
    #[error("{0}")]
    Locked(InUse),
    /// Not a volume, or not one for this version.
    #[error("{0}")]
    Unusable(String),
    /// A stream that is not whole, or not what any Weft sends. The volume has no part in it.
    #[error("{0}")]
    Stream(String),
    /// A broken promise inside Weft.
    #[error("bug: {0}")]
    Bug(String),
    /// Injected by tests in place of any of the others.
    #[error("injected: {0:?}")]
    Injected(ErrorKind),
    /// The same, where nobody knows what became of what was asked for.
    #[error("injected, nothing was heard: {0:?}")]
    Unheard(ErrorKind),
}

impl Error {
    /// Returns the caller's duty.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Io { source, .. } => io_kind(source),
            Error::Sqlite { source, .. } => sqlite_kind(source),
            Error::Postgres { source, .. } => postgres_kind(source),
            Error::Interrupted => ErrorKind::Conflict,
            Error::NotDurable(_) | Error::Unconfirmed | Error::GivenUp => ErrorKind::Unavailable,
            Error::Corrupt(_) | Error::Lost(_) => ErrorKind::Corrupt,
            Error::Held(_) | Error::Locked(_) => ErrorKind::Locked,
            Error::Unusable(_) | Error::Stream(_) => ErrorKind::Unusable,
            Error::Bug(_) => ErrorKind::Bug,
            Error::Injected(kind) | Error::Unheard(kind) => *kind,
        }
    }

    /// The way out where [`Error::is_malformed`].
    pub const MALFORMED_ADVICE: &str = "restore the volume from a copy, or have 'weft check --salvage VOLUME NEW' \
                                        bring what can be read to a new one";

    /// True if SQLite cannot read its own trees, or the file is none of its own: only a copy or a
    /// salvage helps.
    pub fn is_malformed(&self) -> bool {
        use rusqlite::ErrorCode;
        let Error::Sqlite { source, .. } = self else { return false };
        matches!(source.sqlite_error_code(), Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
    }

    /// True if a commit that failed with this error is in doubt: it may have happened, or may
    /// happen yet, as the database did not report its outcome.
    pub fn leaves_doubt(&self) -> bool {
        match self {
            Error::Interrupted | Error::Unconfirmed | Error::Unheard(_) => true,
            Error::Postgres { source, .. } => source.code().is_none() || tells_the_end(source),
            Error::Io { .. }
            | Error::Sqlite { .. }
            | Error::GivenUp
            | Error::Held(_)
            | Error::NotDurable(_)
            | Error::Corrupt(_)
            | Error::Lost(_)
            | Error::Locked(_)
            | Error::Unusable(_)
            | Error::Stream(_)
            | Error::Bug(_)
            | Error::Injected(_) => false,
        }
    }
}

fn io_kind(error: &std::io::Error) -> ErrorKind {
    match error.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG) => ErrorKind::Full,
        _ => ErrorKind::Unavailable,
    }
}

/// The words of SQLite, except "disk I/O error" where there is no space.
fn in_words(error: &rusqlite::Error) -> String {
    if is_index_full(error) {
        return "no space left for the index of the write-ahead log (-shm)".into();
    }
    error.to_string()
}

/// True if the index of the write-ahead log could not grow. SQLite calls it an I/O error: of all
/// that it writes, this alone has no code of its own for a full disk (unixShmMap in os_unix.c).
fn is_index_full(error: &rusqlite::Error) -> bool {
    error.sqlite_error().is_some_and(|code| code.extended_code == rusqlite::ffi::SQLITE_IOERR_SHMSIZE)
}

fn sqlite_kind(error: &rusqlite::Error) -> ErrorKind {
    use rusqlite::ErrorCode;
    if is_index_full(error) {
        return ErrorKind::Full;
    }
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => ErrorKind::Conflict,
        Some(ErrorCode::DiskFull) => ErrorKind::Full,
        // Unknown: it refuses to prepare a statement. They are always the same ones, so it is the
        // schema that is not what Weft made.
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase | ErrorCode::Unknown) => ErrorKind::Corrupt,
        Some(
            ErrorCode::SystemIoFailure
            | ErrorCode::CannotOpen
            | ErrorCode::ReadOnly
            | ErrorCode::PermissionDenied
            | ErrorCode::OutOfMemory,
        ) => ErrorKind::Unavailable,
        Some(_) => ErrorKind::Bug,
        // Conversion errors: a column held what no Weft wrote there.
        None => ErrorKind::Corrupt,
    }
}

/// Returns the server's message, with its detail.
fn full(error: &tokio_postgres::Error) -> String {
    let Some(said) = error.as_db_error() else {
        let source = std::error::Error::source(error).map(|source| format!(": {source}"));
        return format!("{error}{}", source.unwrap_or_default());
    };
    let detail = said.detail().map(|detail| format!(" ({detail})")).unwrap_or_default();
    format!("{}{detail}", said.message())
}

/// A server that ends says so as the answer to whatever was asked, and closes then (SQLSTATE 57P01
/// to 57P03). One that stands before others says that it cannot reach one of them (class 08; Citus,
/// if it breaks in between, by words alone): what was begun there is lost in the same way.
pub(crate) fn tells_the_end(error: &tokio_postgres::Error) -> bool {
    error.as_db_error().is_some_and(|said| match said.code().code() {
        "XX000" => said.message().contains("connection"),
        code => code.starts_with("57P0") || code.starts_with("08"),
    })
}

/// Sorts errors by the classes of SQLSTATE (PostgreSQL documentation, "PostgreSQL Error Codes").
fn postgres_kind(error: &tokio_postgres::Error) -> ErrorKind {
    let Some(code) = error.code() else {
        // What the server never said: a connection that broke or was refused; or a value that did
        // not fit its column.
        let is_conversion =
            error.to_string().starts_with("error deserializing") || error.to_string().starts_with("error serializing");
        return if is_conversion { ErrorKind::Bug } else { ErrorKind::Unavailable };
    };
    match code.code() {
        "40001" | "40P01" => ErrorKind::Conflict,
        "53100" | "54000" => ErrorKind::Full,
        "XX001" | "XX002" => ErrorKind::Corrupt,
        // Another commit of the same number came first: one of ours, of which nobody knew.
        "23505" => ErrorKind::Conflict,
        _ if tells_the_end(error) => ErrorKind::Unavailable,
        other => match other.get(..2) {
            Some("08" | "53" | "57" | "58" | "25" | "55") => ErrorKind::Unavailable,
            Some("28" | "3D" | "3F" | "42") => ErrorKind::Unusable,
            _ => ErrorKind::Bug,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_told_as_one_also_where_sqlite_says_disk_i_o_error() {
        let failure = |code| rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(code), None);
        let error = |code| Error::Sqlite { what: "cannot commit", source: failure(code) };
        let full = error(rusqlite::ffi::SQLITE_IOERR_SHMSIZE);
        assert_eq!(full.kind(), ErrorKind::Full);
        assert!(full.to_string().starts_with("cannot commit: no space left"), "{full}");
        let other = error(rusqlite::ffi::SQLITE_IOERR_WRITE);
        assert_eq!(other.kind(), ErrorKind::Unavailable);
        assert!(other.to_string().contains("disk I/O error"), "{other}");
    }

    #[test]
    fn a_schema_without_a_column_of_ours_is_damage() {
        let connection = rusqlite::Connection::open_in_memory().expect("opened");
        connection.execute_batch("CREATE TABLE fileatt (ino INTEGER)").expect("made");
        let source = connection.prepare("SELECT digest FROM fileatt").expect_err("there is no such column");
        assert_eq!(Error::Sqlite { what: "cannot read", source }.kind(), ErrorKind::Corrupt);
    }
}
