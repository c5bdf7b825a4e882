//! Code that somebody brings, called again and again: what it must tell of itself, wherever it
//! runs.

use super::idle::AllWaiting;
use crate::stage::StageError;
use blake3::Hash;
use std::ops::Range;
use std::time::Duration;
use weft_block::Buffer;

/// Bounds on code, and properties that its output must have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Time for one piece.
    pub(super) call: Duration,
    pub(super) memory_bytes: usize,
    /// True if it must give as many bytes as it takes.
    pub(super) length: bool,
    /// True if each byte follows from the one at the same place alone, so that there is nothing to
    /// give at the end.
    pub(super) place: bool,
    /// The user whose network it is.
    #[cfg_attr(not(feature = "wasm"), expect(dead_code, reason = "modules are compiled for a user"))]
    pub(super) owner: u32,
}

/// Output that code gives for its input.
pub(super) struct Given {
    /// Range of the output, for [`Code::copy`]. It is within bounds whatever the code has said.
    pub(super) range: Range<usize>,
    /// There is more of what it took.
    pub(super) has_more: bool,
    /// Nothing will come any more.
    pub(super) has_ended: bool,
}

/// Bits of a number in which code tells what it gives, beside 30 of a length.
pub(super) const AGAIN: u64 = 1 << 30;
pub(super) const ENDED: u64 = 1 << 31;
pub(super) const FAILED: u64 = u64::MAX;

/// Bytes of what code says of its failure.
const SAID_BYTES: usize = 4096;

/// Code that runs, on one stream.
pub(super) trait Code: Send + Sized + 'static {
    /// Name of this kind of code.
    const NAME: &'static str;
    /// True if equal input gives equal output on every machine.
    const IS_REPEATABLE: bool;
    /// The longest that can be run, in bytes.
    const BYTES_MAX: usize;
    /// Bytes that it is given at once, at most.
    const PIECE_BYTES: usize;
    /// Largest number of idle instances, of all stages, that wait for more to do.
    const IDLE_MAX: usize;
    /// About how long it takes to begin; zero if it is not worth waiting for one that is at work.
    const BEGINNING: Duration;

    /// Those of all stages that wait.
    fn waiting() -> &'static AllWaiting<Self>;

    /// Begins to run what `bytes` are, of this digest, with `words`, each ended by a NUL.
    fn begin(bytes: &[u8], digest: Hash, bounds: Bounds, words: &[u8]) -> Result<Self, StageError>;

    /// Has it do something with `input`, at most [`Code::PIECE_BYTES`].
    fn advance(&mut self, input: &[u8], is_last: bool) -> Result<Given, StageError>;

    /// A copy of what was given; before the next call.
    fn copy(&self, range: Range<usize>) -> Buffer;

    /// True if it can still be called, after it has waited.
    fn is_there(&mut self) -> bool {
        true
    }

    /// Forgets what it took of its time. Tells whether it takes so little memory that it may wait
    /// for more to do.
    fn rest(&mut self) -> bool;
}

/// Formats a process's failure message as one line of a bounded length.
pub(super) fn said(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(SAID_BYTES)]).replace(char::is_control, " ")
}

/// Returns the error with the code's failure message, if it gives one.
pub(super) fn failure<C: Code>(bytes: Option<&[u8]>) -> StageError {
    let text = bytes.map(said);
    StageError::data(text.unwrap_or_else(|| format!("the {} has failed, and does not say why", C::NAME)))
}
