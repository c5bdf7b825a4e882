//! The content of files in memory: what is stored where, and what was written since the last
//! commit.

mod file;
mod pieces;
mod ranges;

pub(crate) use file::{Base, FileData};
pub(crate) use pieces::{Frozen, Pieces};
pub(crate) use ranges::Ranges;
