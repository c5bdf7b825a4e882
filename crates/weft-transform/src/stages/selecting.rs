//! Stages that choose among lines: grep, head, tail, uniq, cut, nl, replace, wc, tac.

use super::expressions::Expression;
use super::last::Tail;
use super::lines::{ByLine, Fate, LINE_BYTES_MAX, Line, Lines};
use crate::arguments::Arguments;
use crate::flow::{Input, Output};
use crate::language::{Call, NetworkError, Word};
use crate::source::Sources;
use crate::stage::{Progress, Running, Shape, Stage, StageError, Wants};
use memchr::memmem::Finder;
use memchr::memrchr;
use regex::bytes::Regex;
use std::io::Write;
use std::num::ParseIntError;
use std::ops::Range;
use std::str::FromStr;
use weft_block::counting::{self, Words};

/// grep.
struct Grep {
    pattern: Regex,
    /// The bytes that the pattern looks for, if it looks for nothing else.
    literal: Option<Finder<'static>>,
    inverts: bool,
    /// Number of matches still to come, if that is limited.
    left: Option<u64>,
    /// Number of matches so far, if they are only counted.
    counted: Option<u64>,
    /// Number of lines so far, if they are told with their numbers.
    number: Option<u64>,
    /// True if only matches are told, not their lines.
    only: bool,
}

impl Grep {
    /// Tells of a line that is wanted otherwise than as it is. False if that is too much.
    fn tell(&self, line: &[u8], instead: &mut Vec<u8>) -> bool {
        let mut one = |text: &[u8]| {
            if let Some(number) = self.number {
                write!(instead, "{number}:").expect("memory takes all");
            }
            instead.extend_from_slice(text);
            instead.push(b'\n');
            instead.len() <= LINE_BYTES_MAX
        };
        if !self.only {
            return one(line);
        }
        let mut found = self.pattern.find_iter(line).filter(|found| !found.is_empty() && !self.inverts);
        found.all(|found| one(found.as_bytes()))
    }
}

impl Lines for Grep {
    fn passes_over(&self, lines: &[u8]) -> usize {
        let may = !self.inverts && self.left != Some(0) && self.number.is_none();
        let Some(literal) = self.literal.as_ref().filter(|_| may) else { return 0 };
        let before = literal.find(lines).map_or(lines, |found| &lines[..found]);
        memrchr(b'\n', before).map_or(0, |newline| newline + 1)
    }

    fn line(&mut self, line: Line<'_>, instead: &mut Vec<u8>) -> Fate {
        if self.left == Some(0) {
            return Fate::End;
        }
        self.number = self.number.map(|number| number + 1);
        if self.pattern.is_match(line.text) == self.inverts {
            return Fate::Drop;
        }
        self.left = self.left.map(|left| left - 1);
        let is_last = self.left == Some(0);
        match &mut self.counted {
            Some(count) => {
                *count += 1;
                if is_last { Fate::End } else { Fate::Drop }
            }
            None if self.number.is_some() || self.only => match self.tell(line.text, instead) {
                false => Fate::TooLong,
                true if is_last => Fate::End,
                true => Fate::Drop,
            },
            None if is_last => Fate::PassLast,
            None => Fate::Pass,
        }
    }

    fn end(&mut self, instead: &mut Vec<u8>) {
        if let Some(count) = self.counted {
            writeln!(instead, "{count}").expect("memory takes all");
        }
    }
}

