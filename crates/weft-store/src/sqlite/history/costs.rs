//! Versions in the order of their keys, for those who count what they cost.

use crate::error::Result;
use crate::past::{ExtentKey, NameKey, PastContent, PastExtent, PastName, PastVersion, VersionCounts};
use crate::row::{BlockId, CommitNo, Ino};
use crate::sqlite::read::{self, sql, unsigned};
use rusqlite::{Connection, Row};
use weft_digest::Kind;

fn commits(row: &Row<'_>, column: usize) -> rusqlite::Result<(CommitNo, CommitNo)> {
    Ok((CommitNo(unsigned(row, column)?), CommitNo(unsigned(row, column + 1)?)))
}

pub(in crate::sqlite) fn extents(connection: &Connection, after: ExtentKey, limit: usize) -> Result<Vec<PastExtent>> {
    let statement = "SELECT h.fork, h.ino, h.start, h.since, h.until, h.block, coalesce(b.length, 0), coalesce(b.refs, 0) \
                     FROM extents_history h LEFT JOIN blocks b ON b.id = h.block \
                     WHERE (h.fork, h.ino, h.start, h.until) > (?1, ?2, ?3, ?4) \
                     ORDER BY h.fork, h.ino, h.start, h.until LIMIT ?5";
    let [fork, ino, start, until] = after.0;
    read::all(connection, statement, (fork, ino, start, until, sql(limit as u64)), |row| {
        Ok(PastExtent {
            key: ExtentKey([row.get(0)?, row.get(1)?, row.get(2)?, row.get(4)?]),
            ino: Ino(unsigned(row, 1)?),
            held: commits(row, 3)?,
            block: BlockId(unsigned(row, 5)?),
            length: unsigned(row, 6)?,
            references: unsigned(row, 7)?,
        })
    })
}

pub(in crate::sqlite) fn contents(
    connection: &Connection,
    (ino, until): (Ino, CommitNo),
    limit: usize,
) -> Result<Vec<PastContent>> {
    let statement = "SELECT ino, since, until, coalesce(length(inline), 0) FROM content_history \
                     WHERE (ino, until) > (?1, ?2) ORDER BY ino, until LIMIT ?3";
    read::all(connection, statement, (sql(ino.0), sql(until.0), sql(limit as u64)), |row| {
        Ok(PastContent { ino: Ino(unsigned(row, 0)?), held: commits(row, 1)?, length: unsigned(row, 3)? })
    })
}

pub(in crate::sqlite) fn versions(
    connection: &Connection,
    (ino, until): (Ino, CommitNo),
    limit: usize,
) -> Result<Vec<PastVersion>> {
    let statement = "SELECT ino, until, mode, allocated FROM fileatt_history \
                     WHERE (ino, until) > (?1, ?2) ORDER BY ino, until LIMIT ?3";
    read::all(connection, statement, (sql(ino.0), sql(until.0), sql(limit as u64)), |row| {
        // What is damaged has none that anybody could read.
        let number = |column| unsigned(row, column).unwrap_or(0);
        let kind = u32::try_from(number(2)).ok().and_then(Kind::from_mode);
        let has_content = kind == Some(Kind::File) && number(3) > 0;
        Ok(PastVersion { ino: Ino(unsigned(row, 0)?), until: CommitNo(unsigned(row, 1)?), has_content })
    })
}

pub(in crate::sqlite) fn names(connection: &Connection, after: &NameKey, limit: usize) -> Result<Vec<PastName>> {
    let statement = "SELECT fork, parent, name, until, ino, kind FROM naming_history \
                     WHERE (fork, parent, name, until) > (?1, ?2, ?3, ?4) ORDER BY fork, parent, name, until LIMIT ?5";
    let parameters = (after.fork, sql(after.parent.0), &after.name, sql(after.until.0), sql(limit as u64));
    read::all(connection, statement, parameters, |row| {
        let (fork, parent, name) = (row.get(0)?, Ino(unsigned(row, 1)?), row.get(2)?);
        let kind = u32::try_from(unsigned(row, 5)?).ok().and_then(Kind::from_mode);
        Ok(PastName {
            key: NameKey { fork, parent, name, until: CommitNo(unsigned(row, 3)?) },
            ino: Ino(unsigned(row, 4)?),
            is_directory: kind == Some(Kind::Directory),
        })
    })
}

pub(in crate::sqlite) fn count(connection: &Connection) -> Result<VersionCounts> {
    let statement = "SELECT (SELECT count(*) FROM fileatt_history), (SELECT count(*) FROM content_history), \
                     (SELECT count(*) FROM naming_history), (SELECT count(*) FROM extents_history), \
                     (SELECT count(*) FROM xattr_history)";
    let counted = read::all(connection, statement, (), |row| {
        Ok(VersionCounts {
            inodes: unsigned(row, 0)?,
            contents: unsigned(row, 1)?,
            names: unsigned(row, 2)?,
            extents: unsigned(row, 3)?,
            xattrs: unsigned(row, 4)?,
        })
    })?;
    Ok(counted.into_iter().next().unwrap_or_default())
}
