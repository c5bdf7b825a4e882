//! Reading rows. A value that no Weft writes is damage, never a default.

use super::sums::INODE;
use crate::Name;
use crate::error::{Error, Result};
use crate::row::{
    BlockId, BlockRef, CommitNo, CommitRow, Cookie, Ino, InodeRow, ListedRow, NameRow, OpNo, Place, Span, Timestamp,
};
use crate::store::Nth;
use crate::{missing, sums};
use rusqlite::fallible_streaming_iterator::FallibleStreamingIterator;
use rusqlite::types::ValueRef;
use rusqlite::{CachedStatement, Connection, OptionalExtension, Row, Rows};
use std::ops::Range;
use weft_block::{Block, Slice};
use weft_digest::{Digest, Kind, Parts};

pub(super) fn failed(source: rusqlite::Error) -> Error {
    match source {
        rusqlite::Error::FromSqlConversionFailure(_, _, cause) if cause.is::<Damage>() => {
            Error::Corrupt(format!("{cause}; 'weft check' tells more"))
        }
        source => Error::Sqlite { what: "cannot read the database", source },
    }
}

/// A row that is damaged or gone, in words that need no others.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Damage(String);

fn damage(column: usize, what: String) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Blob, Damage(what).into())
}

/// A number as SQLite holds it. Numbers past `i64::MAX` do not occur; range ends are cut there.
pub(super) fn sql(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(super) fn unsigned(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    let value: i64 = row.get(column)?;
    u64::try_from(value).map_err(|_| rusqlite::Error::IntegralValueOutOfRange(column, value))
}

fn unsigned32(row: &Row<'_>, column: usize) -> rusqlite::Result<u32> {
    let value: i64 = row.get(column)?;
    u32::try_from(value).map_err(|_| rusqlite::Error::IntegralValueOutOfRange(column, value))
}

fn bad(column: usize, what: &str) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Blob, what.into())
}

pub(super) fn all<T>(
    connection: &Connection,
    statement: &str,
    parameters: impl rusqlite::Params,
    read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
) -> Result<Vec<T>> {
    let mut statement = connection.prepare_cached(statement).map_err(failed)?;
    let rows = statement.query_map(parameters, read).map_err(failed)?;
    rows.collect::<rusqlite::Result<Vec<T>>>().map_err(failed)
}

/// The columns that [`inode_row`] takes.
const INODES: &str = "SELECT ino, generation, mode, uid, gid, nlink, rdev, size, allocated, atime, mtime, ctime, \
                      btime, parent, xattrs, inline, since, sum FROM fileatt";

/// The row of an inode, or that it is damaged.
fn inode_row(row: &Row<'_>) -> rusqlite::Result<Result<InodeRow>> {
    let ino = unsigned(row, 0)?;
    let read = whole_inode_row(row);
    let holds = match &read {
        Ok(read) => row.get_ref(17)?.as_i64().ok() == Some(sums::inode(read, CommitNo(unsigned(row, 16)?), None)),
        Err(_) => false,
    };
    let damaged = || Error::Corrupt(format!("the row of inode {ino} is damaged; 'weft check' tells more"));
    Ok(read.ok().filter(|_| holds).ok_or_else(damaged))
}

/// Rows of inodes that are looked at one by one, and read in full where that is asked.
pub(super) struct PresentInodes<'a> {
    rows: Rows<'a>,
    /// The number of the current one, and the commit that wrote it; none at the end.
    current: Option<(Ino, CommitNo)>,
}

/// The statement of [`PresentInodes`].
pub(super) fn inodes_between(connection: &Connection) -> Result<CachedStatement<'_>> {
    let statement = format!("{INODES} WHERE ino >= ?1 AND ino < ?2 ORDER BY ino");
    connection.prepare_cached(&statement).map_err(failed)
}

