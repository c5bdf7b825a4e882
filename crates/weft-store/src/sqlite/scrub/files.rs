//! A look at the database file and the write-ahead log of a volume that may be mounted.
//!
//! Nothing is held meanwhile, so what looks like damage counts only if nothing has moved since. A
//! file of the database is opened and closed here, which drops the locks that this process has on
//! it: no connection may be open.

use crate::error::{Error, Result};
use crate::files;
use crate::sqlite::foreign::Alone;
use crate::sqlite::free_list;
use crate::sqlite::gap::Gap;
use crate::sqlite::layout::beside;
use crate::sqlite::open::Beside;
use crate::sqlite::pages;
use crate::sqlite::waiting::is_held;
use crate::sqlite::wal::{End, Wal};
use std::io::{ErrorKind, Read};
use std::path::Path;

/// Number of looks at files that move meanwhile.
const TRIES: u32 = 4;

/// Says, in a line, if a write-ahead log is not of the state of the database beside it, or not the
/// one that the mount writes.
pub(super) fn foreign_wal(volume: &Beside) -> Result<Option<String>> {
    let layout = &volume.layout;
    let mut told = None;
    for _ in 0..TRIES {
        let found = if is_held(layout) { other_wal(volume)? } else { wal_of_another_state(volume) };
        // A mount may have come or gone meanwhile.
        if found.is_none() || found == told {
            return Ok(found);
        }
        told = found;
    }
    Ok(None)
}

/// The same of a volume that nobody has mounted.
fn wal_of_another_state(volume: &Beside) -> Option<String> {
    let layout = &volume.layout;
    let alone = Alone::look(layout);
    if let Ok(Some(gap)) = Gap::find(&alone, layout) {
        return Some(gap.refusal(layout).to_string());
    }
    let connection = volume.connect().ok()?;
    match alone.refuse_foreign(&connection, layout) {
        Err(Error::Lost(what)) => Some(what),
        // What else is damaged is told by what reads it.
        Ok(()) | Err(_) => None,
    }
}

/// The same of a mounted one, whose index in memory tells where the log ends and by which sums.
fn other_wal(volume: &Beside) -> Result<Option<String>> {
    let layout = &volume.layout;
    let Some(end) = index(&layout.database)? else { return Ok(None) };
    let has_end = Wal::look(&layout.database)?.map_or(Ok(false), |wal| wal.has(&end))?;
    if has_end || index(&layout.database)? != Some(end) {
        return Ok(None);
    }
    Ok(Some(format!(
        "the write-ahead log {} is not the one that the mount writes, which was replaced or written over: copy what \
         you need from the mount, then unmount it, and see what 'weft check' tells of the volume",
        layout.wal().display()
    )))
}

/// The end of the log by its index, which lies in a file that all processes map (SQLite's
/// `WalIndexHdr`, in the byte order of the machine). None if there is no such file, nothing in the
/// log, or the index is being written.
fn index(database: &Path) -> Result<Option<End>> {
    let path = beside(database, "-shm");
    let io = |source| Error::Io { what: "cannot read", path: path.clone(), source };
    let mut file = match files::open(files::options().read(true), &path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        file => file.map_err(io)?,
    };
    // It is there twice.
    let mut bytes = [0; 96];
    match file.read_exact(&mut bytes) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
        read => read.map_err(io)?,
    }
    let (header, again) = bytes.split_at(48);
    let number = |at: usize| u32::from_ne_bytes(header[at..at + 4].try_into().expect("four bytes"));
    let is_begun = header[12] != 0;
    if header != again || !is_begun || number(16) == 0 {
        return Ok(None);
    }
    let page_bytes = match u16::from_ne_bytes([header[14], header[15]]) {
        1 => 65536,
        bytes => usize::from(bytes),
    };
    let salts = header[32..40].try_into().expect("eight bytes");
    Ok(Some(End { frame: number(16), page_bytes, salts, sums: [number(24), number(28)] }))
}

/// Describes, in a line, the damage to the list of free pages of the database, if that can be told.
pub(super) fn free_pages(volume: &Beside) -> Result<Option<String>> {
    let (database, wal) = (&volume.layout.database, volume.layout.wal());
    let io = |source| Error::Io { what: "cannot read", path: database.clone(), source };
    let file = files::open(files::options().read(true), database).map_err(io)?;
    let state = || -> Result<_> {
        let is_copied = wal.metadata().map_or(true, |wal| wal.len() == 0);
        Ok((is_copied, pages::header(&file).map_err(io)?))
    };
    for _ in 0..TRIES {
        let before = state()?;
        let found = free_list::damage(&file, database, before.0);
        // A mount takes the seal away before it writes, and the count in it moves with the list.
        if state()? == before {
            return found;
        }
    }
    Ok(None)
}
