//! `weft cat`: as cat(1), which has no options that matter, and of files as they were.

use super::each_file;
use crate::arguments::Cat;
use crate::command::subject::{self, Subject};
use crate::command::transfer::Place;
use crate::failure::{one_line, usage};
use crate::input::STANDARD_INPUT;
use crate::named::volume_and_path;
use crate::shown;
use anyhow::{Context, Result};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write, stdin, stdout};
use std::path::PathBuf;
use std::process::ExitCode;
use weft_store::Moment;

/// Writes files one after the other.
pub fn cat(arguments: &Cat) -> Result<ExitCode> {
    match &arguments.at {
        Some(_) if arguments.files.is_empty() => usage("--at takes files of a volume: name some".into()),
        Some(at) => Ok(as_of(at, arguments)),
        None => Ok(present(arguments)),
    }
}

/// Writes files as they are. The kernel moves bytes without a copy where it can
/// (copy_file_range(2), splice(2)).
fn present(arguments: &Cat) -> ExitCode {
    each_file("cat", &arguments.files, |file| {
        let mut stdout = stdout().lock();
        let copied = match file == STANDARD_INPUT {
            true => io::copy(&mut stdin(), &mut stdout),
            false => match volume_and_path(file) {
                Some(_) => return in_volume(file).map_err(|error| io::Error::other(one_line(&error))),
                None => io::copy(&mut File::open(file)?, &mut stdout),
            },
        };
        copied.map(|_| ())
    })
}

/// Writes a file of a volume.
fn in_volume(file: &OsStr) -> Result<()> {
    let place = Place::open_beside(file, None)?;
    subject::read(&place.opened.vfs, &place.path, print)?;
    place.close()
}

fn print(bytes: &[u8]) -> Result<()> {
    stdout().lock().write_all(bytes).context("the standard output cannot be written")
}

/// Writes files as they were at a moment. Reports failures, and goes on with the others.
fn as_of(at: &Moment, arguments: &Cat) -> ExitCode {
    let mut past = Past { at, open: None };
    let mut code = ExitCode::SUCCESS;
    let mut report = |error: &anyhow::Error| {
        errln!("weft: {}", shown::message(&one_line(error)));
        code = ExitCode::FAILURE;
    };
    for file in &arguments.files {
        if let Err(error) = past.print(file) {
            report(&error.context(format!("cannot read {} as it was", shown::path(file.as_ref()))));
        }
    }
    if let Err(error) = past.close() {
        report(&error);
    }
    code
}

/// A moment of the volume that was read last.
struct Past<'a> {
    at: &'a Moment,
    open: Option<(PathBuf, Place)>,
}

impl Past<'_> {
    fn print(&mut self, file: &OsStr) -> Result<()> {
        let subject = Subject::demand(file)?;
        if self.open.as_ref().is_none_or(|(named, _)| *named != subject.named) {
            self.close()?;
        }
        let (_, place) = match self.open.take() {
            Some(open) => self.open.insert(open),
            None => self.open.insert((subject.named.clone(), subject.open_at(self.at)?)),
        };
        subject::read(&place.opened.vfs, &subject.names()?, print)
    }

    fn close(&mut self) -> Result<()> {
        self.open.take().map_or(Ok(()), |(_, place)| place.close())
    }
}
