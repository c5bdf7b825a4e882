//! Memory that others lent to this process: arenas mapped to read from descriptors that came over
//! sockets, and which of them some bytes lie in.
//!
//! One registry for the process: whoever sends bytes on asks it, and passes on the descriptor in
//! place of a copy.
//!
//! Invariants: what is mapped neither shrinks, which would be a signal for whoever reads it, nor
//! can be written by anybody who was handed it; only its maker may still write, and must be trusted
//! not to do so as long as the bytes are lent. An arena is found as long as it is mapped, and not
//! longer.

use crate::process::PerProcess;
use memmap2::{MmapOptions, MmapRaw};
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Most guards that bytes are sent on by reference with; after so many processes they are copied.
pub(crate) const GUARDS_MAX: usize = 8;

/// An arena that somebody lent.
#[derive(Debug)]
pub struct Lent {
    file: OwnedFd,
    memory: MmapRaw,
    guards: Vec<Arc<OwnedFd>>,
}

impl Lent {
    /// The arena that `file` is. As long as a copy of `guard` is open anywhere, its lender does not
    /// write to it: it goes along with what is sent on.
    ///
    /// # Errors
    /// `InvalidData` if the file may shrink, or may be written by others than its maker; and what
    /// the system says.
    pub fn map(file: OwnedFd, guard: Arc<OwnedFd>) -> io::Result<Arc<Lent>> {
        Lent::guarded(file, vec![guard])
    }

    /// As [`Lent::map`], with all guards that came with it; none where the lender never writes to
    /// it again.
    pub(crate) fn guarded(file: OwnedFd, guards: Vec<Arc<OwnedFd>>) -> io::Result<Arc<Lent>> {
        let len = checked_len(&file)?;
        let memory = MmapOptions::new().len(len).map_raw_read_only(&file)?;
        let lent = Arc::new(Lent { file, memory, guards });
        registry().insert(lent.start(), (len, Arc::downgrade(&lent)));
        Ok(lent)
    }

    /// Its bytes in `range`.
    ///
    /// # Panics
    /// If there are fewer.
    pub fn slice(&self, range: Range<usize>) -> &[u8] {
        assert!(range.start <= range.end && range.end <= self.len(), "an arena has no more bytes");
        let start = self.memory.as_ptr().wrapping_add(range.start);
        // SAFETY: the range was just checked; the memory is mapped as long as this lives, of a file
        // that cannot shrink. Nobody who was handed the file can write to it, and its maker does
        // not as long as the bytes are lent (see above).
        unsafe { std::slice::from_raw_parts(start, range.end - range.start) }
    }

    /// Has the system look up now the pages that bytes `range` lie in: one after the other they
    /// take longer.
    pub fn touch(&self, range: Range<usize>) {
        let page = rustix::param::page_size();
        let (start, end) = (range.start / page * page, range.end.min(self.len()));
        if start < end {
            let first = self.memory.as_mut_ptr().wrapping_add(start);
            // SAFETY: the pages are mapped, and nothing about what they hold changes. Where the
            // kernel does not know of it all stays as it is.
            let _ = unsafe { rustix::mm::madvise(first.cast(), end - start, rustix::mm::Advice::LinuxPopulateRead) };
        }
    }

    /// Returns its length in bytes.
    pub fn len(&self) -> usize {
        self.memory.len()
    }

    /// Never: there would be nothing to lend.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn guards(&self) -> &[Arc<OwnedFd>] {
        &self.guards
    }

    fn start(&self) -> usize {
        self.memory.as_ptr().addr()
    }
}

impl AsFd for Lent {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        // Before the memory is unmapped: nothing else can have begun there since.
        registry().remove(&self.start());
    }
}

/// The arena in which `bytes` lie, and where; none if nobody lent them.
pub fn find(bytes: &[u8]) -> Option<(Arc<Lent>, usize)> {
    let at = bytes.as_ptr().addr();
    let registry = registry();
    let (start, (len, lent)) = registry.range(..=at).next_back()?;
    let offset = at - start;
    // One that they do not lie in is not referred to, not even for a moment: whoever asks whether
    // it is needed would be told that it is.
    let lies_there = offset.checked_add(bytes.len()).is_some_and(|end| end <= *len);
    if lies_there { Some((lent.upgrade()?, offset)) } else { None }
}

