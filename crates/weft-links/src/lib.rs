//! Transformation links: entries whose content is what a network of stages makes of other files.
//!
//! To its users a link is a regular file. Its row holds its [`LinkDefinition`] where a symbolic
//! link has its target. What it leads to is looked at anew by each operation (`resolving`): that
//! gives its times, its rights, and a *version* that is another one as soon as the content may be.
//! Links that keep each byte in its place are read and written by what lies at the same place of
//! their target. Of others, the results are computed from the beginning on and kept, by version, as
//! blocks of a file without a name, and beyond the mount by digests (`results`).
//!
//! Rights: those of a link are at most those of its targets and of the directories on the way to
//! them, so that nobody reads through a link what could not be read without it; and nothing of its
//! targets is told to those who could not read them (`resolving::reach`).
//!
//! This crate is a layer above the vfs, which knows of links only that their inodes are opaque
//! ([`weft_vfs::opaque`]): [`open`] opens a volume with it, [`WithLinks`] gives what links add to a
//! volume.

mod attachment;
mod definition;
mod directories;
mod layer;
mod linked_tree;
mod options;
mod pushed;
mod resolving;
mod results;
mod state;
mod writing;

pub use definition::{LinkDefinition, LinkError, LinkOrder, MADE_AS, ViewKind};
pub use layer::{Links, WithLinks, open};
pub use options::{Exported, Keys, LinkOptions, LinkOwners};
pub use pushed::{Pushed, Scope};
pub use resolving::is_for_everybody;
pub use results::{Lane, Memo, looking, set_lane};
pub use writing::Opening;

/// Version of a link's content: a hash of its network and of the last changes of its targets.
pub(crate) type Version = weft_digest::Digest;
