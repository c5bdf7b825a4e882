//! `weft sum`: as sum(1).

use super::{each_file, each_piece, open};
use crate::arguments::Sum as Arguments;
use std::process::ExitCode;
use weft_transform::Sum;

/// Prints checksums and numbers of blocks, with the names of those that were named.
pub fn sum(arguments: &Arguments) -> ExitCode {
    each_file("sum", &arguments.files, |file| {
        let mut sum = if arguments.sysv { Sum::plain() } else { Sum::rotated() };
        each_piece(open(file)?, |piece| sum.add(piece))?;
        let name = if arguments.files.is_empty() { String::new() } else { format!(" {}", file.display()) };
        println!("{}{name}", sum.tell());
        Ok(())
    })
}
