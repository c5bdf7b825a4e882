//! Errors of file-system operations: a kind with one errno each, the inode it is about, the source.

use weft_store::{Ino, InvalidName};

/// Result of an operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Kind of an error, in POSIX's terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// No such entry or inode.
    NotFound,
    /// The entry is there already.
    Exists,
    /// A directory is needed.
    NotDirectory,
    /// A directory is not allowed.
    IsDirectory,
    /// The directory has entries.
    NotEmpty,
    /// The directory would come to lie below itself, or an argument makes no sense.
    Invalid,
    /// Not permitted for anyone, or for anyone but the owner or the super-user.
    NotPermitted,
    /// The permission bits or the ACL do not give the caller this right.
    AccessDenied,
    /// Name longer than 255 bytes.
    NameTooLong,
    /// Offset or size past 2^63-1.
    TooBig,
    /// Too many links.
    TooManyLinks,
    /// No such extended attribute.
    NoAttribute,
    /// The value does not fit the buffer or the limits.
    Range,
    /// The attribute value or list is too large.
    AttributeTooBig,
    /// The offset is past the last data or the end.
    NoData,
    /// Not offered for this kind of inode.
    NotSupported,
    /// The disk under the volume is full.
    NoSpace,
    /// The volume's quota is used up.
    QuotaExceeded,
    /// So much memory may be taken for this, and is.
    NoMemory,
    /// The volume is mounted read-only.
    ReadOnly,
    /// The database or a disk failed.
    Io,
    /// Data read is not the data written.
    Corrupt,
    /// The two are of different volumes, or of different times.
    CrossDevice,
    /// The inode was changed since the caller looked at it (a guarded change).
    NotSynchronized,
    /// Links lead to links without an end, or too many of them.
    Loop,
    /// A wait timed out.
    TimedOut,
    /// The inode is gone (stale handle).
    Stale,
    /// The operation would wait and the thread's hook did not allow it; nothing was changed.
    WouldBlock,
    /// Whoever waits for it was sent a signal, or all computing ends.
    Interrupted,
    /// Whoever asks has as many computations at work as there may be.
    Busy,
}

impl ErrorKind {
    /// The errno of this kind.
    pub fn errno(self) -> i32 {
        match self {
            ErrorKind::NotFound => libc::ENOENT,
            ErrorKind::Exists => libc::EEXIST,
            ErrorKind::NotDirectory => libc::ENOTDIR,
            ErrorKind::IsDirectory => libc::EISDIR,
            ErrorKind::NotEmpty => libc::ENOTEMPTY,
            ErrorKind::Invalid => libc::EINVAL,
            ErrorKind::NotPermitted => libc::EPERM,
            ErrorKind::AccessDenied => libc::EACCES,
            ErrorKind::NameTooLong => libc::ENAMETOOLONG,
            ErrorKind::TooBig => libc::EFBIG,
            ErrorKind::TooManyLinks => libc::EMLINK,
            ErrorKind::NoAttribute => libc::ENODATA,
            ErrorKind::Range => libc::ERANGE,
            ErrorKind::AttributeTooBig => libc::E2BIG,
            ErrorKind::NoData => libc::ENXIO,
            ErrorKind::NotSupported => libc::EOPNOTSUPP,
            ErrorKind::NoSpace => libc::ENOSPC,
            ErrorKind::QuotaExceeded => libc::EDQUOT,
            ErrorKind::NoMemory => libc::ENOMEM,
            ErrorKind::ReadOnly => libc::EROFS,
            ErrorKind::Io | ErrorKind::Corrupt => libc::EIO,
            ErrorKind::CrossDevice => libc::EXDEV,
            ErrorKind::NotSynchronized => libc::EBUSY,
            ErrorKind::Loop => libc::ELOOP,
            ErrorKind::TimedOut => libc::ETIMEDOUT,
            ErrorKind::Stale => libc::ESTALE,
            ErrorKind::WouldBlock | ErrorKind::Busy => libc::EAGAIN,
            ErrorKind::Interrupted => libc::EINTR,
        }
    }
}

