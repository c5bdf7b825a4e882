//! Attributes of files and of the whole: GETATTR, SETATTR, ACCESS, FSSTAT, FSINFO, PATHCONF; and
//! their encoding.

use super::{DATA_BYTES_MAX, Done, Served};
use crate::outcome::{Failure, GARBAGE};
use crate::request::Request;
use crate::status::Status;
use crate::xdr::{Reader, Writer};
use weft_vfs::{Access, Attributes, Changed, Kind, SetAttributes, SetTime, Timestamp};

/// Most links of a file, as reported.
const LINKS_MAX: u32 = i32::MAX as u32;
/// Bytes of a directory to ask for at once.
const DIRECTORY_BYTES_PREFERRED: u32 = 64 << 10;
/// `FSF3_LINK | FSF3_SYMLINK | FSF3_HOMOGENEOUS | FSF3_CANSETTIME` (RFC 1813 3.3.19).
const PROPERTIES: u32 = 0x1 | 0x2 | 0x8 | 0x10;

/// `fattr3`.
fn attributes(request: &Request<'_>, reply: &mut Writer, of: &Attributes) {
    reply.u32(match of.kind {
        Kind::File | Kind::Transformation => 1,
        Kind::Directory => 2,
        Kind::BlockDevice => 3,
        Kind::CharDevice => 4,
        Kind::Symlink => 5,
        Kind::Socket => 6,
        Kind::Fifo => 7,
    });
    reply.u32(of.permissions);
    reply.u32(of.nlink);
    reply.u32(of.uid);
    reply.u32(of.gid);
    reply.u64(of.size);
    reply.u64(of.allocated);
    reply.u32(rustix::fs::major(of.rdev.into()));
    reply.u32(rustix::fs::minor(of.rdev.into()));
    reply.u64(request.exported().fsid);
    reply.u64(of.ino.0);
    [of.atime, of.mtime, of.ctime].into_iter().for_each(|at| time(reply, at));
}

/// `nfstime3`: a time outside of 1970 to 2106 becomes the nearest inside.
fn time(reply: &mut Writer, time: Timestamp) {
    let (seconds, nanoseconds) = time.parts();
    match u32::try_from(seconds) {
        Ok(seconds) => {
            reply.u32(seconds);
            reply.u32(nanoseconds);
        }
        Err(_) => {
            reply.u32(if seconds < 0 { 0 } else { u32::MAX });
            reply.u32(0);
        }
    }
}

/// `post_op_attr`.
pub(super) fn optional(request: &Request<'_>, reply: &mut Writer, of: Option<&Attributes>) {
    reply.bool(of.is_some());
    if let Some(of) = of {
        attributes(request, reply, of);
    }
}

/// `wcc_data`.
pub(super) fn change<T>(request: &Request<'_>, reply: &mut Writer, changed: &Changed<T>) {
    reply.bool(true);
    reply.u64(changed.before.size);
    time(reply, changed.before.mtime);
    time(reply, changed.before.ctime);
    optional(request, reply, Some(&changed.after));
}

fn read_time(arguments: &mut Reader<'_>) -> Option<Timestamp> {
    let (seconds, nanoseconds) = (arguments.u32()?, arguments.u32()?);
    Some(Timestamp::from_parts(i64::from(seconds), nanoseconds))
}

fn read_set_time(arguments: &mut Reader<'_>) -> Option<Option<SetTime>> {
    match arguments.u32()? {
        0 => Some(None),
        1 => Some(Some(SetTime::Now)),
        2 => Some(Some(SetTime::To(read_time(arguments)?))),
        _ => None,
    }
}

/// `sattr3`.
pub(super) fn read_changes(request: &mut Request<'_>) -> Result<SetAttributes, Failure> {
    let changes = |arguments: &mut Reader<'_>| {
        Some(SetAttributes {
            permissions: arguments.optional(Reader::u32)?.map(|mode| mode & 0o7777),
            uid: arguments.optional(Reader::u32)?,
            gid: arguments.optional(Reader::u32)?,
            size: arguments.optional(Reader::u64)?,
            atime: read_set_time(arguments)?,
            mtime: read_set_time(arguments)?,
            writer: weft_vfs::Writer::Privileged,
        })
    };
    changes(&mut request.arguments).ok_or(GARBAGE)
}

