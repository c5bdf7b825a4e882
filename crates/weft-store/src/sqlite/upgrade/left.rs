//! The write-ahead log that lies beside a database which is to be upgraded.
//!
//! This program's upgrades put nothing there. Those of programs of format 5 did, so that one which
//! was killed may have left the new format in the log and the old one in the header of the
//! database. SQLite reads the log first; programs that look at the header do not.

use super::super::connection::{Access, AtClose, at_close, connect};
use super::super::foreign::Alone;
use super::super::gap::Gap;
use super::super::layout::Layout;
use super::super::open::{format_of, read_header};
use super::super::wal::{Found, Wal};
use super::{WITHOUT_SUMS, failed, unclean};
use crate::error::{Error, Result};
use crate::log::needs_log;
use rusqlite::Connection;

/// Offset of the version of the format in the header of a database.
const VERSION_AT: usize = 60;

/// The format of a database, with its write-ahead log and without.
pub(in crate::sqlite) struct State {
    /// The format by the header of its file.
    pub(in crate::sqlite) alone: u32,
    /// The format as SQLite sees it.
    pub(in crate::sqlite) format: u32,
    log: Found,
}

impl State {
    /// The state of the volume of `layout`. Errors: `Unusable` if it is none.
    pub(in crate::sqlite) fn look(layout: &Layout) -> Result<State> {
        let alone = format_of(layout)?;
        let Some(wal) = Wal::look(&layout.database)? else {
            return Ok(State { alone, format: alone, log: Found::default() });
        };
        let mut firsts = Vec::new();
        let log = wal.frames(u64::MAX, &mut |frame| {
            if frame.page == 1
                && let Some(version) = frame.content().get(VERSION_AT..VERSION_AT + 4)
            {
                firsts.push((frame.number, u32::from_be_bytes(version.try_into().expect("four bytes"))));
            }
            Ok(())
        })?;
        let last = firsts.into_iter().rfind(|(number, _)| *number <= log.committed);
        Ok(State { alone, format: last.map_or(alone, |(_, format)| format), log })
    }

    /// True if commits wait in the log.
    pub(super) fn has_commits(&self) -> bool {
        self.log.committed > 0
    }

    /// True if this program can tell what the log holds: no commits of format 3, whose program may
    /// have more in its intent log, and no damage.
    pub(super) fn is_readable(&self) -> bool {
        self.log.rot.is_none() && (self.format != WITHOUT_SUMS || !self.has_commits())
    }
}

/// Copies the log, which has commits of format 5 or later, into the database of `layout`.
pub(super) fn copy(layout: &Layout) -> Result<()> {
    let alone = Alone::look(layout);
    Gap::find(&alone, layout)?.map_or(Ok(()), |gap| Err(gap.refusal(layout)))?;
    let connection = connect(&layout.database, 64, Access::Shared).map_err(|error| alone.explain(error, layout))?;
    let header = read_header(&connection).map_err(|error| alone.explain(error, layout))?;
    alone.refuse_foreign(&connection, layout)?;
    if needs_log(header.counters.epoch) {
        return Err(unclean(layout));
    }
    refuse_broken(&connection)?;
    connection.execute_batch("PRAGMA synchronous = FULL").map_err(failed)?;
    let is_busy = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |row| row.get::<_, bool>(0));
    if is_busy.map_err(failed)? {
        let what = "is being read by another process; end that, and upgrade it then";
        return Err(Error::Unusable(format!("{} {what}", layout.volume.display())));
    }
    at_close(&connection, AtClose::Copy)?;
    connection.close().map_err(|(_, source)| failed(source))
}

/// Fails if the database is not whole.
pub(super) fn refuse_broken(connection: &Connection) -> Result<()> {
    let whole: String = connection.query_row("PRAGMA quick_check(1)", (), |row| row.get(0)).map_err(failed)?;
    if whole == "ok" {
        return Ok(());
    }
    let advice = "'weft check' of the weft that made it tells more";
    Err(Error::Corrupt(format!("the database is damaged: {whole}; {advice}")))
}