/// An error of an operation.
#[derive(Debug, thiserror::Error)]
#[error("{}", in_words(*.kind, *.ino, .source.as_ref()))]
pub struct Error {
    kind: ErrorKind,
    ino: Option<Ino>,
    source: Option<weft_store::Error>,
}

/// As the system says it.
fn said(kind: ErrorKind) -> String {
    if kind == ErrorKind::Corrupt {
        return "damaged".into();
    }
    let errno = kind.errno();
    let said = std::io::Error::from_raw_os_error(errno).to_string();
    said.strip_suffix(&format!(" (os error {errno})")).map_or(said.clone(), str::to_owned)
}

fn in_words(kind: ErrorKind, ino: Option<Ino>, source: Option<&weft_store::Error>) -> String {
    let reason = source.map(because).unwrap_or_default();
    match ino {
        // The system's words for all failures of the store add nothing to the reason.
        None if kind == ErrorKind::Io && !reason.is_empty() => reason,
        _ if reason.is_empty() => said(kind) + &at(ino),
        _ => said(kind) + &at(ino) + ": " + &reason,
    }
}

fn at(ino: Option<Ino>) -> String {
    ino.map(|ino| format!(" at inode {}", ino.0)).unwrap_or_default()
}

fn because(source: &weft_store::Error) -> String {
    let said = source.to_string();
    // That something is damaged is said once.
    let said = said.strip_prefix("damaged: ").unwrap_or(&said);
    // All that reads the broken pages fails so, and no repair while mounted can help.
    let advice = match source.is_malformed() {
        true => format!("; the database is broken: unmount it, then {}", weft_store::Error::MALFORMED_ADVICE),
        false => String::new(),
    };
    if said.is_empty() { String::new() } else { format!("{said}{advice}") }
}

impl Error {
    /// An error of `kind` about `ino`.
    pub fn new(kind: ErrorKind, ino: Ino) -> Error {
        Error { kind, ino: Some(ino), source: None }
    }

    /// True if the operation failed because of a conflict and can be retried at once.
    pub fn is_conflict(&self) -> bool {
        self.source.as_ref().is_some_and(|source| source.kind() == weft_store::ErrorKind::Conflict)
    }

    /// True if the outcome is in doubt: the failed request may have been applied, or may be applied
    /// later by the server.
    pub fn leaves_doubt(&self) -> bool {
        self.source.as_ref().is_some_and(weft_store::Error::leaves_doubt)
    }

    /// Returns the kind of the error.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The one errno of this error.
    pub fn errno(&self) -> i32 {
        self.kind.errno()
    }

    /// Says which inode it is about, if it does not yet.
    #[must_use]
    pub fn about(mut self, ino: Ino) -> Error {
        self.ino.get_or_insert(ino);
        self
    }
}

impl From<ErrorKind> for Error {
    fn from(kind: ErrorKind) -> Error {
        Error { kind, ino: None, source: None }
    }
}

impl From<InvalidName> for Error {
    fn from(error: InvalidName) -> Error {
        match error {
            InvalidName::TooLong => ErrorKind::NameTooLong.into(),
            InvalidName::Reserved | InvalidName::BadByte => ErrorKind::Invalid.into(),
        }
    }
}

impl From<weft_store::Error> for Error {
    fn from(source: weft_store::Error) -> Error {
        use weft_store::ErrorKind as Store;
        let kind = match source.kind() {
            Store::Full => ErrorKind::NoSpace,
            Store::Corrupt => ErrorKind::Corrupt,
            Store::Conflict | Store::Unavailable | Store::Locked | Store::Unusable | Store::Bug => ErrorKind::Io,
        };
        Error { kind, ino: None, source: Some(source) }
    }
}
