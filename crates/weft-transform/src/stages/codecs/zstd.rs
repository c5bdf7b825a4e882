//! Zstandard (RFC 8878).

use super::{Codec, Step};
use crate::stage::StageError;
use std::io;
use zstd::stream::raw::{self, InBuffer, Operation, OutBuffer};

/// Decompressing needs no more memory than frames of the usual levels ask for (`--long` ones ask for more).
const WINDOW_LOG_MAX: u32 = 27;

pub(super) struct Encoder {
    raw: raw::Encoder<'static>,
}

pub(super) struct Decoder {
    raw: raw::Decoder<'static>,
    /// Whether a frame has begun that has not ended.
    is_inside: bool,
}

fn wrong(error: io::Error) -> StageError {
    StageError::data(format!("this is no zstd data: {error}"))
}

impl Encoder {
    pub(super) fn new(level: u32) -> Encoder {
        let level = i32::try_from(level).expect("a small number");
        Encoder { raw: raw::Encoder::new(level).expect("the level is one there is") }
    }
}

impl Codec for Encoder {
    fn step(&mut self, input: &[u8], is_last: bool, output: &mut [u8]) -> Result<Step, StageError> {
        let mut from = InBuffer::around(input);
        let mut to = OutBuffer::around(output);
        if !input.is_empty() {
            self.raw.run(&mut from, &mut to).map_err(wrong)?;
        }
        let mut is_done = false;
        if is_last && from.pos() == input.len() {
            is_done = self.raw.finish(&mut to, true).map_err(wrong)? == 0;
        }
        Ok(Step { taken: from.pos(), made: to.pos(), is_done })
    }
}

impl Decoder {
    pub(super) fn new() -> Decoder {
        let mut raw = raw::Decoder::new().expect("memory for it");
        raw.set_parameter(raw::DParameter::WindowLogMax(WINDOW_LOG_MAX)).expect("a bound that there is");
        Decoder { raw, is_inside: false }
    }
}

impl Codec for Decoder {
    fn step(&mut self, input: &[u8], is_last: bool, output: &mut [u8]) -> Result<Step, StageError> {
        let mut from = InBuffer::around(input);
        let mut to = OutBuffer::around(output);
        if !input.is_empty() || self.is_inside {
            let hint = self.raw.run(&mut from, &mut to).map_err(wrong)?;
            self.is_inside = hint != 0;
        }
        let is_done = is_last && from.pos() == input.len() && !self.is_inside;
        Ok(Step { taken: from.pos(), made: to.pos(), is_done })
    }
}
