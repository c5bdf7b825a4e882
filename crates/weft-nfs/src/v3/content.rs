//! Content: READLINK, READ, WRITE, COMMIT.

use super::attributes::{change, optional};
use super::{DATA_BYTES_MAX, Done, Served};
use crate::outcome::GARBAGE;
use crate::request::Request;
use crate::status::Status;
use crate::xdr::Writer;
use weft_vfs::{Changed, Kind};

/// Durability of a write (`stable_how`).
const UNSTABLE: u32 = 0;
const FILE_SYNC: u32 = 2;

/// RFC 1813 3.3.5.
pub(super) fn readlink(request: &mut Request<'_>, reply: &mut Writer) -> Served {
    let file = request.file()?;
    let (target, found) = request.user().read_symlink(file)?;
    reply.u32(Status::Ok as u32);
    optional(request, reply, Some(&found));
    reply.opaque(&target);
    Done::told()
}

/// RFC 1813 3.3.6. The bytes follow the reply's head from where they lie.
pub(super) fn read(request: &mut Request<'_>, reply: &mut Writer) -> Served {
    let file = request.file()?;
    let (offset, count) = (request.arguments.u64().ok_or(GARBAGE)?, request.arguments.u32().ok_or(GARBAGE)?);
    let count = usize::try_from(count).unwrap_or(usize::MAX).min(DATA_BYTES_MAX);
    let (data, found) = request.user().read(file, offset, count)?;
    let len = u32::try_from(data.len()).expect("no more than asked for");
    reply.u32(Status::Ok as u32);
    optional(request, reply, Some(&found));
    reply.u32(len);
    reply.bool(offset.saturating_add(u64::from(len)) >= found.size);
    reply.u32(len);
    Ok(Done { data, once: None })
}

/// RFC 1813 3.3.7.
pub(super) fn write(request: &mut Request<'_>, reply: &mut Writer) -> Served {
    let file = request.file()?;
    let arguments = &mut request.arguments;
    let (offset, count) = (arguments.u64().ok_or(GARBAGE)?, arguments.u32().ok_or(GARBAGE)?);
    let stable = arguments.u32().filter(|stable| *stable <= FILE_SYNC).ok_or(GARBAGE)?;
    let data = arguments.opaque(DATA_BYTES_MAX).ok_or(GARBAGE)?;
    let data = data.get(..usize::try_from(count).unwrap_or(usize::MAX)).ok_or(Status::Inval)?;
    request.may_change()?;
    let changed = request.user().write(file, offset, data)?;
    reply.u32(Status::Ok as u32);
    change(request, reply, &changed);
    reply.u32(count);
    reply.u32(if stable == UNSTABLE { UNSTABLE } else { FILE_SYNC });
    reply.fixed(&request.service.verifier);
    if stable == UNSTABLE { Done::told() } else { Done::durable() }
}

/// RFC 1813 3.3.21. All of the volume is made durable, whatever part of a file is asked for.
pub(super) fn commit(request: &mut Request<'_>, reply: &mut Writer) -> Served {
    let file = request.file()?;
    let (_offset, _count) = (request.arguments.u64().ok_or(GARBAGE)?, request.arguments.u32().ok_or(GARBAGE)?);
    let found = request.user().attributes(file)?;
    if found.kind == Kind::Directory {
        return Err(Status::Inval.into());
    }
    reply.u32(Status::Ok as u32);
    change(request, reply, &Changed { value: (), before: found, after: found });
    reply.fixed(&request.service.verifier);
    Done::durable()
}
