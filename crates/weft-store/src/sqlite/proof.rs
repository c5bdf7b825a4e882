//! Proves from the rows of blocks that space is free: those rows alone say where anything lies.
//!
//! A row of `freed`, or a count of `segments`, may be damaged like any other. Space that this
//! process freed is proved by the rows of blocks that went with it; what an earlier one left is
//! compared with all rows there are.

use super::read::unsigned;
use super::segments::{Tail, taken};
use crate::error::{Error, Result};
use rusqlite::{Connection, OptionalExtension};
use std::collections::{BTreeMap, BTreeSet};

/// A row of `freed`: number, segment, place and length.
pub(super) type FreedRow = (i64, u32, u64, u64);

/// The evidence that the rows of blocks give.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Proof {
    /// Rows of `freed` that lie over a block, and that block.
    pub(super) refuted: BTreeMap<i64, u64>,
    /// Segments whose count in `segments` is not what the blocks take.
    pub(super) miscounted: BTreeSet<u32>,
}

fn failed(source: rusqlite::Error) -> Error {
    Error::Sqlite { what: "cannot prove that space is free", source }
}

/// Compares `freed` and the table of segments with all blocks, as of one commit.
pub(super) fn prove(connection: &Connection, freed: &[FreedRow]) -> Result<Proof> {
    connection.execute_batch("BEGIN").map_err(failed)?;
    let proof = compare(connection, freed);
    connection.execute_batch("COMMIT").map_err(failed)?;
    proof
}

fn compare(connection: &Connection, freed: &[FreedRow]) -> Result<Proof> {
    let mut proof = Proof::default();
    let mut ranges =
        freed.iter().map(|(row, segment, start, length)| (*segment, *start, start.saturating_add(*length), *row));
    let mut ranges = ranges.by_ref().collect::<Vec<_>>();
    ranges.sort_unstable();
    // Where the last of the ranges up to each ends, in its segment.
    let reach = ranges.iter().scan((0, 0), |last: &mut (u32, u64), (segment, _, end, _)| {
        *last = if last.0 == *segment { (*segment, last.1.max(*end)) } else { (*segment, *end) };
        Some(last.1)
    });
    let reach = reach.collect::<Vec<_>>();
    let mut live = BTreeMap::<u32, u64>::new();
    let all = "SELECT id, segment, position, length FROM blocks WHERE segment IS NOT NULL";
    let mut statement = connection.prepare(all).map_err(failed)?;
    let mut rows = statement.query(()).map_err(failed)?;
    while let Some(row) = rows.next().map_err(failed)? {
        let read = || Ok((unsigned(row, 0)?, row.get::<_, u32>(1)?, unsigned(row, 2)?, taken(unsigned(row, 3)?)));
        let (block, segment, start, length) = read().map_err(failed)?;
        let end = start.saturating_add(length);
        *live.entry(segment).or_default() += length;
        let mut at = ranges.partition_point(|range| (range.0, range.1) < (segment, end));
        while at > 0 && ranges[at - 1].0 == segment && reach[at - 1] > start {
            at -= 1;
            if ranges[at].2 > start {
                proof.refuted.insert(ranges[at].3, block);
            }
        }
    }
    let mut statement = connection.prepare("SELECT id, live FROM segments").map_err(failed)?;
    let mut rows = statement.query(()).map_err(failed)?;
    while let Some(row) = rows.next().map_err(failed)? {
        let (segment, counted) = (row.get::<_, u32>(0).map_err(failed)?, row.get::<_, i64>(1).map_err(failed)?);
        if u64::try_from(counted).ok() != Some(live.remove(&segment).unwrap_or(0)) {
            proof.miscounted.insert(segment);
        }
    }
    proof.miscounted.extend(live.into_keys());
    Ok(proof)
}

/// True if any block lies behind `tail`.
pub(super) fn is_any_behind(connection: &Connection, tail: Tail) -> Result<bool> {
    let any = "SELECT 1 FROM blocks WHERE segment > ?1 OR (segment = ?1 AND position + length > ?2) LIMIT 1";
    let length = super::read::sql(tail.length);
    let found = connection.query_row(any, (tail.segment, length), |_| Ok(())).optional();
    Ok(found.map_err(failed)?.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_over_a_block_is_not_free() {
        let connection = Connection::open_in_memory().expect("opened");
        connection.execute_batch(&crate::sqlite::schema::statements()).expect("made");
        let blocks = "INSERT INTO blocks (id, refs, length, base, value, segment, position) VALUES \
                      (1, 1, 5000, 0, x'', 1, 4096), (2, 1, 100, 0, x'', 1, 16384), (3, 1, 9000, 0, x'', 2, 0); \
                      INSERT INTO segments (id, length, live) VALUES (1, 16484, 8292), (2, 12288, 12289), (3, 0, 0)";
        connection.execute_batch(blocks).expect("inserted");
        let freed = [
            (1, 1, 0, 4096),
            (2, 1, 0, 4097),
            (3, 1, 12287, 4097),
            (4, 1, 12288, 4096),
            (5, 1, 16483, 1),
            (6, 1, 16484, 100),
            (7, 2, 4096, 1),
            (8, 3, 0, u64::MAX),
            (9, 1, 0, 1 << 40),
        ];
        let proof = prove(&connection, &freed).expect("read");
        assert_eq!(proof.refuted.into_keys().collect::<Vec<_>>(), [2, 3, 5, 7, 9]);
        assert_eq!(proof.miscounted, BTreeSet::from([2]));
        assert!(is_any_behind(&connection, Tail { segment: 2, length: 8999 }).expect("read"));
        assert!(!is_any_behind(&connection, Tail { segment: 2, length: 9000 }).expect("read"));
    }
}
