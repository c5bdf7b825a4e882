//! `weft scrub`.

use super::check::{advise_on_segments, print_verdict, verdict_unchanged};
use super::sync;
use super::transfer::steps;
use crate::advice::filled;
use crate::arguments::Scrub;
use crate::findings::places;
use crate::mounted::{directory_of, is_mount_point, volume_named};
use crate::shown;
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::process::ExitCode;
use weft_store::Finding;

/// Reads and verifies all of a volume. Exit code 1 if something is damaged.
pub fn run(arguments: &Scrub) -> Result<ExitCode> {
    let volume = volume_named(&arguments.volume)?;
    let mounted = match is_mount_point(&arguments.volume) {
        true => Some(arguments.volume.clone()),
        false => directory_of(&volume),
    };
    // Damage may keep it from that.
    sync::commit_first(&arguments.volume, &volume, "the scrub reads the last commit");
    crate::notes::tell(volume.engine().note(false));
    let bar = steps();
    let findings = volume.engine().scrub(&mut |progress| bar.show(progress));
    drop(bar);
    let mut findings = findings.with_context(|| format!("cannot scrub volume {volume}"))?;
    advise_on_segments(&mut findings, mounted.as_deref());
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
            _ => print_verdict(&volume, &verdict_unchanged(&findings, mounted.as_deref())),
        }
    }
    Ok(if findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
