//! `weft import`: copies a directory into a volume, straight into the file system without a mount.

use super::transfer::{CHUNK_BYTES, Place, Progress, Sender, in_parallel};
use crate::arguments::Import;
use anyhow::{Context, Result, bail};
use parking_lot::Mutex;
use rustix::fs::{CWD, FileType, Mode, OFlags, SeekFrom, Stat};
use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use weft_vfs::{Attributes, Caller, ErrorKind, Ino, Kind, MakeNode, SetAttributes, SetTime, SetXattr, Timestamp, Vfs};

/// Copies a directory into a volume.
pub fn run(arguments: &Import) -> Result<ExitCode> {
    if !arguments.directory.is_dir() {
        bail!("{} is not a directory", arguments.directory.display());
    }
    let place = Place::open(&arguments.target, false)?;
    let progress = Progress::new();
    let import = Importer {
        vfs: &place.opened.vfs,
        progress: &progress,
        overwrite: arguments.overwrite,
        links: Mutex::default(),
    };
    let target = import.target(&place.path)?;
    let mut directories = Vec::new();
    let result = in_parallel(
        |files| import.walk(&arguments.directory, target, files, &mut directories),
        |(path, ino, stat)| import.content(&path, ino, &stat),
    );
    // Last, and the deepest first: what is made in a directory moves its times.
    let finished = result
        .and_then(|()| directories.iter().rev().try_for_each(|(path, ino, stat)| import.attributes(path, *ino, stat)));
    let closed = place.close();
    finished?;
    closed?;
    progress.finish("imported", arguments.json);
    Ok(ExitCode::SUCCESS)
}

type File = (PathBuf, Ino, Stat);

struct Importer<'a> {
    vfs: &'a Vfs,
    progress: &'a Progress,
    overwrite: bool,
    /// Files with more than one name, by device and inode.
    links: Mutex<HashMap<(u64, u64), Ino>>,
}

