//! What a daemon says on standard error: not endlessly, on one line each, and whether it can be
//! said or not.

mod limit;
mod printable;
mod unwritten;

use crate::asker::asking_user;
use limit::Limiter;
use parking_lot::Mutex;
pub use printable::{is_plain, printable, push_printable};
use std::fmt;
use std::panic::Location;
use std::sync::LazyLock;
use std::time::Instant;
use unwritten::Unwritten;
use weft_transform::whose;

/// When this process said something first.
static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// What found no room where messages go.
static UNWRITTEN: Mutex<Unwritten> = Mutex::new(Unwritten::new());

static LIMITER: LazyLock<Mutex<Limiter>> = LazyLock::new(Mutex::default);

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
    UNWRITTEN.lock().write(line, &mut std::io::stderr());
}

/// Says `message`. Where messages go there may be no room for one, which is no reason for anything
/// to fail: `eprintln!` would panic. It is written before the next one then, if there is room again.
#[track_caller]
pub fn say(message: fmt::Arguments<'_>) {
    say_limited(message, None, Location::caller());
}

/// Says `message` about a request of `user`, who can silence no message about others by it.
#[track_caller]
pub fn say_of(user: u32, message: fmt::Arguments<'_>) {
    say_limited(message, Some(user), Location::caller());
}

/// The same about a request of the user who asks now.
#[track_caller]
pub fn say_of_asker(message: fmt::Arguments<'_>) {
    say_limited(message, Some(asking_user()), Location::caller());
}

fn say_limited(message: fmt::Arguments<'_>, user: Option<u32>, place: &'static Location<'static>) {
    let kind = (place.file(), place.line());
    let Some(left_out) = LIMITER.lock().admit(kind, user.map(whose), BEGAN.elapsed()) else { return };
    let mut line = format!("weft: {}\n", printable(&message.to_string()));
    if left_out > 0 {
        line = format!("weft: {left_out} messages of this kind were left out:\n{line}");
    }
    write(&line);
    if let Some(kept) = &mut *KEPT.lock() {
        kept.push(line);
    }
}
