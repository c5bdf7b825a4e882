//! Requests that change the tree.

use super::path::{Place, TOPS, entry, named, place};
use super::query::{Query, id_as_text};
use super::refusal::Refusal;
use super::told::Attributed;
use super::{Asked, Volume};
use crate::hexadecimal::hex;
use axum::extract::RawQuery;
use axum::response::Response;
use rustix::rand::{GetRandomFlags, getrandom};
use serde_json::json;
use weft_vfs::{
    Access, Attributes, ErrorKind, FileId, IfExists, Kind, MakeNode, SetAttributes, SetTime, Timestamp, Writer,
    name_beside,
};

/// Most bytes that one step of a copy takes from its source.
const COPY_BYTES: u64 = 64 << 20;

/// Bytes that are read and written at once where blocks cannot be shared.
const PIECE_BYTES: usize = 1 << 20;

/// Makes a file, and truncates one that is there: unless `exists` is `take`, and unless it is
/// `fail`, which fails then. Symbolic links at the end of the path are followed, but by `fail`
/// (POSIX open(), `O_EXCL`).
pub(super) async fn create(asked: Asked, RawQuery(query): RawQuery) -> Response {
    let names = ["path", "mode", "umask", "exists"];
    asked
        .told(query, &[&names, &TOPS], |volume, query| {
            let node = node(query, Kind::File, 0o666)?;
            let made = match query.value("exists") {
                None => made(volume, query, node, Some(0))?,
                Some("take") => made(volume, query, node, None)?,
                Some("fail") => {
                    let (parent, name) = entry(volume, query, "path")?;
                    volume.user.create(parent, &name, node, SetAttributes::default(), IfExists::Fail)?.value
                }
                Some(_) => return Err(Refusal::senseless("'exists' is neither 'take' nor 'fail'")),
            };
            Ok(Attributed::of(volume, &made)?)
        })
        .await
}

/// Makes the file at the end of the path, or takes it, and sets its `size`.
fn made(volume: &Volume<'_>, query: &Query, node: MakeNode, size: Option<u64>) -> Result<Attributes, Refusal> {
    let Place { entry: (parent, name), there } = place(volume, query)?;
    let changes = SetAttributes { size, ..SetAttributes::default() };
    let there = match there {
        Some(there) => there,
        // Another one may have been quicker.
        None => return Ok(volume.user.create(parent, &name, node, changes, IfExists::Take)?.value),
    };
    match (there.kind, size) {
        (Kind::Directory, _) => Err(ErrorKind::IsDirectory.into()),
        (_, None) => Ok(there),
        (_, Some(_)) => Ok(volume.user.set_attributes(FileId::from(&there), changes, |_| true)?.after),
    }
}

/// Makes an empty file that is to take the place of that at a path, with its owner and rights,
/// beside it. Tells both names and their directory.
pub(super) async fn replace(asked: Asked, RawQuery(query): RawQuery) -> Response {
    asked
        .told(query, &[&["path", "mode", "umask", "exists"], &TOPS], |volume, query| {
            let Place { entry: (parent, name), there } = place(volume, query)?;
            let beside = name_beside(&name, random()?);
            let made = match (there, query.value("exists")) {
                (Some(_), Some("fail")) => return Err(ErrorKind::Exists.into()),
                (_, Some(other)) if other != "fail" => return Err(Refusal::senseless("'exists' is not 'fail'")),
                (Some(there), _) if there.kind == Kind::Directory => return Err(ErrorKind::IsDirectory.into()),
                (Some(there), _) if there.kind != Kind::File => return Err(ErrorKind::Invalid.into()),
                // What a transformation link shows is not written so.
                (Some(there), _) if there.computed.is_some() => return Err(ErrorKind::AccessDenied.into()),
                (Some(there), _) => volume.user.make_like(parent, &beside, &there)?,
                (None, _) => {
                    let node = node(query, Kind::File, 0o666)?;
                    volume.user.create(parent, &beside, node, SetAttributes::default(), IfExists::Fail)?.value
                }
            };
            Ok(json!({
                "file": Attributed::of(volume, &made)?,
                "in": id_as_text(parent),
                "name": hex(&beside),
                "over": hex(&name),
            }))
        })
        .await
}

fn random() -> Result<u64, Refusal> {
    let mut bytes = [0; 8];
    match getrandom(&mut bytes, GetRandomFlags::empty()) {
        Ok(count) if count == bytes.len() => Ok(u64::from_ne_bytes(bytes)),
        _ => Err(ErrorKind::Io.into()),
    }
}

pub(super) async fn make_directory(asked: Asked, RawQuery(query): RawQuery) -> Response {
    asked
        .told(query, &[&["path", "mode", "umask"], &TOPS], |volume, query| {
            let (parent, name) = entry(volume, query, "path")?;
            let node = node(query, Kind::Directory, 0o777)?;
            let made = volume.user.make(parent, &name, node, None, SetAttributes::default())?;
            Ok(Attributed::of(volume, &made.value)?)
        })
        .await
}

