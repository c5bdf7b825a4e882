//! Rows as of a commit.
//!
//! A row of the present that no later commit wrote is as it was then. All others lie with the
//! versions: where one is looked for, the first that was replaced after the commit; where many are
//! listed, those under the forks of the commit that held then. A version has the sum of its row,
//! with the commit added that replaced it, and is verified as rows are.

use crate::Name;
use crate::error::{Error, Result};
use crate::history::fork::forks_at;
use crate::row::{BlockRef, CommitNo, CommitRow, Cookie, Ino, InodeRow, NameRow, Span, Timestamp};
use crate::sqlite::read::{self, PresentInodes, inline, sql, unsigned};
use crate::sums;
use rusqlite::types::ValueRef;
use rusqlite::{CachedStatement, Connection, OptionalExtension, Row};
use std::ops::Range;
use weft_block::Slice;
use weft_digest::Digest;

fn failed(source: rusqlite::Error) -> Error {
    read::failed(source)
}

/// The rows of one commit.
#[derive(Clone, Copy)]
pub(in crate::sqlite) struct Past<'a> {
    connection: &'a Connection,
    commit: CommitNo,
}

/// Versions of inodes, `v`: their columns as [`read::whole_inode_row`] takes them, from and to when
/// they held, their sums, and their content, if it was replaced since: that which was replaced
/// first after the version began, of what is left.
const VERSIONS: &str = "SELECT v.ino, v.generation, v.mode, v.uid, v.gid, v.nlink, v.rdev, v.size, v.allocated, \
                        v.atime, v.mtime, v.ctime, v.btime, v.parent, v.xattrs, NULL, v.since, v.until, v.sum, \
                        c.until, c.inline FROM fileatt_history v LEFT JOIN content_history c ON c.ino = v.ino \
                        AND c.until = (SELECT min(until) FROM content_history WHERE ino = v.ino AND until > v.since)";