pub(crate) fn grep(call: &Call) -> Result<Stage, NetworkError> {
    let mut arguments = Arguments::read(call, "ivcno", "m")?;
    let word = arguments.operand("a regular expression")?;
    let pattern = Expression::new(word, arguments.has('i'));
    let is_literal = regex::escape(&word.text) == word.text && !word.text.is_empty() && !arguments.has('i');
    let literal = is_literal.then(|| Finder::new(word.text.as_bytes()).into_owned());
    let (inverts, counts, left) = (arguments.has('v'), arguments.has('c'), arguments.value('m', "a number")?);
    let (number, only) = (arguments.has('n').then_some(0), arguments.has('o'));
    arguments.end()?;
    // Other lines than came.
    let tells = counts || only || number.is_some();
    let gives = if tells { |_| Shape::Text } else { Shape::lines };
    let (expressions, counted) = (vec![pattern.clone()], counts.then_some(0));
    let start = move |_: &mut dyn Sources| {
        let (pattern, literal) = (pattern.compiled()?, literal.clone());
        Ok(ByLine::new(Grep { pattern, literal, inverts, left, counted, number, only }))
    };
    Ok(Stage { wants: Wants::Lines, gives, expressions, ..Stage::reading(start) })
}

/// Amount that head and tail keep.
#[derive(Clone, Copy)]
pub(super) enum Amount<T = u64> {
    Lines(T),
    Bytes(T),
}

impl Amount {
    /// Counts off the bytes of `bytes` that belong to it. Returns their number.
    fn count_off(&mut self, bytes: &[u8]) -> usize {
        match self {
            Amount::Bytes(left) => {
                let len = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                *left -= len as u64;
                len
            }
            Amount::Lines(left) => {
                let ends = memchr::memchr_iter(b'\n', bytes);
                let ends = ends.take(usize::try_from(*left).unwrap_or(usize::MAX));
                let (count, last) = ends.fold((0, 0), |(count, _), end| (count + 1, end + 1));
                *left -= count;
                if *left == 0 { last } else { bytes.len() }
            }
        }
    }
}

/// Count of tail.
#[derive(Clone, Copy)]
enum Place {
    /// So many at the end.
    Last(u64),
    /// From this one on, the first being 1.
    From(u64),
}

impl FromStr for Place {
    type Err = ParseIntError;
    fn from_str(text: &str) -> Result<Place, ParseIntError> {
        match text.strip_prefix('+') {
            Some(from) => from.parse().map(Place::From),
            None => text.parse().map(Place::Last),
        }
    }
}

fn amount<T: FromStr>(call: &Call, usual: T) -> Result<Amount<T>, NetworkError> {
    let arguments = Arguments::read(call, "", "nc")?;
    arguments.end()?;
    match (arguments.value('n', "a number of lines")?, arguments.value('c', "a number of bytes")?) {
        (Some(_), Some(_)) => Err(NetworkError::new("give lines or bytes, not both", call.name.at)),
        (None, Some(bytes)) => Ok(Amount::Bytes(bytes)),
        (lines, None) => Ok(Amount::Lines(lines.unwrap_or(usual))),
    }
}

/// head: how much is left.
struct Head(Amount);

impl Running for Head {
    fn advance(&mut self, input: &mut Input, output: &mut Output) -> Result<Progress, StageError> {
        while !matches!(self.0, Amount::Lines(0) | Amount::Bytes(0)) {
            let Some(slice) = input.take() else {
                return Ok(if input.has_ended() { Progress::Ended } else { Progress::NeedsInput });
            };
            let keep = self.0.count_off(&slice);
            output.push(slice.slice(0..keep));
        }
        Ok(Progress::Ended)
    }
}

pub(crate) fn head(call: &Call) -> Result<Stage, NetworkError> {
    let amount = amount(call, 10)?;
    Ok(Stage { gives: |input| input, ..Stage::new(move || Head(amount)) })
}

pub(crate) fn tail(call: &Call) -> Result<Stage, NetworkError> {
    let last = |amount| Stage::new(move || Tail::new(amount));
    let rest = |amount| Stage::new(move || Rest(amount));
    let stage = match amount(call, Place::Last(10))? {
        Amount::Lines(Place::Last(lines)) => last(Amount::Lines(lines)),
        Amount::Bytes(Place::Last(bytes)) => last(Amount::Bytes(bytes)),
        Amount::Lines(Place::From(first)) => rest(Amount::Lines(first.saturating_sub(1))),
        Amount::Bytes(Place::From(first)) => rest(Amount::Bytes(first.saturating_sub(1))),
    };
    Ok(Stage { gives: |input| input, ..stage })
}

