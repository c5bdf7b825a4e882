//! Stages that are somebody's own code, and run outside of this process.

pub(crate) mod command;
mod confined;
