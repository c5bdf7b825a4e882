//! The rows that digests need: those of the database under the changes of a commit that are not
//! sent yet.
//!
//! The daemon that holds the volume is the only one who writes, so the rows that it has read or
//! written stay true: rows of directories and branches of names that begin alike are cached from
//! commit to commit, within bounds. Inodes that this commit makes are known to have no rows.

use super::connection::{Call, Connection, Parameter};
use super::read::{self, get, hash_and_sum, int, name_in, unsigned};
use super::statements as sql;
use crate::Name;
use crate::digests::{DigestRows, Inode, after};
use crate::error::{Error, Result};
use crate::row::{BlockId, BlockRef, Ino, InodeRow, NameRow};
use crate::sums;
use rustc_hash::{FxHashMap, FxHashSet};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::{Bound, Range};
use tokio_postgres::Row;
use weft_block::{Block, Rope};
use weft_digest::{Digest, Kind};

const WHAT: &str = "cannot keep digests";

/// Bytes of rows that are remembered, at most.
const REMEMBERED_BYTES_MAX: usize = 16 << 20;

/// Overhead in bytes of a cached row, beside its content.
const ROW_BYTES: usize = 160;

type Bytes = Vec<u8>;

/// Names in order, with the hashes of their entries.
type Entries = BTreeMap<Bytes, Option<Digest>>;

/// Cached rows, as the last commit left them.
#[derive(Default)]
pub(super) struct Known {
    inodes: FxHashMap<Ino, Option<Inode>>,
    names_of: FxHashMap<Ino, Vec<(Ino, Name)>>,
    entries: FxHashMap<(Ino, Name), Option<Digest>>,
    branches: FxHashMap<(Ino, Bytes), Option<Bytes>>,
    nodes: FxHashMap<(Ino, u32, u64), Option<Bytes>>,
}

/// An entry of this commit.
#[derive(Clone, Copy)]
pub(super) struct NewName {
    ino: Ino,
    kind: Kind,
    pub(super) hash: Option<Digest>,
}

/// Changes of a commit.
#[derive(Default)]
pub(super) struct Pending {
    /// Inodes that are put, or whose digest is; none: removed.
    pub(super) inodes: FxHashMap<Ino, Option<Inode>>,
    /// Digests of inodes that are not put.
    pub(super) digests: BTreeMap<Ino, Option<Digest>>,
    put: FxHashSet<Ino>,
    /// Names by directory; none: removed.
    pub(super) names: FxHashMap<Ino, BTreeMap<Bytes, Option<NewName>>>,
    names_of: FxHashMap<Ino, Vec<(Ino, Name)>>,
    /// Hashes of entries that are not put.
    pub(super) hashes: FxHashMap<Ino, BTreeMap<Bytes, Option<Digest>>>,
    pub(super) branches: BTreeMap<(Ino, Bytes), Option<Bytes>>,
    pub(super) cleared_branches: FxHashSet<Ino>,
    pub(super) nodes: BTreeMap<(Ino, u32, u64), Option<Bytes>>,
    /// Index from which on the nodes of a level are gone.
    pub(super) cleared_nodes: BTreeMap<(Ino, u32), u64>,
    extents: BTreeMap<(Ino, u64), BlockRef>,
    cleared: FxHashMap<Ino, Vec<Range<u64>>>,
    blocks: FxHashMap<BlockId, Rope>,
}

/// The rows.
pub(super) struct Rows<'a> {
    connection: RefCell<&'a mut Connection>,
    known: RefCell<&'a mut Known>,
    pending: RefCell<Pending>,
    /// All entries of a directory that begin with some prefix, as the last commit left them.
    buckets: RefCell<FxHashMap<(Ino, Bytes), Entries>>,
    /// Inodes that this commit removes and for which more than a digest may be stored, if they were
    /// fetched.
    leaving: RefCell<Option<FxHashMap<Ino, Option<Inode>>>>,
    /// Inodes from this one on are of this commit.
    fresh: Ino,
}

fn valid(name: &[u8]) -> Result<Name> {
    Name::new(name).map_err(|_| Error::Corrupt("a directory entry has no name that Weft writes".into()))
}

