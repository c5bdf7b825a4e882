//! Regular expressions, as the regex crate has them.
//!
//! Compiled they take much memory and time for little text. So a network holds their text, and
//! compiles them when it runs: one that is known to be right is read without that, and many may be
//! in memory.

use crate::language::{NetworkError, Word};
use crate::stage::StageError;
use regex::bytes::{Regex, RegexBuilder};

/// Bytes that one takes, compiled.
const COMPILED_BYTES_MAX: usize = 4 << 20;
/// Bytes of what it remembers while it searches.
const REMEMBERED_BYTES_MAX: usize = 1 << 20;

/// A regular expression.
#[derive(Clone)]
pub(crate) struct Expression {
    text: String,
    ignores_case: bool,
    /// Position in the network's text.
    at: usize,
}

impl Expression {
    pub(crate) fn new(word: &Word, ignores_case: bool) -> Expression {
        Expression { text: word.text.clone(), ignores_case, at: word.at }
    }

    /// Says what is wrong with it, if anything is.
    pub(crate) fn check(&self) -> Result<(), NetworkError> {
        self.build().map(drop).map_err(|message| NetworkError::new(message, self.at))
    }

    pub(crate) fn compiled(&self) -> Result<Regex, StageError> {
        self.build().map_err(StageError::data)
    }

    fn build(&self) -> Result<Regex, String> {
        let mut builder = RegexBuilder::new(&self.text);
        builder.case_insensitive(self.ignores_case).unicode(true);
        builder.size_limit(COMPILED_BYTES_MAX).dfa_size_limit(REMEMBERED_BYTES_MAX);
        builder.build().map_err(|error| {
            let text = error.to_string();
            let why = text.lines().last().unwrap_or_default().trim_start_matches("error: ");
            format!("'{}' is no regular expression: {why}", self.text)
        })
    }
}
