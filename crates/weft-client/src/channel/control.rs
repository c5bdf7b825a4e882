//! Memory of a channel's words: a file without a name that both ends map.

use super::ring::{Ring, Shape, Word};
use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{MemfdFlags, SealFlags};
use std::io;
use std::os::fd::OwnedFd;

/// Entries: many enough for small ropes, few enough to stay in a processor's cache.
const SHAPE: Shape = Shape { entries: 1024, tickets: 64 << 10 };

const BYTES: usize = SHAPE.words() * size_of::<Word>();

/// Memory that both ends map, of the length that the words need.
#[derive(Debug)]
pub(super) struct Control {
    memory: MmapRaw,
}

impl Control {
    /// New memory, as a file to be given to both ends.
    pub(super) fn make() -> io::Result<OwnedFd> {
        let file = rustix::fs::memfd_create("weft channel", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&file, BYTES as u64)?;
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Control::map(&file)?.mark();
        Ok(file)
    }

    /// The words in `file`, which came from the other end.
    pub(super) fn open(file: &OwnedFd) -> io::Result<Ring<Control>> {
        let refuse = |why: &'static str| io::Error::new(io::ErrorKind::InvalidData, why);
        let seals = rustix::fs::fcntl_get_seals(file).map_err(|_| refuse("the channel's memory is no memory file"))?;
        let len = rustix::fs::fstat(file)?.st_size;
        if !seals.contains(SealFlags::SHRINK) || usize::try_from(len).is_ok_and(|len| len < BYTES) {
            return Err(refuse("the channel's memory may be too short"));
        }
        let ring = Control::map(file)?;
        if ring.is_marked() { Ok(ring) } else { Err(refuse("the channel's memory is of another version of Weft")) }
    }

    fn map(file: &OwnedFd) -> io::Result<Ring<Control>> {
        let memory = MmapOptions::new().len(BYTES).map_raw(file)?;
        Ok(Ring::of(Control { memory }, SHAPE))
    }
}

impl AsRef<[Word]> for Control {
    fn as_ref(&self) -> &[Word] {
        // SAFETY: so many bytes are mapped as long as this lives, from the start of a page on, and
        // the file cannot shrink. Whatever lies there is a word; this process and the others reach
        // it by atomic operations only.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr().cast(), BYTES / size_of::<Word>()) }
    }
}
