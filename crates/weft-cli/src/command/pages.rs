//! `weft completions` and `weft man`: made from the definitions that parse the arguments.

use crate::arguments::Arguments;
use crate::output;
use anyhow::{Context, Result};
use clap::CommandFactory;
use std::path::Path;
use std::process::ExitCode;

/// Prints a completion script.
pub fn completions(shell: clap_complete::Shell) -> Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "weft", &mut script);
    output::write(&script);
    Ok(ExitCode::SUCCESS)
}

/// Prints the page of the program, or writes one for each command into `directory`.
pub fn man(directory: Option<&Path>) -> Result<ExitCode> {
    match directory {
        Some(directory) => {
            clap_mangen::generate_to(Arguments::command(), directory)
                .with_context(|| format!("cannot write manual pages to {}", directory.display()))?;
        }
        None => {
            let mut page = Vec::new();
            clap_mangen::Man::new(Arguments::command()).render(&mut page)?;
            output::write(&page);
        }
    }
    Ok(ExitCode::SUCCESS)
}
