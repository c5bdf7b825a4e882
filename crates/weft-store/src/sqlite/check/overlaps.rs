//! Versions of extents that say of one byte, as of one commit, that it lies in two blocks.
//!
//! Each row may be whole and still contradict another. Extents are looked at in the order of their
//! places: those that hold the byte where the next one begins must be of different commits, so each
//! is compared with its neighbours in the order of commits alone.

use super::rules::{Rule, rule};
use super::{Checker, failed};
use crate::error::Result;
use crate::finding::Repair;
use rusqlite::Row;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::ops::Range;

/// All extents of files that have some of the past. Those of the present are compared with each
/// other elsewhere.
pub(super) const ALL: &str = "SELECT ino, start, length, since, until, fork FROM extents_history \
    WHERE typeof(ino) = 'integer' AND typeof(start) = 'integer' AND typeof(length) = 'integer' \
    AND length > 0 AND since < until \
    UNION ALL SELECT ino, start, length, since, 9223372036854775807, NULL FROM extents \
    WHERE ino IN (SELECT ino FROM extents_history) ORDER BY ino, start";

const RULE: Rule = rule(
    "SELECT ino, NULL, printf('versions of its blocks at byte %s, of commits %s to %s, contradict each other', \
     start, since, until - 1) FROM doubled ORDER BY ino, start, since",
    &["DELETE FROM extents_history WHERE (fork, ino, start, until) IN (SELECT fork, ino, start, until FROM doubled)"],
);

/// An extent as of some commits; it is of the past if it is filed.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Version {
    fork: Option<i64>,
    ino: i64,
    bytes: Range<i64>,
    commits: Range<i64>,
}

impl Version {
    /// Reads a row of file, place, length, commits and fork.
    fn read(row: &Row<'_>) -> rusqlite::Result<Version> {
        let (start, length) = (row.get::<_, i64>(1)?, row.get::<_, i64>(2)?);
        let (bytes, commits) = (start..start.saturating_add(length), row.get(3)?..row.get(4)?);
        Ok(Version { fork: row.get(5)?, ino: row.get(0)?, bytes, commits })
    }
}

/// Extents of one file that hold the byte that was looked at last.
#[derive(Debug, Default)]
struct Overlaps {
    ino: i64,
    /// By their first commits: no two of them share one.
    held: BTreeMap<i64, Version>,
    /// Their ends, with their first commits.
    ends: BinaryHeap<Reverse<(i64, i64)>>,
}

impl Overlaps {
    /// Takes the next extent, in the order of files and places. Returns the one of the past of it
    /// and another that contradicts it, if there is one.
    fn take(&mut self, next: Version) -> Option<Version> {
        if next.ino != self.ino {
            *self = Overlaps { ino: next.ino, ..Overlaps::default() };
        }
        while let Some(Reverse((end, since))) = self.ends.peek().copied()
            && end <= next.bytes.start
        {
            self.ends.pop();
            if self.held.get(&since).is_some_and(|held| held.bytes.end == end) {
                self.held.remove(&since);
            }
        }
        let before = self.held.range(..next.commits.start).next_back();
        let before = before.filter(|(_, held)| held.commits.end > next.commits.start);
        let other = before.or_else(|| self.held.range(next.commits.clone()).next());
        if let Some((_, other)) = other {
            return Some(if next.fork.is_some() { next } else { other.clone() });
        }
        self.ends.push(Reverse((next.bytes.end, next.commits.start)));
        self.held.insert(next.commits.start, next);
        None
    }
}

impl Checker<'_> {
    /// Reports versions of extents that contradict others, and removes them if asked for.
    pub(super) fn overlaps(&mut self) -> Result<()> {
        {
            let mut all = self.connection.prepare(ALL).map_err(failed)?;
            let mut put = self.connection.prepare("INSERT INTO doubled VALUES (?1, ?2, ?3, ?4, ?5)").map_err(failed)?;
            let mut rows = all.query(()).map_err(failed)?;
            let mut overlaps = Overlaps::default();
            while let Some(row) = rows.next().map_err(failed)? {
                // What cannot be read so is damaged, and reported as that.
                let Ok(version) = Version::read(row) else { continue };
                if let Some(Version { fork: Some(fork), ino, bytes, commits }) = overlaps.take(version) {
                    put.execute((fork, ino, bytes.start, commits.start, commits.end)).map_err(failed)?;
                }
            }
        }
        let rule = if self.options.repair == Repair::Discard { RULE } else { RULE.only_told() };
        self.apply_rule(&rule)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(bytes: Range<i64>, commits: Range<i64>) -> Version {
        Version { fork: Some(0), ino: 16, bytes, commits }
    }

    /// Counts those of `versions` that contradict one before.
    fn count(versions: &[(Range<i64>, Range<i64>)]) -> usize {
        let mut overlaps = Overlaps::default();
        versions.iter().filter_map(|(bytes, commits)| overlaps.take(version(bytes.clone(), commits.clone()))).count()
    }

    #[test]
    fn versions_that_share_a_byte_in_a_commit_are_found() {
        assert_eq!(count(&[(0..64, 1..3), (0..64, 3..9), (64..128, 1..9)]), 0);
        assert_eq!(count(&[(0..64, 1..4), (0..64, 3..9)]), 1);
        assert_eq!(count(&[(0..64, 3..9), (4..8, 1..4)]), 1);
        assert_eq!(count(&[(0..64, 5..6), (8..16, 1..9), (16..32, 1..5), (16..32, 5..7)]), 2);
    }

    #[test]
    fn what_ends_before_the_next_begins_does_not_count() {
        assert_eq!(count(&[(0..4, 1..9), (4..8, 1..9), (8..12, 2..3), (8..12, 3..4)]), 0);
        assert_eq!(count(&[(0..64, 1..2), (0..4, 2..9), (4..64, 2..9), (63..64, 1..2)]), 1);
    }

    #[test]
    fn of_two_the_one_of_the_past_is_told() {
        let mut overlaps = Overlaps::default();
        assert_eq!(overlaps.take(version(0..64, 1..4)), None);
        let now = Version { fork: None, ..version(0..64, 3..i64::MAX) };
        assert_eq!(overlaps.take(now), Some(version(0..64, 1..4)));
        let elsewhere = Version { ino: 17, ..version(0..64, 1..4) };
        assert_eq!(overlaps.take(elsewhere), None);
    }
}
