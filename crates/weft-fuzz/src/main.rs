//! libFuzzer on the target that the environment variable `WEFT_FUZZ_TARGET` names.
#![no_main]

use std::sync::LazyLock;
use weft_fuzz::targets::{TARGETS, Target};

static TARGET: LazyLock<&Target> = LazyLock::new(|| {
    let name = std::env::var("WEFT_FUZZ_TARGET").unwrap_or_default();
    TARGETS.iter().find(|target| target.name == name).unwrap_or_else(|| {
        eprintln!("WEFT_FUZZ_TARGET={name} is no target; name one of these:");
        TARGETS.iter().for_each(|target| eprintln!("{}", target.name));
        std::process::exit(2)
    })
});

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| (TARGET.run)(bytes));
