//! Values of `system.posix_acl_*`, which programs set and the database keeps.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| weft_vfs::fuzzing::acl(bytes));
