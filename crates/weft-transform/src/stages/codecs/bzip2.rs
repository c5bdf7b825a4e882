//! bzip2.

use super::{Codec, Step};
use crate::stage::StageError;
use bzip2::{Action, Compress, Compression, Decompress, Status};

pub(super) struct Encoder(Compress);

pub(super) struct Decoder {
    raw: Decompress,
    /// True if a stream has begun that has not ended.
    is_inside: bool,
    /// True if one has ended.
    is_followed: bool,
}

fn wrong(error: bzip2::Error) -> StageError {
    StageError::data(format!("this is no bzip2 data: {error}"))
}

fn count(total: u64, before: u64) -> usize {
    usize::try_from(total - before).expect("no more than there was room for")
}

impl Encoder {
    pub(super) fn new(level: u32) -> Encoder {
        Encoder(Compress::new(Compression::new(level), 0))
    }
}

impl Codec for Encoder {
    fn step(&mut self, input: &[u8], is_last: bool, output: &mut [u8]) -> Result<Step, StageError> {
        let (taken, made) = (self.0.total_in(), self.0.total_out());
        let action = if is_last { Action::Finish } else { Action::Run };
        let status = self.0.compress(input, output, action).map_err(wrong)?;
        Ok(Step {
            taken: count(self.0.total_in(), taken),
            made: count(self.0.total_out(), made),
            is_done: status == Status::StreamEnd,
        })
    }
}

impl Decoder {
    pub(super) fn new() -> Decoder {
        Decoder { raw: Decompress::new(false), is_inside: false, is_followed: false }
    }
}

impl Codec for Decoder {
    fn step(&mut self, input: &[u8], is_last: bool, output: &mut [u8]) -> Result<Step, StageError> {
        if input.is_empty() && !self.is_inside {
            return Ok(Step { taken: 0, made: 0, is_done: is_last && self.is_followed });
        }
        if !self.is_inside && self.is_followed {
            self.raw = Decompress::new(false);
        }
        self.is_inside = true;
        let (taken, made) = (self.raw.total_in(), self.raw.total_out());
        let status = self.raw.decompress(input, output).map_err(wrong)?;
        let step = (count(self.raw.total_in(), taken), count(self.raw.total_out(), made));
        if status == Status::StreamEnd {
            (self.is_inside, self.is_followed) = (false, true);
        }
        Ok(Step { taken: step.0, made: step.1, is_done: is_last && !self.is_inside && step.0 == input.len() })
    }
}
