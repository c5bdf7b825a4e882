//! FUSE protocol to vfs calls and back: transports, mounting
