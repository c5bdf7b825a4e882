//! xz (and, read only, lzma) by liblzma.

use super::{Codec, Step};
use crate::stage::StageError;
use liblzma::stream::{Action, CONCATENATED, Check, Status, Stream};

/// Decompressing may take so much memory: what level 9 needs.
const MEMORY_BYTES_MAX: u64 = 100 << 20;

pub(super) struct Xz(Stream);

impl Xz {
    pub(super) fn encoder(level: u32) -> Xz {
        Xz(Stream::new_easy_encoder(level, Check::Crc64).expect("the level is one there is"))
    }

    pub(super) fn decoder() -> Xz {
        Xz(Stream::new_stream_decoder(MEMORY_BYTES_MAX, CONCATENATED).expect("memory for it"))
    }
}

impl Codec for Xz {
    fn step(&mut self, input: &[u8], is_last: bool, output: &mut [u8]) -> Result<Step, StageError> {
        let (taken, made) = (self.0.total_in(), self.0.total_out());
        let action = if is_last { Action::Finish } else { Action::Run };
        let status = self.0.process(input, output, action);
        let status = status.map_err(|error| StageError::data(format!("this is no xz data: {error}")))?;
        let count = |total: u64, before: u64| usize::try_from(total - before).expect("no more than there was room for");
        Ok(Step {
            taken: count(self.0.total_in(), taken),
            made: count(self.0.total_out(), made),
            is_done: status == Status::StreamEnd,
        })
    }
}
