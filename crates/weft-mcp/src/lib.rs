//! Weft's server of the Model Context Protocol (2025-06-18 and later): tools by which an assistant
//! reads one volume, its past, and what they prove; and brings the past back, where that is
//! permitted.
//!
//! It knows the program alone: each call of a tool is a run of `weft`, with the rights of the user
//! who started the server, and ends in time. So tools can do nothing that this user could not do by
//! hand, and a call that goes wrong takes nothing with it. All paths are paths in the volume; no
//! tool takes another one, and none runs code that came with a call.

mod program;
mod server;
mod tools;

pub use server::serve;

use std::path::PathBuf;

/// The volume that is served, and what may be done with it.
#[derive(Clone, Debug)]
pub struct Served {
    /// The program, `weft`.
    pub program: PathBuf,
    /// The volume, by an absolute path or an address, or its mount point.
    pub volume: String,
    /// True if tools may change it.
    pub may_write: bool,
}
