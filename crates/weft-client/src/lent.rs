//! Memory that another process lends to this one: mapped to be read, and known by where it lies, so that it can be passed on.
//!
//! Whoever lends tells by a socket what is read no more, and takes everything back when all descriptors of that socket are closed. So whoever passes memory on
//! passes a descriptor of the socket with it.

use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{SealFlags, fcntl_get_seals, fstat};
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// All that is mapped, by where it begins.
static ALL: Mutex<BTreeMap<usize, Weak<Lent>>> = Mutex::new(BTreeMap::new());

fn all() -> MutexGuard<'static, BTreeMap<usize, Weak<Lent>>> {
    // It is only ever added to and taken from.
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A file without a name that somebody lends, mapped.
#[derive(Debug)]
pub(crate) struct Lent {
    file: OwnedFd,
    mapped: MmapRaw,
    guard: Option<Arc<OwnedFd>>,
}

impl Lent {
    /// Maps all of `file`, which is lent by way of socket `guard`; without one it is nobody's to take back.
    ///
    /// # Errors
    /// `InvalidData` if it could shrink under its readers, or be written to by others whom it is lent to. What the system says.
    pub(crate) fn map(file: OwnedFd, guard: Option<Arc<OwnedFd>>) -> io::Result<Arc<Lent>> {
        let unsealed = || io::Error::new(io::ErrorKind::InvalidData, "memory is lent that may change");
        // Only such files have seals.
        let seals = fcntl_get_seals(&file).map_err(|_| unsealed())?;
        if !seals.contains(SealFlags::SHRINK) || !seals.intersects(SealFlags::WRITE | SealFlags::FUTURE_WRITE) {
            return Err(unsealed());
        }
        let len = usize::try_from(fstat(&file)?.st_size).ok().filter(|len| *len > 0).ok_or_else(unsealed)?;
        let mapped = MmapOptions::new().len(len).map_raw_read_only(&file)?;
        let lent = Arc::new(Lent { file, mapped, guard });
        all().insert(lent.start(), Arc::downgrade(&lent));
        Ok(lent)
    }

    fn start(&self) -> usize {
        self.mapped.as_ptr().addr()
    }

    /// Bytes of it.
    pub(crate) fn len(&self) -> usize {
        self.mapped.len()
    }

    /// Bytes `range`; none if it does not reach as far.
    pub(crate) fn slice(&self, range: Range<usize>) -> Option<&[u8]> {
        if range.start > range.end || range.end > self.len() {
            return None;
        }
        // SAFETY: it is mapped as long as this lives, and cannot shrink. Nobody but the lender can write to it, and what the lender has said may be
        // read it does not change before it is told that it is read no more; so it is as constant as anything that is passed by reference.
        Some(unsafe { std::slice::from_raw_parts(self.mapped.as_ptr().add(range.start), range.len()) })
    }

    /// Has the system look up now the pages that bytes `range` lie in.
    pub(crate) fn touch(&self, range: Range<usize>) {
        let page = rustix::param::page_size();
        let start = range.start / page * page;
        let end = range.end.min(self.len());
        if start < end {
            // SAFETY: the pages are mapped, and nothing about what they hold changes. Without it they are looked up one by one.
            let _ = unsafe {
                let first = self.mapped.as_mut_ptr().add(start);
                rustix::mm::madvise(first.cast(), end - start, rustix::mm::Advice::LinuxPopulateRead)
            };
        }
    }

    /// The socket by which it is lent.
    #[expect(dead_code, reason = "channels")]
    pub(crate) fn guard(&self) -> Option<&Arc<OwnedFd>> {
        self.guard.as_ref()
    }
}

impl AsFd for Lent {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let mut all = all();
        // Another may have been mapped there since, but not before this one goes.
        all.remove(&self.start());
    }
}

/// What was lent of which `bytes` are a part, and where in it they begin.
pub(crate) fn find(bytes: &[u8]) -> Option<(Arc<Lent>, usize)> {
    let at = bytes.as_ptr().addr();
    let lent = all().range(..=at).next_back().and_then(|(_, lent)| lent.upgrade())?;
    let offset = at - lent.start();
    (offset + bytes.len() <= lent.len()).then_some((lent, offset))
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_block::shared::{Budget, Pool};

    #[test]
    fn what_is_lent_is_found_by_where_it_lies() {
        let pool = Pool::new(4096, Budget::new(1 << 20));
        let block = pool.copy_of(b"abcdef", 0).unwrap().expect("room");
        let (arena, at) = pool.find(&block).expect("there");
        let lent = Lent::map(arena.reader().unwrap(), None).expect("it is sealed");
        let bytes = lent.slice(at..at + 6).expect("inside");
        assert_eq!(bytes, b"abcdef");
        let (found, offset) = find(&bytes[2..4]).expect("known");
        assert!(Arc::ptr_eq(&found, &lent) && offset == at + 2);
        lent.touch(0..4096);
        assert!(lent.slice(0..lent.len() + 1).is_none() && find(b"elsewhere").is_none());
    }

    #[test]
    fn what_may_change_is_not_mapped() {
        use rustix::fs::{MemfdFlags, fcntl_add_seals, ftruncate, memfd_create};
        let made = || memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("made");
        let sealed = |seals: SealFlags, len| {
            let file = made();
            ftruncate(&file, len).unwrap();
            fcntl_add_seals(&file, seals).unwrap();
            Lent::map(file, None).is_ok()
        };
        assert!(sealed(SealFlags::SHRINK | SealFlags::WRITE, 4096));
        assert!(!sealed(SealFlags::SHRINK, 4096) && !sealed(SealFlags::FUTURE_WRITE, 4096));
        assert!(!sealed(SealFlags::SHRINK | SealFlags::WRITE, 0));
        let plain = tempfile::tempfile().unwrap();
        plain.set_len(4096).unwrap();
        assert!(Lent::map(plain.into(), None).is_err());
    }
}
