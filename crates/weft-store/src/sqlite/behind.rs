//! Segments that hold more than the database of their volume knows of.
//!
//! After a crash that is ordinary: a commit was on its way. But a database of an older moment looks
//! the same, and what lies there are then blocks that a newer one knows of. So it is neither cut
//! off nor written over by the mount that finds it: its first commit notes that space in `freed`,
//! and has the segments end with a new one; the next mount gives it back.
//!
//! After a clean unmount nothing lies there. So the database is of an older moment than the
//! segments.

use super::layout::Layout;
use super::proof::is_any_behind;
use super::read::unsigned;
use super::segments::{Segments, Tail, Unowned};
use super::sums::SEGMENT;
use crate::error::{Error, Result};
use crate::log::{Behind, DataLoss, behind, needs_log};
use crate::store::Header;
use rusqlite::Connection;

fn failed(source: rusqlite::Error) -> Error {
    Error::Sqlite { what: "cannot read the table of segments", source }
}

/// Returns the place of the next block, by the table of segments.
pub(super) fn tail_of(connection: &Connection) -> Result<Tail> {
    let last = format!("SELECT id, length, {} FROM segments ORDER BY id DESC LIMIT 1", SEGMENT.holds());
    let tail = connection.query_row(&last, (), |row| {
        Ok(match row.get(2)? {
            true => Tail { segment: row.get(0)?, length: unsigned(row, 1)? },
            // Where a segment ends is not known if its row is damaged: the next block goes to
            // one of its own.
            false => Tail { segment: row.get::<_, u32>(0)?.saturating_add(1), length: 0 },
        })
    });
    match tail {
        Err(rusqlite::Error::QueryReturnedNoRows) => Ok(Tail { segment: 1, length: 0 }),
        tail => tail.map_err(failed),
    }
}

/// The treatment of segments that hold more than the database knows of.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It stays until the next mount, if there is any.
    Hold,
    /// It stays for good.
    Keep,
    /// The volume is of different moments: this is why.
    Refuse(DataLoss),
}

/// Judges `segments` of the volume that says `header` of itself.
pub(super) fn judge(
    layout: &Layout,
    header: &Header,
    connection: &Connection,
    segments: Option<&Segments>,
) -> Result<Verdict> {
    let epoch = header.counters.epoch;
    // One that nobody mounted yet has no log.
    let Some(segments) = segments.filter(|_| !needs_log(epoch) && epoch > 0) else { return Ok(Verdict::Hold) };
    let tail = tail_of(connection)?;
    // Where rows of segments are gone, a repair helps.
    if !segments.is_any_behind(tail)? || is_any_behind(connection, tail)? {
        return Ok(Verdict::Hold);
    }
    match behind(&layout.log, header)? {
        Some(Behind::Unknown) => return Ok(Verdict::Hold),
        // Without the log nobody knows: a mount that had none may have crashed, too.
        Some(Behind::Kept) | None => return Ok(Verdict::Keep),
        Some(Behind::Nothing) => {}
    }
    let cause = format!(
        "the database is older than the segments in {}: it ends with commit {}, after which the volume was unmounted \
         cleanly, and they go on behind that",
        segments.directory().display(),
        header.commit.0
    );
    let advice = "put the files of one moment together, or mount with --accept-loss, which keeps the database, and \
                  leaves there what it does not know";
    Ok(Verdict::Refuse(DataLoss::new(cause, advice)))
}

/// Returns the reason that the volume is of different moments, if it is.
pub(super) fn misfit(
    layout: &Layout,
    header: &Header,
    connection: &Connection,
    segments: Option<&Segments>,
) -> Result<Option<String>> {
    match judge(layout, header, connection, segments)? {
        Verdict::Refuse(lost) => Ok(Some(lost.to_string())),
        Verdict::Hold | Verdict::Keep => Ok(None),
    }
}

/// Describes what lies in segments behind the last commit, if the next mount is to hold it.
pub(super) fn held(
    layout: &Layout,
    header: &Header,
    connection: &Connection,
    segments: Option<&Segments>,
) -> Result<Option<String>> {
    let is_held = judge(layout, header, connection, segments)? == Verdict::Hold;
    let Some(segments) = segments.filter(|_| is_held) else { return Ok(None) };
    let tail = tail_of(connection)?;
    if is_any_behind(connection, tail)? {
        return Ok(None);
    }
    Ok(notice(segments, &segments.behind(tail)?))
}

/// Returns a notice about `unowned`; none if there is nothing.
pub(super) fn notice(segments: &Segments, unowned: &[Unowned]) -> Option<String> {
    let bytes: u64 = unowned.iter().map(|unowned| unowned.length).sum();
    (bytes > 0).then(|| {
        format!(
            "{bytes} bytes in {} lie behind the last commit of the database: a crash interrupted a commit, or the \
             database is older than the segments; the first mount keeps them, so that a newer database can be put \
             back after it, and the next one gives the space back",
            segments.directory().display()
        )
    })
}
