//! The statements of a commit: each kind of change as one, with an array for each column; of many
//! rows, or much content, as several.

use super::connection::{Call, Parameter};
use super::keep::{new_entries, place_columns, row_columns};
use super::read::{self, int};
use super::statements::{self as sql, history};
use crate::batch::{Batch, NameChange, XattrChange};
use crate::error::Result;
use crate::overlay::Changes;
use crate::references::References;
use crate::row::{BlockId, BlockRef, CommitNo, CommitRow, Ino, InodeRow, NameRow, Place, Span};
use crate::sums;
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::ops::Range;
use tokio_postgres::Row;
use weft_block::Rope;
use weft_digest::{Digest, Value};

/// Owner and number of a block.
pub(super) type Home = (Ino, BlockId);

/// A row of `blocks`.
pub(super) struct BlockRow {
    pub(super) home: Home,
    pub(super) refs: i64,
    pub(super) length: u32,
    pub(super) base: u64,
    pub(super) value: Value,
    /// None if they lie in the file's own table.
    pub(super) bytes: Option<Rope>,
}

impl BlockRow {
    /// True if a block's row is as it was written: columns from `first` on have its length, base,
    /// value and sum.
    pub(super) fn holds((owner, id): Home, refs: i64, row: &Row, first: usize) -> bool {
        let read = || {
            let length = u32::try_from(read::get::<i64>(row, first).ok()?).ok()?;
            let (base, value) = (read::unsigned(row, first + 1).ok()?, read::get::<Vec<u8>>(row, first + 2).ok()?);
            Some(BlockRef { id, length, base, value: value.try_into().ok()?, place: Place::File(owner) })
        };
        read().is_some_and(|block| read::holds(row, first + 3, sums::owned_block(owner, &block, refs)))
    }

    fn sum(&self) -> i64 {
        let BlockRow { home: (owner, id), refs, length, base, value, .. } = *self;
        sums::owned_block(owner, &BlockRef { id, length, base, value, place: Place::File(owner) }, refs)
    }
}

/// A column of `rows`, as a parameter.
pub(super) fn column<T, V>(rows: &[T], value: impl Fn(&T) -> V) -> Parameter
where
    Vec<V>: tokio_postgres::types::ToSql + Sync + Send + 'static,
{
    Box::new(rows.iter().map(value).collect::<Vec<V>>())
}

/// Bytes of rows that go out together. All of a commit at once would lie in memory several times:
/// as it is, as parameters, as messages.
const SENT_MAX: usize = 4 << 20;

/// Bytes that a row takes in the parameters of a statement and in its message, beside what it holds
/// of any length: about 16 for a number, 64 for bytes.
pub(super) const ROW_BYTES: usize = 256;

/// Statements of a commit on their way: before they are too much for once, those so far go out.
pub(super) struct Outgoing<S> {
    send: S,
    calls: Vec<Call>,
    bytes: usize,
}

impl<S: FnMut(&[Call]) -> Result<()>> Outgoing<S> {
    /// Begins with `calls`, to be sent by `send`.
    pub(super) fn new(calls: Vec<Call>, send: S) -> Outgoing<S> {
        Outgoing { send, calls, bytes: 0 }
    }

    /// Adds a call of so many bytes.
    pub(super) fn add(&mut self, call: Call, bytes: usize) -> Result<()> {
        if self.bytes + bytes > SENT_MAX && !self.calls.is_empty() {
            (self.send)(&std::mem::take(&mut self.calls))?;
            self.bytes = 0;
        }
        self.bytes += bytes;
        self.calls.push(call);
        Ok(())
    }

    /// Adds the calls that `call` makes of `rows`, in as many parts as they take; `content` returns
    /// the bytes of variable length in a row.
    pub(super) fn add_rows<T>(
        &mut self,
        rows: &[T],
        content: impl Fn(&T) -> usize,
        call: impl Fn(&[T]) -> Call,
    ) -> Result<()> {
        parts(rows, |row| ROW_BYTES + content(row))
            .into_iter()
            .try_for_each(|(part, bytes)| self.add(call(part), bytes))
    }

