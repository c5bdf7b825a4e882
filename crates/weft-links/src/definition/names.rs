//! Which entries of a directory a view transforms, and how it calls them.

use regex::bytes::{Regex, RegexBuilder};

/// Bytes of memory that a compiled expression may take, in its first form. It is compiled within
/// the least of these bounds that it fits into, so that one tells how much work it makes. Names are
/// short: the documents give the last.
const SIZES: [usize; 5] = [1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10];

/// About how many times the memory of its first form an expression takes: it is compiled backwards,
/// too, and remembers states.
const FORMS: usize = 4;

/// Bytes of its first form that are compiled for each step of resolving that they count as.
const COMPILED_A_STEP: usize = 256;

/// Bytes of an expression's first form times bytes of a name for each step that looking for the one
/// in the other counts as.
const MATCHED_A_STEP: usize = 16 << 10;

/// A regular expression over the bytes of names.
#[derive(Clone, Debug)]
pub(crate) struct Expression {
    regex: Regex,
    /// The compilation size limit into which it fits.
    size: usize,
}

/// A rule as sed(1) has it: `s/REGEX/TEXT/`, with `g` for all matches and `i` for letters of any
/// case behind it. What stands after `s` takes the place of the slashes. In TEXT `&` stands for
/// what matched, `\1` to `\9` for groups.
#[derive(Clone, Debug)]
pub(crate) struct Rename {
    expression: Expression,
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
        let expression = Expression::compile(regex, flags.contains('i'))?;
        Ok(Rename { expression, replacement: replacement(text).into_bytes(), all: flags.contains('g') })
    }

    /// Returns the new name of an entry called `name`.
    pub(crate) fn apply(&self, name: &[u8]) -> Vec<u8> {
        let limit = usize::from(!self.all);
        self.expression.regex.replacen(name, limit, &self.replacement[..]).into_owned()
    }
}

impl Expression {
    /// Compiles `text`; tells what is wrong with it.
    pub(crate) fn compile(text: &str, any_case: bool) -> Result<Expression, String> {
        #[cfg(test)]
        tests::COMPILED.set(tests::COMPILED.get() + 1);
        let compile = |size| {
            let mut builder = RegexBuilder::new(text);
            builder.case_insensitive(any_case).unicode(false).size_limit(size).dfa_size_limit(size.max(SIZES[3]));
            builder.build()
        };
        for size in SIZES {
            match compile(size) {
                Ok(regex) => return Ok(Expression { regex, size }),
                Err(regex::Error::CompiledTooBig(_)) => {}
                Err(error) => return Err(error.to_string().replace('\n', " ")),
            }
        }
        Err(format!("it takes more than {} KiB, compiled", SIZES[SIZES.len() - 1] >> 10))
    }

    /// True if it finds something in `name`.
    pub(crate) fn is_match(&self, name: &[u8]) -> bool {
        self.regex.is_match(name)
    }

    /// The steps of resolving that looking for it in `name` counts as.
    pub(crate) fn match_steps(&self, name: &[u8]) -> usize {
        self.size * name.len() / MATCHED_A_STEP
    }

    /// About how much memory it takes.
    fn bytes(&self) -> usize {
        self.size * FORMS
    }
}

/// The names in a view of a directory. Entries of the view share those of the view.
#[derive(Debug)]
pub(crate) struct Names {
    pub(crate) rename: Option<Rename>,
    pub(crate) only: Option<Expression>,
}

impl Names {
    fn expressions(&self) -> impl Iterator<Item = &Expression> {
        self.rename.iter().map(|rule| &rule.expression).chain(&self.only)
    }

    /// The steps of resolving that compiling them counts as.
    pub(crate) fn compile_steps(&self) -> usize {
        self.expressions().map(|expression| expression.size / COMPILED_A_STEP).sum()
    }

    /// About how much memory they take.
    pub(crate) fn bytes(&self) -> usize {
        self.expressions().map(Expression::bytes).sum()
    }
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

/// Translates `text`, a replacement as in sed(1), into the syntax of the crate.
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
pub(crate) mod tests {
    use super::*;
    use std::cell::Cell;

    thread_local! {
        /// Expressions that this thread has compiled.
        pub(crate) static COMPILED: Cell<usize> = const { Cell::new(0) };
    }

    #[test]
    fn an_expression_that_takes_much_is_told_from_others_and_refused_at_a_bound() {
        let compile = |text| Expression::compile(text, false);
        assert_eq!(compile(r"\.gz$").expect("compiles").size, 1 << 10);
        assert_eq!(compile("QQ[^x]{0,1200}").expect("compiles").size, 256 << 10);
        assert!(compile("[^x]{0,20000}").expect_err("it is large").contains("256 KiB"));
        assert!(compile("(").expect_err("it has no end").contains("unclosed"));
    }

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
