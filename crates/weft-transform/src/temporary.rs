//! Temporary files without names, whose bytes are counted ([`crate::account`]).

use crate::account::{Account, UNIT};
use rustix::fs::FallocateFlags;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// A temporary file that goes with this.
pub(crate) struct TemporaryFile {
    file: File,
    account: Account,
    /// Bytes that were taken of the account.
    taken: u64,
    len: u64,
    /// The first bytes of it that take no room any more.
    forgotten: u64,
}

impl TemporaryFile {
    /// An empty one.
    pub(crate) fn new(account: &Account) -> io::Result<TemporaryFile> {
        let file = tempfile::tempfile()?;
        Ok(TemporaryFile { file, account: account.clone(), taken: 0, len: 0, forgotten: 0 })
    }

    /// Adds `bytes` at its end. `StorageFull`.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let len = self.len + bytes.len() as u64;
        let wanted = (len - self.forgotten).next_multiple_of(UNIT);
        if wanted > self.taken {
            let at = rustix::fs::fstatvfs(&self.file)?;
            self.account.take_temporary(wanted - self.taken, at.f_bavail.saturating_mul(at.f_frsize))?;
            self.taken = wanted;
        }
        self.file.write_all_at(bytes, self.len)?;
        self.len = len;
        Ok(())
    }

    /// Bytes that were appended.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Reads those from `at` on into all of `buffer`.
    pub(crate) fn read_exact_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        self.file.read_exact_at(buffer, at)
    }

    /// Gives back the room of all bytes before `at`, if the file system can: nobody reads them
    /// again.
    pub(crate) fn forget_before(&mut self, at: u64) {
        let at = at / UNIT * UNIT;
        if at < self.forgotten + UNIT {
            return;
        }
        let Range { start, end } = self.forgotten..at;
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        if rustix::fs::fallocate(&self.file, flags, start, end - start).is_ok() {
            self.forgotten = at;
            self.account.give_temporary(end - start);
            self.taken -= end - start;
        }
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        self.account.give_temporary(self.taken);
    }
}

/// Appends.
impl Write for TemporaryFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.append(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Reads from where it was last, at first from the beginning.
impl Read for TemporaryFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.file.read(buffer)
    }
}

impl Seek for TemporaryFile {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::Bounds;

    fn account() -> Account {
        let bounds = Bounds { temporary_bytes: 4 * UNIT, ..Bounds::default() };
        Account::of(Some(4_000_010), bounds)
    }

    #[test]
    fn bytes_are_counted_until_the_file_goes() {
        let account = account();
        let unit = vec![7; 1 << 20];
        let mut one = TemporaryFile::new(&account).unwrap();
        let mut two = TemporaryFile::new(&account).unwrap();
        one.append(&unit).unwrap();
        two.append(b"x").unwrap();
        assert_eq!(one.append(b"x").unwrap_err().kind(), io::ErrorKind::StorageFull);
        two.append(b"y").unwrap();
        drop(one);
        two.append(&unit).unwrap();
        let mut read = [0; 3];
        two.read_exact_at(&mut read, 0).unwrap();
        assert_eq!((&read[..], two.len()), (&b"xy\x07"[..], 2 + (1 << 20)));
    }

    #[test]
    fn a_beginning_that_is_forgotten_makes_room() {
        let account = account();
        let unit = vec![7; 1 << 20];
        let mut file = TemporaryFile::new(&account).unwrap();
        for count in 1..9u64 {
            file.append(&unit).unwrap();
            file.forget_before(count * UNIT);
            // Where the file system has no holes it stays, and counts.
            if file.forgotten == 0 {
                return;
            }
        }
        file.append(&unit).unwrap();
        let mut read = [0; 1];
        file.read_exact_at(&mut read, 8 * UNIT).unwrap();
        assert_eq!(read, [7]);
    }
}
