//! What bytes lie in: among small objects if they are few, else in pages of their own, which start at a multiple of
//! [`ALIGNMENT`] and come back to the pool when nobody has them any more. Long-lived blocks among small objects would leave
//! gaps that nothing fits into.

use crate::pool;
use memmap2::MmapMut;
use std::ops::{Deref, DerefMut};

/// Where memory of long buffers starts: at a multiple of this, so that devices read and write it without a copy.
pub const ALIGNMENT: usize = 4096;

/// Bytes in a buffer from which on it has pages of its own; for shorter ones that would waste more than it helps.
pub const ALIGNED_MIN: usize = 16 << 10;

/// Some bytes, and room for more.
#[derive(Debug)]
pub(crate) enum Memory {
    Heap(Heap),
    Mapped(Mapped),
}

/// From the allocator; the bytes follow `start` others.
#[derive(Debug, Default)]
pub(crate) struct Heap {
    all: Vec<u8>,
    start: usize,
}

/// Pages from the system, of which `len` bytes are used.
#[derive(Debug)]
pub(crate) struct Mapped {
    pages: Option<MmapMut>,
    len: usize,
}

impl Default for Memory {
    fn default() -> Memory {
        Memory::of(Vec::new())
    }
}

impl Memory {
    /// What `bytes` lie in already.
    pub(crate) fn of(bytes: Vec<u8>) -> Memory {
        Memory::Heap(Heap { all: bytes, start: 0 })
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
        }
        memory
    }

    /// From the allocator, but from a multiple of [`ALIGNMENT`] on: where the system gives no more pages of their own.
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
        }
    }
}

/// Pages for `len` bytes; none if the system gives no more of them.
fn pages(len: usize) -> Option<MmapMut> {
    // Miri does not know such pages.
    if cfg!(miri) { None } else { pool::take(len).or_else(|| MmapMut::map_anon(len).ok()) }
}

impl Deref for Memory {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Memory::Heap(heap) => &heap.all[heap.start..],
            Memory::Mapped(mapped) => mapped,
        }
    }
}

impl DerefMut for Memory {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Memory::Heap(heap) => &mut heap.all[heap.start..],
            Memory::Mapped(mapped) => mapped,
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