impl<'a> PresentInodes<'a> {
    /// Those whose numbers are in `inos`, by the statement of [`inodes_between`].
    pub(super) fn query(between: &'a mut CachedStatement<'_>, inos: &Range<Ino>) -> Result<PresentInodes<'a>> {
        let rows = between.query((sql(inos.start.0), sql(inos.end.0))).map_err(failed)?;
        let mut inodes = PresentInodes { rows, current: None };
        inodes.advance()?;
        Ok(inodes)
    }

    pub(super) fn advance(&mut self) -> Result<()> {
        let row = self.rows.next().map_err(failed)?;
        let numbers = |row: &Row<'_>| Ok((Ino(unsigned(row, 0)?), CommitNo(unsigned(row, 16)?)));
        let next = row.map(numbers).transpose().map_err(failed)?;
        if next.zip(self.current).is_some_and(|((next, _), (current, _))| next <= current) {
            return Err(disordered("fileatt"));
        }
        self.current = next;
        Ok(())
    }

    pub(super) fn ino(&self) -> Option<Ino> {
        self.current.map(|(ino, _)| ino)
    }

    /// The commit that wrote the current row.
    pub(super) fn since(&self) -> Option<CommitNo> {
        self.current.map(|(_, since)| since)
    }

    /// The current row, if it is as it was written.
    pub(super) fn row(&self) -> Result<Option<InodeRow>> {
        self.rows.get().map(inode_row).transpose().map_err(failed)?.transpose()
    }

    /// The content in the current row, be that damaged.
    pub(super) fn inline(&self) -> Result<Option<Slice>> {
        Ok(self.rows.get().map(|row| inline(row, 15)).transpose().map_err(failed)?.flatten())
    }
}

