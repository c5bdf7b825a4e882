//! Open files, read and written as ropes.

use crate::daemon::{self, Daemon, Failure};
use rustix::fs::{OFlags, fcntl_getfl};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use weft_block::{Buffer, Rope};

/// Files shorter than this are read as any other: to have their memory lent takes longer.
const SHARED_MIN: u64 = 64 << 10;

/// Reads by the kernel after one for which the daemon had no memory, before it is asked again.
const READS_APART: u32 = 16;

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
    /// Number of reads left to the kernel before the daemon is asked again.
    apart: AtomicU32,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.daemon.close(self.number);
    }
}

impl Shared {
    /// None if it is for the kernel to read.
    fn read(&self, offset: u64, len: usize) -> Option<io::Result<Rope>> {
        let one_less = |apart: u32| apart.checked_sub(1);
        if self.apart.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok() {
            return None;
        }
        match self.daemon.read(self.number, offset, len) {
            Ok(rope) => Some(Ok(rope)),
            Err(Failure::Errno(libc::ENOBUFS)) => {
                self.apart.store(READS_APART, Ordering::Relaxed);
                None
            }
            Err(Failure::Errno(errno)) => Some(Err(io::Error::from_raw_os_error(errno))),
            // The kernel says what is with the file itself.
            Err(Failure::Lost) => None,
        }
    }
}

impl File {
    /// Opens the file at `path` for reading. Errors are those of open(2).
    pub fn open(path: &Path) -> io::Result<File> {
        Ok(File::of(std::fs::File::open(path)?))
    }

    /// Wraps `file`. It is read by reference if that can be: if it is a regular file of a mounted
    /// volume that this process may read, and not so short that it does not pay.
    pub fn of(file: std::fs::File) -> File {
        let shared = share(&file);
        File { file, shared }
    }

    /// The file as the kernel has it.
    pub fn into_inner(self) -> std::fs::File {
        self.file
    }

    /// True if it is read by reference.
    pub fn is_shared(&self) -> bool {
        self.shared.is_some()
    }

    /// Up to `len` bytes from `offset` on: none at its end, and else at least one. They are copied
    /// after all where the memory that is lent is all in use, by ropes of this process or of
    /// others, and in a process that was forked since. Errors are those of pread(2).
    pub fn read(&self, offset: u64, len: usize) -> io::Result<Rope> {
        if let Some(read) = self.shared.as_ref().and_then(|shared| shared.read(offset, len)) {
            return read;
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
        for slice in rope.slices() {
            self.file.write_all_at(slice, at)?;
            at += slice.len() as u64;
        }
        Ok(())
    }
}

fn share(file: &std::fs::File) -> Option<Shared> {
    let metadata = file.metadata().ok()?;
    // What was opened past the page cache may have a network of its own (docs/reference/links.md),
    // which the daemon does not see here.
    let flags = fcntl_getfl(file).ok()?;
    let is_readable = flags & OFlags::RWMODE != OFlags::WRONLY && !flags.contains(OFlags::PATH);
    if !metadata.is_file() || metadata.len() < SHARED_MIN || !is_readable || flags.contains(OFlags::DIRECT) {
        return None;
    }
    let (daemon, number) = daemon::open(file.as_fd())?;
    Some(Shared { daemon, number, apart: AtomicU32::new(0) })
}

impl AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
