//! Numbers of errors, for bindings to languages that know errors by their number.

use std::io;

/// Returns the number of `error`: the system's, or else the one that comes nearest to its kind.
pub fn errno(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(match error.kind() {
        io::ErrorKind::InvalidInput => libc::EINVAL,
        io::ErrorKind::InvalidData => libc::EBADMSG,
        io::ErrorKind::BrokenPipe => libc::EPIPE,
        io::ErrorKind::ConnectionReset => libc::ECONNRESET,
        io::ErrorKind::OutOfMemory => libc::ENOBUFS,
        io::ErrorKind::WriteZero => libc::ENOSPC,
        io::ErrorKind::Unsupported => libc::EOPNOTSUPP,
        _ => libc::EIO,
    })
}
