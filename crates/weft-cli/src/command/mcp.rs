//! `weft mcp`.

use crate::arguments::Mcp;
use crate::failure::usage;
use crate::mounted::volume_named;
use anyhow::{Context, Result};
use std::process::ExitCode;
use weft_mcp::{Served, serve};
use weft_store::Location;

/// Serves a volume to an assistant.
pub fn run(arguments: &Mcp) -> Result<ExitCode> {
    let location = volume_named(&arguments.volume)?;
    location.engine().header().with_context(|| format!("cannot open volume {location}"))?;
    // Runs of the program begin elsewhere.
    let volume = match &location {
        Location::Files(_) => {
            let path = std::path::absolute(&arguments.volume).context("cannot tell where the volume lies")?;
            let Ok(path) = path.into_os_string().into_string() else {
                return usage("the protocol has text alone: give the volume a name in UTF-8".into());
            };
            path
        }
        Location::Postgres(_) => arguments.volume.to_string_lossy().into_owned(),
    };
    serve(Served { program: "/proc/self/exe".into(), volume, may_write: arguments.allow_changes })
        .context("cannot serve it")?;
    Ok(ExitCode::SUCCESS)
}
