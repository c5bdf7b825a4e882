//! Names: LOOKUP, CREATE, MKDIR, SYMLINK, MKNOD, REMOVE, RMDIR, RENAME, LINK.

use super::attributes::{change, optional, read_changes};
use super::{Done, Served, name};
use crate::outcome::{Failure, GARBAGE};
use crate::request::Request;
use crate::status::Status;
use crate::xdr::Writer;
use weft_vfs::{Attributes, Changed, FileId, IfExists, Kind, MakeNode, SetAttributes, SetTime, Timestamp};

/// Permission bits of new files and directories for which none are given.
const FILE_PERMISSIONS: u32 = 0o600;
const DIRECTORY_PERMISSIONS: u32 = 0o700;

/// RFC 1813 3.3.3.
pub(super) fn lookup(request: &mut Request<'_>, reply: &mut Writer) -> Served {
    let directory = request.directory()?;
    let name = match name(request)? {
        // Directories above an export are not for its clients.
        b".." if directory == request.exported().root => b".".as_slice(),
        name => name,
    };
    if name.is_empty() || name.contains(&b'/') || name.contains(&0) {
        return Err(Status::Inval.into());
    }
    let (found, parent) = request.service.lookup(request.exported(), &request.user(), directory, name)?;
    reply.u32(Status::Ok as u32);
    reply.opaque(&request.service.handle(request.exported(), FileId::from(&found)));
    optional(request, reply, Some(&found));
    optional(request, reply, Some(&parent));
    Done::told()
}

/// Writes the new file's handle and attributes, and its directory's change.
fn made(request: &Request<'_>, reply: &mut Writer, changed: &Changed<Attributes>) -> Served {
    reply.u32(Status::Ok as u32);
    reply.bool(true);
    reply.opaque(&request.service.handle(request.exported(), FileId::from(&changed.value)));
    optional(request, reply, Some(&changed.value));
    change(request, reply, changed);
    Done::changed(request)
}

/// Reads the directory and the name of something to make or remove.
fn place<'a>(request: &mut Request<'a>) -> Result<(FileId, &'a [u8]), Failure> {
    Ok((request.directory()?, name(request)?))
}

/// Fails for `.` and `..`, which are in every directory.
fn makeable(request: &Request<'_>, name: &[u8]) -> Result<(), Failure> {
    request.may_change()?;
    if matches!(name, b"." | b"..") { Err(Status::Exist.into()) } else { Ok(()) }
}

/// Splits `changes` into those that a file is made with, and those that are set afterwards.
fn node(kind: Kind, rdev: u32, changes: SetAttributes) -> (MakeNode, SetAttributes) {
    let default = if kind == Kind::Directory { DIRECTORY_PERMISSIONS } else { FILE_PERMISSIONS };
    // Clients have applied their umask.
    let node = MakeNode { kind, permissions: changes.permissions.unwrap_or(default), umask: 0, rdev };
    (node, SetAttributes { permissions: None, ..changes })
}

/// RFC 1813 3.3.8.
pub(super) fn create(request: &mut Request<'_>, reply: &mut Writer) -> Served {
    let (directory, name) = place(request)?;
    let (changes, if_exists) = match request.arguments.u32().ok_or(GARBAGE)? {
        0 => (read_changes(request)?, IfExists::Take),
        1 => (read_changes(request)?, IfExists::Fail),
        2 => {
            let (atime, mtime) = times_of_verifier(request.arguments.fixed().ok_or(GARBAGE)?);
            let set = |time| Some(SetTime::To(time));
            let changes = SetAttributes { atime: set(atime), mtime: set(mtime), ..SetAttributes::default() };
            (changes, IfExists::TakeWithTimes { atime, mtime })
        }
        _ => return Err(GARBAGE),
    };
    makeable(request, name)?;
    let (node, changes) = node(Kind::File, 0, changes);
    let changed = request.user().create(directory, name, node, changes, if_exists)?;
    made(request, reply, &changed)
}

