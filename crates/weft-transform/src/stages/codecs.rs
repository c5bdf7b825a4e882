//! Compression, both ways: gzip, zstd, xz, bzip2.
//!
//! Several compressed streams one after the other read as one, as their programs have it. What is cut off or followed by
//! something else is an error.

mod bzip2;
mod gzip;
mod memory;
mod xz;
mod zstd;

use crate::arguments::Arguments;
use crate::flow::{Input, Output, filled};
use crate::language::{Call, NetworkError};
use crate::stage::{Progress, Running, Shape, Stage, StageError};
use memory::Charged;
use std::sync::Arc;
use weft_block::Buffer;

/// Bytes made at once.
const MADE_BYTES: usize = 64 << 10;

/// What one step did.
pub(super) struct Step {
    /// Bytes of the input that were taken.
    pub(super) taken: usize,
    /// Bytes of the output that were written.
    pub(super) made: usize,
    /// Whether all is done.
    pub(super) is_done: bool,
}

/// Something that compresses or decompresses.
pub(super) trait Codec: Send {
    /// Takes some of `input` (`is_last`: nothing comes after it) and writes over some of `output`. Without either, it wants more input.
    fn step(&mut self, input: &[u8], is_last: bool, output: &mut [u8]) -> Result<Step, StageError>;
}

struct Coding<C> {
    codec: Charged<C>,
}

impl<C: Codec> Running for Coding<C> {
    fn advance(&mut self, input: &mut Input, output: &mut Output) -> Result<Progress, StageError> {
        let codec = self.codec.get()?;
        let mut buffer = Buffer::any(MADE_BYTES);
        let mut made = 0;
        let progress = loop {
            if made == buffer.len() {
                break Progress::HasMore;
            }
            let front = input.front().cloned();
            let bytes = front.as_deref().unwrap_or_default();
            let is_last = input.ends_with(bytes.len());
            if bytes.is_empty() && !is_last {
                break Progress::NeedsInput;
            }
            let step = codec.step(bytes, is_last, &mut buffer[made..])?;
            drop(front);
            input.skip(step.taken);
            made += step.made;
            if step.is_done {
                break Progress::Ended;
            }
            if step.taken == 0 && step.made == 0 && is_last {
                return Err(StageError::data("the compressed data is cut off"));
            }
        };
        output.push(filled(buffer, made));
        Ok(progress)
    }
}

/// Makes one as `make` does.
fn made_by<C: 'static, F: Fn() -> C + Send + Sync + 'static>(make: &Arc<F>) -> impl FnMut() -> C + Send + use<C, F> {
    let make = make.clone();
    move || make()
}

/// The stages of one kind of compression.
fn stage<E: Codec + 'static, D: Codec + 'static>(
    call: &Call,
    levels: std::ops::RangeInclusive<u32>,
    usual: u32,
    encoder: impl Fn(u32) -> E + Send + Sync + 'static,
    decoder: impl Fn() -> D + Send + Sync + 'static,
) -> Result<Stage, NetworkError> {
    let arguments = Arguments::read(call, "d", "n")?;
    arguments.end()?;
    let name = &call.name.text;
    if arguments.has('d') {
        let inverse = Some(name.clone());
        let (decoder, bytes) = (Arc::new(decoder), memory::decoder(name));
        let start = move || Coding { codec: Charged::new(bytes, made_by(&decoder)) };
        return Ok(Stage { inverse, is_heavy: true, ..Stage::new(start) });
    }
    let level = arguments.value('n', "a level")?.unwrap_or(usual);
    if !levels.contains(&level) {
        let message = format!("{name} has levels from {} to {}", levels.start(), levels.end());
        return Err(NetworkError::new(message, arguments.word('n').map_or(call.name.at, |word| word.at)));
    }
    let inverse = Some(format!("{name} -d"));
    let (encoder, bytes) = (Arc::new(move || encoder(level)), memory::encoder(name, level));
    Ok(Stage {
        inverse,
        is_heavy: true,
        gives: |_| Shape::Binary,
        ..Stage::new(move || Coding { codec: Charged::new(bytes, made_by(&encoder)) })
    })
}

pub(crate) fn gzip(call: &Call) -> Result<Stage, NetworkError> {
    stage(call, 1..=9, 6, gzip::Encoder::new, gzip::Decoder::new)
}

pub(crate) fn zstd(call: &Call) -> Result<Stage, NetworkError> {
    stage(call, 1..=19, 3, zstd::Encoder::new, zstd::Decoder::new)
}

pub(crate) fn xz(call: &Call) -> Result<Stage, NetworkError> {
    stage(call, 0..=9, 6, xz::Xz::encoder, xz::Xz::decoder)
}

pub(crate) fn bzip2(call: &Call) -> Result<Stage, NetworkError> {
    stage(call, 1..=9, 9, bzip2::Encoder::new, bzip2::Decoder::new)
}
