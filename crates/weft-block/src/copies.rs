//! Counts of bytes copied from one memory of this process into another, to show the savings of
//! passing by reference.
//!
//! Buffers and ropes count what they copy; others who copy blocks' bytes say so ([`copied`]). Work
//! that makes new bytes of old ones is no copy.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that a thread counts by itself before it tells.
const BYTES_APART: usize = 64 << 10;

static COPIED: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static APART: Cell<usize> = const { Cell::new(0) };
}

/// Notes that `bytes` were copied.
pub fn copied(bytes: usize) {
    // A thread that ends may be past having anything of its own.
    let _ = APART.try_with(|apart| {
        let all = apart.get() + bytes;
        if all < BYTES_APART {
            apart.set(all);
        } else {
            apart.set(0);
            COPIED.fetch_add(all as u64, Ordering::Relaxed);
        }
    });
}

/// Bytes copied so far in this process, but for less than 64 KiB of each thread.
pub fn bytes_copied() -> u64 {
    COPIED.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Buffer, Rope};

    #[test]
    fn what_is_copied_is_counted() {
        let before = bytes_copied();
        let block = Buffer::copy_of(&vec![7; 1 << 20]).freeze();
        assert!(bytes_copied() - before >= 1 << 20);
        let mut rope = Rope::from(block.whole());
        rope.append(Rope::from(block.slice(0..1000)));
        let before = bytes_copied();
        assert_eq!(rope.to_vec().len(), (1 << 20) + 1000);
        assert!(bytes_copied() - before >= 1 << 20);
    }
}
