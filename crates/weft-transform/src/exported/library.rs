//! Shared libraries as stages: code of the machine itself, in processes that can do nothing but
//! compute.
//!
//! A process of its own runs a library ([`loaded`]), confined as all such processes are
//! ([`super::workers`]) before any of its code runs.

pub(super) mod loaded;
mod process;
mod started;

use super::code::{Bounds, Code, Given, failure};
use super::file;
use super::idle::AllWaiting;
use super::workers::area::INPUT_BYTES;
use super::workers::message::Reply;
use crate::language::{Call, NetworkError};
use crate::stage::{Stage, StageError};
use blake3::Hash;
#[cfg(feature = "wasm")]
pub(super) use process::Image;
use process::Process;
pub(super) use process::know_processors;
pub(super) use started::{later, wait_for};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use weft_block::Buffer;

pub(crate) fn library(call: &Call) -> Result<Stage, NetworkError> {
    file::stage::<Process>(call)
}

impl Code for Process {
    const NAME: &'static str = "library";
    // It needs libraries of the system, and may look at clocks.
    const IS_REPEATABLE: bool = false;
    const BYTES_MAX: usize = 16 << 20;
    const PIECE_BYTES: usize = INPUT_BYTES;
    const IDLE_MAX: usize = 16;
    const BEGINNING: Duration = Duration::from_millis(10);

    fn waiting() -> &'static AllWaiting<Process> {
        static WAITING: AllWaiting<Process> = AllWaiting::new(Vec::new());
        &WAITING
    }

    fn begin(bytes: &[u8], digest: Hash, bounds: Bounds, words: &[u8]) -> Result<Process, StageError> {
        // It has no loader. Links with libraries can be made and looked at all the same.
        if cfg!(target_feature = "crt-static") {
            let message = "this build of weft is static and loads no shared libraries: use one that 'make build' makes, \
                or compile the stage to WebAssembly";
            return Err(StageError::data(message));
        }
        let wanted = started::Wanted {
            image: process::Image::of(bytes, digest)?,
            memory_bytes: bounds.memory_bytes,
            call: bounds.call,
            words: Arc::from(words),
        };
        // Those that make each byte of one alone wait for more to do anyway.
        let mut process = started::take(wanted, !bounds.place)?;
        match process.reply()? {
            Reply::Given { .. } => Ok(process),
            Reply::Failed { range } => Err(process.failure(range)),
        }
    }

    fn advance(&mut self, input: &[u8], is_last: bool) -> Result<Given, StageError> {
        self.send(input, is_last)?;
        match self.reply()? {
            Reply::Given { range, has_more, has_ended } => Ok(Given { range, has_more, has_ended }),
            Reply::Failed { range } => Err(self.failure(range)),
        }
    }

    fn copy(&self, range: Range<usize>) -> Buffer {
        self.area().copy(range)
    }

    fn is_there(&mut self) -> bool {
        // Where memory runs out, it is the first to go.
        !self.has_ended()
    }

    fn rest(&mut self) -> bool {
        self.forget_time()
    }
}

impl Process {
    /// Returns the error with its failure message.
    fn failure(&self, said: Range<usize>) -> StageError {
        let said = (!said.is_empty()).then(|| self.area().copy(said));
        failure::<Process>(said.as_deref())
    }
}
