//! Opaque inodes: the vfs knows that their content is computed, and by which layer, and no more.
//!
//! The layer lies above the vfs, and gives its two sides when it opens a volume ([`Layer`]). They
//! are two because there are two places where an operation meets an opaque inode: under the lock of
//! the state, where rows are looked at and nothing is waited for ([`OpaqueState`]), and outside of
//! it, where content is read, written and computed ([`OpaqueFiles`], [`Substitutes`], [`Results`]).
//!
//! Operations on other inodes ask the layer nothing. A mutation is told to it only while it follows
//! mutations.

mod absent;
mod held;
mod seen;

use crate::state::State;
use crate::stats::Stats;
use crate::volume::Vfs;
use std::any::Any;
use weft_attributes::Attribute;
use weft_block::Rope;
use weft_store::{Cookie, Ino};
use weft_tree::{Attributes, Caller, DirEntry, Miss, Mutation, Privileges, Result, SetAttributes, Stop, Tree, Writer};

pub(crate) use absent::Absent;
pub(crate) use held::Held;
pub(crate) use seen::Seen;

/// Both sides of a layer.
pub struct Layer {
    /// The side that is asked under the lock of the state.
    pub state: Box<dyn OpaqueState>,
    /// The side that is asked outside of it.
    pub files: Box<dyn OpaqueLayer>,
}

/// All that a layer does outside of the lock.
pub trait OpaqueLayer: OpaqueFiles + Substitutes + Results + Any + Send + Sync {
    /// Another layer with the same options, for the same volume as of another commit.
    fn another(&self) -> Layer;
}

/// Detail in which attributes of an opaque inode are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// As programs see them. A length may be left open.
    Usual,
    /// The same for readers who read no file beyond its length: it is always told.
    Measured,
    /// Without computing anything: 0 is a length that is not known.
    AtOnce,
    /// The same of an inode that was just changed, so that nothing more can be fetched.
    Changed,
    /// As they look to a user to whom the inode is closed.
    Closed,
    /// Nothing of what the inode follows from, with the permission bits of those to whom it is
    /// open.
    Guarded,
}

/// The side of a layer that is asked under the lock of the state. Nothing here takes a lock that is
/// held while another thread waits for the state.
///
/// Missing rows, lengths and names stop an operation with a [`Miss`], as in the tree.
pub trait OpaqueState: Any + Send {
    /// A request has the lock from now on. What takes long stops with [`Miss::Turn`] if the request
    /// `takes_turns`.
    fn begin(&mut self, takes_turns: bool);

    /// Attributes of opaque inode `ino`.
    fn attributes(&mut self, tree: &mut Tree, ino: Ino, detail: Detail) -> Result<Attributes, Stop>;

    /// Permission bits of opaque inode `ino`, for users whose rights no kernel checks.
    fn permission_bits(&mut self, tree: &mut Tree, ino: Ino) -> Result<u32, Stop>;

    /// Makes sure that attributes of opaque inode `ino`, which is about to be changed, can be told
    /// after that ([`Detail::Changed`]).
    fn prepare(&mut self, tree: &mut Tree, ino: Ino) -> Result<(), Stop>;

    /// True if opaque inode `ino` looks like a directory, and not like a file.
    fn is_directory(&mut self, tree: &mut Tree, ino: Ino) -> Result<bool, Stop>;

    /// `AccessDenied` unless the asker may be told of what opaque inode `ino` is made.
    fn permit_definition(&mut self, tree: &mut Tree, ino: Ino) -> Result<(), Stop>;

    /// The path of what virtual inode `ino` shows, for messages.
    fn source_path(&mut self, tree: &mut Tree, ino: Ino) -> Result<Option<Vec<u8>>, Stop>;

    /// Nobody holds virtual inode `ino` any more.
    fn released(&mut self, tree: &mut Tree, ino: Ino);

    /// Somebody wants to hear of opaque inodes that are outdated ([`OpaqueState::take_outdated`]).
    fn observed(&mut self);

    /// Opens and closes are reported from now on.
    fn told_of_opens(&mut self);

    /// True if mutations and deletions are to be told. Asked again after each use.
    fn follows(&self) -> bool;

