//! `weft digest`: digests of files and directories, wherever they lie.

pub(super) mod difference;
pub(super) mod list;
mod plain;
mod stored;
mod tree;

use super::transfer::{Place, Progress};
use crate::arguments::Digest as Arguments;
use anyhow::{Context, Result, anyhow};
use list::Line;
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::io::{Write, stdout};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;
use tree::{Found, Whole};
use weft_digest::Digest;

/// Prints digests, or verifies lists of them.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let progress = Progress::new();
    let right = if arguments.check { check(arguments, &progress)? } else { print(arguments, &progress)? };
    progress.end();
    Ok(if right { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What `path` names: something in a volume if it says `VOLUME:PATH` and nothing else has that name, else where it is.
fn read<T>(
    path: &OsStr,
    in_volume: impl FnOnce(&Place) -> Result<T>,
    elsewhere: impl FnOnce(&Path) -> Result<T>,
) -> Result<T> {
    let Some(named) = path.to_str().filter(|named| named.contains(':') && !Path::new(named).exists()) else {
        return elsewhere(Path::new(path));
    };
    let place = Place::open(named, true)?;
    let read = in_volume(&place);
    place.close()?;
    read
}

/// All below the directory that `path` names, which may be one in a volume: `VOLUME:PATH`.
pub(super) fn whole(path: &OsStr, progress: &Progress) -> Result<Whole> {
    let whole = read(path, |place| stored::whole(place, progress), |path| plain::whole(path, progress));
    whole.with_context(|| format!("cannot read {}", path.display()))
}

/// The digest of what `path` names: a file or directory, or `VOLUME:PATH`.
fn digest_of(path: &OsStr, progress: &Progress) -> Result<Found> {
    let found = read(path, |place| stored::digest(place, progress), |path| plain::digest(path, progress));
    found.with_context(|| format!("cannot tell the digest of {}", path.display()))
}

/// False if one could not be told.
fn print(arguments: &Arguments, progress: &Progress) -> Result<bool> {
    let (mut values, mut all) = (Vec::new(), true);
    for path in &arguments.paths {
        match digest_of(path, progress) {
            Ok(found) if arguments.json => values.push(as_json(path, &found)),
            Ok(found) => stdout().write_all(&Line::new(path.as_bytes(), &found).encode())?,
            Err(error) => {
                all = false;
                progress.say(&format!("weft: {}", super::one_line(&error)));
            }
        }
    }
    if arguments.json {
        println!("{:#}", Value::from(values));
    }
    Ok(all)
}

fn as_json(path: &OsStr, found: &Found) -> Value {
    let kind = if found.is_directory { "directory" } else { "file" };
    json!({ "path": path.to_string_lossy(), "kind": kind, "digest": list::hex(&found.digest) })
}

/// False if something is not right.
fn check(arguments: &Arguments, progress: &Progress) -> Result<bool> {
    let (mut values, mut wrong, mut unreadable) = (Vec::new(), 0, 0);
    for list in &arguments.paths {
        let text = if list == "-" {
            std::io::read_to_string(std::io::stdin()).map(String::into_bytes)
        } else {
            std::fs::read(list)
        };
        let text = text.with_context(|| format!("cannot read the list {}", list.display()))?;
        let lines = text.split(|byte| *byte == b'\n').enumerate().filter(|(_, line)| !line.is_empty());
        for (number, line) in lines {
            let line = Line::decode(line).ok_or_else(|| {
                anyhow!("line {} of {} is not a digest, two blanks and a path", number + 1, list.display())
            })?;
            let path = OsStr::from_bytes(&line.path);
            let (outcome, why) = match digest_of(path, progress) {
                Ok(found) if found.digest == line.digest => ("OK", String::new()),
                Ok(_) => {
                    wrong += 1;
                    ("FAILED", String::new())
                }
                Err(error) => {
                    unreadable += 1;
                    ("FAILED", format!(" ({})", super::one_line(&error)))
                }
            };
            if arguments.json {
                values.push(json!({ "path": path.to_string_lossy(), "right": outcome == "OK", "why": why.trim() }));
            } else if outcome != "OK" || !arguments.quiet {
                let mut text = line.path.clone();
                text.extend(format!(": {outcome}{why}\n").into_bytes());
                stdout().write_all(&text)?;
            }
        }
    }
    if arguments.json {
        println!("{:#}", Value::from(values));
    }
    for (count, what) in [(wrong, "have another digest"), (unreadable, "could not be read")] {
        if count > 0 {
            progress.say(&format!("weft: {count} of the listed {what}"));
        }
    }
    Ok(wrong + unreadable == 0)
}

/// By what a directory lists the file at `path`.
pub(super) fn listed(path: &Path) -> Result<Digest> {
    plain::listed(path).with_context(|| format!("cannot read {}", path.display()))
}
