//! Versions of rows that a commit is about to replace, kept in its transaction.
//!
//! A row that is put as it was stays as it is, with the commit that wrote it, unless other rows of
//! its inode change; so does one in which the access time alone is another. A version takes the sum
//! of its row along, damaged or not, so that damage stays what it is. What cannot be filed because
//! it is damaged is not: that must not keep what replaces it from being stored.

use crate::error::{Error, Result};
use crate::row::{CommitNo, Ino, InodeRow, NameRow};
use crate::sqlite::read::{self, sql, unsigned};
use crate::sums::{self, CONTENT_SHIFT, MASK};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, Params};
use rustc_hash::FxHashSet;
use std::ops::Range;
use weft_digest::Digest;

fn failed(source: rusqlite::Error) -> Error {
    Error::Sqlite { what: "cannot keep history", source }
}

/// The keeping of what one commit replaces.
#[derive(Clone, Copy)]
pub(in crate::sqlite) struct Keeping<'a> {
    connection: &'a Connection,
    commit: CommitNo,
    /// Inodes from this one on are of this commit alone.
    fresh: Ino,
    /// Inodes whose rows are of this commit though they may be put as they were.
    touched: &'a FxHashSet<Ino>,
}

impl<'a> Keeping<'a> {
    /// Keeps what `commit`, which has `touched` those inodes ([`crate::Batch::touched`]), replaces
    /// of rows that are there now.
    pub(in crate::sqlite) fn new(
        connection: &'a Connection,
        commit: CommitNo,
        touched: &'a FxHashSet<Ino>,
    ) -> Result<Keeping<'a>> {
        let next = "SELECT next_id FROM volume WHERE id = 1";
        let fresh = connection.prepare_cached(next).map_err(failed)?.query_row((), |row| unsigned(row, 0));
        Ok(Keeping { connection, commit, fresh: Ino(fresh.map_err(failed)?), touched })
    }

    fn execute(&self, statement: &str, parameters: impl Params) -> Result<()> {
        self.connection.prepare_cached(statement).map_err(failed)?.execute(parameters).map_err(failed)?;
        Ok(())
    }

    /// The commit that replaces, and what it adds to sums.
    fn until(&self) -> (i64, i64) {
        (sql(self.commit.0), sums::version(0, self.commit))
    }

    /// `row` is about to be put with `digest`. Returns the commit to put it with: an earlier one if
    /// it stays as it is.
    pub(in crate::sqlite) fn inode(&self, row: &InodeRow, digest: Option<&Digest>) -> Result<CommitNo> {
        if row.ino >= self.fresh {
            return Ok(self.commit);
        }
        let statement = "SELECT ino, generation, mode, uid, gid, nlink, rdev, size, allocated, \
                         atime, mtime, ctime, btime, parent, xattrs, inline, since, digest FROM fileatt WHERE ino = ?1";
        let mut statement = self.connection.prepare_cached(statement).map_err(failed)?;
        let found = statement.query_row((sql(row.ino.0),), |found| {
            let digest = read::digest(found, 17)?;
            // What is damaged is like nothing.
            Ok((read::whole_inode_row(found).ok(), unsigned(found, 16).ok().map(CommitNo), digest))
        });
        let Some((old, since, old_digest)) = found.optional().map_err(failed)? else { return Ok(self.commit) };
        let has_content = old.as_ref().is_some_and(|old| old.inline == row.inline) && old_digest.as_ref() == digest;
        let is_same = old.is_some_and(|old| InodeRow { atime: row.atime, ..old } == *row);
        if !has_content {
            self.content(row.ino)?;
        }
        match since {
            Some(since) if is_same && !self.touched.contains(&row.ino) => Ok(since),
            _ => self.attributes(row.ino).map(|()| self.commit),
        }
    }

    /// Inode `ino` is about to be removed, with all that it has but its extents.
    pub(in crate::sqlite) fn removed(&self, ino: Ino) -> Result<()> {
        if ino >= self.fresh {
            return Ok(());
        }
        self.content(ino)?;
        self.attributes(ino)?;
        let (until, sum) = self.until();
        let statement = format!(
            "INSERT OR IGNORE INTO xattr_history (fork, ino, name, since, until, value, sum) \
             SELECT weft_fork(since, ?2), ino, name, since, ?2, value, (sum + ?3) & {MASK} FROM xattr WHERE ino = ?1"
        );
        self.execute(&statement, (sql(ino.0), until, sum))
    }

    /// Keeps the row of inode `ino`.
    fn attributes(&self, ino: Ino) -> Result<()> {
        const COLUMNS: &str = "generation, mode, uid, gid, nlink, rdev, size, allocated, atime, mtime, ctime, btime, \
                               parent, xattrs";
        let (until, sum) = self.until();
        let statement = format!(
            "INSERT OR IGNORE INTO fileatt_history (ino, since, until, {COLUMNS}, sum) \
             SELECT ino, since, ?2, {COLUMNS}, (sum + ?3) & {MASK} FROM fileatt WHERE ino = ?1 AND since IS NOT ?2"
        );
        self.execute(&statement, (sql(ino.0), until, sum))
    }

    /// Keeps the content in the row of inode `ino`, and its digest, which are about to be others:
    /// once in a commit. They have been there since they replaced others, or since the inode was
    /// made; if none of that is known any more, no commit that is kept saw it. What this commit has
    /// put itself nobody saw.
    fn content(&self, ino: Ino) -> Result<()> {
        let (until, sum) = self.until();
        let statement = format!(
            "INSERT OR IGNORE INTO content_history (ino, since, until, digest, sum, inline) \
             SELECT ino, since, ?2, digest, (((digest_sum + ?3) & {MASK}) + weft_references(since << {CONTENT_SHIFT})) & {MASK}, \
             inline FROM (SELECT ino, digest, digest_sum, inline, coalesce( \
             (SELECT max(c.until) FROM content_history c WHERE c.ino = f.ino), \
             (SELECT h.since FROM fileatt_history h WHERE h.ino = f.ino ORDER BY h.until LIMIT 1), f.since, 0) AS since \
             FROM fileatt f WHERE f.ino = ?1) WHERE since IS NOT ?2"
        );
        self.execute(&statement, (sql(ino.0), until, sum))
    }

    /// The digest of inode `ino` is about to be `digest`.
    pub(in crate::sqlite) fn digest(&self, ino: Ino, digest: Option<&Digest>) -> Result<()> {
        if ino >= self.fresh {
            return Ok(());
        }
        let statement = "SELECT digest IS ?2 FROM fileatt WHERE ino = ?1";
        let mut statement = self.connection.prepare_cached(statement).map_err(failed)?;
        let is_same = statement.query_row((sql(ino.0), digest.map(|digest| &digest[..])), |row| row.get(0));
        match is_same.optional().map_err(failed)? {
            Some(false) => self.content(ino),
            _ => Ok(()),
        }
    }

    /// `row` is about to be put. Returns the commit to put it with, as [`Keeping::inode`].
    pub(in crate::sqlite) fn name(&self, row: &NameRow) -> Result<CommitNo> {
        if row.parent >= self.fresh {
            return Ok(self.commit);
        }
        let (parent, name) = (sql(row.parent.0), row.name.as_bytes());
        let statement =
            "SELECT ino IS ?3 AND kind IS ?4 AND cookie IS ?5, since FROM naming WHERE parent = ?1 AND name = ?2";
        let mut statement = self.connection.prepare_cached(statement).map_err(failed)?;
        let parameters = (parent, name, sql(row.ino.0), row.kind.mode_bits(), sql(row.cookie.0));
        let found = statement.query_row(parameters, |found| {
            let since = match found.get_ref(1)? {
                ValueRef::Integer(since) => u64::try_from(since).ok().map(CommitNo),
                _ => None,
            };
            Ok(since.filter(|_| found.get(0).unwrap_or(false)))
        });
        match found.optional().map_err(failed)? {
            None => Ok(self.commit),
            Some(Some(since)) => Ok(since),
            Some(None) => self.removed_name(row.parent, name).map(|()| self.commit),
        }
    }

    /// The entry `name` of `parent` is about to be removed or replaced.
    pub(in crate::sqlite) fn removed_name(&self, parent: Ino, name: &[u8]) -> Result<()> {
        let (until, sum) = self.until();
        // An entry that moves within this commit was filed before.
        let statement = format!(
            "INSERT OR IGNORE INTO naming_history (fork, parent, name, since, until, ino, kind, cookie, sum) \
             SELECT weft_fork(since, ?3), parent, name, since, ?3, ino, kind, cookie, (sum + ?4) & {MASK} \
             FROM naming WHERE parent = ?1 AND name = ?2 AND since IS NOT ?3"
        );
        self.execute(&statement, (sql(parent.0), name, until, sum))
    }

    /// The extents of `ino` in `range` are about to be removed.
    pub(in crate::sqlite) fn extents(&self, ino: Ino, range: &Range<u64>) -> Result<()> {
        keep_extents(self.connection, ino, range, self.commit)
    }

    /// Attribute `name` of `ino` is about to be removed or replaced.
    pub(in crate::sqlite) fn xattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        let (until, sum) = self.until();
        let statement = format!(
            "INSERT OR IGNORE INTO xattr_history (fork, ino, name, since, until, value, sum) \
             SELECT weft_fork(since, ?3), ino, name, since, ?3, value, (sum + ?4) & {MASK} \
             FROM xattr WHERE ino = ?1 AND name = ?2 AND since IS NOT ?3"
        );
        self.execute(&statement, (sql(ino.0), name, until, sum))
    }
}

/// Files the extents of `ino` in `range` as versions that commit `until` ended.
pub(in crate::sqlite) fn keep_extents(
    connection: &Connection,
    ino: Ino,
    range: &Range<u64>,
    until: CommitNo,
) -> Result<()> {
    let statement = format!(
        "INSERT OR IGNORE INTO extents_history (fork, ino, start, since, until, length, block, sum) \
         SELECT weft_fork(since, ?4), ino, start, since, ?4, length, block, (sum + ?5) & {MASK} \
         FROM extents WHERE ino = ?1 AND start >= ?2 AND start < ?3"
    );
    let parameters = (sql(ino.0), sql(range.start), sql(range.end), sql(until.0), sums::version(0, until));
    let mut statement = connection.prepare_cached(&statement).map_err(failed)?;
    statement.execute(parameters).map(drop).map_err(failed)
}
