//! Writes long runs of bytes past the page cache: programs that read what they wrote find it in the cache of the
//! mount, and a second copy here would only push other things out of memory.
//!
//! While some buffers are on their way to the disk the next is filled. Where the file system does not take such
//! writes, they go through the page cache.

use super::PAGE;
use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, OFlags, fallocate};
use rustix::io::{Errno, pwrite};
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread;
use weft_block::Rope;

/// Bytes gathered for one write: whoever syncs the log meanwhile waits behind it.
const BUFFER_BYTES: usize = 1 << 20;

/// Writes under way at once: a disk idles between one and the next.
const WRITERS: usize = 2;

/// Buffers of one run: those that are written, and one that is filled.
const BUFFERS: usize = WRITERS + 1;

/// Writes `blocks`, ascending by place, into `file`, which lies at `path`. The first lies at `start`, a multiple of a
/// page. Less than a page lies between two of them, which becomes zero, as does what is left of the last page.
pub(super) fn write(file: &File, path: &Path, start: u64, blocks: &[(u64, &Rope)]) -> io::Result<()> {
    let target = Target::open(file, path)?;
    let end = blocks.last().map_or(start, |(offset, bytes)| offset + bytes.len() as u64);
    let len = usize::try_from(end - start).expect("a segment is short");
    if len <= BUFFER_BYTES {
        let mut buffer = Buffer::new(len, start);
        buffer.fill(blocks, &mut |buffer| target.write(buffer))?;
        return target.write(&mut buffer);
    }
    // Writes that make a file longer go one at a time.
    target.allocate(start, len as u64)?;
    thread::scope(|scope| {
        let (send, full) = sync_channel(BUFFERS);
        let (give_back, empty) = channel();
        let full = Arc::new(Mutex::new(full));
        let writers: [_; WRITERS] = std::array::from_fn(|_| {
            let (target, full, give_back) = (&target, full.clone(), give_back.clone());
            scope.spawn(move || target.write_all(&full, &give_back))
        });
        // Whether there is somebody left to write is for the writers to know.
        drop((full, give_back));
        let filled = fill_by_turns(start, blocks, send, &empty);
        let written = writers.map(|writer| writer.join().expect("writing does not panic"));
        // An error of theirs is why there was nobody left.
        written.into_iter().collect::<io::Result<()>>().and(filled)
    })
}

/// Fills buffers while others are written.
fn fill_by_turns(
    start: u64,
    blocks: &[(u64, &Rope)],
    send: SyncSender<Buffer>,
    empty: &Receiver<Buffer>,
) -> io::Result<()> {
    let mut made = 1;
    let mut last = Buffer::new(BUFFER_BYTES, start);
    last.fill(blocks, &mut |buffer| {
        let next = buffer.end();
        let mut other = match empty.try_recv() {
            Ok(other) => other,
            Err(_) if made < BUFFERS => {
                made += 1;
                Buffer::new(BUFFER_BYTES, next)
            }
            Err(_) => empty.recv().map_err(io::Error::other)?,
        };
        other.start = next;
        send.send(std::mem::replace(buffer, other)).map_err(io::Error::other)
    })?;
    send.send(last).map_err(io::Error::other)
}

/// Bytes on their way to one place of a file.
struct Buffer {
    memory: Vec<u8>,
    /// Where in `memory` the first page starts.
    skipped: usize,
    capacity: usize,
    /// Where it goes in the file: at a multiple of a page.
    start: u64,
    filled: usize,
}

impl Buffer {
    fn new(len: usize, start: u64) -> Buffer {
        let page = PAGE as usize;
        let capacity = len.next_multiple_of(page).max(page);
        let memory = vec![0; capacity + page];
        let skipped = memory.as_ptr().align_offset(page);
        Buffer { memory, skipped, capacity, start, filled: 0 }
    }

    fn end(&self) -> u64 {
        self.start + self.filled as u64
    }

    /// Takes the start of `bytes`, as much as there is room for; tells how much.
    fn take(&mut self, bytes: &[u8]) -> usize {
        let len = bytes.len().min(self.capacity - self.filled);
        let at = self.skipped + self.filled;
        self.memory[at..at + len].copy_from_slice(&bytes[..len]);
        self.filled += len;
        len
    }

    /// Takes all of `blocks`; calls `full` whenever it is, which leaves an empty buffer in its place.
    fn fill(&mut self, blocks: &[(u64, &Rope)], full: &mut dyn FnMut(&mut Buffer) -> io::Result<()>) -> io::Result<()> {
        for (offset, bytes) in blocks {
            let gap = usize::try_from(offset - self.end()).expect("less than a page");
            self.put(&[0; PAGE as usize][..gap], full)?;
            bytes.slices().iter().try_for_each(|slice| self.put(slice, full))?;
        }
        Ok(())
    }

    fn put(&mut self, mut bytes: &[u8], full: &mut dyn FnMut(&mut Buffer) -> io::Result<()>) -> io::Result<()> {
        while !bytes.is_empty() {
            let taken = self.take(bytes);
            bytes = &bytes[taken..];
            if !bytes.is_empty() {
                full(self)?;
            }
        }
        Ok(())
    }

    /// What was taken, and zeros up to a whole page.
    fn pages(&mut self) -> &[u8] {
        let len = self.filled.next_multiple_of(PAGE as usize);
        let pages = &mut self.memory[self.skipped..self.skipped + len];
        pages[self.filled..].fill(0);
        pages
    }
}

/// The file that is written.
struct Target<'a> {
    file: &'a File,
    /// The same file, past the page cache.
    direct: Option<File>,
}

impl<'a> Target<'a> {
    fn open(file: &'a File, path: &Path) -> io::Result<Target<'a>> {
        let flags = OFlags::DIRECT.bits().cast_signed();
        match File::options().write(true).custom_flags(flags).open(path) {
            Ok(direct) => Ok(Target { file, direct: Some(direct) }),
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(Target { file, direct: None }),
            Err(error) => Err(error),
        }
    }

    /// Makes the file `len` bytes longer than `start`, where the file system can do that ahead.
    fn allocate(&self, start: u64, len: u64) -> io::Result<()> {
        match fallocate(self.file, FallocateFlags::empty(), start, len.next_multiple_of(PAGE)) {
            Err(Errno::OPNOTSUPP) => Ok(()),
            allocated => Ok(allocated?),
        }
    }

    /// Writes the buffers that come, until there are no more.
    fn write_all(&self, full: &Mutex<Receiver<Buffer>>, give_back: &Sender<Buffer>) -> io::Result<()> {
        loop {
            let Ok(mut buffer) = full.lock().recv() else { return Ok(()) };
            self.write(&mut buffer)?;
            // The other side may have all it needs.
            let _ = give_back.send(buffer);
        }
    }

    /// Writes what is in the buffer, and empties it.
    fn write(&self, buffer: &mut Buffer) -> io::Result<()> {
        let start = buffer.start;
        let pages = buffer.pages();
        let written = self.direct.as_ref().map_or(Ok(0), |direct| write_direct(direct, pages, start))?;
        self.file.write_all_at(&pages[written..], start + written as u64)?;
        buffer.start = buffer.end();
        buffer.filled = 0;
        Ok(())
    }
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
