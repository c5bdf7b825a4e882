//! Owner, mode, extended attributes and times of exported files.

use super::super::transfer::{Directory, What};
use super::Exporter;
use crate::proc_path::proc_path;
use rustix::fd::AsFd;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, Timespec, Timestamps, XattrFlags};
use rustix::io::Errno;
use std::path::PathBuf;
use weft_vfs::{Attributes, Kind, Name};

/// Sets them on the file behind `fd`; attributes that cannot be set are named.
///
/// The owner first, since a new one takes rights away; times last, since all the others move them.
pub fn set(export: &Exporter<'_>, fd: &impl AsFd, path: &dyn Fn() -> PathBuf, attributes: &Attributes) {
    let target = &proc_path(fd);
    let transfer = export.transfer;
    let mut permissions = attributes.permissions;
    let names = export.vfs.xattr_names(attributes.ino);
    if names.is_err() {
        // An unreadable attribute may be its ACL, without which its group would get more rights.
        permissions &= !0o077;
    }
    if let Some(claims) = export.claims {
        permissions = claims.permissions(permissions, attributes, transfer, &path());
    }
    let owner = (rustix::fs::Uid::from_raw(attributes.uid), rustix::fs::Gid::from_raw(attributes.gid));
    if let Err(error) = rustix::fs::chownat(CWD, target, Some(owner.0), Some(owner.1), AtFlags::empty()) {
        // Nobody gets another's set-user-id program as their own.
        permissions &= 0o1777;
        // Only root gives files away; an ordinary user gets what they may have.
        match error == Errno::PERM && !rustix::process::geteuid().is_root() {
            true => transfer.owner_not_kept(),
            false => transfer.fail(What::Owner, &path(), &format!("its owner cannot be set there: {error}")),
        }
    }
    if attributes.kind != Kind::Symlink
        && let Err(error) = rustix::fs::chmodat(CWD, target, Mode::from_raw_mode(permissions), AtFlags::empty())
    {
        transfer.fail(What::Attribute, &path(), &format!("its mode cannot be set there: {error}"));
    }
    set_xattrs(export, target, path, (attributes, names));
    let time = |time: weft_vfs::Timestamp| {
        let (seconds, nanoseconds) = time.parts();
        Timespec { tv_sec: seconds, tv_nsec: i64::from(nanoseconds) }
    };
    let times = Timestamps { last_access: time(attributes.atime), last_modification: time(attributes.mtime) };
    if let Err(error) = rustix::fs::utimensat(CWD, target, &times, AtFlags::empty()) {
        transfer.fail(What::Attribute, &path(), &format!("its times cannot be set there: {error}"));
    }
}

fn set_xattrs(
    export: &Exporter<'_>,
    target: &str,
    path: &dyn Fn() -> PathBuf,
    (attributes, names): (&Attributes, weft_vfs::Result<Vec<Name>>),
) {
    let transfer = export.transfer;
    let names = match names {
        Ok(names) => names,
        Err(error) => {
            return transfer.fail(What::Attribute, &path(), &format!("its attributes cannot be read: {error}"));
        }
    };
    for name in names {
        let shown = String::from_utf8_lossy(name.as_bytes()).into_owned();
        if let Some(why) = export.claims.and_then(|claims| claims.refusal_of_attribute(name.as_bytes())) {
            transfer.fail(What::Attribute, &path(), &why);
            continue;
        }
        let value = match export.vfs.xattr(attributes.ino, name.as_bytes()) {
            Ok(value) => value,
            Err(error) => {
                transfer.fail(What::Attribute, &path(), &format!("attribute {shown} cannot be read: {error}"));
                continue;
            }
        };
        if let Err(error) = rustix::fs::setxattr(target, name.as_bytes(), &value, XattrFlags::empty()) {
            transfer.fail(What::Attribute, &path(), &format!("attribute {shown} cannot be set there: {error}"));
        }
    }
}

/// Makes directory `name` in `parent`, from an earlier export, take entries again. `NOTDIR` or
/// `LOOP` if it is no directory.
pub fn open_again(parent: &Directory, name: &[u8]) -> Result<(), Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(parent, name, flags, Mode::empty())?;
    let mode = Mode::from_raw_mode(rustix::fs::fstat(&fd)?.st_mode);
    if mode.contains(Mode::RWXU) {
        return Ok(());
    }
    rustix::fs::chmodat(CWD, proc_path(&fd), mode | Mode::RWXU, AtFlags::empty())
}
