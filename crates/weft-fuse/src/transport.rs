//! How requests arrive and replies leave: the FUSE device.

pub(crate) mod device;
mod placement;
