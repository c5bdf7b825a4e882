//! Versions in the order of their keys, for those who count what they cost.

use super::connection::{Connection, Parameter};
use super::read::{self, get, int, unsigned};
use super::statements::history;
use crate::error::Result;
use crate::past::{ExtentKey, NameKey, PastContent, PastExtent, PastName, PastVersion, VersionCounts};
use crate::row::{BlockId, CommitNo, Ino};
use tokio_postgres::Row;
use weft_digest::Kind;

const WHAT: &str = "cannot count what history costs";

fn parameter(number: i64) -> Parameter {
    Box::new(number)
}

fn commits(row: &Row, since: usize, until: usize) -> Result<(CommitNo, CommitNo)> {
    Ok((CommitNo(unsigned(row, since)?), CommitNo(unsigned(row, until)?)))
}

pub(super) fn extents(connection: &mut Connection, after: ExtentKey, limit: usize) -> Result<Vec<PastExtent>> {
    let parameters = after.0.into_iter().chain([int(limit as u64)]).map(parameter).collect();
    let rows = connection.query(WHAT, history::PAST_EXTENTS, parameters)?;
    let others = read::others(connection, &rows, &[])?;
    let extent = |row: &Row| {
        let block = BlockId(unsigned(row, 2)?);
        // The length, and the references.
        let (found, length, references) = others.get(&block).map_or((row, 4, 5), |found| (found, 1, 5));
        let number = |column| Ok::<_, crate::Error>(get::<Option<i64>>(found, column)?.unwrap_or(0).unsigned_abs());
        Ok(PastExtent {
            key: ExtentKey([get(row, 8)?, get(row, 0)?, get(row, 1)?, get(row, 7)?]),
            ino: Ino(unsigned(row, 0)?),
            held: commits(row, 6, 7)?,
            block,
            length: number(length)?,
            references: number(references)?,
        })
    };
    rows.iter().map(extent).collect()
}

pub(super) fn contents(
    connection: &mut Connection,
    (ino, until): (Ino, CommitNo),
    limit: usize,
) -> Result<Vec<PastContent>> {
    let parameters = [ino.0, until.0, limit as u64].map(|number| parameter(int(number))).into();
    let rows = connection.query(WHAT, history::PAST_CONTENTS, parameters)?;
    let content = |row: &Row| {
        let length = get::<i64>(row, 3)?.unsigned_abs();
        Ok(PastContent { ino: Ino(unsigned(row, 0)?), held: commits(row, 1, 2)?, length })
    };
    rows.iter().map(content).collect()
}

pub(super) fn versions(
    connection: &mut Connection,
    (ino, until): (Ino, CommitNo),
    limit: usize,
) -> Result<Vec<PastVersion>> {
    let parameters = [ino.0, until.0, limit as u64].map(|number| parameter(int(number))).into();
    let rows = connection.query(WHAT, history::PAST_VERSIONS, parameters)?;
    let version = |row: &Row| {
        let kind = u32::try_from(unsigned(row, 2)?).ok().and_then(Kind::from_mode);
        let has_content = kind == Some(Kind::File) && unsigned(row, 3)? > 0;
        Ok(PastVersion { ino: Ino(unsigned(row, 0)?), until: CommitNo(unsigned(row, 1)?), has_content })
    };
    rows.iter().map(version).collect()
}

pub(super) fn names(connection: &mut Connection, after: &NameKey, limit: usize) -> Result<Vec<PastName>> {
    let name = Box::new(after.name.clone()) as Parameter;
    let (parent, until) = (parameter(int(after.parent.0)), parameter(int(after.until.0)));
    let parameters = vec![parameter(after.fork), parent, name, until, parameter(int(limit as u64))];
    let rows = connection.query(WHAT, history::PAST_NAMES, parameters)?;
    let name = |row: &Row| {
        let (fork, parent, name) = (get(row, 0)?, Ino(unsigned(row, 1)?), get(row, 2)?);
        let kind = u32::try_from(unsigned(row, 5)?).ok().and_then(Kind::from_mode);
        Ok(PastName {
            key: NameKey { fork, parent, name, until: CommitNo(unsigned(row, 3)?) },
            ino: Ino(unsigned(row, 4)?),
            is_directory: kind == Some(Kind::Directory),
        })
    };
    rows.iter().map(name).collect()
}

pub(super) fn count(connection: &mut Connection) -> Result<VersionCounts> {
    let rows = connection.query(WHAT, history::COUNT_VERSIONS, Vec::new())?;
    let Some(row) = rows.first() else { return Ok(VersionCounts::default()) };
    Ok(VersionCounts {
        inodes: unsigned(row, 0)?,
        contents: unsigned(row, 1)?,
        names: unsigned(row, 2)?,
        extents: unsigned(row, 3)?,
        xattrs: unsigned(row, 4)?,
    })
}
