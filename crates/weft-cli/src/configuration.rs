//! Configuration: options that the command line leaves out, and names of volumes.
//!
//! Options come from variables of the environment, a file of the user's, and one of the machine,
//! the first that has one. The command line is completed with them before it is parsed, so that
//! they are checked as if they stood there; an option that contradicts one that was given is left
//! out.

mod file;
mod settings;

pub use file::{File, paths};
pub use settings::{PREFIX, Setting, own_settings, settings_of};

use crate::arguments::Arguments;
use clap::parser::ValueSource;
use clap::{ArgMatches, Command, CommandFactory};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// Returns `words`, a command line, with what the configuration adds.
///
/// # Errors
/// The reason that a file or a variable cannot be used, in words.
pub fn complete(words: Vec<OsString>) -> Result<Vec<OsString>, String> {
    let files = File::all();
    // Nearly always there is nothing, and nothing to be parsed twice for.
    if files.as_ref().is_ok_and(Vec::is_empty) && !has_variables() {
        return Ok(words);
    }
    let mut program = Arguments::command();
    // Another look reports what is wrong, or prints the help.
    let Ok(matches) = program.try_get_matches_from_mut(&words) else { return Ok(words) };
    let Some((name, given)) = matches.subcommand() else { return Ok(words) };
    let command = program.find_subcommand(name).expect("it was matched");
    if !takes_volumes(command) {
        return Ok(words);
    }
    let files = files?;
    let (words, volume) = with_paths(words, command, given, &files);
    let settings = settings_of(command, volume.as_deref(), &files)?;
    let is_given = |id: &clap::Id| given.value_source(id.as_str()) == Some(ValueSource::CommandLine);
    let mut added = Vec::new();
    for setting in settings {
        let argument = setting.argument;
        let rivals = command.get_arg_conflicts_with(argument);
        if is_given(argument.get_id()) || rivals.iter().any(|rival| is_given(rival.get_id())) {
            continue;
        }
        added.extend(setting.words());
    }
    let Some(at) = words.iter().position(|word| word == name) else { return Ok(words) };
    let (before, after) = words.split_at(at + 1);
    Ok([before, &added, after].concat())
}

/// True if the environment has variables that may be settings.
fn has_variables() -> bool {
    std::env::vars_os().any(|(name, _)| name.as_bytes().starts_with(PREFIX.as_bytes()))
}

/// True if `command`, or one of its own commands, takes a volume.
fn takes_volumes(command: &Command) -> bool {
    command.get_arguments().any(is_volume) || command.get_subcommands().any(takes_volumes)
}

/// True if an argument names a volume.
fn is_volume(argument: &clap::Arg) -> bool {
    argument.get_value_names().into_iter().flatten().any(|name| name.contains("VOLUME"))
}

/// Returns `words` with the paths of the volumes that they name by names of `files`, and the name
/// of the first one.
fn with_paths(
    mut words: Vec<OsString>,
    command: &Command,
    given: &ArgMatches,
    files: &[File],
) -> (Vec<OsString>, Option<String>) {
    let (mut command, mut given) = (command, given);
    let (mut first, mut begin) = (None, 0);
    loop {
        // A volume may be called as a command is.
        let own = words[begin..].iter().position(|word| word == command.get_name());
        begin += own.map_or(0, |at| at + 1);
        for argument in command.get_arguments().filter(|argument| is_volume(argument)) {
            let values = given.try_get_raw(argument.get_id().as_str()).ok().flatten();
            for value in values.into_iter().flatten() {
                let Some((name, path)) = named(value, files) else { continue };
                if let Some(word) = words[begin..].iter_mut().find(|word| *word == value) {
                    *word = path;
                    first = first.or(Some(name));
                }
            }
        }
        let Some((name, below)) = given.subcommand() else { return (words, first) };
        let Some(found) = command.find_subcommand(name) else { return (words, first) };
        (command, given) = (found, below);
    }
}

/// Returns the name of the volume that `value` names by one, with or without a path or a moment in
/// it, and `value` with the volume's own path. What is there under that name is meant first.
fn named(value: &OsStr, files: &[File]) -> Option<(String, OsString)> {
    let end = value.as_bytes().iter().position(|byte| b":@".contains(byte)).unwrap_or(value.len());
    let (name, rest) = value.as_bytes().split_at(end);
    if rest.starts_with(b"://") {
        return None;
    }
    let path = files.iter().find_map(|file| file.volume(std::str::from_utf8(name).ok()?)?.path.clone())?;
    if Path::new(value).exists() || Path::new(OsStr::from_bytes(name)).exists() {
        return None;
    }
    let whole = [path.as_os_str().as_bytes(), rest].concat();
    Some((String::from_utf8_lossy(name).into_owned(), OsString::from_vec(whole)))
}
