//! The commands, one file each.

mod check;
mod convert;
mod export;
mod import;
mod info;
mod init;
pub mod mount;
mod pages;
mod stats;
mod transfer;
mod umount;

use crate::arguments::{Blocks, Command};
use anyhow::Result;
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

/// A 32-bit option, or what to say of it.
fn narrow(what: &str, value: u64) -> Result<u32> {
    u32::try_from(value).map_err(|_| anyhow::anyhow!("{what} {value} is too large"))
}
