//! `weft set`.

use super::history::changed;
use crate::arguments::{Set, Setting};
use crate::{daemons, shown, size};
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::path::Path;
use std::process::ExitCode;
use weft_store::Limits;
use weft_vfs::LimitsChange;

/// Changes options of a volume, mounted or not.
pub fn run(arguments: &Set) -> Result<ExitCode> {
    let volume = shown::path(&arguments.volume);
    let (limits, commit) = set(&arguments.volume, change(&arguments.settings))
        .with_context(|| format!("cannot set options of volume {volume}"))?;
    if arguments.json {
        let Limits { bytes_max, inodes_max } = limits;
        outln!("{:#}", json!({ "bytes_max": bytes_max, "inodes_max": inodes_max, "commit": commit }));
        return Ok(ExitCode::SUCCESS);
    }
    let bytes = limits.bytes_max.map_or("any number of bytes".into(), size::show);
    let inodes = limits.inodes_max.map_or("any number".into(), |max| format!("at most {max}"));
    outln!("{volume} may store {bytes}, and hold {inodes} of files, directories and others");
    Ok(ExitCode::SUCCESS)
}

/// The change that `settings` make together; the last one of an option counts.
fn change(settings: &[Setting]) -> LimitsChange {
    let mut change = LimitsChange::default();
    for setting in settings {
        match *setting {
            Setting::SizeMax(bytes) => change.bytes_max = Some(bytes),
            Setting::InodesMax(inodes) => change.inodes_max = Some(inodes),
        }
    }
    change
}

/// Has the daemon that uses the volume make the change, or makes it. Returns the limits from now
/// on, and the last commit.
fn set(volume: &Path, change: LimitsChange) -> Result<(Limits, u64)> {
    let Some(daemon) = daemons::using(volume)? else {
        let (limits, commit) = changed(volume, |vfs| vfs.change_limits(change))?;
        return Ok((limits, commit.0));
    };
    let part = |limit: Option<Option<u64>>| match limit {
        None => "same".to_owned(),
        Some(None) => "none".to_owned(),
        Some(Some(limit)) => limit.to_string(),
    };
    let answer = daemon.answered(&format!("/limits/{}/{}", part(change.bytes_max), part(change.inodes_max)))?;
    let limit = |name: &str| match &answer[name] {
        Value::Null => Ok(None),
        told => told.as_u64().map(Some).context("the daemon's answer cannot be read"),
    };
    let limits = Limits { bytes_max: limit("bytes_max")?, inodes_max: limit("inodes_max")? };
    Ok((limits, answer["commit"].as_u64().context("the daemon's answer cannot be read")?))
}