impl Known {
    /// Takes in a row of [`sql::NAMES_OF`].
    fn take_name(&mut self, row: &Row) -> Result<()> {
        let (ino, parent, name) = (Ino(unsigned(row, 0)?), Ino(unsigned(row, 1)?), name_in(row, 2)?);
        self.entries.insert((parent, name.clone()), hash_and_sum(row, 3, parent, name.as_bytes())?);
        self.names_of.entry(ino).or_default().push((parent, name));
        Ok(())
    }

    /// Takes in what a commit changed, once it is there.
    pub(super) fn learn(&mut self, pending: Pending) {
        let is_directory = |inode: &Option<Inode>| inode.is_some_and(|inode| inode.kind == Kind::Directory);
        for (ino, inode) in pending.inodes {
            match is_directory(&inode) {
                true => drop(self.inodes.insert(ino, inode)),
                false => {
                    self.inodes.remove(&ino);
                    self.names_of.remove(&ino);
                }
            }
        }
        for (parent, names) in pending.names {
            for (name, new) in names {
                let Ok(name) = Name::new(&name) else { continue };
                match new {
                    Some(NewName { ino, kind: Kind::Directory, hash }) => {
                        self.names_of.insert(ino, vec![(parent, name.clone())]);
                        self.entries.insert((parent, name), hash);
                    }
                    Some(NewName { ino, .. }) => {
                        self.names_of.remove(&ino);
                        self.entries.remove(&(parent, name));
                    }
                    None => drop(self.entries.remove(&(parent, name))),
                }
            }
        }
        for (parent, hashes) in pending.hashes {
            let named = hashes.into_iter().filter_map(|(name, hash)| Some((Name::new(&name).ok()?, hash)));
            self.entries.extend(named.map(|(name, hash)| ((parent, name), hash)));
        }
        if !pending.cleared_branches.is_empty() {
            self.branches.retain(|(parent, _), _| !pending.cleared_branches.contains(parent));
        }
        self.branches.extend(pending.branches);
        let cleared = pending.cleared_nodes;
        if !cleared.is_empty() {
            self.nodes.retain(|(ino, level, index), _| cleared.get(&(*ino, *level)).is_none_or(|from| index < from));
        }
        self.nodes.extend(pending.nodes);
        if self.bytes() > REMEMBERED_BYTES_MAX {
            *self = Known::default();
        }
    }

    /// Returns roughly the bytes that it takes in memory.
    fn bytes(&self) -> usize {
        let rows =
            self.inodes.len() + self.names_of.len() + self.entries.len() + self.branches.len() + self.nodes.len();
        let kept = self.branches.values().chain(self.nodes.values()).flatten().map(Vec::len).sum::<usize>();
        rows * ROW_BYTES + kept
    }
}

