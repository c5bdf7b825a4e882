//! The kernel's FUSE protocol, version 7.31 to 7.45 (`include/uapi/linux/fuse.h`), as bytes in
//! native order.

pub(crate) mod arguments;
pub(crate) mod flags;
mod handshake;
mod opcode;
mod reply;
mod request;

pub(crate) use handshake::Offer;
pub(crate) use opcode::Opcode;
pub(crate) use reply::{Reply, Valid};
pub(crate) use request::{Body, CutShort, Header, Request};

/// Protocol version spoken.
pub(crate) const MAJOR: u32 = 7;
pub(crate) const MINOR: u32 = 45;

/// Most bytes of data in one request or reply.
pub(crate) const DATA_BYTES_MAX: usize = 1 << 20;

/// Room for a request: its data, header and arguments.
pub(crate) const REQUEST_BYTES_MAX: usize = DATA_BYTES_MAX + 4096;
