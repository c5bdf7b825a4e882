//! `weft run`: a network without a volume.

use super::{net, usage};
use crate::arguments::Run as Arguments;
use crate::input::Inputs;
use crate::shown;
use anyhow::{Context, Result, bail};
use rustix::io::Errno;
use std::collections::{BTreeSet, VecDeque};
use std::io::{self, IoSlice, stdout};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use weft_block::Rope;
use weft_transform::{Described, Network, NetworkError, Run, RunError, Source, Sources};

/// Runs a network on files or the standard input.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let names = arguments.of.as_deref().map(net::all).transpose()?.unwrap_or_default();
    let text = &net::expanded(&arguments.network, &names)?;
    let mut network = match Network::parse(text) {
        Ok(network) => network,
        Err(error) => return usage(said(text, &error)),
    };
    if arguments.inverse {
        let stuck = network.stages().into_iter().find(|stage| stage.inverse.is_none()).map(|stage| stage.text);
        network = match network.inverse() {
            Some(inverse) => inverse,
            None => bail!("the network cannot be undone: nothing undoes '{}'", stuck.unwrap_or_default()),
        };
    }
    if arguments.no_fuse {
        network = network.unfused();
    }
    if arguments.show {
        show(&network);
        return Ok(ExitCode::SUCCESS);
    }
    if network.files() > arguments.files.len() {
        return usage(format!("the network reads file ${}, and {} were given", network.files(), arguments.files.len()));
    }
    let keys = arguments.keys.as_deref();
    let mut given = Given { files: &arguments.files, modules: network.modules(), keys };
    for rope in Run::start(&network, &mut given).map_err(explained)? {
        write_all(&rope.map_err(explained)?, stdout()).context("cannot write to the standard output")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns a message about an error in a network, with the text where it begins.
pub(super) fn said(text: &str, error: &NetworkError) -> String {
    let rest: String = text.get(error.at..).unwrap_or_default().chars().take(20).collect();
    if rest.is_empty() { format!("network: {error}, its end") } else { format!("network: {error}: '{rest}'") }
}

/// Returns `error`; an unreadable file reports its own.
pub(super) fn explained(error: RunError) -> anyhow::Error {
    match error {
        RunError::Source(source) => source.into(),
        other => other.into(),
    }
}

pub(super) fn show(network: &Network) {
    for Described { text, depth, keeps, inverse } in network.stages() {
        let keeps = match (keeps.length, keeps.place) {
            (true, true) => "length and places",
            (true, false) => "length",
            (false, _) => "nothing",
        };
        let inverse = inverse.map_or("nothing".into(), |inverse| format!("'{}'", shown::message(&inverse)));
        let (text, indent) = (shown::message(&text), "    ".repeat(depth));
        outln!("{indent}{text}\n{indent}    keeps {keeps}; undone by {inverse}");
    }
    outln!("gives {}", network.gives().name());
}

/// The named files.
struct Given<'a> {
    files: &'a [PathBuf],
    /// Numbers of files that hold code for the network.
    modules: &'a BTreeSet<usize>,
    /// Directory of keys.
    keys: Option<&'a Path>,
}

impl Sources for Given<'_> {
    fn input(&mut self) -> io::Result<Box<dyn Source>> {
        let is_data = |(number, _): &(usize, &PathBuf)| !self.modules.contains(number);
        Ok(Box::new(Inputs::of(self.files.iter().enumerate().filter(is_data).map(|(_, path)| path.clone()))))
    }

    fn file(&mut self, number: usize) -> io::Result<Box<dyn Source>> {
        Ok(Box::new(Inputs::of([self.files[number].clone()].into_iter())))
    }

    fn key(&mut self, name: &str) -> io::Result<Vec<u8>> {
        let none = || io::Error::new(io::ErrorKind::NotFound, "name the directory of the keys with --keys");
        weft_transform::read_key(self.keys.ok_or_else(none)?, name)
    }
}

/// Writes all of `rope` without copying it.
pub(super) fn write_all(rope: &Rope, to: impl AsFd) -> io::Result<()> {
    /// Most parts that writev(2) takes at once.
    const PARTS_MAX: usize = 1024;
    let mut parts: VecDeque<&[u8]> = rope.slices().iter().map(|slice| &slice[..]).collect();
    while !parts.is_empty() {
        let next: Vec<IoSlice<'_>> = parts.iter().take(PARTS_MAX).map(|part| IoSlice::new(part)).collect();
        let mut written = match rustix::io::writev(to.as_fd(), &next) {
            Ok(written) => written,
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        };
        // The kernel copies them.
        weft_block::copied(written);
        while let Some(first) = parts.front_mut() {
            if written < first.len() {
                *first = &first[written..];
                break;
            }
            written -= first.len();
            parts.pop_front();
        }
    }
    Ok(())
}
