//! Open files, read and written as ropes.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use weft_block::{Buffer, Rope};

/// An open file. All methods may be called from any thread.
#[derive(Debug)]
pub struct File {
    file: std::fs::File,
}

impl File {
    /// Opens the file at `path` for reading. Errors are those of open(2).
    pub fn open(path: &Path) -> io::Result<File> {
        Ok(File::of(std::fs::File::open(path)?))
    }

    /// What `file` is, read by reference if that can be.
    pub fn of(file: std::fs::File) -> File {
        File { file }
    }

    /// Up to `len` bytes from `offset` on: none at its end, and else at least one. Errors are those of pread(2).
    pub fn read(&self, offset: u64, len: usize) -> io::Result<Rope> {
        let mut buffer = Buffer::any(len);
        let read = self.file.read_at(&mut buffer, offset)?;
        buffer.resize(read);
        Ok(Rope::from(buffer.freeze().whole()))
    }

    /// Writes `rope` at `offset`. Errors are those of pwrite(2).
    pub fn write(&self, offset: u64, rope: &Rope) -> io::Result<()> {
        let mut at = offset;
        for slice in rope.slices() {
            self.file.write_all_at(slice, at)?;
            at += slice.len() as u64;
        }
        Ok(())
    }
}

impl AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
