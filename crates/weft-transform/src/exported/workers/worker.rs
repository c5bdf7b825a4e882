//! The program that runs confined processes. Any program that uses this crate and says so
//! ([`set_program`]) can be it, if its `main` begins with [`run_if_asked`].

use super::nursery;
use crate::exported::library::{self, loaded};
#[cfg(feature = "wasm")]
use crate::exported::wasm::compiler;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::OnceLock;

pub use super::decoders::why_unconfined;

static PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// From now on `program` runs libraries, compiles modules and decompresses. Without one there are
/// no libraries, and the rest is done in this process.
pub fn set_program(program: PathBuf) {
    // The first one stays.
    let _ = PROGRAM.set(program);
    // Threads that begin later may be bound to few processors.
    library::know_processors();
}

pub(in crate::exported) fn program() -> Option<&'static PathBuf> {
    PROGRAM.get()
}

/// Does the work of a confined process, if these words, the program's name before them, ask for it:
/// only as the first thing that a program does. A user who types them has neither the socket nor
/// the memory, and gets an error.
pub fn run_if_asked(words: &[OsString]) -> Option<ExitCode> {
    let [_, word, memory_bytes] = words else { return None };
    let work = match word.to_str() {
        Some(loaded::WORD) => loaded::run,
        #[cfg(feature = "wasm")]
        Some(compiler::WORD) => compiler::run,
        Some(nursery::WORD) => nursery::run,
        _ => return None,
    };
    let done = memory_bytes.to_str().and_then(|bytes| bytes.parse().ok()).map(work);
    Some(if matches!(done, Some(Ok(()))) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
