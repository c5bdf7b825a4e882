//! Programs that do what those of the same names do on any machine, by the code that stages of networks have.

mod cat;
mod grep;
mod permute;
mod sum;
mod wc;

pub use cat::cat;
pub use grep::grep;
pub use permute::permute;
pub use sum::sum;
pub use wc::wc;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, stdin};
use std::path::Path;
use std::process::ExitCode;

/// Bytes read at once: as many as stay in a processor's own cache.
const PIECE_BYTES: usize = 256 << 10;

/// What stands for the standard input.
const STANDARD_INPUT: &str = "-";

/// Opens what a program was told to read.
fn open(name: &OsStr) -> io::Result<Box<dyn Read>> {
    Ok(if name == STANDARD_INPUT { Box::new(stdin()) } else { Box::new(File::open(Path::new(name))?) })
}

/// Gives all that `from` has to `take`, piece by piece.
fn each_piece(mut from: impl Read, mut take: impl FnMut(&[u8])) -> io::Result<()> {
    let mut buffer = vec![0; PIECE_BYTES];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(len) => take(&buffer[..len]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Does `work` with each of `files`, or with the standard input if there are none. What fails is said, and the others are worked on all the same.
fn each_file(program: &str, files: &[OsString], mut work: impl FnMut(&OsStr) -> io::Result<()>) -> ExitCode {
    let standard_input = [OsString::from(STANDARD_INPUT)];
    let files = if files.is_empty() { &standard_input } else { files };
    let mut code = ExitCode::SUCCESS;
    for file in files {
        if let Err(error) = work(file) {
            let text = error.to_string();
            let text = text.split(" (os error").next().unwrap_or_default();
            eprintln!("weft {program}: {}: {text}", file.display());
            code = ExitCode::FAILURE;
        }
    }
    code
}
