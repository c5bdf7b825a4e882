//! Code on a stream: what it is given, what it gives, and whether that is what it was said to be.

use super::code::{Bounds, Code};
use crate::flow::{Input, Output};
use crate::stage::{Progress, Running, StageError};
use std::ops::Range;

/// Bytes of what it gives that are copied at once.
const COPY_BYTES: usize = 64 << 10;

/// Code that runs on a stream.
pub(super) struct Stream<C> {
    code: C,
    bounds: Bounds,
    taken: u64,
    given: u64,
    /// It has more to give of what it took.
    has_more: bool,
    /// It was told that nothing comes any more.
    was_last: bool,
    /// It gives nothing beyond what waits.
    has_ended: bool,
    /// Output that nobody has taken yet.
    waiting: Range<usize>,
}

impl<C: Code> Stream<C> {
    pub(super) fn new(code: C, bounds: Bounds) -> Stream<C> {
        Stream { code, bounds, taken: 0, given: 0, has_more: false, was_last: false, has_ended: false, waiting: 0..0 }
    }

    /// The code, for another stream. None if it should not wait for that.
    pub(super) fn into_code(mut self) -> Option<C> {
        self.code.rest().then_some(self.code)
    }

    /// Has it do something with bytes that it is given.
    fn step(&mut self, input: &[u8]) -> Result<(), StageError> {
        let given = self.code.advance(input, self.was_last)?;
        self.taken += input.len() as u64;
        self.given += given.range.len() as u64;
        self.has_more = given.has_more && !given.has_ended;
        self.has_ended = given.has_ended || self.was_last && !self.has_more;
        self.waiting = given.range;
        if self.has_more && self.waiting.is_empty() {
            return Err(StageError::data(format!("the {} has more to give, and gave nothing", C::NAME)));
        }
        self.check(given.has_ended)
    }

    /// Checks that there are as many bytes as there must be.
    fn check(&self, says_end: bool) -> Result<(), StageError> {
        let ends_early = says_end && !self.was_last;
        let gave_less = self.has_ended && self.given < self.taken;
        if self.bounds.length && (ends_early || gave_less || self.given > self.taken) {
            let message = format!("it gave {} bytes for {}, and was said to keep length", self.given, self.taken);
            return Err(StageError::data(message));
        }
        Ok(())
    }

    /// Nothing comes any more.
    fn end(&mut self) -> Result<(), StageError> {
        self.was_last = true;
        if self.bounds.place {
            self.has_ended = true;
            return self.check(false);
        }
        self.step(&[])
    }

    /// Gives what waits, as far as there is room.
    fn give(&mut self, output: &mut Output) {
        while !self.waiting.is_empty() && !output.is_full() {
            let start = self.waiting.start;
            let end = self.waiting.end.min(start + COPY_BYTES);
            output.push(self.code.copy(start..end).freeze().whole());
            self.waiting.start = end;
        }
    }
}

impl<C: Code> Running for Stream<C> {
    fn advance(&mut self, input: &mut Input, output: &mut Output) -> Result<Progress, StageError> {
        loop {
            self.give(output);
            if !self.waiting.is_empty() || output.is_full() && !self.has_ended {
                return Ok(Progress::HasMore);
            }
            if self.has_ended {
                return Ok(Progress::Ended);
            }
            if self.has_more {
                self.step(&[])?;
            } else if let Some(front) = input.front().cloned() {
                let count = front.len().min(C::PIECE_BYTES);
                self.step(&front[..count])?;
                drop(front);
                input.skip(count);
            } else if input.has_ended() {
                self.end()?;
            } else {
                return Ok(Progress::NeedsInput);
            }
        }
    }
}
