//! The language that networks are written in: stages with arguments, one after the other by `|`,
//! side by side in parentheses.
//!
//! Words are as a shell has them: separated by blanks, `'…'` takes all as it is, `"…"` all but `\"`
//! and `\\`, a backslash the character after it. Nothing is replaced in them.

use std::fmt;

/// Longest network, in bytes; most stages in one; how deep parentheses may lie.
const TEXT_BYTES_MAX: usize = 64 << 10;
const ELEMENTS_MAX: usize = 64;
const DEPTH_MAX: usize = 8;

/// Error in the text of a network, with its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkError {
    /// Description of the error.
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
    /// True if it was quoted, so that it is no option whatever it begins with.
    pub(crate) is_quoted: bool,
    /// The file that it stands for, counted from 0.
    pub(crate) file: Option<usize>,
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

/// Element of a chain in a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Element {
    /// A stage.
    Stage(Call),
    /// Several networks side by side, and how their results become one.
    Join { how: Word, branches: Vec<Vec<Element>> },
    /// The content of one of the files, counted from 0.
    File { number: usize },
    /// The name of another network, with the `@` before it.
    Named(Word),
}

/// Reads the text of a network.
pub(crate) fn parse(text: &str) -> Result<Vec<Element>, NetworkError> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(NetworkError::new(format!("a network has at most {TEXT_BYTES_MAX} bytes"), TEXT_BYTES_MAX));
    }
    let mut parser = Parser { text, at: 0, elements: 0, depth: 0 };
    let chain = parser.chain()?;
    match parser.peek() {
        None => Ok(chain),
        Some(next) => Err(NetworkError::new(format!("'{next}' closes nothing"), parser.at)),
    }
}

/// Reads text from a place on.
struct Parser<'a> {
    text: &'a str,
    at: usize,
    elements: usize,
    /// Parentheses that are open.
    depth: usize,
}

