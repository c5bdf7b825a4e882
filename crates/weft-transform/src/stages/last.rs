//! tail: the last lines or bytes of all there is.
//!
//! What may still be among the last is kept: so many bytes in memory, the rest in a temporary file,
//! whose beginning is given back as soon as nothing of it is among the last any more.

use super::selecting::Amount;
use crate::account::{Account, InMemory};
use crate::flow::{Input, Output, compact};
use crate::stage::{Progress, Running, StageError};
use crate::temporary::TemporaryFile;
use std::collections::VecDeque;
use std::io;
use weft_block::{Buffer, Slice};

/// Bytes held in memory; beyond, all goes into a temporary file.
const MEMORY_BYTES: usize = 16 << 20;
/// The same if the network keeps much elsewhere.
const MEMORY_BYTES_LEAST: usize = 1 << 20;
/// Bytes that each piece takes besides its own.
const PIECE_BYTES: usize = 128;
/// Bytes of the file that are one piece.
const READ_BYTES: usize = 64 << 10;

/// Some of what is kept.
struct Piece {
    len: usize,
    newlines: u64,
    place: Place,
}

enum Place {
    Memory(Slice),
    /// In the file, from this byte on.
    File(u64),
}

/// tail: what may still be among the last.
pub(super) struct Tail {
    amount: Amount,
    memory_bytes: usize,
    /// Those in the file come first.
    kept: VecDeque<Piece>,
    bytes: u64,
    newlines: u64,
    /// True if the last byte is a newline.
    ends_line: bool,
    account: Account,
    /// Bytes in memory, and the account that counts them.
    held_bytes: usize,
    held: InMemory,
    file: Option<TemporaryFile>,
    /// True once nothing is kept but what is told.
    is_cut: bool,
}

impl Tail {
    pub(super) fn new(amount: Amount) -> Tail {
        Tail::within(MEMORY_BYTES, amount)
    }

    fn within(memory_bytes: usize, amount: Amount) -> Tail {
        let account = Account::now();
        let (kept, bytes, newlines, ends_line) = (VecDeque::new(), 0, 0, false);
        let (held_bytes, held, file, is_cut) = (0, account.memory(), None, false);
        Tail { amount, memory_bytes, kept, bytes, newlines, ends_line, account, held_bytes, held, file, is_cut }
    }

    fn keep(&mut self, slice: Slice) -> io::Result<()> {
        let Some(last) = slice.last() else { return Ok(()) };
        self.ends_line = *last == b'\n';
        let newlines = memchr::memchr_iter(b'\n', &slice).count() as u64;
        self.bytes += slice.len() as u64;
        self.newlines += newlines;
        self.held_bytes += slice.len() + PIECE_BYTES;
        self.kept.push_back(Piece { len: slice.len(), newlines, place: Place::Memory(compact(slice)) });
        self.forget();
        let is_much = self.held_bytes >= MEMORY_BYTES_LEAST && !self.held.set(self.held_bytes);
        if is_much || self.held_bytes > self.memory_bytes { self.spill() } else { Ok(()) }
    }

    /// Lets go of pieces that are not among the last, whatever comes.
    fn forget(&mut self) {
        let mut is_any_in_file = false;
        while let Some(first) = self.kept.front() {
            let is_needed = match self.amount {
                Amount::Bytes(wanted) => self.bytes - (first.len as u64) < wanted,
                Amount::Lines(0) => false,
                // One more: the last line may have no newline.
                Amount::Lines(wanted) => self.newlines - first.newlines <= wanted,
            };
            if is_needed {
                break;
            }
            is_any_in_file |= matches!(first.place, Place::File(_));
            self.drop_first();
        }
        let from = match self.kept.front().map(|first| &first.place) {
            Some(Place::File(at)) => Some(*at),
            _ => None,
        };
        if is_any_in_file && let Some(file) = &mut self.file {
            file.forget_before(from.unwrap_or(file.len()));
        }
    }

    fn drop_first(&mut self) {
        if let Some(first) = self.kept.pop_front() {
            self.bytes -= first.len as u64;
            self.newlines -= first.newlines;
            if matches!(first.place, Place::Memory(_)) {
                self.held_bytes -= first.len + PIECE_BYTES;
            }
        }
    }

