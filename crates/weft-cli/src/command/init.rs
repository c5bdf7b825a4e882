//! `weft init`.

use super::history;
use crate::arguments::{Blocks, Init, Keeping};
use crate::failure::{narrow, usage};
use crate::named::volume_around;
use crate::shown;
use anyhow::{Context, Result, bail};
use serde_json::json;
use std::io::ErrorKind::NotFound;
use std::process::ExitCode;
use weft_store::{BlockHome, Location, VolumeOptions};
use weft_vfs::{Clock, SystemClock};

/// Makes a volume.
pub fn run(arguments: &Init) -> Result<ExitCode> {
    let location = Location::parse(&arguments.volume)?;
    let in_files = location.path().is_some();
    let home = match arguments.blocks {
        blocks if in_files => blocks.map_or(BlockHome::Segments, BlockHome::from),
        Some(Blocks::Segments) => {
            return usage("a volume in PostgreSQL has its blocks in the database, not in segments".into());
        }
        _ => BlockHome::Database,
    };
    if in_files && arguments.layout.0.is_some() {
        return usage("only a volume in PostgreSQL has tables of files' own; leave --layout out".into());
    }
    let options = VolumeOptions {
        block_size: narrow("block size", arguments.block_size)?,
        inline_max: narrow("inline threshold", arguments.inline)?,
        home,
        bytes_max: arguments.size_max,
        inodes_max: arguments.inodes_max,
        digests: !arguments.no_digests,
        own_table_from: arguments.layout.0,
    };
    options.check().or_else(|error| usage(error.to_string()))?;
    if let Some(outer) = location.path().and_then(|path| volume_around(weft_store::parent_of(path))) {
        bail!("cannot make volume {location}: it would lie among the files of the volume {}", outer.display());
    }
    let parent = location.path().map(weft_store::parent_of);
    if let Some(parent) = parent.filter(|parent| parent.symlink_metadata().is_err_and(|error| error.kind() == NotFound))
    {
        bail!("cannot make volume {location}: there is no directory {}; make it first", parent.display());
    }
    let owner = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    location
        .engine()
        .create(&options, owner, SystemClock.now())
        .with_context(|| format!("cannot make volume {location}"))?;
    if let Keeping::By(rule) = &arguments.history {
        history::begin(&arguments.volume, rule, arguments.history_for)
            .with_context(|| format!("made volume {location}, which keeps no history, as that failed"))?;
    }
    if arguments.json {
        let rule = match &arguments.history {
            Keeping::By(rule) => Some(rule.to_string()),
            Keeping::Off => None,
        };
        outln!("{:#}", json!({ "volume": location.to_string(), "options": options, "history": rule }));
        return Ok(ExitCode::SUCCESS);
    }
    let name = shown::message(&location.to_string());
    outln!("made {name}; mount it with: weft mount {} DIRECTORY", shown::location(&location));
    if let Keeping::By(rule) = &arguments.history {
        outln!("it keeps history: {rule}; every directory has its past in .weft/at/");
    }
    Ok(ExitCode::SUCCESS)
}