impl<'a> Rows<'a> {
    /// The rows as they are, for inodes below `fresh`.
    pub(super) fn new(connection: &'a mut Connection, known: &'a mut Known, fresh: Ino) -> Rows<'a> {
        let (connection, known) = (RefCell::new(connection), RefCell::new(known));
        let (pending, buckets, leaving) = (RefCell::default(), RefCell::default(), RefCell::default());
        Rows { connection, known, pending, buckets, leaving, fresh }
    }

    /// Returns the changes.
    pub(super) fn into_pending(self) -> Pending {
        self.pending.into_inner()
    }

    pub(super) fn put_inode(&self, row: &InodeRow, digest: Option<Digest>) {
        let InodeRow { kind, permissions, size, parent, .. } = *row;
        let mut pending = self.pending.borrow_mut();
        pending.put.insert(row.ino);
        pending.inodes.insert(row.ino, Some(Inode { kind, permissions, size, parent, digest }));
    }

    pub(super) fn remove_inode(&self, ino: Ino) {
        self.pending.borrow_mut().inodes.insert(ino, None);
    }

    pub(super) fn put_name(&self, row: &NameRow, hash: Option<Digest>) {
        let mut pending = self.pending.borrow_mut();
        pending.names_of.entry(row.ino).or_default().push((row.parent, row.name.clone()));
        let new = NewName { ino: row.ino, kind: row.kind, hash };
        pending.names.entry(row.parent).or_default().insert(row.name.as_bytes().to_vec(), Some(new));
    }

    pub(super) fn remove_name(&self, parent: Ino, name: &Name) {
        self.pending.borrow_mut().names.entry(parent).or_default().insert(name.as_bytes().to_vec(), None);
    }

    pub(super) fn clear_extents(&self, ino: Ino, range: Range<u64>) {
        self.pending.borrow_mut().cleared.entry(ino).or_default().push(range);
    }

    pub(super) fn put_extent(&self, ino: Ino, index: u64, block: BlockRef) {
        self.pending.borrow_mut().extents.insert((ino, index), block);
    }

    /// Remembers the bytes of a block that the database does not have yet.
    pub(super) fn put_block(&self, id: BlockId, bytes: Rope) {
        self.pending.borrow_mut().blocks.insert(id, bytes);
    }

    fn query(&self, statement: &'static str, parameters: Vec<Parameter>) -> Result<Vec<Row>> {
        self.connection.borrow_mut().query(WHAT, statement, parameters)
    }

    /// Returns the stored data of a subtree, verified by its `sum`.
    fn blob(
        &self,
        statement: &'static str,
        parameters: Vec<Parameter>,
        sum: impl Fn(&[u8]) -> i64,
    ) -> Result<Option<Bytes>> {
        self.query(statement, parameters)?.first().map(|row| kept(row, sum)).transpose()
    }

    /// Sends `calls` as [`Connection::take_all`] does.
    pub(super) fn take_all(&self, calls: &[Call], take: impl FnMut(usize, Vec<Row>) -> Result<()>) -> Result<()> {
        self.connection.borrow_mut().take_all(WHAT, calls, take)
    }

    /// True if the last commit may have left an inode of this number.
    pub(super) fn is_stored(&self, ino: Ino) -> bool {
        ino < self.fresh
    }

    pub(super) fn knows_inode(&self, ino: Ino) -> bool {
        let known = self.known.borrow();
        known.inodes.contains_key(&ino) && known.names_of.contains_key(&ino)
    }

    pub(super) fn knows_branch(&self, key: &(Ino, Bytes)) -> bool {
        self.known.borrow().branches.contains_key(key)
    }

    /// Takes in that of the inodes `asked` for, and of their names, nothing is there but what comes
    /// now.
    pub(super) fn begin_inodes(&self, asked: impl Iterator<Item = Ino>) {
        let known = &mut *self.known.borrow_mut();
        for ino in asked {
            known.inodes.insert(ino, None);
            known.names_of.insert(ino, Vec::new());
        }
    }

    /// Takes in rows of [`sql::DIGEST_INODES`].
    pub(super) fn take_inodes(&self, found: &[Row]) -> Result<()> {
        let known = &mut *self.known.borrow_mut();
        found.iter().try_for_each(|row| {
            known.inodes.insert(Ino(unsigned(row, 0)?), inode(row)?);
            Ok(())
        })
    }

    /// Takes in rows of [`sql::NAMES_OF`].
    pub(super) fn take_names(&self, found: &[Row]) -> Result<()> {
        let known = &mut *self.known.borrow_mut();
        found.iter().try_for_each(|row| known.take_name(row))
    }

    /// Takes in rows of [`sql::LEAVING`]: of all that this commit removes no others have anything
    /// kept.
    pub(super) fn take_leaving(&self, found: &[Row]) -> Result<()> {
        let mut leaving = self.leaving.borrow_mut();
        let leaving = leaving.get_or_insert_default();
        found.iter().try_for_each(|row| {
            leaving.insert(Ino(unsigned(row, 0)?), inode(row)?);
            Ok(())
        })
    }

    /// Takes in what was found of a branch.
    pub(super) fn take_branch(&self, key: &(Ino, Bytes), found: &[Row]) -> Result<()> {
        let (parent, prefix) = key;
        let branch = match found.first().map(|row| kept(row, |children| sums::branch(*parent, prefix, children))) {
            // The digest that needs it reads it again, and gets the error.
            Some(Err(_)) => return Ok(()),
            branch => branch.transpose()?,
        };
        self.known.borrow_mut().branches.insert(key.clone(), branch);
        Ok(())
    }

    /// Takes in all entries of a directory that begin alike.
    pub(super) fn take_entries(&self, key: (Ino, Bytes), found: &[Row]) -> Result<()> {
        let entries = found.iter().map(|row| entry(row, key.0)).collect::<Result<_>>()?;
        self.buckets.borrow_mut().insert(key, entries);
        Ok(())
    }

    fn stored_names_of(&self, ino: Ino) -> Result<Vec<(Ino, Name)>> {
        if ino >= self.fresh {
            return Ok(Vec::new());
        }
        if let Some(known) = self.known.borrow().names_of.get(&ino) {
            return Ok(known.clone());
        }
        let rows = self.query(sql::NAMES_OF, vec![Box::new(vec![int(ino.0)])])?;
        let known = &mut *self.known.borrow_mut();
        known.names_of.insert(ino, Vec::new());
        rows.iter().try_for_each(|row| known.take_name(row))?;
        Ok(known.names_of[&ino].clone())
    }

    /// The first `limit` entries that the database has, however this commit changes them.
    fn stored_entries(&self, parent: Ino, prefix: &[u8], limit: usize) -> Result<Entries> {
        if parent >= self.fresh {
            return Ok(BTreeMap::new());
        }
        if let Some(bucket) = self.buckets.borrow().get(&(parent, prefix.to_vec())) {
            return Ok(bucket.clone());
        }
        let (from, limit) = (Box::new(prefix.to_vec()), Box::new(int(limit as u64)));
        let rows = match after(prefix) {
            Some(end) => self.query(sql::ENTRIES, vec![Box::new(int(parent.0)), from, Box::new(end), limit])?,
            None => self.query(sql::ENTRIES_TO_END, vec![Box::new(int(parent.0)), from, limit])?,
        };
        rows.iter().map(|row| entry(row, parent)).collect()
    }
}

