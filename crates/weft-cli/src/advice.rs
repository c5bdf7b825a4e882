//! Advice in messages. Its commands name the volume that the user typed.

use crate::arguments::Command;
use crate::named::in_volume;
use crate::shown;
use anyhow::Error;
use std::path::Path;
use std::sync::OnceLock;
use weft_store::{ErrorKind, Location};

/// The volume of this process' command, as a word of a shell.
static VOLUME: OnceLock<String> = OnceLock::new();

/// Word that stands for the volume in texts.
const PLACEHOLDER: &str = "VOLUME";

/// Makes advice name the volume that `command` is about.
pub fn is_about(command: &Command) {
    let within = |named| in_volume(named).map(|(volume, _)| volume);
    let copied = |named| Path::new(within(named).unwrap_or(named));
    let word = match command {
        Command::Mount(arguments) => of(&arguments.volume),
        Command::Serve(arguments) => of(&arguments.volume),
        Command::Mcp(arguments) => of(&arguments.volume),
        Command::Info(arguments) => of(&arguments.volume),
        Command::Set(arguments) => of(&arguments.volume),
        Command::Check(arguments) => of(&arguments.volume),
        Command::Compact(arguments) => of(&arguments.volume),
        Command::Convert(arguments) => of(&arguments.volume),
        Command::Upgrade(arguments) => of(&arguments.volume),
        Command::Send(arguments) => of(super::named::at_moment(&arguments.volume).0),
        Command::Receive(arguments) => of(&arguments.volume),
        Command::Log(arguments) => of(&arguments.volume),
        Command::Sign(arguments) => of(&arguments.volume),
        Command::Scrub(arguments) => of(&arguments.volume),
        Command::Defragment(arguments) => within(&arguments.path).and_then(|volume| of(Path::new(volume))),
        Command::Sync(arguments) => of_mount(&arguments.named),
        Command::Umount(arguments) => of_mount(&arguments.directory),
        Command::Import(arguments) => of(copied(&arguments.target)),
        Command::Export(arguments) => of(copied(&arguments.source)),
        Command::Put(arguments) => of(copied(&arguments.target)),
        Command::Get(arguments) => arguments.sources.first().and_then(|source| of(copied(source))),
        Command::Ls(arguments) => arguments.paths.first().and_then(|path| of(copied(path))),
        Command::Verify(arguments) => arguments.volume.as_deref().and_then(of),
        Command::Cat(arguments) => arguments.files.first().and_then(|file| of(Path::new(within(file)?))),
        Command::Diff(arguments) => within(&arguments.first).and_then(|volume| of(Path::new(volume))),
        Command::Prove(arguments) => within(&arguments.directory).and_then(|volume| of(Path::new(volume))),
        Command::Digest(arguments) => {
            let mut volumes = arguments.paths.iter().map(|path| within(path));
            let first = volumes.next().flatten();
            first.filter(|_| volumes.all(|volume| volume == first)).and_then(|volume| of(Path::new(volume)))
        }
        _ => None,
    };
    if let Some(word) = word {
        VOLUME.get_or_init(|| word);
    }
}

/// Returns a volume as a word of a command, without a password in its URL.
fn of(volume: &Path) -> Option<String> {
    // A directory where a volume is mounted is no volume.
    let volume = crate::mounted::volume_at(volume);
    Some(shown::location(&Location::parse(&volume).ok()?))
}

/// The same of the volume that is mounted at `directory`, if one is.
fn of_mount(directory: &Path) -> Option<String> {
    if crate::mounted::is_mount_point(directory) { of(directory) } else { None }
}

/// Returns `text` with the volume in each command that it names. Filled text stays as it is.
pub fn filled(text: &str) -> String {
    complete(text, volume())
}

/// Returns the volume as a word of a command.
pub fn volume() -> &'static str {
    VOLUME.get().map_or(PLACEHOLDER, String::as_str)
}

