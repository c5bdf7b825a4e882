//! Line-by-line work of stages: they see each line, and the lines they keep are passed on without
//! copying.

use crate::account::{Account, COUNTED_FROM, InMemory};
use crate::flow::{Input, Output};
use crate::stage::{Progress, Running, StageError};
use memchr::memchr;
use weft_block::Slice;

/// Longest line, in bytes: it is held in memory.
pub(crate) const LINE_BYTES_MAX: usize = 16 << 20;

/// Number of copies of a line in memory: as it comes, as the stage keeps it, and the text that
/// takes its place.
const COPIES: usize = 3;

/// A line has more bytes than that.
pub(crate) fn too_long() -> StageError {
    StageError::data(format!("a line has more than {LINE_BYTES_MAX} bytes"))
}

/// A line: its text, without the newline that it may end with.
#[derive(Clone, Copy)]
pub(crate) struct Line<'a> {
    pub(crate) text: &'a [u8],
    /// Only the last one may have none.
    pub(crate) has_newline: bool,
}

/// Fate of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is passed on as it is; a newline is added if it has none.
    Pass,
    /// It is passed on without anything added.
    PassAsIs,
    /// It is passed on as [`Fate::Pass`] has it, and nothing after it matters.
    PassLast,
    /// It goes; what was written instead, if anything, takes its place.
    Drop,
    /// It goes, and nothing after it matters.
    End,
    /// The text that takes its place is longer than a line may be.
    TooLong,
}

impl Fate {
    fn passes(self) -> bool {
        matches!(self, Fate::Pass | Fate::PassAsIs | Fate::PassLast)
    }

    fn ends(self) -> bool {
        matches!(self, Fate::PassLast | Fate::End)
    }
}

/// Work of a stage on lines.
pub(crate) trait Lines: Send {
    /// Decides the fate of `line`; text that comes in its place is added to `instead`.
    fn line(&mut self, line: Line<'_>, instead: &mut Vec<u8>) -> Fate;
    /// Returns the number of bytes of `lines` in whole lines that would be dropped and change
    /// nothing. These are not looked at one by one.
    fn passes_over(&self, lines: &[u8]) -> usize;
    /// There are no more; what comes at the end is added to `instead`.
    fn end(&mut self, instead: &mut Vec<u8>);
}

/// Gives lines to a stage.
pub(crate) struct ByLine<L> {
    lines: L,
    /// The beginning of a line whose end has not come yet.
    begun: Vec<u8>,
    /// Text that comes in the place of lines.
    instead: Vec<u8>,
    /// The longest line so far.
    memory: InMemory,
    is_over: bool,
}

impl<L: Lines> ByLine<L> {
    pub(crate) fn new(lines: L) -> ByLine<L> {
        ByLine { lines, begun: Vec::new(), instead: Vec::new(), memory: Account::now().memory(), is_over: false }
    }

    /// Returns the stage's work on lines.
    pub(crate) fn into_lines(self) -> L {
        self.lines
    }

    /// Decides the fate of `line`.
    fn fate(&mut self, line: Line<'_>) -> Result<Fate, StageError> {
        let fate = self.lines.line(line, &mut self.instead);
        let longest = line.text.len().max(self.instead.len());
        if fate == Fate::TooLong {
            return Err(too_long());
        }
        if longest as u64 >= COUNTED_FROM && !self.memory.raise(COPIES * longest) {
            return Err(StageError::Memory);
        }
        Ok(fate)
    }

    /// Takes a line that does not lie in one slice.
    fn whole(&mut self, text: &[u8], has_newline: bool, output: &mut Output) -> Result<(), StageError> {
        let fate = self.fate(Line { text, has_newline })?;
        self.write_instead(output);
        if fate.passes() {
            output.write(text);
            output.write(&b"\n"[..usize::from(has_newline || fate != Fate::PassAsIs)]);
        }
        self.is_over = fate.ends();
        Ok(())
    }

    fn write_instead(&mut self, output: &mut Output) {
        if !self.instead.is_empty() {
            output.write(&self.instead);
            self.instead.clear();
        }
    }

    /// Takes the lines that end in `slice`, until there is enough. How many bytes were taken.
    fn lines_of(&mut self, slice: &Slice, output: &mut Output) -> Result<usize, StageError> {
        let mut at = 0;
        if !self.begun.is_empty() {
            let Some(end) = memchr(b'\n', slice) else { return self.begin(slice) };
            let mut line = std::mem::take(&mut self.begun);
            line.extend_from_slice(&slice[..end]);
            self.whole(&line, true, output)?;
            at = end + 1;
        }
        // Neighbours that are passed on are one piece.
        let mut passing = at..at;
        while !self.is_over && !output.is_full() {
            let over = self.lines.passes_over(&slice[at..]);
            if over > 0 {
                output.push(slice.slice(passing));
                at += over;
                passing = at..at;
            }
            let Some(len) = memchr(b'\n', &slice[at..]) else { break };
            let fate = self.fate(Line { text: &slice[at..at + len], has_newline: true })?;
            at += len + 1;
            self.is_over = fate.ends();
            if fate.passes() && self.instead.is_empty() {
                passing.end = at;
                continue;
            }
            output.push(slice.slice(passing));
            self.write_instead(output);
            passing = if fate.passes() { at - len - 1..at } else { at..at };
        }
        output.push(slice.slice(passing));
        if !self.is_over && !output.is_full() && at < slice.len() {
            at += self.begin(&slice[at..])?;
        }
        Ok(at)
    }

