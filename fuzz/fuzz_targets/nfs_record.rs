//! Bytes as they come over a connection from anyone: records, calls, credentials.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weft_fuzz::memory_volume;
use weft_nfs::fuzzing::Target;

fuzz_target!(|bytes: &[u8]| {
    let vfs = memory_volume();
    Target::new(&vfs).receive(bytes);
});
