//! `weft digest`: digests of files and directories, in volumes and elsewhere.

pub(super) mod difference;
pub(super) mod directory;
pub(super) mod list;
mod plain;
mod stored;
mod tree;

use super::subject::{self, Subject};
use super::transfer::{Place, Progress, names, path_as_json};
use crate::arguments::Digest as Arguments;
use crate::named::in_volume;
use crate::opened::Opened;
use crate::output;
use crate::shown;
use anyhow::{Context, Result, anyhow, bail, ensure};
use directory::{Boxed, Item};
use list::{Line, Reader};
use plain::Plain;
use serde_json::Value;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use stored::Stored;
use tree::Found;
use weft_digest::{Digest, Kind, hex};
use weft_store::{CommitNo, Location, Moment};
use weft_vfs::ErrorKind;

/// Prints digests, or verifies lists of them.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    if !arguments.check {
        arguments.paths.iter().try_for_each(|path| refuse_volume(path))?;
    }
    let progress = Progress::new();
    let code = if arguments.check { check(arguments, &progress)? } else { print(arguments, &progress)? };
    progress.end();
    Ok(code)
}

/// Refuses the name of a volume: the user means its content, not its files.
pub(super) fn refuse_volume(path: &OsStr) -> Result<()> {
    let volume = Path::new(path);
    let is_address =
        || Location::parse(volume).is_ok_and(|volume| volume.address().is_some()) && in_volume(path).is_none();
    if !weft_store::sqlite::is_volume(volume) && !is_address() {
        return Ok(());
    }
    let content = [path, OsStr::new(":")].join(OsStr::new(""));
    crate::failure::usage(format!(
        "{} is a volume: its content is {} (with the colon)",
        path.display(),
        shown::word(&content)
    ))
}

/// Returns `path` for the beginning of a message, where a second colon follows.
pub(super) fn without_colon(path: &OsStr) -> &OsStr {
    OsStr::from_bytes(path.as_bytes().strip_suffix(b":").unwrap_or(path.as_bytes()))
}

/// Target of a path.
pub(super) enum Source {
    /// A path in a volume that is not mounted, by the names on the way; the opener closes it.
    Volume { volume: OsString, opened: Option<Box<Opened>>, tree: Stored, path: Vec<Vec<u8>> },
    /// A path on any mounted file system.
    Elsewhere { path: PathBuf, tree: Plain },
}

impl Source {
    /// Opens a path in a volume if `path` says `VOLUME:PATH` and no file has that name, else that
    /// file.
    pub(super) fn open(path: &OsStr) -> Result<Source> {
        Source::open_at(path, None)
    }

    /// Opens it as of the moment `at`, or of now. What lies in no volume has no past.
    pub(super) fn open_at(path: &OsStr, at: Option<&Moment>) -> Result<Source> {
        let (volume, place) = match (at, in_volume(path)) {
            (None, None) => return Ok(Source::Elsewhere { path: path.into(), tree: Plain::new() }),
            (None, Some((volume, _))) => (volume.into(), Place::open_at(path, None)?),
            (Some(at), _) => {
                let subject = Subject::demand(path)?;
                (subject.named.as_os_str().to_owned(), subject.open_at(at)?)
            }
        };
        let Place { opened, path, .. } = place;
        let tree = Stored(opened.vfs.clone());
        Ok(Source::Volume { volume, opened: Some(Box::new(opened)), tree, path })
    }

    /// Opens `subject` as of two moments. Returns also the commits that those are.
    pub(super) fn of_moments(subject: &Subject, moments: [&Moment; 2]) -> Result<([Source; 2], [CommitNo; 2])> {
        let (place, (also, commit)) = subject.open_between(moments)?;
        let commits = [place.opened.store.header()?.commit, commit];
        let (tree, path) = (Stored(place.opened.vfs.clone()), place.path);
        let volume = subject.named.as_os_str();
        let second = Source::Volume { volume: volume.into(), opened: None, tree: Stored(also), path: path.clone() };
        let opened = Some(Box::new(place.opened));
        Ok(([Source::Volume { volume: volume.into(), opened, tree, path }, second], commits))
    }

