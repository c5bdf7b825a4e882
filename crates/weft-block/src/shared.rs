//! Memory that other processes may map to read: blocks that lie in files without names
//! (memfd_create(2)).
//!
//! A [`Pool`] is what one reader may see of; its blocks lie in arenas, each a file sealed so that
//! nobody who is given it writes, shrinks or grows it (fcntl(2), `F_SEAL_FUTURE_WRITE`). This
//! process wrote to it before, by a mapping that it keeps. An arena has places of one length; it
//! lives as long as one of them is taken, and a place given up is taken again by what comes next to
//! the same pool.
//!
//! Invariant: a place has one owner until it is frozen, and nobody writes to it from then on until
//! the block is gone.

use crate::Block;
#[cfg(not(miri))]
use memmap2::{MmapOptions, MmapRaw};
use std::collections::{BTreeMap, VecDeque};
#[cfg(not(miri))]
use std::fs::File;
use std::io;
use std::ops::{Deref, DerefMut};
#[cfg(not(miri))]
use std::os::fd::AsFd;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Most bytes of an arena of several places.
pub const ARENA_BYTES_MAX: usize = 16 << 20;

/// Most arenas of all pools with one budget.
const ARENAS_MAX: usize = 1024;

/// Share of the files that this process may have open: arenas are no more than one in so many.
const FILES_IN: usize = 8;

/// Number of arenas, at least, of a budget that is all taken, if blocks are that short.
const ARENA_IN: usize = 16;

/// Bytes of a large page (x86-64, and others with pages of 4 KiB).
const HUGE_PAGE: usize = 2 << 20;

/// The limits of all arenas of several pools together.
#[derive(Debug, Default)]
pub struct Budget {
    bytes_max: usize,
    /// An arena of several places takes no more than one in so many parts of that.
    arena_in: usize,
    arenas_max: usize,
    taken: AtomicUsize,
    /// Arenas: each is an open file.
    arenas: AtomicUsize,
}

impl Budget {
    /// Makes a budget of at most `bytes_max` bytes, and not so many arenas that this process has
    /// too many open files.
    pub fn new(bytes_max: usize) -> Arc<Budget> {
        Arc::new(Budget { bytes_max, arena_in: ARENA_IN, arenas_max: arenas_max(), ..Budget::default() })
    }