impl<'a> Past<'a> {
    pub(in crate::sqlite) fn new(connection: &'a Connection, commit: CommitNo) -> Past<'a> {
        Past { connection, commit }
    }

    /// Numbers that versions of this commit are filed under.
    pub(super) fn forks(&self) -> Result<Vec<u64>> {
        let last = "SELECT number FROM volume WHERE id = 1";
        let last = self.connection.prepare_cached(last).map_err(failed)?.query_row((), |row| unsigned(row, 0));
        Ok(forks_at(self.commit, CommitNo(last.map_err(failed)?)))
    }

    /// The row of inode `ino`, and the commit that wrote it.
    pub(in crate::sqlite) fn inode(&self, ino: Ino) -> Result<Option<(InodeRow, CommitNo)>> {
        Ok(self.inodes(ino..ino.next(), 1)?.pop())
    }

    /// Up to `limit` inodes with numbers in `inos`. Those that the present has are read in a row,
    /// and those that have versions alone are looked for between them.
    pub(in crate::sqlite) fn inodes(&self, inos: Range<Ino>, limit: usize) -> Result<Vec<(InodeRow, CommitNo)>> {
        let version = format!("{VERSIONS} WHERE v.ino = ?1 AND v.until > ?2 ORDER BY v.until LIMIT 1");
        let mut version = self.connection.prepare_cached(&version).map_err(failed)?;
        let kept = "SELECT min(ino) FROM fileatt_history WHERE ino >= ?1";
        let mut kept = self.connection.prepare_cached(kept).map_err(failed)?;
        let mut between = read::inodes_between(self.connection)?;
        let mut present = PresentInodes::query(&mut between, &inos)?;
        let (mut rows, mut at, mut next_kept) = (Vec::new(), inos.start, None);
        while rows.len() < limit && at < inos.end {
            let now = present.ino().unwrap_or(inos.end);
            if now > at && next_kept.is_none_or(|next| next < at) {
                let next: Option<i64> = kept.query_row((sql(at.0),), |row| row.get(0)).map_err(failed)?;
                next_kept = Some(next.map_or(Ino::MAX, |ino| Ino(ino.unsigned_abs())));
            }
            let ino = next_kept.filter(|next| (at..now).contains(next)).unwrap_or(now);
            if ino >= inos.end {
                break;
            }
            match self.inode_as_then(ino, (ino == now).then_some(&present), &mut version) {
                Ok(row) => rows.extend(row),
                // It must not hide those before it.
                Err(_) if !rows.is_empty() => break,
                Err(error) => return Err(error),
            }
            if ino == now {
                match present.advance() {
                    Err(_) if !rows.is_empty() => break,
                    advanced => advanced?,
                }
            }
            at = ino.next();
        }
        Ok(rows)
    }

    /// The row of `ino`, which is the `present` one if no later commit wrote that, or else a
    /// version that `statement` finds.
    fn inode_as_then(
        &self,
        ino: Ino,
        present: Option<&PresentInodes<'_>>,
        statement: &mut CachedStatement<'_>,
    ) -> Result<Option<(InodeRow, CommitNo)>> {
        if let Some(present) = present
            && let Some(since) = present.since().filter(|since| *since <= self.commit)
        {
            return Ok(present.row()?.map(|row| (row, since)));
        }
        let version = statement.query_row((sql(ino.0), sql(self.commit.0)), version).optional().map_err(failed)?;
        let Some(version) = version.filter(|version| version.held.start <= self.commit) else { return Ok(None) };
        let since = version.held.start;
        let row = version.verified(|| present.map_or(Ok(None), PresentInodes::inline))?;
        Ok(Some((row, since)))
    }

    /// The entry `name` of `parent`.
    pub(in crate::sqlite) fn name(&self, parent: Ino, name: &Name) -> Result<Option<NameRow>> {
        let now =
            "SELECT cookie, ino, kind, name, since, sum FROM naming WHERE parent = ?1 AND name = ?2 AND since <= ?3";
        let mut now = self.connection.prepare_cached(now).map_err(failed)?;
        let parameters = (sql(parent.0), name.as_bytes(), sql(self.commit.0));
        if let Some(row) = now.query_row(parameters, |row| read::name_row(row, parent)).optional().map_err(failed)? {
            return Ok(Some(row));
        }
        let then = "SELECT cookie, ino, kind, name, since, until, sum FROM naming_history \
                    WHERE fork = ?4 AND parent = ?1 AND name = ?2 AND until > ?3 AND since <= ?3";
        let mut then = self.connection.prepare_cached(then).map_err(failed)?;
        for fork in self.forks()? {
            let parameters = (sql(parent.0), name.as_bytes(), sql(self.commit.0), sql(fork));
            let row = then.query_row(parameters, |row| named_version(row, parent)).optional().map_err(failed)?;
            if row.is_some() {
                return Ok(row);
            }
        }
        Ok(None)
    }

    /// Up to `limit` entries of `parent` after position `after`.
    pub(in crate::sqlite) fn names(&self, parent: Ino, after: Cookie, limit: usize) -> Result<Vec<NameRow>> {
        let now = "SELECT cookie, ino, kind, name, since, sum FROM naming INDEXED BY naming_order \
                   WHERE parent = ?1 AND cookie > ?2 AND since <= ?3 ORDER BY cookie LIMIT ?4";
        let parameters = (sql(parent.0), sql(after.0), sql(self.commit.0), sql(limit as u64));
        let mut rows = read::all(self.connection, now, parameters, |row| read::name_row(row, parent))?;
        let then = "SELECT cookie, ino, kind, name, since, until, sum FROM naming_history \
                    WHERE fork = ?4 AND parent = ?1 AND cookie > ?2 AND until > ?3 AND since <= ?3";
        for fork in self.forks()? {
            let parameters = (sql(parent.0), sql(after.0), sql(self.commit.0), sql(fork));
            rows.extend(read::all(self.connection, then, parameters, |row| named_version(row, parent))?);
        }
        rows.sort_unstable_by_key(|row| row.cookie);
        rows.truncate(limit);
        Ok(rows)
    }

    /// The extents of `ino` that start in `range`.
    pub(in crate::sqlite) fn extents(&self, ino: Ino, range: &Range<u64>) -> Result<Vec<(Span, BlockRef)>> {
        let now = "SELECT e.start, e.block, b.length, b.base, b.value, b.segment, b.position, e.since, e.sum, b.refs, b.sum, \
                   0, e.length FROM extents e LEFT JOIN blocks b ON b.id = e.block \
                   WHERE e.ino = ?1 AND e.start >= ?2 AND e.start < ?3 AND e.since <= ?4";
        let (from, to, at) = (sql(range.start), sql(range.end), sql(self.commit.0));
        let mut rows = read::all(self.connection, now, (sql(ino.0), from, to, at), |row| read::extent(row, ino))?;
        let then = "SELECT e.start, e.block, b.length, b.base, b.value, b.segment, b.position, e.since, e.sum, b.refs, b.sum, \
                    e.until, e.length FROM extents_history e LEFT JOIN blocks b ON b.id = e.block \
                    WHERE e.fork = ?5 AND e.ino = ?1 AND e.start >= ?2 AND e.start < ?3 AND e.until > ?4 AND e.since <= ?4";
        for fork in self.forks()? {
            let parameters = (sql(ino.0), from, to, at, sql(fork));
            rows.extend(read::all(self.connection, then, parameters, |row| read::extent(row, ino))?);
        }
        rows.sort_unstable_by_key(|(span, _)| *span);
        Ok(rows)
    }

    /// All extended attributes of `ino`. `Corrupt` if there are not as many as its row says.
    pub(in crate::sqlite) fn xattrs(&self, ino: Ino) -> Result<Vec<(Name, Vec<u8>)>> {
        let now = "SELECT name, value, since, sum, 0 FROM xattr WHERE ino = ?1 AND since <= ?2";
        let mut rows = read::all(self.connection, now, (sql(ino.0), sql(self.commit.0)), |row| read::xattr(row, ino))?;
        let then = "SELECT name, value, since, sum, until FROM xattr_history \
                    WHERE fork = ?3 AND ino = ?1 AND until > ?2 AND since <= ?2";
        for fork in self.forks()? {
            let parameters = (sql(ino.0), sql(self.commit.0), sql(fork));
            rows.extend(read::all(self.connection, then, parameters, |row| read::xattr(row, ino))?);
        }
        rows.sort_unstable();
        let counted = self.inode(ino)?.map_or(0, |(row, _)| u64::from(row.xattrs));
        crate::missing::refuse_xattrs(ino, rows.len() as u64, counted)?;
        Ok(rows)
    }

    /// The digest of `ino`; none if there was no such inode, or no digest of it.
    pub(in crate::sqlite) fn digest(&self, ino: Ino) -> Result<Option<Digest>> {
        if self.inode(ino)?.is_none() {
            return Ok(None);
        }
        let then = "SELECT digest, since, until, sum FROM content_history \
                    WHERE ino = ?1 AND until > ?2 ORDER BY until LIMIT 1";
        let mut then = self.connection.prepare_cached(then).map_err(failed)?;
        let found = then.query_row((sql(ino.0), sql(self.commit.0)), |row| {
            let (digest, sum) = (read::digest(row, 0)?, row.get_ref(3)?.as_i64().ok());
            let held = CommitNo(unsigned(row, 1)?)..CommitNo(unsigned(row, 2)?);
            let own = sums::content(sums::digest(ino, digest.as_ref()), held.start, held.end);
            Ok(digest.filter(|_| sum == Some(own)))
        });
        match found.optional().map_err(failed)? {
            Some(digest) => Ok(digest),
            None => read::digest_of(self.connection, ino),
        }
    }
}

/// Versions of inode `ino`, newest first: up to `limit` that were replaced at or before `until`.
pub(in crate::sqlite) fn versions(
    connection: &Connection,
    ino: Ino,
    until: CommitNo,
    limit: usize,
) -> Result<Vec<(InodeRow, Range<CommitNo>)>> {
    let statement = format!("{VERSIONS} WHERE v.ino = ?1 AND v.until <= ?2 ORDER BY v.until DESC LIMIT ?3");
    let versions = read::all(connection, &statement, (sql(ino.0), sql(until.0), sql(limit as u64)), version)?;
    let verified = |version: Version| {
        let held = version.held.clone();
        Ok((version.verified(|| inline_now(connection, ino))?, held))
    };
    versions.into_iter().map(verified).collect()
}

/// The last commit at or before `time`.
pub(in crate::sqlite) fn commit_at(connection: &Connection, time: Timestamp) -> Result<Option<CommitRow>> {
    let statement = "SELECT number FROM commits WHERE time <= ?1 ORDER BY time DESC, number DESC LIMIT 1";
    let mut statement = connection.prepare_cached(statement).map_err(failed)?;
    let number = statement.query_row((time.0,), |row| unsigned(row, 0)).optional().map_err(failed)?;
    let Some(number) = number else { return Ok(None) };
    Ok(read::commits(connection, CommitNo(number), 1)?.pop())
}

/// A version of an inode's row.
struct Version {
    ino: Ino,
    /// Without its content.
    row: Option<InodeRow>,
    held: Range<CommitNo>,
    sum: Option<i64>,
    /// Its content, if that was replaced.
    replaced: Option<Option<Slice>>,
}

fn version(row: &Row<'_>) -> rusqlite::Result<Version> {
    let was_replaced = !matches!(row.get_ref(19)?, ValueRef::Null);
    Ok(Version {
        ino: Ino(unsigned(row, 0)?),
        row: read::whole_inode_row(row).ok(),
        held: CommitNo(unsigned(row, 16)?)..CommitNo(unsigned(row, 17)?),
        sum: row.get_ref(18)?.as_i64().ok(),
        replaced: was_replaced.then(|| inline(row, 20)).transpose()?,
    })
}

impl Version {
    /// The row with its content, if it is as it was written; `now` is the content of the present.
    fn verified(self, now: impl FnOnce() -> Result<Option<Slice>>) -> Result<InodeRow> {
        let inline = match self.replaced {
            Some(replaced) => replaced,
            None => now()?,
        };
        let row = self.row.map(|row| InodeRow { inline, ..row });
        let holds =
            |row: &InodeRow| Some(sums::version(sums::inode(row, self.held.start, None), self.held.end)) == self.sum;
        let damaged = || {
            let (ino, commit) = (self.ino.0, self.held.start.0);
            Error::Corrupt(format!("the row of inode {ino} as of commit {commit} is damaged; 'weft check' tells more"))
        };
        row.filter(holds).ok_or_else(damaged)
    }
}

/// The content that the row of `ino` has now, be it damaged.
fn inline_now(connection: &Connection, ino: Ino) -> Result<Option<Slice>> {
    let now = "SELECT inline FROM fileatt WHERE ino = ?1";
    let mut now = connection.prepare_cached(now).map_err(failed)?;
    Ok(now.query_row((sql(ino.0),), |row| inline(row, 0)).optional().map_err(failed)?.flatten())
}

/// A version of an entry: its position, the inode and its kind, its name, from and to when it held,
/// its sum.
pub(super) fn named_version(row: &Row<'_>, parent: Ino) -> rusqlite::Result<NameRow> {
    let until = CommitNo(unsigned(row, 5)?);
    read::name_row_with(row, parent, 6, |sum| sums::version(sum, until))
}
