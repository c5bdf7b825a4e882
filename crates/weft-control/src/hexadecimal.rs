//! Bytes as text: two digits each.

use std::fmt::Write;

/// Returns `bytes` in hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Returns the bytes that `text` is, in digits of either case; none if it is no such text.
pub(crate) fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let pair = |pair: &[u8]| match pair {
        [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
        _ => None,
    };
    text.as_bytes().chunks(2).map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_and_other_text_is_none() {
        assert_eq!((hex(b"\x00\xfe/"), unhex("00Fe2f").expect("bytes")), ("00fe2f".into(), b"\x00\xfe/".to_vec()));
        assert_eq!(unhex(""), Some(Vec::new()));
        for text in ["2", "zz", "+1", "\u{e9}0"] {
            assert_eq!(unhex(text), None, "{text}");
        }
    }
}
