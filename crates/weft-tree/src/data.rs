//! The content of files in memory: what is stored where, and what was written since the last
//! commit.

mod file;
mod layout;
mod pieces;
mod ranges;
mod stored;

pub(crate) use file::DirtyBlock;
pub use file::{Base, FileData};
pub use layout::{Layout, Leaf, NewPart, PartsLayout, Split, extents_needed};
pub(crate) use layout::{Written, merged};
pub use pieces::{Frozen, Pieces};
pub use ranges::Ranges;
pub use stored::{Part, Stored};
