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
            character => push(&mut shown, character),
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
    let mut shown = String::new();
    text.chars().for_each(|character| push(&mut shown, character));
    shown
}

/// A word of a command, quoted where a shell would read it as anything else than itself.
pub fn word(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+:@%,=".contains(&byte) || !byte.is_ascii();
    if !text.is_empty() && text.bytes().all(is_plain) {
        return text.into();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// Whether a terminal shows `character` as itself: no control character, no line end of Unicode,
/// nothing that turns the direction of writing around.
pub fn is_plain(character: char) -> bool {
    let is_hidden = matches!(
        character,
        '\u{2028}' | '\u{2029}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    !character.is_control() && !is_hidden
}

fn push(shown: &mut String, character: char) {
    let _ = match character {
        '\n' => shown.write_str("\\n"),
        '\r' => shown.write_str("\\r"),
        '\t' => shown.write_str("\\t"),
        character if is_plain(character) => shown.write_char(character),
        character if character.is_ascii() => write!(shown, "\\x{:02x}", u32::from(character)),
        // A byte above 0x7f is no character by itself.
        character => write!(shown, "\\u{{{:x}}}", u32::from(character)),
    };
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