    /// Bytes that may be taken at most.
    pub fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Bytes taken now.
    pub fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    fn take(&self, bytes: usize) -> bool {
        let more = |counter: &AtomicUsize, by: usize, max: usize| {
            let sum = |now: usize| now.checked_add(by).filter(|sum| *sum <= max);
            counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, sum).is_ok()
        };
        if !more(&self.arenas, 1, self.arenas_max) {
            return false;
        }
        let is_taken = more(&self.taken, bytes, self.bytes_max);
        if !is_taken {
            self.arenas.fetch_sub(1, Ordering::Relaxed);
        }
        is_taken
    }

    fn give_back(&self, bytes: usize) {
        self.taken.fetch_sub(bytes, Ordering::Relaxed);
        self.arenas.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Blocks that the same processes may read.
#[derive(Debug)]
pub struct Pool {
    block_bytes: usize,
    place_bytes: usize,
    budget: Arc<Budget>,
    arenas: Mutex<Arenas>,
}

/// Arenas of a pool. Only their places keep them alive.
#[derive(Debug, Default)]
struct Arenas {
    /// Arenas by their start in this process.
    by_start: BTreeMap<usize, Weak<Arena>>,
    /// The one in which there was a free place last.
    last: Weak<Arena>,
}

impl Arenas {
    fn take(&mut self) -> Option<Place> {
        if let Some(place) = self.last.upgrade().and_then(take) {
            return Some(place);
        }
        let place = self.by_start.values().filter_map(Weak::upgrade).find_map(take)?;
        self.last = Arc::downgrade(&place.arena);
        Some(place)
    }
}

impl Pool {
    /// Makes a pool whose blocks have up to `block_bytes` bytes.
    ///
    /// # Panics
    /// If that is none.
    pub fn new(block_bytes: usize, budget: Arc<Budget>) -> Pool {
        assert!(block_bytes > 0, "a block has bytes");
        let place_bytes = block_bytes.next_multiple_of(page_bytes());
        Pool { block_bytes, place_bytes, budget, arenas: Mutex::default() }
    }

    /// Most bytes of a block.
    pub fn block_bytes(&self) -> usize {
        self.block_bytes
    }

    /// Bytes that the memory of a block takes.
    pub fn place_bytes(&self) -> usize {
        self.place_bytes
    }

    /// A place to fill; none if the budget is spent. `more_bytes` are expected to follow in others:
    /// what is taken from the system at once follows from that.
    ///
    /// # Errors
    /// What the system says if it gives no memory.
    pub fn place(&self, more_bytes: usize) -> io::Result<Option<Place>> {
        let mut arenas = self.arenas();
        if let Some(place) = arenas.take() {
            return Ok(Some(place));
        }
        let most = ARENA_BYTES_MAX.min(self.budget.bytes_max / self.budget.arena_in);
        let wanted = self.place_bytes.saturating_add(more_bytes).min(most);
        let mut places = wanted.div_ceil(self.place_bytes).max(1);
        if wanted >= HUGE_PAGE {
            places = wanted.next_multiple_of(HUGE_PAGE).div_ceil(self.place_bytes);
        }
        // What is left may be less than what would be taken with pleasure.
        while places > 0 {
            if let Some(arena) = Arena::new(places, self.place_bytes, &self.budget)? {
                let arena = Arc::new(arena);
                // The new one may lie where one was that is gone.
                arenas.by_start.retain(|_, arena| arena.strong_count() > 0);
                arenas.by_start.insert(arena.memory.start(), Arc::downgrade(&arena));
                arenas.last = Arc::downgrade(&arena);
                return Ok(take(arena));
            }
            places /= 2;
        }
        Ok(None)
    }

    /// A copy of `bytes`; none if the budget is spent. As [`Pool::place`].
    ///
    /// # Panics
    /// If there are more bytes than a block may have.
    pub fn copy_of(&self, bytes: &[u8], more_bytes: usize) -> io::Result<Option<Block>> {
        Ok(self.place(more_bytes)?.map(|place| place.holding(bytes)))
    }

    /// The arena in which `bytes` lie, and where; none if that is none of this pool's.
    pub fn find(&self, bytes: &[u8]) -> Option<(Arc<Arena>, usize)> {
        let at = bytes.as_ptr().addr();
        let arena = self.arenas().by_start.range(..=at).next_back().and_then(|(_, arena)| arena.upgrade())?;
        let offset = at - arena.memory.start();
        (offset + bytes.len() <= arena.len()).then_some((arena, offset))
    }

    /// True if no block is left.
    pub fn is_empty(&self) -> bool {
        self.arenas().by_start.values().all(|arena| arena.strong_count() == 0)
    }

    fn arenas(&self) -> MutexGuard<'_, Arenas> {
        // A thread that panicked meanwhile left entries that tell the truth.
        self.arenas.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place of `arena` that nobody has.
fn take(arena: Arc<Arena>) -> Option<Place> {
    let index = {
        let mut free = arena.free();
        if free.is_retired { None } else { free.places.pop_front() }
    };
    Some(Place { arena, index: index? })
}

/// Some places, next to each other in a file of their own.
#[derive(Debug)]
pub struct Arena {
    number: u64,
    memory: Memory,
    place_bytes: usize,
    free: Mutex<Free>,
    budget: Arc<Budget>,
}

/// Places that nobody has, in the order in which they were given up. The first is taken first: what
/// other processors have read of it left their caches the longest ago, and writing to it need not
/// wait for them. With the last one taken first, a channel between two processors had a quarter of
/// its rate.
#[derive(Debug)]
struct Free {
    places: VecDeque<usize>,
    is_retired: bool,
}

impl Arena {
    fn new(places: usize, place_bytes: usize, budget: &Arc<Budget>) -> io::Result<Option<Arena>> {
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        let len = places * place_bytes;
        if !budget.take(len) {
            return Ok(None);
        }
        let memory = Memory::new(len).inspect_err(|_| budget.give_back(len))?;
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        // The first are taken first.
        let free = Mutex::new(Free { places: (0..places).collect(), is_retired: false });
        Ok(Some(Arena { number, memory, place_bytes, free, budget: budget.clone() }))
    }

    /// Returns a number that no other arena of this process has, or had.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Bytes of all its places.
    pub fn len(&self) -> usize {
        self.memory.len()
    }

    /// Never: it has places.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The file, for reading: what may be given to others.
    ///
    /// # Errors
    /// What the system says: there may be too many open files.
    pub fn reader(&self) -> io::Result<OwnedFd> {
        self.memory.reader()
    }

    /// The file, as this process has it.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.memory.file()
    }

    /// Retires the arena: from here on no place of it is taken again, as somebody may read what is
    /// in them although nobody here has them any more.
    pub fn retire(&self) {
        self.free().is_retired = true;
    }

    fn free(&self) -> MutexGuard<'_, Free> {
        // Places are only ever pushed and popped.
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        self.budget.give_back(self.len());
    }
}

/// Memory of an arena that one owner fills. It holds whatever it held.
#[derive(Debug)]
pub struct Place {
    arena: Arc<Arena>,
    index: usize,
}

impl Place {
    /// A copy of `bytes` as a block.
    ///
    /// # Panics
    /// If there are more bytes than a block may have.
    pub fn holding(mut self, bytes: &[u8]) -> Block {
        crate::copied(bytes.len());
        self[..bytes.len()].copy_from_slice(bytes);
        self.freeze(bytes.len())
    }

    /// Its first `len` bytes as a block, without copying them.
    ///
    /// # Panics
    /// If there are fewer.
    pub fn freeze(self, len: usize) -> Block {
        assert!(len <= self.arena.place_bytes, "a place has no more bytes");
        Block::of_owner(Frozen { place: self, len })
    }

    fn start(&self) -> *mut u8 {
        let start = self.arena.memory.pointer().wrapping_add(self.index * self.arena.place_bytes);
        debug_assert!(self.index * self.arena.place_bytes < self.arena.len());
        start
    }
}

