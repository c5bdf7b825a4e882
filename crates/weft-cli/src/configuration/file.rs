//! Files of configuration, in TOML.
//!
//! A table of the name of a command has its options; `[volume.NAME]` has the path of a volume, and
//! such tables for it alone.

use rustix::fs::OFlags;
use rustix::process::geteuid;
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use toml::{Table, Value};
use weft_store::postgres::is_address;

/// The file of the machine.
const OF_MACHINE: &str = "/etc/weft/weft.toml";

/// Errors of a file that is not there.
const ABSENT: &[ErrorKind] = &[ErrorKind::NotFound, ErrorKind::NotADirectory];

/// Bytes of a file that are read.
const BYTES_MAX: u64 = 1 << 20;

/// Bits of a file's mode by which others than its owner may change it.
const OTHERS_WRITE: u32 = 0o022;

/// Options of commands: by the command's name, then by the option's.
pub type Options = BTreeMap<String, Table>;

/// A volume that has a name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Volume {
    /// Its path, or its address.
    pub path: Option<PathBuf>,
    /// Options for it alone.
    pub options: Options,
}

/// A file that was read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct File {
    /// Its path.
    pub path: PathBuf,
    /// Options for all volumes.
    pub options: Options,
    pub(super) volumes: BTreeMap<String, Volume>,
}

/// Returns the paths that are looked at, the one that counts most first.
pub fn paths() -> Vec<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let of_user = absolute("XDG_CONFIG_HOME").or_else(|| absolute("HOME").map(|home| home.join(".config")));
    of_user.map(|directory| directory.join("weft/config.toml")).into_iter().chain([OF_MACHINE.into()]).collect()
}

/// Opens a file; nobody is waited for, should it be a pipe.
fn open(path: &Path) -> std::io::Result<std::fs::File> {
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    std::fs::File::options().read(true).custom_flags(flags).open(path)
}

/// True if this user may not read the file at `path`, or may not look for it.
pub fn is_closed(path: &Path) -> bool {
    open(path).is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
}

impl File {
    /// Reads all that are there, the one that counts most first.
    ///
    /// # Errors
    /// The reason that one cannot be used, in words.
    pub fn all() -> Result<Vec<File>, String> {
        paths().iter().filter_map(|path| File::read(path).transpose()).collect()
    }

    /// Reads the file at `path`; none if there is none.
    fn read(path: &Path) -> Result<Option<File>, String> {
        let failed = |why: &dyn std::fmt::Display| format!("cannot use {}: {why}", crate::shown::path(path));
        let file = match open(path) {
            Ok(file) => file,
            // One that this user may not read is another's, as HOME may be after su(1).
            Err(error) if error.kind() == ErrorKind::PermissionDenied || ABSENT.contains(&error.kind()) => {
                return Ok(None);
            }
            Err(error) => return Err(failed(&error)),
        };
        let metadata = file.metadata().map_err(|error| failed(&error))?;
        if !metadata.is_file() {
            return Err(failed(&"it is not a file"));
        }
        if ![0, geteuid().as_raw()].contains(&metadata.uid()) || metadata.mode() & OTHERS_WRITE != 0 {
            return Err(failed(&"others than its user and root own it or may write to it"));
        }
        let mut text = String::new();
        file.take(BYTES_MAX).read_to_string(&mut text).map_err(|error| failed(&error))?;
        File::parse(path, &text).map(Some).map_err(|why| failed(&why))
    }

    /// Parses the `text` of the file at `path`.
    fn parse(path: &Path, text: &str) -> Result<File, String> {
        let table = text.parse::<Table>().map_err(|error| in_one_line(&error.to_string()))?;
        let mut file = File { path: path.into(), ..File::default() };
        for (name, value) in table {
            let Value::Table(table) = value else { return Err(format!("{name} is no table: write [{name}]")) };
            if name != "volume" {
                file.options.insert(name, table);
                continue;
            }
            for (name, value) in table {
                let Value::Table(table) = value else { return Err(format!("volume.{name} is no table")) };
                // A name is what stands before a path or a moment, and no path itself.
                if name.is_empty() || name.contains([':', '@', '/']) {
                    return Err(format!("'{name}' cannot be the name of a volume: it has ':', '@' or '/', or nothing"));
                }
                file.volumes.insert(name.clone(), Volume::of(&name, table)?);
            }
        }
        Ok(file)
    }

