//! Stages that are somebody's own code, which nobody has to trust.

mod code;
pub(crate) mod command;
mod confined;
mod file;
pub(crate) mod library;
mod stream;
pub(crate) mod wasm;
