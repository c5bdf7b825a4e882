//! Reading the past: each question is one statement, and each row is verified by its sum as those
//! of the present are.

use super::connection::{Call, Connection, Parameter};
use super::read::{self, get, int, unsigned};
use super::statements::history;
use crate::Name;
use crate::error::{Error, Result};
use crate::history::fork::forks_at;
use crate::missing::refuse_xattrs;
use crate::past::{History, HistoryFor, Pin, PinKind};
use crate::row::{BlockRef, CommitNo, CommitRow, Cookie, Ino, InodeRow, NameRow, Span, Timestamp};
use crate::sums;
use std::ops::Range;
use tokio_postgres::Row;
use weft_digest::Digest;

const WHAT: &str = "cannot read the past";

/// Commits that may happen between a look at the number of the last one and a statement that asks
/// for the versions that they replace.
const COMMITS_MEANWHILE: u64 = 1 << 16;

/// Commits that may happen while a volume is read beside its holder: more than there can be.
const COMMITS_BESIDE: u64 = 1 << 40;

/// A moment of the past: a commit, and the forks of the versions that held then.
pub(super) struct PastCommit {
    commit: CommitNo,
    forks: Vec<i64>,
}

impl PastCommit {
    /// As `commit` left the volume, whose last commit is `last` or a little later one.
    pub(super) fn new(commit: CommitNo, last: CommitNo) -> PastCommit {
        PastCommit::before(commit, last, COMMITS_MEANWHILE)
    }

    /// As `commit` left the volume, whose holder, another process, had made `last` at some time.
    /// Versions that any later commit replaces are found, at the price of some more forks.
    pub(super) fn beside(commit: CommitNo, last: CommitNo) -> PastCommit {
        PastCommit::before(commit, last, COMMITS_BESIDE)
    }

    fn before(commit: CommitNo, last: CommitNo, meanwhile: u64) -> PastCommit {
        let last = CommitNo(last.0.saturating_add(meanwhile));
        PastCommit { commit, forks: forks_at(commit, last).into_iter().map(int).collect() }
    }

    fn number(&self) -> Parameter {
        Box::new(int(self.commit.0))
    }

    fn forks(&self) -> Parameter {
        Box::new(self.forks.clone())
    }

    /// Asks for rows as of the commit. `Unusable` if it is not kept: any of them may be gone then.
    /// That is asked behind them, as one that is still kept was kept before.
    fn ask(
        &self,
        connection: &mut Connection,
        statement: &'static str,
        parameters: Vec<Parameter>,
    ) -> Result<Vec<Row>> {
        let found = self.ask_all(connection, vec![Call::new(statement, parameters)])?;
        Ok(found.into_iter().next().unwrap_or_default())
    }

    /// The same of many questions at once.
    fn ask_all(&self, connection: &mut Connection, mut calls: Vec<Call>) -> Result<Vec<Vec<Row>>> {
        calls.push(Call::new(history::IS_KEPT, vec![self.number()]));
        let mut found = connection.query_all(WHAT, &calls)?;
        match found.pop().unwrap_or_default().is_empty() {
            false => Ok(found),
            true => Err(Error::Unusable(format!("commit {} is not kept any more", self.commit.0))),
        }
    }
}

fn parameter(number: u64) -> Parameter {
    Box::new(int(number))
}

/// The commit that replaced a version; none of a row of the present.
fn until(row: &Row, column: usize) -> Result<Option<CommitNo>> {
    let until = get::<Option<i64>>(row, column)?;
    until.map(|_| Ok(CommitNo(unsigned(row, column)?))).transpose()
}

/// The sum of a row, or of its version.
fn of_version(sum: i64, until: Option<CommitNo>) -> i64 {
    until.map_or(sum, |until| sums::version(sum, until))
}

