//! Text as one line that a terminal or a log can show. Names of files, and with them messages, have
//! any bytes: a line end among them would forge a line of the log, an escape sequence would work on
//! the terminal of whoever reads it.

use std::fmt::Write;

/// Returns `text` with what cannot be printed escaped; backslashes stay.
pub fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    text.chars().for_each(|character| push_printable(&mut shown, character));
    shown
}

/// Tells whether a terminal shows `character` as itself: it is no control character, no line end of
/// Unicode, and turns no direction of writing around.
pub fn is_plain(character: char) -> bool {
    let is_hidden = matches!(
        character,
        '\u{2028}' | '\u{2029}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    !character.is_control() && !is_hidden
}

/// Adds `character` to `shown`, escaped if it cannot be printed.
pub fn push_printable(shown: &mut String, character: char) {
    // Writing to a string cannot fail.
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
