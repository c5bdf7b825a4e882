//! `weft export`: copies from a volume to a directory, straight from the file system without a
//! mount.
//!
//! A file has its name only when it is whole and on the disk (`unfinished`, `finish`). Files that
//! cannot be copied are named and counted, and the export goes on. It replaces nothing that is
//! there.

mod attributes;
mod content;
mod finish;
mod get;
mod unfinished;
mod views;

pub use get::run as get;

use super::transfer::{
    Claims, Directories, Directory, Place, Transfer, TreePath, What, Words, exit_code, find, find_in, in_parallel,
    sync_parent,
};
use crate::arguments::Export;
use crate::named::{is_volume, volume_around};
use crate::shown;
use anyhow::{Context, Result, bail, ensure};
use attributes::set;
use finish::Finish;
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use views::{View, Views};
use weft_vfs::{Attributes, Caller, Cookie, DirEntry, Ino, Kind, Vfs};

/// Entries listed at once.
const PAGE: usize = 1024;

/// Number of directories from which on the whole file system is synced instead of each.
const DIRECTORIES_MANY: usize = 64;

const WORDS: Words =
    Words { done: "exported", told: "exported", again: "the same command with --continue goes on from there" };

/// Reason of a failure where a view lies in the directory that it is a view of.
const SHOWS_ITSELF: &str =
    "not exported: it lies in the directory that it is a view of, and would show itself; make it elsewhere";

/// Reason of a failure where a name is taken.
const IN_THE_WAY: &str = "not exported: something else of that name is there, and was left as it is";

/// Copies from a volume.
pub fn run(arguments: &Export) -> ExitCode {
    exit_code(export(arguments))
}

fn export(arguments: &Export) -> Result<ExitCode> {
    let transfer = Transfer::begin()?;
    refuse_in_volume(&arguments.source, &arguments.directory)?;
    let place = Place::open_at(&arguments.source, arguments.at.as_ref())?;
    transfer.stops(&place.opened.vfs);
    let from = find(&place.opened.vfs, &place.path)?;
    let way = if arguments.at.is_some() { "--at MOMENT" } else { "--read-only" };
    ensure!(
        from.kind == Kind::Directory,
        "{} is not a directory; export the directory that it is in, or mount the volume ('weft mount {way} VOLUME \
         DIRECTORY') and copy it from there",
        arguments.source.display()
    );
    let root = make_target(&arguments.directory, arguments.go_on)?;
    let export = Exporter {
        vfs: &place.opened.vfs,
        transfer: &transfer,
        finish: Finish::new(&transfer),
        root,
        claims: place.claims,
        go_on: arguments.go_on,
    };
    export.all(from, None)?;
    if let Err(error) = place.close() {
        transfer.end_with(&error);
    }
    Ok(transfer.finish(&WORDS, arguments.json))
}

/// Refuses a target that is a volume or lies in one: what is in a volume is written by Weft alone.
fn refuse_in_volume(source: &OsStr, directory: &Path) -> Result<()> {
    let Some(volume) = volume_around(directory) else { return Ok(()) };
    let is_swapped = is_volume(directory) && !is_volume(Path::new(source)) && Path::new(source).is_dir();
    let [source, directory] = [source, directory.as_os_str()].map(shown::word);
    if is_swapped {
        bail!("{directory} is a volume; the volume comes first: 'weft export {directory} {source}'");
    }
    bail!("{directory} lies among the files of the volume {}; name a directory elsewhere", shown::path(&volume));
}

/// Makes directory `to`, or finds that it is there and may be used.
fn make_target(to: &Path, go_on: bool) -> Result<Directories> {
    // Closed until it has the permissions that it is to have.
    let made = Directories::made(to)?;
    let is_empty = || made.top().names().is_ok_and(|names| names.is_empty());
    if !go_on && !is_empty() {
        bail!(
            "{} already exists and is not an empty directory; --continue goes on with an export that did not finish",
            to.display()
        );
    }
    Ok(made)
}

/// A file to be copied.
struct Item {
    directory: Arc<Directory>,
    name: Vec<u8>,
    attributes: Attributes,
}

/// A name of a file: a directory below the target, and the name there.
#[derive(Clone)]
struct First {
    directory: TreePath,
    name: Vec<u8>,
}

/// Entries found on the way, and dealt with when all files are there.
#[derive(Default)]
struct Found {
    /// Directories of the target.
    directories: Vec<(TreePath, Attributes)>,
    /// Inodes of several names, of which one was met.
    met: HashSet<Ino>,
    /// Their other names.
    names: Vec<(First, Attributes)>,
}

struct Exporter<'a> {
    vfs: &'a Vfs,
    transfer: &'a Transfer,
    finish: Finish<'a>,
    root: Directories,
    /// Set if root exports a volume that others may have written.
    claims: Option<Claims>,
    /// True if a part of it may be there already.
    go_on: bool,
}

