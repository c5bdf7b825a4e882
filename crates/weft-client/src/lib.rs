//! What programs read and write files of volumes with, by reference: libweft.
//!
//! A [`File`] of a mounted volume is read as ropes whose bytes lie in memory that the daemon shares; any other file is read as ever, so that a
//! program need not care. Ropes go from one process to another over [`channel`]s. This crate knows the blocks' crate, and how daemons are spoken to
//! ([`protocol`], which daemons use, too); nothing of volumes.

#[cfg(not(loom))]
pub mod channel;
#[cfg(not(loom))]
mod daemon;
#[cfg(not(loom))]
mod file;
#[cfg(not(loom))]
pub mod lent;
#[cfg(not(loom))]
pub mod protocol;
#[cfg(not(loom))]
pub mod socket;

#[cfg(not(loom))]
pub use file::File;

// What is checked by trying every interleaving needs atomic words of another kind, and nothing else.
#[cfg(loom)]
#[path = "channel/ring.rs"]
mod ring;
#[cfg(loom)]
fn step() {}
