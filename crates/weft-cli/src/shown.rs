//! Paths and messages as a terminal can show them: on one line, without control characters,
//! unambiguous.

use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// `path` with what cannot be printed escaped: `\n`, `\x1b`, `\xff`, `\u{202e}`; a backslash is
/// `\\`.
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

/// A message with what cannot be printed escaped; backslashes stay.
pub fn message(text: &str) -> String {
    weft_vfs::printable(text)
}

pub use weft_vfs::is_plain;

/// A word of a command, quoted where a shell would read it as anything else than itself.
pub fn word(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+:@%,=".contains(&byte) || !byte.is_ascii();
    if !text.is_empty() && text.bytes().all(is_plain) {
        return text.into();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;

    #[test]
    fn a_shell_reads_a_quoted_word_as_it_is() {
        for (text, quoted) in [
            ("/srv/v.weft", "/srv/v.weft"),
            ("my volume", "'my volume'"),
            ("it's", "'it'\\''s'"),
            ("$(reboot)", "'$(reboot)'"),
            ("", "''"),
        ] {
            assert_eq!(word(text), quoted);
        }
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
