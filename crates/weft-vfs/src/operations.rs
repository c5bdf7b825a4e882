//! The operations, by subject. Each checks what POSIX demands, decides all that is to be decided (numbers,
//! times, owners) and performs one mutation.

mod attributes;
mod content;
mod digests;
mod directories;
mod entries;
mod reading;
mod xattrs;

pub use digests::{ListedEntry, decode};
pub(crate) use entries::{SYMLINK, check_target};
pub use xattrs::{DIGEST, DIGEST_ENTRIES, LINK, LISTED_DIGEST};
