//! Configuration: options that the command line leaves out, and names of volumes.
//!
//! Options come from variables of the environment, a file of the user's, and one of the machine,
//! the first that has one. The command line is completed with them before it is parsed, so that
//! they are checked as if they stood there; an option that contradicts one that was given, or is of
//! another engine than the volume, is left out.

mod file;
mod settings;

pub use file::{File, is_closed, paths};
pub use settings::{PREFIX, Setting, own_settings, settings_of};

use crate::arguments::Arguments;
use clap::parser::ValueSource;
use clap::{ArgMatches, Command, CommandFactory};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use weft_store::postgres::is_address;

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
    refuse_unknown(&files, &program.get_subcommands().collect::<Vec<_>>())?;
    let (words, volume) = with_paths(words, command, given, &files);
    if given.subcommand().is_some() {
        // Options of commands below a command are not configured.
        return Ok(words);
    }
    let is_given = |id: &clap::Id| given.value_source(id.as_str()) == Some(ValueSource::CommandLine);
    let is_rival = |one: &clap::Arg, other: &clap::Arg| {
        command.get_arg_conflicts_with(one).iter().any(|rival| rival.get_id() == other.get_id())
            || RIVALS.contains(&(one.get_id().as_str(), other.get_id().as_str()))
    };
    let given = command.get_arguments().filter(|argument| is_given(argument.get_id())).collect::<Vec<_>>();
    let other_engine = if volume.is_remote { OF_FILES } else { OF_POSTGRES };
    let mut added = Vec::new();
    for setting in settings_of(command, volume.name.as_deref(), &files)? {
        let argument = setting.argument;
        let is_left_out = given
            .iter()
            .any(|given| given.get_id() == argument.get_id() || is_rival(given, argument) || is_rival(argument, given));
        if is_left_out || argument.get_long().is_some_and(|name| other_engine.contains(&name)) {
            continue;
        }
        setting.check(command)?;
        added.extend(setting.words());
    }
    let Some(at) = words.iter().position(|word| word == name) else { return Ok(words) };
    let (before, after) = words.split_at(at + 1);
    Ok([before, &added, after].concat())
}

/// Options of which a command itself says that they do not go together.
const RIVALS: &[(&str, &str)] = &[("writeback", "nfs"), ("writeback", "at")];

/// Options that only volumes in PostgreSQL have.
const OF_POSTGRES: &[&str] = &["wait", "lease", "patience", "disk-cache", "disk-cache-size", "layout"];

/// Options that only volumes in files have.
const OF_FILES: &[&str] = &["blocks"];

/// Refuses tables of no command.
///
/// # Errors
/// The one that there is, in words.
pub fn refuse_unknown(files: &[File], commands: &[&Command]) -> Result<(), String> {
    for file in files {
        let path = crate::shown::path(&file.path);
        let of_volumes = file.names().filter_map(|name| file.volume(name)).flat_map(|volume| volume.options.keys());
        let is_command = |name: &str| commands.iter().any(|command| command.get_name() == name);
        if let Some(name) = file.options.keys().chain(of_volumes).find(|name| !is_command(name)) {
            return Err(format!("cannot use {path}: there is no command 'weft {name}'"));
        }
    }
    Ok(())
}

/// True if the environment has variables that may be settings.
fn has_variables() -> bool {
    std::env::vars_os().any(|(name, _)| name.as_bytes().starts_with(PREFIX.as_bytes()))
}

/// True if `command`, or one of its own commands, takes a volume.
fn takes_volumes(command: &Command) -> bool {
    command.get_arguments().any(is_volume) || command.get_subcommands().any(takes_volumes)
}

/// True if an argument may name a volume, by what the usage or the help calls it.
fn is_volume(argument: &clap::Arg) -> bool {
    let named = if argument.is_positional() { "VOLUME" } else { "VOLUME:PATH" };
    let mut names = argument.get_value_names().into_iter().flatten();
    names.any(|name| name.contains(named) || name == "VOLUME")
        || argument.get_help().is_some_and(|help| help.to_string().contains(named))
}

/// The volume that a command line names first.
#[derive(Default)]
struct First {
    /// Its name, if the configuration gave it one.
    name: Option<String>,
    /// True if it lies in a server.
    is_remote: bool,
}

/// Returns `words` with the paths of the volumes that they name by names of `files`, and the first
/// volume.
fn with_paths(
    mut words: Vec<OsString>,
    command: &Command,
    given: &ArgMatches,
    files: &[File],
) -> (Vec<OsString>, First) {
    let (mut command, mut given) = (command, given);
    let (mut first, mut begin) = (None, 0);
    loop {
        // A volume may be called as a command is.
        let own = words[begin..].iter().position(|word| word == command.get_name());
        begin += own.map_or(0, |at| at + 1);
        for argument in command.get_arguments().filter(|argument| is_volume(argument)) {
            let values = given.try_get_raw(argument.get_id().as_str()).ok().flatten();
            for value in values.into_iter().flatten() {
                let (name, path) = named(value, files).unzip();
                let is_remote = path.as_deref().unwrap_or(value).to_str().is_some_and(is_address);
                first.get_or_insert(First { name, is_remote });
                if let Some(path) = path
                    && let Some(word) = words[begin..].iter_mut().find(|word| *word == value)
                {
                    *word = path;
                }
            }
        }
        let below = given.subcommand().and_then(|(name, below)| Some((command.find_subcommand(name)?, below)));
        let Some(below) = below else { return (words, first.unwrap_or_default()) };
        (command, given) = below;
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
