//! Requests that change the tree.

use super::path::{entry, find, named};
use super::query::Query;
use super::told::Attributed;
use super::{Asked, Volume};
use axum::extract::RawQuery;
use axum::response::Response;
use serde_json::json;
use weft_vfs::{
    Access, Attributes, ErrorKind, FileId, IfExists, Kind, MakeNode, Result, SetAttributes, SetTime, Timestamp, Writer,
};

/// Most bytes that one step of a copy takes from its source.
const COPY_BYTES: u64 = 64 << 20;

/// Bytes that are read and written at once where blocks cannot be shared.
const PIECE_BYTES: usize = 1 << 20;

/// Makes a file, and truncates one that is there: unless `exists` is `take`, and unless it is
/// `fail`, which fails then.
pub(super) async fn create(asked: Asked, RawQuery(query): RawQuery) -> Response {
    let names = ["path", "mode", "umask", "exists"];
    asked
        .told(query, &names, |volume, query| {
            let node = node(query, Kind::File, 0o666)?;
            let (if_exists, size) = match query.value("exists") {
                None => (IfExists::Take, Some(0)),
                Some("take") => (IfExists::Take, None),
                Some("fail") => (IfExists::Fail, None),
                Some(_) => return Err(ErrorKind::Invalid.into()),
            };
            Attributed::of(volume, &made(volume, &query.bytes("path")?, node, size, if_exists)?)
        })
        .await
}

/// Makes the file at `path`, or takes it; through symbolic links that lead to one that is there.
fn made(
    volume: &Volume<'_>,
    path: &[u8],
    node: MakeNode,
    size: Option<u64>,
    if_exists: IfExists,
) -> Result<Attributes> {
    let (parent, name) = entry(volume, path)?;
    let changes = SetAttributes { size, ..SetAttributes::default() };
    let created = volume.user.create(parent, &name, node, changes, if_exists);
    let there = match created {
        Err(error) if error.kind() == ErrorKind::Exists && if_exists != IfExists::Fail => find(volume, path)?,
        created => return Ok(created?.value),
    };
    match (there.kind, size) {
        (Kind::Directory, _) => Err(ErrorKind::IsDirectory.into()),
        (_, None) => Ok(there),
        (_, Some(_)) => Ok(volume.user.set_attributes(FileId::from(&there), changes, |_| true)?.after),
    }
}

pub(super) async fn make_directory(asked: Asked, RawQuery(query): RawQuery) -> Response {
    asked
        .told(query, &["path", "mode", "umask"], |volume, query| {
            let (parent, name) = entry(volume, &query.bytes("path")?)?;
            let node = node(query, Kind::Directory, 0o777)?;
            let made = volume.user.make(parent, &name, node, None, SetAttributes::default())?;
            Attributed::of(volume, &made.value)
        })
        .await
}

/// The node that `query` asks for.
fn node(query: &Query, kind: Kind, usual: u32) -> Result<MakeNode> {
    let permissions = query.permissions("mode")?.unwrap_or(usual);
    Ok(MakeNode { kind, permissions, umask: query.permissions("umask")?.unwrap_or(0o077), rdev: 0 })
}

/// Sets size, permissions and times.
pub(super) async fn set(asked: Asked, RawQuery(query): RawQuery) -> Response {
    let names = ["path", "id", "size", "mode", "mtime", "atime"];
    asked
        .told(query, &names, |volume, query| {
            let file = named(volume, query)?;
            let time = |name| match query.value(name) {
                Some("now") => Ok(Some(SetTime::Now)),
                _ => query.number(name).map(|time| time.map(|time| SetTime::To(Timestamp(time)))),
            };
            let changes = SetAttributes {
                size: query.number("size")?,
                permissions: query.permissions("mode")?,
                mtime: time("mtime")?,
                atime: time("atime")?,
                ..SetAttributes::default()
            };
            Attributed::of(volume, &volume.user.set_attributes(file, changes, |_| true)?.after)
        })
        .await
}

/// Removes a name of a file, or a directory that is empty.
pub(super) async fn remove(asked: Asked, RawQuery(query): RawQuery) -> Response {
    asked
        .told(query, &["path", "directory"], |volume, query| {
            let (parent, name) = entry(volume, &query.bytes("path")?)?;
            match query.has("directory") {
                true => volume.user.remove_directory(parent, &name)?,
                false => volume.user.unlink(parent, &name)?,
            };
            Ok(json!({}))
        })
        .await
}

/// Moves a name in one step, over a file that is there (POSIX rename()).
pub(super) async fn rename(asked: Asked, RawQuery(query): RawQuery) -> Response {
    asked
        .told(query, &["path", "to"], |volume, query| {
            let from = entry(volume, &query.bytes("path")?)?;
            let to = entry(volume, &query.bytes("to")?)?;
            volume.user.rename((from.0, &from.1), (to.0, &to.1))?;
            Ok(json!({}))
        })
        .await
}

/// Copies a part of a file over another one, of which as much is there; blocks that line up are
/// shared. Tells how many bytes: fewer than asked for where that would take long, 0 at the end.
pub(super) async fn copy(asked: Asked, RawQuery(query): RawQuery) -> Response {
    asked
        .told(query, &["from", "to", "offset", "length"], |volume, query| {
            let id = |name| query.value(name).and_then(super::query::file_id).ok_or(ErrorKind::Invalid);
            let (from, to) = (id("from")?, id("to")?);
            let offset = query.number("offset")?.unwrap_or(0);
            let length = query.number("length")?.unwrap_or(COPY_BYTES).min(COPY_BYTES);
            Ok(json!({ "copied": copied(volume, (from, to), offset, length)? }))
        })
        .await
}

fn copied(volume: &Volume<'_>, (from, to): (FileId, FileId), offset: u64, length: u64) -> Result<u64> {
    let user = &volume.user;
    if from == to {
        return Err(ErrorKind::Invalid.into());
    }
    let ([may_read], source) = user.access(from, [Access::READ])?;
    let ([may_write], _) = user.access(to, [Access::WRITE])?;
    if !(may_read && may_write) {
        return Err(ErrorKind::AccessDenied.into());
    }
    let is_stored = source.computed.is_none() && !weft_vfs::is_past(from.ino);
    let shared = match is_stored {
        true => volume.vfs.copy_range_as(Writer::Stranger, (from.ino, offset), (to.ino, offset), length),
        false => Err(ErrorKind::NotSupported.into()),
    };
    match shared {
        Err(error) if error.kind() == ErrorKind::NotSupported => {
            let (bytes, _) =
                user.read(from, offset, PIECE_BYTES.min(usize::try_from(length).unwrap_or(PIECE_BYTES)))?;
            user.write(to, offset, &bytes.contiguous())?;
            Ok(bytes.len() as u64)
        }
        shared => shared,
    }
}
