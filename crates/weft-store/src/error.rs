//! What can go wrong below the file system, named for what the caller should do about it.

use std::path::PathBuf;

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What the caller should do about an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// Another transaction was in the way: try again.
    Conflict,
    /// The database or a file cannot be reached or answered with an I/O error: wait, then try again.
    Unavailable,
    /// No space: free some, then try again.
    Full,
    /// What was read is not what was written: report it; do not use it.
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
        /// What was tried, such as "cannot append to".
        what: &'static str,
        /// On which file.
        path: PathBuf,
        /// Why it failed.
        source: std::io::Error,
    },
    /// The database refused a statement.
    #[error("{what}: {source}")]
    Sqlite {
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        source: rusqlite::Error,
    },
    /// Damage found.
    #[error("damaged: {0}")]
    Corrupt(String),
    /// Another process holds the volume.
    #[error("{} is in use by another process; unmount it there first", .0.display())]
    Locked(PathBuf),
    /// Not a volume, or not one for this version.
    #[error("{0}")]
    Unusable(String),
    /// A broken promise inside Weft.
    #[error("bug: {0}")]
    Bug(String),
    /// Injected by tests in place of any of the others.
    #[error("injected: {0:?}")]
    Injected(ErrorKind),
}

impl Error {
    /// What the caller should do.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Io { source, .. } => io_kind(source),
            Error::Sqlite { source, .. } => sqlite_kind(source),
            Error::Corrupt(_) => ErrorKind::Corrupt,
            Error::Locked(_) => ErrorKind::Locked,
            Error::Unusable(_) => ErrorKind::Unusable,
            Error::Bug(_) => ErrorKind::Bug,
            Error::Injected(kind) => *kind,
        }
    }
}

fn io_kind(error: &std::io::Error) -> ErrorKind {
    match error.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG) => ErrorKind::Full,
        _ => ErrorKind::Unavailable,
    }
}

fn sqlite_kind(error: &rusqlite::Error) -> ErrorKind {
    use rusqlite::ErrorCode;
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => ErrorKind::Conflict,
        Some(ErrorCode::DiskFull) => ErrorKind::Full,
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => ErrorKind::Corrupt,
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
