//! `weft export`: copies from a volume to a new directory, straight from the file system without a mount.

use super::transfer::{CHUNK_BYTES, Place, Progress, Sender, find, in_parallel, os};
use crate::arguments::Export;
use anyhow::{Context, Result, bail, ensure};
use parking_lot::Mutex;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Timespec, Timestamps, XattrFlags};
use rustix::io::Errno;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use weft_vfs::{Attributes, Caller, Cookie, ErrorKind, Ino, Kind, Vfs, Whence};

/// Entries listed at once.
const PAGE: usize = 1024;

/// Copies from a volume.
pub fn run(arguments: &Export) -> Result<ExitCode> {
    let place = Place::open(&arguments.source, true)?;
    let from = find(&place.opened.vfs, &place.path)?;
    let to = &arguments.directory;
    make_empty(to)?;
    let progress = Progress::new();
    let export = Exporter { vfs: &place.opened.vfs, progress: &progress, lost: Mutex::default() };
    let mut links = HashMap::new();
    let mut directories = Vec::new();
    in_parallel(
        |files| export.walk(from, to, files, &mut directories, &mut links),
        |(path, attributes)| export.content(&path, &attributes),
    )?;
    export.remove_lost(&links)?;
    directories.iter().rev().try_for_each(|(path, attributes)| export.attributes(path, attributes))?;
    place.close()?;
    progress.finish("exported", arguments.json);
    Ok(if progress.has_lost() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Makes directory `to`, or finds that it is there and empty.
fn make_empty(to: &Path) -> Result<()> {
    match std::fs::create_dir(to) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            if !std::fs::read_dir(to).is_ok_and(|mut entries| entries.next().is_none()) {
                bail!("{} already exists and is not an empty directory", to.display());
            }
            Ok(())
        }
        made => made.with_context(|| format!("cannot make {}", to.display())),
    }
}

type File = (PathBuf, Attributes);

struct Exporter<'a> {
    vfs: &'a Vfs,
    progress: &'a Progress,
    /// Damaged files of several names.
    lost: Mutex<Vec<Ino>>,
}

/// The names that a file of several was exported by.
type Links = HashMap<Ino, Vec<PathBuf>>;

