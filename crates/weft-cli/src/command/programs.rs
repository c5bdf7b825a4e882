//! Programs with the names and behaviour of standard tools, built on the code of network stages.

mod cat;
mod grep;
mod ls;
mod permute;
mod sum;
mod wc;

pub use cat::cat;
pub use grep::grep;
pub use ls::ls;
pub use permute::permute;
pub use sum::sum;
pub use wc::wc;

use crate::input::STANDARD_INPUT;
use crate::shown;
use std::ffi::{OsStr, OsString};
use std::io;
use std::process::ExitCode;

/// Does `work` with each of `files`, or with the standard input if there are none. Reports
/// failures, and works on the others all the same.
fn each_file(program: &str, files: &[OsString], mut work: impl FnMut(&OsStr) -> io::Result<()>) -> ExitCode {
    let standard_input = [OsString::from(STANDARD_INPUT)];
    let files = if files.is_empty() { &standard_input } else { files };
    let mut code = ExitCode::SUCCESS;
    for file in files {
        if let Err(error) = work(file) {
            let text = error.to_string();
            let text = text.split(" (os error").next().unwrap_or_default();
            errln!("weft {program}: {}: {text}", shown::path(file.as_ref()));
            code = ExitCode::FAILURE;
        }
    }
    code
}
