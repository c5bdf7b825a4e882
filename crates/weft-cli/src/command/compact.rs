//! `weft compact`.

use super::transfer::{Interrupt, steps};
use crate::arguments::Compact;
use crate::failure::usage;
use crate::{shown, size};
use anyhow::{Context, Result};
use serde_json::json;
use std::process::ExitCode;
use std::sync::Arc;
use weft_store::Location;
use weft_store::sqlite::{Compacted, Stop, compact};

/// Writes the database of a volume anew.
pub fn run(arguments: &Compact) -> Result<ExitCode> {
    let location = crate::mounted::unmounted(&arguments.volume)?;
    let Location::Files(volume) = &location else {
        return usage(
            "a volume in PostgreSQL cannot be compacted: the server uses space of rows that went again, and an \
             administrator gives it back to the disk with VACUUM (FULL)"
                .into(),
        );
    };
    let stop = Arc::new(Stop::default());
    let stopping = stop.clone();
    let interrupt = Interrupt::take(move |_| stopping.now())?;
    let bar = steps();
    let compacted = compact(volume, &stop, &mut |progress| bar.show(progress));
    drop(bar);
    let Compacted { before, after } = match (compacted, interrupt.signal()) {
        (Ok(compacted), _) => compacted,
        (Err(_), Some(signal)) => {
            tracing::warn!("interrupted: {location} is as it was");
            return Ok(ExitCode::from(u8::try_from(128 + signal).unwrap_or(u8::MAX)));
        }
        (Err(error), None) => return Err(error).with_context(|| format!("cannot compact volume {location}")),
    };
    if arguments.json {
        outln!("{:#}", json!({ "bytes_before": before, "bytes_after": after }));
        return Ok(ExitCode::SUCCESS);
    }
    let (before, after) = (size::show(before), size::show(after));
    outln!("{}: the database takes {after}, and took {before}", shown::path(&arguments.volume));
    Ok(ExitCode::SUCCESS)
}
