//! `weft convert`.

use super::transfer::steps;
use super::usage;
use crate::arguments::Convert;
use anyhow::{Context, Result};
use std::process::ExitCode;
use weft_store::{Location, postgres, sqlite};

/// Writes a volume in files anew with the other home for its blocks; changes the tables of one in PostgreSQL.
pub fn run(arguments: &Convert) -> Result<ExitCode> {
    let location = Location::parse(&arguments.volume)?;
    let failed = || format!("cannot convert volume {location}");
    match (&location, &arguments.new, arguments.blocks, arguments.layout) {
        (Location::Postgres(address), None, None, Some(layout)) => {
            let bar = steps();
            postgres::convert(address, layout.0, &mut |progress| bar.show(progress)).with_context(failed)?;
            drop(bar);
            println!("converted {address}");
        }
        (Location::Files(volume), Some(new), Some(blocks), None) => {
            if let Location::Postgres(_) = Location::parse(new)? {
                return usage("from files to PostgreSQL a volume goes by 'weft export' and 'weft import'".into());
            }
            let bar = steps();
            sqlite::convert(volume, new, blocks.into(), &mut |progress| bar.show(progress)).with_context(failed)?;
            drop(bar);
            println!("made {new}; {volume} is as it was", new = new.display(), volume = volume.display());
        }
        (Location::Postgres(_), ..) => {
            return usage(
                "a volume in PostgreSQL is converted in place with --layout; to files it goes by 'weft export' and 'weft import'".into(),
            );
        }
        (Location::Files(_), ..) => {
            return usage(
                "only a volume in PostgreSQL has a --layout; say which volume to make, and its --blocks".into(),
            );
        }
    }
    Ok(ExitCode::SUCCESS)
}
