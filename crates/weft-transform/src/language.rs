//! The language that networks are written in: stages with arguments, joined by `|`.
//!
//! Words are as a shell has them: separated by blanks, `'…'` takes all as it is, `"…"` all but `\"` and `\\`, a backslash the character
//! after it. Nothing is replaced in them.

use std::fmt;

/// Longest network, in bytes, and most stages in one.
const TEXT_BYTES_MAX: usize = 64 << 10;
const STAGES_MAX: usize = 64;

/// What is wrong with the text of a network, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkError {
    /// What is wrong.
    pub message: String,
    /// The byte of the text at which it is.
    pub at: usize,
}

impl fmt::Display for NetworkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, at byte {}", self.message, self.at)
    }
}

impl std::error::Error for NetworkError {}

impl NetworkError {
    pub(crate) fn new(message: impl Into<String>, at: usize) -> NetworkError {
        NetworkError { message: message.into(), at }
    }
}

/// A word, and the byte of the text at which it begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Word {
    pub(crate) text: String,
    pub(crate) at: usize,
    /// The byte after it.
    pub(crate) end: usize,
    /// Whether it was quoted, so that it is no option whatever it begins with.
    pub(crate) is_quoted: bool,
}

/// A stage as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) name: Word,
    pub(crate) arguments: Vec<Word>,
}

impl Call {
    /// The byte after it.
    pub(crate) fn end(&self) -> usize {
        self.arguments.last().unwrap_or(&self.name).end
    }
}

/// Reads the text of a network.
pub(crate) fn parse(text: &str) -> Result<Vec<Call>, NetworkError> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(NetworkError::new(format!("a network has at most {TEXT_BYTES_MAX} bytes"), TEXT_BYTES_MAX));
    }
    let mut calls = Vec::new();
    let mut words: Vec<Word> = Vec::new();
    let mut rest = Rest { text, at: 0 };
    loop {
        let token = rest.token()?;
        if let Some(Token::Word(word)) = token {
            words.push(word);
            continue;
        }
        if words.is_empty() {
            let at = rest.at - usize::from(token.is_some());
            return Err(NetworkError::new("a stage is missing", at));
        }
        let name = words.remove(0);
        if calls.len() == STAGES_MAX {
            return Err(NetworkError::new(format!("a network has at most {STAGES_MAX} stages"), name.at));
        }
        calls.push(Call { name, arguments: std::mem::take(&mut words) });
        if token.is_none() {
            return Ok(calls);
        }
    }
}

enum Token {
    Word(Word),
    Pipe,
}

/// What has not been read yet.
struct Rest<'a> {
    text: &'a str,
    at: usize,
}

impl Rest<'_> {
    fn peek(&self) -> Option<char> {
        self.text[self.at..].chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.at += next.len_utf8();
        Some(next)
    }

    fn token(&mut self) -> Result<Option<Token>, NetworkError> {
        while self.peek().is_some_and(char::is_whitespace) {
            self.next();
        }
        match self.peek() {
            None => Ok(None),
            Some('|') => {
                self.next();
                Ok(Some(Token::Pipe))
            }
            Some(_) => self.word().map(|word| Some(Token::Word(word))),
        }
    }

    fn word(&mut self) -> Result<Word, NetworkError> {
        let mut word = Word { text: String::new(), at: self.at, end: self.at, is_quoted: false };
        while let Some(next) = self.peek().filter(|next| !next.is_whitespace() && *next != '|') {
            let at = self.at;
            self.next();
            match next {
                '\'' | '"' => {
                    word.is_quoted = true;
                    self.quoted(next, at, &mut word.text)?;
                }
                '\\' => {
                    word.is_quoted = true;
                    let escaped = self.next().ok_or_else(|| NetworkError::new("nothing follows the backslash", at))?;
                    word.text.push(escaped);
                }
                // They will join several streams.
                '(' | ')' | ';' | '&' | '<' | '>' | '`' | '$' => {
                    let message =
                        format!("{next} has no meaning here; quote it ('{next}') if it belongs to an argument");
                    return Err(NetworkError::new(message, at));
                }
                next => word.text.push(next),
            }
        }
        word.end = self.at;
        Ok(word)
    }

    fn quoted(&mut self, quote: char, at: usize, text: &mut String) -> Result<(), NetworkError> {
        loop {
            match self.next() {
                None => return Err(NetworkError::new("the quotation does not end", at)),
                Some(next) if next == quote => return Ok(()),
                Some('\\') if quote == '"' && matches!(self.peek(), Some('"' | '\\')) => text.extend(self.next()),
                Some(next) => text.push(next),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn words(text: &str) -> Vec<Vec<String>> {
        let calls = parse(text).unwrap().into_iter();
        calls
            .map(|call| [&[call.name][..], &call.arguments].concat().into_iter().map(|word| word.text).collect())
            .collect()
    }

    #[test]
    fn words_are_as_a_shell_has_them() {
        assert_eq!(
            words("zstd -d|grep 'a | b' | head  -100"),
            [vec!["zstd", "-d"], vec!["grep", "a | b"], vec!["head", "-100"]]
        );
        assert_eq!(words(r#"grep "it's \"so\" \n" a\ b ''"#), [vec!["grep", "it's \"so\" \\n", "a b", ""]]);
        assert_eq!(words("tr ä'ö'\"ü\" x"), [vec!["tr", "äöü", "x"]]);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        for (text, at, message) in [
            ("", 0, "a stage is missing"),
            ("cat |", 5, "a stage is missing"),
            ("cat || cat", 5, "a stage is missing"),
            ("grep 'a", 5, "the quotation does not end"),
            ("grep a\\", 6, "nothing follows the backslash"),
            ("sort > x", 5, "> has no meaning here; quote it ('>') if it belongs to an argument"),
        ] {
            assert_eq!(parse(text), Err(NetworkError::new(message, at)), "{text}");
        }
        assert!(parse(&"x|".repeat(STAGES_MAX)).is_err());
        assert!(parse(&"x".repeat(TEXT_BYTES_MAX + 1)).is_err());
    }

    proptest! {
        #[test]
        fn any_text_is_a_network_or_not(text in "\\PC*") {
            let _ = parse(&text);
        }

        #[test]
        fn any_words_can_be_quoted(texts in proptest::collection::vec("\\PC*", 1..5)) {
            let quoted: Vec<String> = texts.iter().map(|text| format!("'{}'", text.replace('\'', r"'\''"))).collect();
            prop_assert_eq!(words(&quoted.join(" ")), [texts]);
        }
    }
}
