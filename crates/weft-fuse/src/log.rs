//! What the daemon says on standard error, once and not endlessly.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use weft_vfs::{Error, ErrorKind};

/// Lines after which only every 1000th is printed: a broken disk must not fill another.
const LINES_MAX: u64 = 1000;

static LINES: AtomicU64 = AtomicU64::new(0);

/// Says `message`.
pub(crate) fn say(message: fmt::Arguments<'_>) {
    let line = LINES.fetch_add(1, Ordering::Relaxed);
    if line < LINES_MAX || line.is_multiple_of(1000) {
        eprintln!("weft: {message}");
    }
}

/// Says what failed, unless it is an answer that programs expect.
pub(crate) fn failed(what: &str, ino: u64, error: &Error) {
    if matches!(error.kind(), ErrorKind::Io | ErrorKind::Corrupt) {
        say(format_args!("{what} of inode {ino} failed: {error}"));
    }
}