/// Returns those of `names` that begin with `prefix`.
fn beginning<'n, T>(names: &'n BTreeMap<Bytes, T>, prefix: &'n [u8]) -> impl Iterator<Item = (&'n Bytes, &'n T)> {
    let from = (Bound::Included(prefix), Bound::Unbounded);
    names.range::<[u8], _>(from).take_while(move |(name, _)| name.starts_with(prefix))
}

impl DigestRows for Rows<'_> {
    fn inode(&self, ino: Ino) -> Result<Option<Inode>> {
        if let Some(pending) = self.pending.borrow().inodes.get(&ino) {
            return Ok(*pending);
        }
        if ino >= self.fresh {
            return Ok(None);
        }
        if let Some(known) = self.known.borrow().inodes.get(&ino) {
            return Ok(*known);
        }
        let rows = self.query(sql::DIGEST_INODES, vec![Box::new(vec![int(ino.0)])])?;
        let found = rows.first().map(inode).transpose()?.flatten();
        self.known.borrow_mut().inodes.insert(ino, found);
        Ok(found)
    }

    fn leaving(&self, ino: Ino) -> Result<Option<Inode>> {
        match &*self.leaving.borrow() {
            Some(leaving) => Ok(leaving.get(&ino).copied().flatten()),
            None => self.inode(ino),
        }
    }

    fn set_digest(&self, ino: Ino, digest: Option<&Digest>) -> Result<()> {
        let inode = self.inode(ino)?.map(|inode| Inode { digest: digest.copied(), ..inode });
        let pending = &mut *self.pending.borrow_mut();
        pending.inodes.insert(ino, inode);
        if !pending.put.contains(&ino) {
            pending.digests.insert(ino, digest.copied());
        }
        Ok(())
    }

    fn names_of(&self, ino: Ino) -> Result<Vec<(Ino, Name)>> {
        let mut names = self.stored_names_of(ino)?;
        let pending = self.pending.borrow();
        let new = |parent: Ino, name: &Name| pending.names.get(&parent).and_then(|names| names.get(name.as_bytes()));
        names.retain(|(parent, name)| new(*parent, name).is_none());
        let put = pending.names_of.get(&ino).into_iter().flatten();
        let holds =
            |(parent, name): &&(Ino, Name)| new(*parent, name).copied().flatten().is_some_and(|new| new.ino == ino);
        names.extend(put.filter(holds).cloned());
        Ok(names)
    }

    fn entry(&self, parent: Ino, name: &Name) -> Result<Option<Digest>> {
        {
            let pending = self.pending.borrow();
            if let Some(new) = pending.names.get(&parent).and_then(|names| names.get(name.as_bytes())) {
                return Ok(new.and_then(|new| new.hash));
            }
            if let Some(hash) = pending.hashes.get(&parent).and_then(|hashes| hashes.get(name.as_bytes())) {
                return Ok(*hash);
            }
        }
        if parent >= self.fresh {
            return Ok(None);
        }
        if let Some(known) = self.known.borrow().entries.get(&(parent, name.clone())) {
            return Ok(*known);
        }
        let rows = self.query(sql::ENTRY, vec![Box::new(int(parent.0)), Box::new(name.as_bytes().to_vec())])?;
        Ok(rows.first().map(|row| hash_and_sum(row, 0, parent, name.as_bytes())).transpose()?.flatten())
    }

    fn set_entry(&self, parent: Ino, name: &Name, hash: Option<&Digest>) -> Result<()> {
        let hash = hash.copied();
        let pending = &mut *self.pending.borrow_mut();
        match pending.names.get_mut(&parent).and_then(|names| names.get_mut(name.as_bytes())) {
            Some(Some(new)) => new.hash = hash,
            Some(None) => {}
            None => drop(pending.hashes.entry(parent).or_default().insert(name.as_bytes().to_vec(), hash)),
        }
        Ok(())
    }

    fn entries(&self, parent: Ino, prefix: &[u8], limit: usize) -> Result<Vec<(Name, Option<Digest>)>> {
        let changed = {
            let pending = self.pending.borrow();
            pending.names.get(&parent).map_or(0, |names| beginning(names, prefix).count())
        };
        // Each change takes one of the rows away at most.
        let mut entries = self.stored_entries(parent, prefix, limit.saturating_add(changed))?;
        let pending = self.pending.borrow();
        for (name, hash) in pending.hashes.get(&parent).into_iter().flat_map(|hashes| beginning(hashes, prefix)) {
            entries.entry(name.clone()).and_modify(|own| *own = *hash);
        }
        for (name, new) in pending.names.get(&parent).into_iter().flat_map(|names| beginning(names, prefix)) {
            match new {
                Some(new) => drop(entries.insert(name.clone(), new.hash)),
                None => drop(entries.remove(name)),
            }
        }
        entries.into_iter().take(limit).map(|(name, hash)| Ok((valid(&name)?, hash))).collect()
    }

    fn branch(&self, parent: Ino, prefix: &[u8]) -> Result<Option<Vec<u8>>> {
        let key = (parent, prefix.to_vec());
        {
            let pending = self.pending.borrow();
            if let Some(branch) = pending.branches.get(&key) {
                return Ok(branch.clone());
            }
            if parent >= self.fresh || pending.cleared_branches.contains(&parent) {
                return Ok(None);
            }
        }
        if let Some(known) = self.known.borrow().branches.get(&key) {
            return Ok(known.clone());
        }
        let parameters: Vec<_> = vec![Box::new(int(parent.0)) as _, Box::new(prefix.to_vec()) as _];
        let branch = self.blob(sql::BRANCH, parameters, |children| sums::branch(parent, prefix, children))?;
        self.known.borrow_mut().branches.insert(key, branch.clone());
        Ok(branch)
    }

    fn set_branch(&self, parent: Ino, prefix: &[u8], branch: Option<&[u8]>) -> Result<()> {
        self.pending.borrow_mut().branches.insert((parent, prefix.to_vec()), branch.map(<[u8]>::to_vec));
        Ok(())
    }

    fn clear_branches(&self, parent: Ino) -> Result<()> {
        let pending = &mut *self.pending.borrow_mut();
        pending.branches.retain(|(own, _), _| *own != parent);
        if parent < self.fresh {
            pending.cleared_branches.insert(parent);
        }
        Ok(())
    }

    fn extents(&self, ino: Ino, range: Range<u64>) -> Result<Vec<(u64, BlockRef)>> {
        let mut extents = BTreeMap::new();
        if ino < self.fresh {
            extents.extend(read::extents(&mut self.connection.borrow_mut(), ino, &range, None)?);
        }
        let pending = self.pending.borrow();
        for cleared in pending.cleared.get(&ino).into_iter().flatten() {
            extents.retain(|index, _| !cleared.contains(index));
        }
        let put = pending.extents.range((ino, range.start)..(ino, range.end));
        extents.extend(put.map(|((_, index), block)| (*index, *block)));
        Ok(extents.into_iter().collect())
    }

    fn bytes(&self, block: &BlockRef) -> Result<Block> {
        if let Some(bytes) = self.pending.borrow().blocks.get(&block.id) {
            return Ok(Block::new(bytes.to_vec()));
        }
        let mut read = None;
        read::blocks(&mut self.connection.borrow_mut(), &[*block], &mut |result| read = Some(result))?;
        read.ok_or_else(|| Error::Bug("one block was asked for".into()))?
    }

    fn node(&self, ino: Ino, level: u32, index: u64) -> Result<Option<Vec<u8>>> {
        let key = (ino, level, index);
        {
            let pending = self.pending.borrow();
            if let Some(node) = pending.nodes.get(&key) {
                return Ok(node.clone());
            }
            let is_cleared = pending.cleared_nodes.get(&(ino, level)).is_some_and(|from| index >= *from);
            if ino >= self.fresh || is_cleared {
                return Ok(None);
            }
        }
        if let Some(known) = self.known.borrow().nodes.get(&key) {
            return Ok(known.clone());
        }
        let parameters: Vec<_> =
            vec![Box::new(int(ino.0)) as _, Box::new(i64::from(level)) as _, Box::new(int(index)) as _];
        let node = self.blob(sql::NODE, parameters, |children| sums::node(ino, level, index, children))?;
        self.known.borrow_mut().nodes.insert(key, node.clone());
        Ok(node)
    }

    fn nodes(&self, ino: Ino, level: u32, range: Range<u64>) -> Result<Vec<u64>> {
        let mut nodes = std::collections::BTreeSet::new();
        let pending = self.pending.borrow();
        if ino < self.fresh {
            let end = pending.cleared_nodes.get(&(ino, level)).map_or(range.end, |from| range.end.min(*from));
            let parameters: Vec<_> = vec![
                Box::new(int(ino.0)) as _,
                Box::new(i64::from(level)) as _,
                Box::new(int(range.start)) as _,
                Box::new(int(end)) as _,
            ];
            for row in &self.query(sql::NODES, parameters)? {
                nodes.insert(unsigned(row, 0)?);
            }
        }
        for ((_, _, index), node) in pending.nodes.range((ino, level, range.start)..(ino, level, range.end)) {
            match node {
                Some(_) => nodes.insert(*index),
                None => nodes.remove(index),
            };
        }
        Ok(nodes.into_iter().collect())
    }

    fn set_node(&self, ino: Ino, level: u32, index: u64, node: Option<&[u8]>) -> Result<()> {
        self.pending.borrow_mut().nodes.insert((ino, level, index), node.map(<[u8]>::to_vec));
        Ok(())
    }

    fn clear_nodes(&self, ino: Ino, level: u32, index: u64) -> Result<()> {
        let pending = &mut *self.pending.borrow_mut();
        pending.nodes.retain(|(own, at, own_index), _| (*own, *at) != (ino, level) || *own_index < index);
        if ino < self.fresh {
            let from = pending.cleared_nodes.entry((ino, level)).or_insert(index);
            *from = index.min(*from);
        }
        Ok(())
    }
}

