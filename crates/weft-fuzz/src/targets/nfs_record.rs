//! Bytes as they come over a connection from anyone: records, calls, credentials.
use crate::memory_volume;
use weft_nfs::fuzzing::Target;

/// Takes any bytes as what this is about.
pub fn run(bytes: &[u8]) {
    let vfs = memory_volume();
    Target::new(&vfs).receive(bytes);
}
