//! The statements of a commit: each kind of change as one, with an array for each column; much content as several.

use super::connection::{Call, Parameter};
use super::digests::Pending;
use super::read::{self, int};
use super::statements as sql;
use crate::batch::{Batch, NameChange, XattrChange};
use crate::error::Result;
use crate::row::{BlockId, BlockRef, CommitNo, CommitRow, Ino, InodeRow, Place};
use crate::sums;
use std::collections::BTreeMap;
use std::ops::Range;
use tokio_postgres::Row;
use weft_block::Rope;
use weft_digest::{Digest, Value};

/// Whose a block is, and its number.
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

/// How the references to blocks change.
pub(super) type References = BTreeMap<Home, i64>;

fn column<T, V>(rows: &[T], value: impl Fn(&T) -> V) -> Parameter
where
    Vec<V>: tokio_postgres::types::ToSql + Sync + Send + 'static,
{
    Box::new(rows.iter().map(value).collect::<Vec<V>>())
}

/// Bytes of content that go out together. All of a commit at once would lie in memory several times: as it is, as parameters, as messages.
const CONTENT_MAX: usize = 4 << 20;

/// Cuts `rows` before more than [`CONTENT_MAX`] bytes come together; tells how many do.
fn parts<T>(mut rows: &[T], content: impl Fn(&T) -> usize) -> Vec<(&[T], usize)> {
    let mut parts = Vec::new();
    while let Some(first) = rows.first() {
        let (mut count, mut bytes) = (1, content(first));
        while let Some(more) = rows.get(count).map(&content)
            && bytes + more <= CONTENT_MAX
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

/// Puts inodes, with their digests.
pub(super) fn put_inodes(rows: &[(&InodeRow, Option<Digest>)], commit: u64) -> Call {
    let number = |value: fn(&InodeRow) -> i64| column(rows, move |(row, _)| value(row));
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
            column(rows, |(row, _)| row.has_xattrs),
            column(rows, |_| int(commit)),
            column(rows, |(row, digest)| sums::inode(row, CommitNo(commit), digest.as_ref())),
            column(rows, |(_, digest)| digest.map(|digest| digest.to_vec())),
            column(rows, |(row, digest)| sums::digest(row.ino, digest.as_ref())),
            column(rows, |(row, _)| row.inline.as_deref().map(<[u8]>::to_vec)),
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

/// Puts the inodes and attributes of `batch`, with what `pending` says of digests. What is too much for once goes to `send`; the last of it is
/// given back.
pub(super) fn contents(
    batch: &Batch,
    pending: &Pending,
    mut send: impl FnMut(&[Call]) -> Result<()>,
) -> Result<Vec<Call>> {
    let (mut calls, mut bytes) = (Vec::new(), 0);
    let mut add = |call: Call, more: usize| {
        bytes += more;
        if bytes > CONTENT_MAX {
            send(&std::mem::take(&mut calls))?;
            bytes = more;
        }
        calls.push(call);
        Ok(())
    };
    let digest = |ino: Ino| pending.inodes.get(&ino).copied().flatten().and_then(|inode| inode.digest);
    let mut inodes = batch.put_inodes().map(|row| (row, digest(row.ino))).collect::<Vec<_>>();
    inodes.sort_unstable_by_key(|(row, _)| row.ino);
    let inline = |(row, _): &(&InodeRow, _)| row.inline.as_ref().map_or(0, |content| content.len());
    for (part, bytes) in parts(&inodes, inline) {
        add(put_inodes(part, batch.commit.0), bytes)?;
    }
    let xattrs = batch.xattrs.iter().filter(|change| change.value.is_some()).collect::<Vec<_>>();
    for (part, bytes) in parts(&xattrs, |change| change.value.as_ref().map_or(0, Vec::len)) {
        add(put_xattrs(part, batch.commit.0), bytes)?;
    }
    Ok(calls)
}

/// The rest of `batch` but its blocks.
pub(super) fn rows(batch: &Batch, pending: &Pending, extents: &Extents<'_>, fresh: Ino) -> Vec<Call> {
    let mut calls = Vec::new();
    extents.calls(batch, &mut calls);
    removed_inodes(batch, fresh, &mut calls);
    names(batch, pending, fresh, &mut calls);
    digests(pending, &mut calls);
    removed_xattrs(batch, &mut calls);
    calls
}

/// What becomes of extents.
pub(super) struct Extents<'a> {
    /// All extents in these ranges go, beside those of files that are removed.
    pub(super) removed: &'a [(Ino, Range<u64>)],
    pub(super) put: &'a [(Ino, u64, Home)],
    /// Of blocks that this commit does not write.
    pub(super) references: &'a References,
}

impl Extents<'_> {
    fn calls(&self, batch: &Batch, calls: &mut Vec<Call>) {
        for (ino, range) in self.removed {
            let parameters: Vec<Parameter> =
                vec![Box::new(int(ino.0)), Box::new(int(range.start)), Box::new(int(range.end))];
            calls.push(Call::new(sql::REMOVE_EXTENTS, parameters));
        }
        if !self.put.is_empty() {
            let columns = vec![
                column(self.put, |(ino, ..)| int(ino.0)),
                column(self.put, |(_, index, _)| int(*index)),
                column(self.put, |(.., (owner, _))| int(owner.0)),
                column(self.put, |(.., (_, id))| int(id.0)),
                column(self.put, |_| int(batch.commit.0)),
                column(self.put, |(ino, index, (owner, id))| {
                    sums::owned_extent((*ino, *index), (*owner, id.0), batch.commit)
                }),
            ];
            calls.push(Call::new(sql::PUT_EXTENTS, columns));
        }
        let changed = |is_more: bool| -> Vec<_> {
            self.references.iter().filter(|(_, change)| **change != 0 && (**change > 0) == is_more).collect()
        };
        let of = |changed: &[(&Home, &i64)]| {
            vec![
                column(changed, |((owner, _), _)| int(owner.0)),
                column(changed, |((_, id), _)| int(id.0)),
                column(changed, |(_, change)| **change),
            ]
        };
        let change = |changed: &[(&Home, &i64)]| {
            let mut columns = of(changed);
            columns.push(column(changed, |(_, change)| sums::references(**change)));
            Call::new(sql::CHANGE_REFS, columns)
        };
        let more = changed(true);
        if !more.is_empty() {
            calls.push(change(&more));
        }
        let fewer = changed(false);
        if !fewer.is_empty() {
            calls.push(Call::new(sql::REMOVE_BLOCKS, of(&fewer)));
            calls.push(change(&fewer));
        }
    }
}

fn removed_inodes(batch: &Batch, fresh: Ino, calls: &mut Vec<Call>) {
    // What never was there needs no removing.
    let removed = batch.removed().filter(|ino| *ino < fresh).map(|ino| int(ino.0)).collect::<Vec<_>>();
    if !removed.is_empty() {
        let of = [sql::REMOVE_EXTENTS_OF, sql::REMOVE_INODES, sql::REMOVE_XATTRS_OF];
        calls.extend(of.map(|statement| Call::new(statement, vec![Box::new(removed.clone())])));
    }
}

fn names(batch: &Batch, pending: &Pending, fresh: Ino, calls: &mut Vec<Call>) {
    let (mut removed, mut put) = (Vec::new(), Vec::new());
    for change in &batch.names {
        let (parent, name) = match change {
            NameChange::Put(row) => (row.parent, &row.name),
            NameChange::Remove { parent, name } => (*parent, name),
        };
        // Positions pass from one name to another: all rows go before any comes.
        if parent < fresh {
            removed.push((parent, name));
        }
        if let NameChange::Put(row) = change {
            let new = pending.names.get(&parent).and_then(|names| names.get(name.as_bytes()).copied().flatten());
            put.push((row, new.and_then(|new| new.hash)));
        }
    }
    if !removed.is_empty() {
        let columns =
            vec![column(&removed, |(parent, _)| int(parent.0)), column(&removed, |(_, name)| name.as_bytes().to_vec())];
        calls.push(Call::new(sql::REMOVE_NAMES, columns));
    }
    if !put.is_empty() {
        put.sort_unstable_by(|(one, _), (other, _)| (one.parent, &one.name).cmp(&(other.parent, &other.name)));
        let columns = vec![
            column(&put, |(row, _)| int(row.parent.0)),
            column(&put, |(row, _)| row.name.as_bytes().to_vec()),
            column(&put, |(row, _)| int(row.ino.0)),
            column(&put, |(row, _)| i64::from(row.kind.mode_bits())),
            column(&put, |(row, _)| int(row.cookie.0)),
            column(&put, |_| int(batch.commit.0)),
            column(&put, |(row, _)| sums::name(row, batch.commit)),
            column(&put, |(_, hash)| hash.map(|hash| hash.to_vec())),
            column(&put, |(row, hash)| sums::entry(row.parent, row.name.as_bytes(), hash.as_ref())),
        ];
        calls.push(Call::new(sql::PUT_NAMES, columns));
    }
}

/// Digests of rows that are not put for another reason, and what is kept of subtrees.
fn digests(pending: &Pending, calls: &mut Vec<Call>) {
    let digests = pending.digests.iter().collect::<Vec<_>>();
    if !digests.is_empty() {
        let columns = vec![
            column(&digests, |(ino, _)| int(ino.0)),
            column(&digests, |(_, digest)| digest.to_vec()),
            column(&digests, |(ino, digest)| sums::digest(**ino, Some(digest))),
        ];
        calls.push(Call::new(sql::SET_DIGESTS, columns));
    }
    let hashes =
        pending.hashes.iter().flat_map(|(parent, hashes)| hashes.iter().map(move |(name, hash)| (parent, name, hash)));
    let hashes = hashes.collect::<Vec<_>>();
    if !hashes.is_empty() {
        let columns = vec![
            column(&hashes, |(parent, ..)| int(parent.0)),
            column(&hashes, |(_, name, _)| (*name).clone()),
            column(&hashes, |(.., hash)| hash.to_vec()),
            column(&hashes, |(parent, name, hash)| sums::entry(**parent, name, Some(hash))),
        ];
        calls.push(Call::new(sql::SET_ENTRIES, columns));
    }
    if !pending.cleared_branches.is_empty() {
        let cleared = pending.cleared_branches.iter().map(|ino| int(ino.0)).collect::<Vec<_>>();
        calls.push(Call::new(sql::CLEAR_BRANCHES, vec![Box::new(cleared)]));
    }
    let (put, removed): (Vec<_>, Vec<_>) = pending.branches.iter().partition(|(_, branch)| branch.is_some());
    if !removed.is_empty() {
        let columns = vec![
            column(&removed, |((parent, _), _)| int(parent.0)),
            column(&removed, |((_, prefix), _)| prefix.clone()),
        ];
        calls.push(Call::new(sql::REMOVE_BRANCHES, columns));
    }
    if !put.is_empty() {
        let columns = vec![
            column(&put, |((parent, _), _)| int(parent.0)),
            column(&put, |((_, prefix), _)| prefix.clone()),
            column(&put, |(_, branch)| (*branch).clone()),
            column(&put, |((parent, prefix), branch)| {
                sums::branch(*parent, prefix, branch.as_deref().unwrap_or_default())
            }),
        ];
        calls.push(Call::new(sql::PUT_BRANCHES, columns));
    }
    nodes(pending, calls);
}

/// The file, the level, the index; what is kept there.
type Node<'a> = (&'a (Ino, u32, u64), &'a Option<Vec<u8>>);

fn nodes(pending: &Pending, calls: &mut Vec<Call>) {
    for ((ino, level), from) in &pending.cleared_nodes {
        let parameters: Vec<Parameter> = vec![Box::new(int(ino.0)), Box::new(i64::from(*level)), Box::new(int(*from))];
        calls.push(Call::new(sql::CLEAR_NODES, parameters));
    }
    let (put, removed): (Vec<_>, Vec<_>) = pending.nodes.iter().partition(|(_, node)| node.is_some());
    let keys = |nodes: &[Node<'_>]| {
        vec![
            column(nodes, |((ino, ..), _)| int(ino.0)),
            column(nodes, |((_, level, _), _)| i64::from(*level)),
            column(nodes, |((.., index), _)| int(*index)),
        ]
    };
    if !removed.is_empty() {
        calls.push(Call::new(sql::REMOVE_NODES, keys(&removed)));
    }
    if !put.is_empty() {
        let mut columns = keys(&put);
        columns.push(column(&put, |(_, node)| (*node).clone()));
        columns.push(column(&put, |((ino, level, index), node)| {
            sums::node(*ino, *level, *index, node.as_deref().unwrap_or_default())
        }));
        calls.push(Call::new(sql::PUT_NODES, columns));
    }
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

fn removed_xattrs(batch: &Batch, calls: &mut Vec<Call>) {
    let removed = batch.xattrs.iter().filter(|change| change.value.is_none()).collect::<Vec<_>>();
    if !removed.is_empty() {
        let columns = vec![
            column(&removed, |change| int(change.ino.0)),
            column(&removed, |change| change.name.as_bytes().to_vec()),
        ];
        calls.push(Call::new(sql::REMOVE_XATTRS, columns));
    }
}

/// What ends a commit: counters, the row of the commit itself if the lease of this `epoch` still
/// holds. `sum` is of what the volume's row says that commits do not change.
pub(super) fn end(batch: &Batch, commit: &CommitRow, epoch: i64, sum: i64, commits_kept: u64) -> Vec<Call> {
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
    vec![
        Call::new(sql::HOLD_LEASE, Vec::new()),
        Call::new(sql::SET_COUNTERS, numbers),
        Call::new(sql::ADD_COMMIT, row),
        Call::new(sql::FORGET_COMMITS, vec![Box::new(int(batch.commit.0.saturating_sub(commits_kept)))]),
        Call::new(sql::COMMIT, Vec::new()),
    ]
}

/// Whose block this is.
pub(super) fn home(place: Place, id: BlockId) -> Option<Home> {
    match place {
        Place::File(owner) | Place::Own(owner) => Some((owner, id)),
        Place::Database | Place::Segment { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{CONTENT_MAX, parts};

    #[test]
    fn rows_are_cut_before_too_much_comes_together() {
        let rows = [1, CONTENT_MAX - 1, 1, 2 * CONTENT_MAX, 0, CONTENT_MAX];
        let parts = parts(&rows, |bytes| *bytes);
        assert_eq!(parts.iter().map(|(rows, _)| rows.len()).collect::<Vec<_>>(), [2, 1, 1, 2]);
        assert_eq!(
            parts.iter().map(|(_, bytes)| *bytes).collect::<Vec<_>>(),
            [CONTENT_MAX, 1, 2 * CONTENT_MAX, CONTENT_MAX]
        );
        assert!(super::parts(&[], |bytes: &usize| *bytes).is_empty());
    }
}