/// The length, and the arena as long as it is mapped.
type Registry = BTreeMap<usize, (usize, Weak<Lent>)>;

/// By where they begin. No arena is dropped while this is held: that takes it too. A child process
/// that was forked knows no arena of its parent: its parent gives them back, so the child sends
/// copies on.
fn registry() -> MutexGuard<'static, Registry> {
    static REGISTRY: PerProcess<Mutex<Registry>> = PerProcess::new();
    // Whoever panicked meanwhile left entries that tell the truth.
    REGISTRY.get().lock().unwrap_or_else(PoisonError::into_inner)
}

/// The length of `file`, if it keeps that and nobody but its maker can write to it.
fn checked_len(file: &OwnedFd) -> io::Result<usize> {
    use rustix::fs::SealFlags;
    let refuse = |why: &'static str| io::Error::new(io::ErrorKind::InvalidData, why);
    let seals = rustix::fs::fcntl_get_seals(file).map_err(|_| refuse("what was lent is no memory file"))?;
    if !seals.contains(SealFlags::SHRINK) {
        return Err(refuse("what was lent may shrink"));
    }
    if !seals.intersects(SealFlags::WRITE | SealFlags::FUTURE_WRITE) {
        return Err(refuse("what was lent may be written by others"));
    }
    let len = usize::try_from(rustix::fs::fstat(file)?.st_size).unwrap_or(0);
    if len == 0 { Err(refuse("what was lent has no bytes")) } else { Ok(len) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_block::shared::{Budget, Pool};

    fn lent(bytes: &[u8]) -> Arc<Lent> {
        let pool = Pool::new(4096, Budget::new(1 << 20));
        let block = pool.copy_of(bytes, 4096).unwrap().expect("room");
        let (arena, _) = pool.find(&block).expect("it lies there");
        Lent::guarded(arena.file().try_clone_to_owned().unwrap(), Vec::new()).unwrap()
    }

    #[test]
    fn what_is_lent_is_found_by_its_bytes_until_it_is_gone() {
        let (one, other) = (lent(b"one"), lent(b"other"));
        let bytes = &one.slice(0..3)[1..];
        assert_eq!(bytes, b"ne");
        let (found, offset) = find(bytes).expect("it was lent");
        assert!(Arc::ptr_eq(&found, &one) && offset == 1);
        assert_eq!(find(other.slice(8191..8192)).expect("its last byte").1, 8191);
        assert!(find(b"elsewhere").is_none());
        let gone = Arc::downgrade(&one);
        drop((one, found));
        assert!(registry().values().all(|(_, lent)| !lent.ptr_eq(&gone)));
    }

    #[test]
    fn only_files_that_keep_their_length_and_their_bytes_are_mapped() {
        use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
        let file = |seals: SealFlags, len: u64| {
            let file = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
            ftruncate(&file, len).unwrap();
            fcntl_add_seals(&file, seals).unwrap();
            Lent::guarded(file, Vec::new()).map(drop).map_err(|error| error.kind())
        };
        let refused = Err(io::ErrorKind::InvalidData);
        assert_eq!(file(SealFlags::empty(), 4096), refused);
        assert_eq!(file(SealFlags::SHRINK, 4096), refused);
        assert_eq!(file(SealFlags::FUTURE_WRITE, 4096), refused);
        assert_eq!(file(SealFlags::SHRINK | SealFlags::WRITE, 0), refused);
        assert_eq!(file(SealFlags::SHRINK | SealFlags::WRITE, 4096), Ok(()));
        assert_eq!(file(SealFlags::SHRINK | SealFlags::FUTURE_WRITE, 5000), Ok(()));
        let plain = tempfile::tempfile().unwrap();
        assert_eq!(Lent::guarded(plain.into(), Vec::new()).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