    /// `mutation` is about to be performed.
    fn before(&mut self, tree: &Tree, mutation: &Mutation<'_>);

    /// `mutation` was performed; it is the last operation.
    fn performed(&mut self, tree: &Tree, mutation: &Mutation<'_>);

    /// Inode `ino` is deleted.
    fn deleted(&mut self, ino: Ino);

    /// Opaque inodes that may give something else than they told.
    fn take_outdated(&mut self) -> Vec<Ino>;

    /// Bytes of memory that it takes, beside what is kept with inodes.
    fn weight(&self) -> usize;
}

/// A turn of a request that holds the lock for long, until it is dropped.
pub trait Turn {
    /// The lock is held from now on.
    fn begin(&mut self);
}

/// Operations on opaque inodes, without the lock.
pub trait OpaqueFiles {
    /// As [`Vfs::lookup`], in an opaque inode that may look like a directory.
    fn lookup(&self, vfs: &Vfs, caller: Caller, parent: Ino, name: &[u8]) -> Result<Attributes>;

    /// As [`Vfs::read_directory`].
    fn list(&self, vfs: &Vfs, ino: Ino, after: Cookie, limit: usize) -> Result<Vec<DirEntry>>;

    /// As [`Vfs::read`].
    fn read(&self, vfs: &Vfs, ino: Ino, offset: u64, len: usize) -> Result<Rope>;

    /// As [`Vfs::write`].
    fn write(&self, vfs: &Vfs, ino: Ino, offset: u64, data: &[u8], writer: Writer) -> Result<Privileges>;

    /// `AccessDenied` if `ino` cannot be written by those of whom nobody tells when they open and
    /// close it.
    fn permit_unopened(&self, vfs: &Vfs, ino: Ino) -> Result<()>;

    /// As [`Vfs::set_attributes`], with the size of an opaque inode.
    fn set_attributes(&self, vfs: &Vfs, ino: Ino, changes: SetAttributes) -> Result<Attributes>;

    /// The value of `attribute` of `ino`, which tells of what it is computed from or kept.
    fn attribute(&self, vfs: &Vfs, ino: Ino, attribute: Attribute<'_>) -> Result<Option<Vec<u8>>>;

    /// Fetches what the layer's side under the lock has stopped for ([`Miss::Length`],
    /// [`Miss::Shown`]).
    fn fetch(&self, vfs: &Vfs, miss: &Miss) -> Result<()>;

    /// Waits until the asker may hold the lock for long ([`Miss::Turn`]). `Busy`, `Interrupted`,
    /// `WouldBlock`.
    fn take_turn<'a>(&'a self, vfs: &'a Vfs) -> Result<Box<dyn Turn + 'a>>;
}

/// Opaque inodes that programs see in the place of files. The vfs asks only while there are any
/// ([`Vfs::more_substitutes`]).
pub trait Substitutes {
    /// The inode that users see in the place of file `ino`: those who have it open as `number`, or
    /// everybody.
    fn seen(&self, ino: Ino, number: Option<u64>) -> Ino;

    /// The file in whose place everybody sees opaque inode `ino`, if it is one of those.
    fn seen_in_place_of(&self, ino: Ino) -> Option<Ino>;

    /// Makes sure that `ino` can get `owner`: this thread may wait, and nobody is writing what
    /// would go then (`NotSynchronized`).
    fn prepare_owner(&self, vfs: &Vfs, ino: Ino, owner: u32) -> Result<()>;

    /// The owner of `ino` is `owner` now.
    fn owner_changed(&self, vfs: &Vfs, ino: Ino, owner: u32);

    /// A hold of `ino` was given back: it may be gone.
    fn released(&self, vfs: &Vfs, ino: Ino);
}

/// Results that a layer keeps, while the volume is mounted and beyond.
pub trait Results {
    /// Takes file `ino`, which has no name, if an earlier mount kept a result in it. Called while
    /// the volume is opened.
    fn adopt(&self, vfs: &Vfs, ino: Ino) -> bool;

    /// True if file `ino`, which has no name, is to be there for the next mount.
    fn keeps(&self, vfs: &Vfs, ino: Ino) -> Result<bool>;

    /// Bytes of results.
    fn bytes(&self) -> u64;

    /// Gives up all results, so that their space is free. True if there were any.
    fn clear(&self) -> bool;

    /// A commit has ended, well or badly.
    fn committed(&self, vfs: &Vfs);

    /// Ends what computes in the background, because the volume is about to be closed.
    fn stop(&self);

    /// Stores what programs have written, because the volume is about to be closed.
    fn store(&self, vfs: &Vfs);

    /// Keeps what is complete as it is, and forgets the rest, because changes are refused from now
    /// on or the volume is closed. What results follow from is to be committed before.
    fn end(&self, vfs: &Vfs);

    /// Adds its counters.
    fn count(&self, stats: &mut Stats);
}

impl Layer {
    /// A layer that computes nothing: opaque inodes are files that nobody may use.
    pub fn absent() -> Layer {
        Layer { state: Box::new(Absent), files: Box::new(Absent) }
    }
}

impl Vfs {
    /// The layer's side outside of the lock, if that is an `L`. The one place where somebody gets
    /// back what the volume was opened with.
    pub fn layer<L: OpaqueLayer>(&self) -> Option<&L> {
        let layer: &dyn Any = &*self.opaque;
        layer.downcast_ref()
    }
}

impl State {
    /// The layer's side under the lock, if that is an `S`, and the tree.
    pub fn layer<S: OpaqueState>(&mut self) -> Option<(&mut S, &mut Tree)> {
        let layer: &mut dyn Any = self.opaque.layer();
        Some((layer.downcast_mut()?, &mut self.tree))
    }
}
