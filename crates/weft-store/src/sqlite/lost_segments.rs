//! Segment files that are missing or too short for the blocks that rows place in them.

use super::open::Beside;
use super::read::unsigned;
use super::segments::Segments;
use crate::error::{Error, Result};
use crate::finding::{Finding, Outcome, Subject};
use rusqlite::Connection;
use std::collections::BTreeMap;
use std::path::Path;

/// Most files that are named; the rest are only counted.
const FILES_MAX: usize = 100;

/// Describes each lost file of the volume at `path`, held or not.
pub fn lost_segment_files(path: &Path) -> Result<Vec<String>> {
    let volume = Beside::open(path)?;
    let Some(segments) = volume.segments() else { return Ok(Vec::new()) };
    Ok(find_beside_a_mount(&volume.connect()?, &segments)?.into_values().collect())
}

/// Describes each lost file by its number.
pub(super) fn find(connection: &Connection, segments: &Segments) -> Result<BTreeMap<u32, String>> {
    let failed = |source| Error::Sqlite { what: "cannot read the table of segments", source };
    let mut statement = connection.prepare("SELECT id, length FROM segments WHERE live > 0").map_err(failed)?;
    let rows = statement.query_map((), |row| Ok((row.get::<_, u32>(0)?, unsigned(row, 1)?))).map_err(failed)?;
    let mut lost = BTreeMap::new();
    for row in rows {
        let (id, length) = row.map_err(failed)?;
        lost.extend(segments.lost(id, length).map(|why| (id, why)));
    }
    Ok(lost)
}

/// Finds lost files of a volume that another process may change meanwhile: a file whose last block
/// was just deleted is not lost.
pub(super) fn find_beside_a_mount(connection: &Connection, segments: &Segments) -> Result<BTreeMap<u32, String>> {
    let mut lost = find(connection, segments)?;
    if !lost.is_empty() {
        let again = find(connection, segments)?;
        lost.retain(|id, _| again.contains_key(id));
    }
    Ok(lost)
}

/// Returns a finding for each lost file.
pub(super) fn findings(lost: BTreeMap<u32, String>) -> Vec<Finding> {
    let more = lost.len().saturating_sub(FILES_MAX);
    let told = lost.into_values().take(FILES_MAX);
    let told = told.map(|what| Finding::damage(what).about(Subject::SegmentFile));
    told.chain((more > 0).then(|| Finding::more(more, Outcome::Damaged))).collect()
}
