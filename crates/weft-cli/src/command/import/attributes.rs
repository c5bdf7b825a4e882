//! Owner, mode, extended attributes and times of imported files.

use super::super::transfer::What;
use super::Importer;
use crate::proc_path::proc_path;
use rustix::fd::AsFd;
use rustix::fs::{FileType, Stat};
use rustix::io::Errno;
use std::path::PathBuf;
use weft_vfs::{Ino, SetAttributes, SetTime, SetXattr, Timestamp};

/// Most bytes of an extended attribute, or of all their names (xattr(7)).
const XATTR_BYTES_MAX: usize = 64 << 10;

/// Returns the time of access that a volume keeps of a file: the nearest that it can hold.
fn atime_kept(stat: &Stat) -> Timestamp {
    Timestamp::from_parts(stat.st_atime, u32::try_from(stat.st_atime_nsec).unwrap_or(0))
}

/// Returns the time of modification that a volume keeps of a file: the nearest that it can hold.
pub(super) fn mtime_kept(stat: &Stat) -> Timestamp {
    Timestamp::from_parts(stat.st_mtime, u32::try_from(stat.st_mtime_nsec).unwrap_or(0))
}

impl Importer<'_> {
    /// Gives inode `ino` the attributes of the file behind `fd`; those that cannot be given are
    /// named.
    ///
    /// Owner and mode, then extended attributes, since a new owner takes a program's capabilities
    /// away; times last, since all the others move them.
    pub(super) fn attributes(&self, fd: &impl AsFd, path: &dyn Fn() -> PathBuf, ino: Ino, stat: &Stat) {
        let set = |what, changes| {
            if let Err(error) = self.vfs.set_attributes(ino, changes) {
                self.transfer.fail_with(what, &path(), "cannot import its attributes", &error.into());
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
        let (atime, mtime) = (atime_kept(stat), mtime_kept(stat));
        if atime.parts().0 != stat.st_atime || mtime.parts().0 != stat.st_mtime {
            self.transfer.times_not_kept(&path());
        }
        let [atime, mtime] = [atime, mtime].map(|time| Some(SetTime::To(time)));
        set(What::Attribute, SetAttributes { atime, mtime, ..SetAttributes::default() });
    }

    fn xattrs(&self, source: &str, path: &dyn Fn() -> PathBuf, ino: Ino) {
        let failed = |why: &str| self.transfer.fail(What::Attribute, &path(), why);
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
