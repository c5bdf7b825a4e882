//! Lists of digests, line by line as b3sum prints them: the digest, two blanks, the path. A path
//! that holds a line's end or a backslash has them escaped, and the line then begins with a
//! backslash; at a terminal that holds for control characters, too. The path of a directory ends
//! with `/`.

use super::tree::Found;
use crate::shown;
use std::io::IsTerminal;
use weft_digest::{Digest, hex};

/// Readers of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// Obeys control characters.
    Terminal,
    /// Knows what b3sum escapes, and no more.
    Program,
}

impl Reader {
    /// Returns the reader of standard output.
    pub fn of_output() -> Reader {
        if std::io::stdout().is_terminal() { Reader::Terminal } else { Reader::Program }
    }
}

/// One line.
#[derive(Debug, PartialEq, Eq)]
pub struct Line {
    pub digest: Digest,
    pub path: Vec<u8>,
}

impl Line {
    pub fn new(path: &[u8], found: &Found) -> Line {
        let mut path = path.to_vec();
        if found.is_directory && !path.ends_with(b"/") {
            path.push(b'/');
        }
        Line { digest: found.digest, path }
    }

    /// Returns the line with its end.
    pub fn encode(&self, reader: Reader) -> Vec<u8> {
        let mut line = Vec::new();
        let escaped = match reader {
            Reader::Terminal => escape(&self.path),
            Reader::Program => escape_ends(&self.path),
        };
        if escaped != self.path {
            line.push(b'\\');
        }
        line.extend(hex(&self.digest).into_bytes());
        line.extend(b"  ");
        line.extend(escaped);
        line.push(b'\n');
        line
    }

    /// Parses a line without its end; none if it is no such line.
    pub fn decode(line: &[u8]) -> Option<Line> {
        let (is_escaped, line) = line.strip_prefix(b"\\").map_or((false, line), |line| (true, line));
        let (digits, rest) = line.split_at_checked(64)?;
        let path = rest.strip_prefix(b"  ").filter(|path| !path.is_empty())?;
        Some(Line { digest: unhex(digits)?, path: if is_escaped { unescape(path)? } else { path.to_vec() } })
    }
}

/// Decodes the output of [`hex`].
pub fn unhex(digits: &[u8]) -> Option<Digest> {
    let (pairs, rest) = digits.as_chunks::<2>();
    if pairs.len() != 32 || !rest.is_empty() {
        return None;
    }
    let mut digest = [0; 32];
    for (byte, pair) in digest.iter_mut().zip(pairs) {
        let digit = |digit: u8| char::from(digit).to_digit(16);
        *byte = u8::try_from(digit(pair[0])? * 16 + digit(pair[1])?).ok()?;
    }
    Some(digest)
}

/// Returns `path` on one line.
fn escape_ends(path: &[u8]) -> Vec<u8> {
    let escaped = path.iter().flat_map(|byte| match byte {
        b'\\' => &b"\\\\"[..],
        b'\n' => b"\\n",
        b'\r' => b"\\r",
        byte => std::slice::from_ref(byte),
    });
    escaped.copied().collect()
}

/// Returns `path` on one line, without any character that a terminal obeys; bytes that are no UTF-8
/// stay.
pub fn escape(path: &[u8]) -> Vec<u8> {
    let mut escaped = Vec::new();
    for chunk in path.utf8_chunks() {
        for character in chunk.valid().chars() {
            let mut buffer = [0; 4];
            let bytes = character.encode_utf8(&mut buffer).as_bytes();
            match character {
                '\\' => escaped.extend(b"\\\\"),
                '\n' => escaped.extend(b"\\n"),
                '\r' => escaped.extend(b"\\r"),
                character if shown::is_plain(character) => escaped.extend(bytes),
                _ => bytes.iter().for_each(|byte| push_hex(&mut escaped, *byte)),
            }
        }
        for byte in chunk.invalid() {
            match byte {
                // Control characters of a terminal that takes bytes for characters.
                0x80..=0x9f => push_hex(&mut escaped, *byte),
                byte => escaped.push(*byte),
            }
        }
    }
    escaped
}

fn push_hex(escaped: &mut Vec<u8>, byte: u8) {
    escaped.extend(format!("\\x{byte:02x}").into_bytes());
}

/// Decodes the output of [`escape`].
pub fn unescape(escaped: &[u8]) -> Option<Vec<u8>> {
    let mut path = Vec::new();
    let mut bytes = escaped.iter();
    while let Some(byte) = bytes.next() {
        path.push(match byte {
            b'\\' => match bytes.next()? {
                b'\\' => b'\\',
                b'n' => b'\n',
                b'r' => b'\r',
                b'x' => {
                    let mut digit = || char::from(*bytes.next()?).to_digit(16);
                    u8::try_from(digit()? * 16 + digit()?).ok()?
                }
                _ => return None,
            },
            byte => *byte,
        });
    }
    Some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_it_was_made_of_whatever_the_path() {
        let own = [&b"a"[..], b" a  b ", b"a\nb", b"\\", b"\\n", b"\r", b"\xff\xfe", b"dir/"];
        let obeyed = [&b"\x1b[2J\t\x7f"[..], "\u{9b}\u{202e}".as_bytes(), b"\x9b\xc2", b"\\x1b"];
        for path in own.into_iter().chain(obeyed) {
            let line = Line { digest: std::array::from_fn(|i| i as u8 * 7), path: path.to_vec() };
            for reader in [Reader::Terminal, Reader::Program] {
                let encoded = line.encode(reader);
                let (end, text) = encoded.split_last().expect("an end");
                assert_eq!((*end, text.contains(&b'\n')), (b'\n', false));
                let is_obeyed = text.iter().any(|byte| byte.is_ascii_control() || *byte == 0x9b);
                assert!(reader == Reader::Program || !is_obeyed, "{path:?}");
                assert_eq!(Line::decode(text).as_ref(), Some(&line));
            }
        }
    }

    #[test]
    fn a_program_is_given_what_b3sum_prints() {
        let encode = |path: &[u8]| Line { digest: [0; 32], path: path.to_vec() }.encode(Reader::Program);
        let zeros = "0".repeat(64);
        assert_eq!(encode(b"a\tb\x01\xff"), [zeros.as_bytes(), b"  a\tb\x01\xff\n"].concat());
        assert_eq!(encode(b"a\nb\\"), format!("\\{zeros}  a\\nb\\\\\n").into_bytes());
    }

    #[test]
    fn what_is_no_line_is_none() {
        let digits = "0".repeat(64);
        for line in [
            String::new(),
            digits.clone(),
            format!("{digits} a"),
            format!("{digits}  "),
            format!("x{digits}  a"),
            format!("\\{digits}  a\\x"),
            format!("\\{digits}  a\\x1"),
            format!("\\{digits}  a\\x1g"),
        ] {
            assert_eq!(Line::decode(line.as_bytes()), None, "{line}");
        }
        assert!(Line::decode(format!("{}  a", "A".repeat(64)).as_bytes()).is_some());
    }

    #[test]
    fn a_directory_is_marked_once() {
        let found = Found { digest: [0; 32], is_directory: true };
        assert_eq!(Line::new(b"a", &found).path, b"a/");
        assert_eq!(Line::new(b"a/", &found).path, b"a/");
    }
}
