//! Messages: events of `tracing` as lines on standard error: not endlessly, on one line each, and
//! whether they can be written or not.
//!
//! Each line of a daemon's log has its time (UTC), level and target, as text or as JSON. What a
//! command says to its user begins with `weft:` instead. A field `user` of an event names the user
//! whose request gave rise to it, who can silence no message about others by it.

mod filter;
mod limit;
mod line;
mod printable;
mod unwritten;

use crate::clock::{Clock, SystemClock};
use filter::Filter;
use limit::Limiter;
pub use line::{LogFormat, rfc3339};
use line::{Reader, Said};
use parking_lot::Mutex;
pub use printable::{is_plain, printable, push_printable};
use serde_json::{Map, Value};
use std::collections::VecDeque;
use std::fmt::{self, Write};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};
use unwritten::Unwritten;
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

/// True if a log is of JSON.
static IS_JSON: AtomicBool = AtomicBool::new(false);

/// True if systemd's journal reads the log.
static IS_JOURNAL: AtomicBool = AtomicBool::new(false);

/// Newest warnings and errors, their number, and how much of each is kept.
static RECENT: Mutex<VecDeque<RecentMessage>> = Mutex::new(VecDeque::new());
const RECENT_MAX: usize = 16;
const RECENT_CHARACTERS_MAX: usize = 1000;

/// Writes events of this process to standard error from now on, each message as `complete` returns
/// it; once that is a log, those that `filter` admits: levels, each for all or for a target, as in
/// `warn,weft_nfs=error`.
///
/// Errors: the part of `filter` that is no level. All messages are written then.
pub fn write_messages(complete: fn(&str) -> String, filter: &str) -> Result<(), String> {
    let parsed = Filter::parse(filter);
    let filter = parsed.clone().unwrap_or_default();
    // Commands tell their users all.
    let most = filter.most().max(LevelFilter::INFO);
    let write = move |event: &Event<'_>| write_event(event, &filter, complete);
    // Whoever did so before wants them elsewhere.
    let _ = tracing::subscriber::set_global_default(Events { write, most });
    parsed.map(drop)
}

/// Has the log have `format`, from its first line on.
pub fn set_log_format(format: LogFormat) {
    IS_JSON.store(format == LogFormat::Json, Ordering::Relaxed);
}

fn format() -> LogFormat {
    if IS_JSON.load(Ordering::Relaxed) { LogFormat::Json } else { LogFormat::Text }
}

/// From now on standard error is a log: each line has its time, level and target. If systemd's
/// journal reads it, that adds the time.
pub fn write_log() {
    IS_JOURNAL.store(goes_to_journal(), Ordering::Relaxed);
    IS_LOG.store(true, Ordering::Relaxed);
}

/// True if standard error is connected to the journal (`JOURNAL_STREAM`, systemd.exec(5)).
fn goes_to_journal() -> bool {
    let Ok(stream) = std::env::var("JOURNAL_STREAM") else { return false };
    let own = rustix::fs::fstat(rustix::stdio::stderr()).map(|stat| format!("{}:{}", stat.st_dev, stat.st_ino));
    own.is_ok_and(|own| own == stream)
}

fn reader() -> Reader {
    match (is_log(), format()) {
        (false, _) => Reader::User,
        (true, LogFormat::Text) if IS_JOURNAL.load(Ordering::Relaxed) => Reader::Journal,
        (true, format) => Reader::Log(format),
    }
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
        let said = Said { level: Level::WARN, target: module_path!(), now: SystemClock.now(), fields: Map::new() };
        said.line(&text, reader())
    };
    UNWRITTEN.lock().write(line, &mut std::io::stderr(), no_room);
}

fn is_log() -> bool {
    IS_LOG.load(Ordering::Relaxed)
}

/// A message that was said, for whoever asks the daemon.
#[derive(Clone, Debug, serde::Serialize)]
pub struct RecentMessage {
    /// Its time, in UTC.
    pub time: String,
    /// Its level.
    pub level: &'static str,
    /// Its text.
    pub message: String,
}

/// Returns the newest warnings and errors of a daemon's log, oldest first; and true if lines of it
/// wait for room on its disk.
pub fn recent_messages() -> (Vec<RecentMessage>, bool) {
    (RECENT.lock().iter().cloned().collect(), UNWRITTEN.lock().waits())
}

fn remember(said: &Said, text: &str) {
    let mut recent = RECENT.lock();
    if recent.len() == RECENT_MAX {
        recent.pop_front();
    }
    let end = text.char_indices().nth(RECENT_CHARACTERS_MAX).map_or(text.len(), |(end, _)| end);
    let message = printable(&text[..end]);
    recent.push_back(RecentMessage { time: rfc3339(said.now), level: said.level.as_str(), message });
}

/// Writes an event as a line, unless the filter leaves it out, or too many of its kind or user came
/// before.
fn write_event(event: &Event<'_>, filter: &Filter, complete: fn(&str) -> String) {
    let metadata = event.metadata();
    if is_log() && !filter.admits(*metadata.level(), metadata.target()) {
        return;
    }
    let mut fields = Fields::default();
    event.record(&mut fields);
    let user = fields.others.get("user").and_then(Value::as_u64).and_then(|user| u32::try_from(user).ok());
    let kind = (metadata.file().unwrap_or_default(), metadata.line().unwrap_or_default());
    let Some(left_out) = LIMITER.lock().admit(kind, user.map(whose), BEGAN.elapsed()) else { return };
    let text = complete(&fields.message);
    let (level, target) = (*metadata.level(), metadata.target());
    let said = Said { level, target, now: SystemClock.now(), fields: fields.others };
    if level <= Level::WARN {
        remember(&said, &text);
    }
    write(&said.lines(&text, left_out, reader()));
    if let Some(kept) = &mut *KEPT.lock() {
        kept.push(said.lines(&text, left_out, Reader::Log(format())));
    }
}

/// Passes Weft's own events on.
struct Events<F> {
    write: F,
    /// The lowest level that any of them has.
    most: LevelFilter,
}

impl<F: Fn(&Event<'_>) + Send + Sync + 'static> Subscriber for Events<F> {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= self.most && metadata.target().starts_with("weft")
    }

    fn event(&self, event: &Event<'_>) {
        (self.write)(event);
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

/// The message of an event, and its other fields.
#[derive(Default)]
struct Fields {
    message: String,
    others: Map<String, Value>,
}

impl Visit for Fields {
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.others.insert(field.name().into(), value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.others.insert(field.name().into(), value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.others.insert(field.name().into(), value.into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            // Writing to a string cannot fail.
            let _ = write!(self.message, "{value:?}");
        } else {
            self.others.insert(field.name().into(), format!("{value:?}").into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_gives_its_message_and_the_user_who_asked() {
        let (tell, told) = std::sync::mpsc::channel();
        let heard = move |event: &Event<'_>| {
            let mut fields = Fields::default();
            event.record(&mut fields);
            tell.send((fields.others.get("user").cloned(), fields.message)).expect("heard");
        };
        tracing::subscriber::with_default(Events { write: heard, most: LevelFilter::INFO }, || {
            let user = 7_u32;
            tracing::warn!(user, "of {user}");
            tracing::error!("of nobody");
            tracing::debug!("nothing");
            tracing::warn!(target: "another", "nothing");
        });
        let heard: Vec<_> = told.iter().collect();
        assert_eq!(heard, [(Some(7.into()), "of 7".to_owned()), (None, "of nobody".to_owned())]);
    }
}
