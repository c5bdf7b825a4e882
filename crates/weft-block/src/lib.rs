//! Immutable buffers passed by reference.
//!
//! A [`Buffer`] is bytes that one owner edits; frozen, it is a block. A [`Block`] is bytes that
//! nobody can edit once it exists; a [`Slice`] is part of a block; a [`Rope`] is a list of slices
//! (the buffer aggregate of IO-Lite, Pai, Druschel and Zwaenepoel, OSDI 1999). Cloning any of them
//! copies no bytes. Blocks may lie where other processes read them ([`shared`]). This crate knows
//! no other crate of Weft.
//!
//! Invariant: no bytes reachable through a `Block`, `Slice` or `Rope` ever change.
//!
//! ```
//! use weft_block::{Block, Buffer, Rope};
//!
//! let mut buffer = Buffer::with_capacity(11);
//! buffer.extend_from_slice(b"hello world");
//! let block: Block = buffer.freeze();
//!
//! // The block is in memory once, however many ropes it is in.
//! let mut rope = Rope::from(block.slice(6..11));
//! rope.push(block.slice(5..6));
//! rope.append(Rope::from(block.slice(0..5)));
//! assert_eq!(rope.to_vec(), b"world hello");
//! assert_eq!(rope.cut(0..5).slices()[0].as_ptr(), block[6..].as_ptr());
//! ```

mod block;
mod buffer;
mod copies;
pub mod counting;
mod memory;
pub mod pool;
mod rope;
pub mod shared;

pub use block::{Block, Slice};
pub use buffer::Buffer;
pub use copies::{bytes_copied, copied};
pub use memory::{ALIGNED_MIN, ALIGNMENT};
pub use rope::Rope;