    /// The calls that are left: the last ones, which are too much with those that follow or not.
    pub(super) fn rest(self) -> Vec<Call> {
        self.calls
    }
}

/// Cuts `rows` before more than [`SENT_MAX`] bytes come together; tells how many do.
fn parts<T>(mut rows: &[T], content: impl Fn(&T) -> usize) -> Vec<(&[T], usize)> {
    let mut parts = Vec::new();
    while let Some(first) = rows.first() {
        let (mut count, mut bytes) = (1, content(first));
        while let Some(more) = rows.get(count).map(&content)
            && bytes + more <= SENT_MAX
        {
            count += 1;
            bytes += more;
        }
        let (part, rest) = rows.split_at(count);
        parts.push((part, bytes));
        rows = rest;
    }
    parts
}

/// An inode, its digest, and the commit that last changed anything of it but its access time.
pub(super) type PutInode<'a> = (&'a InodeRow, Option<Digest>, CommitNo);

/// Puts inodes.
pub(super) fn put_inodes(rows: &[PutInode<'_>]) -> Call {
    let number = |value: fn(&InodeRow) -> i64| column(rows, move |(row, ..)| value(row));
    Call::new(
        sql::PUT_INODES,
        vec![
            number(|row| int(row.ino.0)),
            number(|row| i64::from(row.generation)),
            number(|row| i64::from(row.kind.mode_bits() | row.permissions)),
            number(|row| i64::from(row.uid)),
            number(|row| i64::from(row.gid)),
            number(|row| i64::from(row.nlink)),
            number(|row| i64::from(row.rdev)),
            number(|row| int(row.size)),
            number(|row| int(row.allocated)),
            number(|row| row.atime.0),
            number(|row| row.mtime.0),
            number(|row| row.ctime.0),
            number(|row| row.btime.0),
            number(|row| int(row.parent.0)),
            number(|row| i64::from(row.xattrs)),
            column(rows, |(.., since)| int(since.0)),
            column(rows, |(row, digest, since)| sums::inode(row, *since, digest.as_ref())),
            column(rows, |(_, digest, _)| digest.map(|digest| digest.to_vec())),
            column(rows, |(row, digest, _)| sums::digest(row.ino, digest.as_ref())),
            column(rows, |(row, ..)| row.inline.as_deref().map(<[u8]>::to_vec)),
        ],
    )
}

/// Puts rows of blocks.
pub(super) fn put_blocks(rows: &[BlockRow]) -> Call {
    Call::new(
        sql::PUT_BLOCKS,
        vec![
            column(rows, |row| int(row.home.0.0)),
            column(rows, |row| int(row.home.1.0)),
            column(rows, |row| row.refs),
            column(rows, |row| i64::from(row.length)),
            column(rows, |row| int(row.base)),
            column(rows, |row| row.value.to_vec()),
            column(rows, BlockRow::sum),
            column(rows, |row| row.bytes.as_ref().map(Rope::to_vec)),
        ],
    )
}

/// Puts the inodes, the attributes and the `blocks` of a batch, with what `changes` says of
/// digests. The rows of `same` are of the commits that it says.
pub(super) fn contents<S: FnMut(&[Call]) -> Result<()>>(
    batch: &Batch,
    changes: &Changes,
    (blocks, same): (&[BlockRow], &FxHashMap<Ino, CommitNo>),
    out: &mut Outgoing<S>,
) -> Result<()> {
    let since = |ino| same.get(&ino).copied().unwrap_or(batch.commit);
    let inodes = batch.put_inodes().map(|row| (row, changes.digest(row.ino), since(row.ino)));
    let mut inodes = inodes.collect::<Vec<_>>();
    inodes.sort_unstable_by_key(|(row, ..)| row.ino);
    let inline = |(row, ..): &PutInode<'_>| row.inline.as_ref().map_or(0, |content| content.len());
    out.add_rows(&inodes, inline, put_inodes)?;
    let xattrs = batch.xattrs.iter().filter(|change| change.value.is_some()).collect::<Vec<_>>();
    let value = |change: &&XattrChange| change.value.as_ref().map_or(0, Vec::len);
    out.add_rows(&xattrs, value, |part| put_xattrs(part, batch.commit.0))?;
    out.add_rows(blocks, |row| row.bytes.as_ref().map_or(0, Rope::len), put_blocks)
}

/// The end of entries whose versions are kept, if they are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Entries {
    /// All that are put are written.
    Written,
    /// Those that are put as they are stay.
    Kept,
}

