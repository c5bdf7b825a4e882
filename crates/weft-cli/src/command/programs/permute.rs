//! `weft permute`: all orders of the words of a text.

use super::PIECE_BYTES;
use crate::arguments::Permute;
use crate::command::usage;
use anyhow::{Context, Result};
use std::io::{Write, stdout};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;
use weft_transform::Permutations;

/// Writes them, without anything between.
pub fn permute(arguments: &Permute) -> Result<ExitCode> {
    let text = arguments.text.as_bytes();
    let permutations = (arguments.width > 0).then(|| Permutations::new(text, arguments.width)).flatten();
    let Some(mut permutations) = permutations else {
        return usage(format!("the text is 1 to 16 words of {} bytes", arguments.width));
    };
    let bytes = permutations.bytes();
    let mut piece = vec![0; PIECE_BYTES.max(bytes) / bytes * bytes];
    loop {
        let count = piece.chunks_exact_mut(bytes).map_while(|to| permutations.next(to).then_some(())).count();
        if count == 0 {
            return Ok(ExitCode::SUCCESS);
        }
        stdout().write_all(&piece[..count * bytes]).context("cannot write to the standard output")?;
    }
}