/// An inode of [`sql::DIGEST_INODES`]; none if its row is damaged.
fn inode(row: &Row) -> Result<Option<Inode>> {
    let is_alone = get::<bool>(row, 20)?;
    let read = match is_alone {
        true => read::inode_row(row),
        false => read::unverified_inode_row(row),
    };
    let Ok(InodeRow { ino, kind, permissions, size, parent, .. }) = read else { return Ok(None) };
    Ok(Some(Inode { kind, permissions, size, parent, digest: read::digest_and_sum(row, 18, ino)? }))
}

/// Returns the data of a subtree in a row, verified by the `sum` beside it.
fn kept(row: &Row, sum: impl Fn(&[u8]) -> i64) -> Result<Bytes> {
    let kept = get::<Bytes>(row, 0)?;
    match read::holds(row, 1, sum(&kept)) {
        true => Ok(kept),
        false => Err(Error::Corrupt("what is kept of a subtree of digests is damaged".into())),
    }
}

/// An entry of [`sql::ENTRIES`]: its name and its hash.
fn entry(row: &Row, parent: Ino) -> Result<(Bytes, Option<Digest>)> {
    let name = get::<Bytes>(row, 0)?;
    let hash = hash_and_sum(row, 1, parent, &name)?;
    Ok((name, hash))
}