/// The rest of `batch`.
pub(super) fn rows<S: FnMut(&[Call]) -> Result<()>>(
    batch: &Batch,
    changes: &Changes,
    extents: &Extents<'_>,
    (fresh, entries): (Ino, Entries),
    out: &mut Outgoing<S>,
) -> Result<()> {
    extents.calls(batch, out)?;
    removed_inodes(batch, fresh, out)?;
    names(batch, changes, (fresh, entries), out)?;
    digests(changes, out)?;
    removed_xattrs(batch, out)
}

/// Changes of extents.
pub(super) struct Extents<'a> {
    /// All extents in these ranges go, beside those of files that are removed.
    pub(super) removed: &'a [(Ino, Range<u64>)],
    pub(super) put: &'a [(Ino, Span, Home)],
    /// References to blocks that are there before the rows.
    pub(super) references: &'a References<Home>,
    /// Blocks among these that nothing names any more.
    pub(super) dead: &'a BTreeSet<Home>,
}

impl Extents<'_> {
    fn calls<S: FnMut(&[Call]) -> Result<()>>(&self, batch: &Batch, out: &mut Outgoing<S>) -> Result<()> {
        for (ino, range) in self.removed {
            let parameters: Vec<Parameter> =
                vec![Box::new(int(ino.0)), Box::new(int(range.start)), Box::new(int(range.end))];
            out.add(Call::new(sql::REMOVE_EXTENTS, parameters), ROW_BYTES)?;
        }
        out.add_rows(self.put, none, |put| put_extents(put, batch.commit))?;
        let (dead, living): (Vec<_>, Vec<_>) =
            self.references.changed().partition(|(home, _)| self.dead.contains(home));
        let (more, fewer): (Vec<_>, Vec<_>) = living.into_iter().partition(|(_, change)| *change > 0);
        out.add_rows(&more, none, change_references)?;
        out.add_rows(&dead, none, |dead| Call::new(sql::REMOVE_BLOCKS, references(dead)))?;
        out.add_rows(&fewer, none, change_references)
    }
}

/// Content of a row that has none.
pub(super) fn none<T>(_: &T) -> usize {
    0
}

fn put_extents(put: &[(Ino, Span, Home)], commit: CommitNo) -> Call {
    let columns = vec![
        column(put, |(ino, ..)| int(ino.0)),
        column(put, |(_, span, _)| int(span.start)),
        column(put, |(_, span, _)| i64::from(span.length)),
        column(put, |(.., (owner, _))| int(owner.0)),
        column(put, |(.., (_, id))| int(id.0)),
        column(put, |_| int(commit.0)),
        column(put, |(ino, span, (owner, id))| sums::owned_extent((*ino, *span), (*owner, id.0), commit)),
    ];
    Call::new(sql::PUT_EXTENTS, columns)
}

fn references(changed: &[(Home, i64)]) -> Vec<Parameter> {
    vec![
        column(changed, |((owner, _), _)| int(owner.0)),
        column(changed, |((_, id), _)| int(id.0)),
        column(changed, |(_, change)| *change),
    ]
}

fn change_references(changed: &[(Home, i64)]) -> Call {
    let mut columns = references(changed);
    columns.push(column(changed, |(_, change)| sums::references(*change)));
    Call::new(sql::CHANGE_REFS, columns)
}