impl Deref for Place {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the place lies in the arena's memory, which is mapped as long as the arena lives,
        // and no two owners have the same index, as each comes from the list of free ones and goes
        // back there only when it is dropped. Other processes cannot write to the file (see
        // `seal`).
        unsafe { std::slice::from_raw_parts(self.start(), self.arena.place_bytes) }
    }
}

impl DerefMut for Place {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above; and this borrows the only owner. What other processes see of it
        // meanwhile is no business of this one's.
        unsafe { std::slice::from_raw_parts_mut(self.start(), self.arena.place_bytes) }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.arena.free().places.push_back(self.index);
    }
}

/// A place that nobody writes to any more.
struct Frozen {
    place: Place,
    len: usize,
}

impl AsRef<[u8]> for Frozen {
    fn as_ref(&self) -> &[u8] {
        &self.place[..self.len]
    }
}

/// The memory of an arena, and the file that it is. Where Miri looks, which knows no such files, it
/// is from the allocator.
#[derive(Debug)]
struct Memory {
    #[cfg(not(miri))]
    file: File,
    #[cfg(not(miri))]
    mapped: MmapRaw,
    #[cfg(miri)]
    mapped: Heap,
}

impl Memory {
    fn pointer(&self) -> *mut u8 {
        self.mapped.as_mut_ptr()
    }

    fn start(&self) -> usize {
        self.pointer().addr()
    }

    fn len(&self) -> usize {
        self.mapped.len()
    }
}

#[cfg(not(miri))]
impl Memory {
    fn new(len: usize) -> io::Result<Memory> {
        let file = nameless(len as u64)?;
        let mapped = MmapOptions::new().len(len).map_raw(&file)?;
        if len >= HUGE_PAGE {
            // Large pages are mapped in a moment where others take as long as copying them. Most
            // systems give none unless they are told to.
            let _ = mapped.advise(memmap2::Advice::HugePage);
        }
        seal(&file)?;
        Ok(Memory { file, mapped })
    }

    fn reader(&self) -> io::Result<OwnedFd> {
        use rustix::fs::{Mode, OFlags, open};
        use std::os::fd::AsRawFd;
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        Ok(open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
    }

    fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Makes a file of `len` zero bytes without a name, and reopens it: the kernel does not count the
/// descriptor from memfd_create(2), and then could not tell if somebody else has it open.
#[cfg(not(miri))]
fn nameless(len: u64) -> io::Result<File> {
    use rustix::fs::{MemfdFlags, Mode, fchmod, memfd_create};
    use std::os::fd::AsRawFd;
    let made = memfd_create("weft", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let path = format!("/proc/self/fd/{}", made.as_raw_fd());
    fchmod(&made, Mode::RUSR | Mode::WUSR)?;
    let file = File::options().read(true).write(true).open(path)?;
    file.set_len(len)?;
    // Nobody else opens it for writing.
    fchmod(&made, Mode::RUSR)?;
    Ok(file)
}

/// Lets only mappings made before write to `file` from here on, whichever process has it open; it
/// keeps its length, and its seals.
#[cfg(not(miri))]
fn seal(file: &File) -> io::Result<()> {
    use rustix::fs::{SealFlags, fcntl_add_seals};
    let seals = SealFlags::GROW | SealFlags::SHRINK | SealFlags::FUTURE_WRITE | SealFlags::SEAL;
    Ok(fcntl_add_seals(file, seals)?)
}

#[cfg(miri)]
#[derive(Debug)]
struct Heap(*mut [u8]);

#[cfg(miri)]
// SAFETY: nobody else has the pointer, and what it points to is only reached through places.
unsafe impl Send for Heap {}
#[cfg(miri)]
// SAFETY: as above.
unsafe impl Sync for Heap {}

#[cfg(miri)]
impl Heap {
    fn as_mut_ptr(&self) -> *mut u8 {
        self.0.cast()
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(miri)]
impl Drop for Heap {
    fn drop(&mut self) {
        // SAFETY: it came from a box, and every place is gone.
        drop(unsafe { Box::from_raw(self.0) });
    }
}

#[cfg(miri)]
impl Memory {
    fn new(len: usize) -> io::Result<Memory> {
        Ok(Memory { mapped: Heap(Box::into_raw(vec![0; len].into_boxed_slice())) })
    }

    fn reader(&self) -> io::Result<OwnedFd> {
        unreachable!("there are no such files here")
    }

    fn file(&self) -> BorrowedFd<'_> {
        unreachable!("there are no such files here")
    }
}

/// Returns the number of arenas that there may be.
fn arenas_max() -> usize {
    if cfg!(miri) {
        return ARENAS_MAX;
    }
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    files.map_or(ARENAS_MAX, |files| usize::try_from(files).unwrap_or(usize::MAX) / FILES_IN).clamp(1, ARENAS_MAX)
}

fn page_bytes() -> usize {
    if cfg!(miri) { 4096 } else { rustix::param::page_size() }
}

#[cfg(test)]
mod tests;
