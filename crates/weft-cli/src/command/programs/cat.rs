//! `weft cat`: as cat(1), which has no options that matter.

use super::each_file;
use crate::arguments::Cat;
use crate::input::STANDARD_INPUT;
use std::fs::File;
use std::io::{self, stdin, stdout};
use std::process::ExitCode;

/// Writes files one after the other. The kernel moves bytes without a copy where it can
/// (copy_file_range(2), splice(2)).
pub fn cat(arguments: &Cat) -> ExitCode {
    let mut stdout = stdout().lock();
    each_file("cat", &arguments.files, |file| {
        let copied = match file == STANDARD_INPUT {
            true => io::copy(&mut stdin(), &mut stdout),
            false => io::copy(&mut File::open(file)?, &mut stdout),
        };
        copied.map(|_| ())
    })
}
