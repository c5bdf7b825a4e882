//! What a daemon says on standard error: not endlessly, and whether it can be said or not.

use std::fmt;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};

/// Lines after which only every 1000th is printed: a broken disk must not fill another.
const LINES_MAX: u64 = 1000;

static LINES: AtomicU64 = AtomicU64::new(0);

/// Says `message`. Where messages go there may be no room for one, which is no reason for anything to fail: `eprintln!` would
/// panic.
pub fn say(message: fmt::Arguments<'_>) {
    let line = LINES.fetch_add(1, Ordering::Relaxed);
    if line < LINES_MAX || line.is_multiple_of(1000) {
        let _ = std::io::stderr().write_all(format!("weft: {message}\n").as_bytes());
    }
}
