//! `weft import`: copies a directory into a volume, straight into the file system without a mount.
//!
//! A file has no name in the volume until it is whole (`content`), so that nothing cuts it short:
//! no signal, no crash. Files that cannot be read are named and counted, and the import goes on.

mod attributes;
mod content;
mod put;
mod rehearsal;

pub use put::run as put;

use super::transfer::{Directories, Directory, Place, Transfer, TreePath, What, Words, exit_code, in_parallel};
use crate::arguments::Import;
use crate::named::is_volume;
use crate::shown;
use anyhow::{Context, Error, Result, bail};
use parking_lot::Mutex;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use weft_vfs::{Attributes, Caller, ErrorKind, Exclusion, HISTORY_NAME, Ino, Kind, MakeNode, RenameMode, Vfs};

const WORDS: Words = Words { done: "imported", told: "imported", again: "the same command goes on from there" };

/// Reason of a failure where a name is taken.
const IN_THE_WAY: &str =
    "cannot import it: something else of that name is in the volume already; --overwrite replaces it";

/// Reason where --overwrite does not help.
const DIRECTORY_IN_THE_WAY: &str = "cannot import it: in the volume a directory has that name";

/// Copies a directory into a volume.
pub fn run(arguments: &Import) -> ExitCode {
    exit_code(import(arguments))
}

fn import(arguments: &Import) -> Result<ExitCode> {
    let transfer = Transfer::begin()?;
    let directory = shown::path(&arguments.directory);
    let metadata = arguments.directory.metadata().with_context(|| format!("cannot import {directory}"))?;
    if !metadata.is_dir() {
        bail!(
            "{directory} is not a directory; import one that holds it, or mount the volume ('weft mount VOLUME DIRECTORY') and \
             copy it there"
        );
    }
    if is_volume(&arguments.directory) {
        let volume = shown::word(arguments.directory.as_os_str());
        bail!("{volume} is a volume, not a directory: 'weft export {volume} DIRECTORY' copies what is in it");
    }
    let root = Directories::named(&arguments.directory)?;
    // An entry that has the name of the past keeps it, as nothing else may be lost of the source.
    let place = match arguments.dry_run {
        true => Place::open(&arguments.target, true)?,
        false => Place::open_without_past(&arguments.target)?,
    };
    transfer.stops(&place.opened.vfs);
    if let Err(error) = place.refuse_own_source(&arguments.directory) {
        place.close()?;
        return Err(error);
    }
    let import = Importer {
        vfs: &place.opened.vfs,
        transfer: &transfer,
        root,
        only: None,
        overwrite: arguments.overwrite,
        excluded: &arguments.exclude,
        named: Mutex::default(),
    };
    let imported = if arguments.dry_run { import.rehearse(&place.path) } else { import.all(&place.path) };
    if let Err(error) = &imported {
        transfer.end_with(error);
    }
    if let Err(error) = place.close() {
        transfer.end_with(&error);
    }
    Ok(transfer.finish(if arguments.dry_run { &rehearsal::WORDS } else { &WORDS }, arguments.json))
}

/// A file to be copied.
struct Item {
    directory: Arc<Directory>,
    /// Its directory in the volume.
    parent: Ino,
    name: Vec<u8>,
}

/// A file with more than one name: its device and inode.
type Key = (u64, u64);

/// A name of such a file: a directory below the imported one, its copy, and the name there.
struct Other {
    key: Key,
    directory: TreePath,
    parent: Ino,
    name: Vec<u8>,
    kind: Kind,
}

/// Entries found on the way, and dealt with when all files are there.
#[derive(Default)]
struct Found {
    /// Directories, and their copies.
    directories: Vec<(TreePath, Ino)>,
    /// Files of several names, of which one was met.
    met: HashSet<Key>,
    /// Their other names.
    names: Vec<Other>,
    /// The first that has the name of the past.
    like_past: Option<PathBuf>,
}

struct Importer<'a> {
    vfs: &'a Vfs,
    transfer: &'a Transfer,
    root: Directories,
    /// The only entry of that directory to be copied, if not all of them are.
    only: Option<Vec<u8>>,
    overwrite: bool,
    /// Patterns of what is left out.
    excluded: &'a [Exclusion],
    /// Files with more than one name that are in the volume.
    named: Mutex<HashMap<Key, Ino>>,
}

type Sender<'a> = super::transfer::Sender<'a, Item>;

