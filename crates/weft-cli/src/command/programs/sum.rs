//! `weft sum`: as sum(1).

use super::each_file;
use crate::arguments::Sum as Arguments;
use crate::input::Input;
use crate::shown;
use std::process::ExitCode;
use weft_transform::Sum;

/// Prints checksums and numbers of blocks, with the names of the named files.
pub fn sum(arguments: &Arguments) -> ExitCode {
    each_file("sum", &arguments.files, |file| {
        let mut sum = if arguments.sysv { Sum::plain() } else { Sum::rotated() };
        Input::open(file)?.each(|piece| sum.add(piece))?;
        let name = if arguments.files.is_empty() { String::new() } else { format!(" {}", shown::path(file.as_ref())) };
        outln!("{}{name}", sum.tell());
        Ok(())
    })
}
