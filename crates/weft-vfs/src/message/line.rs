//! A message as a line: for a user, or of a log in one of its formats.

use super::printable;
use serde_json::{Map, Value, json};
use std::time::{Duration, UNIX_EPOCH};
use tracing::Level;
use weft_store::Timestamp;

/// Format of the lines of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// Time, level, target and message.
    #[default]
    Text,
    /// The same as members of a JSON object, with all fields of the event.
    Json,
}

/// The reader of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reader {
    /// A user at a terminal.
    User,
    /// A log.
    Log(LogFormat),
    /// systemd's journal, which has times of its own, and takes the level from the beginning of a
    /// line (sd-daemon(3)).
    Journal,
}

/// An event that is told.
#[derive(Clone, Debug)]
pub(super) struct Said {
    pub(super) level: Level,
    pub(super) target: &'static str,
    pub(super) now: Timestamp,
    /// Its fields, but for the message.
    pub(super) fields: Map<String, Value>,
}

/// Returns `time` in UTC, to the millisecond (RFC 3339).
pub fn rfc3339(time: Timestamp) -> String {
    let since = Duration::from_nanos(u64::try_from(time.0).unwrap_or(0));
    humantime::format_rfc3339_millis(UNIX_EPOCH + since).to_string()
}

/// Returns the priority of `level` at the beginning of a line for the journal.
fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        Level::DEBUG | Level::TRACE => 7,
    }
}

impl Said {
    /// Returns the message `text` as a line for `reader`.
    pub(super) fn line(&self, text: &str, reader: Reader) -> String {
        let (level, target) = (self.level, self.target);
        match reader {
            Reader::User => format!("weft: {}\n", printable(text)),
            Reader::Log(LogFormat::Text) => format!("{} {level} {target}: {}\n", rfc3339(self.now), printable(text)),
            Reader::Journal => format!("<{}>{target}: {}\n", priority(level), printable(text)),
            Reader::Log(LogFormat::Json) => {
                let mut line = json!({
                    "time": rfc3339(self.now),
                    "level": level.as_str(),
                    "target": target,
                    "message": text,
                });
                for (name, value) in &self.fields {
                    line[name] = value.clone();
                }
                format!("{line}\n")
            }
        }
    }

    /// Returns the same, after a line that tells how many were left out before it.
    pub(super) fn lines(&self, text: &str, left_out: u64, reader: Reader) -> String {
        let line = self.line(text, reader);
        match left_out {
            0 => line,
            count => self.line(&format!("{count} messages of this kind were left out:"), reader) + &line,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_message_makes_another_line_and_each_reader_has_its_format() {
        let fields = Map::from_iter([("user".to_owned(), json!(7))]);
        let said = Said { level: Level::WARN, target: "weft_vfs::commit", now: Timestamp(1_500_000_000), fields };
        let (text, head) = ("a\n\"b\"", "1970-01-01T00:00:01.500Z WARN weft_vfs::commit:");
        let log = Reader::Log(LogFormat::Text);
        assert_eq!(said.lines(text, 0, log), format!("{head} a\\n\"b\"\n"));
        assert_eq!(
            said.lines(text, 3, log),
            format!("{head} 3 messages of this kind were left out:\n{head} a\\n\"b\"\n")
        );
        assert_eq!(said.lines(text, 0, Reader::User), "weft: a\\n\"b\"\n");
        assert_eq!(said.lines(text, 0, Reader::Journal), "<4>weft_vfs::commit: a\\n\"b\"\n");
        assert_eq!(
            said.line(text, Reader::Log(LogFormat::Json)),
            "{\"time\":\"1970-01-01T00:00:01.500Z\",\"level\":\"WARN\",\"target\":\"weft_vfs::commit\",\
             \"message\":\"a\\n\\\"b\\\"\",\"user\":7}\n"
        );
    }
}
