//! A database written anew without the pages that nothing is in.
//!
//! SQLite keeps the pages of rows that went for those that come: its file never gets smaller by
//! itself. The rows stay as they are, with their sums, so that damage stays what it is; but nothing
//! is written anew that is known to be damaged, as what a page held before may be of help then.

use super::aside::leave_wal;
use super::check::refuse_damage;
use super::convert::refuse_waiting_operations;
use super::foreign::Alone;
use super::held::Held;
use super::layout::Layout;
use super::lost_wal;
use super::medium::refuse_read_only;
use super::open::{connect, hold, read_header};
use super::read::unsigned;
use super::replacing::Rewriting;
use crate::error::{Error, Result};
use crate::files;
use crate::finding::Progress;
use parking_lot::Mutex;
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, InterruptHandle};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Bytes that are to stay free beside the new database.
const SPARE: u64 = 1 << 20;

/// The sizes of a database that was written anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compacted {
    /// Bytes of its file before.
    pub before: u64,
    /// Bytes of its file now.
    pub after: u64,
}

/// A way for another thread to end a compaction, which leaves the volume as it was.
#[derive(Default)]
pub struct Stop(Mutex<Stopping>);

#[derive(Default)]
struct Stopping {
    is_asked: bool,
    working: Option<InterruptHandle>,
}

impl Stop {
    /// Ends it, or the next one.
    pub fn now(&self) {
        let mut stopping = self.0.lock();
        stopping.is_asked = true;
        stopping.working.iter().for_each(InterruptHandle::interrupt);
    }

    /// Has that end what `connection` does from now on.
    fn watch(&self, connection: &Connection) -> Result<()> {
        let mut stopping = self.0.lock();
        stopping.working = Some(connection.get_interrupt_handle());
        drop(stopping);
        self.refuse()
    }

    /// Fails if it is to end: only what SQLite is at work on can be interrupted.
    fn refuse(&self) -> Result<()> {
        if self.0.lock().is_asked { Err(Error::Unusable("it was ended".into())) } else { Ok(()) }
    }
}

fn failed(source: rusqlite::Error) -> Error {
    Error::Sqlite { what: "cannot write the database anew", source }
}

/// Writes the database of the volume at `path` anew, which must not be mounted and must have been
/// unmounted cleanly, so that its file is as small as its rows allow. Errors: `Unusable` if it was
/// not, or there is too little space; `Corrupt` if it is damaged. It stays as it was then.
pub fn compact(path: &Path, stop: &Stop, progress: &mut dyn FnMut(Progress)) -> Result<Compacted> {
    let (layout, _rights) = Layout::enter(path)?;
    refuse_read_only(&layout)?;
    let _hold = hold(&layout)?;
    lost_wal::refusal(&layout, &layout)?.map_or(Ok(()), Err)?;
    let alone = Alone::look(&layout);
    let old = files::open(files::options().read(true), &layout.database);
    let old = old.map_err(|source| Error::Io { what: "cannot open", path: layout.database.clone(), source })?;
    let connection = connect(&layout.database, 64)?;
    leave_wal(&layout, &connection)?;
    stop.watch(&connection)?;
    let header = read_header(&connection)?;
    alone.refuse_foreign(&connection, &layout)?;
    refuse_waiting_operations(&layout, &header)?;
    progress(Progress { step: "verifying rows", done: 0, total: 1 });
    refuse_damage(&connection, &header)?;
    progress(Progress { step: "verifying rows", done: 1, total: 1 });
    empty_log(&layout, &connection)?;
    refuse_too_little_space(&layout, &connection)?;
    let before = length(&layout.database)?;
    let rewriting = Rewriting { by: "a compaction", suffix: "-compact" };
    let fill = |new: &Path, progress: &mut dyn FnMut(Progress)| {
        progress(Progress { step: "writing rows", done: 0, total: 1 });
        stop.refuse()?;
        write_anew(connection, new)?;
        stop.refuse()?;
        progress(Progress { step: "writing rows", done: 1, total: 1 });
        Ok(())
    };
    rewriting.replace((&layout, &old), fill, progress)?;
    Ok(Compacted { before, after: length(&layout.database)? })
}

/// Has the database hold all that was committed.
fn empty_log(layout: &Layout, connection: &Connection) -> Result<()> {
    connection.execute_batch("PRAGMA synchronous = FULL").map_err(failed)?;
    let is_busy = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |row| row.get::<_, bool>(0));
    if is_busy.map_err(failed)? {
        let what = "is being read by another process; end that, and compact it then";
        return Err(Error::Unusable(format!("{} {what}", layout.volume.display())));
    }
    Ok(())
}

fn refuse_too_little_space(layout: &Layout, connection: &Connection) -> Result<()> {
    let pragma =
        |name: &str| connection.query_row(&format!("PRAGMA {name}"), (), |row| unsigned(row, 0)).map_err(failed);
    let pages = pragma("page_count")?.saturating_sub(pragma("freelist_count")?);
    let needed = pages.saturating_mul(pragma("page_size")?).saturating_add(SPARE);
    let free = layout.space()?.bytes_free;
    if free >= needed {
        return Ok(());
    }
    Err(Error::Unusable(format!(
        "{} needs {needed} bytes of free space beside it to be written anew, and has {free}",
        layout.volume.display()
    )))
}

/// Writes the database of `connection`, and closes that, into the empty file `new`.
fn write_anew(connection: Connection, new: &Path) -> Result<()> {
    let held = Held::at(new)?;
    // Names of files are bytes.
    let into = ToSqlOutput::Borrowed(ValueRef::Text(held.path.as_os_str().as_bytes()));
    connection.execute("VACUUM INTO ?1", (into,)).map_err(|error| failed(held.explain(error)))?;
    connection.close().map_err(|(_, source)| failed(source))?;
    // As every volume has it: opened so, it is in the mode of a write-ahead log.
    let connection = connect(new, 8)?;
    let copied = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |row| row.get::<_, bool>(0));
    if copied.map_err(failed)? {
        return Err(Error::Bug("somebody reads a database that is not there yet".into()));
    }
    connection.close().map_err(|(_, source)| failed(source))
}

fn length(database: &Path) -> Result<u64> {
    let metadata = database.metadata();
    metadata.map(|metadata| metadata.len()).map_err(|source| Error::Io {
        what: "cannot look at",
        path: database.into(),
        source,
    })
}
