//! `weft scrub`.

use super::check::verdict_unchanged;
use super::mounted::volume_at;
use super::places;
use super::transfer::steps;
use crate::advice::filled;
use crate::arguments::Scrub;
use crate::shown;
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::process::ExitCode;
use weft_store::{Finding, Location};

/// Reads and verifies all of a volume. Exit code 1 if something is damaged.
pub fn run(arguments: &Scrub) -> Result<ExitCode> {
    let volume = Location::parse(&volume_at(&arguments.volume))?;
    super::tell(volume.note(false));
    super::tell(volume.waiting().ok().and_then(|waiting| waiting.note()));
    let bar = steps();
    let findings = volume.scrub(&mut |progress| bar.show(progress));
    drop(bar);
    let findings = findings.with_context(|| format!("cannot scrub volume {volume}"))?;
    if arguments.json {
        let one = |finding: &Finding| {
            let path = finding.path.as_ref().map(|path| String::from_utf8_lossy(path));
            json!({ "path": path, "what": finding.what })
        };
        let damaged = places(&findings);
        let findings = findings.iter().map(one).collect::<Vec<Value>>();
        outln!("{:#}", json!({ "damaged": damaged, "findings": findings }));
    } else {
        findings.iter().for_each(|finding| outln!("{}", shown::message(&filled(&finding.to_string()))));
        match findings.len() {
            0 => outln!("{volume}: no damage"),
            _ => outln!("{volume}: {}", filled(&verdict_unchanged(&findings))),
        }
    }
    Ok(if findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
