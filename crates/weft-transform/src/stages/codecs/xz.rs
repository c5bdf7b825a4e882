//! xz (and, read only, lzma) by liblzma.

use super::{Codec, Room, Step};
use crate::stage::StageError;
use liblzma::stream::{Action, CONCATENATED, Check, Error, Status, Stream};

/// Decompressing may take so much memory: what level 9 needs.
const MEMORY_BYTES_MAX: u64 = 100 << 20;

/// Decompressing takes so much without counting it.
const MEMORY_BYTES_LEAST: u64 = 64 << 10;

/// Bytes that decompressing takes beside a dictionary.
const BESIDE_BYTES: u64 = 1 << 20;

pub(super) struct Xz {
    stream: Stream,
    /// Bytes that a decompressor may take, and the room that counts them.
    counted: Option<(u64, Room)>,
}

impl Xz {
    pub(super) fn encoder(level: u32) -> Xz {
        let stream = Stream::new_easy_encoder(level, Check::Crc64).expect("the level is one there is");
        Xz { stream, counted: None }
    }

    pub(super) fn decoder(room: Room) -> Xz {
        let stream = Stream::new_stream_decoder(MEMORY_BYTES_LEAST, CONCATENATED).expect("memory for it");
        Xz { stream, counted: Some((MEMORY_BYTES_LEAST, room)) }
    }

    /// Lets it take more, as much as the next larger dictionary needs. `Memory`; false if that is
    /// more than any may have.
    fn take_more(&mut self) -> Result<bool, StageError> {
        let Some((limit, room)) = &mut self.counted else { return Ok(false) };
        while *limit < MEMORY_BYTES_MAX {
            let dictionary = limit.saturating_sub(BESIDE_BYTES).max(BESIDE_BYTES / 4) * 2;
            *limit = (dictionary + BESIDE_BYTES).min(MEMORY_BYTES_MAX);
            if !room(usize::try_from(*limit).unwrap_or(usize::MAX)) {
                return Err(StageError::Memory);
            }
            // Refused if even that is too little.
            if self.stream.set_memlimit(*limit).is_ok() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Codec for Xz {
    fn step(&mut self, input: &[u8], is_last: bool, output: &mut [u8]) -> Result<Step, StageError> {
        let (taken, made) = (self.stream.total_in(), self.stream.total_out());
        let action = if is_last { Action::Finish } else { Action::Run };
        let count = |total: u64, before: u64| usize::try_from(total - before).expect("no more than there was room for");
        loop {
            let (from, to) = (count(self.stream.total_in(), taken), count(self.stream.total_out(), made));
            let status = match self.stream.process(&input[from..], &mut output[to..], action) {
                Err(Error::MemLimit) if self.take_more()? => continue,
                Err(Error::MemLimit) => {
                    let most = MEMORY_BYTES_MAX >> 20;
                    return Err(StageError::data(format!("this takes more than {most} MiB of memory to decompress")));
                }
                status => status.map_err(|error| StageError::data(format!("this is no xz data: {error}")))?,
            };
            return Ok(Step {
                taken: count(self.stream.total_in(), taken),
                made: count(self.stream.total_out(), made),
                is_done: status == Status::StreamEnd,
            });
        }
    }
}