/// Reads what is kept from its row.
fn history_row(row: &Row) -> Result<History> {
    let readers =
        HistoryFor::named(&get::<String>(row, 1)?).ok_or_else(|| read::bad("readers of the past that are none"))?;
    let (first, swept) = (CommitNo(unsigned(row, 2)?), CommitNo(unsigned(row, 3)?));
    let history = History { rule: get(row, 0)?, readers, first, swept };
    read::whole(row, 4, sums::retention(&history), || "the row that says what is kept of the past".into())?;
    Ok(history)
}

fn pin_row(row: &Row) -> Result<Pin> {
    let kind = PinKind::numbered(get(row, 1)?).ok_or_else(|| read::bad("a pin of no kind"))?;
    let held_until = get::<Option<i64>>(row, 4)?.map(Timestamp);
    let commit = CommitNo(unsigned(row, 0)?);
    let pin = Pin { commit, kind, name: get(row, 2)?, made: Timestamp(get(row, 3)?), held_until };
    read::whole(row, 5, sums::pin(&pin), || format!("the row of a pin of commit {}", commit.0))?;
    Ok(pin)
}

/// Returns the history, and the pins of commits in `range`.
pub(super) fn kept(
    connection: &mut Connection,
    (from, to): (CommitNo, CommitNo),
) -> Result<(Option<History>, Vec<Pin>)> {
    let pins = Call::new(history::PINS, vec![parameter(from.0), parameter(to.0)]);
    let mut found = connection.query_all(WHAT, &[Call::new(history::RETENTION, Vec::new()), pins])?.into_iter();
    let mut next = || found.next().unwrap_or_default();
    let (retention, pins) = (next(), next());
    Ok((retention.first().map(history_row).transpose()?, pins.iter().map(pin_row).collect::<Result<_>>()?))
}

/// Returns the history.
pub(super) fn history(connection: &mut Connection) -> Result<Option<History>> {
    let rows = connection.query(WHAT, history::RETENTION, Vec::new())?;
    rows.first().map(history_row).transpose()
}

/// True if history is on, whatever its row says.
pub(super) fn is_on(connection: &mut Connection) -> Result<bool> {
    Ok(!connection.query(WHAT, history::RETENTION, Vec::new())?.is_empty())
}

/// All pins, by commit.
pub(super) fn pins(connection: &mut Connection) -> Result<Vec<Pin>> {
    let rows = connection.query(WHAT, history::PINS, vec![parameter(0), parameter(u64::MAX)])?;
    rows.iter().map(pin_row).collect()
}

/// The last commit at or before `time`.
pub(super) fn commit_at(connection: &mut Connection, time: Timestamp) -> Result<Option<CommitRow>> {
    let rows = connection.query(WHAT, history::COMMIT_AT, vec![Box::new(time.0)])?;
    rows.first().map(read::commit_row).transpose()
}

/// A row of [`history::INODES_AT`] or [`history::VERSIONS`].
fn version_row(row: &Row) -> Result<(InodeRow, CommitNo, Option<CommitNo>)> {
    let inode = read::unverified_inode_row(row)?;
    let (since, until) = (CommitNo(unsigned(row, 16)?), until(row, 18)?);
    let sum = of_version(sums::inode(&inode, since, None), until);
    read::whole(row, 17, sum, || format!("the row of inode {}", inode.ino.0))?;
    Ok((inode, since, until))
}

/// Numbers among which inodes are looked for at once, for each that is wanted: inodes share the
/// sequence of theirs with positions of entries.
const NUMBERS_EACH: u64 = 2;

/// The same after a part that had few, as of a tree that was removed: so many times as many, up to
/// so many.
const NUMBERS_MORE: (u64, u64) = (4, 1 << 13);

