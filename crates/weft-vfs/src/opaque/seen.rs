//! Files as programs see them: themselves, or opaque inodes in their places. Ways in ask; whoever
//! names a file within the volume (digests, other ways in) means the file itself.

use super::Detail;
use crate::volume::Vfs;
use std::sync::atomic::{AtomicUsize, Ordering};
use weft_store::Ino;
use weft_tree::{Attributes, ErrorKind, Result, is_virtual};

/// Files that are seen as something else, so that nobody is asked as long as there are none.
#[derive(Default)]
pub(crate) struct Seen {
    substitutes: AtomicUsize,
}

impl Vfs {
    /// Notes that one more file has a substitute, for some who use it.
    pub fn more_substitutes(&self) {
        self.seen.substitutes.fetch_add(1, Ordering::Release);
    }

    /// Notes that one file fewer has.
    pub fn fewer_substitutes(&self) {
        self.seen.substitutes.fetch_sub(1, Ordering::Release);
    }

    /// True if any file has a substitute.
    pub fn has_substitutes(&self) -> bool {
        self.seen.substitutes.load(Ordering::Acquire) > 0
    }

    /// Returns the inode that users see in place of file `ino`: those who have it open as `number`,
    /// or everybody.
    pub fn seen(&self, ino: Ino, number: Option<u64>) -> Ino {
        if self.has_substitutes() { self.opaque.seen(ino, number) } else { ino }
    }

    /// The file in whose place everybody sees `ino`, or `ino`.
    pub(crate) fn seen_in_place_of(&self, ino: Ino) -> Ino {
        let may_be = is_virtual(ino) && self.has_substitutes();
        may_be.then(|| self.opaque.seen_in_place_of(ino)).flatten().unwrap_or(ino)
    }

    /// `attributes` of a file as everybody sees it. `WouldBlock`.
    pub fn seen_attributes(&self, attributes: Attributes) -> Result<Attributes> {
        let seen = self.seen(attributes.ino, None);
        if seen == attributes.ino {
            return Ok(attributes);
        }
        match self.attributes(seen) {
            Ok(as_seen) => Ok(as_everybody(attributes, &as_seen)),
            // It has no substitute any more.
            Err(error) if error.kind() == ErrorKind::Stale => Ok(attributes),
            Err(error) => Err(error),
        }
    }

    /// The same of one of which it is enough to tell at once what is known: its length is 0 until
    /// somebody asks for it.
    pub fn seen_roughly(&self, attributes: Attributes) -> Attributes {
        let seen = self.seen(attributes.ino, None);
        if seen == attributes.ino {
            return attributes;
        }
        let as_seen = self.state.lock().attributes_in(seen, Detail::AtOnce);
        as_everybody(attributes, &as_seen.unwrap_or(Attributes { size: 0, ..attributes }))
    }
}

/// Returns the attributes of a file as everybody sees it, by a substitute with the attributes
/// `seen`.
fn as_everybody(file: Attributes, seen: &Attributes) -> Attributes {
    let permissions = file.permissions & (seen.permissions | 0o7000);
    // The substitute may go at any time.
    Attributes {
        size: seen.size,
        allocated: seen.allocated,
        permissions,
        computed: Some(0),
        mtime: file.mtime.max(seen.mtime),
        ..file
    }
}
