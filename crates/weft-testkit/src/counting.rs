//! The memory that a thread has: an allocator that counts it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, with a count of what a thread has of it.
#[derive(Debug)]
pub struct Counting;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: usize, sign: isize) {
    let _ = HELD.try_with(|held| held.set(held.get() + sign * bytes.cast_signed()));
}

// SAFETY: all is passed on to the system's allocator unchanged.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 1);
        // SAFETY: the caller's promises are those that the system's allocator asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(layout.size(), -1);
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(layout.size(), -1);
        count(size, 1);
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// Bytes that this thread has, if [`Counting`] is the program's allocator.
pub fn held_bytes() -> isize {
    HELD.get()
}

/// Returns the result of `work`, and the number of bytes held since.
pub fn held<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = HELD.get();
    let made = work();
    (made, usize::try_from(HELD.get() - before).unwrap_or(0))
}
