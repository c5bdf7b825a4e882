//! Files under temporary names: they get their own once they lie on the disk whole.

use super::super::transfer::{Directory, os};
use anyhow::{Context, Result};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weft_store::rename_to_new;
use weft_vfs::Attributes;

/// Beginning of temporary names.
const BEGIN: &str = ".weft-export-";
/// End of temporary names.
const END: &str = ".part";
/// Digits between the two.
const DIGITS: usize = 16;

/// A file under a temporary name; removed when this is dropped.
pub struct Unfinished {
    fd: OwnedFd,
    directory: Arc<Directory>,
    temporary: String,
    /// The name that it is to have.
    pub name: Vec<u8>,
    /// Attributes of its original.
    pub attributes: Attributes,
    is_finished: bool,
}

impl Unfinished {
    /// Makes it, empty, in its directory.
    pub fn make(directory: &Arc<Directory>, name: &[u8], attributes: &Attributes) -> Result<Unfinished> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        loop {
            let temporary = temporary_name()?;
            match rustix::fs::openat(&**directory, &temporary, flags, Mode::RUSR | Mode::WUSR) {
                Err(Errno::EXIST) => {}
                fd => {
                    return Ok(Unfinished {
                        fd: fd?,
                        directory: directory.clone(),
                        temporary,
                        name: name.to_vec(),
                        attributes: *attributes,
                        is_finished: false,
                    });
                }
            }
        }
    }

    /// Returns its path once it is whole, for people.
    pub fn path(&self) -> PathBuf {
        self.directory.path_of(&self.name)
    }

    /// Returns its directory.
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// Makes the kernel begin to write its bytes to the disk.
    pub fn begin_sync(&self) {
        // SAFETY: the call takes no pointers. It is a hint; the sync that follows is what counts.
        unsafe { libc::sync_file_range(self.fd.as_raw_fd(), 0, 0, libc::SYNC_FILE_RANGE_WRITE) };
    }

    /// Gives it its name. `EXIST`: another entry has it.
    pub fn finish(mut self) -> Result<Attributes, Errno> {
        rename_to_new(&*self.directory, Path::new(&self.temporary), Path::new(os(&self.name)))?;
        self.is_finished = true;
        Ok(self.attributes)
    }
}

impl AsFd for Unfinished {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.is_finished {
            // Best effort: the next export removes it, too.
            let _ = rustix::fs::unlinkat(&*self.directory, &self.temporary, AtFlags::empty());
        }
    }
}

fn temporary_name() -> Result<String> {
    let mut random = [0; DIGITS / 2];
    getrandom(&mut random, GetRandomFlags::empty()).context("the system gives no random numbers")?;
    Ok(format!("{BEGIN}{:016x}{END}", u64::from_ne_bytes(random)))
}

fn is_temporary(name: &[u8]) -> bool {
    let between = name.strip_prefix(BEGIN.as_bytes()).and_then(|rest| rest.strip_suffix(END.as_bytes()));
    between.is_some_and(|digits| digits.len() == DIGITS && digits.iter().all(u8::is_ascii_hexdigit))
}

/// Removes files that a killed export left in `directory`, except those that `is_known` says belong
/// there.
pub fn remove_left(directory: &Directory, is_known: impl Fn(&[u8]) -> bool) -> Result<(), Errno> {
    for name in directory.names()? {
        if !is_temporary(&name) || is_known(&name) {
            continue;
        }
        let stat = rustix::fs::statat(directory, &name[..], AtFlags::SYMLINK_NOFOLLOW)?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile {
            rustix::fs::unlinkat(directory, &name[..], AtFlags::empty())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_were_made_here_are_taken_for_such() {
        assert!(is_temporary(temporary_name().expect("random numbers").as_bytes()));
        for name in
            [".weft-export-", ".weft-export-0123456789abcde.part", ".weft-export-0123456789abcdeg.part", "a.part"]
        {
            assert!(!is_temporary(name.as_bytes()), "{name}");
        }
    }
}
