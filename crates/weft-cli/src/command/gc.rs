//! `weft gc`.

use super::transfer::steps;
use crate::arguments::Gc;
use crate::opened::{Opened, Settings};
use crate::{daemons, shown, size};
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::process::ExitCode;
use std::time::Duration;
use weft_store::{CommitNo, OpenOptions, Progress};
use weft_vfs::{ClockJump, Collected, Vfs};

/// Removes what no kept commit sees.
pub fn run(arguments: &Gc) -> Result<ExitCode> {
    let volume = &arguments.volume;
    let what = || format!("cannot remove dead history of volume {}", shown::path(volume));
    let (freed, jump) = collect(volume).with_context(what)?;
    if arguments.json {
        outln!("{:#}", json!({ "bytes_free": freed, "clock_jump_seconds": jump.map(|jump| jump.0.as_secs()) }));
        return Ok(ExitCode::SUCCESS);
    }
    outln!("{}: nothing is left that no kept commit sees; {} became free", shown::path(volume), size::show(freed));
    crate::notes::tell(jump.map(|jump| jump.to_string()));
    Ok(ExitCode::SUCCESS)
}

/// Has all steps made, by the daemon that uses the volume or here. Returns the bytes that the place
/// of the volume gained, and the jump of the clock because of which the rule dropped nothing.
fn collect(volume: &std::path::Path) -> Result<(u64, Option<ClockJump>)> {
    if let Some(daemon) = daemons::using(volume)? {
        return all_steps(|since| {
            let since = since.map_or(0, |commit| commit.0);
            collected(&daemon.answered(&format!("/history/collect/{since}"))?)
        });
    }
    let opened = Opened::open(volume, Settings::default(), OpenOptions::default())?;
    let vfs: &Vfs = &opened.vfs;
    let done = all_steps(|since| Ok(vfs.collect_history(since)?));
    opened.close()?;
    done
}

/// Makes steps until nothing is left.
fn all_steps(step: impl Fn(Option<CommitNo>) -> Result<Collected>) -> Result<(u64, Option<ClockJump>)> {
    let bar = steps();
    let first = step(None)?;
    let mut now = first;
    while !now.is_done {
        bar.show(Progress { step: "removing dead history", done: now.swept.0, total: now.until.0.max(now.swept.0) });
        now = step(Some(first.since))?;
    }
    Ok((now.bytes_free.saturating_sub(first.bytes_before), now.clock_jump))
}

/// Reads the answer of a daemon.
fn collected(answer: &Value) -> Result<Collected> {
    let number = |name: &str| answer[name].as_u64().context("the daemon's answer cannot be read");
    Ok(Collected {
        since: CommitNo(number("since")?),
        swept: CommitNo(number("swept")?),
        until: CommitNo(number("until")?),
        is_done: answer["is_done"].as_bool().context("the daemon's answer cannot be read")?,
        bytes_before: number("bytes_before")?,
        bytes_free: number("bytes_free")?,
        clock_jump: answer["clock_jump_seconds"].as_u64().map(|seconds| ClockJump(Duration::from_secs(seconds))),
    })
}
