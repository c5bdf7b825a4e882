//! Which entries of a directory a view transforms, and how it calls them.

use regex::bytes::{Regex, RegexBuilder};

/// Bytes of memory that a compiled expression may take.
const REGEX_BYTES: usize = 1 << 20;

/// A rule as sed(1) has it: `s/REGEX/TEXT/`, with `g` for all matches and `i` for letters of any case behind it. What stands after `s` takes the
/// place of the slashes. In TEXT `&` stands for what matched, `\1` to `\9` for groups.
#[derive(Clone, Debug)]
pub(crate) struct Rename {
    regex: Regex,
    /// In the language of the crate.
    replacement: Vec<u8>,
    all: bool,
}

impl Rename {
    /// Reads a rule; tells what is wrong with it.
    pub(crate) fn parse(rule: &str) -> Result<Rename, String> {
        let mut rest = rule.chars();
        let bounds = (rest.next(), rest.next());
        let (Some('s'), Some(mark)) = bounds else { return Err("it is not s/REGEX/TEXT/".into()) };
        // These an expression may have escaped, as themselves.
        if !mark.is_ascii_punctuation() || "\\<>".contains(mark) {
            return Err(format!("'{mark}' cannot stand between its parts"));
        }
        let parts = split(rest.as_str(), mark);
        let [regex, text, flags] = &parts[..] else {
            return Err(format!("it is not s{mark}REGEX{mark}TEXT{mark}"));
        };
        if let Some(unknown) = flags.chars().find(|flag| !"gi".contains(*flag)) {
            return Err(format!("there is no flag '{unknown}'"));
        }
        let regex = expression(regex, flags.contains('i'))?;
        Ok(Rename { regex, replacement: replacement(text).into_bytes(), all: flags.contains('g') })
    }

    /// What something called `name` is called.
    pub(crate) fn apply(&self, name: &[u8]) -> Vec<u8> {
        let limit = usize::from(!self.all);
        self.regex.replacen(name, limit, &self.replacement[..]).into_owned()
    }
}

/// A regular expression over the bytes of names.
pub(crate) fn expression(text: &str, any_case: bool) -> Result<Regex, String> {
    let mut builder = RegexBuilder::new(text);
    builder.case_insensitive(any_case).unicode(false).size_limit(REGEX_BYTES);
    builder.build().map_err(|error| error.to_string().replace('\n', " "))
}

/// The parts between the marks that no backslash stands before.
fn split(text: &str, mark: char) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut is_escaped = false;
    for character in text.chars() {
        if character == mark && !is_escaped {
            parts.push(String::new());
            continue;
        }
        is_escaped = character == '\\' && !is_escaped;
        parts.last_mut().expect("there is one").push(character);
    }
    parts
}

/// What sed(1) writes as `text`, as the crate writes it.
fn replacement(text: &str) -> String {
    let mut written = String::new();
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '&' => written.push_str("${0}"),
            '$' => written.push_str("$$"),
            '\\' => match characters.next() {
                Some(digit) if digit.is_ascii_digit() => {
                    written.push_str("${");
                    written.push(digit);
                    written.push('}');
                }
                Some('$') => written.push_str("$$"),
                Some(other) => written.push(other),
                None => written.push('\\'),
            },
            other => written.push(other),
        }
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_what_sed_makes_of_them() {
        let renamed = |rule: &str, name: &str| {
            String::from_utf8(Rename::parse(rule).expect("a rule").apply(name.as_bytes())).expect("text")
        };
        assert_eq!(renamed(r"s/\.gz$//", "a.gz.gz"), "a.gz");
        assert_eq!(renamed(r"s/$/.txt/", "a"), "a.txt");
        assert_eq!(renamed(r"s/A/$&\&/gi", "aba"), "$a&b$a&");
        assert_eq!(renamed(r"s/(.*)-(.*)/\2_\1/", "one-two"), "two_one");
        assert_eq!(renamed(r"s|a\|b|c|", "a|b"), "c");
        for wrong in ["", "y/a/b/", "s/a/b", "s/a/b/x", "s/(/b/", "sxaxbx", "s/a/b/c/d"] {
            assert!(Rename::parse(wrong).is_err(), "{wrong}");
        }
    }
}
