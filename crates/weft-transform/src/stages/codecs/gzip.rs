//! gzip (RFC 1952), around deflate.

use super::{Codec, Step};
use crate::stage::StageError;
use flate2::{Compress, Compression, Crc, Decompress, FlushCompress, FlushDecompress, Status};

/// Longest head of a member: names and comments are longer nowhere.
const HEAD_BYTES_MAX: usize = 128 << 10;
const TAIL_BYTES: usize = 8;

const HAS_CHECKSUM: u8 = 2;
const HAS_EXTRA: u8 = 4;
const HAS_NAME: u8 = 8;
const HAS_COMMENT: u8 = 16;

pub(super) struct Encoder {
    raw: Compress,
    checksum: Crc,
    /// Header or trailer bytes to be written before and after the compressed bytes.
    around: Vec<u8>,
    is_compressed: bool,
}

impl Encoder {
    pub(super) fn new(level: u32) -> Encoder {
        // No name, no time: the same bytes give the same bytes. The system: unknown.
        let around = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
        Encoder {
            raw: Compress::new(Compression::new(level), false),
            checksum: Crc::new(),
            around,
            is_compressed: false,
        }
    }

    /// Writes what is to be written, as far as there is room.
    fn write(&mut self, output: &mut [u8]) -> usize {
        let count = self.around.len().min(output.len());
        output[..count].copy_from_slice(&self.around[..count]);
        self.around.drain(..count);
        count
    }
}

impl Codec for Encoder {
    fn step(&mut self, input: &[u8], is_last: bool, output: &mut [u8]) -> Result<Step, StageError> {
        let mut made = self.write(output);
        let mut taken = 0;
        if !self.is_compressed && self.around.is_empty() {
            let (before_in, before_out) = (self.raw.total_in(), self.raw.total_out());
            let flush = if is_last { FlushCompress::Finish } else { FlushCompress::None };
            let status = self.raw.compress(input, &mut output[made..], flush);
            let status = status.map_err(|error| StageError::data(format!("cannot compress: {error}")))?;
            taken = count(self.raw.total_in(), before_in);
            made += count(self.raw.total_out(), before_out);
            self.checksum.update(&input[..taken]);
            if status == Status::StreamEnd {
                self.is_compressed = true;
                self.around.extend_from_slice(&self.checksum.sum().to_le_bytes());
                self.around.extend_from_slice(&self.checksum.amount().to_le_bytes());
                made += self.write(&mut output[made..]);
            }
        }
        Ok(Step { taken, made, is_done: self.is_compressed && self.around.is_empty() })
    }
}

fn count(total: u64, before: u64) -> usize {
    usize::try_from(total - before).expect("no more than there was room for")
}

/// Part of a member that comes next.
enum Part {
    /// The head of a member, of which this has come already.
    Head(Vec<u8>),
    Body,
    /// The end of a member, of which this has come already.
    Tail(Vec<u8>),
}

pub(super) struct Decoder {
    raw: Decompress,
    checksum: Crc,
    part: Part,
    /// True if a member has ended.
    is_followed: bool,
}

fn wrong(what: &str) -> StageError {
    StageError::data(format!("this is no gzip data: {what}"))
}

/// Bytes of the head that `bytes` begin with, if all of it is there.
fn head(bytes: &[u8]) -> Result<Option<usize>, StageError> {
    const { assert!(HAS_EXTRA | HAS_NAME | HAS_COMMENT | HAS_CHECKSUM == 0x1e) };
    let known = [0x1f, 0x8b, 8];
    if !bytes.iter().zip(known).all(|(byte, known)| *byte == known) {
        return Err(wrong("it does not begin as such"));
    }
    let Some(flags) = bytes.get(3) else { return Ok(None) };
    if flags & 0xe0 != 0 {
        return Err(wrong("its head says what nobody knows"));
    }
    let mut len = 10;
    if flags & HAS_EXTRA != 0 {
        let Some(extra) = bytes.get(len..len + 2) else { return Ok(None) };
        len += 2 + usize::from(u16::from_le_bytes([extra[0], extra[1]]));
    }
    for flag in [HAS_NAME, HAS_COMMENT] {
        if flags & flag != 0 {
            let Some(end) = bytes.get(len..).and_then(|rest| memchr::memchr(0, rest)) else { return Ok(None) };
            len += end + 1;
        }
    }
    len += 2 * usize::from(flags & HAS_CHECKSUM != 0);
    Ok((len <= bytes.len()).then_some(len))
}

impl Decoder {
    pub(super) fn new() -> Decoder {
        Decoder { raw: Decompress::new(false), checksum: Crc::new(), part: Part::Head(Vec::new()), is_followed: false }
    }
}

impl Codec for Decoder {
    fn step(&mut self, input: &[u8], is_last: bool, output: &mut [u8]) -> Result<Step, StageError> {
        let mut made = 0;
        let taken;
        match &mut self.part {
            Part::Head(begun) => {
                let before = begun.len();
                begun.extend_from_slice(&input[..input.len().min(HEAD_BYTES_MAX - before.min(HEAD_BYTES_MAX))]);
                let found = if begun.is_empty() { None } else { head(begun)? };
                if found.is_none() && before == HEAD_BYTES_MAX {
                    return Err(wrong("its head does not end"));
                }
                taken = found.unwrap_or(begun.len()) - before;
                if found.is_some() {
                    self.part = Part::Body;
                }
            }
            Part::Body => {
                let (before_in, before_out) = (self.raw.total_in(), self.raw.total_out());
                let status = self.raw.decompress(input, output, FlushDecompress::None);
                let status = status.map_err(|_| wrong("its content is damaged"))?;
                taken = count(self.raw.total_in(), before_in);
                made = count(self.raw.total_out(), before_out);
                self.checksum.update(&output[..made]);
                if status == Status::StreamEnd {
                    self.part = Part::Tail(Vec::new());
                }
            }
            Part::Tail(begun) => {
                taken = input.len().min(TAIL_BYTES - begun.len());
                begun.extend_from_slice(&input[..taken]);
                if begun.len() == TAIL_BYTES {
                    let expected = [self.checksum.sum().to_le_bytes(), self.checksum.amount().to_le_bytes()].concat();
                    if *begun != expected {
                        return Err(wrong("its checksum or length is not right"));
                    }
                    *self = Decoder { is_followed: true, ..Decoder::new() };
                }
            }
        }
        let is_between = matches!(&self.part, Part::Head(begun) if begun.is_empty()) && self.is_followed;
        Ok(Step { taken, made, is_done: is_last && is_between && taken == input.len() })
    }
}
