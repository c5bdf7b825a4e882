//! Settings of one command: each option that a variable or a file has, and where it is from.

use super::file::{File, Options};
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, Command};
use std::ffi::OsString;
use std::path::PathBuf;
use toml::Value;

/// Beginning of the names of variables.
pub const PREFIX: &str = "WEFT_";

/// An option that the configuration has.
pub struct Setting<'a> {
    /// The argument of the command.
    pub argument: &'a Arg,
    /// Its values; none of a flag that is off.
    pub values: Vec<String>,
    /// The variable or the file that has it.
    pub source: Source,
}

/// The place that a setting is from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A variable of the environment.
    Variable(String),
    /// A file.
    File(PathBuf),
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Source::Variable(name) => f.write_str(name),
            Source::File(path) => f.write_str(&crate::shown::path(path)),
        }
    }
}

impl Setting<'_> {
    /// Returns it as words of the command line.
    pub fn words(&self) -> Vec<OsString> {
        let name = self.argument.get_long().expect("it was found by that");
        let is_flag = !self.argument.get_action().takes_values();
        let word = |value: &String| if is_flag { format!("--{name}") } else { format!("--{name}={value}") };
        self.values.iter().map(|value| word(value).into()).collect()
    }

    /// Refuses a value that the option of `command` does not take.
    ///
    /// # Errors
    /// The reason, in words, and the place that it is from.
    pub fn check(&self, command: &Command) -> Result<(), String> {
        // Alone, as nothing that it goes with is given here.
        let mut alone = command.clone().no_binary_name(true).mut_args(|argument| argument.required(false));
        let Err(error) = alone.try_get_matches_from_mut(self.words()) else { return Ok(()) };
        if !matches!(error.kind(), ErrorKind::InvalidValue | ErrorKind::ValueValidation) {
            return Ok(());
        }
        let text = error.to_string();
        let lines = text.lines().map(str::trim).take_while(|line| !line.is_empty()).collect::<Vec<_>>();
        let why = lines.join(" ");
        Err(format!("cannot use {}: {}", self.source, why.strip_prefix("error: ").unwrap_or(&why)))
    }
}

/// Returns the settings of `command`, for the volume called `volume` if that has a name: of each
/// option the one that counts most.
///
/// # Errors
/// The reason that one makes no sense, in words.
pub fn settings_of<'a>(command: &'a Command, volume: Option<&str>, files: &[File]) -> Result<Vec<Setting<'a>>, String> {
    let mut settings = of_variables(command)?;
    for file in files {
        if let Some(name) = volume {
            add(&mut settings, of_volume(command, name, file)?);
        }
        add(&mut settings, of_table(command, &file.options, ("", file))?);
    }
    Ok(settings)
}

/// Returns the settings of `command` that the volume called `name` has for itself.
///
/// # Errors
/// As of [`settings_of`].
pub fn own_settings<'a>(command: &'a Command, name: &str, files: &[File]) -> Result<Vec<Setting<'a>>, String> {
    let mut settings = Vec::new();
    for file in files {
        add(&mut settings, of_volume(command, name, file)?);
    }
    Ok(settings)
}

/// Adds those of `more` whose options `settings` has not.
fn add<'a>(settings: &mut Vec<Setting<'a>>, more: Vec<Setting<'a>>) {
    for setting in more {
        if settings.iter().all(|known| known.argument.get_id() != setting.argument.get_id()) {
            settings.push(setting);
        }
    }
}

/// Returns the settings of variables: `WEFT_`, the command, and the option.
fn of_variables(command: &Command) -> Result<Vec<Setting<'_>>, String> {
    let mut settings = Vec::new();
    for argument in options(command) {
        let name = variable(command.get_name(), argument.get_long().unwrap_or_default());
        let Some(value) = std::env::var_os(&name).filter(|value| !value.is_empty()) else { continue };
        let value = value.into_string().map_err(|_| format!("{name} is not UTF-8"))?;
        let values = match argument.get_action() {
            ArgAction::SetTrue => match value.as_str() {
                "1" | "true" | "yes" => vec![value],
                "0" | "false" | "no" => Vec::new(),
                _ => return Err(format!("{name} is '{value}', which is neither true nor false")),
            },
            _ => vec![value],
        };
        settings.push(Setting { argument, values, source: Source::Variable(name) });
    }
    let known = options(command).map(|argument| variable(command.get_name(), argument.get_long().unwrap_or_default()));
    refuse_unknown(command.get_name(), &known.collect::<Vec<_>>())?;
    Ok(settings)
}

/// Refuses variables of the command called `command` that are none of its options.
fn refuse_unknown(command: &str, known: &[String]) -> Result<(), String> {
    let prefix = variable(command, "");
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    // Those of one command may begin as those of another do: 'weft verify' and 'weft verify-proof'.
    let is_of_other = |name: &String| command == "verify" && name.starts_with(&variable("verify-proof", ""));
    let unknown = names.filter(|name| name.starts_with(&prefix) && !known.contains(name) && !is_of_other(name)).min();
    let Some(name) = unknown else { return Ok(()) };
    let option = name[prefix.len()..].to_lowercase().replace('_', "-");
    Err(match NEVER.contains(&option.as_str()) {
        true => format!("cannot use {name}: --{option} gives something up, and stands on the command line alone"),
        false => format!("cannot use {name}: 'weft {command}' has no option --{option}"),
    })
}

