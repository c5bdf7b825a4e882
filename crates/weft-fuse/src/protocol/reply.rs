//! Replies: a header, small results, and data as a rope that is not copied.

use std::time::Duration;
use weft_block::Rope;
use weft_vfs::Attributes;

/// Times for which the kernel may cache what it knows of an inode.
#[derive(Clone, Copy)]
pub(crate) struct Valid {
    /// Time for its name.
    pub(crate) entry: Duration,
    /// Time for its attributes.
    pub(crate) attributes: Duration,
}

/// Bytes of `struct fuse_out_header`.
const HEADER_BYTES: usize = 16;

/// Attributes of an inode that a file system reports (linux/stat.h).
const STATX_BASIC_STATS: u32 = 0x7ff;
const STATX_BTIME: u32 = 0x800;

/// A reply being made. Reused from request to request, so that small ones allocate nothing.
#[derive(Default)]
pub(crate) struct Reply {
    bytes: Vec<u8>,
    data: Rope,
    wanted: bool,
}

impl Reply {
    /// Begins the reply to a request.
    pub(crate) fn begin(&mut self) {
        self.bytes.clear();
        self.bytes.resize(HEADER_BYTES, 0);
        self.data = Rope::new();
        self.wanted = true;
    }

    /// Drops the reply: none is sent.
    pub(crate) fn cancel(&mut self) {
        self.wanted = false;
    }

    /// True if there is a reply to send.
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted
    }

    /// Fills in the header; `errno` is 0 or positive.
    pub(crate) fn finish(&mut self, unique: u64, errno: i32) {
        if errno != 0 {
            self.bytes.truncate(HEADER_BYTES);
            self.data = Rope::new();
        }
        let len = u32::try_from(self.bytes.len() + self.data.len()).expect("a reply is far below 4 GiB");
        self.bytes[..4].copy_from_slice(&len.to_ne_bytes());
        self.bytes[4..8].copy_from_slice(&(-errno).to_ne_bytes());
        self.bytes[8..16].copy_from_slice(&unique.to_ne_bytes());
    }

    /// The header and the small results.
    pub(crate) fn head(&self) -> &[u8] {
        &self.bytes
    }

    /// The data after them.
    pub(crate) fn data(&self) -> &Rope {
        &self.data
    }

    /// Bytes of results so far, without the header.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() - HEADER_BYTES
    }

    /// Takes back results past `len` bytes.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.bytes.truncate(HEADER_BYTES + len);
    }

    pub(crate) fn u16(&mut self, value: u16) {
        self.bytes.extend_from_slice(&value.to_ne_bytes());
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.bytes.extend_from_slice(&value.to_ne_bytes());
    }

    pub(crate) fn u64(&mut self, value: u64) {
        self.bytes.extend_from_slice(&value.to_ne_bytes());
    }

    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Sets the data that follows the small results.
    pub(crate) fn set_data(&mut self, data: Rope) {
        self.data = data;
    }

    /// `struct fuse_attr`.
    fn attributes(&mut self, a: &Attributes) {
        let (atime, mtime, ctime) = (a.atime.parts(), a.mtime.parts(), a.ctime.parts());
        for value in [a.ino.0, a.size, a.allocated.div_ceil(512)] {
            self.u64(value);
        }
        for (seconds, _) in [atime, mtime, ctime] {
            self.u64(seconds.cast_unsigned());
        }
        for (_, nanoseconds) in [atime, mtime, ctime] {
            self.u32(nanoseconds);
        }
        for value in [a.kind.mode_bits() | a.permissions, a.nlink, a.uid, a.gid, a.rdev, 4096, 0] {
            self.u32(value);
        }
    }

    /// `struct fuse_attr_out`.
    pub(crate) fn attr_out(&mut self, attributes: &Attributes, valid: Duration) {
        self.u64(valid.as_secs());
        self.u32(valid.subsec_nanos());
        self.u32(0);
        self.attributes(attributes);
    }

    /// `struct fuse_statx_out`.
    pub(crate) fn statx_out(&mut self, a: &Attributes, valid: Duration) {
        self.u64(valid.as_secs());
        self.u32(valid.subsec_nanos());
        self.u32(0);
        self.raw(&[0; 16]);
        self.u32(STATX_BASIC_STATS | STATX_BTIME);
        self.u32(4096);
        self.u64(0);
        for value in [a.nlink, a.uid, a.gid] {
            self.u32(value);
        }
        self.u16(u16::try_from(a.kind.mode_bits() | a.permissions).expect("type and permission bits"));
        self.u16(0);
        for value in [a.ino.0, a.size, a.allocated.div_ceil(512), 0] {
            self.u64(value);
        }
        for time in [a.atime, a.btime, a.ctime, a.mtime] {
            let (seconds, nanoseconds) = time.parts();
            self.u64(seconds.cast_unsigned());
            self.u32(nanoseconds);
            self.u32(0);
        }
        // Linux `new_encode_dev()`.
        let (major, minor) = (a.rdev >> 8 & 0xfff, a.rdev & 0xff | a.rdev >> 12 & 0xf_ff00);
        for value in [major, minor, 0, 0] {
            self.u32(value);
        }
        self.raw(&[0; 112]);
    }

    /// `struct fuse_entry_out`, of node `node`.
    pub(crate) fn entry_out(&mut self, node: u64, attributes: &Attributes, valid: Valid) {
        self.u64(node);
        self.u64(u64::from(attributes.generation));
        self.u64(valid.entry.as_secs());
        self.u64(valid.attributes.as_secs());
        self.u32(valid.entry.subsec_nanos());
        self.u32(valid.attributes.subsec_nanos());
        self.attributes(attributes);
    }

    /// `struct fuse_entry_out` that names nothing, for `valid`.
    pub(crate) fn no_entry(&mut self, valid: Duration) {
        self.u64(0);
        self.u64(0);
        self.u64(valid.as_secs());
        self.u64(0);
        self.u32(valid.subsec_nanos());
        self.u32(0);
        self.bytes.resize(self.bytes.len() + 88, 0);
    }

    /// `struct fuse_dirent`, padded to 8 bytes.
    pub(crate) fn dirent(&mut self, ino: u64, next: u64, mode: u32, name: &[u8]) {
        self.u64(ino);
        self.u64(next);
        self.u32(u32::try_from(name.len()).expect("a name has at most 255 bytes"));
        self.u32(mode >> 12);
        self.raw(name);
        let padded = self.bytes.len().next_multiple_of(8);
        self.bytes.resize(padded, 0);
    }
}
