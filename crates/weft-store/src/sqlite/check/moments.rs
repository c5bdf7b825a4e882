//! A database and an intent log of different moments.
//!
//! A log that is ahead of its database names commits which the database lacks. The commit of a
//! repair would have the number of one of them, and the next mount would take it for that: what was
//! lost would be forgotten. So nothing is repaired there, be it only the schema, the indices or the
//! list of free pages, until the files of one moment lie together or the loss was accepted.

use crate::error::Result;
use crate::finding::{CheckOptions, Finding, Outcome, Repair};
use crate::log::misfit;
use crate::sqlite::layout::Layout;
use crate::sqlite::open::read_header;
use crate::sqlite::read;
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
    let Some(misfit) = misfit(&layout.log, &newest(connection, header))? else { return Ok((options, Vec::new())) };
    let is_held_back = misfit.is_ahead && options.repair != Repair::No;
    let end = if is_held_back { "; nothing is repaired before that" } else { "" };
    let finding = Finding { path: None, what: misfit.why + end, outcome: Outcome::Damaged };
    let repair = if is_held_back { Repair::No } else { options.repair };
    Ok((CheckOptions { repair, ..options }, vec![finding]))
}

/// Returns the header of the volume as of its last commit: its row may be an older one, which a
/// repair recounts.
fn newest(connection: &Connection, header: Header) -> Header {
    let later = read::commits(connection, header.commit.next(), COMMITS_MAX).unwrap_or_default();
    match later.last() {
        Some(last) => {
            Header { commit: last.number, counters: crate::Counters { op: last.op, ..header.counters }, ..header }
        }
        None => header,
    }
}
