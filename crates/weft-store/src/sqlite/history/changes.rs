//! What changed between two commits: found by the commits that wrote and replaced rows, without a
//! look at those that stayed as they were.

use super::reading::{Past, named_version};
use crate::error::Result;
use crate::past::{ChangedExtent, ChangedNames};
use crate::row::{BlockRef, CommitNo, Ino, Span};
use crate::sqlite::read::{self, sql, unsigned};
use rusqlite::Connection;
use std::collections::BTreeMap;
use std::ops::Range;

/// Two commits, the earlier one first.
#[derive(Clone, Copy)]
pub(in crate::sqlite) struct Between<'a> {
    pub(in crate::sqlite) connection: &'a Connection,
    pub(in crate::sqlite) after: CommitNo,
    pub(in crate::sqlite) to: CommitNo,
}

impl Between<'_> {
    /// The forks of the earlier commit, and of the later one.
    fn forks(&self) -> Result<(Vec<u64>, Vec<u64>)> {
        let forks = |commit| Past::new(self.connection, commit).forks();
        Ok((forks(self.after)?, forks(self.to)?))
    }

    fn numbers(&self) -> (i64, i64) {
        (sql(self.after.0), sql(self.to.0))
    }

    /// As of [`crate::PastStore::changed_inodes`].
    pub(in crate::sqlite) fn inodes(&self) -> Result<Vec<Ino>> {
        let replaced = "SELECT ino FROM fileatt_history INDEXED BY fileatt_history_until \
                        WHERE until > ?1 AND until <= ?2 AND since <= ?1 ORDER BY ino";
        read::all(self.connection, replaced, self.numbers(), |row| Ok(Ino(unsigned(row, 0)?)))
    }

    /// As of [`crate::PastStore::changed_names`].
    pub(in crate::sqlite) fn names(&self, parent: Ino) -> Result<ChangedNames> {
        let (forks_after, forks_to) = self.forks()?;
        let (after, to) = self.numbers();
        let mut names = ChangedNames::new();
        let gone = "SELECT cookie, ino, kind, name, since, until, sum FROM naming_history \
                    WHERE fork = ?4 AND parent = ?1 AND since <= ?2 AND until > ?2 AND until <= ?3";
        for fork in forks_after {
            let rows = read::all(self.connection, gone, (sql(parent.0), after, to, sql(fork)), |row| {
                named_version(row, parent)
            })?;
            names.extend(rows.into_iter().map(|row| (row.name, None)));
        }
        let now = "SELECT cookie, ino, kind, name, since, sum FROM naming INDEXED BY naming_order \
                   WHERE parent = ?1 AND since > ?2 AND since <= ?3";
        let mut rows = read::all(self.connection, now, (sql(parent.0), after, to), |row| read::name_row(row, parent))?;
        let then = "SELECT cookie, ino, kind, name, since, until, sum FROM naming_history \
                    WHERE fork = ?4 AND parent = ?1 AND since > ?2 AND since <= ?3 AND until > ?3";
        for fork in forks_to {
            rows.extend(read::all(self.connection, then, (sql(parent.0), after, to, sql(fork)), |row| {
                named_version(row, parent)
            })?);
        }
        names.extend(rows.into_iter().map(|row| (row.name.clone(), Some(row))));
        Ok(names)
    }

    /// As of [`crate::PastStore::changed_extents`].
    pub(in crate::sqlite) fn extents(&self, ino: Ino, range: &Range<u64>) -> Result<Vec<ChangedExtent>> {
        let (forks_after, forks_to) = self.forks()?;
        let mut changed = BTreeMap::<Span, ChangedExtent>::new();
        for fork in forks_after {
            for (span, _) in self.versions(ino, range, fork, "e.since <= ?4 AND e.until > ?4 AND e.until <= ?5")? {
                changed.insert(span, ChangedExtent { span, was_there: true, now: None });
            }
        }
        let now = "SELECT e.start, e.block, b.length, b.base, b.value, b.segment, b.position, e.since, e.sum, b.refs, b.sum, \
                   0, e.length FROM extents e LEFT JOIN blocks b ON b.id = e.block \
                   WHERE e.ino = ?1 AND e.start >= ?2 AND e.start < ?3 AND e.since > ?4 AND e.since <= ?5";
        let (after, to) = self.numbers();
        let parameters = (sql(ino.0), sql(range.start), sql(range.end), after, to);
        let mut put = read::all(self.connection, now, parameters, |row| read::extent(row, ino))?;
        for fork in forks_to {
            put.extend(self.versions(ino, range, fork, "e.since > ?4 AND e.since <= ?5 AND e.until > ?5")?);
        }
        for (span, block) in put {
            let new = ChangedExtent { span, was_there: false, now: None };
            changed.entry(span).or_insert(new).now = Some(block);
        }
        Ok(changed.into_values().collect())
    }

    /// Versions under a fork, of which `held` says when they held.
    fn versions(&self, ino: Ino, range: &Range<u64>, fork: u64, held: &str) -> Result<Vec<(Span, BlockRef)>> {
        let statement = format!(
            "SELECT e.start, e.block, b.length, b.base, b.value, b.segment, b.position, e.since, e.sum, b.refs, b.sum, \
             e.until, e.length FROM extents_history e LEFT JOIN blocks b ON b.id = e.block \
             WHERE e.fork = ?6 AND e.ino = ?1 AND e.start >= ?2 AND e.start < ?3 AND {held}"
        );
        let (after, to) = self.numbers();
        let parameters = (sql(ino.0), sql(range.start), sql(range.end), after, to, sql(fork));
        read::all(self.connection, &statement, parameters, |row| read::extent(row, ino))
    }
}
