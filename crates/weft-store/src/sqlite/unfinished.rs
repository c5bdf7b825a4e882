//! Volumes that are not whole yet: remains of an interrupted `weft init`, a database without tables
//! and nothing else, and volumes that are being received, whose database is no volume's by its
//! header until all is there.

use super::file_header::{APPLICATION_ID_AT, FileHeader, MAGIC};
use super::layout::Layout;
use super::open::{connect, hold};
use super::schema::APPLICATION_ID;
use crate::FORMAT;
use crate::error::{Error, Result};
use crate::files;
use crate::store::BlockHome;
use rusqlite::Connection;
use std::io::{ErrorKind, Read};
use std::path::Path;

/// The application id of a database that is no volume's yet.
pub(super) const UNFINISHED: u32 = 0;

/// Bytes of the database until its tables are copied into it, at the end.
const BYTES_MAX: u64 = 4096;

/// The refusal of the volume of `layout`, if it was not made to its end, and nothing can be in it.
pub(super) fn refusal(layout: &Layout) -> Option<Error> {
    let segments = layout.segments.as_ref()?;
    let is_empty = std::fs::read_dir(segments).is_ok_and(|mut entries| entries.next().is_none());
    let is_used = [&layout.log, &layout.hold].into_iter().any(|path| path.symlink_metadata().is_ok());
    (is_empty && !is_used && has_no_tables(layout)).then(|| {
        let advice = "is what an interrupted 'weft init' left; remove it and make the volume again";
        Error::Unusable(format!("{} {advice}", layout.volume.display()))
    })
}

fn has_no_tables(layout: &Layout) -> bool {
    let Ok(file) = files::open(files::options().read(true), &layout.database) else { return false };
    let mut start = Vec::new();
    let is_short = file.take(BYTES_MAX + 1).read_to_end(&mut start).is_ok_and(|read| read as u64 <= BYTES_MAX);
    is_short && start.iter().skip(APPLICATION_ID_AT).take(4).all(|byte| *byte == 0)
}

/// True if the file of the database is one of SQLite's.
fn is_database(layout: &Layout) -> bool {
    let mut start = [0; MAGIC.len()];
    let file = files::open(files::options().read(true), &layout.database);
    file.is_ok_and(|mut file| file.read_exact(&mut start).is_ok()) && start == *MAGIC
}

/// True if nothing can be in the volume of `layout`, which lies where only volumes lie that are
/// not whole: it was begun, and not so far that it had tables.
pub(super) fn is_untouched(layout: &Layout) -> bool {
    let has_log = layout.log.symlink_metadata().is_ok();
    let is_without_blocks = layout.segments.as_ref().is_none_or(|segments| {
        std::fs::read_dir(segments)
            .map_or_else(|error| error.kind() == ErrorKind::NotFound, |mut all| all.next().is_none())
    });
    let is_without_tables = match layout.database.symlink_metadata() {
        Ok(database) => database.len() == 0 || is_database(layout) && has_no_tables(layout),
        Err(_) => true,
    };
    !has_log && is_without_blocks && is_without_tables
}

/// True if the volume of `layout` is being received or converted: its database has all that a
/// volume's has but its mark.
pub(super) fn is_marked(layout: &Layout) -> bool {
    let file = files::open(files::options().read(true), &layout.database);
    matches!(file.ok().and_then(FileHeader::read), Some(FileHeader { application_id: UNFINISHED, format: FORMAT }))
}

/// The refusal of the volume of `layout`, which is marked so.
pub(super) fn refuse_marked(layout: &Layout) -> Error {
    let what = "is not a Weft volume yet: 'weft receive' or 'weft convert' is making it, or ended early; receive the \
                same stream again, which goes on there, or remove it";
    Error::Unusable(format!("{} {what}", layout.volume.display()))
}

fn mark(connection: &Connection, id: u32) -> Result<()> {
    let failed = |source| Error::Sqlite { what: "cannot mark the database", source };
    connection.pragma_update(None, "application_id", id).map_err(failed)?;
    connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").map_err(failed)
}

/// The error that the volume at `path`, which was just made, is not there.
pub(super) fn gone(path: &Path) -> Error {
    Error::Unusable(format!("{} was just made, and is gone or another one", path.display()))
}

/// The files of the volume at `path`, which is being made.
pub(super) fn layout(path: &Path) -> Layout {
    Layout::of(path, if path.is_dir() { BlockHome::Segments } else { BlockHome::Database })
}

/// Has the volume at `path`, which was marked so and is closed, be one again, durably.
pub(super) fn finish(path: &Path) -> Result<()> {
    let layout = layout(path);
    let _hold = hold(&layout)?;
    let connection = connect(&layout.database, 8)?;
    let failed = |source| Error::Sqlite { what: "cannot finish the database", source };
    connection.execute_batch("PRAGMA synchronous = FULL; PRAGMA wal_checkpoint(TRUNCATE)").map_err(failed)?;
    mark(&connection, APPLICATION_ID)?;
    connection.close().map_err(|(_, source)| failed(source))
}
