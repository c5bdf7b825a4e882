//! How requests arrive and replies leave: over io_uring where the kernel has it on for FUSE, over the FUSE
//! device elsewhere.

pub(crate) mod device;
pub(crate) mod handshake;
mod placement;
pub(crate) mod uring;
