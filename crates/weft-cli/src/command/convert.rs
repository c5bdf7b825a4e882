//! `weft convert`.
//!
//! A volume in files is written under a name of its own, and renamed to the name that was asked for
//! once it is whole.

use super::check::{advise_on_segments, print_verdict, verdict_unchanged};
use super::transfer::{Unfinished, exit_code, steps};
use crate::advice::{filled, is_malformed};
use crate::arguments::Convert;
use crate::failure::usage;
use crate::findings::{damages, places};
use crate::shown;
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use weft_store::{BlockHome, ErrorKind, Finding, Location, postgres, sqlite};

/// Rewrites a volume in files with the other home for its blocks; changes the tables of one in
/// PostgreSQL.
pub fn run(arguments: &Convert) -> ExitCode {
    exit_code(convert(arguments))
}

fn convert(arguments: &Convert) -> Result<ExitCode> {
    let location = crate::mounted::unmounted(&arguments.volume)?;
    match (&location, &arguments.new, arguments.blocks, arguments.layout) {
        (Location::Postgres(address), None, None, Some(layout)) => {
            let bar = steps();
            let failed = || format!("cannot convert volume {location}");
            postgres::convert(address, layout.0, &mut |progress| bar.show(progress)).with_context(failed)?;
            drop(bar);
            match arguments.json {
                true => outln!("{}", summary(&location, None, 0, &[])),
                false => outln!("converted {address}"),
            }
            Ok(ExitCode::SUCCESS)
        }
        (Location::Files(_), Some(new), ..) if matches!(Location::parse(new)?, Location::Postgres(_)) => {
            usage("from files to PostgreSQL a volume goes by 'weft send' and 'weft receive'".into())
        }
        (Location::Files(volume), Some(new), Some(blocks), None) => {
            write_anew(&location, volume, new, blocks.into(), arguments.json)
        }
        (Location::Postgres(_), ..) => usage(
            "a volume in PostgreSQL is converted in place with --layout; to files it goes by 'weft send' and 'weft receive'".into(),
        ),
        (Location::Files(_), Some(_), None, None) => {
            usage("say where the blocks of the new volume are to lie: --blocks segments, or --blocks database".into())
        }
        (Location::Files(_), None, _, None) => usage(
            "say which volume to make, and where its blocks are to lie: 'weft convert VOLUME NEW --blocks segments', or \
             --blocks database"
                .into(),
        ),
        (Location::Files(_), ..) => {
            usage("only a volume in PostgreSQL has a --layout; name a new volume, and its --blocks".into())
        }
    }
}

fn write_anew(location: &Location, volume: &Path, new: &Path, home: BlockHome, json: bool) -> Result<ExitCode> {
    sqlite::Layout::find(volume).with_context(|| format!("cannot convert volume {location}"))?;
    sqlite::Layout::of(new, home).refuse_taken()?;
    let unfinished = Arc::new(Unfinished::of(new)?);
    unfinished.refuse_left()?;
    unfinished.go_when_interrupted(format!("{location} is as it was, and {} was not made", new.display()))?;
    let bar = steps();
    let mut blocks = 0;
    let converted = unfinished.making.convert(volume, &unfinished.path, home, &mut |progress| {
        blocks = progress.total;
        bar.show(progress);
    });
    drop(bar);
    let named = converted.map_err(anyhow::Error::from).and_then(|()| unfinished.finish(new));
    let Err(error) = named else {
        match json {
            true => outln!("{}", summary(location, Some(new), blocks, &[])),
            false => outln!("made {}; {location} is as it was", new.display()),
        }
        return Ok(ExitCode::SUCCESS);
    };
    let is_damage = error.downcast_ref::<weft_store::Error>().is_some_and(|error| error.kind() == ErrorKind::Corrupt);
    let error = error.context(format!("cannot convert volume {location}"));
    if !is_damage {
        return Err(error);
    }
    tell_damage(location, &error, json)
}

/// Names damage by path, which a conversion alone cannot do.
fn tell_damage(location: &Location, error: &anyhow::Error, json: bool) -> Result<ExitCode> {
    let bar = steps();
    let findings = location.engine().scrub(&mut |progress| bar.show(progress));
    drop(bar);
    tracing::error!("{}", crate::failure::one_line(error));
    let mut findings = findings.unwrap_or_default();
    advise_on_segments(&mut findings, None);
    if json {
        let mut summary = summary(location, None, 0, &findings);
        summary["complete"] = false.into();
        outln!("{summary}");
    } else {
        findings.iter().for_each(|finding| outln!("{}", shown::message(&filled(&finding.to_string()))));
        // The error that ended the conversion of a database that SQLite cannot read gives the
        // advice.
        if is_malformed(error) {
            outln!("{location}: {} found; follow the advice above", damages(places(&findings).max(1)));
        } else {
            print_verdict(location, &verdict_unchanged(&findings, None));
        }
    }
    Ok(ExitCode::FAILURE)
}

fn summary(location: &Location, new: Option<&Path>, blocks: u64, findings: &[Finding]) -> Value {
    let one = |finding: &Finding| {
        let path = finding.path.as_ref().map(|path| String::from_utf8_lossy(path));
        json!({ "path": path, "what": finding.what })
    };
    json!({
        "complete": true,
        "volume": location.to_string(),
        "new": new.map(|new| new.to_string_lossy()),
        "blocks": blocks,
        "damaged": places(findings),
        "findings": findings.iter().map(one).collect::<Vec<_>>(),
    })
}
