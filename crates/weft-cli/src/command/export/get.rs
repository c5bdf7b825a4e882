//! `weft get`: files and directories by name, from a volume into a directory that is there. It is
//! an export of single entries of directories.

use super::{Exporter, Finish, WORDS, refuse_in_volume};
use crate::arguments::Get;
use crate::command::transfer::{Directories, Place, Transfer, exit_code, find};
use crate::shown;
use anyhow::{Context, Result};
use std::ffi::OsStr;
use std::path::Path;
use std::process::ExitCode;
use weft_store::Moment;

/// Copies files and directories from volumes.
pub fn run(arguments: &Get) -> ExitCode {
    exit_code(get(arguments))
}

fn get(arguments: &Get) -> Result<ExitCode> {
    let transfer = Transfer::begin()?;
    for source in &arguments.sources {
        if !transfer.goes_on() {
            break;
        }
        let cannot = || format!("cannot get {}", shown::path(source.as_ref()));
        one(&transfer, source, arguments.at.as_ref(), &arguments.directory).with_context(cannot)?;
    }
    Ok(transfer.finish(&WORDS, arguments.json))
}

fn one(transfer: &Transfer, source: &OsStr, at: Option<&Moment>, directory: &Path) -> Result<()> {
    refuse_in_volume(source, directory)?;
    let place = Place::open_beside(source, at)?;
    transfer.stops(&place.opened.vfs);
    let (name, above) = place.path.split_last().context("say what of it: VOLUME:PATH; 'weft export' copies all")?;
    let from = find(&place.opened.vfs, above)?;
    let export = Exporter {
        vfs: &place.opened.vfs,
        transfer,
        finish: Finish::new(transfer),
        root: Directories::named(directory)?,
        claims: place.claims,
        go_on: false,
    };
    export.all(from, Some(name))?;
    rustix::fs::fsync(export.root.top()).with_context(|| format!("cannot sync {}", shown::path(directory)))?;
    if let Err(error) = place.close() {
        transfer.end_with(&error);
    }
    Ok(())
}