/// Content of an inode in its row.
pub(super) fn inline(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<Slice>> {
    Ok(match row.get_ref(column)? {
        ValueRef::Blob(bytes) => Some(Slice::from(bytes.to_vec())),
        _ => None,
    })
}

/// The row of an inode, whatever its sum.
pub(super) fn whole_inode_row(row: &Row<'_>) -> rusqlite::Result<InodeRow> {
    let mode = unsigned32(row, 2)?;
    let time = |column| row.get(column).map(Timestamp);
    Ok(InodeRow {
        ino: Ino(unsigned(row, 0)?),
        generation: unsigned32(row, 1)?,
        kind: Kind::from_mode(mode).ok_or_else(|| bad(2, "mode of no kind"))?,
        permissions: mode & 0o7777,
        uid: unsigned32(row, 3)?,
        gid: unsigned32(row, 4)?,
        nlink: unsigned32(row, 5)?,
        rdev: unsigned32(row, 6)?,
        size: unsigned(row, 7)?,
        allocated: unsigned(row, 8)?,
        atime: time(9)?,
        mtime: time(10)?,
        ctime: time(11)?,
        btime: time(12)?,
        parent: Ino(unsigned(row, 13)?),
        xattrs: unsigned32(row, 14)?,
        inline: match row.get_ref(15)? {
            ValueRef::Null => None,
            value => Some(Slice::from(value.as_blob().map_err(|_| bad(15, "inline content is no blob"))?.to_vec())),
        },
    })
}

/// Up to `limit` inodes from `from` on, as far as their rows are as they were written; an error if
/// the first is not.
pub(super) fn inodes(connection: &Connection, from: Ino, limit: usize) -> Result<Vec<InodeRow>> {
    let statement = format!("{INODES} WHERE ino >= ?1 ORDER BY ino LIMIT ?2");
    if i64::try_from(from.0).is_err() {
        return Ok(Vec::new());
    }
    let mut rows = Vec::new();
    for row in all(connection, &statement, (sql(from.0), sql(limit as u64)), inode_row)? {
        match row {
            Ok(row) => rows.push(row),
            // It must not hide those before it. A reader that goes on after those comes to it.
            Err(_) if !rows.is_empty() => break,
            Err(error) => return Err(error),
        }
    }
    let ordered = rows.first().is_none_or(|row| row.ino >= from) && rows.is_sorted_by(|a, b| a.ino < b.ino);
    if ordered { Ok(rows) } else { Err(disordered("fileatt")) }
}

/// Returns the error for rows out of order: if a damaged tree gave back earlier rows, paging
/// through the table would never end.
fn disordered(table: &str) -> Error {
    Error::Corrupt(format!("rows of the table {table} are not in order; 'weft check' tells more"))
}

fn kind(row: &Row<'_>, column: usize) -> rusqlite::Result<Kind> {
    Kind::from_mode(unsigned32(row, column)?).ok_or_else(|| bad(column, "no kind"))
}

pub(super) fn name(connection: &Connection, parent: Ino, name: &Name) -> Result<Option<NameRow>> {
    let statement = "SELECT cookie, ino, kind, name, since, sum FROM naming WHERE parent = ?1 AND name = ?2";
    let mut statement = connection.prepare_cached(statement).map_err(failed)?;
    let read = |row: &Row<'_>| name_row(row, parent);
    statement.query_row((sql(parent.0), name.as_bytes()), read).optional().map_err(failed)
}

pub(super) fn names(connection: &Connection, parent: Ino, after: Cookie, limit: usize) -> Result<Vec<NameRow>> {
    // One that the index has and the table has not is damaged, too.
    let statement = "SELECT n.cookie, n.ino, n.kind, n.name, n.since, n.sum, o.cookie \
                     FROM naming o INDEXED BY naming_order LEFT JOIN naming n ON n.parent = o.parent AND n.name = o.name \
                     WHERE o.parent = ?1 AND o.cookie > ?2 ORDER BY o.cookie LIMIT ?3";
    let parameters = (sql(parent.0), sql(after.0), sql(limit as u64));
    let rows = all(connection, statement, parameters, |row| {
        let cookie = unsigned(row, 6)?;
        match row.get_ref(0)?.as_i64_or_null() {
            Ok(Some(of_row)) if u64::try_from(of_row) == Ok(cookie) => name_row(row, parent),
            _ => Err(damage(6, format!("the entry at position {cookie} of directory {} is damaged", parent.0))),
        }
    })?;
    in_order(rows, after, |row| row.cookie)
}

/// The entries `rows`, unless their positions are not all behind `after`, and in their order.
fn in_order<T>(rows: Vec<T>, after: Cookie, position: impl Fn(&T) -> Cookie) -> Result<Vec<T>> {
    let is_behind = rows.first().is_none_or(|row| position(row) > after);
    let is_ordered = is_behind && rows.is_sorted_by(|a, b| position(a) < position(b));
    if is_ordered { Ok(rows) } else { Err(disordered("naming")) }
}

/// Reads those names that are as they were written.
pub(super) fn whole_names(connection: &Connection, parent: Ino, after: Cookie, limit: usize) -> Result<Vec<NameRow>> {
    let statement = "SELECT cookie, ino, kind, name, since, sum FROM naming INDEXED BY naming_order \
                     WHERE parent = ?1 AND cookie > ?2 \
                     AND sum IS weft_sum('naming', parent, name, ino, kind, cookie, since) ORDER BY cookie LIMIT ?3";
    let parameters = (sql(parent.0), sql(after.0), sql(limit as u64));
    let rows = all(connection, statement, parameters, |row| name_row(row, parent))?;
    in_order(rows, after, |row| row.cookie)
}

/// Reads an entry: its position, the inode and its kind, its name, the commit that wrote it, the
/// sum.
pub(super) fn name_row(row: &Row<'_>, parent: Ino) -> rusqlite::Result<NameRow> {
    name_row_with(row, parent, 5, |sum| sum)
}

/// The same with the sum in column `at`, which is what `sum` makes of that of the row.
pub(super) fn name_row_with(
    row: &Row<'_>,
    parent: Ino,
    at: usize,
    sum: impl Fn(i64) -> i64,
) -> rusqlite::Result<NameRow> {
    let bytes = row.get_ref(3)?.as_blob().map_err(|_| bad(3, "name is no blob"))?;
    let name = Name::new(bytes).map_err(|_| bad(3, "not a name"))?;
    let (ino, cookie) = (Ino(unsigned(row, 1)?), Cookie(unsigned(row, 0)?));
    let read = NameRow { parent, name, ino, kind: kind(row, 2)?, cookie };
    let holds = row.get::<_, i64>(at)? == sum(sums::name(&read, CommitNo(unsigned(row, 4)?)));
    if holds {
        Ok(read)
    } else {
        Err(damage(at, format!("the entry at position {} of directory {} is damaged", cookie.0, parent.0)))
    }
}

pub(super) fn listed(connection: &Connection, parent: Ino, after: Cookie, limit: usize) -> Result<Vec<ListedRow>> {
    let statement = "SELECT n.cookie, n.ino, n.kind, n.name, n.since, n.sum, f.mode, f.digest, f.digest_sum, \
                     f.sum IS weft_sum('fileatt', f.ino, f.generation, f.mode, f.uid, f.gid, f.nlink, f.rdev, f.size, \
                     f.allocated, f.atime, f.mtime, f.ctime, f.btime, f.parent, f.xattrs, f.since, f.inline) \
                     FROM naming n INDEXED BY naming_order LEFT JOIN fileatt f ON f.ino = n.ino \
                     WHERE n.parent = ?1 AND n.cookie > ?2 ORDER BY n.cookie LIMIT ?3";
    let rows = all(connection, statement, (sql(parent.0), sql(after.0), sql(limit as u64)), |row| {
        let name = name_row(row, parent)?;
        if row.get_ref(6)? == ValueRef::Null {
            return Err(damage(6, missing::inode(name.ino)));
        }
        if !row.get::<_, bool>(9)? {
            return Err(damage(9, format!("the row of inode {} is damaged", name.ino.0)));
        }
        let permissions = unsigned32(row, 6)? & 0o7777;
        let digest = digest_and_sum(row, 7, name.ino)?;
        Ok(ListedRow { name, permissions, digest })
    })?;
    in_order(rows, after, |row| row.name.cookie)
}

/// The block that columns from `first` on (id, length, base, value, segment, position) tell of.
pub(super) fn block_ref(row: &Row<'_>, first: usize) -> rusqlite::Result<BlockRef> {
    let value = row.get_ref(first + 3)?.as_blob().map_err(|_| bad(first + 3, "value is no blob"))?;
    let place = match row.get::<_, Option<u32>>(first + 4)? {
        None => Place::Database,
        Some(segment) => Place::Segment { segment, offset: unsigned(row, first + 5)? },
    };
    Ok(BlockRef {
        id: BlockId(unsigned(row, first)?),
        length: unsigned32(row, first + 1)?,
        base: unsigned(row, first + 2)?,
        value: value.try_into().map_err(|_| bad(first + 3, "value is not of 32 bytes"))?,
        place,
    })
}

pub(super) fn extents(connection: &Connection, ino: Ino, range: &Range<u64>) -> Result<Vec<(Span, BlockRef)>> {
    let statement = "SELECT e.start, e.block, b.length, b.base, b.value, b.segment, b.position, e.since, e.sum, b.refs, b.sum, \
                     0, e.length FROM extents e LEFT JOIN blocks b ON b.id = e.block \
                     WHERE e.ino = ?1 AND e.start >= ?2 AND e.start < ?3 ORDER BY e.start";
    all(connection, statement, (sql(ino.0), sql(range.start), sql(range.end)), |row| extent(row, ino))
}

/// Reads what an extent covers: its start and its length.
pub(super) fn span(row: &Row<'_>) -> rusqlite::Result<Span> {
    Ok(Span { start: unsigned(row, 0)?, length: unsigned32(row, 1)? })
}

/// Reads an extent of `ino` with its block, as [`extents`] asks for them: last come the commit that
/// replaced it, 0 for one of the present, and the bytes that it covers.
pub(super) fn extent(row: &Row<'_>, ino: Ino) -> rusqlite::Result<(Span, BlockRef)> {
    let (span, id) = (Span { start: unsigned(row, 0)?, length: unsigned32(row, 12)? }, unsigned(row, 1)?);
    let extent = sums::extent(ino, span, id, CommitNo(unsigned(row, 7)?));
    if row.get::<_, i64>(8)? != sums::version(extent, CommitNo(unsigned(row, 11)?)) {
        return Err(damage(8, format!("the row of the block at byte {} of inode {} is damaged", span.start, ino.0)));
    }
    if row.get_ref(2)? == ValueRef::Null {
        return Err(damage(2, format!("block {id}, of inode {}, has no row", ino.0)));
    }
    let block = block_ref(row, 1)?;
    if row.get::<_, i64>(10)? != sums::block(&block, row.get(9)?) {
        return Err(damage(10, format!("block {} has a damaged row", block.id.0)));
    }
    Ok((span, block))
}

pub(super) fn nth_extent(connection: &Connection, ino: Ino, range: &Range<u64>, nth: Nth) -> Result<Option<u64>> {
    let (order, skipped) = match nth {
        Nth::FromStart(skipped) => ("", skipped),
        Nth::FromEnd(skipped) => ("DESC", skipped),
    };
    let statement = format!(
        "SELECT start FROM extents WHERE ino = ?1 AND start >= ?2 AND start < ?3 ORDER BY start {order} LIMIT 1 OFFSET ?4"
    );
    let parameters = (sql(ino.0), sql(range.start), sql(range.end), sql(skipped));
    Ok(all(connection, &statement, parameters, |row| unsigned(row, 0))?.pop())
}

pub(super) fn xattrs(connection: &Connection, ino: Ino) -> Result<Vec<(Name, Vec<u8>)>> {
    let statement = "SELECT name, value, since, sum, 0 FROM xattr WHERE ino = ?1 ORDER BY name";
    let found = all(connection, statement, (sql(ino.0),), |row| xattr(row, ino))?;
    super::missing::xattrs(connection, ino, found.len() as u64)?;
    Ok(found)
}

/// Reads an attribute of `ino`, as [`xattrs`] asks for them: last comes the commit that replaced
/// it, 0 for one of the present.
pub(super) fn xattr(row: &Row<'_>, ino: Ino) -> rusqlite::Result<(Name, Vec<u8>)> {
    let name = row.get_ref(0)?.as_blob().map_err(|_| bad(0, "name is no blob"))?;
    let (name, value) = (Name::of_xattr(name).map_err(|_| bad(0, "not a name"))?, row.get::<_, Vec<u8>>(1)?);
    let sum = sums::xattr(ino, name.as_bytes(), &value, CommitNo(unsigned(row, 2)?));
    match row.get::<_, i64>(3)? == sums::version(sum, CommitNo(unsigned(row, 4)?)) {
        true => Ok((name, value)),
        false => Err(damage(3, format!("an attribute of inode {} is damaged", ino.0))),
    }
}

/// Inodes without a name. One whose row is damaged may have names, and is none of them.
pub(super) fn orphans(connection: &Connection) -> Result<Vec<Ino>> {
    let statement = format!("SELECT ino FROM fileatt WHERE nlink = 0 AND {} ORDER BY ino", INODE.holds());
    all(connection, &statement, (), |row| unsigned(row, 0).map(Ino))
}

/// Inodes whose row says that no name leads to them, though one does.
pub(super) fn misnamed(connection: &Connection) -> Result<Vec<Ino>> {
    let statement = "SELECT ino FROM fileatt f WHERE nlink = 0 \
                     AND EXISTS (SELECT 1 FROM naming n INDEXED BY naming_inode WHERE n.ino = f.ino) ORDER BY ino";
    all(connection, statement, (), |row| unsigned(row, 0).map(Ino))
}

pub(super) fn block_bytes(connection: &Connection, id: BlockId) -> Result<Block> {
    let statement = "SELECT bytes FROM block_bytes WHERE id = ?1";
    let mut statement = connection.prepare_cached(statement).map_err(failed)?;
    let copied = |row: &Row<'_>| Ok(Block::copy_of(row.get_ref(0)?.as_blob()?));
    let found = statement.query_row((sql(id.0),), copied).optional().map_err(failed)?;
    found.ok_or_else(|| Error::Corrupt(format!("the bytes of block {} are missing", id.0)))
}

/// Returns the data that verifies parts of a block; none where it is missing, or does not belong to
/// its value.
pub(super) fn parts(connection: &Connection, block: &BlockRef) -> Result<Option<Parts>> {
    let mut statement = connection.prepare_cached("SELECT parts FROM blocks WHERE id = ?1").map_err(failed)?;
    let own = |parts: &[u8]| Parts::from_bytes(parts, &block.value, block.base);
    let read = |row: &Row<'_>| Ok(row.get_ref(0)?.as_blob().ok().and_then(own));
    Ok(statement.query_row((sql(block.id.0),), read).optional().map_err(failed)?.flatten())
}

/// A digest as a column has it; none where nothing is, or nothing that Weft writes.
pub(super) fn digest(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<Digest>> {
    Ok(match row.get_ref(column)? {
        ValueRef::Blob(bytes) => bytes.try_into().ok(),
        _ => None,
    })
}

/// The digest that column `first` has of inode `ino`, and the next one the sum of; none where it is
/// damaged.
pub(super) fn digest_and_sum(row: &Row<'_>, first: usize, ino: Ino) -> rusqlite::Result<Option<Digest>> {
    let sum = row.get_ref(first + 1)?.as_i64().ok();
    Ok(digest(row, first)?.filter(|digest| sum == Some(sums::digest(ino, Some(digest)))))
}

/// The digest kept of an inode.
pub(super) fn digest_of(connection: &Connection, ino: Ino) -> Result<Option<Digest>> {
    let statement = "SELECT digest, digest_sum FROM fileatt WHERE ino = ?1";
    let mut statement = connection.prepare_cached(statement).map_err(failed)?;
    let read = |row: &Row<'_>| digest_and_sum(row, 0, ino);
    Ok(statement.query_row((sql(ino.0),), read).optional().map_err(failed)?.flatten())
}

/// The first `limit` commits from `from` on, in their order.
pub(super) fn commits(connection: &Connection, from: CommitNo, limit: usize) -> Result<Vec<CommitRow>> {
    let statement = "SELECT number, time, op, root_digest, previous_digest, sum FROM commits WHERE number >= ?1 ORDER BY number LIMIT ?2";
    let digest = |row: &Row<'_>, column: usize| -> rusqlite::Result<Option<Digest>> {
        let bytes = row.get_ref(column)?.as_blob_or_null().map_err(|_| bad(column, "digest is no blob"))?;
        bytes.map(|bytes| bytes.try_into().map_err(|_| bad(column, "digest is not of 32 bytes"))).transpose()
    };
    all(connection, statement, (sql(from.0), sql(limit as u64)), |row| {
        let (root, previous) = (digest(row, 3)?, digest(row, 4)?);
        let (number, op) = (CommitNo(unsigned(row, 0)?), OpNo(unsigned(row, 2)?));
        let commit = CommitRow { number, time: Timestamp(row.get(1)?), op, root, previous };
        let holds = row.get::<_, i64>(5)? == sums::commit(&commit);
        if holds { Ok(commit) } else { Err(damage(5, format!("the row of commit {} is damaged", number.0))) }
    })
}
