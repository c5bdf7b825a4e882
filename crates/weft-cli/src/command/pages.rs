//! `weft completions` and `weft man`: made from the definitions that parse the arguments.

use crate::arguments::Arguments;
use crate::output;
use anyhow::{Context, Result};
use clap::CommandFactory;
use clap_mangen::Man;
use std::io;
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
            let mut program = Arguments::command().disable_help_subcommand(true);
            program.build();
            write_pages(program, directory)
                .with_context(|| format!("cannot write manual pages to {}", directory.display()))?;
        }
        None => output::write(&page(&Man::new(Arguments::command()))?),
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes the page of `command`, and those of its commands.
fn write_pages(command: clap::Command, directory: &Path) -> io::Result<()> {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()).cloned() {
        write_pages(below, directory)?;
    }
    let man = Man::new(command);
    std::fs::write(directory.join(man.get_filename()), page(&man)?)
}

/// Renders the page. Examples have the section that man-pages(7) has for them; clap_mangen calls
/// the text after the options EXTRA.
fn page(man: &Man) -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    man.render(&mut page)?;
    let page = String::from_utf8(page).map_err(io::Error::other)?;
    Ok(page.replace(".SH EXTRA\nExamples:\n", ".SH EXAMPLES\n").into_bytes())
}
