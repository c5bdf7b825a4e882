//! What a daemon says on standard error: not endlessly, on one line each, and whether it can be
//! said or not.

mod limit;
mod printable;

use limit::Limiter;
use parking_lot::Mutex;
pub use printable::{printable, push_printable};
use std::fmt;
use std::io::Write;
use std::panic::Location;
use std::sync::LazyLock;
use std::time::Instant;

/// When this process said something first.
static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);

static LIMITER: LazyLock<Mutex<Limiter>> = LazyLock::new(Mutex::default);

/// Says `message`. Where messages go there may be no room for one, which is no reason for anything
/// to fail: `eprintln!` would panic.
#[track_caller]
pub fn say(message: fmt::Arguments<'_>) {
    say_limited(message, None, Location::caller());
}

/// Says `message` about a request of `user`, who can silence no message about others by it.
#[track_caller]
pub fn say_of(user: u32, message: fmt::Arguments<'_>) {
    say_limited(message, Some(user), Location::caller());
}

fn say_limited(message: fmt::Arguments<'_>, user: Option<u32>, place: &'static Location<'static>) {
    let kind = (place.file(), place.line());
    let Some(left_out) = LIMITER.lock().admit(kind, user, BEGAN.elapsed()) else { return };
    let mut line = format!("weft: {}\n", printable(&message.to_string()));
    if left_out > 0 {
        line = format!("weft: {left_out} messages of this kind were left out:\n{line}");
    }
    let _ = std::io::stderr().write_all(line.as_bytes());
}
