//! Stages that are somebody's own code, which nobody has to trust.

pub(crate) mod command;
mod confined;
pub(crate) mod wasm;