/// RFC 1813 3.3.1.
pub(super) fn getattr(request: &mut Request<'_>, reply: &mut Writer) -> Served {
    let file = request.file()?;
    let found = request.user().attributes(file)?;
    reply.u32(Status::Ok as u32);
    attributes(request, reply, &found);
    Done::told()
}

/// RFC 1813 3.3.2.
pub(super) fn setattr(request: &mut Request<'_>, reply: &mut Writer) -> Served {
    let file = request.file()?;
    let changes = read_changes(request)?;
    let guard = request.arguments.optional(read_time).ok_or(GARBAGE)?;
    request.may_change()?;
    let holds = |now: &Attributes| guard.is_none_or(|guard| guard == now.ctime);
    let changed = request.user().set_attributes(file, changes, holds)?;
    reply.u32(Status::Ok as u32);
    change(request, reply, &changed);
    Done::changed(request)
}

/// Rights to ask for (RFC 1813 3.3.4).
const READ: u32 = 0x01;
const LOOKUP: u32 = 0x02;
const MODIFY: u32 = 0x04;
const EXTEND: u32 = 0x08;
const DELETE: u32 = 0x10;
const EXECUTE: u32 = 0x20;

/// RFC 1813 3.3.4.
pub(super) fn access(request: &mut Request<'_>, reply: &mut Writer) -> Served {
    let file = request.file()?;
    let wanted = request.arguments.u32().ok_or(GARBAGE)?;
    let rights = [Access::READ, Access::WRITE, Access::EXECUTE, Access::WRITE | Access::EXECUTE];
    let ([read, write, execute, change], found) = request.user().access(file, rights)?;
    let mut given = if read { READ } else { 0 };
    if found.kind == Kind::Directory {
        given |= if execute { LOOKUP } else { 0 };
        given |= if change { MODIFY | EXTEND | DELETE } else { 0 };
    } else {
        given |= if execute { EXECUTE } else { 0 };
        given |= if write { MODIFY | EXTEND } else { 0 };
    }
    if request.is_read_only() {
        given &= !(MODIFY | EXTEND | DELETE);
    }
    reply.u32(Status::Ok as u32);
    optional(request, reply, Some(&found));
    reply.u32(given & wanted);
    Done::told()
}

/// Begins the reply to a question about the whole.
fn about_the_whole(request: &mut Request<'_>, reply: &mut Writer) -> Result<(), Failure> {
    let file = request.file()?;
    let found = request.user().attributes(file)?;
    reply.u32(Status::Ok as u32);
    optional(request, reply, Some(&found));
    Ok(())
}

/// RFC 1813 3.3.18.
pub(super) fn fsstat(request: &mut Request<'_>, reply: &mut Writer) -> Served {
    about_the_whole(request, reply)?;
    let whole = request.service.vfs.statfs()?;
    let sizes = [whole.bytes_total, whole.bytes_free, whole.bytes_available];
    let counts = [whole.inodes_total, whole.inodes_free, whole.inodes_free];
    sizes.into_iter().chain(counts).for_each(|value| reply.u64(value));
    // Anyone may change it at any time.
    reply.u32(0);
    Done::told()
}

/// RFC 1813 3.3.19.
pub(super) fn fsinfo(request: &mut Request<'_>, reply: &mut Writer) -> Served {
    about_the_whole(request, reply)?;
    let data = u32::try_from(DATA_BYTES_MAX).expect("fits");
    for value in [data, data, 4096, data, data, 4096, DIRECTORY_BYTES_PREFERRED] {
        reply.u32(value);
    }
    reply.u64(i64::MAX as u64);
    // Times are kept to the nanosecond.
    time(reply, Timestamp(1));
    reply.u32(PROPERTIES);
    Done::told()
}

/// RFC 1813 3.3.20.
pub(super) fn pathconf(request: &mut Request<'_>, reply: &mut Writer) -> Served {
    about_the_whole(request, reply)?;
    reply.u32(LINKS_MAX);
    reply.u32(255);
    // Too long names are refused, only the super-user gives files away, case matters and is kept.
    [true, true, false, true].into_iter().for_each(|value| reply.bool(value));
    Done::told()
}