/// Returns `text` with `volume` in each command between quotation marks: in place of the word
/// `VOLUME`, and behind a check that names none.
fn complete(text: &str, volume: &str) -> String {
    let mut filled = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("'weft ") {
        let (before, quoted) = rest.split_at(at);
        let Some(end) = quoted[1..].find('\'') else { break };
        let (command, after) = (&quoted[1..=end], &quoted[end + 2..]);
        let command = named(command, volume);
        filled.push_str(before);
        // Marks around marks would belong to neither.
        let mark = if command.contains('\'') { "" } else { "'" };
        filled.extend([mark, &command, mark]);
        rest = after;
    }
    filled + rest
}

/// Returns `command` with `volume`.
fn named(command: &str, volume: &str) -> String {
    let words = command.split(' ');
    if words.clone().any(|word| word == PLACEHOLDER) {
        return words.map(|word| if word == PLACEHOLDER { volume } else { word }).collect::<Vec<_>>().join(" ");
    }
    let new = if command.contains("--salvage") { " NEW" } else { "" };
    let names_none = command.rsplit(' ').next().is_some_and(|last| last == "check" || last.starts_with("--"));
    if command.starts_with("weft check") && names_none { format!("{command} {volume}{new}") } else { command.into() }
}

/// Returns advice for the end of a message about `error`, whose text is `told`, if it gives none
/// itself.
pub fn on(error: &Error, told: &str) -> String {
    // Some messages contain advice themselves.
    let is_advised = ["weft check", "--accept-loss", "move the log away"].iter().any(|word| told.contains(word));
    match (is_damage(error), is_malformed(error)) {
        (true, _) if is_advised => String::new(),
        (true, true) => format!("; {}", weft_store::Error::MALFORMED_ADVICE),
        (true, false) => "; 'weft scrub VOLUME' tells what is damaged".into(),
        (false, _) => of_store(error).and_then(on_denied).unwrap_or_default(),
    }
}

/// Returns advice for a user who may not read the files of a volume that another user has mounted.
fn on_denied(error: &weft_store::Error) -> Option<String> {
    let weft_store::Error::Io { path, .. } = error else { return None };
    let (directory, user) = crate::mounted::of_another_user(path).filter(|_| is_denied(error))?;
    let who = if user == 0 { "root".into() } else { format!("user {user}") };
    let directory = shown::path(&directory);
    Some(format!("; {who} mounted it at {directory} and may read it; the past is also in {directory}/.weft/at"))
}

/// True if an error reports that this user may not read a file of a volume.
pub fn is_denied(error: &weft_store::Error) -> bool {
    let denied = std::io::ErrorKind::PermissionDenied;
    matches!(error, weft_store::Error::Io { source, .. } if source.kind() == denied)
}

/// True if an error reports damage, or a loss of synced data.
pub fn is_damage(error: &Error) -> bool {
    of_store(error).is_some_and(|error| error.kind() == ErrorKind::Corrupt)
}

/// True if an error reports that SQLite cannot read the database.
pub fn is_malformed(error: &Error) -> bool {
    of_store(error).is_some_and(weft_store::Error::is_malformed)
}

fn of_store(error: &Error) -> Option<&weft_store::Error> {
    error.chain().find_map(|error| error.downcast_ref::<weft_store::Error>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_in_advice_name_the_volume_so_that_a_shell_reads_it() {
        for (text, volume, filled) in [
            ("'weft check' tells more", "v", "'weft check v' tells more"),
            ("'weft check --read-data VOLUME' tells", "v.weft", "'weft check --read-data v.weft' tells"),
            ("have 'weft check --salvage' bring it", "v", "have 'weft check --salvage v NEW' bring it"),
            ("'weft check --salvage VOLUME NEW'", "'my v'", "weft check --salvage 'my v' NEW"),
            ("a 'weft check' and 'weft export'", "v", "a 'weft check v' and 'weft export'"),
            ("name what 'weft init' made, isn't it", "v", "name what 'weft init' made, isn't it"),
            ("'weft", "v", "'weft"),
        ] {
            assert_eq!(complete(text, volume), filled);
            assert_eq!(complete(filled, volume), filled);
        }
    }
}
