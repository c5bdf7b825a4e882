//! The stage `wasm` of a program that was built without WebAssembly.

use crate::language::{Call, NetworkError};
use crate::stage::Stage;

/// Refuses the stage.
pub(crate) fn wasm(call: &Call) -> Result<Stage, NetworkError> {
    let message = "this program was built without WebAssembly; 'make build' makes one that has it";
    Err(NetworkError::new(message, call.name.at))
}
