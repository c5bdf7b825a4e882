//! Stages that turn things round: tac, rev.

use super::lines::{ByLine, Fate, LINE_BYTES_MAX, Line, Lines, too_long};
use crate::account::{Account, InMemory};
use crate::arguments::Arguments;
use crate::flow::{Input, Output, compact};
use crate::language::{Call, NetworkError};
use crate::stage::{Keeps, Progress, Running, Stage, StageError};
use crate::temporary::TemporaryFile;
use memchr::memrchr;
use std::io;
use weft_block::{Buffer, Slice};

/// Bytes held in memory; beyond, all goes into a temporary file.
const MEMORY_BYTES: usize = 64 << 20;
/// The same if the network keeps much elsewhere.
const MEMORY_BYTES_LEAST: usize = 1 << 20;
/// Bytes that each piece takes besides its own.
const SLICE_BYTES: usize = 128;
/// Bytes read from the file at once.
const READ_BYTES: usize = 64 << 10;

/// tac: all there is, and then from the end on what was not given yet.
struct Tac {
    memory_bytes: usize,
    /// Slices in memory, which come after all in the file.
    kept: Vec<Slice>,
    kept_bytes: usize,
    account: Account,
    /// Account of the slices in memory.
    in_memory: InMemory,
    file: Option<TemporaryFile>,
    file_bytes: u64,
    /// The line whose beginning has not been found yet: its pieces, the last one first.
    line: Vec<Slice>,
    line_bytes: usize,
    /// A piece of which the end was given already.
    piece: Option<Slice>,
}

impl Tac {
    fn new(memory_bytes: usize) -> Tac {
        let (kept, line) = (Vec::new(), Vec::new());
        let account = Account::now();
        let in_memory = account.memory();
        let (file, file_bytes, piece, line_bytes) = (None, 0, None, 0);
        Tac { memory_bytes, kept, kept_bytes: 0, account, in_memory, file, file_bytes, line, line_bytes, piece }
    }

    fn keep(&mut self, slice: Slice) -> io::Result<()> {
        self.kept_bytes += slice.len() + SLICE_BYTES;
        self.kept.push(compact(slice));
        let is_much = self.kept_bytes >= MEMORY_BYTES_LEAST && !self.in_memory.set(self.kept_bytes);
        if self.kept_bytes <= self.memory_bytes && !is_much {
            return Ok(());
        }
        if self.file.is_none() {
            self.file = Some(TemporaryFile::new(&self.account)?);
        }
        let file = self.file.as_mut().expect("it was just made");
        for slice in self.kept.drain(..) {
            file.append(&slice)?;
        }
        self.file_bytes = file.len();
        self.kept_bytes = 0;
        self.in_memory.set(0);
        Ok(())
    }

    /// The last piece that was not taken yet.
    fn last(&mut self) -> io::Result<Option<Slice>> {
        if let Some(slice) = self.kept.pop() {
            return Ok(Some(slice));
        }
        let Some(file) = self.file.as_ref().filter(|_| self.file_bytes > 0) else { return Ok(None) };
        let len = READ_BYTES.min(usize::try_from(self.file_bytes).unwrap_or(READ_BYTES));
        let mut buffer = Buffer::any(len);
        self.file_bytes -= len as u64;
        file.read_exact_at(&mut buffer, self.file_bytes)?;
        Ok(Some(buffer.freeze().whole()))
    }

    fn give_line(&mut self, output: &mut Output) {
        self.line.drain(..).rev().for_each(|piece| output.push(piece));
        self.line_bytes = 0;
    }
}

impl Running for Tac {
    fn advance(&mut self, input: &mut Input, output: &mut Output) -> Result<Progress, StageError> {
        while let Some(slice) = input.take() {
            self.keep(slice)?;
        }
        if !input.has_ended() {
            return Ok(Progress::NeedsInput);
        }
        loop {
            if output.is_full() {
                return Ok(Progress::HasMore);
            }
            let piece = match self.piece.take() {
                Some(piece) => piece,
                None => match self.last()? {
                    Some(piece) => piece,
                    None => {
                        self.give_line(output);
                        return Ok(Progress::Ended);
                    }
                },
            };
            // The newline at its very end is that of this line, if the line has no more of it than
            // that.
            let searched = piece.len() - usize::from(self.line.is_empty() && piece.ends_with(b"\n"));
            let Some(newline) = memrchr(b'\n', &piece[..searched]) else {
                self.line_bytes += piece.len();
                // As long as all lies in memory anyway, it may be one line.
                if self.line_bytes > LINE_BYTES_MAX && self.file.is_some() {
                    return Err(too_long());
                }
                self.line.push(piece);
                continue;
            };
            if newline + 1 < piece.len() {
                self.line.push(piece.slice(newline + 1..piece.len()));
            }
            self.give_line(output);
            self.piece = Some(piece.slice(0..newline + 1));
        }
    }
}

pub(crate) fn tac(call: &Call) -> Result<Stage, NetworkError> {
    Arguments::read(call, "", "")?.end()?;
    let keeps = Keeps { length: true, place: false };
    Ok(Stage { keeps, ..Stage::of_lines(|| Tac::new(MEMORY_BYTES)) })
}

/// rev.
struct Rev;

impl Lines for Rev {
    fn passes_over(&self, _: &[u8]) -> usize {
        0
    }

    fn line(&mut self, line: Line<'_>, instead: &mut Vec<u8>) -> Fate {
        match std::str::from_utf8(line.text) {
            Ok(text) if !text.is_ascii() => {
                instead.extend_from_slice(text.chars().rev().collect::<String>().as_bytes())
            }
            _ => instead.extend(line.text.iter().rev()),
        }
        if line.has_newline {
            instead.push(b'\n');
        }
        Fate::Drop
    }

    fn end(&mut self, _: &mut Vec<u8>) {}
}

pub(crate) fn rev(call: &Call) -> Result<Stage, NetworkError> {
    Arguments::read(call, "", "")?.end()?;
    let keeps = Keeps { length: true, place: false };
    Ok(Stage { keeps, ..Stage::of_text(|| ByLine::new(Rev)) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn lines_are_turned_round_wherever_they_are_kept(
            pieces in proptest::collection::vec("[ab\n]{1,9}", 0..40), memory_bytes in 0usize..200,
        ) {
            let (mut stage, mut input, mut output, mut made) = (Tac::new(memory_bytes), Input::default(), Output::default(), Vec::new());
            pieces.iter().for_each(|piece| input.push(Slice::from(piece.clone().into_bytes())));
            input.end();
            while stage.advance(&mut input, &mut output).unwrap() != Progress::Ended {
                made.extend(output.take().to_vec());
            }
            made.extend(output.take().to_vec());
            let expected: String = pieces.concat().split_inclusive('\n').rev().collect();
            prop_assert_eq!(String::from_utf8(made).unwrap(), expected);
        }
    }
}
