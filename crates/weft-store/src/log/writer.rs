//! Appends records to the file, past the page cache where the file takes that (open(2),
//! `O_DIRECT`).
//!
//! Through the cache a sync writes whole pages, and the page that two records share once for each.
//! Past it the disk gets the sectors of the record and nothing else, and a write that fails says so
//! at once. A sync is needed all the same: it flushes the cache of the disk.
//!
//! Everything else goes through the cache: reads, the header, and records that no sync follows. The
//! kernel keeps both in step: a direct write first has dirty pages of its range written and waits
//! for them, and drops them then. Nothing makes a page of that range dirty meanwhile, as the log
//! has one writer. The header lies in pages of its own.

use super::sector::{ROOM, SECTOR, Stamp, VolumeId};
use crate::files;
use rustix::fs::{AtFlags, OFlags, StatxFlags, statx};
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use weft_block::{ALIGNED_MIN, ALIGNMENT, Buffer, Rope};

/// The way of a record to the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Caching {
    /// A sync follows.
    Direct,
    /// No sync follows soon: the page cache takes it without waiting for the disk.
    Cached,
}

/// Writes records.
#[derive(Debug, Default)]
pub(super) struct Writer {
    /// The file past the page cache, if it takes sectors that way.
    direct: Option<File>,
    /// The sectors of the record, in memory that direct writes take.
    sectors: Buffer,
}

impl Writer {
    /// Writes records to `file`, which lies at `path`.
    pub(super) fn new(file: &File, path: &Path) -> Writer {
        Writer { direct: open_direct(file, path), sectors: Buffer::with_capacity(ALIGNED_MIN) }
    }

    /// True if records go past the page cache.
    #[cfg(test)]
    pub(super) fn is_direct(&self) -> bool {
        self.direct.is_some()
    }

    /// Makes the sectors of a record whose first one has the stamp `first`. Returns their bytes.
    pub(super) fn encode(&mut self, id: &VolumeId, first: Stamp, head: &[u8], bytes: &Rope) -> u64 {
        self.sectors.resize(0);
        let slices = bytes.slices().iter().map(|slice| &slice[..]);
        for slice in std::iter::once(head).chain(slices) {
            self.fill(id, first, slice);
        }
        self.seal(id, first);
        self.sectors.len() as u64
    }

    /// Adds `bytes`.
    fn fill(&mut self, id: &VolumeId, first: Stamp, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let filled = self.sectors.len() % SECTOR;
            if filled == ROOM {
                self.seal(id, first);
                continue;
            }
            let (now, later) = rest.split_at(rest.len().min(ROOM - filled));
            self.sectors.extend_from_slice(now);
            rest = later;
        }
    }

    /// Ends the last sector.
    fn seal(&mut self, id: &VolumeId, first: Stamp) {
        let index = self.sectors.len() / SECTOR;
        let from = index * SECTOR;
        self.sectors.resize(from + SECTOR);
        let index = u32::try_from(index).expect("a half has fewer sectors");
        let stamp = Stamp { position: first.position + from as u64, index, ..first };
        stamp.seal(id, &mut self.sectors[from..]);
    }

    /// Writes the sectors to byte `place` of `file`.
    pub(super) fn write(&mut self, file: &File, place: u64, caching: Caching) -> io::Result<()> {
        if let Some(direct) = self.direct.as_ref().filter(|_| caching == Caching::Direct) {
            match direct.write_all_at(&self.sectors, place) {
                Err(error) if is_refusal(&error) => self.direct = None,
                written => return written,
            }
        }
        file.write_all_at(&self.sectors, place)
    }
}

/// True if `error` says that the file takes no such direct writes, and nothing about the disk.
fn is_refusal(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported)
}

