//! `weft history exclude`.

use super::ordered;
use crate::arguments::ExcludeHistory as Arguments;
use crate::command::digest::list::escape;
use crate::mounted::volume_named;
use crate::{output, shown};
use anyhow::{Context, Result};
use serde_json::json;
use std::os::unix::ffi::OsStrExt;
use weft_control::path_target;
use weft_store::OpenOptions;
use weft_vfs::{Vfs, excluded_patterns};

/// Excludes paths from history, includes them again, or lists those that are excluded.
pub(super) fn run(arguments: &Arguments) -> Result<()> {
    let Some(pattern) = &arguments.pattern else { return list(arguments) };
    let volume = shown::path(&arguments.volume);
    let what = || format!("cannot set what is excluded from the history of volume {volume}");
    let bytes = pattern.as_bytes();
    let word = shown::message(&pattern.to_string_lossy());
    let (order, word_of_json) = if arguments.remove { ("include", "included") } else { ("exclude", "excluded") };
    let change = |vfs: &Vfs| match arguments.remove {
        true => vfs.include_in_history(bytes),
        false => vfs.exclude_from_history(bytes),
    };
    let commit = ordered(&arguments.volume, &path_target(&format!("/history/{order}"), bytes), change);
    let commit = commit.with_context(what)?;
    if arguments.json {
        outln!("{:#}", json!({ word_of_json: [String::from_utf8_lossy(bytes)], "commit": commit }));
    } else if arguments.remove {
        outln!("{volume} keeps history of '{word}' again, from now on");
    } else {
        outln!("{volume} gives up earlier content of '{word}' some minutes after it is replaced");
    }
    Ok(())
}

fn list(arguments: &Arguments) -> Result<()> {
    let location = volume_named(&arguments.volume)?;
    let opened = location.engine().open_beside(OpenOptions::default());
    let opened = opened.with_context(|| format!("cannot open volume {location}"))?;
    let patterns = excluded_patterns(&*opened.store).with_context(|| format!("cannot read volume {location}"))?;
    if arguments.json {
        let patterns = patterns.iter().map(|pattern| String::from_utf8_lossy(pattern)).collect::<Vec<_>>();
        outln!("{:#}", json!({ "excluded": patterns }));
        return Ok(());
    }
    for pattern in patterns {
        output::write(&[&escape(&pattern)[..], b"\n"].concat());
    }
    Ok(())
}
