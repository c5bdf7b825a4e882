//! Paths, times and messages as a terminal can show them: on one line, without control characters,
//! unambiguous.

use std::ffi::OsStr;
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, SystemTime};
use weft_store::{Location, Timestamp};

/// Returns `path` with unprintable characters escaped: `\n`, `\x1b`, `\xff`, `\u{202e}`; a
/// backslash is `\\`.
pub fn path(path: &Path) -> String {
    let mut shown = String::new();
    for chunk in path.as_os_str().as_bytes().utf8_chunks() {
        chunk.valid().chars().for_each(|character| match character {
            '\\' => shown.push_str("\\\\"),
            character => weft_vfs::push_printable(&mut shown, character),
        });
        for byte in chunk.invalid() {
            // Writing to a string cannot fail.
            let _ = write!(shown, "\\x{byte:02x}");
        }
    }
    shown
}

/// Returns a path that is any bytes, as [`path`] does.
pub fn bytes(bytes: &[u8]) -> String {
    path(Path::new(OsStr::from_bytes(bytes)))
}

/// Returns a time as RFC 3339 writes it, in UTC.
pub fn time(time: Timestamp) -> String {
    let (seconds, nanoseconds) = time.parts();
    let since = u64::try_from(seconds).ok().map(|seconds| Duration::new(seconds, nanoseconds));
    let time = since.and_then(|since| SystemTime::UNIX_EPOCH.checked_add(since));
    time.map_or_else(|| seconds.to_string(), |time| humantime::format_rfc3339_seconds(time).to_string())
}

/// Returns the same with the fraction of a second, if it has one: given to `--at` it is that time
/// again.
pub fn exact_time(exact: Timestamp) -> String {
    let (_, nanoseconds) = exact.parts();
    let shown = time(exact);
    match shown.strip_suffix('Z') {
        Some(whole) if nanoseconds > 0 => format!("{whole}.{nanoseconds:09}Z"),
        _ => shown,
    }
}

/// Returns a message with unprintable characters escaped; backslashes stay.
pub fn message(text: &str) -> String {
    weft_vfs::printable(text)
}

pub use weft_vfs::is_plain;

/// Returns a word of a command, on one line, quoted where a shell would not read it literally.
pub fn word(text: &OsStr) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+:@%,=".contains(&byte) || !byte.is_ascii();
    match text.to_str().filter(|text| text.chars().all(weft_vfs::is_plain)) {
        Some(text) if !text.is_empty() && text.bytes().all(is_plain) => text.into(),
        Some(text) => format!("'{}'", text.replace('\'', "'\\''")),
        None => escaped(text.as_bytes()),
    }
}

/// Returns a word that cannot be shown literally, in the form of POSIX.1-2024 (2.2.4
/// "Dollar-Single-Quotes").
fn escaped(bytes: &[u8]) -> String {
    let mut word = String::from("$'");
    for byte in bytes {
        match byte {
            b'\n' => word.push_str("\\n"),
            b'\'' | b'\\' => word.extend(['\\', char::from(*byte)]),
            b' '..=b'~' => word.push(char::from(*byte)),
            // Writing to a string cannot fail.
            byte => drop(write!(word, "\\x{byte:02x}")),
        }
    }
    word + "'"
}

/// Returns a volume as a word of a command, which must not be taken for an option.
pub fn location(location: &Location) -> String {
    match location.path() {
        Some(path) if path.as_os_str().as_bytes().starts_with(b"-") => word(Path::new(".").join(path).as_os_str()),
        Some(path) => word(path.as_os_str()),
        None => word(OsStr::new(&location.to_string())),
    }
}

/// Returns a number of something, in words.
pub fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_a_quoted_word_as_it_is() {
        for (text, quoted) in [
            ("/srv/v.weft", "/srv/v.weft"),
            ("my volume", "'my volume'"),
            ("it's", "'it'\\''s'"),
            ("$(reboot)", "'$(reboot)'"),
            ("", "''"),
        ] {
            assert_eq!(word(OsStr::new(text)), quoted);
        }
        for (bytes, quoted) in [
            (&b"nl\nx.weft"[..], "$'nl\\nx.weft'"),
            (b"it's \xff\\", "$'it\\'s \\xff\\\\'"),
            ("\u{202e}".as_bytes(), "$'\\xe2\\x80\\xae'"),
        ] {
            assert_eq!(word(OsStr::from_bytes(bytes)), quoted);
        }
        let volume = |path: &str| location(&Location::Files(path.into()));
        assert_eq!((volume("-x.weft"), volume("x")), ("./-x.weft".into(), "x".into()));
    }

    #[test]
    fn what_cannot_be_printed_is_escaped_without_ambiguity() {
        for (bytes, text) in [
            (&b"plain/ name"[..], "plain/ name"),
            (b"a\nb", "a\\nb"),
            (b"a\\nb", "a\\\\nb"),
            (b"\x1b[2J\x7f", "\\x1b[2J\\x7f"),
            (b"\xff\xfe", "\\xff\\xfe"),
            ("Straße".as_bytes(), "Straße"),
            ("\u{202e}txt.exe\u{9b}".as_bytes(), "\\u{202e}txt.exe\\u{9b}"),
        ] {
            assert_eq!(path(Path::new(OsStr::from_bytes(bytes))), text);
        }
        assert_eq!(message("C:\\a\nb"), "C:\\a\\nb");
    }
}
