//! Answers about files.

use super::Volume;
use super::query::id_as_text;
use super::refusal::refused;
use crate::hexadecimal;
use axum::body::Body;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Serialize, Serializer};
use weft_vfs::{Attributes, DirEntry, ErrorKind, FileId, Kind, is_past};

/// Bytes of names and targets after which a listing ends for once: it is in memory as a whole.
const TEXT_BYTES_MAX: usize = 512 << 10;

/// Bytes as text; in hexadecimal, too, if they are none.
#[derive(Serialize)]
#[serde(untagged)]
enum Text {
    Plain(String),
    Bytes { text: String, hex: String },
}

impl Text {
    fn len(&self) -> usize {
        match self {
            Text::Plain(text) | Text::Bytes { text, .. } => text.len(),
        }
    }

    fn of(bytes: &[u8]) -> Text {
        match std::str::from_utf8(bytes) {
            Ok(text) => Text::Plain(text.into()),
            Err(_) => Text::Bytes { text: String::from_utf8_lossy(bytes).into_owned(), hex: hexadecimal::hex(bytes) },
        }
    }
}

/// Attributes, as they are told. Times are nanoseconds since 1970.
#[derive(Serialize)]
pub(crate) struct Attributed {
    id: String,
    kind: &'static str,
    size: u64,
    mode: u32,
    uid: u32,
    gid: u32,
    links: u32,
    ino: u64,
    atime: i64,
    mtime: i64,
    ctime: i64,
    btime: i64,
    /// True for what is as of a moment of the past, which never changes.
    past: bool,
    /// The target of a symbolic link.
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<Text>,
}

impl Attributed {
    /// Those of an inode that its user has looked up.
    pub(crate) fn of(volume: &Volume<'_>, attributes: &Attributes) -> weft_vfs::Result<Attributed> {
        let file = FileId::from(attributes);
        let is_link = attributes.kind == Kind::Symlink;
        let target = if is_link { Some(Text::of(&volume.user.read_symlink(file)?.0)) } else { None };
        Ok(Attributed {
            id: id_as_text(file),
            kind: word(attributes.kind),
            size: attributes.size,
            mode: attributes.permissions,
            uid: attributes.uid,
            gid: attributes.gid,
            links: attributes.nlink,
            ino: attributes.ino.0,
            atime: attributes.atime.0,
            mtime: attributes.mtime.0,
            ctime: attributes.ctime.0,
            btime: attributes.btime.0,
            past: is_past(attributes.ino),
            target,
        })
    }
}

/// The names of what is told of an entry, in its order.
const FIELDS: [&str; 12] =
    ["name", "id", "kind", "size", "mode", "uid", "gid", "links", "mtime", "ctime", "btime", "target"];

/// One entry of a directory: values of [`FIELDS`], as there may be many. One that its user may not
/// look up has a name alone.
struct Entry {
    name: Text,
    attributes: Option<Attributed>,
}

impl Serialize for Entry {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Some(of) = &self.attributes else { return (&self.name,).serialize(serializer) };
        let Attributed { id, kind, size, mode, uid, gid, links, mtime, ctime, btime, target, .. } = of;
        (&self.name, id, kind, size, mode, uid, gid, links, mtime, ctime, btime, target).serialize(serializer)
    }
}

/// Entries of a directory, in its order.
#[derive(Serialize)]
pub(crate) struct Listed {
    fields: [&'static str; FIELDS.len()],
    entries: Vec<Entry>,
    /// The place from which to go on; none at the end.
    after: Option<u64>,
}

impl Listed {
    /// Those of `directory` that were `listed`; `is_end` if there are no more.
    pub(crate) fn of(
        volume: &Volume<'_>,
        directory: FileId,
        listed: &[(DirEntry, Option<Attributes>)],
        is_end: bool,
    ) -> weft_vfs::Result<Listed> {
        let mut after = listed.last().map(|(last, _)| last.cookie.0).filter(|_| !is_end);
        let mut entries = Vec::with_capacity(listed.len());
        let mut bytes = 0;
        for (entry, attributes) in listed {
            if bytes > TEXT_BYTES_MAX {
                break;
            }
            // Transformation links are listed without: what they look like may have to be computed.
            let found = || volume.user.lookup(directory, entry.name.as_bytes()).ok().map(|(found, _)| found);
            let attributes = attributes.or_else(found);
            let attributed = attributes.as_ref().map(|attributes| Attributed::of(volume, attributes)).transpose();
            let attributes = match attributed {
                // It was removed since.
                Err(error) if matches!(error.kind(), ErrorKind::Stale | ErrorKind::NotFound) => continue,
                attributed => attributed?,
            };
            let target = attributes.as_ref().and_then(|attributes| attributes.target.as_ref());
            bytes += entry.name.as_bytes().len() + target.map_or(0, Text::len);
            if bytes > TEXT_BYTES_MAX {
                after = Some(entry.cookie.0);
            }
            entries.push(Entry { name: Text::of(entry.name.as_bytes()), attributes });
        }
        Ok(Listed { fields: FIELDS, entries, after })
    }
}

/// A kind in words; a link looks like the file that it shows.
fn word(kind: Kind) -> &'static str {
    if kind == Kind::Transformation { Kind::File } else { kind }.in_words()
}

/// An answer that is good.
pub(crate) fn json_of(value: &impl Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(text) => ([(header::CONTENT_TYPE, "application/json")], Body::from(text)).into_response(),
        Err(error) => refused(StatusCode::INTERNAL_SERVER_ERROR, libc::EIO, &error.to_string()),
    }
}
