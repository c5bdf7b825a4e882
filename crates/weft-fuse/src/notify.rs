//! Notices to the kernel about changes that its caches would miss, and replies that come late.

use crate::protocol::Reply;
use rustix::io::Errno;
use std::fs::File;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use weft_vfs::{Change, Ino, Observer};

/// `FUSE_NOTIFY_INVAL_INODE`.
const INVALIDATE_INODE: i32 = 2;
/// `FUSE_NOTIFY_INVAL_ENTRY`.
const INVALIDATE_ENTRY: i32 = 3;

/// `FUSE_NOTIFY_INC_EPOCH`.
const FORGET_NAMES: i32 = 8;

/// Range of bytes that means the attributes alone.
const ATTRIBUTES: (i64, i64) = (-1, 0);
/// Range that means all content; for a directory, its list of entries.
const ALL: (i64, i64) = (0, 0);

/// Sends notices for one mount.
pub(crate) struct Notifier {
    device: Arc<File>,
    /// True if another observer reports [`all_content`].
    leaves_all: AtomicBool,
}

/// Returns the inode and range of a change that concerns all of a file, such as a file seen through
/// code that is pushed onto it. Reads of such a file may be in flight for long.
pub(crate) fn all_content(change: &Change) -> Option<(Ino, &Range<u64>)> {
    match change {
        Change::Content { ino, range } if *range == (0..u64::MAX) => Some((*ino, range)),
        _ => None,
    }
}

impl Notifier {
    /// Sends over `device`.
    pub(crate) fn new(device: Arc<File>) -> Notifier {
        Notifier { device, leaves_all: AtomicBool::new(false) }
    }

    /// Leaves reporting of [`all_content`] to another observer from now on.
    pub(crate) fn leave_all(&self) {
        self.leaves_all.store(true, Ordering::Relaxed);
    }

    /// Makes the kernel ask for the attributes of `ino` again. Its cached data stays.
    pub(crate) fn attributes_changed(&self, ino: Ino) {
        self.inode_changed(ino, ATTRIBUTES);
    }

    /// Makes the kernel ask for the attributes of `ino` and for all of its content again. Returns
    /// when the reads of it that are in flight have ended: false if the kernel does not know `ino`.
    pub(crate) fn content_changed(&self, ino: Ino) -> bool {
        self.inode_changed(ino, ALL)
    }

    /// Makes the kernel ask for the attributes of `ino` and for its content in `range` again.
    pub(crate) fn range_changed(&self, ino: Ino, range: &Range<u64>) {
        self.inode_changed(ino, signed(range));
    }

    /// Makes the kernel ask for the attributes of `ino` again, and for `len` bytes of its content
    /// from `offset` on.
    fn inode_changed(&self, ino: Ino, (offset, len): (i64, i64)) -> bool {
        let mut notice = Vec::with_capacity(24);
        notice.extend_from_slice(&ino.0.to_ne_bytes());
        notice.extend_from_slice(&offset.to_ne_bytes());
        notice.extend_from_slice(&len.to_ne_bytes());
        self.send(INVALIDATE_INODE, &notice)
    }

    /// Makes the kernel look `name` up again.
    fn entry_changed(&self, parent: Ino, name: &[u8]) {
        let mut notice = Vec::with_capacity(17 + name.len());
        notice.extend_from_slice(&parent.0.to_ne_bytes());
        notice.extend_from_slice(&u32::try_from(name.len()).expect("a name has 255 bytes at most").to_ne_bytes());
        notice.extend_from_slice(&[0; 4]);
        notice.extend_from_slice(name);
        notice.push(0);
        self.send(INVALIDATE_ENTRY, &notice);
    }

    /// Makes the kernel look up all names again, also those that were missing. Kernels older than
    /// Linux 6.16 ignore it.
    pub(crate) fn names_changed(&self) {
        self.send(FORGET_NAMES, &[]);
    }

    /// Answers request `unique`, without results; `errno` is 0 or positive.
    pub(crate) fn answer(&self, unique: u64, errno: i32) {
        let mut reply = Reply::default();
        reply.begin();
        reply.finish(unique, errno);
        // The requester may be gone.
        let _ = rustix::io::write(&self.device, reply.head());
    }

    /// Sends a notice. False if the kernel does not know what it is about.
    fn send(&self, code: i32, body: &[u8]) -> bool {
        let mut notice = Vec::with_capacity(16 + body.len());
        notice.extend_from_slice(&u32::try_from(16 + body.len()).expect("a notice is short").to_ne_bytes());
        notice.extend_from_slice(&code.to_ne_bytes());
        notice.extend_from_slice(&0u64.to_ne_bytes());
        notice.extend_from_slice(body);
        // The kernel may have forgotten the inode meanwhile: then there is nothing to tell.
        rustix::io::write(&self.device, &notice) != Err(Errno::NOENT)
    }
}

/// Returns a range as the kernel takes it: a length of 0 means all that follows.
fn signed(range: &Range<u64>) -> (i64, i64) {
    let offset = i64::try_from(range.start).unwrap_or(i64::MAX);
    (offset, i64::try_from(range.end - range.start).unwrap_or(0))
}

impl Observer for Notifier {
    fn changed(&self, change: &Change) {
        match change {
            Change::Content { range, .. } if range.is_empty() => {}
            // See `dispatch::links`.
            _ if all_content(change).is_some() && self.leaves_all.load(Ordering::Relaxed) => {}
            Change::Content { ino, range } => self.range_changed(*ino, range),
            Change::Attributes { ino } => self.attributes_changed(*ino),
            Change::Outdated { .. } | Change::Target { .. } => {}
            Change::Entry { parent, name } => {
                self.entry_changed(*parent, name.as_bytes());
                self.inode_changed(*parent, ALL);
            }
        }
    }
}