/// Returns the name of the variable of an option of a command.
fn variable(command: &str, option: &str) -> String {
    format!("{PREFIX}{command}_{option}").to_uppercase().replace('-', "_")
}

/// Returns the settings that a file has for the volume called `name` alone.
fn of_volume<'a>(command: &'a Command, name: &str, file: &File) -> Result<Vec<Setting<'a>>, String> {
    match file.volume(name) {
        Some(volume) => of_table(command, &volume.options, (&format!("volume.{name}."), file)),
        None => Ok(Vec::new()),
    }
}

/// Returns the settings that a table of a file has for `command`.
fn of_table<'a>(
    command: &'a Command,
    options: &Options,
    (prefix, file): (&str, &File),
) -> Result<Vec<Setting<'a>>, String> {
    let name = command.get_name();
    let path = crate::shown::path(&file.path);
    let mut settings = Vec::new();
    for (option, value) in options.get(name).into_iter().flatten() {
        let whole = format!("{prefix}{name}.{option}");
        let Some(argument) = self::options(command).find(|argument| argument.get_long() == Some(option)) else {
            return Err(match NEVER.contains(&option.as_str()) {
                true => format!(
                    "cannot use {path}: {whole}: --{option} gives something up, and stands on the command line alone"
                ),
                false => format!("cannot use {path}: {whole}: 'weft {name}' has no option --{option}"),
            });
        };
        let values = values(argument, value)
            .ok_or_else(|| format!("cannot use {path}: {whole} is {value}, which is no value of --{option}"))?;
        settings.push(Setting { argument, values, source: Source::File(file.path.clone()) });
    }
    Ok(settings)
}

/// Returns the values of an option as words; none if it has no such values.
fn values(argument: &Arg, value: &Value) -> Option<Vec<String>> {
    match (argument.get_action(), value) {
        (ArgAction::SetTrue, Value::Boolean(is_on)) => Some(is_on.then(|| "true".to_owned()).into_iter().collect()),
        (ArgAction::SetTrue, _) => None,
        (ArgAction::Append, Value::Array(values)) => values.iter().map(word).collect(),
        (_, value) => word(value).map(|word| vec![word]),
    }
}

fn word(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Integer(number) => Some(number.to_string()),
        Value::Boolean(_) | Value::Float(_) | Value::Datetime(_) | Value::Array(_) | Value::Table(_) => None,
    }
}

/// Options by which a person gives something up: they stand on the command line or nowhere.
const NEVER: &[&str] = &["accept-loss", "repair", "discard", "salvage", "overwrite"];

/// Returns the options of `command` that have long names, but for those that print help or give
/// something up.
fn options(command: &Command) -> impl Iterator<Item = &Arg> {
    let prints = |argument: &&Arg| {
        matches!(
            argument.get_action(),
            ArgAction::Help | ArgAction::HelpLong | ArgAction::HelpShort | ArgAction::Version
        )
    };
    let is_one =
        move |argument: &&Arg| argument.get_long().is_some_and(|name| !NEVER.contains(&name)) && !prints(argument);
    command.get_arguments().filter(is_one)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command() -> Command {
        let flag = |name: &'static str| Arg::new(name).long(name).action(ArgAction::SetTrue);
        Command::new("mount")
            .arg(flag("noatime"))
            .arg(Arg::new("lag").long("lag"))
            .arg(Arg::new("export").long("export").action(ArgAction::Append))
    }

    #[test]
    fn values_of_files_become_words() {
        let command = command();
        let words = |text: &str| {
            let table = text.parse::<toml::Table>().unwrap();
            let file = File { path: "/f".into(), options: [("mount".to_owned(), table)].into(), ..File::default() };
            let settings = settings_of(&command, None, &[file])?;
            let words = settings.iter().flat_map(Setting::words).map(|word| word.into_string().unwrap());
            Ok::<_, String>(words.collect::<Vec<_>>().join(" "))
        };
        assert_eq!(words("noatime = true\nlag = 5").unwrap(), "--lag=5 --noatime");
        assert_eq!(words("noatime = false\nlag = '5s'").unwrap(), "--lag=5s");
        assert_eq!(words("export = ['/a *', '/b *']").unwrap(), "--export=/a * --export=/b *");
        for (text, why) in [
            ("latime = true", "mount.latime: 'weft mount' has no option --latime"),
            ("accept-loss = true", "mount.accept-loss: --accept-loss gives something up"),
            ("noatime = 1", "mount.noatime is 1, which is no value of --noatime"),
            ("lag = [1]", "no value of --lag"),
        ] {
            let told = words(text).unwrap_err();
            assert!(told.contains(why), "{told}");
        }
    }

    #[test]
    fn variables_have_the_names_of_command_and_option() {
        assert_eq!(variable("mount", "commit-interval"), "WEFT_MOUNT_COMMIT_INTERVAL");
    }
}
