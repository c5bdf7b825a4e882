//! `weft convert`.

use super::transfer::steps;
use crate::arguments::Convert;
use anyhow::{Context, Result};
use std::process::ExitCode;
use weft_store::sqlite;

/// Writes a volume anew with the other home for its blocks.
pub fn run(arguments: &Convert) -> Result<ExitCode> {
    let bar = steps();
    let (volume, new) = (&arguments.volume, &arguments.new);
    sqlite::convert(volume, new, arguments.blocks.into(), &mut |progress| bar.show(progress))
        .with_context(|| format!("cannot convert volume {}", volume.display()))?;
    drop(bar);
    println!("made {new}; {volume} is as it was", new = new.display(), volume = volume.display());
    Ok(ExitCode::SUCCESS)
}