impl Importer<'_> {
    /// The directory `path` in the volume, made where it is not there.
    fn target(&self, path: &[Vec<u8>]) -> Result<Ino> {
        let mut at = Ino::ROOT;
        for name in path {
            let node = MakeNode { kind: Kind::Directory, permissions: 0o755, umask: 0, rdev: 0 };
            at = self.directory(at, name, node).context("cannot make the directory in the volume")?.ino;
        }
        Ok(at)
    }

    /// The directory `name` in `parent`, made if it is not there.
    fn directory(&self, parent: Ino, name: &[u8], node: MakeNode) -> Result<Attributes> {
        match self.vfs.make(Caller::ROOT, parent, name, node) {
            Err(error) if error.kind() == ErrorKind::Exists => {
                let there = self.vfs.lookup(Caller::ROOT, parent, name)?;
                if there.kind != Kind::Directory {
                    bail!("{} is in the way and not a directory", String::from_utf8_lossy(name));
                }
                Ok(there)
            }
            made => Ok(made?),
        }
    }

    fn walk(&self, from: &Path, to: Ino, files: &Sender<'_, File>, directories: &mut Vec<File>) -> Result<()> {
        let mut waiting = vec![(from.to_path_buf(), to)];
        let stat = rustix::fs::lstat(from).with_context(|| format!("cannot look at {}", from.display()))?;
        if to != Ino::ROOT {
            directories.push((from.to_path_buf(), to, stat));
        }
        while let Some((directory, ino)) = waiting.pop() {
            let entries = std::fs::read_dir(&directory);
            for entry in entries.with_context(|| format!("cannot list {}", directory.display()))? {
                let path = entry.with_context(|| format!("cannot list {}", directory.display()))?.path();
                let made = self.entry(&path, ino).with_context(|| format!("cannot import {}", path.display()))?;
                let Some((ino, stat)) = made else { continue };
                match FileType::from_raw_mode(stat.st_mode) {
                    FileType::Directory => {
                        directories.push((path.clone(), ino, stat));
                        waiting.push((path, ino));
                    }
                    FileType::RegularFile => {
                        if !files.send((path, ino, stat))? {
                            return Ok(());
                        }
                    }
                    _ => self.attributes(&path, ino, &stat)?,
                }
            }
        }
        Ok(())
    }

    /// Makes one entry. None: it was one more name of something imported before.
    fn entry(&self, path: &Path, parent: Ino) -> Result<Option<(Ino, Stat)>> {
        let stat = rustix::fs::lstat(path)?;
        let name = path.file_name().context("no name")?.as_bytes();
        let Some(kind) = Kind::from_mode(stat.st_mode) else { bail!("unknown kind of file") };
        let key = (stat.st_dev, stat.st_ino);
        if kind == Kind::Directory {
            self.progress.directory();
            let node = MakeNode { kind, permissions: stat.st_mode & 0o7777, umask: 0, rdev: 0 };
            return Ok(Some((self.directory(parent, name, node)?.ino, stat)));
        }
        self.make_way(parent, name)?;
        if stat.st_nlink > 1
            && let Some(ino) = self.links.lock().get(&key)
        {
            self.vfs.link(Caller::ROOT, *ino, parent, name)?;
            return Ok(None);
        }
        let ino = if kind == Kind::Symlink {
            let target = std::fs::read_link(path)?;
            self.vfs.make_symlink(Caller::ROOT, parent, name, target.as_os_str().as_bytes())?.ino
        } else {
            let rdev = u32::try_from(stat.st_rdev).unwrap_or(0);
            let node = MakeNode { kind, permissions: stat.st_mode & 0o7777, umask: 0, rdev };
            self.vfs.make(Caller::ROOT, parent, name, node)?.ino
        };
        if kind != Kind::File {
            self.progress.other();
        }
        if stat.st_nlink > 1 {
            self.links.lock().insert(key, ino);
        }
        Ok(Some((ino, stat)))
    }

    fn make_way(&self, parent: Ino, name: &[u8]) -> Result<()> {
        match self.vfs.lookup(Caller::ROOT, parent, name) {
            Ok(_) if self.overwrite => Ok(self.vfs.unlink(parent, name)?),
            Ok(_) => bail!("it is in the volume already; --overwrite replaces it"),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Copies a file's content, its holes left out, then its attributes.
    fn content(&self, path: &Path, ino: Ino, stat: &Stat) -> Result<()> {
        self.copy(path, ino, stat).with_context(|| format!("cannot import {}", path.display()))?;
        self.attributes(path, ino, stat)?;
        self.progress.file(stat.st_size.cast_unsigned());
        Ok(())
    }

    fn copy(&self, path: &Path, ino: Ino, stat: &Stat) -> Result<()> {
        let file = rustix::fs::openat(CWD, path, OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
        let size = stat.st_size.cast_unsigned();
        let sparse = stat.st_blocks.cast_unsigned().saturating_mul(512) < size;
        let mut buffer = vec![0; CHUNK_BYTES.min(usize::try_from(size).unwrap_or(CHUNK_BYTES)).max(1)];
        let mut at = 0;
        while at < size {
            let end = if sparse {
                match rustix::fs::seek(&file, SeekFrom::Data(at)) {
                    Ok(data) => at = data,
                    Err(rustix::io::Errno::NXIO) => break,
                    Err(error) => return Err(error.into()),
                }
                rustix::fs::seek(&file, SeekFrom::Hole(at))?
            } else {
                size
            };
            while at < end {
                let wanted = usize::try_from(end - at).unwrap_or(usize::MAX).min(buffer.len());
                match rustix::io::pread(&file, &mut buffer[..wanted], at)? {
                    0 => return Ok(()), // It shrank while it was read.
                    read => {
                        self.vfs.write(ino, at, &buffer[..read], false)?;
                        at += read as u64;
                    }
                }
            }
        }
        if sparse {
            self.vfs.set_attributes(ino, SetAttributes { size: Some(size), ..SetAttributes::default() })?;
        }
        Ok(())
    }

    /// Owner and mode, then extended attributes, since a new owner takes a program's capabilities away; times last,
    /// since all the others move them.
    fn attributes(&self, path: &Path, ino: Ino, stat: &Stat) -> Result<()> {
        let set = |changes| {
            let set = self.vfs.set_attributes(ino, changes);
            set.map(|_| ()).with_context(|| format!("cannot import the attributes of {}", path.display()))
        };
        let is_link = FileType::from_raw_mode(stat.st_mode) == FileType::Symlink;
        set(SetAttributes {
            permissions: (!is_link).then_some(stat.st_mode & 0o7777),
            uid: Some(stat.st_uid),
            gid: Some(stat.st_gid),
            ..SetAttributes::default()
        })?;
        self.xattrs(path, ino).with_context(|| format!("cannot import the attributes of {}", path.display()))?;
        let time = |seconds: i64, nanoseconds: u64| {
            SetTime::To(Timestamp::from_parts(seconds, u32::try_from(nanoseconds).unwrap_or(0)))
        };
        set(SetAttributes {
            atime: Some(time(stat.st_atime, stat.st_atime_nsec)),
            mtime: Some(time(stat.st_mtime, stat.st_mtime_nsec)),
            ..SetAttributes::default()
        })
    }

    fn xattrs(&self, path: &Path, ino: Ino) -> Result<()> {
        let mut names = vec![0; 64 << 10];
        let len = match rustix::fs::llistxattr(path, &mut names) {
            Err(rustix::io::Errno::OPNOTSUPP) => return Ok(()),
            len => len?,
        };
        let mut value = Vec::new();
        for name in names[..len].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
            value.resize(64 << 10, 0);
            let len = rustix::fs::lgetxattr(path, name, &mut value)?;
            match self.vfs.set_xattr(ino, name, &value[..len], SetXattr::Any, false) {
                Err(error) if error.kind() == ErrorKind::NotSupported => {
                    self.progress
                        .skip(path, &format!("attribute {} is of no kind Weft keeps", String::from_utf8_lossy(name)));
                }
                result => result?,
            }
        }
        Ok(())
    }
}