    /// Keeps the beginning of a line.
    fn begin(&mut self, bytes: &[u8]) -> Result<usize, StageError> {
        if self.begun.len() + bytes.len() > LINE_BYTES_MAX {
            return Err(too_long());
        }
        let len = self.begun.len() + bytes.len();
        if len as u64 >= COUNTED_FROM && !self.memory.raise(COPIES * len) {
            return Err(StageError::Memory);
        }
        self.begun.extend_from_slice(bytes);
        Ok(bytes.len())
    }
}

impl<L: Lines> Running for ByLine<L> {
    fn advance(&mut self, input: &mut Input, output: &mut Output) -> Result<Progress, StageError> {
        while !self.is_over {
            if output.is_full() {
                return Ok(Progress::HasMore);
            }
            let Some(slice) = input.front().cloned() else { break };
            let taken = self.lines_of(&slice, output)?;
            drop(slice);
            input.skip(taken);
        }
        if !self.is_over && !input.has_ended() {
            return Ok(Progress::NeedsInput);
        }
        if !self.is_over && !self.begun.is_empty() {
            let line = std::mem::take(&mut self.begun);
            self.whole(&line, false, output)?;
        }
        self.lines.end(&mut self.instead);
        self.write_instead(output);
        Ok(Progress::Ended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Passes lines on, drops or replaces them, by their first byte.
    struct Mixed;

    impl Lines for Mixed {
        fn line(&mut self, line: Line<'_>, instead: &mut Vec<u8>) -> Fate {
            match line.text.first() {
                Some(b'd') => Fate::Drop,
                Some(b'r') => {
                    instead.extend_from_slice(b"replaced\n");
                    Fate::Drop
                }
                Some(b'b') => {
                    instead.extend_from_slice(b"before\n");
                    Fate::PassAsIs
                }
                Some(b'e') => Fate::End,
                Some(b'l') => Fate::PassLast,
                Some(b'p') => Fate::Pass,
                _ => Fate::PassAsIs,
            }
        }

        fn passes_over(&self, lines: &[u8]) -> usize {
            if lines.starts_with(b"d\n") { 2 } else { 0 }
        }

        fn end(&mut self, instead: &mut Vec<u8>) {
            instead.extend_from_slice(b"end");
        }
    }

    fn expected(text: &[u8]) -> Vec<u8> {
        let mut result = Vec::new();
        for line in text.split_inclusive(|byte| *byte == b'\n') {
            let ends = line.ends_with(b"\n");
            match line.strip_suffix(b"\n").unwrap_or(line).first() {
                Some(b'd') => {}
                Some(b'r') => result.extend_from_slice(b"replaced\n"),
                Some(b'b') => result.extend_from_slice(&[b"before\n", line].concat()),
                Some(b'e') => break,
                Some(b'l') => {
                    result.extend_from_slice(line.strip_suffix(b"\n").unwrap_or(line));
                    result.push(b'\n');
                    break;
                }
                Some(b'p') if !ends => result.extend_from_slice(&[line, b"\n"].concat()),
                _ => result.extend_from_slice(line),
            }
        }
        result.extend_from_slice(b"end");
        result
    }

    proptest! {
        #[test]
        fn lines_are_found_wherever_the_input_is_cut(
            text in proptest::collection::vec(prop_oneof![Just(b'\n'), Just(b'd'), Just(b'r'), Just(b'b'), Just(b'p'), Just(b'x'), Just(b'x'), Just(b'y'), Just(b'z'), Just(b'e'), Just(b'l')], 0..60),
            cuts in proptest::collection::vec(1usize..9, 1..9),
        ) {
            let (mut stage, mut input, mut output) = (ByLine::new(Mixed), Input::default(), Output::default());
            let (mut at, mut made, mut piece) = (0, Vec::new(), 0);
            loop {
                let progress = stage.advance(&mut input, &mut output).unwrap();
                made.extend(output.take().to_vec());
                match progress {
                    Progress::Ended => break,
                    Progress::HasMore => {}
                    Progress::NeedsInput if at == text.len() => input.end(),
                    Progress::NeedsInput => {
                        let end = (at + cuts[piece % cuts.len()]).min(text.len());
                        input.push(Slice::from(text[at..end].to_vec()));
                        (at, piece) = (end, piece + 1);
                    }
                }
            }
            prop_assert_eq!(made, expected(&text));
        }
    }
}
