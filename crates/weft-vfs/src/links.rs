//! Transformation links: entries whose content is what a network of stages makes of other files.
//!
//! To whoever uses it a link is a regular file. Its row holds its [`LinkDefinition`] where a
//! symbolic link has its target. What it leads to is looked at anew by each operation
//! ([`resolve`]): that gives its times, its rights, and a [`Version`] that is another one as soon
//! as the content may be. Links that keep each byte in its place are read and written by what lies
//! at the same place of their target. Of others, the results are computed from the beginning on and
//! kept, by version, as blocks of a file without a name ([`view`], [`views`]), and beyond the mount
//! by digests ([`memo`]).
//!
//! Rights: those of a link are at most those of its targets and of the directories on the way to
//! them, so that nobody reads through a link what could not be read without it; and nothing of its
//! targets is told to those who could not read them ([`reach`]).

mod attachment;
mod causes;
mod compiled;
mod definition;
mod drafts;
mod entry;
mod folder;
mod itself;
mod led;
mod ledger;
mod members;
mod memo;
mod opening;
mod places;
mod pushed;
mod reach;
mod reading;
mod rename;
mod resolve;
mod shown;
mod sources;
mod state;
mod steps;
mod turns;
mod view;
mod views;
mod virtual_inodes;
mod watch;
mod writing;

pub use definition::{LinkDefinition, LinkError, LinkOrder, ViewKind};
use drafts::Drafts;
pub(crate) use folder::Renamed;
use members::Archives;
pub(crate) use members::Indexes;
pub use memo::Memo;
pub use opening::Opening;
pub(crate) use places::PlacesAhead;
pub(crate) use pushed::Stacks;
pub use pushed::{Pushed, Scope};
use shown::Shown;
pub(crate) use state::LinkState;
pub(crate) use turns::{Turn, Turns};
pub(crate) use views::Views;
use watch::Watches;

/// Version of a link's content: a hash of its network and of the last changes of its targets.
pub(crate) type Version = weft_digest::Digest;
