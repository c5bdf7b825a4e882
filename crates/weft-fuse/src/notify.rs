//! Notices to the kernel about changes that its caches would miss.

use std::fs::File;
use std::sync::Arc;
use weft_vfs::Ino;

/// `FUSE_NOTIFY_INVAL_INODE`.
const INVALIDATE_INODE: i32 = 2;

/// Sends notices for one mount.
pub(crate) struct Notifier {
    device: Arc<File>,
}

impl Notifier {
    /// Sends over `device`.
    pub(crate) fn new(device: Arc<File>) -> Notifier {
        Notifier { device }
    }

    /// The kernel must ask for the attributes of `ino` again. Its cached data stays.
    pub(crate) fn attributes_changed(&self, ino: Ino) {
        let mut notice = Vec::with_capacity(40);
        notice.extend_from_slice(&40u32.to_ne_bytes());
        notice.extend_from_slice(&INVALIDATE_INODE.to_ne_bytes());
        notice.extend_from_slice(&0u64.to_ne_bytes());
        notice.extend_from_slice(&ino.0.to_ne_bytes());
        // A negative offset means the attributes alone.
        notice.extend_from_slice(&(-1i64).to_ne_bytes());
        notice.extend_from_slice(&0i64.to_ne_bytes());
        // The kernel may have forgotten the inode meanwhile: then there is nothing to tell.
        let _ = rustix::io::write(&self.device, &notice);
    }
}
