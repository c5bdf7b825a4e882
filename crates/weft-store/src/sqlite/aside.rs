//! The log of a volume that is about to be opened, looked at before anything of the volume is
//! changed; and copies of what is given up.

use super::behind;
use super::connection::{AtClose, at_close};
use super::layout::{Layout, remove_file};
use super::renew::{Database, renew};
use super::segments::Segments;
use crate::copies::{self, sync_beside};
use crate::error::{Error, Result};
use crate::log::{Loss, misfit};
use crate::store::Header;
use rusqlite::Connection;
use std::path::PathBuf;

/// Sees that the volume with `header` and its log belong together. If not, and the loss is
/// accepted: copies what is given up, and gives the paths of the copies.
pub(super) fn set_aside_misfit(
    layout: &Layout,
    header: &Header,
    connection: &Connection,
    loss: Loss,
) -> Result<Vec<PathBuf>> {
    let Some(lost) = misfit(&layout.log, header)? else { return Ok(Vec::new()) };
    if loss == Loss::Accept {
        return set_aside(layout);
    }
    leave_wal(layout, connection)?;
    Err(Error::Lost(lost.why))
}

/// The loss with the logs of a volume that a mount accepts.
pub(super) struct Lost {
    /// Copies of the logs.
    pub(super) set_aside: Vec<PathBuf>,
    /// True if something of the write-ahead log is lost.
    pub(super) is_wal_lost: bool,
}

impl Lost {
    /// Gives it up though the volume is refused until it is repaired: nothing is repaired while the
    /// logs tell of a loss. Of the write-ahead log the database gets the part that SQLite takes;
    /// the intent log is removed if a mount would use nothing of it. Returns the `refusal`, with
    /// the places of the copies.
    pub(super) fn give_up(
        mut self,
        (layout, header, connection, database): (&Layout, &Header, &Connection, &Database),
        refusal: Error,
    ) -> Result<Error> {
        let segments = Segments::of(layout);
        // Tables that tell may be what is broken.
        let later = behind::misfit(layout, header, connection, segments.as_ref()).unwrap_or_default();
        if later.is_some() && self.set_aside.is_empty() {
            self.set_aside = set_aside(layout)?;
        }
        if self.is_wal_lost {
            renew(connection, database)?;
            let copied = connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)");
            copied.map_err(|source| Error::Sqlite { what: "cannot copy the write-ahead log", source })?;
            leave_wal(layout, connection)?;
        }
        let is_useless = misfit(&layout.log, header)?.is_some_and(|misfit| misfit.is_ahead && !misfit.has_operations);
        if later.is_some() || is_useless {
            remove_file(&layout.log)?;
            sync_beside(&layout.log)?;
        }
        let copies = self.set_aside.iter().map(|copy| copy.display().to_string()).collect::<Vec<_>>();
        Ok(match refusal {
            Error::Corrupt(what) if !copies.is_empty() => Error::Corrupt(format!(
                "{what}; the loss is accepted, so that nothing keeps a repair from that; copies of the logs: {}",
                copies.join(", ")
            )),
            refusal => refusal,
        })
    }
}

/// Has `connection` leave the database as it is when it is closed: that would else write the
/// write-ahead log into the database, and remove it.
pub(super) fn leave_wal(layout: &Layout, connection: &Connection) -> Result<()> {
    // One that SQLite has just made is to be removed.
    let has_frames = layout.wal().metadata().is_ok_and(|wal| wal.len() > 0);
    at_close(connection, if has_frames { AtClose::Leave } else { AtClose::Copy })
}

/// Copies the files that a mount which accepts losses overwrites, the database's write-ahead log
/// and the intent log, to places beside them.
pub(super) fn set_aside(layout: &Layout) -> Result<Vec<PathBuf>> {
    let copies = [&layout.wal(), &layout.log].into_iter().map(|path| copies::copy(path)).collect::<Result<Vec<_>>>()?;
    sync_beside(&layout.log)?;
    Ok(copies.into_iter().flatten().collect())
}