    /// Writes what is in memory to the file.
    fn spill(&mut self) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            None => self.file.insert(TemporaryFile::new(&self.account)?),
        };
        let in_file = self.kept.partition_point(|piece| matches!(piece.place, Place::File(_)));
        for piece in self.kept.split_off(in_file) {
            let at = file.len();
            if let Place::Memory(slice) = &piece.place {
                file.append(slice)?;
            }
            match self.kept.back_mut().filter(|last| last.len + piece.len <= READ_BYTES) {
                Some(last) => {
                    last.len += piece.len;
                    last.newlines += piece.newlines;
                }
                None => self.kept.push_back(Piece { place: Place::File(at), ..piece }),
            }
        }
        self.held_bytes = 0;
        self.held.set(0);
        Ok(())
    }

    /// Lets go of all that is not told.
    fn cut(&mut self) -> io::Result<()> {
        match self.amount {
            Amount::Bytes(wanted) => {
                let mut skip = self.bytes.saturating_sub(wanted);
                while let Some(first) = self.kept.front().filter(|_| skip > 0) {
                    let len = first.len.min(usize::try_from(skip).unwrap_or(usize::MAX));
                    skip -= len as u64;
                    self.cut_first(len)?;
                }
            }
            Amount::Lines(0) => self.kept.clear(),
            Amount::Lines(wanted) => {
                // The newline at the end is that of the last line.
                let wanted = wanted.saturating_add(u64::from(self.ends_line));
                let mut skip = (self.newlines + 1).saturating_sub(wanted);
                while skip > 0
                    && let Some(first) = self.kept.pop_front()
                {
                    let slice = self.read(&first)?;
                    let nth = usize::try_from(skip - 1).unwrap_or(usize::MAX);
                    let end = memchr::memchr_iter(b'\n', &slice).nth(nth).map_or(slice.len(), |at| at + 1);
                    skip = skip.saturating_sub(first.newlines);
                    self.kept.push_front(Piece { place: Place::Memory(slice), ..first });
                    self.cut_first(end)?;
                }
            }
        }
        Ok(())
    }

    /// Lets go of the first `len` bytes of the first piece.
    fn cut_first(&mut self, len: usize) -> io::Result<()> {
        let Some(first) = self.kept.pop_front() else { return Ok(()) };
        if len < first.len {
            let slice = self.read(&first)?;
            let rest = slice.slice(len..slice.len());
            self.kept.push_front(Piece { len: rest.len(), newlines: 0, place: Place::Memory(rest) });
        }
        Ok(())
    }

    fn read(&self, piece: &Piece) -> io::Result<Slice> {
        match (&piece.place, &self.file) {
            (Place::Memory(slice), _) => Ok(slice.clone()),
            (Place::File(at), Some(file)) => {
                let mut buffer = Buffer::any(piece.len);
                file.read_exact_at(&mut buffer, *at)?;
                Ok(buffer.freeze().whole())
            }
            (Place::File(_), None) => unreachable!("it was written to a file"),
        }
    }
}

impl Running for Tail {
    fn advance(&mut self, input: &mut Input, output: &mut Output) -> Result<Progress, StageError> {
        while let Some(slice) = input.take() {
            self.keep(slice)?;
        }
        if !input.has_ended() {
            return Ok(Progress::NeedsInput);
        }
        if !self.is_cut {
            self.cut()?;
            self.is_cut = true;
        }
        while let Some(piece) = self.kept.pop_front() {
            output.push(self.read(&piece)?);
            if output.is_full() {
                return Ok(Progress::HasMore);
            }
        }
        Ok(Progress::Ended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::Bounds;
    use proptest::prelude::*;

    fn told(tail: &mut Tail, pieces: &[Vec<u8>]) -> Vec<u8> {
        let (mut input, mut output, mut made) = (Input::default(), Output::default(), Vec::new());
        for piece in pieces {
            input.push(Slice::from(piece.clone()));
            assert_eq!(tail.advance(&mut input, &mut output).unwrap(), Progress::NeedsInput);
            assert!(tail.held_bytes <= tail.memory_bytes, "{} bytes in memory", tail.held_bytes);
        }
        input.end();
        while tail.advance(&mut input, &mut output).unwrap() != Progress::Ended {
            made.extend(output.take().to_vec());
        }
        made.extend(output.take().to_vec());
        made
    }

    proptest! {
        #[test]
        fn the_last_are_told_wherever_they_are_kept(
            pieces in proptest::collection::vec("[ab\n]{1,9}", 0..60), memory_bytes in 0usize..2000, wanted in 0u64..90,
        ) {
            let pieces: Vec<_> = pieces.into_iter().map(String::into_bytes).collect();
            let all = pieces.concat();
            let from = all.len().saturating_sub(usize::try_from(wanted).unwrap());
            let bytes = told(&mut Tail::within(memory_bytes, Amount::Bytes(wanted)), &pieces);
            prop_assert_eq!(bytes, &all[from..]);
            let lines: Vec<_> = all.split_inclusive(|byte| *byte == b'\n').collect();
            let from = lines.len().saturating_sub(usize::try_from(wanted).unwrap());
            let of_lines = told(&mut Tail::within(memory_bytes, Amount::Lines(wanted)), &pieces);
            prop_assert_eq!(of_lines, lines[from..].concat());
        }
    }

    #[test]
    fn much_is_kept_in_a_file_of_which_the_beginning_goes() {
        let bounds = Bounds { temporary_bytes: 8 << 20, ..Bounds::default() };
        Account::of(Some(4_000_020), bounds).during(|| {
            let pieces = vec![vec![b'x'; 64 << 10]; 160];
            let mut tail = Tail::within(1 << 20, Amount::Bytes(2 << 20));
            assert_eq!(told(&mut tail, &pieces).len(), 2 << 20);
            // More than may be in temporary files.
            let (mut tail, mut input) = (Tail::within(1 << 20, Amount::Lines(1)), Input::default());
            pieces.iter().for_each(|piece| input.push(Slice::from(piece.clone())));
            let failed = tail.advance(&mut input, &mut Output::default()).unwrap_err();
            assert!(matches!(failed, StageError::Temporary(error) if error.kind() == io::ErrorKind::StorageFull));
        });
    }
}
