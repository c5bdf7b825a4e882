//! `weft diff`.

use super::digest::difference::{Change, Difference, differences};
use super::digest::list::escape;
use super::digest::whole;
use super::transfer::Progress;
use crate::arguments::Diff;
use anyhow::Result;
use serde_json::{Value, json};
use std::io::{Write, stdout};
use std::process::ExitCode;

/// Tells where two trees differ. Exit codes are those of diff(1).
pub fn run(arguments: &Diff) -> Result<ExitCode> {
    let progress = Progress::new();
    let found = compare(arguments, &progress);
    progress.end();
    let found = match found {
        Ok(found) => found,
        Err(error) => {
            eprintln!("weft: {}", super::one_line(&error));
            return Ok(ExitCode::from(2));
        }
    };
    if arguments.json {
        println!("{:#}", Value::from(found.iter().map(as_json).collect::<Vec<_>>()));
    } else {
        found.iter().try_for_each(print)?;
    }
    Ok(if found.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn compare(arguments: &Diff, progress: &Progress) -> Result<Vec<Difference>> {
    let first = whole(&arguments.first, progress)?;
    let second = whole(&arguments.second, progress)?;
    Ok(differences(&first, &second))
}

fn word(change: Change) -> &'static str {
    match change {
        Change::Added => "added",
        Change::Deleted => "deleted",
        Change::Kind => "kind",
        Change::Content => "content",
        Change::Permissions => "permissions",
    }
}

fn print(difference: &Difference) -> Result<()> {
    let mut line = format!("{:<12}", word(difference.change)).into_bytes();
    line.extend(escape(&difference.path));
    line.extend(if difference.is_directory { &b"/\n"[..] } else { b"\n" });
    Ok(stdout().write_all(&line)?)
}

fn as_json(difference: &Difference) -> Value {
    let path = String::from_utf8_lossy(&difference.path);
    json!({ "change": word(difference.change), "path": path, "directory": difference.is_directory })
}
