//! `weft run`: a network without a volume.

use super::networks::{self, explained, said, show, write_all};
use crate::arguments::Run as Arguments;
use crate::failure::usage;
use crate::input::Inputs;
use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::io::{self, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use weft_transform::{Network, Run, Source, Sources};

/// Runs a network on files or the standard input.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let names = arguments.of.as_deref().map(networks::all).transpose()?.unwrap_or_default();
    let text = &networks::expanded(&arguments.network, &names)?;
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
