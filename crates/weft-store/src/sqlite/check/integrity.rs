//! SQLite's own invariants, and what it says where they are broken.

use super::failed;
use crate::error::{Error, Result};
use crate::finding::{Finding, Outcome, Repair};
use rusqlite::Connection;

/// The way out where SQLite cannot read its trees.
pub(super) const ADVICE: &str = Error::MALFORMED_ADVICE;

/// Complaints that are looked for.
pub(super) const COMPLAINTS_MAX: usize = 100;

/// Complaints that are reported; the rest are counted.
const TOLD_MAX: usize = 10;

/// Complaints about an index that its table can make good (`sqlite3BtreeIntegrityCheck` and
/// pragma.c, "integrity_check").
const OF_AN_INDEX: [&str; 3] = [" missing from index ", "wrong # of entries in index ", "non-unique entry in index "];

/// Returns the damage that SQLite finds; nothing if all is whole. A row of its answer may hold
/// several lines.
pub(super) fn complaints(connection: &Connection) -> Result<Vec<String>> {
    let mut statement = connection.prepare(&format!("PRAGMA integrity_check({COMPLAINTS_MAX})")).map_err(failed)?;
    let rows = statement.query_map((), |row| row.get::<_, String>(0)).map_err(failed)?;
    let rows = rows.collect::<rusqlite::Result<Vec<_>>>().map_err(failed)?;
    let lines = rows.iter().flat_map(|row| row.lines());
    // The first line says in which database: there is one.
    let is_complaint = |line: &&str| *line != "ok" && !line.starts_with("*** in database");
    Ok(lines.filter(is_complaint).map(String::from).collect())
}

/// True if a table can make good what `complaint` says of its index.
pub(super) fn is_of_an_index(complaint: &str) -> bool {
    OF_AN_INDEX.iter().any(|words| complaint.contains(words))
}

/// Lines that tell the first of `complaints`, and count the others.
pub(super) fn lines(complaints: &[String]) -> impl Iterator<Item = String> {
    let first = complaints.iter().take(TOLD_MAX).map(|line| format!("database: {line}"));
    let more = complaints.len().saturating_sub(TOLD_MAX);
    first.chain((more > 0).then(|| format!("database: and {more} more")))
}

/// Findings that tell `complaints`, with what to do unless all `is_whole` again.
pub(super) fn findings(complaints: Vec<String>, repair: Repair, is_whole: bool) -> Vec<Finding> {
    let outcome = if is_whole { Outcome::Repaired } else { Outcome::Damaged };
    let of_an_index = |line: &String| is_of_an_index(line);
    let mut told = Vec::new();
    match repair {
        _ if is_whole => {}
        Repair::No if complaints.iter().all(of_an_index) => {}
        Repair::No => told.push(format!(
            "SQLite cannot read all of the database: 'weft check --repair VOLUME' mends it if only its indices are \
             broken; else {ADVICE}"
        )),
        Repair::Yes | Repair::Discard => {
            told.push(format!("SQLite cannot read all of the database, and could not mend it: {ADVICE}"));
        }
    }
    told.extend(lines(&complaints));
    told.into_iter().map(|what| Finding::new(None, what, outcome)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(complaints: &[&str], repair: Repair) -> Vec<String> {
        let complaints = complaints.iter().map(|line| String::from(*line)).collect();
        findings(complaints, repair, false).into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn complaints_are_few_and_come_with_what_to_do() {
        let tree = ["Tree 3 page 4: btreeInitPage() returns error code 11"; 25];
        for repair in [Repair::No, Repair::Yes, Repair::Discard] {
            let told = told(&tree, repair);
            assert_eq!((told.len(), told[11].as_str()), (12, "database: and 15 more"), "{told:?}");
            assert!(told[0].contains("'weft check --salvage VOLUME NEW'"), "{told:?}");
            assert_eq!(told[0].contains("--repair"), repair == Repair::No, "{told:?}");
        }
    }

    #[test]
    fn an_index_is_left_to_a_repair() {
        assert_eq!(
            told(&["row 3 missing from index by_name"], Repair::No),
            ["database: row 3 missing from index by_name"]
        );
    }
}
