//! What the daemon says on standard error, once and not endlessly.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

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