/// Up to `limit` inodes as of `at` with numbers in `inos`. A question about a range takes time in
/// proportion to all that have versions there, so a long one is asked about in parts.
pub(super) fn inodes(
    connection: &mut Connection,
    at: &PastCommit,
    inos: &Range<Ino>,
    limit: usize,
) -> Result<Vec<(InodeRow, CommitNo)>> {
    let (mut from, end) = (inos.start.0, inos.end.0.min(i64::MAX.unsigned_abs()));
    // Its index finds one without a look at all after it.
    if end.checked_sub(from) == Some(1) && limit > 0 {
        let rows = at.ask(connection, history::INODE_AT, vec![parameter(from), at.number()])?;
        let rows = rows.first().map(version_row).transpose()?;
        return Ok(rows.map(|(inode, since, _)| (inode, since)).into_iter().collect());
    }
    let (mut inodes, mut numbers) = (Vec::new(), 0_u64);
    while from < end && inodes.len() < limit {
        let left = limit - inodes.len();
        numbers = numbers.saturating_mul(NUMBERS_MORE.0).min(NUMBERS_MORE.1);
        numbers = numbers.max(NUMBERS_EACH.saturating_mul(left as u64));
        let part_end = from.saturating_add(numbers).min(end);
        let parameters = vec![parameter(from), at.number(), parameter(left as u64), parameter(part_end)];
        let statement = if connection.lies_apart { history::INODES_AT_APART } else { history::INODES_AT };
        let rows = at.ask(connection, statement, parameters)?;
        for row in &rows {
            match version_row(row) {
                Ok((inode, since, _)) => inodes.push((inode, since)),
                // As of the present (`read::inodes`).
                Err(_) if !inodes.is_empty() => return Ok(inodes),
                Err(error) => return Err(error),
            }
        }
        if part_end == end || inodes.len() == limit {
            break;
        }
        let next = at.ask(connection, history::NEXT_INODE, vec![parameter(part_end)])?;
        let next = next.first().map(|row| get::<Option<i64>>(row, 0)).transpose()?.flatten();
        let Some(next) = next else { break };
        from = next.unsigned_abs();
    }
    Ok(inodes)
}

/// Versions of `ino` that were replaced at or before `until`, newest first.
pub(super) fn versions(
    connection: &mut Connection,
    ino: Ino,
    until: CommitNo,
    limit: usize,
) -> Result<Vec<(InodeRow, Range<CommitNo>)>> {
    let parameters = vec![parameter(ino.0), parameter(until.0), parameter(limit as u64)];
    let rows = connection.query(WHAT, history::VERSIONS, parameters)?;
    let version = |row| {
        let (inode, since, until) = version_row(row)?;
        Ok((inode, since..until.unwrap_or_default()))
    };
    rows.iter().map(version).collect()
}

/// Inodes that there were as of `after`, and whose rows were replaced up to `to`. `Unusable` if
/// `after` is not kept.
pub(super) fn changed_inodes(connection: &mut Connection, after: &PastCommit, to: CommitNo) -> Result<Vec<Ino>> {
    let rows = after.ask(connection, history::CHANGED_INODES, vec![after.number(), parameter(to.0)])?;
    rows.iter().map(|row| Ok(Ino(unsigned(row, 0)?))).collect()
}

fn name_row(row: &Row, parent: Ino) -> Result<NameRow> {
    let until = until(row, 6)?;
    read::name_row_with(row, parent, |sum| of_version(sum, until))
}

/// The entry `name` of `parent`.
pub(super) fn name(connection: &mut Connection, at: &PastCommit, parent: Ino, name: &Name) -> Result<Option<NameRow>> {
    let name = Box::new(name.as_bytes().to_vec());
    let rows = at.ask(connection, history::NAME_AT, vec![parameter(parent.0), name, at.number(), at.forks()])?;
    rows.first().map(|row| name_row(row, parent)).transpose()
}

/// Entries of `parent` behind position `after`.
pub(super) fn names(
    connection: &mut Connection,
    at: &PastCommit,
    (parent, after): (Ino, Cookie),
    limit: usize,
) -> Result<Vec<NameRow>> {
    let place = [parent.0, after.0].map(parameter);
    let parameters = place.into_iter().chain([at.number(), at.forks(), parameter(limit as u64)]).collect();
    let rows = at.ask(connection, history::NAMES_AT, parameters)?;
    rows.iter().map(|row| name_row(row, parent)).collect()
}

