//! Zstandard (RFC 8878).

use super::{Codec, Room, Step};
use crate::stage::StageError;
use std::io;
use zstd::stream::raw::{self, InBuffer, Operation, OutBuffer};

/// Decompressing needs no more memory than frames of the usual levels ask for (`--long` ones ask
/// for more).
const WINDOW_LOG_MAX: u32 = 27;

pub(super) struct Encoder {
    raw: raw::Encoder<'static>,
}

pub(super) struct Decoder {
    raw: raw::Decoder<'static>,
    /// True if a frame has begun that has not ended.
    is_inside: bool,
    /// The beginning of its header, until that tells how large its window is.
    head: Option<Vec<u8>>,
    /// Asked for what windows take.
    room: Room,
}

/// Bytes of a frame's header, at most (RFC 8878 3.1.1).
const HEADER_BYTES_MAX: usize = 18;

/// Bytes that decompressing takes beside a window.
const BESIDE_BYTES: u64 = 512 << 10;

/// Bytes of the window of the frame that begins with `head`; none if that is too short to tell.
fn window(head: &[u8]) -> Option<u64> {
    let (magic, rest) = head.split_first_chunk::<4>()?;
    if u32::from_le_bytes(*magic) != 0xFD2F_B528 {
        // What may be passed over, or no frame.
        return Some(0);
    }
    let (descriptor, rest) = rest.split_first()?;
    if descriptor & 0x20 == 0 {
        let window = rest.first()?;
        let base = 1u64 << (10 + u32::from(window >> 3));
        return Some(base + base / 8 * u64::from(window & 7));
    }
    // The window is the content, of which the length comes after the number of a dictionary.
    let rest = rest.get([0, 1, 2, 4][usize::from(descriptor & 3)]..)?;
    let len = [1, 2, 4, 8][usize::from(descriptor >> 6)];
    let mut size = [0; 8];
    size[..len].copy_from_slice(rest.get(..len)?);
    Some(u64::from_le_bytes(size).saturating_add(if len == 2 { 256 } else { 0 }))
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
    pub(super) fn new(room: Room) -> Decoder {
        let mut raw = raw::Decoder::new().expect("memory for it");
        raw.set_parameter(raw::DParameter::WindowLogMax(WINDOW_LOG_MAX)).expect("a bound that there is");
        Decoder { raw, is_inside: false, head: None, room }
    }

    /// Counts the window of a frame that `input` begins, or goes on with, before there is one.
    /// `Memory`.
    fn count(&mut self, input: &[u8]) -> Result<(), StageError> {
        if !self.is_inside {
            self.head = Some(Vec::new());
        }
        let Some(head) = &mut self.head else { return Ok(()) };
        head.extend(input.iter().take(HEADER_BYTES_MAX - head.len()));
        let Some(window) = window(head) else { return Ok(()) };
        self.head = None;
        // One that is larger is refused when its header has been read.
        let bytes = if window > 1 << WINDOW_LOG_MAX { 0 } else { window + BESIDE_BYTES };
        let has_room = (self.room)(usize::try_from(bytes).unwrap_or(usize::MAX));
        if has_room { Ok(()) } else { Err(StageError::Memory) }
    }
}

impl Codec for Decoder {
    fn step(&mut self, input: &[u8], is_last: bool, output: &mut [u8]) -> Result<Step, StageError> {
        let mut from = InBuffer::around(input);
        let mut to = OutBuffer::around(output);
        if !input.is_empty() || self.is_inside {
            self.count(input)?;
            let hint = self.raw.run(&mut from, &mut to).map_err(wrong)?;
            self.is_inside = hint != 0;
        }
        let is_done = is_last && from.pos() == input.len() && !self.is_inside;
        Ok(Step { taken: from.pos(), made: to.pos(), is_done })
    }
}