/// tail from some place on: how much is left to pass over.
struct Rest(Amount);

impl Running for Rest {
    fn advance(&mut self, input: &mut Input, output: &mut Output) -> Result<Progress, StageError> {
        while let Some(slice) = input.take() {
            let from = self.0.count_off(&slice);
            output.push(slice.slice(from..slice.len()));
        }
        Ok(if input.has_ended() { Progress::Ended } else { Progress::NeedsInput })
    }
}

/// uniq.
#[derive(Clone)]
struct Uniq {
    counts: bool,
    only: Option<Repeated>,
    last: Vec<u8>,
    /// Number of times it came; 0: there was no line yet.
    count: u64,
}

/// Choice of the lines that uniq tells.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Repeated {
    Yes,
    No,
}

impl Uniq {
    /// Tells the line that is over.
    fn tell(&mut self, instead: &mut Vec<u8>) {
        let is_told = match self.only {
            None => self.count > 0,
            Some(Repeated::Yes) => self.count > 1,
            Some(Repeated::No) => self.count == 1,
        };
        if is_told {
            if self.counts {
                write!(instead, "{:7} ", self.count).expect("memory takes all");
            }
            instead.extend_from_slice(&self.last);
            instead.push(b'\n');
        }
    }
}

impl Lines for Uniq {
    fn passes_over(&self, _: &[u8]) -> usize {
        0
    }

    fn line(&mut self, line: Line<'_>, instead: &mut Vec<u8>) -> Fate {
        if self.count > 0 && self.last == line.text {
            self.count += 1;
            return Fate::Drop;
        }
        self.tell(instead);
        self.last.clear();
        self.last.extend_from_slice(line.text);
        self.count = 1;
        Fate::Drop
    }

    fn end(&mut self, instead: &mut Vec<u8>) {
        self.tell(instead);
    }
}

pub(crate) fn uniq(call: &Call) -> Result<Stage, NetworkError> {
    let arguments = Arguments::read(call, "cdu", "")?;
    arguments.end()?;
    let only = match (arguments.has('d'), arguments.has('u')) {
        (true, true) => return Err(NetworkError::new("give -d or -u, not both", call.name.at)),
        (true, false) => Some(Repeated::Yes),
        (false, true) => Some(Repeated::No),
        (false, false) => None,
    };
    let uniq = Uniq { counts: arguments.has('c'), only, last: Vec::new(), count: 0 };
    let gives = if uniq.counts { |_| Shape::Text } else { Shape::lines };
    Ok(Stage { gives, ..Stage::of_text(move || ByLine::new(uniq.clone())) })
}

/// cut: which fields or bytes, as ranges that ascend and do not meet.
#[derive(Clone)]
struct Cut {
    ranges: Vec<(usize, usize)>,
    /// Separator of fields; `None`: bytes are counted.
    delimiter: Option<u8>,
    /// True if lines without the delimiter are dropped.
    only_delimited: bool,
}

impl Lines for Cut {
    fn passes_over(&self, _: &[u8]) -> usize {
        0
    }

    fn line(&mut self, line: Line<'_>, instead: &mut Vec<u8>) -> Fate {
        let has = |number: usize| self.ranges.iter().any(|(first, last)| (*first..=*last).contains(&number));
        let Some(delimiter) = self.delimiter else {
            for (first, last) in &self.ranges {
                let end = (*last).min(line.text.len());
                instead.extend_from_slice(line.text.get(first - 1..end).unwrap_or_default());
            }
            instead.push(b'\n');
            return Fate::Drop;
        };
        if !line.text.contains(&delimiter) {
            return if self.only_delimited { Fate::Drop } else { Fate::Pass };
        }
        let fields = line.text.split(|byte| *byte == delimiter);
        let last = self.ranges.last().map_or(0, |(_, last)| *last);
        let chosen = fields.zip(1..=last).filter(|(_, number)| has(*number)).map(|(field, _)| field);
        for (at, field) in chosen.enumerate() {
            if at > 0 {
                instead.push(delimiter);
            }
            instead.extend_from_slice(field);
        }
        instead.push(b'\n');
        Fate::Drop
    }