/// Extents of `ino` in `range`.
pub(super) fn extents(
    connection: &mut Connection,
    at: &PastCommit,
    ino: Ino,
    range: &Range<u64>,
) -> Result<Vec<(Span, BlockRef)>> {
    let found = extents_of(connection, at, std::iter::once((ino, range.clone())))?;
    Ok(found.into_iter().next().unwrap_or_default())
}

/// Extents of each of `files`, from its beginning to a byte.
pub(super) fn all_extents(
    connection: &mut Connection,
    at: &PastCommit,
    files: &[(Ino, u64)],
) -> Result<Vec<Vec<(Span, BlockRef)>>> {
    extents_of(connection, at, files.iter().map(|(ino, end)| (*ino, 0..*end)))
}

fn extents_of(
    connection: &mut Connection,
    at: &PastCommit,
    files: impl Iterator<Item = (Ino, Range<u64>)>,
) -> Result<Vec<Vec<(Span, BlockRef)>>> {
    let statement = if connection.lies_apart { history::EXTENTS_AT_APART } else { history::EXTENTS_AT };
    let call = |(ino, range): (Ino, Range<u64>)| {
        let place = [ino.0, range.start, range.end].map(parameter);
        Call::new(statement, place.into_iter().chain([at.number(), at.forks()]).collect())
    };
    let found = at.ask_all(connection, files.map(call).collect())?;
    let mut extents = Vec::with_capacity(found.len());
    for rows in found {
        // A kept commit needs them, so no commit removes them meanwhile.
        let others = read::others(connection, &rows, &[])?;
        let extent = |row| {
            let until = until(row, 13)?;
            read::extent_with(row, &others, |sum| of_version(sum, until))
        };
        extents.push(rows.iter().map(extent).collect::<Result<_>>()?);
    }
    Ok(extents)
}

/// Extended attributes of `ino`.
pub(super) fn xattrs(connection: &mut Connection, at: &PastCommit, ino: Ino) -> Result<Vec<(Name, Vec<u8>)>> {
    let parameters = vec![parameter(ino.0), at.number(), at.forks()];
    let mut rows = at.ask(connection, history::XATTRS_AT, parameters)?;
    // It comes last; an inode that was not there has none.
    if let Some(count) = rows.pop_if(|row| row.try_get::<_, Option<&[u8]>>(0).is_ok_and(|name| name.is_none())) {
        refuse_xattrs(ino, rows.len() as u64, unsigned(&count, 2)?)?;
    }
    let xattr = |row: &Row| {
        let until = until(row, 4)?;
        read::xattr_row(row, ino, |sum| of_version(sum, until))
    };
    rows.iter().map(xattr).collect()
}

/// The digest of `ino`.
pub(super) fn digest(connection: &mut Connection, at: &PastCommit, ino: Ino) -> Result<Option<Digest>> {
    Ok(digests(connection, at, &[ino])?.pop().flatten())
}

/// The digests of `inos`.
pub(super) fn digests(connection: &mut Connection, at: &PastCommit, inos: &[Ino]) -> Result<Vec<Option<Digest>>> {
    let call = |ino: &Ino| Call::new(history::DIGEST_AT, vec![parameter(ino.0), at.number()]);
    let found = at.ask_all(connection, inos.iter().map(call).collect())?;
    found.iter().zip(inos).map(|(rows, ino)| digest_of(rows, at, *ino)).collect()
}

fn digest_of(rows: &[Row], at: &PastCommit, ino: Ino) -> Result<Option<Digest>> {
    let Some(row) = rows.first() else { return Ok(None) };
    let Some(until) = until(row, 3)? else { return read::digest_and_sum(row, 0, ino) };
    let since = CommitNo(unsigned(row, 2)?);
    if since > at.commit {
        return Ok(None);
    }
    let sum = |digest: &Digest| sums::content(sums::digest(ino, Some(digest)), since, until);
    Ok(read::digest(row, 0)?.filter(|digest| read::holds(row, 1, sum(digest))))
}
