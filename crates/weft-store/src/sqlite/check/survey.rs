//! All invariants that need no content to be seen, of a volume that is only read: for a scrub,
//! which holds nothing, and for a conversion, which must not pass damage on.

use super::damaged::{Offender, damaged_rows, offenders};
use super::rules::{COUNTERS, Rule, SCRATCH, VALUES};
use super::{blocks, content, failed, gone, history, names};
use crate::error::{Error, Result};
use crate::sqlite::digests::Rows;
use crate::sqlite::read;
use crate::store::{BlockHome, Header, path_to};
use crate::{CommitNo, Ino};
use rusqlite::Connection;

/// Takes back what [`SCRATCH`] makes.
const SWEEP: &str = "DROP TABLE reached; DROP TABLE names_of; DROP TABLE in_directory; DROP TABLE content_of; \
    DROP TABLE refs_of; DROP TABLE bad";

/// Up to `limit` of what breaks an invariant. `connection` should be in a transaction, so that all
/// is as one commit left it. Rows that are damaged or gone upset much else, which is not told then.
pub(in crate::sqlite) fn survey(connection: &Connection, header: &Header, limit: usize) -> Result<Vec<Offender>> {
    let mut found = damaged_rows(connection, limit)?;
    if found.is_empty() {
        connection.execute_batch(SCRATCH).map_err(failed)?;
        let counts = [names::REACH, names::COUNT, content::SUM, blocks::REFS];
        counts.iter().try_for_each(|count| connection.execute_batch(count)).map_err(failed)?;
        let segments: &[Rule] = if header.options.home == BlockHome::Segments { blocks::SEGMENTS } else { &[] };
        let rules = [VALUES, names::ENTRIES, names::LINKS, content::RULES, blocks::BLOCKS, segments, COUNTERS];
        let rules = rules
            .into_iter()
            .flatten()
            .filter(|rule| !rule.is_note)
            .chain([&gone::COMMITS, &gone::LAST_COMMIT])
            .chain(history::rules());
        found = offenders(connection, rules, limit)?;
        connection.execute_batch(SWEEP).map_err(failed)?;
        found.extend(commits(connection, header)?.into_iter().map(Offender::of_volume));
    }
    Ok(found)
}

/// Returns the errors in what commits say of the tree, and of each other.
pub(super) fn commits(connection: &Connection, header: &Header) -> Result<Vec<String>> {
    if !header.options.digests {
        return Ok(Vec::new());
    }
    let mut wrong = Vec::new();
    let commits = read::commits(connection, CommitNo(0), usize::MAX)?;
    let root = read::digest_of(connection, Ino::ROOT)?;
    let last = commits.iter().find(|commit| commit.number == header.commit);
    if last.is_some_and(|last| last.root != root) {
        wrong.push(format!("commit {}, the last one, is not of this tree", header.commit.0));
    }
    for pair in commits.windows(2) {
        if pair[1].number == pair[0].number.next() && pair[1].previous != pair[0].digest() {
            wrong.push(format!("commit {} does not follow from the one before", pair[1].number.0));
        }
    }
    Ok(wrong)
}

/// A path to what a survey found, of inode `ino` and of `name` in it.
pub(in crate::sqlite) fn path_of(connection: &Connection, ino: i64, name: Option<&[u8]>) -> Result<Vec<u8>> {
    let rows = Rows::of(connection);
    let mut path = path_to(Ino(ino.unsigned_abs()), |ino| crate::overlay::Snapshot::names_of(&rows, ino))?;
    if let Some(name) = name {
        if !path.ends_with(b"/") {
            path.push(b'/');
        }
        path.extend(name);
    }
    Ok(path)
}

/// Refuses to copy a volume that breaks an invariant: what is damaged would look as good as any
/// afterwards, and what is gone as if it had never been.
pub(in crate::sqlite) fn refuse_damage(connection: &Connection, header: &Header) -> Result<()> {
    refuse(connection, survey(connection, header, 1)?)
}

/// The same of rows that are damaged or gone alone.
pub(in crate::sqlite) fn refuse_damaged_rows(connection: &Connection) -> Result<()> {
    refuse(connection, damaged_rows(connection, 1)?)
}

fn refuse(connection: &Connection, found: Vec<Offender>) -> Result<()> {
    let Some(Offender { ino, name, what, .. }) = found.into_iter().next() else { return Ok(()) };
    let path = ino.map(|ino| path_of(connection, ino, name.as_deref())).transpose()?;
    let of = path.map(|path| format!("{}: ", String::from_utf8_lossy(&path))).unwrap_or_default();
    Err(Error::Corrupt(format!("{of}{what}; 'weft check' tells all that is damaged")))
}
