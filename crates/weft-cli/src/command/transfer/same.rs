//! Comparing a file of a volume with one outside, byte by byte.

use super::CHUNK_BYTES;
use anyhow::{Result, ensure};
use rustix::fd::AsFd;
use rustix::fs::SeekFrom;
use rustix::io::Errno;
use weft_vfs::{Attributes, ErrorKind, Vfs, Whence};

/// Compares all bytes of both. Holes of both are not read.
pub fn is_same(vfs: &Vfs, attributes: &Attributes, file: impl AsFd, goes_on: impl Fn() -> bool) -> Result<bool> {
    let (ino, is_stored) = (attributes.ino, attributes.computed.is_none());
    let (mut at, mut buffer) = (0, vec![0; CHUNK_BYTES]);
    loop {
        ensure!(goes_on(), super::Interrupted);
        if is_stored {
            if at >= attributes.size {
                return Ok(true);
            }
            at = next_data(vfs, attributes, &file, at)?;
        }
        let wanted = match is_stored {
            true => usize::try_from(attributes.size - at).unwrap_or(usize::MAX).min(CHUNK_BYTES),
            false => CHUNK_BYTES,
        };
        let bytes = vfs.read(ino, at, wanted)?;
        if bytes.is_empty() {
            return Ok(rustix::io::pread(&file, &mut buffer[..1], at)? == 0);
        }
        for slice in bytes.slices() {
            let there = &mut buffer[..slice.len()];
            if !fill(&file, there, at)? || there[..] != slice[..] {
                return Ok(false);
            }
            at += slice.len() as u64;
        }
    }
}

/// Returns the offset of the next data in either, from `at` on; the end if there is none.
fn next_data(vfs: &Vfs, attributes: &Attributes, file: impl AsFd, at: u64) -> Result<u64> {
    let here = match vfs.seek(attributes.ino, at, Whence::Data) {
        Ok(data) => data,
        Err(error) if error.kind() == ErrorKind::NoData => attributes.size,
        Err(error) => return Err(error.into()),
    };
    let there = match rustix::fs::seek(&file, SeekFrom::Data(at)) {
        Ok(data) => data,
        Err(Errno::NXIO) => attributes.size,
        // A file system that reports no holes has none.
        Err(_) => at,
    };
    Ok(here.min(there))
}

/// Fills `buffer`; false if the file ends before.
fn fill(file: impl AsFd, buffer: &mut [u8], mut at: u64) -> Result<bool> {
    let mut filled = 0;
    while filled < buffer.len() {
        match rustix::io::pread(&file, &mut buffer[filled..], at) {
            Ok(0) => return Ok(false),
            Ok(read) => {
                filled += read;
                at += read as u64;
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(true)
}
