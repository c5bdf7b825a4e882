//! Processes that can do nothing but compute: code that nobody has to trust, and decoders of bytes
//! that nobody has to trust.
//!
//! Such a process is confined ([`sandbox`]) before it sees any of what it is for. It is given bytes
//! in memory that it shares with this process ([`area`]) and tells what it has done: a library in
//! messages of fixed length ([`message`], [`channel`]), a decoder by words of that memory
//! ([`rings`]). It has neither a way to hold this process up, beyond its time, nor to make it read
//! anything but that memory. [`worker`] is its beginning.

pub(super) mod area;
pub(super) mod channel;
pub(super) mod decoders;
mod decoding;
pub(super) mod message;
mod nursery;
pub(super) mod rings;
pub(super) mod sandbox;
pub mod worker;
