//! A database and an intent log of different moments.
//!
//! A log that is ahead of its database names commits which the database lacks. The commit of a
//! repair would have the number of one of them, and the next mount would take it for that: what was
//! lost would be forgotten. So nothing is repaired there, be it only the schema, the indices or the
//! list of free pages, until the files of one moment lie together or the loss was accepted.

use super::{Checker, failed};
use crate::batch::Counters;
use crate::error::Result;
use crate::finding::{CheckOptions, Finding, Repair};
use crate::log::{epoch_as_of, misfit};
use crate::sqlite::layout::Layout;
use crate::sqlite::open::read_header;
use crate::sqlite::read::{self, sql};
use crate::sqlite::sums::VOLUME;
use crate::store::Header;
use rusqlite::Connection;

/// Commits that are looked through behind the one that the volume's row names.
const COMMITS_MAX: usize = 4096;

/// Reports if the volume of `layout`, which `connection` sees, and its intent log do not belong
/// together, and returns the `options` with which the check goes on then.
pub(super) fn compare(
    layout: &Layout,
    connection: &Connection,
    options: CheckOptions,
) -> Result<(CheckOptions, Vec<Finding>)> {
    // Without that row nothing is repaired either.
    let Ok(header) = read_header(connection) else { return Ok((options, Vec::new())) };
    let Some(misfit) = misfit(&layout.log, &newest(layout, connection, header)?)? else {
        return Ok((options, Vec::new()));
    };
    let is_held_back = misfit.is_ahead && options.repair != Repair::No;
    let end = if is_held_back { "; nothing is repaired before that" } else { "" };
    let finding = Finding::damage(misfit.why + end);
    let repair = if is_held_back { Repair::No } else { options.repair };
    Ok((CheckOptions { repair, ..options }, vec![finding]))
}

/// Returns the header of the volume as of its last commit: its row may be an older one.
pub(in crate::sqlite) fn newest(layout: &Layout, connection: &Connection, header: Header) -> Result<Header> {
    let later = read::commits(connection, header.commit.next(), COMMITS_MAX).unwrap_or_default();
    let Some(last) = later.last() else { return Ok(header) };
    // No commit says of which mount it is.
    let epoch = epoch_as_of(&layout.log, &header, last.number)?.unwrap_or(0).max(header.counters.epoch);
    let counters = Counters { op: last.op, epoch, ..header.counters };
    Ok(Header { commit: last.number, counters, ..header })
}

impl Checker<'_> {
    /// Brings the volume's row up to the last commit if it is an older one. All else that it counts
    /// is counted later.
    pub(super) fn renew_row(&mut self) -> Result<()> {
        let header = read_header(&self.connection)?;
        let newest = newest(&self.layout, &self.connection, header.clone())?;
        if self.elsewhere.is_some() || newest.commit == header.commit {
            return Ok(());
        }
        let (ours, last) = (header.commit.0, newest.commit.0);
        let what =
            format!("the volume's own row is older than its database: it is of commit {ours}, the last is {last}");
        let outcome = self.repaired();
        self.findings.push(Finding::new(None, what, outcome));
        let statement = "UPDATE volume SET number = ?1, op = ?2, epoch = ?3";
        let values = (sql(last), sql(newest.counters.op.0), sql(newest.counters.epoch));
        self.connection.execute(statement, values).map_err(failed)?;
        VOLUME.seal(&self.connection)
    }
}
