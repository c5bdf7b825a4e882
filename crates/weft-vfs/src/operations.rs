//! The operations, by subject. Each checks what POSIX demands, decides all that is to be decided
//! (numbers, times, owners) and performs one mutation.

mod attributes;
mod content;
mod control;
mod counts;
mod digests;
mod directories;
mod entries;
mod history;
mod reading;
mod sharing;
mod telling;
mod xattrs;

pub use control::{Nonce, Nonces};
pub use counts::COUNTS_BYTES;
pub(crate) use counts::CountsCache;
pub use digests::{ListedEntry, decode};
pub(crate) use entries::{SYMLINK, check_target};
pub use sharing::SharedPart;
