//! `weft config`.

use crate::arguments::{Arguments, Config};
use crate::configuration::{File, Setting, is_closed, own_settings, paths, refuse_unknown, settings_of};
use crate::failure::usage;
use crate::shown;
use anyhow::Result;
use clap::CommandFactory;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::ExitCode;

/// Tells what the configuration has, and where each value is from.
pub fn run(arguments: &Config) -> Result<ExitCode> {
    let files = File::all().or_else(usage)?;
    let mut program = Arguments::command();
    program.build();
    let commands = program.get_subcommands().filter(|command| !command.is_hide_set()).collect::<Vec<_>>();
    refuse_unknown(&files, &commands).or_else(usage)?;
    let of_all = commands.iter().map(|command| Ok((command.get_name(), settings_of(command, None, &files)?)));
    let of_all = of_all.collect::<Result<Vec<_>, String>>().or_else(usage)?;
    let mut names = files.iter().flat_map(File::names).collect::<Vec<_>>();
    names.sort_unstable();
    names.dedup();
    let mut volumes = Vec::new();
    for name in names {
        let path = files.iter().find_map(|file| Some((file.volume(name)?.path.as_ref()?, &file.path)));
        let settings = commands.iter().map(|command| Ok((command.get_name(), own_settings(command, name, &files)?)));
        volumes.push((name, path, settings.collect::<Result<Vec<_>, String>>().or_else(usage)?));
    }
    check(&commands, &of_all).and_then(|()| refuse_useless(&files, &commands, &volumes)).or_else(usage)?;
    let read = |path: &PathBuf| files.iter().any(|file| file.path == *path);
    if arguments.json {
        let told =
            paths().iter().map(|path| json!({ "path": shown::path(path), "read": read(path) })).collect::<Vec<_>>();
        let volumes = volumes.iter().map(|(name, path, settings)| {
            let path = path.map(|(path, _)| shown::path(path));
            json!({ "name": name, "path": path, "options": values(settings) })
        });
        outln!("{:#}", json!({ "files": told, "options": values(&of_all), "volumes": volumes.collect::<Vec<_>>() }));
        return Ok(ExitCode::SUCCESS);
    }
    for path in paths() {
        let state = match () {
            () if read(&path) => "read",
            () if is_closed(&path) => "passed over, as this user may not read it",
            () => "not there",
        };
        outln!("{}: {state}", shown::path(&path));
    }
    print("", &of_all);
    for (name, path, settings) in &volumes {
        if let Some((path, file)) = path {
            outln!("volume.{name} = {}  ({})", shown::path(path), shown::path(file));
        }
        print(&format!("volume.{name}."), settings);
    }
    Ok(ExitCode::SUCCESS)
}

/// Refuses volumes that have options and nowhere a path, and settings whose values their commands
/// do not take.
fn refuse_useless(files: &[File], commands: &[&clap::Command], volumes: &[Named<'_>]) -> Result<(), String> {
    for (name, path, settings) in volumes {
        let file = || files.iter().find(|file| file.volume(name).is_some()).map(|file| shown::path(&file.path));
        if path.is_none() {
            return Err(format!("cannot use {}: volume.{name} has no path", file().unwrap_or_default()));
        }
        check(commands, settings)?;
    }
    Ok(())
}

fn check(commands: &[&clap::Command], settings: &Settings<'_>) -> Result<(), String> {
    for (name, settings) in settings {
        let command = commands.iter().find(|command| command.get_name() == *name);
        command.map_or(Ok(()), |command| settings.iter().try_for_each(|setting| setting.check(command)))?;
    }
    Ok(())
}

/// A volume that has a name: that, its path and the file that says so, and its own settings.
type Named<'a> = (&'a str, Option<(&'a PathBuf, &'a PathBuf)>, Vec<(&'a str, Vec<Setting<'a>>)>);

type Settings<'a> = [(&'a str, Vec<Setting<'a>>)];

fn print(prefix: &str, settings: &Settings<'_>) {
    for (command, settings) in settings {
        for setting in settings {
            let (option, value) = told(setting);
            outln!("{}", shown::message(&format!("{prefix}{command}.{option} = {value}  ({})", setting.source)));
        }
    }
}

fn values(settings: &Settings<'_>) -> Vec<Value> {
    let of = |(command, settings): &(&str, Vec<Setting<'_>>)| {
        let value = |setting: &Setting<'_>| {
            let (option, value) = told(setting);
            json!({ "command": command, "option": option, "value": value, "source": setting.source.to_string() })
        };
        settings.iter().map(value).collect::<Vec<_>>()
    };
    settings.iter().flat_map(of).collect()
}

/// Returns the name of an option and its value, in words.
fn told(setting: &Setting<'_>) -> (String, String) {
    let option = setting.argument.get_long().unwrap_or_default().to_owned();
    let value = if setting.values.is_empty() { "false".into() } else { setting.values.join(", ") };
    (option, value)
}
