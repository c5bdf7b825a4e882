//! The content of files.

use super::super::transfer::{CHUNK_BYTES, Interrupted, What, is_same};
use super::unfinished::Unfinished;
use super::{Exporter, First, IN_THE_WAY, Item, set};
use anyhow::{Result, ensure};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use weft_vfs::{Attributes, ErrorKind, Whence};

/// A file whose content `weft history forget` or `exclude` took out.
const FORGOTTEN: &str = "exported, but empty: its content of then was taken out of history";

impl Exporter<'_> {
    /// Copies a file, its holes left out, unless it is there.
    pub(super) fn content(&self, item: &Item) {
        if !self.transfer.goes_on() {
            return;
        }
        let (directory, attributes) = (&item.directory, &item.attributes);
        let path = || directory.path_of(&item.name);
        let what = if attributes.computed.is_some() { What::Link } else { What::File };
        let done = match self.there(item) {
            Ok(There::Nothing) => self.copy(item).map(|file| self.finish.add(file)),
            Ok(There::Same) => {
                self.transfer.keep();
                if attributes.nlink > 1 {
                    let directory = directory.way().clone();
                    self.finish.name(attributes.ino, First { directory, name: item.name.clone() });
                }
                Ok(())
            }
            Ok(There::Other) => return self.transfer.fail(what, &path(), IN_THE_WAY),
            Err(error) => Err(error),
        };
        let Err(error) = done else { return self.tell_of_content(item, what) };
        let before = match (what, error.is::<weft_vfs::Error>()) {
            (What::Link, true) => "not exported: the transformation link gives nothing",
            _ => "not exported",
        };
        self.transfer.fail_with(what, &path(), before, &error);
    }

    /// Reports content that contradicts its digest, or is not in history any more. The file was
    /// exported all the same.
    fn tell_of_content(&self, item: &Item, what: What) {
        let ino = item.attributes.ino;
        let fail = |why| self.transfer.fail(what, &item.directory.path_of(&item.name), why);
        if what != What::File {
            return;
        }
        if item.attributes.size == 0 && self.vfs.has_forgotten(ino).unwrap_or(false) {
            fail(FORGOTTEN);
        } else if self.vfs.contradicts_digest(ino).unwrap_or(false) {
            fail("exported, but its content is not what its digest says: it is of another moment, or damaged");
        }
    }

    /// Checks if an earlier export has brought the file: one of its size, time of change and bytes.
    /// Then its attributes are set again.
    fn there(&self, item: &Item) -> Result<There> {
        let (directory, name, attributes) = (&*item.directory, &item.name[..], &item.attributes);
        if !self.go_on {
            return Ok(There::Nothing);
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let stat = match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(There::Nothing),
            stat => stat?,
        };
        if !looks_same(&stat, attributes) {
            return Ok(There::Other);
        }
        let file = rustix::fs::openat(directory, name, flags, Mode::empty())?;
        if !looks_same(&rustix::fs::fstat(&file)?, attributes)
            || !is_same(self.vfs, attributes, &file, || self.transfer.goes_on())?
        {
            return Ok(There::Other);
        }
        set(self, &file, &|| directory.path_of(name), attributes);
        Ok(There::Same)
    }

    fn copy(&self, item: &Item) -> Result<Unfinished> {
        let mut file = Unfinished::make(&item.directory, &item.name, &item.attributes)?;
        file.attributes.size = match item.attributes.computed {
            Some(_) => self.copy_computed(&file)?,
            None => self.copy_stored(&file)?,
        };
        set(self, &file, &|| file.path(), &item.attributes);
        Ok(file)
    }

    /// Copies to the end of a link: its length may not be known before.
    fn copy_computed(&self, file: &Unfinished) -> Result<u64> {
        let mut at = 0;
        loop {
            let bytes = self.vfs.read(file.attributes.ino, at, CHUNK_BYTES)?;
            if bytes.is_empty() {
                return Ok(at);
            }
            self.write(file, &bytes, &mut at)?;
        }
    }

    fn copy_stored(&self, file: &Unfinished) -> Result<u64> {
        let (ino, size) = (file.attributes.ino, file.attributes.size);
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
                self.write(file, &bytes, &mut at)?;
            }
        }
        rustix::fs::ftruncate(file, size)?;
        Ok(size)
    }

    fn write(&self, file: &Unfinished, bytes: &weft_block::Rope, at: &mut u64) -> Result<()> {
        ensure!(self.transfer.goes_on(), Interrupted);
        for slice in bytes.slices() {
            let mut left = &slice[..];
            while !left.is_empty() {
                match rustix::io::pwrite(file, left, *at) {
                    Err(Errno::INTR) => {}
                    written => {
                        let written = written?;
                        left = &left[written..];
                        *at += written as u64;
                    }
                }
            }
        }
        Ok(())
    }
}

/// Holder of the name that a file is to have.
enum There {
    Nothing,
    Same,
    Other,
}

fn looks_same(stat: &Stat, attributes: &Attributes) -> bool {
    let size_fits = attributes.computed.is_some() || stat.st_size.cast_unsigned() == attributes.size;
    let (seconds, nanoseconds) = attributes.mtime.parts();
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
        && size_fits
        && (stat.st_mtime, stat.st_mtime_nsec) == (seconds, u64::from(nanoseconds))
}
