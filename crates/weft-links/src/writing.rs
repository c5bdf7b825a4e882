//! Writing through links that can be undone: bytes in their places at once; else all of it, kept
//! apart in a draft until the programs that have the link open close it.

pub(crate) mod drafts;
pub(crate) mod led;
mod opening;
pub(crate) mod through;

pub use opening::Opening;
