//! Reading and writing a file past the page cache (open(2), `O_DIRECT`).

use super::PAGE;
use crate::files;
use rustix::fs::OFlags;
use rustix::io::preadv;
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use weft_block::{ALIGNED_MIN, Block, Buffer};

/// The file at `path`. None where the file system cannot do that.
pub(super) fn open(path: &Path, writes: bool) -> io::Result<Option<File>> {
    let mut options = files::options();
    options.read(true).write(writes).custom_flags((files::FLAGS | OFlags::DIRECT).bits().cast_signed());
    match files::open(&options, path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(None),
        Err(error) => Err(error),
    }
}

/// Blocks of `lengths`, each from a page of its own, from `start` on, a multiple of a page. None if
/// that does not give all of them, whatever the reason.
pub(super) fn read(file: &File, start: u64, lengths: &[usize]) -> Option<Vec<Block>> {
    let pages = |length: &usize| length.next_multiple_of(PAGE as usize);
    let mut buffers = lengths.iter().map(|length| Buffer::any(pages(length).max(ALIGNED_MIN))).collect::<Vec<_>>();
    let pieces = buffers.iter_mut().zip(lengths).map(|(buffer, length)| IoSliceMut::new(&mut buffer[..pages(length)]));
    let read = preadv(file, &mut pieces.collect::<Vec<_>>(), start).ok()?;
    // The file may end with the bytes of the last block.
    let (last, before) = lengths.split_last()?;
    if read < before.iter().map(pages).sum::<usize>() + last {
        return None;
    }
    let cut = |(mut buffer, length): (Buffer, &usize)| {
        if *length < ALIGNED_MIN {
            // Whoever keeps a short one is to keep no more memory than it counts.
            return Block::copy_of(&buffer[..*length]);
        }
        buffer.resize(*length);
        buffer.freeze()
    };
    Some(buffers.into_iter().zip(lengths).map(cut).collect())
}
