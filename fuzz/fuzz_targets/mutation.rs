//! Operations as the intent log keeps them.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| weft_vfs::fuzzing::mutation(bytes));