fn removed_inodes<S: FnMut(&[Call]) -> Result<()>>(batch: &Batch, fresh: Ino, out: &mut Outgoing<S>) -> Result<()> {
    // What never was there needs no removing.
    let removed = batch.removed().filter(|ino| *ino < fresh).map(|ino| int(ino.0)).collect::<Vec<_>>();
    for statement in [sql::REMOVE_EXTENTS_OF, sql::REMOVE_INODES, sql::REMOVE_XATTRS_OF] {
        out.add_rows(&removed, none, |removed| Call::new(statement, vec![Box::new(removed.to_vec())]))?;
    }
    Ok(())
}

/// A name, and the hash of its entry.
type Put<'a> = (&'a NameRow, Option<Digest>);

fn names<S: FnMut(&[Call]) -> Result<()>>(
    batch: &Batch,
    changes: &Changes,
    (fresh, entries): (Ino, Entries),
    out: &mut Outgoing<S>,
) -> Result<()> {
    let put = batch.names.iter().filter_map(|change| match change {
        NameChange::Put(row) => Some(row),
        NameChange::Remove { .. } => None,
    });
    let hash = |row: &NameRow| {
        let new = changes.names.get(&row.parent).and_then(|names| names.get(row.name.as_bytes()).copied().flatten());
        new.and_then(|new| new.hash)
    };
    let mut put = put.map(|row| (row, hash(row))).collect::<Vec<Put<'_>>>();
    // Positions pass from one name to another: all rows go before any comes.
    out.add_rows(&new_entries(batch, fresh), none, |removed| {
        let places = place_columns(removed);
        match entries {
            Entries::Written => Call::new(sql::REMOVE_NAMES, places),
            Entries::Kept => {
                Call::new(history::REMOVE_OTHER_NAMES, places.into_iter().chain(row_columns(removed)).collect())
            }
        }
    })?;
    put.sort_unstable_by(|(one, _), (other, _)| (one.parent, &one.name).cmp(&(other.parent, &other.name)));
    let is_old = |(row, _): &Put<'_>| entries == Entries::Kept && row.parent < fresh;
    let (old, new): (Vec<_>, Vec<_>) = put.into_iter().partition(is_old);
    out.add_rows(&old, none, |put| put_names(history::PUT_OTHER_NAMES, put, batch.commit))?;
    out.add_rows(&new, none, |put| put_names(sql::PUT_NAMES, put, batch.commit))
}

fn put_names(statement: &'static str, put: &[Put<'_>], commit: CommitNo) -> Call {
    let columns = vec![
        column(put, |(row, _)| int(row.parent.0)),
        column(put, |(row, _)| row.name.as_bytes().to_vec()),
        column(put, |(row, _)| int(row.ino.0)),
        column(put, |(row, _)| i64::from(row.kind.mode_bits())),
        column(put, |(row, _)| int(row.cookie.0)),
        column(put, |_| int(commit.0)),
        column(put, |(row, _)| sums::name(row, commit)),
        column(put, |(_, hash)| hash.map(|hash| hash.to_vec())),
        column(put, |(row, hash)| sums::entry(row.parent, row.name.as_bytes(), hash.as_ref())),
    ];
    Call::new(statement, columns)
}

/// Writes digests of rows that are not put for another reason, and the stored data of subtrees.
fn digests<S: FnMut(&[Call]) -> Result<()>>(changes: &Changes, out: &mut Outgoing<S>) -> Result<()> {
    let digests = changes.digests.iter().collect::<Vec<_>>();
    out.add_rows(&digests, none, |digests| {
        let columns = vec![
            column(digests, |(ino, _)| int(ino.0)),
            column(digests, |(_, digest)| digest.map(|digest| digest.to_vec())),
            column(digests, |(ino, digest)| sums::digest(**ino, digest.as_ref())),
        ];
        Call::new(sql::SET_DIGESTS, columns)
    })?;
    let hashes =
        changes.hashes.iter().flat_map(|(parent, hashes)| hashes.iter().map(move |(name, hash)| (parent, name, hash)));
    out.add_rows(&hashes.collect::<Vec<_>>(), none, |hashes| {
        let columns = vec![
            column(hashes, |(parent, ..)| int(parent.0)),
            column(hashes, |(_, name, _)| (*name).clone()),
            column(hashes, |(.., hash)| hash.map(|hash| hash.to_vec())),
            column(hashes, |(parent, name, hash)| sums::entry(**parent, name, hash.as_ref())),
        ];
        Call::new(sql::SET_ENTRIES, columns)
    })?;
    branches(changes, out)?;
    nodes(changes, out)
}

