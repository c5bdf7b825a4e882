//! `weft convert`.

use super::transfer::steps;
use super::usage;
use crate::arguments::Convert;
use anyhow::{Context, Result};
use std::process::ExitCode;
use weft_store::{Location, sqlite};

/// Writes a volume anew with the other home for its blocks.
pub fn run(arguments: &Convert) -> Result<ExitCode> {
    let (volume, new) = (&arguments.volume, &arguments.new);
    for named in [volume, new] {
        if let Location::Postgres(address) = Location::parse(named)? {
            return usage(format!(
                "{address} is in PostgreSQL, and only volumes in files are converted; use 'weft export' and 'weft import'"
            ));
        }
    }
    let bar = steps();
    sqlite::convert(volume, new, arguments.blocks.into(), &mut |progress| bar.show(progress))
        .with_context(|| format!("cannot convert volume {}", volume.display()))?;
    drop(bar);
    println!("made {new}; {volume} is as it was", new = new.display(), volume = volume.display());
    Ok(ExitCode::SUCCESS)
}
