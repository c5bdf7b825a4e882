//! Memory of bytes: small objects if they are few, else pages of their own, which start at a
//! multiple of [`ALIGNMENT`] and come back to the pool when their last user drops them; or memory
//! borrowed from another owner. Long-lived blocks among small objects would leave gaps that nothing
//! fits into.

use crate::pool;
use memmap2::MmapMut;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Alignment of long buffers in bytes: devices read and write them without a copy.
pub const ALIGNMENT: usize = 4096;

/// Bytes in a buffer from which on it has pages of its own; for shorter ones that would waste more
/// than it helps.
pub const ALIGNED_MIN: usize = 16 << 10;

/// Some bytes, and room for more.
#[derive(Debug)]
pub(crate) enum Memory {
    Heap(Heap),
    Mapped(Mapped),
    Lent(Lent),
}

/// Memory from the allocator; the bytes follow `start` others.
#[derive(Debug, Default)]
pub(crate) struct Heap {
    all: Vec<u8>,
    start: usize,
}

/// Pages from the system; `len` bytes of them are used.
#[derive(Debug)]
pub(crate) struct Mapped {
    pages: Option<MmapMut>,
    len: usize,
}

/// Bytes of `owner`, as it told them once. Nobody edits them.
pub(crate) struct Lent {
    bytes: NonNull<[u8]>,
    /// Comes from a box, and goes back into it to be dropped: as long as it is in one, nobody else
    /// may have pointers into it.
    owner: NonNull<dyn Send + Sync>,
}

// SAFETY: it is no more than shared bytes and their owner, both of which may go anywhere.
unsafe impl Send for Lent {}
// SAFETY: as above.
unsafe impl Sync for Lent {}

impl Lent {
    fn of<T: AsRef<[u8]> + Send + Sync + 'static>(owner: T) -> Lent {
        let owner = NonNull::from(Box::leak(Box::new(owner)));
        // SAFETY: it was just made, and nobody else knows of it.
        let bytes = unsafe { owner.as_ref() }.as_ref();
        // They are borrowed from what nobody reaches from here on, neither to change nor to move
        // it, before it is dropped.
        Lent { bytes: NonNull::from(bytes), owner }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        // SAFETY: it came from a box, and what borrowed from it is gone.
        drop(unsafe { Box::from_raw(self.owner.as_ptr()) });
    }
}

impl Deref for Lent {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: see `of`; the owner is dropped after whatever borrows from this.
        unsafe { self.bytes.as_ref() }
    }
}

impl fmt::Debug for Lent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lent({} bytes)", self.len())
    }
}

impl Default for Memory {
    fn default() -> Memory {
        Memory::of(Vec::new())
    }
}

impl Memory {
    /// Only blocks are of such memory, and those are not edited.
    const NEVER_LENT: &str = "what is lent is not edited";

    /// Takes over the memory that `bytes` lie in.
    pub(crate) fn of(bytes: Vec<u8>) -> Memory {
        Memory::Heap(Heap { all: bytes, start: 0 })
    }