/// Returns the number of bytes stored for a subtree.
fn kept<K>((_, children): &(K, &Option<Vec<u8>>)) -> usize {
    children.as_ref().map_or(0, Vec::len)
}

fn branches<S: FnMut(&[Call]) -> Result<()>>(changes: &Changes, out: &mut Outgoing<S>) -> Result<()> {
    let cleared = changes.cleared_branches.iter().map(|ino| int(ino.0)).collect::<Vec<_>>();
    out.add_rows(&cleared, none, |cleared| Call::new(sql::CLEAR_BRANCHES, vec![Box::new(cleared.to_vec())]))?;
    let (put, removed): (Vec<_>, Vec<_>) = changes.branches.iter().partition(|(_, branch)| branch.is_some());
    out.add_rows(&removed, none, |removed| {
        let columns =
            vec![column(removed, |((parent, _), _)| int(parent.0)), column(removed, |((_, prefix), _)| prefix.clone())];
        Call::new(sql::REMOVE_BRANCHES, columns)
    })?;
    out.add_rows(&put, kept, |put| {
        let columns = vec![
            column(put, |((parent, _), _)| int(parent.0)),
            column(put, |((_, prefix), _)| prefix.clone()),
            column(put, |(_, branch)| (*branch).clone()),
            column(put, |((parent, prefix), branch)| {
                sums::branch(*parent, prefix, branch.as_deref().unwrap_or_default())
            }),
        ];
        Call::new(sql::PUT_BRANCHES, columns)
    })
}

/// The file, the level, the index; the data stored there.
type Node<'a> = (&'a (Ino, u32, u64), &'a Option<Vec<u8>>);

fn nodes<S: FnMut(&[Call]) -> Result<()>>(changes: &Changes, out: &mut Outgoing<S>) -> Result<()> {
    for ((ino, level), from) in &changes.cleared_nodes {
        let parameters: Vec<Parameter> = vec![Box::new(int(ino.0)), Box::new(i64::from(*level)), Box::new(int(*from))];
        out.add(Call::new(sql::CLEAR_NODES, parameters), ROW_BYTES)?;
    }
    let (put, removed): (Vec<_>, Vec<_>) = changes.nodes.iter().partition(|(_, node)| node.is_some());
    let keys = |nodes: &[Node<'_>]| {
        vec![
            column(nodes, |((ino, ..), _)| int(ino.0)),
            column(nodes, |((_, level, _), _)| i64::from(*level)),
            column(nodes, |((.., index), _)| int(*index)),
        ]
    };
    out.add_rows(&removed, none, |removed| Call::new(sql::REMOVE_NODES, keys(removed)))?;
    out.add_rows(&put, kept, |put| {
        let mut columns = keys(put);
        columns.push(column(put, |(_, node)| (*node).clone()));
        columns.push(column(put, |((ino, level, index), node)| {
            sums::node(*ino, *level, *index, node.as_deref().unwrap_or_default())
        }));
        Call::new(sql::PUT_NODES, columns)
    })
}

fn put_xattrs(changes: &[&XattrChange], commit: u64) -> Call {
    let columns = vec![
        column(changes, |change| int(change.ino.0)),
        column(changes, |change| change.name.as_bytes().to_vec()),
        column(changes, |change| change.value.clone()),
        column(changes, |_| int(commit)),
        column(changes, |change| {
            let value = change.value.as_deref().unwrap_or_default();
            sums::xattr(change.ino, change.name.as_bytes(), value, CommitNo(commit))
        }),
    ];
    Call::new(sql::PUT_XATTRS, columns)
}