type Sender<'a> = super::transfer::Sender<'a, Item>;

/// The fate of an entry that was met.
enum Went {
    /// It is copied, will be, or was reported.
    On,
    /// It is a directory: all in it is to be copied.
    Below(TreePath, View),
    /// The copy is to end.
    No,
}

impl Exporter<'_> {
    /// Copies all that is in `from`, or one entry of it.
    fn all(&self, from: Attributes, only: Option<&[u8]>) -> Result<()> {
        let mut found = Found::default();
        in_parallel(
            |files| self.walk(from, only, files, &mut found),
            |item: Item| {
                self.content(&item);
                Ok(())
            },
        )?;
        self.finish.finish_all();
        self.other_names(&found.names);
        self.directories(&found.directories);
        Ok(())
    }

    fn walk(&self, from: Attributes, only: Option<&[u8]>, files: &Sender<'_>, found: &mut Found) -> Result<()> {
        let mut views = Views::default();
        let view = views.below(None, &from).context("a first directory was met before")?;
        let top = self.root.top().way();
        let mut waiting = Vec::new();
        if let Some(name) = only {
            let (directory, attributes) = (Arc::new(self.root.open(top)?), find_in(self.vfs, from.ino, name)?);
            let went = self.entry((&directory, name), attributes, (&mut views, &view), files, found)?;
            if let Went::Below(below, view) = went {
                waiting.push((below, attributes.ino, attributes.computed.is_some(), view));
            }
        } else {
            waiting.push((top.clone(), from.ino, from.computed.is_some(), view));
            found.directories.push((top.clone(), from));
        }
        while let Some((way, ino, is_view, view)) = waiting.pop() {
            let directory = match self.root.open(&way) {
                Ok(directory) => Arc::new(directory),
                Err(error) => {
                    self.transfer.fail_with(What::Directory, &way.path(), "not exported", &error.into());
                    continue;
                }
            };
            if self.go_on {
                self.remove_left(&directory, ino);
            }
            let mut after = Cookie(0);
            while self.transfer.goes_on()
                && let Some(page) = self.page(&directory, ino, is_view, after)
                && let Some((last, _)) = page.last()
            {
                after = last.cookie;
                for (entry, attributes) in page {
                    if !self.transfer.goes_on() {
                        return Ok(());
                    }
                    let name = entry.name.as_bytes();
                    let Some(attributes) = self.attributes(&directory, ino, is_view, &entry, attributes) else {
                        continue;
                    };
                    match self.entry((&directory, name), attributes, (&mut views, &view), files, found)? {
                        Went::On => {}
                        Went::Below(below, view) => {
                            waiting.push((below, attributes.ino, attributes.computed.is_some(), view));
                        }
                        Went::No => return Ok(()),
                    }
                }
            }
        }
        Ok(())
    }

    /// Copies an entry of the directory whose `view` is known, or has it copied.
    fn entry(
        &self,
        (directory, name): (&Arc<Directory>, &[u8]),
        attributes: Attributes,
        (views, view): (&mut Views, &View),
        files: &Sender<'_>,
        found: &mut Found,
    ) -> Result<Went> {
        match attributes.kind {
            Kind::Directory => {
                let Some(view) = views.below(Some(view), &attributes) else {
                    self.met_before(directory, name, attributes.ino);
                    return Ok(Went::On);
                };
                if self.directory(directory, name) {
                    let below = directory.way().below(name);
                    found.directories.push((below.clone(), attributes));
                    return Ok(Went::Below(below, view));
                }
            }
            _ if attributes.nlink > 1 && !found.met.insert(attributes.ino) => {
                let first = First { directory: directory.way().clone(), name: name.to_vec() };
                found.names.push((first, attributes));
            }
            Kind::File | Kind::Transformation => {
                let item = Item { directory: directory.clone(), name: name.to_vec(), attributes };
                if !files.send(item)? {
                    return Ok(Went::No);
                }
            }
            _ => self.special(directory, name, &attributes),
        }
        Ok(Went::On)
    }

    /// Reports a directory that was met on the way to itself, or by another name.
    fn met_before(&self, parent: &Directory, name: &[u8], ino: Ino) {
        let error = weft_vfs::Error::new(weft_vfs::ErrorKind::Corrupt, ino);
        let before = "not exported: this directory lies in itself, or has two names";
        self.transfer.fail_with(What::Directory, &parent.path_of(name), before, &error.into());
    }

    /// Removes the files that a killed export left in `directory`.
    fn remove_left(&self, directory: &Directory, ino: Ino) {
        let is_known = |name: &[u8]| self.vfs.named(ino, name).is_ok();
        if let Err(error) = unfinished::remove_left(directory, is_known) {
            let before = "cannot remove what an earlier export left there";
            self.transfer.fail_with(What::Directory, &directory.path(), before, &error.into());
        }
    }

    /// Returns the next entries of a directory of the volume; none if they cannot be read.
    fn page(
        &self,
        directory: &Directory,
        ino: Ino,
        is_view: bool,
        after: Cookie,
    ) -> Option<Vec<(DirEntry, Option<Attributes>)>> {
        let listed = self.vfs.read_directory_attributes(Caller::ROOT, ino, after, PAGE);
        // If one inode is damaged, the others are not lost by that: each is looked up by itself.
        let listed = listed.or_else(|_| {
            let entries = self.vfs.read_directory(ino, after, PAGE)?;
            Ok(entries.into_iter().map(|entry| (entry, None)).collect())
        });
        let failed = |error: weft_vfs::Error| {
            let (what, before) = match is_view && !is_of_store(&error) {
                true => (What::Link, "not exported: the view shows nothing more"),
                false => (What::Directory, "not all was exported"),
            };
            self.transfer.fail_with(what, &directory.path(), before, &error.into());
        };
        listed.map_err(failed).ok()
    }

    /// Returns the attributes of an entry; those of a transformation link are those of the file
    /// that it looks like.
    fn attributes(
        &self,
        directory: &Directory,
        ino: Ino,
        is_view: bool,
        entry: &DirEntry,
        listed: Option<Attributes>,
    ) -> Option<Attributes> {
        if listed.is_some() {
            return listed;
        }
        let failed = |error: weft_vfs::Error| {
            let (what, before) = match (is_view && !is_of_store(&error), error.kind()) {
                (true, weft_vfs::ErrorKind::Loop) => (What::Link, SHOWS_ITSELF),
                (true, _) => (What::Link, "not exported: the view does not show it"),
                (false, _) => (of_kind(entry.kind), "not exported"),
            };
            self.transfer.fail_with(what, &directory.path_of(entry.name.as_bytes()), before, &error.into());
        };
        self.vfs.lookup(Caller::ROOT, ino, entry.name.as_bytes()).map_err(failed).ok()
    }

    /// Makes directory `name`, closed to others until its attributes are set at the end. False if
    /// it cannot be made.
    fn directory(&self, parent: &Directory, name: &[u8]) -> bool {
        let made = match rustix::fs::mkdirat(parent, name, Mode::RWXU) {
            Err(Errno::EXIST) if self.go_on => {
                self.transfer.keep();
                attributes::open_again(parent, name)
            }
            made => made.map(|()| self.transfer.progress.directory()),
        };
        match made {
            Ok(()) => return true,
            Err(Errno::EXIST | Errno::NOTDIR | Errno::LOOP) => {
                self.transfer.fail(What::Directory, &parent.path_of(name), IN_THE_WAY);
            }
            Err(error) => {
                let before = "not exported, with all that is in it";
                self.transfer.fail_with(What::Directory, &parent.path_of(name), before, &error.into());
            }
        }
        false
    }

    /// Makes an entry that is no file and no directory.
    fn special(&self, directory: &Directory, name: &[u8], attributes: &Attributes) {
        let path = || directory.path_of(name);
        let what = of_kind(attributes.kind);
        let failed = |error| self.transfer.fail_with(what, &path(), "not exported", &error);
        if let Some(why) = self.claims.and_then(|claims| claims.refusal_of_kind(attributes.kind)) {
            return self.transfer.fail(what, &path(), &why);
        }
        match self.make_special(directory, name, attributes) {
            Ok(true) => self.transfer.progress.other(),
            Ok(false) => self.transfer.keep(),
            Err(error) if error.downcast_ref() == Some(&Errno::EXIST) => {
                return self.transfer.fail(what, &path(), IN_THE_WAY);
            }
            Err(error) => return failed(error),
        }
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::openat(directory, name, flags, Mode::empty()) {
            Ok(fd) => set(self, &fd, &path, attributes),
            Err(error) => return failed(error.into()),
        }
        if attributes.nlink > 1 {
            self.finish.name(attributes.ino, First { directory: directory.way().clone(), name: name.to_vec() });
        }
    }

    /// Makes it. False if the same was there already. `EXIST`: another entry was.
    fn make_special(&self, directory: &Directory, name: &[u8], attributes: &Attributes) -> Result<bool> {
        let (kind, rdev) = match attributes.kind {
            Kind::Fifo => (FileType::Fifo, 0),
            Kind::Socket => (FileType::Socket, 0),
            Kind::CharDevice => (FileType::CharacterDevice, attributes.rdev),
            Kind::BlockDevice => (FileType::BlockDevice, attributes.rdev),
            Kind::Symlink | Kind::File | Kind::Directory | Kind::Transformation => {
                let target = self.vfs.read_symlink(attributes.ino)?;
                return match rustix::fs::symlinkat(&target[..], directory, name) {
                    Err(Errno::EXIST) if self.go_on => match rustix::fs::readlinkat(directory, name, Vec::new()) {
                        Ok(there) if there.as_bytes() == target => Ok(false),
                        _ => Err(Errno::EXIST.into()),
                    },
                    made => Ok(made.map(|()| true)?),
                };
            }
        };
        match rustix::fs::mknodat(directory, name, kind, Mode::RUSR | Mode::WUSR, u64::from(rdev)) {
            Err(Errno::EXIST) if self.go_on => {
                let stat = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
                let is_same = FileType::from_raw_mode(stat.st_mode) == kind && stat.st_rdev == u64::from(rdev);
                if is_same { Ok(false) } else { Err(Errno::EXIST.into()) }
            }
            made => Ok(made.map(|()| true)?),
        }
    }

    /// Gives files their other names.
    fn other_names(&self, names: &[(First, Attributes)]) {
        for (other, attributes) in names {
            if !self.transfer.goes_on() {
                return;
            }
            let path = || other.directory.below(&other.name).path();
            let directory = match self.root.open(&other.directory) {
                Ok(directory) => Arc::new(directory),
                Err(error) => {
                    self.transfer.fail_with(What::HardLink, &path(), "not exported", &error.into());
                    continue;
                }
            };
            let Some(first) = self.finish.named(attributes.ino) else {
                // The first name could not be had: perhaps this one can.
                self.copy_again(directory, other, attributes);
                continue;
            };
            match self.link(&first, &directory, &other.name) {
                Ok(()) => {}
                Err(Errno::EXIST) => self.transfer.fail(What::HardLink, &path(), IN_THE_WAY),
                Err(error @ (Errno::PERM | Errno::MLINK | Errno::OPNOTSUPP | Errno::XDEV)) => {
                    let why = format!("exported as a file of its own, as no hard link can be made there: {error}");
                    self.transfer.fail(What::HardLink, &path(), &why);
                    self.copy_again(directory, other, attributes);
                }
                Err(error) => self.transfer.fail_with(What::HardLink, &path(), "not exported", &error.into()),
            }
        }
    }

    fn copy_again(&self, directory: Arc<Directory>, name: &First, attributes: &Attributes) {
        match attributes.kind {
            Kind::File | Kind::Transformation => {
                self.content(&Item { directory, name: name.name.clone(), attributes: *attributes });
                self.finish.finish_all();
            }
            _ => self.special(&directory, &name.name, attributes),
        }
    }

    /// Makes a hard link. `EXIST`: another entry has the name.
    fn link(&self, first: &First, directory: &Directory, name: &[u8]) -> Result<(), Errno> {
        let from = self.root.open(&first.directory)?;
        match rustix::fs::linkat(&from, &first.name[..], directory, name, AtFlags::empty()) {
            Err(Errno::EXIST) if self.go_on => {
                let stat =
                    |directory: &Directory, name: &[u8]| rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW);
                let (one, other) = (stat(&from, &first.name)?, stat(directory, name)?);
                if (one.st_dev, one.st_ino) != (other.st_dev, other.st_ino) {
                    return Err(Errno::EXIST);
                }
                self.transfer.keep();
                Ok(())
            }
            linked => linked,
        }
    }

    /// Sets the attributes of directories, the deepest first, since new entries in a directory
    /// change its times. Then all names are on the disk.
    fn directories(&self, directories: &[(TreePath, Attributes)]) {
        let many = directories.len() > DIRECTORIES_MANY;
        for (way, attributes) in directories.iter().rev() {
            let sync = |directory: &Directory| {
                // An unfinished directory keeps its temporary mode, so that the export can go on.
                if self.transfer.goes_on() {
                    set(self, directory, &|| way.path(), attributes);
                }
                if many { Ok(()) } else { rustix::fs::fsync(directory) }
            };
            if let Err(error) = self.root.open(way).and_then(|directory| sync(&directory)) {
                self.transfer.fail_with(What::Directory, &way.path(), "cannot finish the directory", &error.into());
            }
        }
        let synced = if many { rustix::fs::syncfs(self.root.top()) } else { sync_parent(&self.root.top().path()) };
        if let Err(error) = synced {
            self.transfer.fail_with(What::Directory, &self.root.top().path(), "cannot sync it", &error.into());
        }
    }
}

fn of_kind(kind: Kind) -> What {
    match kind {
        Kind::File => What::File,
        Kind::Directory => What::Directory,
        Kind::Symlink => What::Symlink,
        Kind::Transformation => What::Link,
        Kind::Fifo | Kind::Socket | Kind::CharDevice | Kind::BlockDevice => What::Special,
    }
}

/// True if the volume failed, and not the view.
fn is_of_store(error: &weft_vfs::Error) -> bool {
    std::error::Error::source(error).is_some()
}