    fn end(&mut self, _: &mut Vec<u8>) {}
}

/// The ranges of a list such as `1,3-5,7-`.
fn ranges(word: &Word) -> Result<Vec<(usize, usize)>, NetworkError> {
    let wrong = || NetworkError::new(format!("'{}' is not a list such as 1,3-5,7-", word.text), word.at);
    let number =
        |text: &str, missing: usize| if text.is_empty() { Ok(missing) } else { text.parse().map_err(|_| wrong()) };
    let mut ranges = Vec::new();
    for part in word.text.split(',') {
        let (first, last) = match part.split_once('-') {
            Some(("", "")) => return Err(wrong()),
            Some((first, last)) => (number(first, 1)?, number(last, usize::MAX)?),
            None => {
                let only = number(part, 0)?;
                (only, only)
            }
        };
        if first == 0 || first > last {
            return Err(wrong());
        }
        ranges.push((first, last));
    }
    ranges.sort_unstable();
    let mut joined: Vec<(usize, usize)> = Vec::new();
    for (first, last) in ranges {
        match joined.last_mut().filter(|(_, end)| first <= end.saturating_add(1)) {
            Some((_, end)) => *end = last.max(*end),
            None => joined.push((first, last)),
        }
    }
    Ok(joined)
}

pub(crate) fn cut(call: &Call) -> Result<Stage, NetworkError> {
    let arguments = Arguments::read(call, "s", "bdf")?;
    arguments.end()?;
    let delimiter = match arguments.word('d') {
        None => b'\t',
        Some(word) => match word.text.as_bytes() {
            [only] => *only,
            _ => return Err(NetworkError::new("the delimiter is one byte", word.at)),
        },
    };
    let cut = match (arguments.word('f'), arguments.word('b')) {
        (Some(fields), None) => {
            Cut { ranges: ranges(fields)?, delimiter: Some(delimiter), only_delimited: arguments.has('s') }
        }
        (None, Some(bytes)) => Cut { ranges: ranges(bytes)?, delimiter: None, only_delimited: false },
        _ => return Err(NetworkError::new("give fields (-f LIST) or bytes (-b LIST)", call.name.at)),
    };
    Ok(Stage::of_text(move || ByLine::new(cut.clone())))
}

/// nl: the number of the next line.
struct Numbered(u64);

impl Lines for Numbered {
    fn passes_over(&self, _: &[u8]) -> usize {
        0
    }

    fn line(&mut self, line: Line<'_>, instead: &mut Vec<u8>) -> Fate {
        if line.text.is_empty() {
            // As nl(1): lines of nothing have no number, but its width.
            instead.extend_from_slice(b"       ");
        } else {
            write!(instead, "{:6}\t", self.0).expect("memory takes all");
            self.0 += 1;
        }
        Fate::Pass
    }

    fn end(&mut self, _: &mut Vec<u8>) {}
}

pub(crate) fn nl(call: &Call) -> Result<Stage, NetworkError> {
    Arguments::read(call, "", "")?.end()?;
    Ok(Stage::of_text(|| ByLine::new(Numbered(1))))
}

/// replace.
struct Replace {
    pattern: Regex,
    with: Vec<u8>,
    /// Number of times that the replacement may contain the match.
    names: usize,
}