    /// Opens like [`Source::open`], also a path in the volume that this one has opened.
    pub(super) fn open_beside(&self, path: &OsStr) -> Result<Source> {
        match (self, in_volume(path)) {
            (Source::Volume { volume: own, tree, .. }, Some((volume, within))) if own == volume => {
                let path = names(within.as_bytes())?;
                Ok(Source::Volume { volume: own.clone(), opened: None, tree: Stored(tree.0.clone()), path })
            }
            _ => Source::open(path),
        }
    }

    /// Returns the directory there. With `all`, its digests come from all bytes, not from stored
    /// digests.
    pub(super) fn directory<'a>(&'a self, all: bool, progress: &'a Progress) -> Result<Boxed<'a>> {
        Ok(match self {
            Source::Volume { tree, path, .. } => {
                let (kind, node) = stored::find(tree, path)?;
                ensure!(kind == Kind::Directory, "it is not a directory");
                directory::of(tree, node, all, progress)?.1
            }
            Source::Elsewhere { path, tree } => directory::of(tree, plain::find(path)?, all, progress)?.1,
        })
    }

    /// Returns what is there; none if nothing is.
    pub(super) fn item<'a>(&'a self, all: bool, progress: &'a Progress) -> Result<Option<Item<'a>>> {
        match self {
            Source::Volume { tree, path, .. } => stored::item(tree, path, all, progress),
            Source::Elsewhere { .. } => bail!("it has no past"),
        }
    }

    /// Gives all bytes of the file at `path` below the directory there to `take`, or those of the
    /// file there.
    pub(super) fn read(&self, path: Option<&[u8]>, take: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        match self {
            Source::Volume { tree, path: above, .. } => {
                let below = path.map(names).transpose()?.unwrap_or_default();
                subject::read(&tree.0, &[&above[..], &below].concat(), take)
            }
            Source::Elsewhere { path: above, .. } => {
                plain::read_file(&path.map_or_else(|| above.clone(), |path| above.join(OsStr::from_bytes(path))), take)
            }
        }
    }

    /// Returns the digest of the directory there.
    pub(super) fn tree_digest(&self, all: bool, progress: &Progress) -> Result<Digest> {
        let found = self.digest(all, progress)?;
        ensure!(found.is_directory, "it is not a directory");
        Ok(found.digest)
    }

    /// Returns the digest of the file or directory there.
    fn digest(&self, all: bool, progress: &Progress) -> Result<Found> {
        match self {
            Source::Volume { tree, path, .. } => stored::digest(tree, path, all, progress),
            Source::Elsewhere { path, tree } => plain::digest(tree, path, all, progress),
        }
    }

    /// Closes the volume.
    pub(super) fn close(self) -> Result<()> {
        match self {
            Source::Volume { opened, tree, .. } => {
                drop(tree);
                opened.map_or(Ok(()), |opened| opened.close())
            }
            Source::Elsewhere { .. } => Ok(()),
        }
    }
}

/// Returns the digest of `path`: a file or directory, or `VOLUME:PATH`.
fn digest_of(path: &OsStr, arguments: &Arguments, progress: &Progress) -> Result<Found> {
    let tell = || -> Result<Found> {
        let source = Source::open_at(path, arguments.at.as_ref())?;
        let found = source.digest(arguments.read, progress)?;
        source.close()?;
        Ok(found)
    };
    tell().with_context(|| format!("cannot tell the digest of {}", without_colon(path).display()))
}

/// Returns the exit code after `found` differences and damage, where `unread` entries could not be
/// read.
fn exit_code(found: u64, unread: u64) -> ExitCode {
    match (found, unread) {
        (0, 0) => ExitCode::SUCCESS,
        (0, _) => ExitCode::from(2),
        _ => ExitCode::FAILURE,
    }
}

