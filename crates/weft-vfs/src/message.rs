//! What a daemon says on standard error: not endlessly, and whether it can be said or not.

use parking_lot::Mutex;
use std::fmt;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};

/// Lines after which only every 1000th is printed: a broken disk must not fill another.
const LINES_MAX: u64 = 1000;

static LINES: AtomicU64 = AtomicU64::new(0);

/// What was said since [`keep_messages`]. None if it is not kept.
static KEPT: Mutex<Option<Vec<String>>> = Mutex::new(None);

/// Keeps what is said from now on, beside saying it: a daemon that starts says it to whoever started
/// it, and has no log yet.
pub fn keep_messages() {
    KEPT.lock().get_or_insert_default();
}

/// Says once more what was said since [`keep_messages`], and keeps no more.
pub fn repeat_messages() {
    for line in KEPT.lock().take().unwrap_or_default() {
        write(&line);
    }
}

fn write(line: &str) {
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// Says `message`. Where messages go there may be no room for one, which is no reason for anything to fail: `eprintln!` would
/// panic.
pub fn say(message: fmt::Arguments<'_>) {
    let line = LINES.fetch_add(1, Ordering::Relaxed);
    if line < LINES_MAX || line.is_multiple_of(1000) {
        let line = format!("weft: {message}\n");
        write(&line);
        if let Some(kept) = &mut *KEPT.lock() {
            kept.push(line);
        }
    }
}
