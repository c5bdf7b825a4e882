//! Reading rows. A value that no Weft writes is damage, never a default.

use super::connection::{Call, Connection};
use super::prefetcher::{BLOCK_BYTES_MAX, EXTENTS_MAX, NAMES_MAX, Prefetcher, Wanted};
use super::{own, statements as sql};
use crate::Name;
use crate::batch::Counters;
use crate::error::{Error, ErrorKind, Result};
use crate::missing::refuse_xattrs;
use crate::row::{
    BlockId, BlockRef, CommitNo, CommitRow, Cookie, Ino, InodeRow, ListedRow, NameRow, OpNo, Place, Span, Timestamp,
};
use crate::store::{BlockHome, Header, Nth, VolumeOptions};
use crate::{missing, sums};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use tokio_postgres::Row;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::FromSqlOwned;
use weft_block::{Block, Slice};
use weft_digest::{Digest, DirectoryHasher, Entry, Kind};

const WHAT: &str = "cannot read the database";

/// Blocks of a file that come along with their bytes, if those are few.
const WITH_BYTES: i64 = 128 << 10;

/// A number as PostgreSQL holds it. Numbers past `i64::MAX` do not occur; range ends are cut there.
pub(super) fn int(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(super) fn bad(what: impl std::fmt::Display) -> Error {
    Error::Corrupt(format!("the database holds what no Weft writes: {what}"))
}

pub(super) fn get<T: FromSqlOwned>(row: &Row, column: usize) -> Result<T> {
    row.try_get(column).map_err(|error| bad(format_args!("column {}: {error}", row.columns()[column].name())))
}

pub(super) fn number<T: TryFrom<i64>>(row: &Row, column: usize) -> Result<T> {
    let value: i64 = get(row, column)?;
    T::try_from(value).map_err(|_| bad(format_args!("{value} in column {}", row.columns()[column].name())))
}

pub(super) fn unsigned(row: &Row, column: usize) -> Result<u64> {
    number(row, column)
}

fn kind(row: &Row, column: usize) -> Result<Kind> {
    Kind::from_mode(number(row, column)?).ok_or_else(|| bad("a mode of no kind"))
}

/// The digest that a column has of inode `ino`, and the next one the sum of; none where it is
/// damaged.
pub(super) fn digest_and_sum(row: &Row, column: usize, ino: Ino) -> Result<Option<Digest>> {
    Ok(digest(row, column)?.filter(|digest| holds(row, column + 1, sums::digest(ino, Some(digest)))))
}

/// The same of the hash of an entry.
pub(super) fn hash_and_sum(row: &Row, column: usize, parent: Ino, name: &[u8]) -> Result<Option<Digest>> {
    Ok(digest(row, column)?.filter(|hash| holds(row, column + 1, sums::entry(parent, name, Some(hash)))))
}

/// A digest as a column has it; none where nothing is, or nothing that Weft writes.
pub(super) fn digest(row: &Row, column: usize) -> Result<Option<Digest>> {
    Ok(get::<Option<Vec<u8>>>(row, column)?.and_then(|bytes| bytes.try_into().ok()))
}

pub(super) fn name_in(row: &Row, column: usize) -> Result<Name> {
    Name::new(&get::<Vec<u8>>(row, column)?).map_err(|_| bad("a name that is none"))
}

/// The version of what lies in the database.
pub(super) fn format(connection: &mut Connection) -> Result<u32> {
    let rows = connection.query(WHAT, sql::FORMAT, Vec::new())?;
    rows.first().map_or_else(|| Err(bad("no row in the table volume")), |row| number(row, 0))
}

/// The volume's own row. One that is not as a commit wrote it tells nothing that can be trusted:
/// `Corrupt`.
pub(super) fn header(connection: &mut Connection) -> Result<Header> {
    let rows = connection.query(WHAT, sql::HEADER, Vec::new())?;
    let header = rows.first().map(header_row).transpose()?.ok_or_else(|| bad("no row in the table volume"))?;
    match rows.first().is_some_and(|row| holds(row, 16, header.sum())) {
        true => Ok(header),
        false => {
            let what = "the volume's own row is not as Weft wrote it, so that nothing here can be trusted; \
                        restore the volume from a copy";
            Err(Error::Corrupt(what.into()))
        }
    }
}

/// The same, whatever its sum.
pub(super) fn unverified_header(connection: &mut Connection) -> Result<Header> {
    let rows = connection.query(WHAT, sql::HEADER, Vec::new())?;
    rows.first().map(header_row).transpose()?.ok_or_else(|| bad("no row in the table volume"))
}

fn header_row(row: &Row) -> Result<Header> {
    let options = VolumeOptions {
        block_size: number(row, 2)?,
        inline_max: number(row, 3)?,
        home: BlockHome::Database,
        bytes_max: get::<Option<i64>>(row, 4)?.map(i64::unsigned_abs),
        inodes_max: get::<Option<i64>>(row, 5)?.map(i64::unsigned_abs),
        digests: get(row, 6)?,
        own_table_from: get::<Option<i64>>(row, 14)?.map(i64::unsigned_abs),
    };
    // Not all that can be made now: other sizes could be, once.
    if !options.block_size.is_power_of_two() {
        return Err(bad("a block size that is no power of two"));
    }
    let counters = Counters {
        op: OpNo(unsigned(row, 8)?),
        next_id: unsigned(row, 9)?,
        next_block: unsigned(row, 10)?,
        epoch: unsigned(row, 11)?,
        bytes_used: unsigned(row, 12)?,
        inodes_used: unsigned(row, 13)?,
    };
    let (created, commit) = (Timestamp(get(row, 1)?), CommitNo(unsigned(row, 7)?));
    let uuid = get::<Vec<u8>>(row, 15)?.try_into().map_err(|_| bad("an id of a volume that is not of 16 bytes"))?;
    Ok(Header { format: number(row, 0)?, uuid, options, commit, created, counters })
}

/// The row of an inode, verified.
pub(super) fn inode_row(row: &Row) -> Result<InodeRow> {
    let read = unverified_inode_row(row)?;
    let since = CommitNo(unsigned(row, 16)?);
    whole(row, 17, sums::inode(&read, since, None), || format!("the row of inode {}", read.ino.0))?;
    Ok(read)
}

/// True if column `sum` of a row has the sum of the others.
pub(super) fn holds(row: &Row, column: usize, sum: i64) -> bool {
    row.try_get(column).is_ok_and(|kept: Option<i64>| kept == Some(sum))
}

pub(super) fn whole(row: &Row, column: usize, sum: i64, what: impl Fn() -> String) -> Result<()> {
    let damaged = || Error::Corrupt(format!("{} is damaged; 'weft check' tells more", what()));
    holds(row, column, sum).then_some(()).ok_or_else(damaged)
}

pub(super) fn unverified_inode_row(row: &Row) -> Result<InodeRow> {
    let mode: u32 = number(row, 2)?;
    let time = |column| get(row, column).map(Timestamp);
    Ok(InodeRow {
        ino: Ino(unsigned(row, 0)?),
        generation: number(row, 1)?,
        kind: kind(row, 2)?,
        permissions: mode & 0o7777,
        uid: number(row, 3)?,
        gid: number(row, 4)?,
        nlink: number(row, 5)?,
        rdev: number(row, 6)?,
        size: unsigned(row, 7)?,
        allocated: unsigned(row, 8)?,
        atime: time(9)?,
        mtime: time(10)?,
        ctime: time(11)?,
        btime: time(12)?,
        parent: Ino(unsigned(row, 13)?),
        xattrs: number(row, 14)?,
        inline: get::<Option<Vec<u8>>>(row, 15)?.map(Slice::from),
    })
}

pub(super) fn inodes(connection: &mut Connection, from: Ino, limit: usize) -> Result<Vec<InodeRow>> {
    if i64::try_from(from.0).is_err() {
        return Ok(Vec::new());
    }
    let rows = connection.query(WHAT, sql::INODES, vec![Box::new(int(from.0)), Box::new(int(limit as u64))])?;
    let mut inodes = Vec::with_capacity(rows.len());
    for row in &rows {
        match inode_row(row) {
            Ok(row) => inodes.push(row),
            // It must not hide those before it. A reader that goes on after those comes to it.
            Err(_) if !inodes.is_empty() => break,
            Err(error) => return Err(error),
        }
    }
    Ok(inodes)
}

pub(super) fn name_row(row: &Row, parent: Ino) -> Result<NameRow> {
    name_row_with(row, parent, |sum| sum)
}

/// The same of a row whose sum `kept_as` makes of that of an entry.
pub(super) fn name_row_with(row: &Row, parent: Ino, kept_as: impl Fn(i64) -> i64) -> Result<NameRow> {
    let (cookie, ino) = (Cookie(unsigned(row, 0)?), Ino(unsigned(row, 1)?));
    let read = NameRow { parent, name: name_in(row, 3)?, ino, kind: kind(row, 2)?, cookie };
    let sum = kept_as(sums::name(&read, CommitNo(unsigned(row, 4)?)));
    whole(row, 5, sum, || format!("the entry at position {} of directory {}", cookie.0, parent.0))?;
    Ok(read)
}

pub(super) fn name(connection: &mut Connection, parent: Ino, name: &Name) -> Result<Option<NameRow>> {
    let parameters: Vec<_> = vec![Box::new(int(parent.0)) as _, Box::new(name.as_bytes().to_vec()) as _];
    let rows = connection.query(WHAT, sql::NAME, parameters)?;
    rows.first().map(|row| name_row(row, parent)).transpose()
}

/// The rows of the first call, and of the second if there is one.
fn with_more(connection: &mut Connection, calls: &[Call]) -> Result<(Vec<Row>, Vec<Row>)> {
    let mut answers = connection.query_all(WHAT, calls)?.into_iter();
    Ok((answers.next().unwrap_or_default(), answers.next().unwrap_or_default()))
}

/// Entries of `parent`; has what `ahead` wants come along.
pub(super) fn names(
    connection: &mut Connection,
    parent: Ino,
    after: Cookie,
    limit: usize,
    prefetcher: Option<(&Prefetcher, &Wanted)>,
) -> Result<Vec<NameRow>> {
    let numbers = |numbers: [u64; 3]| numbers.map(|number| Box::new(int(number)) as _).into();
    let mut calls = vec![Call::new(sql::NAMES, numbers([parent.0, after.0, limit as u64]))];
    if let Some((_, Wanted { span: (first, last), .. })) = prefetcher {
        calls.push(Call::new(sql::NAMES_AHEAD, numbers([first.0, last.0, NAMES_MAX as u64])));
    }
    let (own, more) = with_more(connection, &calls)?;
    if let Some((prefetcher, wanted)) = prefetcher {
        prefetcher.keep_names(wanted, &more)?;
    }
    own.iter().map(|row| name_row(row, parent)).collect()
}

/// Entries of `parent` whose rows are as they were written.
pub(super) fn whole_names(
    connection: &mut Connection,
    parent: Ino,
    after: Cookie,
    limit: usize,
) -> Result<Vec<NameRow>> {
    let (mut whole, mut after) = (Vec::new(), int(after.0));
    loop {
        let numbers = [int(parent.0), after, int(limit as u64)];
        let rows = connection.query(WHAT, sql::NAMES, numbers.map(|number| Box::new(number) as _).into())?;
        whole.extend(rows.iter().filter_map(|row| name_row(row, parent).ok()));
        match rows.last().filter(|_| rows.len() >= limit && whole.len() < limit) {
            Some(last) => after = get(last, 0)?,
            None => break,
        }
    }
    whole.truncate(limit);
    Ok(whole)
}

pub(super) fn listed(connection: &mut Connection, parent: Ino, after: Cookie, limit: usize) -> Result<Vec<ListedRow>> {
    let parameters: Vec<_> =
        vec![Box::new(int(parent.0)) as _, Box::new(int(after.0)) as _, Box::new(int(limit as u64)) as _];
    let rows = connection.query(WHAT, sql::LISTED, parameters)?;
    let hasher = DirectoryHasher::new();
    let listed = |row: &Row| {
        let name = name_row(row, parent)?;
        if get::<Option<i64>>(row, 8)?.is_none() {
            return Err(Error::Corrupt(format!("{}; 'weft check' tells more", missing::inode(name.ino))));
        }
        let permissions = number::<u16>(row, 8)? & 0o7777;
        let digest = digest_and_sum(row, 9, name.ino)?;
        // The entry's own hash is of what is told here.
        let hash = hash_and_sum(row, 6, parent, name.name.as_bytes())?;
        let told = |digest| hasher.entry(&Entry { name: name.name.as_bytes(), kind: name.kind, permissions, digest });
        if let Some((digest, hash)) = digest.zip(hash)
            && told(digest) != hash
        {
            return Err(Error::Corrupt(format!("the row of inode {} is damaged; 'weft check' tells more", name.ino.0)));
        }
        Ok(ListedRow { name, permissions: permissions.into(), digest })
    };
    rows.iter().map(listed).collect()
}

/// Reads as [`crate::RowStore::nth_extent`] does.
pub(super) fn nth_extent(connection: &mut Connection, ino: Ino, range: &Range<u64>, nth: Nth) -> Result<Option<u64>> {
    let (statement, skipped) = match nth {
        Nth::FromStart(skipped) => (sql::EXTENT_FROM_START, skipped),
        Nth::FromEnd(skipped) => (sql::EXTENT_FROM_END, skipped),
    };
    let numbers = [ino.0, range.start, range.end, skipped].map(|number| Box::new(int(number)) as _);
    let found = connection.query_all(WHAT, &[Call::new(statement, numbers.into())])?.pop().unwrap_or_default();
    found.first().map(|row| unsigned(row, 0)).transpose()
}

/// Asks for extents of files, with the bytes of what is short.
fn extents_ahead(connection: &Connection, wanted: &Wanted) -> Call {
    let statement = if connection.lies_apart { sql::EXTENTS_AHEAD_APART } else { sql::EXTENTS_AHEAD };
    let (first, last) = wanted.span;
    let numbers = [int(first.0), int(last.0), BLOCK_BYTES_MAX, int(EXTENTS_MAX as u64)];
    Call::new(statement, numbers.map(|number| Box::new(number) as _).into())
}

/// Blocks that extents name and that no join found, as they are not their files' own: they were
/// cloned. Where files lie apart their rows lie with the file that wrote them, on another node
/// perhaps, so they are asked for by themselves.
pub(super) type Others = HashMap<BlockId, Row>;

/// Asks for those that `own` and `ahead` name, rows of [`sql::EXTENTS`] and [`sql::EXTENTS_AHEAD`];
/// of the latter with the bytes of short ones.
pub(super) fn others(connection: &mut Connection, own: &[Row], prefetcher: &[Row]) -> Result<Others> {
    let mut asked = BTreeMap::<(i64, bool), Vec<i64>>::new();
    for (row, is_ahead) in own.iter().map(|row| (row, false)).chain(prefetcher.iter().map(|row| (row, true))) {
        if is_elsewhere(row)? {
            let with_bytes = is_ahead && get::<i64>(row, 1)? < WITH_BYTES;
            asked.entry((get(row, 3)?, with_bytes)).or_default().push(get(row, 2)?);
        }
    }
    let call = |((owner, with_bytes), blocks): ((i64, bool), Vec<i64>)| {
        let short = if with_bytes { BLOCK_BYTES_MAX } else { -1 };
        Call::new(sql::OTHERS_BLOCKS, vec![Box::new(owner), Box::new(blocks), Box::new(short)])
    };
    let calls = asked.into_iter().map(call).collect::<Vec<_>>();
    let found = connection.query_all(WHAT, &calls)?;
    found.into_iter().flatten().map(|row| Ok((BlockId(unsigned(&row, 0)?), row))).collect()
}

/// True if the block of an extent is another file's, and was not found.
fn is_elsewhere(row: &Row) -> Result<bool> {
    Ok(get::<Option<i64>>(row, 4)?.is_none() && get::<i64>(row, 0)? != get::<i64>(row, 3)?)
}

/// Prefetches the extents of the files that are due.
pub(super) fn more_extents(connection: &mut Connection, wanted: &Wanted) -> Result<(Vec<Row>, Others)> {
    let rows = connection.query_all(WHAT, &[extents_ahead(connection, wanted)])?.pop().unwrap_or_default();
    let others = others(connection, &[], &rows)?;
    Ok((rows, others))
}

/// The extents of `ino` in `range`; has what `ahead` wants come along.
pub(super) fn extents(
    connection: &mut Connection,
    ino: Ino,
    range: &Range<u64>,
    prefetcher: Option<(&Prefetcher, &Wanted)>,
) -> Result<Vec<(Span, BlockRef)>> {
    let numbers = [ino.0, range.start, range.end].map(int);
    let statement = if connection.lies_apart { sql::EXTENTS_APART } else { sql::EXTENTS };
    let mut calls = vec![Call::new(statement, numbers.map(|number| Box::new(number) as _).into())];
    calls.extend(prefetcher.map(|(_, wanted)| extents_ahead(connection, wanted)));
    let mut missing = BTreeSet::new();
    loop {
        let (own, more) = with_more(connection, &calls)?;
        let others = others(connection, &own, &more)?;
        let mut gone = BTreeSet::new();
        for row in &own {
            let id = BlockId(unsigned(row, 2)?);
            if is_elsewhere(row)? && !others.contains_key(&id) {
                gone.insert(id);
            }
        }
        // A commit may have removed it since the extents were read. If they still name what was
        // gone already it is damage.
        if gone.is_disjoint(&missing) && !gone.is_empty() {
            missing = gone;
            continue;
        }
        if let Some((prefetcher, wanted)) = prefetcher {
            prefetcher.keep_extents(wanted, &more, &others)?;
        }
        return own.iter().map(|row| extent(row, &others)).collect();
    }
}

/// Fails unless an extent of `ino` is as it was written: a row of [`sql::EXTENT_SUMS`].
pub(super) fn whole_extent(ino: Ino, row: &Row) -> Result<()> {
    let (owner, id) = (Ino(unsigned(row, 1)?), unsigned(row, 2)?);
    let span = Span { start: unsigned(row, 0)?, length: number(row, 5)? };
    let sum = sums::owned_extent((ino, span), (owner, id), CommitNo(unsigned(row, 3)?));
    whole(row, 4, sum, || format!("the row of the block at byte {} of inode {}", span.start, ino.0))
}

/// An extent, and where its block lies.
pub(super) fn extent(row: &Row, others: &Others) -> Result<(Span, BlockRef)> {
    extent_with(row, others, |sum| sum)
}

/// The same of a row whose sum `kept_as` makes of that of an extent.
pub(super) fn extent_with(row: &Row, others: &Others, kept_as: impl Fn(i64) -> i64) -> Result<(Span, BlockRef)> {
    let (id, owner) = (BlockId(unsigned(row, 2)?), Ino(unsigned(row, 3)?));
    let ino = Ino(unsigned(row, 0)?);
    let span = Span { start: unsigned(row, 1)?, length: number(row, 12)? };
    let sum = kept_as(sums::owned_extent((ino, span), (owner, id.0), CommitNo(unsigned(row, 10)?)));
    whole(row, 11, sum, || format!("the row of the block at byte {} of inode {}", span.start, ino.0))?;
    let (block, at) = others.get(&id).map_or((row, 4), |block| (block, 1));
    let gone = || Error::Corrupt(format!("block {}, of inode {}, has no row; 'weft check' tells more", id.0, ino.0));
    let length = get::<Option<i64>>(block, at)?.ok_or_else(gone)?;
    let value = get::<Vec<u8>>(block, at + 2)?.try_into().map_err(|_| bad("a value that is not of 32 bytes"))?;
    let length = u32::try_from(length).map_err(|_| bad("the length of a block"))?;
    let place = if get(block, at + 3)? { Place::Own(owner) } else { Place::File(owner) };
    let read = BlockRef { id, length, base: unsigned(block, at + 1)?, value, place };
    let sum = sums::owned_block(owner, &read, get(block, at + 4)?);
    whole(block, at + 5, sum, || format!("the row of block {}", id.0))?;
    Ok((span, read))
}

/// The bytes of the block of an extent, if they came along.
pub(super) fn along<'a>(row: &'a Row, block: &BlockRef, others: &'a Others) -> Option<&'a [u8]> {
    let (row, at) = others.get(&block.id).map_or((row, 13), |block| (block, 7));
    row.try_get(at).ok().flatten()
}

pub(super) fn xattrs(connection: &mut Connection, ino: Ino) -> Result<Vec<(Name, Vec<u8>)>> {
    let mut rows = connection.query(WHAT, sql::XATTRS, vec![Box::new(int(ino.0))])?;
    // It comes last; an inode that is gone has none.
    if let Some(count) = rows.pop_if(|row| row.try_get::<_, Option<&[u8]>>(0).is_ok_and(|name| name.is_none())) {
        refuse_xattrs(ino, rows.len() as u64, unsigned(&count, 2)?)?;
    }
    rows.iter().map(|row| xattr_row(row, ino, |sum| sum)).collect()
}

/// An attribute of `ino`, whose sum `kept_as` makes of that of a present one.
pub(super) fn xattr_row(row: &Row, ino: Ino, kept_as: impl Fn(i64) -> i64) -> Result<(Name, Vec<u8>)> {
    let name = Name::of_xattr(&get::<Vec<u8>>(row, 0)?).map_err(|_| bad("an attribute without a name"))?;
    let value = get::<Vec<u8>>(row, 1)?;
    let sum = kept_as(sums::xattr(ino, name.as_bytes(), &value, CommitNo(unsigned(row, 2)?)));
    whole(row, 3, sum, || format!("an attribute of inode {}", ino.0))?;
    Ok((name, value))
}

pub(super) fn orphans(connection: &mut Connection) -> Result<Vec<Ino>> {
    let rows = connection.query(WHAT, sql::ORPHANS, Vec::new())?;
    // One whose row is damaged may have names.
    Ok(rows.iter().filter_map(|row| inode_row(row).ok()).map(|row| row.ino).collect())
}

pub(super) fn commits(connection: &mut Connection, from: CommitNo, limit: usize) -> Result<Vec<CommitRow>> {
    let rows = connection.query(WHAT, sql::COMMITS, vec![Box::new(int(from.0)), Box::new(int(limit as u64))])?;
    rows.iter().map(commit_row).collect()
}

/// A row of [`sql::COMMITS`].
pub(super) fn commit_row(row: &Row) -> Result<CommitRow> {
    let exact = |column| {
        let bytes = get::<Option<Vec<u8>>>(row, column)?;
        bytes.map(|bytes| bytes.try_into().map_err(|_| bad("a digest that is not of 32 bytes"))).transpose()
    };
    let (number, op) = (CommitNo(unsigned(row, 0)?), OpNo(unsigned(row, 2)?));
    let commit = CommitRow { number, time: Timestamp(get(row, 1)?), op, root: exact(3)?, previous: exact(4)? };
    whole(row, 5, sums::commit(&commit), || format!("the row of commit {}", number.0))?;
    Ok(commit)
}

/// The row of commit `number`, the last one; none if it is damaged.
pub(super) fn last_commit(connection: &mut Connection, number: CommitNo) -> Result<Option<CommitRow>> {
    match commits(connection, number, 1) {
        Err(error) if error.kind() == ErrorKind::Corrupt => Ok(None),
        read => Ok(read?.pop().filter(|row| row.number == number)),
    }
}

/// Bytes of blocks that one statement asks for, if there are so many: it costs the server as much
/// as reading a block, and has all of them in memory before the first is looked at.
const STATEMENT_BYTES: u64 = 512 << 10;

/// Has `visit` look at the bytes of each of `blocks` in their order as they come, verified, or at
/// why there are none. Fails if the connection breaks.
pub(super) fn blocks(
    connection: &mut Connection,
    blocks: &[BlockRef],
    visit: &mut dyn FnMut(Result<Block>),
) -> Result<()> {
    let runs = blocks.chunk_by(|a, b| a.place == b.place).flat_map(|run| {
        let longest = run.iter().map(|block| block.length).max().unwrap_or_default();
        let most = STATEMENT_BYTES / u64::from(longest).max(1);
        run.chunks(usize::try_from(most).unwrap_or(usize::MAX).max(1))
    });
    let together = runs.collect::<Vec<_>>();
    let (mut asked, mut visited) = (together.iter(), 0);
    let mut is_refused = false;
    ask(connection, &together, &mut |rows| {
        let blocks = asked.next().expect("as many answers as questions");
        match rows {
            // One of them is to blame: from here on each is asked for alone, in order.
            Err(_) if blocks.len() > 1 => is_refused = true,
            answer if !is_refused => {
                visited += blocks.len();
                match answer {
                    Ok(rows) => blocks.iter().for_each(|block| visit(verified(block, &rows))),
                    Err(error) => visit(Err(error)),
                }
            }
            _ => {}
        }
    })?;
    let mut left = blocks[visited..].iter();
    let alone = blocks[visited..].chunks(1).collect::<Vec<_>>();
    ask(connection, &alone, &mut |rows| {
        let block = left.next().expect("as many answers as questions");
        visit(rows.and_then(|rows| verified(block, &rows)));
    })
}

/// Asks for `together`, each lying in one place, all at once.
fn ask(connection: &mut Connection, together: &[&[BlockRef]], visit: &mut dyn FnMut(Result<Vec<Row>>)) -> Result<()> {
    let call = |blocks: &&[BlockRef]| {
        let ids: Vec<i64> = blocks.iter().map(|block| int(block.id.0)).collect();
        let [first, last] = [ids.iter().min(), ids.iter().max()].map(|id| id.copied().unwrap_or_default());
        match blocks[0].place {
            Place::File(owner) => {
                let owner = Box::new(int(owner.0));
                Ok(Call::new(sql::BYTES, vec![owner, Box::new(first), Box::new(last), Box::new(ids)]))
            }
            Place::Own(owner) => Ok(Call::new(own::bytes(owner), vec![Box::new(first), Box::new(last), Box::new(ids)])),
            Place::Database | Place::Segment { .. } => {
                Err(Error::Bug(format!("block {} does not lie in this database", blocks[0].id.0)))
            }
        }
    };
    let calls = together.iter().map(call).collect::<Result<Vec<_>>>()?;
    let visited = connection.visit_all(WHAT, &calls, |rows| visit(rows.map_err(without_table)));
    visited.map_err(without_table)
}

/// A table that is not there is damage, or was dropped since the block was looked for.
fn without_table(error: Error) -> Error {
    match &error {
        Error::Postgres { source, .. } if source.code() == Some(&SqlState::UNDEFINED_TABLE) => {
            Error::Corrupt(format!("the table of a file's blocks is missing: {error}"))
        }
        _ => error,
    }
}

/// The bytes of `block` among `rows`, which are ordered by their ids.
fn verified(block: &BlockRef, rows: &[Row]) -> Result<Block> {
    let row = rows.binary_search_by_key(&int(block.id.0), |row| row.try_get(0).unwrap_or_default());
    let row = row.map(|at| &rows[at]);
    let row = row.map_err(|_| Error::Corrupt(format!("the bytes of block {} are missing", block.id.0)))?;
    let bytes: &[u8] =
        row.try_get(1).map_err(|error| bad(format_args!("the bytes of block {}: {error}", block.id.0)))?;
    match block.verify(bytes) {
        true => Ok(Block::copy_of(bytes)),
        false => Err(Error::Corrupt(format!("block {} has other bytes than were written", block.id.0))),
    }
}
