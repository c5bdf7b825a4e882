//! Owner, mode, extended attributes and times of what was imported.

use super::super::transfer::{What, proc_path};
use super::Importer;
use rustix::fd::AsFd;
use rustix::fs::{FileType, Stat};
use rustix::io::Errno;
use std::path::Path;
use weft_vfs::{Ino, SetAttributes, SetTime, SetXattr, Timestamp};

/// Most bytes of an extended attribute, or of all their names (xattr(7)).
const XATTR_BYTES_MAX: usize = 64 << 10;

impl Importer<'_> {
    /// Gives inode `ino` those of what `fd` stands for; what cannot be given is named.
    ///
    /// Owner and mode, then extended attributes, since a new owner takes a program's capabilities
    /// away; times last, since all the others move them.
    pub(super) fn attributes(&self, fd: &impl AsFd, path: &Path, ino: Ino, stat: &Stat) {
        let set = |what, changes| {
            if let Err(error) = self.vfs.set_attributes(ino, changes) {
                self.transfer.fail_with(what, path, "cannot import its attributes", &error.into());
            }
        };
        let is_link = FileType::from_raw_mode(stat.st_mode) == FileType::Symlink;
        let owner = SetAttributes {
            permissions: (!is_link).then_some(stat.st_mode & 0o7777),
            uid: Some(stat.st_uid),
            gid: Some(stat.st_gid),
            ..SetAttributes::default()
        };
        set(What::Owner, owner);
        self.xattrs(&proc_path(fd), path, ino);
        let time = |seconds: i64, nanoseconds: u64| {
            SetTime::To(Timestamp::from_parts(seconds, u32::try_from(nanoseconds).unwrap_or(0)))
        };
        let times = SetAttributes {
            atime: Some(time(stat.st_atime, stat.st_atime_nsec)),
            mtime: Some(time(stat.st_mtime, stat.st_mtime_nsec)),
            ..SetAttributes::default()
        };
        set(What::Attribute, times);
    }

    fn xattrs(&self, source: &str, path: &Path, ino: Ino) {
        let failed = |why: &str| self.transfer.fail(What::Attribute, path, why);
        let mut names = vec![0; XATTR_BYTES_MAX];
        let len = match rustix::fs::listxattr(source, &mut names[..]) {
            Err(Errno::OPNOTSUPP) => return,
            Err(error) => return failed(&format!("its attributes cannot be read: {error}")),
            Ok(len) => len,
        };
        let mut value = vec![0; if len > 0 { XATTR_BYTES_MAX } else { 0 }];
        for name in names[..len].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
            let shown = String::from_utf8_lossy(name);
            let len = match rustix::fs::getxattr(source, name, &mut value[..]) {
                Ok(len) => len,
                Err(error) => {
                    failed(&format!("attribute {shown} cannot be read: {error}"));
                    continue;
                }
            };
            if let Err(error) = self.vfs.set_xattr(ino, name, &value[..len], SetXattr::Any, false) {
                failed(&format!("attribute {shown} cannot be kept: {error}"));
            }
        }
    }
}
