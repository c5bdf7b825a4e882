//! WebAssembly modules as stages: code that reaches nothing but the bytes it is given, with bounds
//! on its time and its memory.
//!
//! What a module exports is in docs/reference/abi.md. It is given bytes by having them written into
//! its memory, and gives others by saying where they lie in it, from where they are copied: once
//! in, once out. Whatever it says is looked at before it is believed.

pub(super) mod compiler;
mod engine;
mod instance;

use super::file::{self, MEMORY_MIB_MAX};
use crate::language::{Call, NetworkError};
use crate::stage::Stage;
use instance::Instance;

/// Bytes of memory that a module can have.
const MEMORY_BYTES_MAX: usize = MEMORY_MIB_MAX << 20;

pub(crate) fn wasm(call: &Call) -> Result<Stage, NetworkError> {
    file::stage::<Instance>(call)
}
