//! The native stages, a file for each kind.

pub(crate) mod archives;
pub(crate) mod charsets;
pub(crate) mod codecs;
pub(crate) mod encryption;
pub(crate) mod expressions;
pub(crate) mod frames;
pub(crate) mod hashes;
mod last;
pub(crate) mod lines;
pub(crate) mod maps;
pub(crate) mod permuting;
pub(crate) mod records;
pub(crate) mod reversing;
pub(crate) mod selecting;
pub(crate) mod sorting;
pub(crate) mod sums;
pub(crate) mod texts;
