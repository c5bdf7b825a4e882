//! Arguments of a stage: options as POSIX has them (XBD 12.2), and operands.

use crate::language::{Call, NetworkError, Word};
use std::collections::BTreeMap;
use std::str::FromStr;

/// Arguments of a stage.
#[derive(Debug)]
pub(crate) struct Arguments<'a> {
    call: &'a Call,
    flags: Vec<char>,
    values: BTreeMap<char, Word>,
    operands: Vec<&'a Word>,
    taken: usize,
}

impl<'a> Arguments<'a> {
    /// Reads those of `call`; `flags` are options without a value, `values` those with one.
    /// `-NUMBER` stands for `-n NUMBER` where there is such an option.
    pub(crate) fn read(call: &'a Call, flags: &str, values: &str) -> Result<Arguments<'a>, NetworkError> {
        if let Some(word) = call.arguments.iter().find(|word| word.file.is_some()) {
            let message = format!("{} takes no file here; quote {} if it is none", call.name.text, word.text);
            return Err(NetworkError::new(message, word.at));
        }
        Arguments::with_files(call, flags, values)
    }

    /// The same of a stage that takes files as operands.
    pub(crate) fn with_files(call: &'a Call, flags: &str, values: &str) -> Result<Arguments<'a>, NetworkError> {
        let mut read = Arguments { call, flags: Vec::new(), values: BTreeMap::new(), operands: Vec::new(), taken: 0 };
        let mut words = call.arguments.iter();
        while let Some(word) = words.next() {
            let Some(options) = word.text.strip_prefix('-').filter(|rest| !rest.is_empty() && !word.is_quoted) else {
                read.operands.push(word);
                continue;
            };
            if options == "-" {
                read.operands.extend(words);
                break;
            }
            if values.contains('n') && options.bytes().all(|byte| byte.is_ascii_digit()) {
                read.values.insert('n', Word { text: options.into(), ..word.clone() });
                continue;
            }
            for (at, option) in options.char_indices() {
                if flags.contains(option) {
                    read.flags.push(option);
                    continue;
                }
                if !values.contains(option) {
                    let name = &call.name.text;
                    let message = format!("{name} has no option -{option} ('weft stages {name}' tells what it has)");
                    return Err(NetworkError::new(message, word.at + 1 + at));
                }
                let rest = &options[at + option.len_utf8()..];
                let value = if rest.is_empty() {
                    words.next().cloned()
                } else {
                    Some(Word { text: rest.into(), ..word.clone() })
                };
                let missing = || NetworkError::new(format!("-{option} needs a value"), word.at + 1 + at);
                read.values.insert(option, value.ok_or_else(missing)?);
                break;
            }
        }
        Ok(read)
    }

    /// True if option `flag` was given.
    pub(crate) fn has(&self, flag: char) -> bool {
        self.flags.contains(&flag)
    }

    /// The value of option `option`.
    pub(crate) fn value<T: FromStr>(&self, option: char, what: &str) -> Result<Option<T>, NetworkError> {
        self.values.get(&option).map(|word| parsed(word, what)).transpose()
    }

    /// The value of option `option` as it was written.
    pub(crate) fn word(&self, option: char) -> Option<&Word> {
        self.values.get(&option)
    }

    /// The next operand, which must be there.
    pub(crate) fn operand(&mut self, what: &str) -> Result<&'a Word, NetworkError> {
        let missing = || NetworkError::new(format!("{} needs {what}", self.call.name.text), self.call.end());
        let operand = self.operands.get(self.taken).ok_or_else(missing)?;
        self.taken += 1;
        Ok(operand)
    }

    /// The next operand, which must be a file; its number.
    pub(crate) fn file(&mut self, what: &str) -> Result<usize, NetworkError> {
        let word = self.operand(what)?;
        let message = || format!("'{}' is not {what}: files are $1, $2, …", word.text);
        word.file.ok_or_else(|| NetworkError::new(message(), word.at))
    }

    /// The next operand, if there is one.
    pub(crate) fn optional(&mut self) -> Option<&'a Word> {
        let operand = self.operands.get(self.taken)?;
        self.taken += 1;
        Some(operand)
    }

    /// Says that no more are expected.
    pub(crate) fn end(&self) -> Result<(), NetworkError> {
        match self.operands.get(self.taken) {
            None => Ok(()),
            Some(more) => Err(NetworkError::new(format!("{} takes no more than that", self.call.name.text), more.at)),
        }
    }
}

/// The value that a word stands for.
pub(crate) fn parsed<T: FromStr>(word: &Word, what: &str) -> Result<T, NetworkError> {
    word.text.parse().map_err(|_| NetworkError::new(format!("'{}' is not {what}", word.text), word.at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::language::{Element, parse};

    fn call(text: &str) -> Call {
        match parse(text).unwrap().remove(0) {
            Element::Stage(call) => call,
            other => panic!("{other:?} is no stage"),
        }
    }

    #[test]
    fn options_may_stand_together_and_operands_after_two_dashes() {
        let call = call("x -ab -n5 -k 7 one -- -two");
        let mut read = Arguments::read(&call, "abc", "nk").unwrap();
        assert!(read.has('a') && read.has('b') && !read.has('c'));
        assert_eq!((read.value('n', "a number").unwrap(), read.value('k', "a number").unwrap()), (Some(5), Some(7)));
        assert_eq!(read.operand("one").unwrap().text, "one");
        assert_eq!(read.optional().unwrap().text, "-two");
        assert!(read.end().is_ok() && read.optional().is_none());
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        let error = |text: &str| {
            let call = call(text);
            let read = Arguments::read(&call, "a", "n").and_then(|mut read| {
                read.value::<u32>('n', "a number")?;
                read.operand("a thing")?;
                read.end()
            });
            read.unwrap_err().to_string()
        };
        assert_eq!(error("x -ab one"), "x has no option -b ('weft stages x' tells what it has), at byte 4");
        assert_eq!(error("x one -n"), "-n needs a value, at byte 7");
        assert_eq!(error("x -n five one"), "'five' is not a number, at byte 5");
        assert_eq!(error("x -a"), "x needs a thing, at byte 4");
        assert_eq!(error("x one two"), "x takes no more than that, at byte 6");
        assert_eq!(error("x '-b' -7 two"), "x takes no more than that, at byte 10");
    }
}