impl Replace {
    /// Writes the replacement of `line` into `instead`. False if that is too long.
    fn replace(&self, line: &[u8], instead: &mut Vec<u8>) -> bool {
        let mut at = 0;
        // As long as it may be: names stand for no more than was found.
        let mut next = |found: Range<usize>, instead: &mut Vec<u8>| {
            instead.extend_from_slice(&line[at..found.start]);
            at = found.end;
            let most = self.with.len().saturating_add(self.names.saturating_mul(found.len()));
            instead.len().saturating_add(most) <= LINE_BYTES_MAX
        };
        if self.names == 0 {
            for found in self.pattern.find_iter(line) {
                if !next(found.range(), instead) {
                    return false;
                }
                instead.extend_from_slice(&self.with);
            }
        } else {
            for captures in self.pattern.captures_iter(line) {
                let found = captures.get(0).expect("all of it");
                if !next(found.range(), instead) {
                    return false;
                }
                captures.expand(&self.with, instead);
            }
        }
        instead.extend_from_slice(&line[at..]);
        instead.len() <= LINE_BYTES_MAX
    }
}

impl Lines for Replace {
    fn passes_over(&self, _: &[u8]) -> usize {
        0
    }

    fn line(&mut self, line: Line<'_>, instead: &mut Vec<u8>) -> Fate {
        if !self.pattern.is_match(line.text) {
            return Fate::PassAsIs;
        }
        if !self.replace(line.text, instead) {
            return Fate::TooLong;
        }
        if line.has_newline {
            instead.push(b'\n');
        }
        Fate::Drop
    }

    fn end(&mut self, _: &mut Vec<u8>) {}
}

pub(crate) fn replace(call: &Call) -> Result<Stage, NetworkError> {
    let mut arguments = Arguments::read(call, "i", "")?;
    let pattern = Expression::new(arguments.operand("a regular expression")?, arguments.has('i'));
    let with = arguments.operand("what to put in its place")?.text.clone().into_bytes();
    arguments.end()?;
    let names = memchr::memchr_iter(b'$', &with).count();
    let expressions = vec![pattern.clone()];
    let start =
        move |_: &mut dyn Sources| Ok(ByLine::new(Replace { pattern: pattern.compiled()?, with: with.clone(), names }));
    Ok(Stage { wants: Wants::Lines, gives: |_| Shape::Text, expressions, ..Stage::reading(start) })
}

/// wc: what is told, and what was counted.
#[derive(Clone, Default)]
struct Count {
    tells_lines: bool,
    tells_words: bool,
    tells_bytes: bool,
    lines: u64,
    words: Words,
    bytes: u64,
}

impl Running for Count {
    fn advance(&mut self, input: &mut Input, output: &mut Output) -> Result<Progress, StageError> {
        while let Some(slice) = input.take() {
            self.bytes += slice.len() as u64;
            self.lines += match (self.tells_words, self.tells_lines) {
                (true, _) => self.words.add(&slice),
                (false, true) => counting::lines(&slice),
                (false, false) => 0,
            };
        }
        if !input.has_ended() {
            return Ok(Progress::NeedsInput);
        }
        let told =
            [(self.tells_lines, self.lines), (self.tells_words, self.words.begun), (self.tells_bytes, self.bytes)];
        let told: Vec<u64> = told.into_iter().filter(|(is_told, _)| *is_told).map(|(_, count)| count).collect();
        // As wc(1) writes what it read from a pipe.
        let text = match told.as_slice() {
            [only] => only.to_string(),
            all => all.iter().map(|count| format!("{count:7}")).collect::<Vec<_>>().join(" "),
        };
        output.write(format!("{text}\n").as_bytes());
        Ok(Progress::Ended)
    }
}

pub(crate) fn wc(call: &Call) -> Result<Stage, NetworkError> {
    let arguments = Arguments::read(call, "lwc", "")?;
    arguments.end()?;
    let all = !['l', 'w', 'c'].into_iter().any(|flag| arguments.has(flag));
    let count = Count {
        tells_lines: all || arguments.has('l'),
        tells_words: all || arguments.has('w'),
        tells_bytes: all || arguments.has('c'),
        ..Count::default()
    };
    Ok(Stage { gives: |_| Shape::Text, ..Stage::new(move || count.clone()) })
}
