//! `weft cat`: as cat(1), which has no options that matter.

use super::{each_file, open};
use crate::arguments::Cat;
use std::io::{self, stdout};
use std::process::ExitCode;

/// Writes files one after the other. The kernel moves what it can without a copy (copy_file_range(2), splice(2)).
pub fn cat(arguments: &Cat) -> ExitCode {
    let mut stdout = stdout().lock();
    each_file("cat", &arguments.files, |file| io::copy(&mut open(file)?, &mut stdout).map(|_| ()))
}