    /// Returns the volume of this name.
    pub fn volume(&self, name: &str) -> Option<&Volume> {
        self.volumes.get(name)
    }

    /// Returns the names of volumes.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.volumes.keys().map(String::as_str)
    }
}

impl Volume {
    fn of(name: &str, table: Table) -> Result<Volume, String> {
        let mut volume = Volume::default();
        for (key, value) in table {
            match (key.as_str(), value) {
                ("path", Value::String(path)) => volume.path = Some(place(name, &path)?),
                (_, Value::Table(options)) => drop(volume.options.insert(key, options)),
                _ => {
                    return Err(format!(
                        "volume.{name}.{key} is neither its path nor a table of a command: write [volume.{name}.mount] \
                         before options of 'weft mount'"
                    ));
                }
            }
        }
        Ok(volume)
    }
}

/// Returns the volume that a file says lies at `path`: an address, or a path that is the same from
/// every directory.
fn place(name: &str, path: &str) -> Result<PathBuf, String> {
    let home = || std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
    match path.strip_prefix("~/").zip(home()) {
        Some((below, home)) => Ok(home.join(below)),
        None if path.starts_with('/') || is_address(path) => Ok(path.into()),
        None => Err(format!("volume.{name}.path is '{path}': write one that begins with '/' or '~/', or an address")),
    }
}

/// Returns the first and the last line of an error, which are the place and the reason.
fn in_one_line(error: &str) -> String {
    let mut lines = error.lines().map(str::trim).filter(|line| !line.is_empty());
    let place = lines.next().unwrap_or_default();
    lines.next_back().map_or_else(|| place.to_owned(), |why| format!("{place}: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn tables_are_of_commands_and_volumes() {
        let text =
            "[mount]\nnoatime = true\n[volume.photos]\npath = '/srv/p'\n[volume.photos.mount]\ndirty-max = '1G'\n";
        let file = File::parse(Path::new("/f"), text).unwrap();
        assert_eq!(file.options["mount"]["noatime"].as_bool(), Some(true));
        let volume = file.volume("photos").unwrap();
        assert_eq!(volume.path, Some("/srv/p".into()));
        assert_eq!(volume.options["mount"]["dirty-max"].as_str(), Some("1G"));
        assert_eq!(file.names().collect::<Vec<_>>(), ["photos"]);
        for (text, why) in [
            ("mount = 1", "mount is no table: write [mount]"),
            ("[volume]\nphotos = 1", "volume.photos is no table"),
            ("[volume.photos]\npath = 'p'", "begins with '/' or '~/'"),
            ("[volume.'a:b']\npath = '/p'", "cannot be the name of a volume"),
            ("[volume.photos]\nnoatime = true", "write [volume.photos.mount] before"),
            ("[mount", "line 1"),
        ] {
            let told = File::parse(Path::new("/f"), text).unwrap_err();
            assert!(told.contains(why), "{told}");
        }
    }

    #[test]
    fn a_file_that_others_may_write_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config.toml");
        assert_eq!(File::read(&path).unwrap(), None);
        std::fs::write(&path, "").unwrap();
        let set = |mode| std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        set(0o644);
        assert!(File::read(&path).unwrap().is_some());
        let pipe = directory.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0).unwrap();
        assert!(File::read(&pipe).unwrap_err().contains("it is not a file"), "and nobody writes to it");
        for mode in [0o664, 0o646] {
            set(mode);
            assert!(File::read(&path).unwrap_err().contains("may write to it"));
        }
    }
}
