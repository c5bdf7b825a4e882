//! Messages: events of `tracing` as lines on standard error: not endlessly, on one line each, and
//! whether they can be written or not.
//!
//! Each line of a daemon's log has its time (UTC), level and target. What a command says to its
//! user begins with `weft:` instead. A field `user` of an event names the user whose request gave
//! rise to it, who can silence no message about others by it.

mod limit;
mod printable;
mod unwritten;

use crate::clock::{Clock, SystemClock};
use limit::Limiter;
use parking_lot::Mutex;
pub use printable::{is_plain, printable, push_printable};
use std::fmt::{self, Write};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, UNIX_EPOCH};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};
use unwritten::Unwritten;
use weft_store::Timestamp;
use weft_users::whose;

/// Time of the first message of this process.
static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Messages that found no room at their destination.
static UNWRITTEN: Mutex<Unwritten> = Mutex::new(Unwritten::new());

static LIMITER: LazyLock<Mutex<Limiter>> = LazyLock::new(Mutex::default);

/// Lines for a log of what was said since [`keep_messages`]. None if they are not kept.
static KEPT: Mutex<Option<Vec<String>>> = Mutex::new(None);

/// True if standard error is a log, and not a user's terminal.
static IS_LOG: AtomicBool = AtomicBool::new(false);

/// Writes events of this process to standard error from now on, each message as `complete` returns
/// it.
pub fn write_messages(complete: fn(&str) -> String) {
    let write = move |event: &Event<'_>| write_event(event, complete);
    // Whoever did so before wants them elsewhere.
    let _ = tracing::subscriber::set_global_default(Events(write));
}

/// From now on standard error is a log: each line has its time, level and target.
pub fn write_log() {
    IS_LOG.store(true, Ordering::Relaxed);
}

/// Keeps what is said from now on, beside saying it: a daemon that starts says it to whoever
/// started it, and has no log yet.
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
    let no_room = |count| {
        let text = format!("there was no room for {count} messages");
        Said { level: Level::WARN, target: module_path!(), now: SystemClock.now() }.line(&text, is_log())
    };
    UNWRITTEN.lock().write(line, &mut std::io::stderr(), no_room);
}

fn is_log() -> bool {
    IS_LOG.load(Ordering::Relaxed)
}

/// Fields that precede the message in a line of a log.
#[derive(Clone, Copy)]
struct Said {
    level: Level,
    target: &'static str,
    now: Timestamp,
}

impl Said {
    /// The message `text` as a line, of a log or for a user.
    fn line(self, text: &str, is_log: bool) -> String {
        if !is_log {
            return format!("weft: {}\n", printable(text));
        }
        let since = UNIX_EPOCH + Duration::from_nanos(u64::try_from(self.now.0).unwrap_or(0));
        let time = humantime::format_rfc3339_millis(since);
        format!("{time} {} {}: {}\n", self.level, self.target, printable(text))
    }

    /// The same, after a line that tells how many were left out before it.
    fn lines(self, text: &str, left_out: u64, is_log: bool) -> String {
        let line = self.line(text, is_log);
        match left_out {
            0 => line,
            count => self.line(&format!("{count} messages of this kind were left out:"), is_log) + &line,
        }
    }
}

/// Writes an event as a line, unless too many of its kind or user came before.
fn write_event(event: &Event<'_>, complete: fn(&str) -> String) {
    let metadata = event.metadata();
    let mut user = AskingUser(None);
    event.record(&mut user);
    let kind = (metadata.file().unwrap_or_default(), metadata.line().unwrap_or_default());
    let Some(left_out) = LIMITER.lock().admit(kind, user.0.map(whose), BEGAN.elapsed()) else { return };
    let mut text = Text(String::new());
    event.record(&mut text);
    let text = complete(&text.0);
    let said = Said { level: *metadata.level(), target: metadata.target(), now: SystemClock.now() };
    write(&said.lines(&text, left_out, is_log()));
    if let Some(kept) = &mut *KEPT.lock() {
        kept.push(said.lines(&text, left_out, true));
    }
}

/// Passes Weft's own events on, from level INFO up.
struct Events<F>(F);

impl<F: Fn(&Event<'_>) + Send + Sync + 'static> Subscriber for Events<F> {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= Level::INFO && metadata.target().starts_with("weft")
    }

    fn event(&self, event: &Event<'_>) {
        self.0(event);
    }

    // There are no spans.
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// The user of an event, if it is about a request of one.
struct AskingUser(Option<u32>);

impl Visit for AskingUser {
    fn record_u64(&mut self, field: &Field, value: u64) {
        if field.name() == "user" {
            self.0 = u32::try_from(value).ok();
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn fmt::Debug) {}
}

/// The message of an event.
struct Text(String);

impl Visit for Text {
    fn record_u64(&mut self, _: &Field, _: u64) {}

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            // Writing to a string cannot fail.
            let _ = write!(self.0, "{value:?}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_a_log_has_time_level_and_target_and_no_message_makes_another_line() {
        let said = Said { level: Level::WARN, target: "weft_vfs::commit", now: Timestamp(1_500_000_000) };
        let (text, head) = ("a\nb", "1970-01-01T00:00:01.500Z WARN weft_vfs::commit:");
        assert_eq!(said.lines(text, 0, true), format!("{head} a\\nb\n"));
        assert_eq!(said.lines(text, 3, true), format!("{head} 3 messages of this kind were left out:\n{head} a\\nb\n"));
        assert_eq!(said.lines(text, 0, false), "weft: a\\nb\n");
    }

    #[test]
    fn an_event_gives_its_message_and_the_user_who_asked() {
        let (tell, told) = std::sync::mpsc::channel();
        let heard = move |event: &Event<'_>| {
            let (mut user, mut text) = (AskingUser(None), Text(String::new()));
            event.record(&mut user);
            event.record(&mut text);
            tell.send((user.0, text.0)).expect("heard");
        };
        tracing::subscriber::with_default(Events(heard), || {
            let user = 7_u32;
            tracing::warn!(user, "of {user}");
            tracing::error!("of nobody");
            tracing::debug!("nothing");
            tracing::warn!(target: "another", "nothing");
        });
        let heard: Vec<_> = told.iter().collect();
        assert_eq!(heard, [(Some(7), "of 7".to_owned()), (None, "of nobody".to_owned())]);
    }
}
