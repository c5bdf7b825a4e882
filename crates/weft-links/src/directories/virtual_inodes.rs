//! Inodes that nobody stores: entries of views.
//!
//! Each has a number that follows from its view's and from what it shows, so that it is the same
//! one whenever it is looked for again. There are as many as somebody holds, and some more for
//! those who do not tell what they hold.

use crate::attachment::Attachment;
use crate::linked_tree::LinkedTree;
use weft_store::Ino;
use weft_tree::{Attributes, Caller, FIRST_VIRTUAL, Holds, Inode, Stop};

/// Those that nobody holds, at most.
const UNHELD_MAX: usize = 1 << 14;

/// The number of what `view` shows of `name`, a name or path in what it looks into.
pub(crate) fn virtual_number(view: Ino, name: &[u8]) -> Ino {
    let digest = weft_digest::digest(&[&view.0.to_le_bytes()[..], name].concat());
    let (first, _) = digest.split_first_chunk().expect("a digest is longer");
    Ino(FIRST_VIRTUAL | u64::from_le_bytes(*first) >> 3)
}

/// The same of a symbolic link, which is another inode when it may say something else: the kernel
/// keeps what one says, and whoever holds one is told its attributes. `version` tells which it is.
pub(crate) fn symlink_number(view: Ino, name: &[u8], version: &[u8]) -> Ino {
    // No entry is called so.
    virtual_number(view, &[name, b"\0", version].concat())
}

impl LinkedTree<'_> {
    /// Puts `inode` where others are, unless one is there that is the same.
    pub(crate) fn put_virtual(&mut self, inode: Inode) {
        let ino = inode.row.ino;
        let is_like = |known: &Inode| {
            let shows = match (Attachment::shows(known), Attachment::shows(&inode)) {
                (Some(known), Some(shows)) => known.is_like(shows),
                (None, None) => true,
                _ => false,
            };
            shows && known.row == inode.row
        };
        if !self.tree.inodes.peek(&ino).is_some_and(is_like) {
            self.links.members.remove(&ino);
            self.tree.inodes.insert(ino, Box::new(inode));
        }
    }

    /// Attributes of `ino`, for `caller`, who may hold it now.
    pub(crate) fn give_virtual(&mut self, caller: Caller, ino: Ino) -> Result<Attributes, Stop> {
        let is_told = caller.holds == Holds::Counted;
        let attributes = if is_told { self.attributes(ino) } else { self.attributes_measured(ino) }?;
        self.tree.hold_by(caller, ino);
        if caller.holds == Holds::None {
            self.unheld(ino);
        }
        Ok(attributes)
    }

    /// Nobody holds `ino` any more: what was pushed and is popped goes, what a view shows may be
    /// looked for again.
    pub(crate) fn let_go(&mut self, ino: Ino) {
        if self.tree.inodes.peek(&ino).is_some_and(Attachment::is_pushed) {
            self.tree.inodes.remove(&ino);
        } else {
            self.unheld(ino);
        }
    }

    /// Notes that nobody holds `ino`, and forgets others like it if there are too many.
    pub(crate) fn unheld(&mut self, ino: Ino) {
        if self.tree.inodes.peek(&ino).is_none() {
            return;
        }
        let unheld = &mut self.links.unheld;
        if unheld.members.insert(ino) {
            unheld.order.push_back(ino);
        }
        while unheld.order.len() > UNHELD_MAX {
            let Some(oldest) = unheld.order.pop_front() else { return };
            unheld.members.remove(&oldest);
            if !self.tree.holds.contains_key(&oldest) {
                self.links.members.remove(&oldest);
                self.tree.inodes.remove(&oldest);
            }
        }
    }
}