fn removed_xattrs<S: FnMut(&[Call]) -> Result<()>>(batch: &Batch, out: &mut Outgoing<S>) -> Result<()> {
    let removed = batch.xattrs.iter().filter(|change| change.value.is_none()).collect::<Vec<_>>();
    out.add_rows(&removed, none, |removed| {
        let columns = vec![
            column(removed, |change| int(change.ino.0)),
            column(removed, |change| change.name.as_bytes().to_vec()),
        ];
        Call::new(sql::REMOVE_XATTRS, columns)
    })
}

/// Returns the calls that end a commit: counters, and the row of the commit itself if the lease of
/// this `epoch` still holds. `sum` covers the columns of the volume's row that commits do not
/// change. All commits up to `forgotten` are forgotten, if that is said.
pub(super) fn end(
    batch: &Batch,
    commit: &CommitRow,
    (epoch, sum): (i64, i64),
    forgotten: Option<CommitNo>,
) -> Vec<Call> {
    let counters = &batch.counters;
    let bytes = |digest: Option<Digest>| -> Parameter { Box::new(digest.map(|digest| digest.to_vec())) };
    let numbers: Vec<Parameter> = vec![
        Box::new(int(batch.commit.0)),
        Box::new(int(counters.op.0)),
        Box::new(int(counters.next_id)),
        Box::new(int(counters.next_block)),
        Box::new(int(counters.epoch)),
        Box::new(int(counters.bytes_used)),
        Box::new(int(counters.inodes_used)),
        Box::new(sums::add(sum, sums::counters(batch.commit, counters))),
    ];
    let row: Vec<Parameter> = vec![
        Box::new(int(batch.commit.0)),
        Box::new(epoch),
        Box::new(batch.time.0),
        Box::new(int(counters.op.0)),
        bytes(commit.root),
        bytes(commit.previous),
        Box::new(sums::commit(commit)),
    ];
    let forgotten = forgotten.map(|commit| Call::new(sql::FORGET_COMMITS, vec![Box::new(int(commit.0))]));
    let calls = [
        Call::new(sql::HOLD_LEASE, Vec::new()),
        Call::new(sql::SET_COUNTERS, numbers),
        Call::new(sql::ADD_COMMIT, row),
    ];
    calls.into_iter().chain(forgotten).chain([Call::new(sql::COMMIT, Vec::new())]).collect()
}

/// Returns the owner and number of a block.
pub(super) fn home(place: Place, id: BlockId) -> Option<Home> {
    match place {
        Place::File(owner) | Place::Own(owner) => Some((owner, id)),
        Place::Database | Place::Segment { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{Call, Outgoing, ROW_BYTES, SENT_MAX, parts};

    #[test]
    fn rows_are_cut_before_too_much_comes_together() {
        let rows = [1, SENT_MAX - 1, 1, 2 * SENT_MAX, 0, SENT_MAX];
        let parts = parts(&rows, |bytes| *bytes);
        assert_eq!(parts.iter().map(|(rows, _)| rows.len()).collect::<Vec<_>>(), [2, 1, 1, 2]);
        assert_eq!(parts.iter().map(|(_, bytes)| *bytes).collect::<Vec<_>>(), [SENT_MAX, 1, 2 * SENT_MAX, SENT_MAX]);
        assert!(super::parts(&[], |bytes: &usize| *bytes).is_empty());
    }

    #[test]
    fn few_rows_wait_for_what_follows_and_many_go_out_in_parts() {
        let sent = |count: usize, content: usize| {
            let mut sent = Vec::new();
            let mut out = Outgoing::new(Vec::new(), |calls: &[Call]| {
                sent.push(calls.len());
                Ok(())
            });
            for _ in 0..3 {
                out.add_rows(&vec![(); count], |()| content, |_| Call::new("SELECT 1", Vec::new())).expect("added");
            }
            let rest = out.rest().len();
            (sent, rest)
        };
        assert_eq!(sent(1000, 64), (vec![], 3));
        // Half as much as goes out together, each time.
        assert_eq!(sent(SENT_MAX / ROW_BYTES / 2, 0), (vec![2], 1));
        // Five times as much.
        assert_eq!(sent(5, SENT_MAX - ROW_BYTES), (vec![1; 14], 1));
    }
}
