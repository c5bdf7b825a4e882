//! Stages that turn things round: tac, rev.

use super::lines::{ByLine, Fate, Line, Lines};
use crate::arguments::Arguments;
use crate::flow::{Input, Output};
use crate::language::{Call, NetworkError};
use crate::stage::{Keeps, Progress, Running, Stage, StageError};
use memchr::memrchr;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use weft_block::{Buffer, Slice};

/// Bytes held in memory; beyond, all goes into a temporary file.
const MEMORY_BYTES: usize = 64 << 20;
/// Bytes read from the file at once.
const READ_BYTES: usize = 64 << 10;

/// tac: all there is, and then from the end on what was not given yet.
struct Tac {
    memory_bytes: usize,
    /// What is in memory, after all in the file.
    kept: Vec<Slice>,
    kept_bytes: usize,
    file: Option<File>,
    file_bytes: u64,
    /// The line whose beginning has not been found yet: its pieces, the last one first.
    line: Vec<Slice>,
    /// A piece of which the end was given already.
    piece: Option<Slice>,
}

impl Tac {
    fn new(memory_bytes: usize) -> Tac {
        let (kept, line) = (Vec::new(), Vec::new());
        Tac { memory_bytes, kept, kept_bytes: 0, file: None, file_bytes: 0, line, piece: None }
    }

    fn keep(&mut self, slice: Slice) -> io::Result<()> {
        self.kept_bytes += slice.len();
        self.kept.push(slice);
        if self.kept_bytes <= self.memory_bytes {
            return Ok(());
        }
        if self.file.is_none() {
            self.file = Some(tempfile::tempfile()?);
        }
        let file = self.file.as_ref().expect("it was just made");
        for slice in self.kept.drain(..) {
            file.write_all_at(&slice, self.file_bytes)?;
            self.file_bytes += slice.len() as u64;
        }
        self.kept_bytes = 0;
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
            // The newline at its very end is that of this line, if the line has no more of it than that.
            let searched = piece.len() - usize::from(self.line.is_empty() && piece.ends_with(b"\n"));
            let Some(newline) = memrchr(b'\n', &piece[..searched]) else {
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
