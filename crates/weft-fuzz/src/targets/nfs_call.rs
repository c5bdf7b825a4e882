//! Calls as they come from NFS clients, many on one volume.
//!
//! The input is a list of calls, each after its length in two bytes: which program, procedure and
//! user, then arguments, in which 0xfe and a byte stand for a handle.
use crate::{memory_volume, pieces};
use weft_nfs::fuzzing::Target;

/// Takes any bytes as what this is about.
pub fn run(bytes: &[u8]) {
    let vfs = memory_volume();
    let target = Target::new(&vfs);
    for call in pieces(bytes) {
        target.procedure(call);
    }
    vfs.close().expect("a volume in memory takes every commit");
}
