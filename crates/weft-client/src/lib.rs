//! What programs read and write files of volumes with, by reference: libweft.
//!
//! A [`File`] of a mounted volume is read as ropes whose bytes lie in memory that the daemon shares; any other file is read as ever, so that a
//! program need not care. This crate knows the blocks' crate, and how daemons are spoken to ([`protocol`], which daemons use, too); nothing of volumes.

mod daemon;
mod file;
mod lent;
pub mod protocol;
pub mod socket;

pub use file::File;
