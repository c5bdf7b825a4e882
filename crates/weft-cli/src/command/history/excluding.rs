//! `weft history exclude`.

use super::ordered;
use crate::arguments::ExcludeHistory as Arguments;
use crate::command::digest::list::escape;
use crate::mounted::volume_named;
use crate::{output, shown};
use anyhow::{Context, Result};
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
    if arguments.remove {
        let include = |vfs: &Vfs| vfs.include_in_history(bytes);
        ordered(&arguments.volume, &path_target("/history/include", bytes), include).with_context(what)?;
        outln!("{volume} keeps history of '{word}' again, from now on");
    } else {
        let exclude = |vfs: &Vfs| vfs.exclude_from_history(bytes);
        ordered(&arguments.volume, &path_target("/history/exclude", bytes), exclude).with_context(what)?;
        outln!("{volume} gives up earlier content of '{word}' some minutes after it is replaced");
    }
    Ok(())
}

fn list(arguments: &Arguments) -> Result<()> {
    let location = volume_named(&arguments.volume)?;
    let opened = location.engine().open_beside(OpenOptions::default());
    let opened = opened.with_context(|| format!("cannot open volume {location}"))?;
    let patterns = excluded_patterns(&*opened.store).with_context(|| format!("cannot read volume {location}"))?;
    for pattern in patterns {
        output::write(&[&escape(&pattern)[..], b"\n"].concat());
    }
    Ok(())
}