impl Importer<'_> {
    fn all(&self, path: &[Vec<u8>]) -> Result<()> {
        let target = self.target(path)?;
        let mut found = Found::default();
        in_parallel(
            |files| self.walk(target, files, &mut found),
            |item: Item| {
                self.content(&item);
                Ok(())
            },
        )?;
        self.other_names(&found.names);
        crate::notes::tell(found.like_past.as_deref().map(|path| {
            let path = shown::path(path);
            format!(
                "{path} has the name of the past, and hides it in its directory; mount with --history-name to have both"
            )
        }));
        // Last, and the deepest first: new entries in a directory change its times.
        for (way, ino) in found.directories.iter().rev() {
            if !self.transfer.goes_on() {
                break;
            }
            let set = |directory: Directory| {
                let stat = rustix::fs::fstat(&directory)?;
                self.attributes(&directory, &|| way.path(), *ino, &stat);
                Ok(())
            };
            if let Err(error) = self.root.open(way).and_then(set) {
                let before = "cannot import its attributes";
                self.transfer.fail_with(What::Attribute, &way.path(), before, &error.into());
            }
        }
        Ok(())
    }

    /// Returns the directory `path` in the volume, made if it is missing.
    fn target(&self, path: &[Vec<u8>]) -> Result<Ino> {
        let mut at = Ino::ROOT;
        for name in path {
            if name == HISTORY_NAME && self.vfs.lookup(Caller::ROOT, at, name).is_err() {
                bail!("{} is the past of its directory, and nothing can be imported into it", shown::bytes(name));
            }
            let node = MakeNode { kind: Kind::Directory, permissions: 0o755, umask: 0, rdev: 0 };
            let made = self.directory(at, name, node).context("cannot make the directory in the volume")?;
            at = match made {
                Made::New(ino) | Made::Same(ino) => ino,
                Made::No(_) => bail!("{} is in the way and not a directory", String::from_utf8_lossy(name)),
            };
        }
        Ok(at)
    }

    /// Returns the directory `name` in `parent`, made if it is missing.
    fn directory(&self, parent: Ino, name: &[u8], node: MakeNode) -> Result<Made> {
        match self.vfs.make(Caller::ROOT, parent, name, node) {
            Err(error) if error.kind() == ErrorKind::Exists => {
                let there = self.vfs.lookup(Caller::ROOT, parent, name)?;
                Ok(match there.kind {
                    Kind::Directory => Made::Same(there.ino),
                    _ => Made::No("cannot import it: something that is no directory has its name in the volume"),
                })
            }
            made => {
                let made = made?;
                self.transfer.progress.directory();
                Ok(Made::New(made.ino))
            }
        }
    }

    /// Returns a directory, and the names in it that are to be copied. Reports one that cannot be
    /// read.
    fn listed(&self, way: &TreePath) -> Option<(Vec<Vec<u8>>, Directory)> {
        let only = self.only.clone().filter(|_| way.is_top());
        let listed = self.root.open(way).and_then(|directory| {
            let names = only.map_or_else(|| directory.names(), |only| Ok(vec![only]))?;
            Ok((names, directory))
        });
        let reported =
            |error| self.transfer.fail_with(What::Directory, &way.path(), "cannot import it", &Error::from(error));
        listed.map_err(reported).ok()
    }

    fn walk(&self, target: Ino, files: &Sender<'_>, found: &mut Found) -> Result<()> {
        let top = self.root.top().way();
        let mut waiting = vec![(top.clone(), target)];
        // Otherwise the target is no copy of it.
        if target != Ino::ROOT && self.only.is_none() {
            found.directories.push((top.clone(), target));
        }
        while let Some((way, parent)) = waiting.pop() {
            let Some((names, directory)) = self.listed(&way) else {
                // It was reported, and need not be tried again for its attributes.
                found.directories.retain(|(other, _)| !other.is(&way));
                continue;
            };
            let directory = Arc::new(directory);
            for name in names {
                if !self.transfer.goes_on() {
                    return Ok(());
                }
                if self.is_excluded(&way, &name) {
                    self.transfer.exclude();
                    continue;
                }
                if name == HISTORY_NAME && found.like_past.is_none() {
                    found.like_past = Some(directory.path_of(&name));
                }
                let stat = match rustix::fs::statat(&*directory, &name[..], AtFlags::SYMLINK_NOFOLLOW) {
                    Ok(stat) => stat,
                    Err(error) => {
                        let path = directory.path_of(&name);
                        self.transfer.fail_with(What::File, &path, "cannot import it", &error.into());
                        continue;
                    }
                };
                let Some(kind) = Kind::from_mode(stat.st_mode) else {
                    self.transfer.fail(What::Special, &directory.path_of(&name), "cannot import it: an unknown kind");
                    continue;
                };
                let key = (stat.st_dev, stat.st_ino);
                match kind {
                    Kind::Directory => {
                        if let Some(ino) = self.below(&directory, &name, parent, &stat) {
                            let below = way.below(&name);
                            found.directories.push((below.clone(), ino));
                            waiting.push((below, ino));
                        }
                    }
                    _ if stat.st_nlink > 1 && !found.met.insert(key) => {
                        found.names.push(Other { key, directory: way.clone(), parent, name, kind });
                    }
                    Kind::File => {
                        if !files.send(Item { directory: directory.clone(), parent, name })? {
                            return Ok(());
                        }
                    }
                    _ => self.special(&directory, parent, &name),
                }
            }
        }
        Ok(())
    }

    /// True if the user had `name` in the directory at `way` left out.
    fn is_excluded(&self, way: &TreePath, name: &[u8]) -> bool {
        if self.excluded.is_empty() {
            return false;
        }
        let path = [&way.names()[..], &[name]].concat();
        self.excluded.iter().any(|exclusion| exclusion.is_of(&path))
    }

    /// Returns a directory's copy in `parent`.
    fn below(&self, directory: &Directory, name: &[u8], parent: Ino, stat: &Stat) -> Option<Ino> {
        let node = MakeNode { kind: Kind::Directory, permissions: stat.st_mode & 0o7777, umask: 0, rdev: 0 };
        match self.directory(parent, name, node) {
            Ok(Made::New(ino)) => return Some(ino),
            Ok(Made::Same(ino)) => {
                self.transfer.keep();
                return Some(ino);
            }
            Ok(Made::No(why)) => self.transfer.fail(What::Directory, &directory.path_of(name), why),
            Err(error) => {
                self.transfer.fail_with(What::Directory, &directory.path_of(name), "cannot import it", &error);
            }
        }
        None
    }

    /// Imports an entry that is no file and no directory.
    fn special(&self, directory: &Directory, parent: Ino, name: &[u8]) {
        let path = || directory.path_of(name);
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(directory, name, flags, Mode::empty())
            .and_then(|fd| rustix::fs::fstat(&fd).map(|stat| (fd, stat)));
        let (fd, stat) = match opened {
            Ok(opened) => opened,
            Err(error) => return self.transfer.fail_with(What::Special, &path(), "cannot import it", &error.into()),
        };
        let is_link = FileType::from_raw_mode(stat.st_mode) == FileType::Symlink;
        let what = if is_link { What::Symlink } else { What::Special };
        match self.make_special(&fd, parent, name, &stat) {
            Ok(Made::New(ino)) => {
                self.attributes(&fd, &path, ino, &stat);
                self.name(&stat, ino);
                self.transfer.progress.other();
            }
            Ok(Made::Same(ino)) => {
                self.attributes(&fd, &path, ino, &stat);
                self.name(&stat, ino);
                self.transfer.keep();
            }
            Ok(Made::No(why)) => self.transfer.fail(what, &path(), why),
            Err(error) => self.transfer.fail_with(what, &path(), "cannot import it", &error),
        }
    }

    fn make_special(&self, fd: &rustix::fd::OwnedFd, parent: Ino, name: &[u8], stat: &Stat) -> Result<Made> {
        let Some(kind) = Kind::from_mode(stat.st_mode).filter(|kind| !matches!(kind, Kind::File | Kind::Directory))
        else {
            return Ok(Made::No("cannot import it: something else took its place meanwhile"));
        };
        let target = match kind {
            Kind::Symlink => Some(rustix::fs::readlinkat(fd, "", Vec::new())?),
            _ => None,
        };
        let rdev = u32::try_from(stat.st_rdev).unwrap_or(0);
        let in_the_way = self.in_the_way(parent, name)?;
        if let Some(there) = &in_the_way {
            let is_same = there.kind == kind
                && match &target {
                    Some(target) => self.vfs.read_symlink(there.ino)? == target.as_bytes(),
                    None => there.rdev == rdev || !matches!(kind, Kind::CharDevice | Kind::BlockDevice),
                };
            match (is_same, there.kind) {
                (true, _) => return Ok(Made::Same(there.ino)),
                (_, Kind::Directory) => return Ok(Made::No(DIRECTORY_IN_THE_WAY)),
                _ if !self.overwrite => return Ok(Made::No(IN_THE_WAY)),
                _ => {}
            }
        }
        let make = |name: &[u8]| match &target {
            Some(target) => self.vfs.make_symlink(Caller::ROOT, parent, name, target.as_bytes()),
            None => {
                let node = MakeNode { kind, permissions: stat.st_mode & 0o7777, umask: 0, rdev };
                self.vfs.make(Caller::ROOT, parent, name, node)
            }
        };
        let Some(there) = in_the_way else { return Ok(Made::New(make(name)?.ino)) };
        // No inode has the number of another one, but an interrupted import may have left this
        // name.
        let temporary = format!(".weft-import-{}-{}", there.ino.0, std::process::id());
        let made = make(temporary.as_bytes())?;
        self.replace(parent, temporary.as_bytes(), name)?;
        Ok(Made::New(made.ino))
    }

    /// Moves the entry `temporary` of `parent` over `name`; readers find the old one or the new
    /// one. Removes it if that fails.
    fn replace(&self, parent: Ino, temporary: &[u8], name: &[u8]) -> Result<()> {
        if let Err(error) = self.vfs.rename((parent, temporary), (parent, name), RenameMode::Replace) {
            self.vfs.unlink(parent, temporary)?;
            return Err(error.into());
        }
        Ok(())
    }

    /// Returns the holder of a name.
    fn in_the_way(&self, parent: Ino, name: &[u8]) -> Result<Option<Attributes>> {
        match self.vfs.lookup(Caller::ROOT, parent, name) {
            Ok(there) => Ok(Some(there)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Remembers the copy of a file with several names.
    fn name(&self, stat: &Stat, ino: Ino) {
        if stat.st_nlink > 1 {
            self.named.lock().entry((stat.st_dev, stat.st_ino)).or_insert(ino);
        }
    }

    /// Gives files their other names.
    fn other_names(&self, names: &[Other]) {
        for other in names {
            if !self.transfer.goes_on() {
                return;
            }
            let path = || other.directory.below(&other.name).path();
            let ino = self.named.lock().get(&other.key).copied();
            let Some(ino) = ino else {
                // The first name could not be had: perhaps this one can.
                match self.root.open(&other.directory) {
                    Ok(directory) if other.kind == Kind::File => {
                        let (directory, name) = (Arc::new(directory), other.name.clone());
                        self.content(&Item { directory, parent: other.parent, name });
                    }
                    Ok(directory) => self.special(&directory, other.parent, &other.name),
                    Err(error) => {
                        self.transfer.fail_with(What::HardLink, &path(), "cannot import it", &error.into());
                    }
                }
                continue;
            };
            match self.place(ino, other.parent, &other.name) {
                Ok(Made::New(_)) => {}
                Ok(Made::Same(_)) => self.transfer.keep(),
                Ok(Made::No(why)) => self.transfer.fail(What::HardLink, &path(), why),
                Err(error) => self.transfer.fail_with(What::HardLink, &path(), "cannot import it", &error),
            }
        }
    }

    /// Gives `ino` a name in the volume. Replaces only what the user allowed.
    fn place(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Made> {
        match self.vfs.link(Caller::ROOT, ino, parent, name) {
            Err(error) if error.kind() == ErrorKind::Exists => {}
            linked => return Ok(linked.map(|_| Made::New(ino))?),
        }
        let there = self.vfs.lookup(Caller::ROOT, parent, name)?;
        if there.ino == ino {
            return Ok(Made::Same(ino));
        }
        if there.kind == Kind::Directory {
            return Ok(Made::No(DIRECTORY_IN_THE_WAY));
        }
        if !self.overwrite {
            return Ok(Made::No(IN_THE_WAY));
        }
        let temporary = format!(".weft-import-{}", ino.0);
        self.vfs.link(Caller::ROOT, ino, parent, temporary.as_bytes())?;
        self.replace(parent, temporary.as_bytes(), name)?;
        Ok(Made::New(ino))
    }
}

/// Outcome of giving a file its name.
enum Made {
    New(Ino),
    /// The same was there.
    Same(Ino),
    /// Another entry was there; the reason that it stays.
    No(&'static str),
}
