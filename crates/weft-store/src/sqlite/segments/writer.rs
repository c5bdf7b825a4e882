//! Writes long runs of blocks past the page cache: programs that read what they wrote find it in
//! the cache of the mount, and a second copy here would only push other things out of memory.
//!
//! Blocks in aligned memory go to the disk from where they lie; others are gathered first. Two
//! writes are under way at once. Where the file system does not take such writes, they go through
//! the page cache.

use super::PAGE;
use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::{Errno, pwrite, pwritev};
use std::fs::File;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::thread;
use weft_block::{Buffer, Rope};

/// Bytes of one write: a sync of the log meanwhile waits behind it.
const WRITE_BYTES: u64 = 1 << 20;

/// Blocks of one write: pwritev(2) takes 1024 pieces.
const WRITE_BLOCKS: usize = 256;

/// Writes under way at once: a disk idles between one and the next.
const WRITERS: usize = 2;

/// A block and its place in the file.
pub(super) type Placed<'a> = (u64, &'a Rope);

/// Writes `blocks`, ascending by place, into `file`, which `direct` is past the page cache. The
/// first lies at a multiple of a page. Less than a page lies between two of them, which becomes
/// zero, as does what is left of the last page.
pub(super) fn write(file: &File, direct: Option<&File>, blocks: &[Placed<'_>]) -> io::Result<()> {
    let target = Target { file, direct };
    let writes = split(blocks);
    if let [only] = &writes[..] {
        return target.write(&blocks[only.clone()]);
    }
    // Writes that make a file longer go one at a time.
    target.allocate(blocks)?;
    let left = Mutex::new(writes.into_iter());
    let work = || {
        loop {
            let Some(next) = left.lock().next() else { return Ok(()) };
            target.write(&blocks[next])?;
        }
    };
    thread::scope(|scope| {
        let others = [(); WRITERS - 1].map(|()| scope.spawn(work));
        let own = work();
        others.into_iter().map(|other| other.join().expect("writing does not panic")).fold(own, io::Result::and)
    })
}

/// Groups of blocks to be written together; all but the first begin at a page of their own.
fn split(blocks: &[Placed<'_>]) -> Vec<Range<usize>> {
    let (mut writes, mut from) = (Vec::new(), 0);
    for (i, (offset, _)) in blocks.iter().enumerate().skip(1) {
        let enough = offset - blocks[from].0 >= WRITE_BYTES || i - from >= WRITE_BLOCKS;
        if enough && offset.is_multiple_of(PAGE) {
            writes.push(from..i);
            from = i;
        }
    }
    writes.push(from..blocks.len());
    writes
}

/// Returns the end of the last of `blocks`.
fn end(blocks: &[Placed<'_>]) -> u64 {
    blocks.last().map_or(0, |(offset, bytes)| offset + bytes.len() as u64)
}

/// The file that is written.
struct Target<'a> {
    file: &'a File,
    /// The same file, past the page cache.
    direct: Option<&'a File>,
}

impl Target<'_> {
    /// Makes the file as long as `blocks` need, where the file system can do that ahead.
    fn allocate(&self, blocks: &[Placed<'_>]) -> io::Result<()> {
        let start = blocks[0].0;
        match fallocate(self.file, FallocateFlags::empty(), start, (end(blocks) - start).next_multiple_of(PAGE)) {
            Err(Errno::OPNOTSUPP) => Ok(()),
            allocated => Ok(allocated?),
        }
    }

    /// Writes `blocks`; only the first must begin at a page.
    fn write(&self, blocks: &[Placed<'_>]) -> io::Result<()> {
        let start = blocks[0].0;
        if let (Some(direct), Some(pieces)) = (self.direct, in_place(blocks)) {
            let len = pieces.iter().map(|piece| piece.len()).sum::<usize>();
            if matches!(pwritev(direct, &pieces, start), Ok(written) if written == len) {
                return Ok(());
            }
            // Whatever it was, writing once more either succeeds or tells.
        }
        let gathered = gather(blocks);
        let written = self.direct.map_or(Ok(0), |direct| write_direct(direct, &gathered, start))?;
        self.file.write_all_at(&gathered[written..], start + written as u64)
    }
}

/// The bytes of `blocks`, if they can be written as they lie in memory: whole pages, one after
/// another.
fn in_place<'a>(blocks: &[Placed<'a>]) -> Option<Vec<IoSlice<'a>>> {
    let mut at = blocks[0].0;
    let piece = |(offset, bytes): &Placed<'a>| {
        let [only] = bytes.slices() else { return None };
        let page = PAGE as usize;
        let fits = *offset == at && only.len().is_multiple_of(page) && (only.as_ptr() as usize).is_multiple_of(page);
        at = offset + only.len() as u64;
        fits.then(|| IoSlice::new(only))
    };
    blocks.iter().map(piece).collect()
}

/// The bytes of `blocks` and zeros between them and up to a whole page, in aligned memory.
fn gather(blocks: &[Placed<'_>]) -> Buffer {
    let start = blocks[0].0;
    let place = |offset: u64| usize::try_from(offset - start).expect("a segment is short");
    let len = place(end(blocks)).next_multiple_of(PAGE as usize);
    let mut gathered = Buffer::with_capacity(len.max(weft_block::ALIGNED_MIN));
    for (offset, bytes) in blocks {
        gathered.resize(place(*offset));
        bytes.slices().iter().for_each(|slice| gathered.extend_from_slice(slice));
    }
    gathered.resize(len);
    gathered
}

/// Writes as much as goes past the page cache; tells how much.
fn write_direct(file: &File, bytes: &[u8], start: u64) -> io::Result<usize> {
    let mut at = 0;
    while at < bytes.len() {
        match pwrite(file, &bytes[at..], start + at as u64) {
            Ok(0) | Err(Errno::INVAL | Errno::OPNOTSUPP) => break,
            Ok(written) => at += written,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use weft_block::Block;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn what_is_read_back_is_what_was_written(
            lengths in proptest::collection::vec(prop_oneof![1usize..4096, (1usize..40).prop_map(|n| n * 4096), 4096usize..300_000], 1..40),
            aligned: bool,
            direct: bool,
        ) {
            let directory = tempfile::tempdir().expect("a directory");
            let path = directory.path().join("file");
            let file = File::options().read(true).write(true).create_new(true).open(&path).expect("made");
            let (mut offset, mut blocks) = (4096u64, Vec::new());
            for (i, length) in lengths.iter().enumerate() {
                let bytes = vec![u8::try_from(i % 251).expect("small") + 1; *length];
                if *length >= 4096 {
                    offset = offset.next_multiple_of(PAGE);
                }
                let block = if aligned { Block::copy_of(&bytes) } else { Block::new(bytes) };
                blocks.push((offset, Rope::from(block.whole())));
                offset += super::super::taken(*length as u64);
            }
            let placed = blocks.iter().map(|(offset, bytes)| (*offset, bytes)).collect::<Vec<_>>();
            let direct = if direct { super::super::direct::open(&path, true).expect("opened") } else { None };
            write(&file, direct.as_ref(), &placed).expect("written");
            let read = std::fs::read(&path).expect("read");
            let mut expected = vec![0; read.len()];
            for (offset, bytes) in &blocks {
                let at = usize::try_from(*offset).expect("small");
                expected[at..at + bytes.len()].copy_from_slice(&bytes.to_vec());
            }
            prop_assert!(read == expected);
        }
    }
}
