//! `weft permute`: all orders of the parts of a text.

use crate::arguments::Permute;
use crate::failure::usage;
use crate::input::PIECE_BYTES;
use anyhow::{Context, Result};
use std::io::{Write, stdout};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;
use weft_transform::Permutations;

/// Writes the permutations, without anything between.
pub fn permute(arguments: &Permute) -> Result<ExitCode> {
    let text = arguments.text.as_bytes();
    let Some(mut permutations) = Permutations::new(text, arguments.width) else {
        return usage(format!(
            "the text must be 1 to 16 parts of {} bytes each; --width sets another length",
            arguments.width
        ));
    };
    let mut piece = vec![0; permutations.bytes_near(PIECE_BYTES)];
    while let len @ 1.. = permutations.fill(&mut piece) {
        stdout().write_all(&piece[..len]).context("cannot write to the standard output")?;
    }
    Ok(ExitCode::SUCCESS)
}