pub(super) async fn symlink(asked: Asked, RawQuery(query): RawQuery) -> Response {
    asked
        .told(query, &[&["path", "target"], &TOPS], |volume, query| {
            let (parent, name) = entry(volume, query, "path")?;
            let target = query.bytes("target")?;
            if target.contains(&0) {
                return Err(Refusal::senseless("'target' has a zero byte"));
            }
            let node = MakeNode { kind: Kind::Symlink, permissions: 0o777, umask: 0, rdev: 0 };
            let made = volume.user.make(parent, &name, node, Some(&target), SetAttributes::default())?;
            Ok(Attributed::of(volume, &made.value)?)
        })
        .await
}

/// The node that `query` asks for.
fn node(query: &Query, kind: Kind, usual: u32) -> Result<MakeNode, Refusal> {
    let permissions = query.permissions("mode")?.unwrap_or(usual);
    Ok(MakeNode { kind, permissions, umask: query.permissions("umask")?.unwrap_or(0o077), rdev: 0 })
}

/// Sets size, permissions, owner, group and times.
pub(super) async fn set(asked: Asked, RawQuery(query): RawQuery) -> Response {
    let names = ["path", "id", "size", "mode", "uid", "gid", "mtime", "atime"];
    asked
        .told(query, &[&names, &TOPS], |volume, query| {
            let file = named(volume, query)?;
            let time = |name| match query.value(name) {
                Some("now") => Ok(Some(SetTime::Now)),
                _ => query.number(name).map(|time| time.map(|time| SetTime::To(Timestamp(time)))),
            };
            let changes = SetAttributes {
                size: query.number("size")?,
                permissions: query.permissions("mode")?,
                uid: owner(query, "uid")?,
                gid: owner(query, "gid")?,
                mtime: time("mtime")?,
                atime: time("atime")?,
                ..SetAttributes::default()
            };
            Ok(Attributed::of(volume, &volume.user.set_attributes(file, changes, |_| true)?.after)?)
        })
        .await
}

/// The user or group of this name. That of all bits is none (POSIX chown()).
fn owner(query: &Query, name: &'static str) -> Result<Option<u32>, Refusal> {
    match query.number(name)? {
        Some(u32::MAX) => Err(Refusal::senseless(format!("'{name}' is no number that could be one"))),
        number => Ok(number),
    }
}

/// Removes a name of a file, or a directory that is empty.
pub(super) async fn remove(asked: Asked, RawQuery(query): RawQuery) -> Response {
    asked
        .told(query, &[&["path", "directory"], &TOPS], |volume, query| {
            let (parent, name) = entry(volume, query, "path")?;
            match query.has("directory") {
                true => volume.user.remove_directory(parent, &name)?,
                false => volume.user.unlink(parent, &name)?,
            };
            Ok(json!({}))
        })
        .await
}

/// Moves a name in one step, over a file that is there (POSIX rename()), unless `exists` is `fail`.
/// With `rights` the file first gets those of what it replaces, as they are by then.
pub(super) async fn rename(asked: Asked, RawQuery(query): RawQuery) -> Response {
    asked
        .told(query, &[&["path", "to", "exists", "rights"], &TOPS], |volume, query| {
            let (from, to) = (entry(volume, query, "path")?, entry(volume, query, "to")?);
            let (from, to) = ((from.0, &*from.1), (to.0, &*to.1));
            if query.has("rights")
                && let Ok((replaced, _)) = volume.user.lookup(to.0, to.1)
            {
                volume.user.make_alike(&volume.user.lookup(from.0, from.1)?.0, &replaced)?;
            }
            match query.value("exists") {
                None => volume.user.rename(from, to)?,
                Some("fail") => volume.user.rename_to_new(from, to)?,
                Some(_) => return Err(Refusal::senseless("'exists' is not 'fail'")),
            };
            Ok(json!({}))
        })
        .await
}

/// Copies a part of a file over another one, of which as much is there; blocks that line up are
/// shared. Tells how many bytes: fewer than asked for where that would take long, 0 at the end.
pub(super) async fn copy(asked: Asked, RawQuery(query): RawQuery) -> Response {
    asked
        .told(query, &[&["from", "to", "offset", "length"]], |volume, query| {
            let id = |name| query.id(name)?.ok_or_else(|| Refusal::senseless(format!("'{name}' is missing")));
            let (from, to) = (id("from")?, id("to")?);
            let offset = query.number("offset")?.unwrap_or(0);
            let length = query.number("length")?.unwrap_or(COPY_BYTES).min(COPY_BYTES);
            Ok(json!({ "copied": copied(volume, (from, to), offset, length)? }))
        })
        .await
}

fn copied(volume: &Volume<'_>, (from, to): (FileId, FileId), offset: u64, length: u64) -> weft_vfs::Result<u64> {
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