fn print(arguments: &Arguments, progress: &Progress) -> Result<ExitCode> {
    let (mut values, mut damaged, mut unread) = (Vec::new(), 0, 0);
    for path in &arguments.paths {
        match digest_of(path, arguments, progress) {
            Ok(found) if arguments.json => values.push(as_json(path, &found)),
            Ok(found) => output::write(&Line::new(path.as_bytes(), &found).encode(Reader::of_output())),
            Err(error) => {
                *(if super::is_found(&error) { &mut damaged } else { &mut unread }) += 1;
                progress.say(&format!("weft: {}", shown::message(&crate::failure::one_line(&error))));
            }
        }
    }
    if arguments.json {
        outln!("{:#}", Value::from(values));
    }
    Ok(exit_code(damaged, unread))
}

/// True if `error` says that a listed file is gone or damaged.
fn differs(error: &anyhow::Error) -> bool {
    let is_gone = |error: &(dyn std::error::Error + 'static)| {
        error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == std::io::ErrorKind::NotFound)
            || error.downcast_ref::<weft_vfs::Error>().is_some_and(|error| error.kind() == ErrorKind::NotFound)
    };
    super::is_found(error) || error.chain().any(is_gone)
}

fn as_json(path: &OsStr, found: &Found) -> Value {
    let kind = if found.is_directory { "directory" } else { "file" };
    let mut value = path_as_json(path.as_bytes());
    value.insert("kind".into(), kind.into());
    value.insert("digest".into(), hex(&found.digest).into());
    value.into()
}

fn check(arguments: &Arguments, progress: &Progress) -> Result<ExitCode> {
    let (mut values, mut wrong, mut unreadable, mut lost) = (Vec::<Value>::new(), 0, 0, 0);
    for list in &arguments.paths {
        let text = if list == "-" {
            std::io::read_to_string(std::io::stdin()).map(String::into_bytes)
        } else {
            std::fs::read(list)
        };
        let text = text.with_context(|| format!("cannot read the list {}", list.display()))?;
        ensure!(text.iter().any(|byte| *byte != b'\n'), "{} lists no digest", list.display());
        let lines = text.split(|byte| *byte == b'\n').enumerate().filter(|(_, line)| !line.is_empty());
        for (number, line) in lines {
            let line = Line::decode(line).ok_or_else(|| {
                anyhow!("line {} of {} is not a digest, two blanks and a path", number + 1, list.display())
            })?;
            let path = OsStr::from_bytes(&line.path);
            let found = digest_of(path, arguments, progress);
            let is_read = found.is_ok();
            let (outcome, why) = match found {
                Ok(found) if found.digest == line.digest => ("OK", String::new()),
                Ok(found) => {
                    wrong += 1;
                    ("FAILED", format!("its digest is {}", hex(&found.digest)))
                }
                Err(error) => {
                    unreadable += 1;
                    lost += u64::from(differs(&error));
                    ("FAILED", crate::failure::one_line(&error))
                }
            };
            if arguments.json {
                let mut value = path_as_json(&line.path);
                value.insert("right".into(), (outcome == "OK").into());
                value.insert("why".into(), why.into());
                values.push(value.into());
            } else if outcome != "OK" || !arguments.quiet {
                // As b3sum, which says nothing of the other digest.
                let why =
                    if is_read || why.is_empty() { String::new() } else { format!(" ({})", shown::message(&why)) };
                let text = verdict(&line.path, &format!(": {outcome}{why}\n"));
                output::write(&text);
            }
        }
    }
    if arguments.json {
        outln!("{:#}", Value::from(values));
    }
    for (count, what) in [
        (wrong, if wrong == 1 { "has another digest" } else { "have another digest" }),
        (unreadable, "could not be read"),
    ] {
        if count > 0 {
            progress.say(&format!("weft: {count} of the listed {what}"));
        }
    }
    Ok(exit_code(wrong + lost, unreadable))
}

/// Returns a line about `path`, which is escaped as in lists, so that it is one line.
fn verdict(path: &[u8], outcome: &str) -> Vec<u8> {
    let escaped = list::escape(path);
    let mark = if escaped == path { &b""[..] } else { b"\\" };
    [mark, &escaped, outcome.as_bytes()].concat()
}

/// Returns the digest by which a directory lists the file at `path`.
pub(super) fn listed(path: &Path) -> Result<Digest> {
    plain::listed(path).with_context(|| format!("cannot read {}", path.display()))
}
