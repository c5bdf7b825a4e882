//! `weft diff`.

use super::digest::difference::{Change, Difference, differences};
use super::digest::list::escape;
use super::digest::{Source, refuse_volume};
use super::transfer::{Progress, path_as_json};
use crate::arguments::{Diff, Digest};
use crate::failure::{one_line, usage};
use crate::{output, shown};
use anyhow::{Context, Result};
use serde_json::Value;
use std::ffi::OsStr;
use std::process::ExitCode;

/// Prints the differences of the two trees that `weft digest --tree` names.
pub fn trees(arguments: &Digest) -> Result<ExitCode> {
    let [first, second] = &arguments.paths[..] else {
        return usage("--tree compares two trees: give two paths".into());
    };
    let (first, second) = (first.clone(), second.clone());
    run(&Diff { first, second, read: arguments.read, json: arguments.json })
}

/// Prints the differences of two trees. Exit codes are those of diff(1).
pub fn run(arguments: &Diff) -> Result<ExitCode> {
    [&arguments.first, &arguments.second].into_iter().try_for_each(|path| refuse_volume(path))?;
    let progress = Progress::new();
    let found = compare(arguments, &progress);
    progress.end();
    let found = match found {
        Ok(found) => found,
        Err(error) => {
            errln!("weft: {}", shown::message(&one_line(&error)));
            return Ok(ExitCode::from(2));
        }
    };
    if arguments.json {
        outln!("{:#}", Value::from(found.iter().map(as_json).collect::<Vec<_>>()));
    } else {
        found.iter().for_each(print);
    }
    Ok(if found.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn compare(arguments: &Diff, progress: &Progress) -> Result<Vec<Difference>> {
    let Diff { first, second, read, .. } = arguments;
    let cannot = |path: &OsStr| format!("cannot read {}", path.display());
    let source = Source::open(first).with_context(|| cannot(first))?;
    let beside = source.open_beside(second).with_context(|| cannot(second))?;
    let first = source.directory(*read, progress).with_context(|| cannot(first))?;
    let second = beside.directory(*read, progress).with_context(|| cannot(second))?;
    let found = differences(first, second)?;
    beside.close()?;
    source.close()?;
    Ok(found)
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

fn print(difference: &Difference) {
    let mut line = format!("{:<12}", word(difference.change)).into_bytes();
    line.extend(escape(&difference.path));
    line.extend(if difference.is_directory { &b"/\n"[..] } else { b"\n" });
    output::write(&line);
}

fn as_json(difference: &Difference) -> Value {
    let mut value = path_as_json(&difference.path);
    value.insert("change".into(), word(difference.change).into());
    value.insert("directory".into(), difference.is_directory.into());
    value.into()
}
