//! Listing directories: READDIR, READDIRPLUS.
//!
//! Positions are the volume's own and good for as long as the directory lives, so their verifier is
//! always zero.

use super::attributes::optional;
use super::{Done, Served};
use crate::outcome::{Failure, GARBAGE};
use crate::request::Request;
use crate::status::Status;
use crate::xdr::Writer;
use weft_vfs::{Attributes, Cookie, DirEntry, ErrorKind, FileId, Ino};

/// Most bytes of a reply, however many are asked for.
const REPLY_BYTES_MAX: usize = 256 << 10;
/// Most entries that are read at once.
const PAGE: usize = 512;
/// Least bytes of an entry: a mark, number, name and position; attributes and a handle with it.
const ENTRY_BYTES: usize = 28;
const ENTRY_PLUS_BYTES: usize = ENTRY_BYTES + 88 + 48;
/// Bytes after the entries: no more, and whether that was the end.
const END_BYTES: usize = 8;

/// Positions of `.` and `..`.
const DOT: Cookie = Cookie(1);
const DOT_DOT: Cookie = Cookie(2);

/// An entry of a listing.
struct ListedEntry<'a> {
    name: &'a [u8],
    ino: Ino,
    cookie: Cookie,
    /// With READDIRPLUS, if they may be reported.
    attributes: Option<Attributes>,
}

/// Kind of listing that is asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum With {
    Names,
    Attributes,
}

/// RFC 1813 3.3.16.
pub(super) fn readdir(request: &mut Request<'_>, reply: &mut Writer) -> Served {
    let directory = request.directory()?;
    let cookie = Cookie(request.arguments.u64().ok_or(GARBAGE)?);
    let _verifier = request.arguments.u64().ok_or(GARBAGE)?;
    let count = request.arguments.u32().ok_or(GARBAGE)?;
    list(request, reply, directory, cookie, count, With::Names)
}

/// RFC 1813 3.3.17. The number of bytes of names that are wanted is a hint that is not needed.
pub(super) fn readdirplus(request: &mut Request<'_>, reply: &mut Writer) -> Served {
    let directory = request.directory()?;
    let cookie = Cookie(request.arguments.u64().ok_or(GARBAGE)?);
    let _verifier = request.arguments.u64().ok_or(GARBAGE)?;
    let (_names, count) = (request.arguments.u32().ok_or(GARBAGE)?, request.arguments.u32().ok_or(GARBAGE)?);
    list(request, reply, directory, cookie, count, With::Attributes)
}

fn list(request: &Request<'_>, reply: &mut Writer, directory: FileId, after: Cookie, count: u32, with: With) -> Served {
    let found = request.user().attributes(directory)?;
    let bytes_max = usize::try_from(count).unwrap_or(usize::MAX).min(REPLY_BYTES_MAX);
    reply.u32(Status::Ok as u32);
    let until = reply.len() + bytes_max.saturating_sub(END_BYTES);
    optional(request, reply, Some(&found));
    reply.u64(0);
    let first = reply.len();
    let mut page = Page { request, reply, directory, with, until };
    let at_end = page.fill(after)?;
    if !at_end && reply.len() == first || first > until {
        return Err(Status::TooSmall.into());
    }
    reply.bool(false);
    reply.bool(at_end);
    Done::told()
}

/// A reply about a directory, as it is filled.
struct Page<'a, 'b> {
    request: &'a Request<'b>,
    reply: &'a mut Writer,
    directory: FileId,
    with: With,
    /// Length that the reply may reach.
    until: usize,
}

impl Page<'_, '_> {
    /// Writes entries after `after` until the reply is full. True if those were all.
    fn fill(&mut self, mut after: Cookie) -> Result<bool, Failure> {
        let mut has_told = false;
        for (cookie, name) in [(DOT, b".".as_slice()), (DOT_DOT, b"..")] {
            if after < cookie {
                let found = self.found(name)?;
                let told = ListedEntry { name, ino: found.ino, cookie, attributes: Some(found) };
                if !self.tell(&told) {
                    return Ok(false);
                }
                after = cookie;
            }
        }
        loop {
            let position = if after <= DOT_DOT { Cookie(0) } else { after };
            let bytes = if self.with == With::Names { ENTRY_BYTES } else { ENTRY_PLUS_BYTES };
            // One more than there can be room for.
            let limit = (self.until.saturating_sub(self.reply.len()) / bytes + 1).min(PAGE);
            let page = match self.page(position, limit) {
                // The client continues after the entries written, and comes to the corruption.
                Err(error) if error.kind() == ErrorKind::Corrupt && has_told => return Ok(false),
                page => page?,
            };
            // A short page is not the end: one before corruption is short, too.
            if page.is_empty() {
                return Ok(true);
            }
            for (entry, attributes) in &page {
                let (name, attributes) = (entry.name.as_bytes(), *attributes);
                if !self.tell(&ListedEntry { name, ino: entry.ino, cookie: entry.cookie, attributes }) {
                    return Ok(false);
                }
                (after, has_told) = (entry.cookie, true);
            }
        }
    }

    /// Returns up to `limit` entries after `position`, with attributes if those are asked for.
    fn page(&self, position: Cookie, limit: usize) -> weft_vfs::Result<Vec<(DirEntry, Option<Attributes>)>> {
        let user = self.request.user();
        match self.with {
            With::Names => {
                let entries = user.read_directory(self.directory, position, limit)?;
                Ok(entries.into_iter().map(|entry| (entry, None)).collect())
            }
            With::Attributes => user.read_directory_attributes(self.directory, position, limit),
        }
    }

    /// Returns the attributes of the directory or of the one above it. To a user who may list but
    /// not look up, the directory seems its own parent, as the exported one does to all.
    fn found(&self, name: &[u8]) -> Result<Attributes, Failure> {
        let user = self.request.user();
        let itself = user.attributes(self.directory)?;
        if name == b"." || self.directory == self.request.exported().root {
            return Ok(itself);
        }
        Ok(user.lookup(self.directory, name).map_or(itself, |(found, _)| found))
    }

    /// Writes an entry, if there is room for it.
    fn tell(&mut self, entry: &ListedEntry<'_>) -> bool {
        let (request, reply) = (self.request, &mut *self.reply);
        let begin = reply.len();
        reply.bool(true);
        reply.u64(entry.ino.0);
        reply.opaque(entry.name);
        reply.u64(entry.cookie.0);
        if self.with == With::Attributes {
            optional(request, reply, entry.attributes.as_ref());
            reply.bool(entry.attributes.is_some());
            if let Some(attributes) = &entry.attributes {
                reply.opaque(&request.service.handle(request.exported(), FileId::from(attributes)));
            }
        }
        let fits = reply.len() <= self.until;
        if !fits {
            reply.truncate(begin);
        }
        fits
    }
}
