//! Compression, both ways: gzip, zstd, xz, bzip2.
//!
//! Several compressed streams one after the other read as one, as their programs have it. What is
//! cut off or followed by something else is an error. Decoders written in C work in confined
//! processes.

mod bzip2;
mod gzip;
mod memory;
mod xz;
mod zstd;

use crate::arguments::Arguments;
use crate::exported::decoding::Decoding;
use crate::exported::workers::worker::why_unconfined;
use crate::flow::{Input, Output, filled};
use crate::language::{Call, NetworkError};
use crate::source::Sources;
use crate::stage::{Progress, Running, Shape, Stage, StageError};
pub(crate) use memory::Room;
use memory::{Charged, counted};
use rustix::process::geteuid;
use std::sync::Arc;
use weft_block::Buffer;
use weft_users::whose;

/// Bytes made at once.
const MADE_BYTES: usize = 64 << 10;

/// Result of one step.
pub(crate) struct Step {
    /// Bytes of the input that were taken.
    pub(crate) taken: usize,
    /// Bytes of the output that were written.
    pub(crate) made: usize,
    /// True if all is done.
    pub(crate) is_done: bool,
}

/// Something that compresses or decompresses.
pub(crate) trait Codec: Send {
    /// Takes some of `input` (`is_last`: nothing comes after it) and writes over some of `output`.
    /// Without either, it wants more input.
    fn step(&mut self, input: &[u8], is_last: bool, output: &mut [u8]) -> Result<Step, StageError>;
}

/// Format of a stream that is decompressed elsewhere: the decoder is C code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Xz,
    Zstd,
}

impl Format {
    /// The one of this number.
    pub(crate) fn of(number: u8) -> Option<Format> {
        [Format::Xz, Format::Zstd].into_iter().find(|format| format.number() == number)
    }

    pub(crate) fn number(self) -> u8 {
        match self {
            Format::Xz => 1,
            Format::Zstd => 2,
        }
    }

    /// Returns a decoder that runs here, in memory for which it asks `room`.
    pub(crate) fn decoder(self, room: Room) -> Box<dyn Codec> {
        match self {
            Format::Xz => Box::new(xz::Xz::decoder(room)),
            Format::Zstd => Box::new(zstd::Decoder::new(room)),
        }
    }

    /// Begins to decompress it in a process of the owner's, or here where that cannot be.
    fn begin(self, owner: u32) -> Result<Decompressing, StageError> {
        match why_unconfined() {
            Some(_) => Ok(Decompressing::Here(Coding::new(0, move || self.decoder(counted())))),
            None => Decoding::begin(self, owner).map(Decompressing::Confined),
        }
    }
}

/// A stream of a [`Format`] that is decompressed.
enum Decompressing {
    Here(Coding<Box<dyn Codec>>),
    Confined(Decoding),
}

impl Running for Decompressing {
    fn advance(&mut self, input: &mut Input, output: &mut Output) -> Result<Progress, StageError> {
        match self {
            Decompressing::Here(coding) => coding.advance(input, output),
            Decompressing::Confined(decoding) => decoding.advance(input, output),
        }
    }
}

impl Codec for Box<dyn Codec> {
    fn step(&mut self, input: &[u8], is_last: bool, output: &mut [u8]) -> Result<Step, StageError> {
        self.as_mut().step(input, is_last, output)
    }
}

/// Returns the error for a stream that ends too early.
pub(crate) fn cut_off() -> StageError {
    StageError::data("the compressed data is cut off")
}

struct Coding<C> {
    codec: Charged<C>,
}

impl<C: Codec> Coding<C> {
    /// Creates one whose codec `make` makes, which takes so many `bytes`.
    fn new(bytes: usize, make: impl FnMut() -> C + Send + 'static) -> Coding<C> {
        Coding { codec: Charged::new(bytes, make) }
    }
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
                return Err(cut_off());
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
fn stage<E: Codec + 'static, D: Running + 'static>(
    call: &Call,
    levels: std::ops::RangeInclusive<u32>,
    usual: u32,
    encoder: impl Fn(u32) -> E + Send + Sync + 'static,
    decoder: impl Fn(u32) -> Result<D, StageError> + Send + Sync + 'static,
) -> Result<Stage, NetworkError> {
    let arguments = Arguments::read(call, "d", "n")?;
    arguments.end()?;
    let name = &call.name.text;
    if arguments.has('d') {
        let inverse = Some(name.clone());
        let start = move |sources: &mut dyn Sources| decoder(sources.owner().map_or_else(|| geteuid().as_raw(), whose));
        return Ok(Stage { inverse, is_heavy: true, ..Stage::reading(start) });
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
        ..Stage::new(move || Coding::new(bytes, made_by(&encoder)))
    })
}

pub(crate) fn gzip(call: &Call) -> Result<Stage, NetworkError> {
    stage(call, 1..=9, 6, gzip::Encoder::new, |_| Ok(Coding::new(0, gzip::Decoder::new)))
}

pub(crate) fn zstd(call: &Call) -> Result<Stage, NetworkError> {
    stage(call, 1..=19, 3, zstd::Encoder::new, |owner| Format::Zstd.begin(owner))
}

pub(crate) fn xz(call: &Call) -> Result<Stage, NetworkError> {
    stage(call, 0..=9, 6, xz::Xz::encoder, |owner| Format::Xz.begin(owner))
}

pub(crate) fn bzip2(call: &Call) -> Result<Stage, NetworkError> {
    stage(call, 1..=9, 9, bzip2::Encoder::new, |_| Ok(Coding::new(memory::BZIP2_DECODER_BYTES, bzip2::Decoder::new)))
}
