//! Requests as they come from the kernel, many on one volume.
//!
//! The input is a list of requests, each after its length in two bytes. The first 40 bytes of a
//! request are its header; the length in it is set right most of the time, since else nearly all
//! would end there.
use crate::{memory_volume, requests};

/// Takes any bytes as what this is about.
pub fn run(bytes: &[u8]) {
    let vfs = memory_volume();
    for request in requests(bytes) {
        weft_fuse::fuzz_request(&vfs, &request);
    }
    vfs.close().expect("a volume in memory takes every commit");
}