/// Opens `file`, which lies at `path`, to be written past the page cache. None if it does not take
/// sectors of the log that way, or does not say so (before Linux 6.1), or if it cannot be opened.
fn open_direct(file: &File, path: &Path) -> Option<File> {
    if !takes_sectors(file) {
        return None;
    }
    let flags = (files::FLAGS | OFlags::DIRECT).bits().cast_signed();
    let direct = files::open(files::options().write(true).custom_flags(flags), path).ok()?;
    let inode = |file| files::inode_at(file, Path::new(""), AtFlags::EMPTY_PATH).ok().map(|(inode, _)| inode);
    // Another file may lie there by now.
    (inode(file)? == inode(&direct)?).then_some(direct)
}

/// True if sectors of the log, in aligned memory, are units of direct writes to `file`.
fn takes_sectors(file: &File) -> bool {
    let Ok(found) = statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN) else { return false };
    let is_told = found.stx_mask & StatxFlags::DIOALIGN.bits() != 0;
    let fits = |unit: u32, into: usize| unit > 0 && into.is_multiple_of(unit as usize);
    is_told && fits(found.stx_dio_offset_align, SECTOR) && fits(found.stx_dio_mem_align, ALIGNMENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: VolumeId = [7; 16];
    const FIRST: Stamp = Stamp { epoch: 1, position: 0, index: 0 };

    /// A file of the log's kind, and a writer for it. None where direct writes are not taken.
    fn place() -> Option<(tempfile::TempDir, File, Writer)> {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("intents");
        let file = File::options().read(true).write(true).create_new(true).open(&path).expect("made");
        file.write_all_at(&[0; 16 << 10], 0).expect("filled");
        let writer = Writer::new(&file, &path);
        writer.is_direct().then_some((directory, file, writer))
    }

    fn read(file: &File, place: u64, len: u64) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(len).expect("few")];
        file.read_exact_at(&mut bytes, place).expect("read");
        bytes
    }

    #[test]
    fn a_file_that_refuses_a_direct_write_is_written_through_the_page_cache() {
        let Some((_directory, file, mut writer)) = place() else {
            return eprintln!("SKIPPED a_file_that_refuses_...: no direct writes of sectors here");
        };
        let len = writer.encode(&ID, FIRST, b"head", &vec![1; 700].into());
        // No disk takes half a sector.
        for caching in [Caching::Direct, Caching::Direct] {
            writer.write(&file, SECTOR as u64 / 2, caching).expect("written");
            assert!(!writer.is_direct());
            assert_eq!(read(&file, SECTOR as u64 / 2, len), writer.sectors.to_vec());
        }
    }

    #[test]
    fn an_error_of_the_disk_is_no_refusal() {
        let Some((directory, file, mut writer)) = place() else {
            return eprintln!("SKIPPED an_error_of_the_disk_...: no direct writes of sectors here");
        };
        // It cannot be written: EBADF.
        writer.direct = Some(File::open(directory.path().join("intents")).expect("opens"));
        let len = writer.encode(&ID, FIRST, b"head", &vec![1; 700].into());
        writer.write(&file, 0, Caching::Direct).expect_err("it fails");
        assert!(writer.is_direct());
        assert!(read(&file, 0, len).iter().all(|byte| *byte == 0), "what fails is not written another way");
    }

    #[test]
    fn memory_stays_aligned_as_it_grows() {
        let Some((_directory, file, mut writer)) = place() else {
            return eprintln!("SKIPPED memory_stays_aligned_...: no direct writes of sectors here");
        };
        for len in [1, 423, 424, 425, 912, 913, 5000, 100_000, 3_000_000, 10] {
            let len = writer.encode(&ID, FIRST, &[3; 64], &vec![1; len].into());
            assert!((writer.sectors.as_ptr() as usize).is_multiple_of(ALIGNMENT), "{len} bytes");
            writer.write(&file, 8192, Caching::Direct).expect("written");
            assert!(writer.is_direct(), "{len} bytes are refused");
            assert_eq!(read(&file, 8192, len), writer.sectors.to_vec());
        }
    }
}
