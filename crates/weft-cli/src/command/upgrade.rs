//! `weft upgrade`.

use super::transfer::steps;
use crate::arguments::Upgrade;
use anyhow::{Context, Result};
use serde_json::json;
use std::process::ExitCode;
use weft_store::Upgraded;

/// Upgrades a volume to the format of this program, or prints what that would take.
pub fn run(arguments: &Upgrade) -> Result<ExitCode> {
    let location = crate::mounted::unmounted(&arguments.volume)?;
    // Older formats, and newer ones, cannot be read.
    if location.engine().header().is_ok() {
        match arguments.json {
            true => outln!("{:#}", json!({ "from": weft_store::FORMAT, "to": weft_store::FORMAT, "changed": false })),
            false => {
                outln!("{location} has the current format {} already; nothing was changed", weft_store::FORMAT);
            }
        }
        return Ok(ExitCode::SUCCESS);
    }
    let mode = if arguments.dry_run { weft_store::Upgrade::DryRun } else { weft_store::Upgrade::Now };
    let bar = steps();
    let upgraded = location.engine().upgrade(mode, &mut |progress| bar.show(progress));
    drop(bar);
    let Upgraded { from, to, rows, bytes_needed } =
        upgraded.with_context(|| format!("cannot upgrade volume {location}"))?;
    if arguments.json {
        let changed = mode == weft_store::Upgrade::Now;
        outln!(
            "{:#}",
            json!({ "from": from, "to": to, "changed": changed, "rows": rows, "bytes_needed": bytes_needed })
        );
        return Ok(ExitCode::SUCCESS);
    }
    let space = bytes_needed.map(|bytes| format!(", with up to {bytes} bytes of free space meanwhile"));
    let space = space.unwrap_or_default();
    match mode {
        weft_store::Upgrade::DryRun => {
            outln!("{location} would go from format {from} to {to}: {rows} rows{space}; nothing was changed");
        }
        weft_store::Upgrade::Now => outln!("{location} went from format {from} to {to}: {rows} rows"),
    }
    Ok(ExitCode::SUCCESS)
}
