//! The content of files: written to an inode without a name, which gets its name when all is there.

use super::super::transfer::{CHUNK_BYTES, Interrupted, What, is_same};
use super::attributes::mtime_kept;
use super::{IN_THE_WAY, Importer, Item, Made};
use anyhow::{Result, ensure};
use rustix::fd::OwnedFd;
use rustix::fs::{FileType, Mode, OFlags, SeekFrom, Stat};
use weft_vfs::{Attributes, Caller, Ino, Kind, MakeNode, SetAttributes};

impl Importer<'_> {
    /// Copies a file, its holes left out, unless it is there.
    pub(super) fn content(&self, item: &Item) {
        if !self.transfer.goes_on() {
            return;
        }
        let path = || item.directory.path_of(&item.name);
        match self.bring(item) {
            Ok(Brought::New { bytes, changed }) => {
                self.transfer.progress.file(bytes);
                if changed {
                    let why = "it changed while it was read; what was read is in the volume";
                    self.transfer.fail(What::Changed, &path(), why);
                }
            }
            Ok(Brought::Same) => self.transfer.keep(),
            Ok(Brought::No(why)) => self.transfer.fail(What::File, &path(), why),
            Err(error) => self.transfer.fail_with(What::File, &path(), "cannot import it", &error),
        }
    }

    fn bring(&self, item: &Item) -> Result<Brought> {
        // A fifo that took the file's place meanwhile must not be waited for.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&*item.directory, &item.name[..], flags, Mode::empty())?;
        let stat = rustix::fs::fstat(&file)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Ok(Brought::No("cannot import it: something else took its place meanwhile"));
        }
        if let Some(there) = self.in_the_way(item.parent, &item.name)? {
            if looks_same(&stat, &there) && self.has_bytes_of(&there, &file)? {
                self.attributes(&file, &|| item.directory.path_of(&item.name), there.ino, &stat);
                self.name(&stat, there.ino);
                return Ok(Brought::Same);
            }
            if !self.overwrite {
                return Ok(Brought::No(IN_THE_WAY));
            }
        }
        let node = MakeNode { kind: Kind::File, permissions: stat.st_mode & 0o7777, umask: 0, rdev: 0 };
        let ino = self.vfs.make_unnamed(Caller::ROOT, item.parent, node)?.ino;
        let brought = self.fill(item, &file, ino, &stat);
        // If it got no name it goes now; and with the next mount after a crash.
        self.vfs.release(ino, 1);
        brought
    }

    /// Compares a file with its copy. An unreadable copy counts as different if it may be replaced.
    fn has_bytes_of(&self, there: &Attributes, file: &OwnedFd) -> Result<bool> {
        match is_same(self.vfs, there, file, || self.transfer.goes_on()) {
            Err(error) if self.overwrite && !error.is::<Interrupted>() => Ok(false),
            compared => compared,
        }
    }

    fn fill(&self, item: &Item, file: &OwnedFd, ino: Ino, stat: &Stat) -> Result<Brought> {
        let bytes = self.copy(file, ino, stat)?;
        let after = rustix::fs::fstat(file)?;
        // Reading has moved the time of access.
        self.attributes(file, &|| item.directory.path_of(&item.name), ino, stat);
        match self.place(ino, item.parent, &item.name)? {
            Made::No(why) => return Ok(Brought::No(why)),
            Made::New(_) | Made::Same(_) => self.name(stat, ino),
        }
        let changed = |stat: &Stat| (stat.st_size, stat.st_mtime, stat.st_mtime_nsec);
        Ok(Brought::New { bytes, changed: changed(stat) != changed(&after) || bytes != stat.st_size.cast_unsigned() })
    }

    /// Copies the content. Returns the length of the copy: shorter than the file was if that shrank
    /// meanwhile.
    fn copy(&self, file: &OwnedFd, ino: Ino, stat: &Stat) -> Result<u64> {
        let size = stat.st_size.cast_unsigned();
        let sparse = stat.st_blocks.cast_unsigned().saturating_mul(512) < size;
        let mut buffer = vec![0; CHUNK_BYTES.min(usize::try_from(size).unwrap_or(CHUNK_BYTES)).max(1)];
        let mut at = 0;
        while at < size {
            let end = if sparse {
                match rustix::fs::seek(file, SeekFrom::Data(at)) {
                    Ok(data) => at = data.min(size),
                    Err(rustix::io::Errno::NXIO) => break,
                    Err(error) => return Err(error.into()),
                }
                if at == size {
                    break;
                }
                rustix::fs::seek(file, SeekFrom::Hole(at))?.min(size)
            } else {
                size
            };
            while at < end {
                ensure!(self.transfer.goes_on(), Interrupted);
                let wanted = usize::try_from(end - at).unwrap_or(usize::MAX).min(buffer.len());
                match rustix::io::pread(file, &mut buffer[..wanted], at) {
                    Ok(0) => return Ok(at),
                    Ok(read) => {
                        self.vfs.write(ino, at, &buffer[..read], false)?;
                        at += read as u64;
                    }
                    Err(rustix::io::Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        if sparse {
            self.vfs.set_attributes(ino, SetAttributes { size: Some(size), ..SetAttributes::default() })?;
        }
        Ok(size)
    }
}

/// Outcome for one file.
enum Brought {
    New { bytes: u64, changed: bool },
    Same,
    No(&'static str),
}

/// True if an earlier import may have brought the file; its bytes decide.
pub(super) fn looks_same(stat: &Stat, there: &Attributes) -> bool {
    there.kind == Kind::File
        && there.computed.is_none()
        && there.size == stat.st_size.cast_unsigned()
        && there.mtime == mtime_kept(stat)
}
