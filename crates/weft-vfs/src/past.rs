//! Paths into the past: `DIR/.weft/at/MOMENT/…`, in a volume that keeps history.
//!
//! Directory `.weft` is in every directory, hidden from listings, unless the directory has an entry
//! of that name. `at` in it lists the snapshots, and finds every [`weft_store::Moment`]. `@N` is a
//! directory: what the directory that `.weft` is in was as of commit N, wherever it lay then. All
//! other moments are symbolic links to an `@N`.
//!
//! What lies below `@N` is a volume of its own, opened read-only as of commit N ([`views`]). Its
//! inodes are known to the ways in by numbers that no inode of the present has ([`numbers`]); each
//! operation on such a number goes to that volume ([`reading`]), and its attributes come back with
//! a number like it. Rights are those of then, as far as they hold now ([`rights`]). Nothing here
//! is ever changed.

mod entering;
mod node;
mod numbers;
mod reading;
mod rights;
mod views;

use crate::volume::Vfs;
use numbers::Numbers;
use parking_lot::RwLock;
use rights::PresentRights;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use views::{View, Views};
use weft_store::{HistoryFor, Ino, Kind, Name, Store};
use weft_tree::{Attributes, ErrorKind, Result};

pub use entering::MomentError;
pub use node::{PAST_NODE_BYTES, PastInode, PastNode};

/// Time for which a protocol may keep what it was told of a node of the past.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lasting {
    /// For this once: the next one may find something else.
    Once,
    /// As long as it likes: it is told if that changes.
    Ever,
}

/// Answer to a name that stands for different commits as time passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MovingName {
    /// A symbolic link to the commit's directory, which is another one each time.
    Symlink,
    /// The commit's directory itself, for clients that keep what a symbolic link says.
    Directory,
}

/// Past nodes of a volume, as its ways in know them.
pub(crate) struct Past {
    /// Name of the directory in each directory; none if there is none.
    name: Option<Name>,
    /// Those who may read the past; none while no history is kept.
    readers: RwLock<Option<HistoryFor>>,
    numbers: Numbers,
    pub(crate) views: Views,
    rights: PresentRights,
    /// True if files look as if nobody may write them.
    hides_write: AtomicBool,
}

/// A node of the past, with what it takes to answer for it.
pub(crate) enum Found {
    /// A directory or a symbolic link on the way to a commit.
    Made(PastNode),
    /// An inode as of a commit.
    Inode(Arc<View>, PastInode),
}

impl Past {
    pub(crate) fn new(store: &dyn Store, uuid: [u8; 16], name: Option<Name>) -> Result<Past> {
        let readers = store.history()?.map(|history| history.readers);
        Ok(Past {
            name,
            readers: RwLock::new(readers),
            numbers: Numbers::new(uuid),
            views: Views::default(),
            rights: PresentRights::default(),
            hides_write: AtomicBool::new(false),
        })
    }

    /// True while history is kept.
    pub(crate) fn is_kept(&self) -> bool {
        self.readers.read().is_some()
    }

    /// The name that leads to the past, while history is kept.
    pub(crate) fn reserved_name(&self) -> Option<Name> {
        self.name.clone().filter(|_| self.is_kept())
    }

    /// True if `name` leads to the past where no entry has it.
    pub(crate) fn is_named(&self, name: &[u8]) -> bool {
        self.name.as_ref().is_some_and(|own| own.as_bytes() == name) && self.is_kept()
    }
}

impl Vfs {
    /// The node that number `ino` stands for. `Stale` if nothing is known by it, or the commit is
    /// not kept any more.
    pub(crate) fn find_past(&self, ino: Ino) -> Result<Found> {
        match self.past.numbers.node(ino).ok_or(ErrorKind::Stale)? {
            PastNode::Inode(inode) => match (self.view(inode.commit), self.past.numbers.other(ino)) {
                (Err(error), Some(PastNode::Inode(other))) if error.kind() == ErrorKind::Stale => {
                    Ok(Found::Inode(self.view(other.commit)?, other))
                }
                (view, _) => Ok(Found::Inode(view?, inode)),
            },
            made => Ok(Found::Made(made)),
        }
    }

    /// Returns the node that number `ino` stands for. None if nothing is known by it.
    pub fn node_of_past(&self, ino: Ino) -> Option<PastNode> {
        self.past.numbers.node(ino)
    }

    /// Returns the number of `node`, which a client remembered: it may be asked about again.
    pub fn number_of_past(&self, node: PastNode) -> Result<Ino> {
        self.number_of(node, crate::Holds::None)
    }

    /// Shows files of the past as if nobody may write them: for a way in whose client opens files
    /// by itself, and keeps for all what one stores to a mapping, though it cannot be written.
    pub fn hide_write_in_past(&self) {
        self.past.hides_write.store(true, Ordering::Relaxed);
    }

    /// True if permissions to write are hidden of past inodes of this `kind`.
    fn hides_write(&self, kind: Kind) -> bool {
        kind == Kind::File && self.past.hides_write.load(Ordering::Relaxed)
    }

    /// `attributes` of a past inode as they are shown.
    fn as_shown(&self, attributes: Attributes) -> Attributes {
        let hidden = if self.hides_write(attributes.kind) { 0o222 } else { 0 };
        Attributes { permissions: attributes.permissions & !hidden, ..attributes }
    }

    /// Bytes of past inode `ino` were stored to where a client keeps them, and cannot be written:
    /// it has to ask for them anew.
    pub fn past_was_stored_to(&self, ino: Ino) {
        self.announce_to_all([crate::Change::Content { ino, range: 0..u64::MAX }]);
    }

    /// True unless `ino` is a directory through which the past of a directory was entered that did
    /// not lie below `top` then: directories move.
    pub fn past_lies_within(&self, ino: Ino, top: Ino) -> Result<bool> {
        match self.past.numbers.node(ino) {
            Some(PastNode::Inode(inode)) if inode.ino == inode.top && top != Ino::ROOT => {
                let view = self.view(inode.commit)?;
                view.vfs.run(|state| state.tree.is_within(inode.ino, top))
            }
            _ => Ok(true),
        }
    }

    /// Time for which what was told of `ino`, a number of the past, may be kept.
    pub fn lasting(&self, ino: Ino) -> Lasting {
        match self.past.numbers.node(ino) {
            Some(PastNode::Inode(inode)) if inode.ino != inode.top => Lasting::Ever,
            _ => Lasting::Once,
        }
    }

    /// True if `name` leads to the past once history is kept, or does now.
    pub fn may_lead_to_past(&self, name: &[u8]) -> bool {
        self.past.name.as_ref().is_some_and(|own| own.as_bytes() == name)
    }

    /// What is kept of the past, or for whom, has changed.
    pub(crate) fn history_changed(&self) -> Result<()> {
        let readers = self.store.history()?.map(|history| history.readers);
        *self.past.readers.write() = readers;
        self.state.lock().reserved = self.past.reserved_name();
        self.past.views.clear();
        // Whoever keeps attributes keeps rights that may not hold any more.
        let numbers = self.past.numbers.all();
        self.announce_to_all(numbers.into_iter().map(|ino| crate::Change::Attributes { ino }));
        Ok(())
    }
}