    /// Borrows the memory of `owner`, as long as it is needed.
    pub(crate) fn lent<T: AsRef<[u8]> + Send + Sync + 'static>(owner: T) -> Memory {
        Memory::Lent(Lent::of(owner))
    }

    /// Its bytes, to be edited by their only owner; none if they are somebody else's.
    pub(crate) fn own(&mut self) -> Option<&mut [u8]> {
        match self {
            Memory::Heap(_) | Memory::Mapped(_) => Some(self),
            Memory::Lent(_) => None,
        }
    }

    /// Room for `capacity` bytes.
    pub(crate) fn with_capacity(capacity: usize) -> Memory {
        if capacity < ALIGNED_MIN {
            return Memory::of(Vec::with_capacity(capacity));
        }
        match pages(capacity) {
            Some(pages) => Memory::Mapped(Mapped { pages: Some(pages), len: 0 }),
            None => Memory::aligned(capacity),
        }
    }

    /// `len` bytes of any content: what an earlier block held may show.
    pub(crate) fn any(len: usize) -> Memory {
        let mut memory = Memory::with_capacity(len);
        match &mut memory {
            Memory::Heap(heap) => heap.all.resize(heap.start + len, 0),
            Memory::Mapped(mapped) => mapped.len = len,
            Memory::Lent(_) => unreachable!("{}", Memory::NEVER_LENT),
        }
        memory
    }

    /// Takes memory from the allocator, but from a multiple of [`ALIGNMENT`] on: where the system
    /// gives no more pages of their own.
    fn aligned(capacity: usize) -> Memory {
        let mut all: Vec<u8> = Vec::with_capacity(capacity + ALIGNMENT);
        let start = all.as_ptr().align_offset(ALIGNMENT);
        all.resize(start, 0);
        Memory::Heap(Heap { all, start })
    }

    fn capacity(&self) -> usize {
        match self {
            Memory::Heap(heap) => heap.all.capacity() - heap.start,
            Memory::Mapped(mapped) => mapped.pages.as_ref().map_or(0, |pages| pages.len()),
            Memory::Lent(_) => 0,
        }
    }

    /// Sees that `more` bytes can be added.
    fn reserve(&mut self, more: usize) {
        if self.len() + more > self.capacity() {
            let mut larger = Memory::with_capacity((self.len() + more).max(2 * self.len()));
            larger.extend_from_slice(self);
            *self = larger;
        }
    }

    /// Adds `bytes` at the end.
    pub(crate) fn extend_from_slice(&mut self, bytes: &[u8]) {
        crate::copied(bytes.len());
        self.reserve(bytes.len());
        match self {
            Memory::Heap(heap) => heap.all.extend_from_slice(bytes),
            Memory::Mapped(mapped) => {
                let from = mapped.len;
                mapped.len += bytes.len();
                mapped[from..].copy_from_slice(bytes);
            }
            Memory::Lent(_) => unreachable!("{}", Memory::NEVER_LENT),
        }
    }

    /// Cuts off or adds zeros, so that there are `len` bytes.
    pub(crate) fn resize(&mut self, len: usize) {
        self.reserve(len.saturating_sub(self.len()));
        match self {
            Memory::Heap(heap) => heap.all.resize(heap.start + len, 0),
            Memory::Mapped(mapped) => {
                let from = mapped.len.min(len);
                mapped.len = len;
                mapped[from..].fill(0);
            }
            Memory::Lent(_) => unreachable!("{}", Memory::NEVER_LENT),
        }
    }
}

/// Pages for `len` bytes; none if the system gives no more of them.
fn pages(len: usize) -> Option<MmapMut> {
    // Miri does not know such pages.
    if cfg!(miri) { None } else { pool::take(len) }
}

impl Deref for Memory {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Memory::Heap(heap) => &heap.all[heap.start..],
            Memory::Mapped(mapped) => mapped,
            Memory::Lent(lent) => lent,
        }
    }
}

impl DerefMut for Memory {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Memory::Heap(heap) => &mut heap.all[heap.start..],
            Memory::Mapped(mapped) => mapped,
            Memory::Lent(_) => unreachable!("{}", Memory::NEVER_LENT),
        }
    }
}

impl Deref for Mapped {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.pages.as_ref().map_or(&[], |pages| &pages[..self.len])
    }
}

impl DerefMut for Mapped {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.pages.as_mut().map_or(&mut [], |pages| &mut pages[..self.len])
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        if let Some(pages) = self.pages.take() {
            pool::keep(pages);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_there_are_no_pages_memory_is_aligned_all_the_same() {
        for len in [ALIGNED_MIN, 100_000] {
            let mut memory = Memory::aligned(len);
            memory.resize(len);
            assert!((memory.as_ptr() as usize).is_multiple_of(ALIGNMENT) && memory.capacity() >= len);
            assert_eq!(memory.len(), len);
        }
    }
}