impl Parser<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.at += next.len_utf8();
        Some(next)
    }

    fn skip_blanks(&mut self) {
        while self.peek().is_some_and(char::is_whitespace) {
            self.next();
        }
    }

    /// Takes `wanted`, if it comes next.
    fn takes(&mut self, wanted: char) -> bool {
        self.skip_blanks();
        let is_next = self.peek() == Some(wanted);
        if is_next {
            self.next();
        }
        is_next
    }

    /// Elements joined by `|`, up to what belongs to none.
    fn chain(&mut self) -> Result<Vec<Element>, NetworkError> {
        let mut chain = Vec::new();
        loop {
            chain.push(self.element(chain.is_empty())?);
            if !self.takes('|') {
                return Ok(chain);
            }
        }
    }

    fn element(&mut self, is_first: bool) -> Result<Element, NetworkError> {
        self.skip_blanks();
        self.elements += 1;
        if self.elements > ELEMENTS_MAX {
            return Err(NetworkError::new(format!("a network has at most {ELEMENTS_MAX} stages"), self.at));
        }
        if self.peek() == Some('$') {
            return self.file(is_first);
        }
        if self.peek() == Some('@') {
            return self.named();
        }
        let Some(name) = self.word()? else { return Err(NetworkError::new("a stage is missing", self.at)) };
        if self.peek() == Some('(') && !name.is_quoted {
            return self.join(name);
        }
        let mut arguments = Vec::new();
        loop {
            self.skip_blanks();
            let word = if self.peek() == Some('$') { Some(self.file_argument()?) } else { self.word()? };
            match word {
                Some(word) => arguments.push(word),
                None => return Ok(Element::Stage(Call { name, arguments })),
            }
        }
    }

    /// `@name`, by itself.
    fn named(&mut self) -> Result<Element, NetworkError> {
        let at = self.at;
        self.next();
        let len = self.rest().bytes().take_while(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(byte)).count();
        if !is_name(&self.rest()[..len]) {
            return Err(NetworkError::new(
                "a network's name follows '@': letters, digits, '-' and '_', 64 at most",
                at,
            ));
        }
        self.at += len;
        let end = self.at;
        self.skip_blanks();
        if self.peek().is_some_and(|next| !"|,)".contains(next)) {
            return Err(NetworkError::new("a network that is named takes no arguments", self.at));
        }
        Ok(Element::Named(Word { text: self.text[at..end].into(), at, end, is_quoted: false, file: None }))
    }

    /// `$1`, by itself, which can only come first.
    fn file(&mut self, is_first: bool) -> Result<Element, NetworkError> {
        let at = self.at;
        let number = self.file_number()?;
        if !is_first {
            return Err(NetworkError::new("a file is read at the beginning, not after a stage", at));
        }
        Ok(Element::File { number })
    }

    /// `$1` as an argument.
    fn file_argument(&mut self) -> Result<Word, NetworkError> {
        let at = self.at;
        let file = Some(self.file_number()?);
        let end = self.at;
        if self.peek().is_some_and(|next| next != '|' && !next.is_whitespace() && !self.is_separator(next, true)) {
            return Err(NetworkError::new("something follows the number of a file", end));
        }
        Ok(Word { text: self.text[at..end].into(), at, end, is_quoted: false, file })
    }

    fn file_number(&mut self) -> Result<usize, NetworkError> {
        let at = self.at;
        self.next();
        let digits = self.rest().bytes().take_while(u8::is_ascii_digit).count();
        let number = self.rest()[..digits].parse().ok().and_then(|number: usize| number.checked_sub(1));
        self.at += digits;
        let missing = || NetworkError::new("$1 is the first file, $2 the second; quote '$' in arguments", at);
        number.filter(|number| *number < ELEMENTS_MAX).ok_or_else(missing)
    }

    /// `how(chain, chain)`, or `tee(chain, chain) | how`.
    fn join(&mut self, mut how: Word) -> Result<Element, NetworkError> {
        let at = self.at;
        self.next();
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(NetworkError::new(format!("parentheses lie at most {DEPTH_MAX} deep"), at));
        }
        let mut branches = vec![self.chain()?];
        while self.takes(',') {
            branches.push(self.chain()?);
        }
        if !self.takes(')') {
            return Err(NetworkError::new("the parenthesis does not end", at));
        }
        self.depth -= 1;
        if how.text == "tee" {
            let missing = "tee gives several streams: go on with '| concat', '| interleave', '| merge' or '| zip'";
            let missing = || NetworkError::new(missing, how.at);
            if !self.takes('|') {
                return Err(missing());
            }
            self.skip_blanks();
            how = self.word()?.ok_or_else(missing)?;
        }
        Ok(Element::Join { how, branches })
    }

    /// The next word; none if there is something else.
    fn word(&mut self) -> Result<Option<Word>, NetworkError> {
        let mut word = Word { text: String::new(), at: self.at, end: self.at, is_quoted: false, file: None };
        while let Some(next) = self.peek() {
            let at = self.at;
            if next.is_whitespace()
                || next == '|'
                || self.is_separator(next, at == word.at)
                || next == '(' && !word.text.is_empty()
            {
                break;
            }
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
                '(' | ')' | ';' | '&' | '<' | '>' | '`' | '$' => {
                    let message =
                        format!("{next} has no meaning here; quote it ('{next}') if it belongs to an argument");
                    return Err(NetworkError::new(message, at));
                }
                next => word.text.push(next),
            }
        }
        word.end = self.at;
        Ok((word.end > word.at).then_some(word))
    }

    /// True if `next` ends a branch: a comma does unless it stands inside a word.
    fn is_separator(&self, next: char, begins_word: bool) -> bool {
        let ends_word = || self.rest().chars().nth(1).is_none_or(|it| it.is_whitespace() || "),".contains(it));
        self.depth > 0 && (next == ')' || next == ',' && (begins_word || ends_word()))
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

/// True if a network can be called so: letters of ASCII, digits, `-` and `_`, 64 at most.
pub fn is_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    (1..=64).contains(&name.len()) && name.bytes().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The words of each stage; of a join what is in it, in brackets.
    fn words(text: &str) -> Vec<Vec<String>> {
        fn of(chain: Vec<Element>) -> Vec<Vec<String>> {
            let words = |element| match element {
                Element::Stage(call) => {
                    [&[call.name][..], &call.arguments].concat().into_iter().map(|word| word.text).collect()
                }
                Element::File { number } => vec![format!("file {number}")],
                Element::Named(word) => vec![word.text],
                Element::Join { how, branches } => {
                    [vec![how.text], branches.into_iter().map(|branch| format!("{:?}", of(branch))).collect()].concat()
                }
            };
            chain.into_iter().map(words).collect()
        }
        of(parse(text).unwrap())
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
    fn networks_lie_side_by_side_in_parentheses() {
        let join = vec!["merge", r#"[["file 0"], ["cut", "-f", "1,3"]]"#, r#"[["sort"]]"#];
        assert_eq!(words("merge($1 | cut -f 1,3, sort) | uniq"), [join.clone(), vec!["uniq"]]);
        assert_eq!(words("tee( $1|cut -f 1,3 ,sort )|merge|uniq"), [join, vec!["uniq"]]);
        let inner = vec!["concat", r#"[["zip", "[[\"a\"]]", "[[\"b\", \",\"]]"]]"#, r#"[["c"]]"#];
        assert_eq!(words("concat(zip(a, b ','), c)"), [inner]);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        for (text, at, message) in [
            ("", 0, "a stage is missing"),
            ("cat |", 5, "a stage is missing"),
            ("merge(a, )", 9, "a stage is missing"),
            ("merge(a, b", 5, "the parenthesis does not end"),
            ("a)", 1, ") has no meaning here; quote it (')') if it belongs to an argument"),
            ("a | $1", 4, "a file is read at the beginning, not after a stage"),
            ("$0", 0, "$1 is the first file, $2 the second; quote '$' in arguments"),
            ("tee(a, b)", 0, "tee gives several streams: go on with '| concat', '| interleave', '| merge' or '| zip'"),
            ("cat || cat", 5, "a stage is missing"),
            ("grep 'a", 5, "the quotation does not end"),
            ("grep a\\", 6, "nothing follows the backslash"),
            ("sort > x", 5, "> has no meaning here; quote it ('>') if it belongs to an argument"),
        ] {
            assert_eq!(parse(text), Err(NetworkError::new(message, at)), "{text}");
        }
        assert!(parse(&"x|".repeat(ELEMENTS_MAX)).is_err());
        assert!(parse(&"x".repeat(TEXT_BYTES_MAX + 1)).is_err());
        assert!(parse(&"a(".repeat(60)).unwrap_err().message.contains("deep"));
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
