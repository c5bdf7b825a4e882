//! `weft completions` and `weft man`: made from the definitions that parse the arguments.

mod markdown;
mod others;

use super::mount::options::is_option;
use crate::arguments::Arguments;
use crate::output;
use anyhow::{Context, Result, ensure};
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

/// Prints the page of the program, or writes all pages below `directory`, by their sections.
pub fn man(directory: Option<&Path>) -> Result<ExitCode> {
    match directory {
        Some(directory) => {
            let mut program = Arguments::command().disable_help_subcommand(true);
            program.build();
            ensure!(directory.is_dir(), "there is no directory {}; make it first", directory.display());
            write_all(program, directory)
                .with_context(|| format!("cannot write manual pages to {}", directory.display()))?;
        }
        None => output::write(&page(Arguments::command())?),
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes all pages below `directory`.
fn write_all(program: clap::Command, directory: &Path) -> io::Result<()> {
    let [commands, conventions, administration] = ["man1", "man7", "man8"].map(|section| directory.join(section));
    for section in [&commands, &conventions, &administration] {
        std::fs::create_dir_all(section)?;
    }
    std::fs::write(conventions.join("weft-networks.7"), others::networks())?;
    let helper = program.find_subcommand("mount").map(|mount| others::helper(mount, is_option));
    std::fs::write(administration.join("mount.weft.8"), helper.unwrap_or_default())?;
    for name in ["mount.fuse.weft", "umount.weft", "umount.fuse.weft"] {
        std::fs::write(administration.join(format!("{name}.8")), ".so man8/mount.weft.8\n")?;
    }
    write_pages(program, &commands)
}

/// Writes the page of `command`, and those of its commands.
fn write_pages(command: clap::Command, directory: &Path) -> io::Result<()> {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()).cloned() {
        write_pages(below, directory)?;
    }
    let name = Man::new(command.clone()).get_filename();
    std::fs::write(directory.join(name), page(command)?)
}

/// Beginning of the last sentences of a command's help, about its exit codes.
const EXIT_CODES: &str = "Exit code ";

/// Commands whose pages name environment variables and files.
const OF_DAEMONS: &[&str] = &["weft", "weft mount", "weft serve"];

/// Pages on commands that belong together.
const RELATED: &[&[&str]] = &[
    &[
        "weft-mount",
        "weft-umount",
        "weft-serve",
        "weft-mcp",
        "weft-status",
        "weft-sync",
        "weft-stats",
        "weft-stop",
        "mount.weft",
        "mount",
        "fstab",
    ],
    &["weft-init", "weft-info", "weft-set", "weft-convert", "weft-compact", "weft-upgrade"],
    &["weft-check", "weft-scrub", "weft-log"],
    &["weft-history", "weft-log", "weft-mount", "weft-export"],
    &["weft-import", "weft-export", "weft-put", "weft-get", "weft-ls", "weft-cp", "weft-cat"],
    &["weft-digest", "weft-diff", "weft-prove", "weft-verify-proof"],
    &["weft-keygen", "weft-sign", "weft-verify"],
    &["weft-link", "weft-net", "weft-run", "weft-pipe", "weft-stages", "weft-networks"],
    &["weft-cat", "weft-grep", "weft-wc", "weft-sum", "weft-permute", "weft-stages"],
];

/// Renders the page, in the sections of man-pages(7).
fn page(mut command: clap::Command) -> io::Result<Vec<u8>> {
    let about = command.get_long_about().map(ToString::to_string).unwrap_or_default();
    let (about, codes) = about.find(EXIT_CODES).map_or((about.as_str(), ""), |at| about.split_at(at));
    let description = about.split_once("\n\n").map_or(about, |(_, rest)| rest).trim().to_owned();
    let description = if description.is_empty() { about.trim().to_owned() } else { description };
    if !description.is_empty() {
        command = command.long_about(description);
    }
    let name = command.get_bin_name().unwrap_or("weft").to_owned();
    let usage = command.render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ").replace('\n', "\n.br\n").replace('-', "\\-");
    let (has_options, has_commands) = (command.get_arguments().next().is_some(), command.has_subcommands());
    let has_version = command.get_version().is_some();
    let has_examples = command.get_after_long_help().is_some();
    let man = Man::new(command);
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    page.extend(format!(".SH SYNOPSIS\n{usage}\n").into_bytes());
    man.render_description_section(&mut page)?;
    if has_options {
        man.render_options_section(&mut page)?;
    }
    if has_commands {
        man.render_subcommands_section(&mut page)?;
    }
    if !codes.is_empty() {
        page.extend(format!(".SH \"EXIT STATUS\"\n{}\n", codes.replace('-', "\\-")).into_bytes());
    }
    if OF_DAEMONS.contains(&name.as_str()) {
        page.extend([others::environment(), others::files()].concat().into_bytes());
    }
    if has_examples {
        // clap_mangen calls the text after the options EXTRA.
        let mut examples = Vec::new();
        man.render_extra_section(&mut examples)?;
        let examples = String::from_utf8(examples).map_err(io::Error::other)?;
        page.extend(examples.replace(".SH EXTRA\nExamples:\n", ".SH EXAMPLES\n").into_bytes());
    }
    page.extend(see_also(&name.replace(' ', "-")).into_bytes());
    if has_version {
        man.render_version_section(&mut page)?;
    }
    Ok(markdown::in_ascii(&String::from_utf8(page).map_err(io::Error::other)?).into_bytes())
}

/// Returns the section that names other pages than that called `name`.
fn see_also(name: &str) -> String {
    let related = RELATED.iter().filter(|pages| pages.contains(&name)).flat_map(|pages| pages.iter());
    let pages = ["weft"].iter().chain(related).filter(|page| **page != name).map(|page| match *page {
        "mount" | "mount.weft" => format!("\\fB{page}\\fR(8)"),
        "weft-networks" => "\\fBweft\\-networks\\fR(7)".to_owned(),
        "fstab" => "\\fBfstab\\fR(5)".to_owned(),
        page => format!("\\fB{}\\fR(1)", page.replace('-', "\\-")),
    });
    let pages = pages.collect::<Vec<_>>();
    if pages.is_empty() { String::new() } else { format!(".SH \"SEE ALSO\"\n{}\n", pages.join(", ")) }
}
