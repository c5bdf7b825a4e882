//! Detects a database that is older than the write-ahead log beside it.
//!
//! SQLite goes on from the start of its log, in another *life* of it, only once the database has
//! all of it, durably. So the first commit that a log holds follows directly one that the database
//! has without it, at any moment, wherever a crash falls. A database from a backup that lacks
//! commits in between does not tell by itself: with the log it names the newest commit, and the
//! pages below those of the log are of the older one.
//!
//! Each commit writes the volume's row, so that the first version of it in the log is of the first
//! commit there. A commit of another program, or of an upgrade, leaves the number as it was.

use super::foreign::Alone;
use super::layout::Layout;
use super::salvage;
use super::wal::{Found, Wal};
use crate::error::{Error, Result};
use crate::row::CommitNo;
use crate::store::Header;

/// The page of the first table that is made, in a new database and in a rebuilt one.
pub(super) const VOLUME_PAGE: u32 = 2;

/// Commits that neither the database nor its write-ahead log has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gap {
    /// The last commit of the database without its log.
    last: CommitNo,
    /// The first commit of the log.
    first: CommitNo,
}

impl Gap {
    /// The gap between `alone`, the database of `layout` by itself, and its write-ahead log, if
    /// there is one.
    pub(super) fn find(alone: &Alone, layout: &Layout) -> Result<Option<Gap>> {
        Ok(Gap::behind(alone, first_in_log(layout)?))
    }

    /// The same, if the log begins with the commit of `first`.
    pub(super) fn behind(alone: &Alone, first: Option<Header>) -> Option<Gap> {
        let (uuid, last) = alone.newest()?;
        Gap::between(last, first.filter(|first| first.uuid == *uuid)?.commit)
    }

    /// The gap between the last commit of a database and the first one of its log.
    pub(super) fn between(last: CommitNo, first: CommitNo) -> Option<Gap> {
        (first > last.next()).then_some(Gap { last, first })
    }

    /// Describes the gap and the volume.
    fn what(self, layout: &Layout) -> String {
        format!(
            "the database {} is older than its write-ahead log {}: it is of commit {}, and the log goes on after commit {}",
            layout.database.display(),
            layout.wal().display(),
            self.last.0,
            self.first.0 - 1
        )
    }

    /// The refusal of the volume of `layout`.
    pub(super) fn refusal(self, layout: &Layout) -> Error {
        Error::Lost(format!(
            "{}; put the files of one moment together; without them 'weft check --salvage VOLUME NEW' brings what the \
             database has by itself to a new volume, and 'weft mount --accept-loss' goes on with that and keeps copies \
             of the logs",
            self.what(layout)
        ))
    }

    /// Says that the log was given up.
    pub(super) fn given_up(self, layout: &Layout) -> String {
        format!("{}, which is not used", self.what(layout))
    }

    /// Says why a log is not of the moment of the database.
    pub(super) fn why(self) -> String {
        format!("it goes on after commit {}, and the database is of commit {}", self.first.0 - 1, self.last.0)
    }
}

/// The row of the volume as of the first commit in the write-ahead log of `layout`, if that can be
/// told.
pub(super) fn first_in_log(layout: &Layout) -> Result<Option<Header>> {
    Wal::look(&layout.database)?.map_or(Ok(None), |wal| Ok(scan(&wal)?.1))
}

/// Looks at all of `wal`; the row of the volume as of the first commit in it, if that can be told.
pub(super) fn scan(wal: &Wal) -> Result<(Found, Option<Header>)> {
    let mut first = None;
    let found = wal.frames(u64::MAX, &mut |frame| {
        if frame.page == VOLUME_PAGE && first.is_none() {
            first = Some((frame.number, salvage::volume_in(frame.content())));
        }
        Ok(())
    })?;
    let first = first.filter(|(number, _)| *number <= found.committed).and_then(|(_, volume)| volume);
    Ok((found, first))
}
