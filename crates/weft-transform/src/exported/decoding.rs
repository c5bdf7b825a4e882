//! Decompressing in a confined process: whatever hostile bytes make of a decoder, it reaches
//! nothing but them.

use super::workers::decoders::{self, Decoder};
use super::workers::message::Reply;
use super::workers::nursery::{INPUT_PART_BYTES, INPUTS, OUTPUTS};
use crate::flow::{Input, Output};
use crate::stage::{Progress, Running, StageError};
use crate::stages::codecs::Format;
use std::collections::VecDeque;
use std::ops::Range;

/// Orders that are not answered yet, at most: while what came of one is copied the process does the
/// others.
const AHEAD: usize = OUTPUTS - 1;

/// A stream that a process of its own decompresses.
pub(crate) struct Decoding {
    decoder: Decoder,
    /// The orders that are not answered yet.
    asked: VecDeque<Asked>,
    /// Parts of the memory that were filled and are not done, and the one to be filled next.
    filled: usize,
    next: usize,
    /// Parts, of those, that the process had when it did the last order that is answered.
    held: usize,
    /// The last order gave all that there was room for, so that several more are worth their while.
    has_more: bool,
    /// The process was told that nothing comes any more, and has answered that.
    was_last: bool,
    has_answered_last: bool,
    has_ended: bool,
    /// Bytes that it gave and that are still to be copied.
    given: Range<usize>,
    /// What it failed with after the bytes that were passed on last.
    error: Option<StageError>,
}

/// An order that is not answered yet.
struct Asked {
    fills: bool,
    is_last: bool,
}

fn nonsense() -> StageError {
    StageError::Lost("the decoder's process answers what makes no sense".into())
}

impl Decoding {
    pub(crate) fn begin(format: Format) -> Result<Decoding, StageError> {
        Ok(Decoding {
            decoder: decoders::take(format)?,
            asked: VecDeque::with_capacity(AHEAD),
            filled: 0,
            next: 0,
            held: 0,
            has_more: false,
            was_last: false,
            has_answered_last: false,
            has_ended: false,
            given: 0..0,
            error: None,
        })
    }

    /// Gives the process what there is to do.
    fn ask(&mut self, input: &mut Input) -> Result<(), StageError> {
        while !self.has_ended && self.asked.len() < AHEAD {
            let front = input.front().filter(|_| self.filled < INPUTS).cloned();
            let ends = !self.was_last && input.has_ended();
            // Each part of the input takes at least one order.
            let are_missing = match (self.filled, self.was_last || ends) {
                (0, false) => false,
                _ if self.has_more => true,
                (filled, _) => self.asked.len() < filled.max(1),
            };
            if front.is_none() && !ends && !are_missing {
                return Ok(());
            }
            let len = front.as_ref().map_or(0, |front| front.len().min(INPUT_PART_BYTES));
            if let Some(front) = front {
                self.decoder.channel().area().put(self.next * INPUT_PART_BYTES, &front[..len]);
                self.was_last = input.ends_with(len);
                drop(front);
                input.skip(len);
                self.next = (self.next + 1) % INPUTS;
                self.filled += 1;
            }
            self.was_last |= ends;
            self.decoder.channel().order(len, self.was_last).map_err(Decoder::failure)?;
            self.asked.push_back(Asked { fills: len > 0, is_last: self.was_last });
        }
        Ok(())
    }

    /// Waits for what the process has made.
    fn answer(&mut self) -> Result<(), StageError> {
        let reply = self.decoder.reply().map_err(Decoder::failure)?;
        let asked = self.asked.pop_front().ok_or_else(nonsense)?;
        self.held += usize::from(asked.fills);
        self.has_answered_last |= asked.is_last;
        match reply {
            Reply::Given { range, has_more, has_ended } => {
                if !has_more && self.held > 0 {
                    self.held -= 1;
                    self.filled -= 1;
                }
                let is_stuck = self.has_answered_last && self.held == 0 && !has_ended && !has_more;
                if is_stuck || has_more && range.is_empty() {
                    return Err(nonsense());
                }
                (self.given, self.has_more, self.has_ended) = (range, has_more, has_ended);
                Ok(())
            }
            Reply::Failed { range } => {
                let said = self.decoder.channel().area().copy(range);
                Err(StageError::Data(super::code::said(&said)))
            }
        }
    }

    fn step(&mut self, input: &mut Input, output: &mut Output) -> Result<Option<Progress>, StageError> {
        self.ask(input)?;
        let given = std::mem::take(&mut self.given);
        if !given.is_empty() {
            output.push(self.decoder.channel().area().copy(given).freeze().whole());
        }
        Ok(if self.has_ended {
            Some(Progress::Ended)
        } else if output.is_full() {
            Some(Progress::HasMore)
        } else if self.asked.is_empty() {
            Some(Progress::NeedsInput)
        } else {
            self.answer()?;
            None
        })
    }
}

impl Running for Decoding {
    fn advance(&mut self, input: &mut Input, output: &mut Output) -> Result<Progress, StageError> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        loop {
            match self.step(input, output) {
                Ok(None) => {}
                Ok(Some(progress)) => return Ok(progress),
                Err(error) if output.is_empty() => return Err(error),
                // It can be asked again.
                Err(StageError::Paused) => return Ok(Progress::HasMore),
                Err(error) => {
                    self.error = Some(error);
                    return Ok(Progress::HasMore);
                }
            }
        }
    }
}