/// Returns the times that record the verifier of an exclusive create, until the client sets them:
/// so a client that tries again finds its own file (RFC 1813 3.3.8).
fn times_of_verifier([a, b, c, d, e, f, g, h]: [u8; 8]) -> (Timestamp, Timestamp) {
    let seconds = |bytes| Timestamp::from_parts(i64::from(u32::from_be_bytes(bytes)), 0);
    (seconds([a, b, c, d]), seconds([e, f, g, h]))
}

/// RFC 1813 3.3.9.
pub(super) fn mkdir(request: &mut Request<'_>, reply: &mut Writer) -> Served {
    let (directory, name) = place(request)?;
    let changes = read_changes(request)?;
    makeable(request, name)?;
    // A directory has no size to set.
    let (node, changes) = node(Kind::Directory, 0, SetAttributes { size: None, ..changes });
    let changed = request.user().make(directory, name, node, None, changes)?;
    made(request, reply, &changed)
}

/// RFC 1813 3.3.10.
pub(super) fn symlink(request: &mut Request<'_>, reply: &mut Writer) -> Served {
    let (directory, name) = place(request)?;
    let changes = read_changes(request)?;
    let target = super::name(request)?;
    makeable(request, name)?;
    // No client asks for the permissions of a symbolic link.
    let (node, changes) = node(Kind::Symlink, 0, SetAttributes { size: None, ..changes });
    let changed = request.user().make(directory, name, node, Some(target), changes)?;
    made(request, reply, &changed)
}

/// RFC 1813 3.3.11.
pub(super) fn mknod(request: &mut Request<'_>, reply: &mut Writer) -> Served {
    let (directory, name) = place(request)?;
    let kind = match request.arguments.u32().ok_or(GARBAGE)? {
        3 => Kind::BlockDevice,
        4 => Kind::CharDevice,
        6 => Kind::Socket,
        7 => Kind::Fifo,
        1 | 2 | 5 => return Err(Status::BadType.into()),
        _ => return Err(GARBAGE),
    };
    let changes = SetAttributes { size: None, ..read_changes(request)? };
    let rdev = match kind {
        Kind::BlockDevice | Kind::CharDevice => {
            let (major, minor) = (request.arguments.u32().ok_or(GARBAGE)?, request.arguments.u32().ok_or(GARBAGE)?);
            if major > 0xfff || minor > 0xf_ffff {
                return Err(Status::Inval.into());
            }
            u32::try_from(rustix::fs::makedev(major, minor)).expect("such fit into 32 bits")
        }
        _ => 0,
    };
    makeable(request, name)?;
    let (node, changes) = node(kind, rdev, changes);
    let changed = request.user().make(directory, name, node, None, changes)?;
    made(request, reply, &changed)
}

/// RFC 1813 3.3.12.
pub(super) fn remove(request: &mut Request<'_>, reply: &mut Writer) -> Served {
    let (directory, name) = place(request)?;
    request.may_change()?;
    let changed = request.user().unlink(directory, name)?;
    reply.u32(Status::Ok as u32);
    change(request, reply, &changed);
    Done::changed(request)
}

/// RFC 1813 3.3.13.
pub(super) fn rmdir(request: &mut Request<'_>, reply: &mut Writer) -> Served {
    let (directory, name) = place(request)?;
    request.may_change()?;
    if name == b".." {
        return Err(Status::Exist.into());
    }
    let changed = request.user().remove_directory(directory, name)?;
    reply.u32(Status::Ok as u32);
    change(request, reply, &changed);
    Done::changed(request)
}

/// RFC 1813 3.3.14.
pub(super) fn rename(request: &mut Request<'_>, reply: &mut Writer) -> Served {
    let (from, to) = (place(request)?, place(request)?);
    request.may_change()?;
    let [source, target] = request.user().rename(from, to)?;
    reply.u32(Status::Ok as u32);
    change(request, reply, &source);
    change(request, reply, &target);
    Done::changed(request)
}

/// RFC 1813 3.3.15.
pub(super) fn link(request: &mut Request<'_>, reply: &mut Writer) -> Served {
    let file = request.file()?;
    let (directory, name) = place(request)?;
    makeable(request, name)?;
    let changed = request.user().link(file, directory, name)?;
    reply.u32(Status::Ok as u32);
    optional(request, reply, Some(&changed.value));
    change(request, reply, &changed);
    Done::changed(request)
}
