//! The `weft` program: volumes made, mounted, looked at and checked.

mod arguments;
mod command;
mod daemon;
mod size;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut words: Vec<_> = std::env::args_os().collect();
    if let Some(helper) = command::mount::helper_arguments(&words) {
        words = helper;
    }
    let arguments = arguments::Arguments::parse_from(words);
    match command::run(arguments.command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("weft: {error:#}");
            ExitCode::FAILURE
        }
    }
}