impl Exporter<'_> {
    /// Damaged files go by all of their names.
    fn remove_lost(&self, links: &Links) -> Result<()> {
        for path in self.lost.lock().iter().filter_map(|ino| links.get(ino)).flatten() {
            std::fs::remove_file(path).with_context(|| format!("cannot remove {}", path.display()))?;
            self.progress.say(&format!("weft: {}: not exported, a name of that file", path.display()));
        }
        Ok(())
    }

    fn walk(
        &self,
        from: Attributes,
        to: &Path,
        files: &Sender<'_, File>,
        directories: &mut Vec<File>,
        links: &mut Links,
    ) -> Result<()> {
        let mut waiting = vec![(to.to_path_buf(), from.ino, from.computed.is_some())];
        directories.push((to.to_path_buf(), from));
        while let Some((directory, ino, is_view)) = waiting.pop() {
            let mut after = Cookie(0);
            loop {
                let listed = self.vfs.read_directory_attributes(Caller::ROOT, ino, after, PAGE);
                let page = match listed {
                    Err(error) if is_view && !is_of_store(&error) => {
                        // What a view cannot show is not lost by that.
                        self.progress.skip(&directory, &format!("the view shows nothing more: {error}"));
                        break;
                    }
                    listed => listed.with_context(|| format!("cannot export {}", directory.display()))?,
                };
                let Some((last, _)) = page.last() else { break };
                after = last.cookie;
                for (entry, attributes) in page {
                    let path = directory.join(os(entry.name.as_bytes()));
                    let attributes = match attributes {
                        Some(attributes) => attributes,
                        // A transformation link, which becomes the file that it looks like.
                        None => match self.vfs.lookup(Caller::ROOT, ino, entry.name.as_bytes()) {
                            Err(error) if is_view && !is_of_store(&error) => {
                                self.progress.skip(&path, &format!("the view does not show it: {error}"));
                                continue;
                            }
                            found => found.with_context(|| format!("cannot export {}", path.display()))?,
                        },
                    };
                    let made = self.entry(&path, &attributes, links);
                    if !made.with_context(|| format!("cannot export {}", path.display()))? {
                        continue;
                    }
                    match attributes.kind {
                        Kind::Directory => {
                            directories.push((path.clone(), attributes));
                            waiting.push((path, attributes.ino, attributes.computed.is_some()));
                        }
                        Kind::File => {
                            if !files.send((path, attributes))? {
                                return Ok(());
                            }
                        }
                        _ => self.attributes(&path, &attributes)?,
                    }
                }
            }
        }
        Ok(())
    }

    /// Makes one entry. False: it was one more name of something exported before.
    fn entry(&self, path: &Path, attributes: &Attributes, links: &mut Links) -> Result<bool> {
        if attributes.kind != Kind::Directory && attributes.nlink > 1 {
            let names = links.entry(attributes.ino).or_default();
            names.push(path.into());
            if let [first, _, ..] = &names[..] {
                std::fs::hard_link(first, path)?;
                return Ok(false);
            }
        }
        let special = |kind| rustix::fs::mknodat(CWD, path, kind, Mode::RUSR | Mode::WUSR, u64::from(attributes.rdev));
        match attributes.kind {
            Kind::Directory => {
                self.progress.directory();
                std::fs::create_dir(path)?;
            }
            Kind::File | Kind::Transformation => {
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                rustix::fs::openat(CWD, path, flags, Mode::RUSR | Mode::WUSR)?;
            }
            Kind::Symlink => {
                let target = self.vfs.read_symlink(attributes.ino)?;
                std::os::unix::fs::symlink(os(&target), path)?;
            }
            Kind::Fifo => special(FileType::Fifo)?,
            Kind::Socket => special(FileType::Socket)?,
            Kind::CharDevice => special(FileType::CharacterDevice)?,
            Kind::BlockDevice => special(FileType::BlockDevice)?,
        }
        if !matches!(attributes.kind, Kind::File | Kind::Directory) {
            self.progress.other();
        }
        Ok(true)
    }

    /// Copies a file's content, its holes left out, then its attributes.
    fn content(&self, path: &Path, attributes: &Attributes) -> Result<()> {
        let copied = self.copy(path, attributes);
        if let Err(error) = &copied
            && attributes.computed.is_some()
        {
            // What a link cannot give is not lost by that.
            self.progress.skip(path, &format!("the transformation link gives nothing: {error}"));
            return Ok(std::fs::remove_file(path)?);
        }
        if let Err(error) = &copied
            && error.downcast_ref::<weft_vfs::Error>().is_some_and(|error| error.kind() == ErrorKind::Corrupt)
        {
            // Whoever exports a damaged volume wants what is whole, and to know what is not.
            self.progress.lose(path, &format!("not exported: {error}"));
            if attributes.nlink > 1 {
                self.lost.lock().push(attributes.ino);
                return Ok(());
            }
            return Ok(std::fs::remove_file(path)?);
        }
        copied.with_context(|| format!("cannot export {}", path.display()))?;
        self.attributes(path, attributes)?;
        self.progress.file(attributes.size);
        Ok(())
    }

    fn copy(&self, path: &Path, attributes: &Attributes) -> Result<()> {
        let file = rustix::fs::openat(CWD, path, OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
        let (ino, size) = (attributes.ino, attributes.size);
        let mut at = 0;
        while at < size {
            at = match self.vfs.seek(ino, at, Whence::Data) {
                Ok(data) => data,
                Err(error) if error.kind() == ErrorKind::NoData => break,
                Err(error) => return Err(error.into()),
            };
            let end = self.vfs.seek(ino, at, Whence::Hole)?;
            while at < end {
                let wanted = usize::try_from(end - at).unwrap_or(usize::MAX).min(CHUNK_BYTES);
                let bytes = self.vfs.read(ino, at, wanted)?;
                ensure!(!bytes.is_empty(), "it has become shorter");
                for slice in bytes.slices() {
                    write_all(&file, slice, at)?;
                    at += slice.len() as u64;
                }
            }
        }
        Ok(rustix::fs::ftruncate(&file, size)?)
    }

    fn attributes(&self, path: &Path, attributes: &Attributes) -> Result<()> {
        self.set(path, attributes).with_context(|| format!("cannot set the attributes of {}", path.display()))
    }

    fn set(&self, path: &Path, attributes: &Attributes) -> Result<()> {
        let mut permissions = attributes.permissions;
        let owner = (rustix::fs::Uid::from_raw(attributes.uid), rustix::fs::Gid::from_raw(attributes.gid));
        match rustix::fs::chownat(CWD, path, Some(owner.0), Some(owner.1), AtFlags::SYMLINK_NOFOLLOW) {
            // Only root gives files away; an ordinary user gets what they may have, but not another's
            // set-user-id program as their own.
            Err(Errno::PERM) if !rustix::process::geteuid().is_root() => permissions &= 0o1777,
            result => result?,
        }
        if attributes.kind != Kind::Symlink {
            rustix::fs::chmodat(CWD, path, Mode::from_raw_mode(permissions), AtFlags::empty())?;
        }
        for name in self.vfs.xattr_names(attributes.ino)? {
            let value = self.vfs.xattr(attributes.ino, name.as_bytes())?;
            if let Err(error) = rustix::fs::lsetxattr(path, name.as_bytes(), &value, XattrFlags::empty()) {
                let name = String::from_utf8_lossy(name.as_bytes()).into_owned();
                self.progress.skip(path, &format!("attribute {name} cannot be set there: {error}"));
            }
        }
        let time = |time: weft_vfs::Timestamp| {
            let (seconds, nanoseconds) = time.parts();
            Timespec { tv_sec: seconds, tv_nsec: i64::from(nanoseconds) }
        };
        let times = Timestamps { last_access: time(attributes.atime), last_modification: time(attributes.mtime) };
        Ok(rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)?)
    }
}

/// Whether the volume failed, and not the view.
fn is_of_store(error: &weft_vfs::Error) -> bool {
    std::error::Error::source(error).is_some()
}

fn write_all(file: &rustix::fd::OwnedFd, mut bytes: &[u8], mut at: u64) -> Result<()> {
    while !bytes.is_empty() {
        let written = rustix::io::pwrite(file, bytes, at)?;
        bytes = &bytes[written..];
        at += written as u64;
    }
    Ok(())
}
