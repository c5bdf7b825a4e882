//! Open files, read and written as ropes.

use crate::daemon::{self, Daemon};
use crate::lent;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use weft_block::{Buffer, Rope};

/// Files shorter than this are read as any other: to have their memory lent takes longer.
const SHARED_MIN: u64 = 64 << 10;

/// An open file. All methods may be called from any thread.
#[derive(Debug)]
pub struct File {
    file: std::fs::File,
    shared: Option<Shared>,
}

/// A file whose memory a daemon lends.
#[derive(Debug)]
struct Shared {
    daemon: Arc<Daemon>,
    number: u32,
    is_writable: bool,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.daemon.close(self.number);
    }
}

impl File {
    /// Opens the file at `path` for reading. Errors are those of open(2).
    pub fn open(path: &Path) -> io::Result<File> {
        Ok(File::of(std::fs::File::open(path)?))
    }

    /// What `file` is, read by reference if that can be: if it is a regular file of a mounted volume, and not so short that it does not pay.
    pub fn of(file: std::fs::File) -> File {
        let shared = share(&file);
        File { file, shared }
    }

    /// The file as the kernel has it.
    pub fn into_inner(self) -> std::fs::File {
        self.file
    }

    /// Whether it is read by reference.
    pub fn is_shared(&self) -> bool {
        self.shared.is_some()
    }

    /// Up to `len` bytes from `offset` on: none at its end, and else at least one. They are copied after all where the memory that is lent is all in use, by
    /// ropes of this process or of others. Errors are those of pread(2).
    pub fn read(&self, offset: u64, len: usize) -> io::Result<Rope> {
        if let Some(shared) = &self.shared {
            match shared.daemon.read(shared.number, offset, len) {
                Err(error) if is_for_the_kernel(&error) => {}
                read => return read,
            }
        }
        let mut buffer = Buffer::any(len);
        let read = rustix::io::retry_on_intr(|| rustix::io::pread(&self.file, &mut buffer[..], offset))?;
        // The kernel copied them.
        weft_block::copied(read);
        buffer.resize(read);
        Ok(Rope::from(buffer.freeze().whole()))
    }

    /// Writes `rope` at `offset`. Errors are those of pwrite(2).
    pub fn write(&self, offset: u64, rope: &Rope) -> io::Result<()> {
        let mut at = offset;
        let shared = self.shared.as_ref().filter(|shared| shared.is_writable);
        for slice in rope.slices() {
            // The daemon copies itself what lies in memory that it can be shown.
            let shown = shared.zip(lent::find(slice));
            match shown {
                Some((shared, (memory, from))) => {
                    let mut done = 0;
                    while done < slice.len() {
                        let len = (slice.len() - done).min(WRITTEN_TOGETHER);
                        let of = (memory.as_fd(), (from + done) as u64);
                        shared.daemon.write(shared.number, at + done as u64, of, len)?;
                        done += len;
                    }
                }
                None => self.file.write_all_at(slice, at)?,
            }
            at += slice.len() as u64;
        }
        Ok(())
    }
}

/// Bytes written by one request.
const WRITTEN_TOGETHER: usize = 4 << 20;

/// Whether nobody answers any more, so that the kernel says what is with the file itself, or there is nothing left to lend.
fn is_for_the_kernel(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe)
        || error.raw_os_error() == Some(libc::ENOBUFS)
}

fn share(file: &std::fs::File) -> Option<Shared> {
    let metadata = file.metadata().ok()?;
    if !metadata.is_file() || metadata.len() < SHARED_MIN {
        return None;
    }
    let daemon = daemon::of(file.as_fd())?;
    let (number, is_writable) = daemon.open(file.as_fd()).ok()?;
    Some(Shared { daemon, number, is_writable })
}

impl AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
