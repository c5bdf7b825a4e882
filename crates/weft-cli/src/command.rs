//! The commands, one file each.

mod check;
mod convert;
mod export;
mod import;
mod info;
mod init;
mod mount;
mod pages;
mod stats;
mod transfer;
mod umount;

use crate::arguments::{Blocks, Command};
use anyhow::Result;
use std::fmt;
use std::process::ExitCode;
use weft_store::BlockHome;

/// Runs a command.
pub fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Init(arguments) => init::run(&arguments),
        Command::Mount(arguments) => mount::run(arguments),
        Command::Umount(arguments) => umount::run(&arguments),
        Command::Info(arguments) => info::run(&arguments),
        Command::Check(arguments) => check::run(&arguments),
        Command::Convert(arguments) => convert::run(&arguments),
        Command::Import(arguments) => import::run(&arguments),
        Command::Export(arguments) => export::run(&arguments),
        Command::Stats(arguments) => stats::run(&arguments),
        Command::Completions { shell } => pages::completions(shell),
        Command::Man { dir } => pages::man(dir.as_deref()),
    }
}

impl From<Blocks> for BlockHome {
    fn from(blocks: Blocks) -> BlockHome {
        match blocks {
            Blocks::Segments => BlockHome::Segments,
            Blocks::Database => BlockHome::Database,
        }
    }
}

/// Arguments that do not say anything sensible: the exit code is 2.
#[derive(Debug)]
pub struct Usage(String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// Refuses an argument; `error` says which and why.
fn usage<T>(error: String) -> Result<T> {
    Err(Usage(error).into())
}

/// A 32-bit option, or what to say of it.
fn narrow(what: &str, value: u64) -> Result<u32> {
    u32::try_from(value).or_else(|_| usage(format!("{what} {value} is too large")))
}
