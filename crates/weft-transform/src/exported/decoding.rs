//! Decompressing in a confined process: whatever hostile bytes make of a decoder, it reaches
//! nothing but bytes of links of the same owner.

use super::workers::decoders::{self, Decoder};
use super::workers::rings::INPUT_BYTES;
use crate::flow::{Input, Output};
use crate::stage::{Progress, Running, StageError};
use crate::stages::codecs::Format;

/// Bytes of input that more is asked for while the decoder works on them, where more is at hand;
/// and those for which it is woken before more is asked for, as that may take as long.
const AHEAD_BYTES: usize = INPUT_BYTES / 2;
const WAKING_BYTES: usize = 64 << 10;

/// A stream that a confined process decompresses.
pub(crate) struct Decoding {
    /// None once it has ended or failed.
    decoder: Option<Decoder>,
    /// Error that follows the bytes that were passed on last.
    error: Option<StageError>,
}

/// Reason why the process does nothing more.
enum Stop {
    /// All is done.
    Ended,
    Failed(StageError),
}

impl From<StageError> for Stop {
    fn from(error: StageError) -> Stop {
        Stop::Failed(error)
    }
}

impl Decoding {
    pub(crate) fn begin(format: Format, owner: u32) -> Result<Decoding, StageError> {
        Ok(Decoding { decoder: Some(decoders::take(format, owner)?), error: None })
    }

    fn give_back(&mut self) {
        if let Some(decoder) = self.decoder.take() {
            decoders::give_back(decoder);
        }
    }

    fn step(decoder: &mut Decoder, input: &mut Input, output: &mut Output) -> Result<Progress, Stop> {
        loop {
            let feed = decoder.feed();
            while let Some(front) = input.front() {
                let given = feed.give(front);
                if given == 0 {
                    break;
                }
                input.skip(given);
            }
            if !feed.ends() && input.has_ended() {
                feed.end();
            }
            let progress = feed.progress().map_err(Decoder::failure)?;
            if progress.made > 0 && !output.is_full() {
                output.push(feed.copy().freeze().whole());
                continue;
            }
            if let Some(bytes) = progress.wanted {
                decoder.grant(bytes)?;
                continue;
            }
            if output.is_full() {
                feed.wake();
                return Ok(Progress::HasMore);
            }
            if progress.has_ended() {
                return Err(Stop::Ended);
            }
            if progress.has_failed() {
                return Err(StageError::Data(super::code::said(&feed.said())).into());
            }
            let is_ahead = input.is_more_at_hand() && progress.pending < AHEAD_BYTES;
            if input.front().is_none() && !feed.ends() && (progress.pending == 0 || is_ahead) {
                if progress.pending >= WAKING_BYTES {
                    feed.wake();
                }
                return Ok(Progress::NeedsInput);
            }
            if !output.is_empty() {
                feed.wake();
                return Ok(Progress::HasMore);
            }
            decoder.wait().map_err(Decoder::failure)?;
        }
    }
}

impl Running for Decoding {
    fn advance(&mut self, input: &mut Input, output: &mut Output) -> Result<Progress, StageError> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        let Some(decoder) = &mut self.decoder else { return Ok(Progress::Ended) };
        match Decoding::step(decoder, input, output) {
            Ok(progress) => Ok(progress),
            Err(Stop::Ended) => {
                self.give_back();
                Ok(Progress::Ended)
            }
            // It can be asked again.
            Err(Stop::Failed(StageError::Paused)) if output.is_empty() => Err(StageError::Paused),
            Err(Stop::Failed(StageError::Paused)) => Ok(Progress::HasMore),
            Err(Stop::Failed(error)) => {
                self.decoder = None;
                if output.is_empty() {
                    return Err(error);
                }
                self.error = Some(error);
                Ok(Progress::HasMore)
            }
        }
    }
}

impl Drop for Decoding {
    fn drop(&mut self) {
        // Nobody wants the rest of the stream.
        self.give_back();
    }
}
