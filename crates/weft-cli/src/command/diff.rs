//! `weft diff`.

mod unified;

use super::digest::difference::{Change, Difference, differences, of_entries};
use super::digest::list::escape;
use super::digest::{Source, refuse_volume};
use super::subject::Subject;
use super::transfer::{Progress, path_as_json};
use crate::arguments::{Diff, Digest, Shown};
use crate::failure::{one_line, usage};
use crate::{output, shown};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::ffi::{OsStr, OsString};
use std::process::ExitCode;
use unified::{Names, Unified};
use weft_store::Moment;

/// Prints the differences of the two trees that `weft digest --tree` names.
pub fn trees(arguments: &Digest) -> Result<ExitCode> {
    let [first, second] = &arguments.paths[..] else {
        return usage("--tree compares two trees: give two paths".into());
    };
    let shown = Shown { content: false, read: arguments.read, json: arguments.json };
    two_trees(first, second, &shown)
}

/// Prints the differences of two trees, or of two moments. Exit codes are those of diff(1).
pub fn run(arguments: &Diff) -> Result<ExitCode> {
    let Diff { first, second, at, shown } = arguments;
    match (&at[..], second) {
        ([], Some(second)) => two_trees(first, second, shown),
        ([], None) => usage("give two trees, or --at MOMENT and a path".into()),
        ([from], None) => Ok(moments(|| Subject::demand(first), [from, &Moment::Now], shown)),
        ([from, to], None) => Ok(moments(|| Subject::demand(first), [from, to], shown)),
        (_, None) => usage("there are two moments at most".into()),
        (_, Some(_)) => usage("--at compares moments of one path: give one".into()),
    }
}

fn two_trees(first: &OsStr, second: &OsStr, shown: &Shown) -> Result<ExitCode> {
    [first, second].into_iter().try_for_each(refuse_volume)?;
    let names = [first, second].map(|path| {
        let mut name = path.to_owned();
        name.push("/");
        name
    });
    Ok(exit_code(compare(first, second, shown, &names)))
}

/// Prints the differences between two moments of the subject.
pub fn moments(subject: impl FnOnce() -> Result<Subject>, moments: [&Moment; 2], shown: &Shown) -> ExitCode {
    exit_code(subject().and_then(|subject| compare_moments(&subject, moments, shown)))
}

/// Returns the exit code of a comparison that found differences or not, or failed.
fn exit_code(differ: Result<bool>) -> ExitCode {
    match differ {
        Ok(differ) => ExitCode::from(u8::from(differ)),
        Err(error) => {
            errln!("weft: {}", shown::message(&one_line(&error)));
            ExitCode::from(2)
        }
    }
}

fn compare(first: &OsStr, second: &OsStr, shown: &Shown, names: &[OsString; 2]) -> Result<bool> {
    let progress = Progress::new();
    let cannot = |path: &OsStr| format!("cannot read {}", path.display());
    let source = Source::open(first).with_context(|| cannot(first))?;
    let beside = source.open_beside(second).with_context(|| cannot(second))?;
    let found = {
        let first = source.directory(shown.read, &progress).with_context(|| cannot(first))?;
        let second = beside.directory(shown.read, &progress).with_context(|| cannot(second))?;
        differences(first, second)
    };
    progress.end();
    let found = found?;
    report(&found, shown, Unified { sources: [&source, &beside], names: Names::Before(names), is_one: false })?;
    beside.close()?;
    source.close()?;
    Ok(!found.is_empty())
}

fn compare_moments(subject: &Subject, moments: [&Moment; 2], shown: &Shown) -> Result<bool> {
    let cannot = || format!("cannot read {}", subject.shown_in_volume());
    let progress = Progress::new();
    let ([source, beside], commits) = Source::of_moments(subject, moments).with_context(cannot)?;
    let names = subject.names()?;
    let name = names.last().map_or(&b""[..], |name| name);
    let (found, is_one) = {
        let first = source.item(shown.read, &progress).with_context(cannot)?;
        let second = beside.item(shown.read, &progress).with_context(cannot)?;
        ensure!(first.is_some() || second.is_some(), "at neither moment there is {}", subject.shown_in_volume());
        let is_one = [&first, &second].into_iter().flatten().any(|item| item.below.is_none());
        (of_entries(name, [first, second]).with_context(cannot)?, is_one)
    };
    progress.end();
    let labels = commits.map(|commit| format!("@{}", commit.0));
    report(&found, shown, Unified { sources: [&source, &beside], names: Names::Behind(&labels), is_one })?;
    beside.close()?;
    source.close()?;
    Ok(!found.is_empty())
}

/// Prints all differences.
fn report(found: &[Difference], shown: &Shown, unified: Unified<'_>) -> Result<()> {
    let mut values = Vec::new();
    for difference in found {
        let content = if shown.content { unified.of(difference)? } else { None };
        if shown.json {
            values.push(as_json(difference, content.as_deref()));
        } else {
            print(difference);
            output::write(content.as_deref().unwrap_or_default());
        }
    }
    if shown.json {
        outln!("{:#}", Value::from(values));
    }
    Ok(())
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
    line.extend(if difference.is_directory() { &b"/\n"[..] } else { b"\n" });
    output::write(&line);
}

fn as_json(difference: &Difference, content: Option<&[u8]>) -> Value {
    let mut value = path_as_json(&difference.path);
    value.insert("change".into(), word(difference.change).into());
    value.insert("directory".into(), difference.is_directory().into());
    if let Some(content) = content {
        value.insert("diff".into(), String::from_utf8_lossy(content).into());
    }
    value.into()
}
