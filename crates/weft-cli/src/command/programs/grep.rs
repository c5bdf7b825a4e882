//! `weft grep`: as grep -E, with expressions of the regex crate.

use super::each_file;
use crate::arguments::Grep;
use crate::failure::usage;
use crate::input::{Input, STANDARD_INPUT};
use crate::shown;
use anyhow::Result;
use memchr::{memchr, memrchr};
use regex::bytes::{Regex, RegexBuilder};
use std::ffi::OsStr;
use std::io::{self, BufWriter, Write, stdout};
use std::ops::Range;
use std::process::ExitCode;
use weft_block::counting;
use weft_transform::Source;

/// Longest line that is accepted.
const LINE_BYTES_MAX: usize = 256 << 20;

/// Exit codes, as POSIX has them.
const NOTHING: u8 = 1;
const FAILED: u8 = 2;

/// Prints the matching lines of each file.
pub fn grep(arguments: &Grep) -> Result<ExitCode> {
    let mut builder = RegexBuilder::new(&arguments.pattern);
    let pattern = match builder.case_insensitive(arguments.ignore_case).multi_line(true).build() {
        Ok(pattern) => pattern,
        Err(error) => {
            let text = error.to_string();
            let why = text.lines().last().unwrap_or_default().trim_start_matches("error: ");
            return usage(format!("'{}' is no regular expression: {why}", arguments.pattern));
        }
    };
    // Anchors of the whole text mean the ends of a line here.
    let by_line = arguments.pattern.contains(r"\A") || arguments.pattern.contains(r"\z");
    let names = arguments.with_filename || arguments.files.len() > 1 && !arguments.no_filename;
    let mut search = Search { arguments, pattern, by_line, names, to: BufWriter::new(stdout()), found: false };
    let code = each_file("grep", &arguments.files, |file| {
        let name = if file == STANDARD_INPUT { OsStr::new("(standard input)") } else { file };
        search.file(name, Input::open(file)?)
    });
    search.to.flush()?;
    let failed = code != ExitCode::SUCCESS;
    Ok(ExitCode::from(if failed { FAILED } else { u8::from(!search.found) * NOTHING }))
}

/// A search, and its state.
struct Search<'a> {
    arguments: &'a Grep,
    pattern: Regex,
    /// True if lines are searched one by one.
    by_line: bool,
    /// True if each line shows its file.
    names: bool,
    to: BufWriter<io::Stdout>,
    found: bool,
}

/// State in one file.
struct Place<'a> {
    name: &'a OsStr,
    /// Lines before.
    number: u64,
    /// Lines that were chosen.
    count: u64,
    is_binary: bool,
}

impl Search<'_> {
    fn file(&mut self, name: &OsStr, mut from: Input) -> io::Result<()> {
        let mut place = Place { name, number: 0, count: 0, is_binary: false };
        // The beginning of a line whose end has not come yet. All others are looked at where they
        // lie.
        let mut begun = Vec::new();
        let mut goes_on = true;
        while goes_on && let Some(piece) = from.next()? {
            // Like grep(1), which treats data with NUL as binary.
            place.is_binary |= memchr(0, &piece).is_some();
            let Some(last) = memrchr(b'\n', &piece) else {
                begun.extend_from_slice(&piece);
                if begun.len() >= LINE_BYTES_MAX {
                    return Err(io::Error::other(format!("a line has more than {LINE_BYTES_MAX} bytes")));
                }
                continue;
            };
            let mut start = 0;
            if !begun.is_empty() {
                start = memchr(b'\n', &piece).unwrap_or(last) + 1;
                begun.extend_from_slice(&piece[..start]);
                goes_on = self.lines(&begun, &mut place)?;
                begun.clear();
            }
            goes_on = goes_on && self.lines(&piece[start..=last], &mut place)?;
            begun.extend_from_slice(&piece[last + 1..]);
        }
        if goes_on {
            self.lines(&begun, &mut place)?;
        }
        if self.arguments.count {
            self.from(&place, None)?;
            writeln!(self.to, "{}", place.count)?;
        }
        Ok(())
    }

    /// Searches whole lines, of which the last one may have no newline. False if no more are
    /// wanted.
    fn lines(&mut self, lines: &[u8], place: &mut Place<'_>) -> io::Result<bool> {
        let mut at = 0;
        while at < lines.len() {
            let (before, line) = self.next(lines, at);
            at = line.end;
            // Lines without a match are many, and skipped unless they are wanted.
            let inverts = self.arguments.invert_match;
            for (range, is_chosen) in [(before, inverts), (line, !inverts)] {
                if range.is_empty() {
                    continue;
                }
                if is_chosen {
                    if !self.choose(&lines[range], place)? {
                        return Ok(false);
                    }
                } else if self.arguments.line_number {
                    place.number += count(&lines[range]);
                }
            }
        }
        Ok(true)
    }

    /// Returns the next matching line from `at` on, and the lines before it. At the end both may be
    /// empty.
    fn next(&self, lines: &[u8], at: usize) -> (Range<usize>, Range<usize>) {
        let mut from = at;
        while from < lines.len() {
            let begins = if self.by_line {
                from
            } else {
                // The first end of any match: no line before it has a match.
                let Some(end) = self.pattern.shortest_match_at(lines, from) else { break };
                let within = if end > from { end - 1 } else { end };
                memrchr(b'\n', &lines[..within]).map_or(0, |newline| newline + 1)
            };
            if begins >= lines.len() {
                break;
            }
            let ends = memchr(b'\n', &lines[begins..]).map_or(lines.len(), |newline| begins + newline + 1);
            // The match may have begun in a line before.
            if self.pattern.is_match(text(&lines[begins..ends])) {
                return (at..begins, begins..ends);
            }
            from = ends;
        }
        (at..lines.len(), lines.len()..lines.len())
    }

    /// Prints these lines, which were chosen. False if no more are wanted.
    fn choose(&mut self, lines: &[u8], place: &mut Place<'_>) -> io::Result<bool> {
        self.found = true;
        if self.arguments.count {
            place.count += count(lines);
            return Ok(true);
        }
        if place.is_binary {
            // After what was printed before.
            self.to.flush()?;
            errln!("weft grep: {}: binary file matches", shown::path(place.name.as_ref()));
            return Ok(false);
        }
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            place.number += 1;
            if !self.arguments.only_matching {
                self.from(place, Some(place.number))?;
                self.to.write_all(text(line))?;
                self.to.write_all(b"\n")?;
                continue;
            }
            let line = text(line);
            let found = self.pattern.find_iter(line).filter(|found| !found.is_empty() && !self.arguments.invert_match);
            for found in found.map(|found| found.range()).collect::<Vec<_>>() {
                self.from(place, Some(place.number))?;
                self.to.write_all(&line[found])?;
                self.to.write_all(b"\n")?;
            }
        }
        Ok(true)
    }

    /// Prints the origin of a line, as far as that is wanted.
    fn from(&mut self, place: &Place<'_>, number: Option<u64>) -> io::Result<()> {
        if self.names {
            write!(self.to, "{}:", shown::path(place.name.as_ref()))?;
        }
        if let Some(number) = number.filter(|_| self.arguments.line_number) {
            write!(self.to, "{number}:")?;
        }
        Ok(())
    }
}

/// Returns a line without its newline.
fn text(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\n").unwrap_or(line)
}

/// Counts lines, of which the last one may have no newline.
fn count(lines: &[u8]) -> u64 {
    counting::lines(lines) + u64::from(lines.last().is_some_and(|byte| *byte != b'\n'))
}
