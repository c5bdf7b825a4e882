//! Inodes that nobody stores: entries of views.
//!
//! Each has a number that follows from its view's and from what it shows, so that it is the same
//! one whenever it is looked for again. There are as many as somebody holds, and some more for
//! those who do not tell what they hold.

use crate::attributes::Attributes;
use crate::caller::{Caller, Holds};
use crate::inode::Inode;
use crate::state::State;
use crate::stop::Stop;
use weft_store::Ino;

/// Their numbers begin here.
pub(crate) const FIRST: u64 = 1 << 62;

/// Those that nobody holds, at most.
const UNHELD_MAX: usize = 1 << 14;

/// True if inode `ino` is virtual: an entry of a view, in memory alone.
pub fn is_virtual(ino: Ino) -> bool {
    ino.0 >= FIRST
}

/// The number of what `view` shows of `name`, a name or path in what it looks into.
pub(super) fn virtual_number(view: Ino, name: &[u8]) -> Ino {
    let digest = weft_digest::digest(&[&view.0.to_le_bytes()[..], name].concat());
    let (first, _) = digest.split_first_chunk().expect("a digest is longer");
    Ino(FIRST | u64::from_le_bytes(*first) >> 2)
}

/// The same of a symbolic link, which is another inode when it may say something else: the kernel
/// keeps what one says, and whoever holds one is told its attributes. `version` tells which it is.
pub(super) fn symlink_number(view: Ino, name: &[u8], version: &[u8]) -> Ino {
    // No entry is called so.
    virtual_number(view, &[name, b"\0", version].concat())
}

impl State {
    /// Puts `inode` where others are, unless one is there that is the same.
    pub(super) fn put_virtual(&mut self, inode: Inode) {
        let ino = inode.row.ino;
        let is_like = |known: &Inode| {
            let shows = match (&known.shows, &inode.shows) {
                (Some(known), Some(shows)) => known.is_like(shows),
                (None, None) => true,
                _ => false,
            };
            shows && known.row == inode.row
        };
        if !self.inodes.peek(&ino).is_some_and(is_like) {
            self.members.remove(&ino);
            self.inodes.insert(ino, Box::new(inode));
        }
    }

    /// Attributes of `ino`, for `caller`, who may hold it now.
    pub(super) fn give_virtual(&mut self, caller: Caller, ino: Ino) -> Result<Attributes, Stop> {
        let is_told = caller.holds == Holds::Counted;
        let attributes = if is_told { self.attributes(ino) } else { self.attributes_measured(ino) }?;
        self.hold(caller, ino);
        if caller.holds == Holds::None {
            self.unheld(ino);
        }
        Ok(attributes)
    }

    /// Nobody holds `ino` any more: what was pushed and is popped goes, what a view shows may be
    /// looked for again.
    pub(crate) fn let_go(&mut self, ino: Ino) {
        if self.inodes.peek(&ino).is_some_and(Inode::is_pushed) {
            self.inodes.remove(&ino);
        } else {
            self.unheld(ino);
        }
    }

    /// Notes that nobody holds `ino`, and forgets others like it if there are too many.
    pub(crate) fn unheld(&mut self, ino: Ino) {
        let Some(inode) = self.inodes.get(&ino) else { return };
        if !std::mem::replace(&mut inode.unheld, true) {
            self.unheld.push_back(ino);
        }
        while self.unheld.len() > UNHELD_MAX {
            let Some(oldest) = self.unheld.pop_front() else { return };
            if self.holds.contains_key(&oldest) {
                self.inodes.get(&oldest).into_iter().for_each(|inode| inode.unheld = false);
            } else {
                self.members.remove(&oldest);
                self.inodes.remove(&oldest);
            }
        }
    }
}
