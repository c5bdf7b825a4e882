//! Memory that a confined process shares with this one: what the process is given, and behind that
//! room for what it gives.
//!
//! Whoever is at the other end may write to it at any time. So nobody has references into it: bytes
//! are copied in and out, and what was copied is looked at. It can be neither cut nor grown, by
//! anybody, so that reading it never fails.

use super::message::Reply;
use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use weft_block::Buffer;

/// Bytes that a process is given at once, at most; they lie at 0.
pub(in crate::exported) const INPUT_BYTES: usize = 256 << 10;

/// All bytes of it.
pub(in crate::exported) const AREA_BYTES: usize = 3 * INPUT_BYTES;

/// The memory, as one process has it.
pub(in crate::exported) struct Area(MmapRaw);

impl Area {
    /// New memory, and what another process has it by.
    pub(in crate::exported) fn new() -> io::Result<(Area, OwnedFd)> {
        Area::sized(AREA_BYTES)
    }

    /// The memory that `file` is.
    pub(in crate::exported) fn of(file: impl AsFd) -> io::Result<Area> {
        Area::mapped(file, AREA_BYTES)
    }

    /// New memory of `len` bytes, and the descriptor by which another process maps it.
    pub(super) fn sized(len: usize) -> io::Result<(Area, OwnedFd)> {
        let file = memfd_create("weft-area", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, len as u64)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok((Area::mapped(&file, len)?, file))
    }

    /// The first `len` bytes of the memory that `file` is.
    pub(super) fn mapped(file: impl AsFd, len: usize) -> io::Result<Area> {
        MmapOptions::new().len(len).map_raw(file.as_fd().as_raw_fd()).map(Area)
    }

    /// Returns its address.
    pub(in crate::exported) fn start(&self) -> *mut u8 {
        self.0.as_mut_ptr()
    }

    /// Puts `bytes` at `at`. They must fit there.
    pub(in crate::exported) fn put(&self, at: usize, bytes: &[u8]) {
        assert!(at <= self.0.len() && bytes.len() <= self.0.len() - at, "they fit");
        // SAFETY: the range was checked, the memory stays mapped as long as this is there, and
        // `bytes`, to which there is a reference, are no part of it.
        unsafe { self.start().add(at).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }

    /// A copy of `range`, which must lie in it.
    pub(in crate::exported) fn copy(&self, range: Range<usize>) -> Buffer {
        assert!(range.start <= range.end && range.end <= self.0.len(), "a part of it");
        let mut copy = Buffer::any(range.len());
        // SAFETY: as above; the copy is as long as the range. What the other process writes
        // meanwhile shows or does not: bytes are bytes, whichever they are.
        unsafe { copy.as_mut_ptr().copy_from_nonoverlapping(self.start().add(range.start), range.len()) };
        copy
    }

    /// Has `said` lie behind what the process is given, as the reason of a failure.
    pub(in crate::exported) fn failed(&self, said: &[u8]) -> Reply {
        let said = &said[..said.len().min(INPUT_BYTES)];
        self.put(INPUT_BYTES, said);
        Reply::Failed { range: INPUT_BYTES..INPUT_BYTES + said.len() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_is_there_for_both_and_nobody_cuts_it() {
        let (ours, file) = Area::new().unwrap();
        let theirs = Area::of(&file).unwrap();
        ours.put(AREA_BYTES - 3, b"abc");
        assert_eq!(&theirs.copy(AREA_BYTES - 4..AREA_BYTES)[..], b"\0abc");
        assert_eq!(ftruncate(&file, 0), Err(rustix::io::Errno::PERM));
        assert_eq!(ftruncate(&file, 1 << 30), Err(rustix::io::Errno::PERM));
    }
}
