//! The rows that digests need, as the last commit left them: those of a commit under way lie over
//! them ([`Overlay`]).
//!
//! The daemon that holds the volume is the only one who writes, so the rows that it has read or
//! written stay true: rows of directories and branches of names that begin alike are cached from
//! commit to commit, within bounds. Inodes that this commit makes are known to have no rows.

use super::connection::{Call, Connection, Parameter};
use super::keep::{Age, take_ages};
use super::read::{self, get, hash_and_sum, int, name_in, unsigned};
use super::statements as sql;
use crate::Name;
use crate::digests::{Inode, after};
use crate::error::{Error, Result};
use crate::overlay::{Changes, NewName, Overlay, Snapshot};
use crate::row::{BlockRef, Ino, InodeRow, Span};
use crate::sums;
use rustc_hash::FxHashMap;
use std::cell::RefCell;
use std::ops::Range;
use tokio_postgres::Row;
use weft_block::Block;
use weft_digest::{Digest, Kind};

const WHAT: &str = "cannot keep digests";

/// Bytes of rows that are remembered, at most.
const REMEMBERED_BYTES_MAX: usize = 16 << 20;

/// Overhead in bytes of a cached row, beside its content.
const ROW_BYTES: usize = 160;

/// Inodes whose ages are asked for in one statement.
const AGES_MAX: usize = 4096;

/// Ages that take as much memory as a row.
const AGES_IN_A_ROW: usize = 3;

type Bytes = Vec<u8>;

/// Names in order, with the hashes of their entries.
type Entries = Vec<(Name, Option<Digest>)>;

/// Cached rows, as the last commit left them.
#[derive(Default)]
pub(super) struct Known {
    inodes: FxHashMap<Ino, Option<Inode>>,
    names_of: FxHashMap<Ino, Vec<(Ino, Name)>>,
    entries: FxHashMap<(Ino, Name), Option<Digest>>,
    branches: FxHashMap<(Ino, Bytes), Option<Bytes>>,
    nodes: FxHashMap<(Ino, u32, u64), Option<Bytes>>,
    /// Tells if a row that is put differs from that which is there.
    ages: FxHashMap<Ino, Age>,
}

/// The rows under the changes of the commit.
pub(super) type Rows<'a> = Overlay<Stored<'a>>;

/// The rows as the last commit left them.
pub(super) struct Stored<'a> {
    connection: RefCell<&'a mut Connection>,
    known: RefCell<&'a mut Known>,
    /// All entries of a directory that begin with some prefix, as the last commit left them.
    buckets: RefCell<FxHashMap<(Ino, Bytes), Entries>>,
    /// Inodes that this commit removes and for which more than a digest may be stored, if they were
    /// fetched.
    leaving: RefCell<Option<FxHashMap<Ino, Option<Inode>>>>,
    /// Inodes from this one on are of this commit.
    fresh: Ino,
}

impl Known {
    /// Takes in a row of [`sql::DIGEST_INODES`].
    fn take_inode(&mut self, row: &Row) -> Result<()> {
        let ino = Ino(unsigned(row, 0)?);
        self.inodes.insert(ino, inode(row)?);
        if let Ok(age) = Age::of(row, 9, 16) {
            self.ages.insert(ino, age);
        }
        Ok(())
    }

    /// Takes in a row of [`sql::NAMES_OF`].
    fn take_name(&mut self, row: &Row) -> Result<()> {
        let (ino, parent, name) = (Ino(unsigned(row, 0)?), Ino(unsigned(row, 1)?), name_in(row, 2)?);
        self.entries.insert((parent, name.clone()), hash_and_sum(row, 3, parent, name.as_bytes())?);
        self.names_of.entry(ino).or_default().push((parent, name));
        Ok(())
    }

    /// Asks for the ages of those of `inos` that are not known, and returns all.
    pub(super) fn ages(&mut self, connection: &mut Connection, inos: &[Ino]) -> Result<&FxHashMap<Ino, Age>> {
        let unknown = inos.iter().filter(|ino| !self.ages.contains_key(ino)).map(|ino| int(ino.0)).collect::<Vec<_>>();
        let call = |inos: &[i64]| Call::new(sql::history::AGES, vec![Box::new(inos.to_vec())]);
        let calls = unknown.chunks(AGES_MAX).map(call).collect::<Vec<_>>();
        connection.take_all(WHAT, &calls, |_, rows| take_ages(&mut self.ages, &rows))?;
        Ok(&self.ages)
    }

    /// Takes in the rows of inodes that a commit put, and forgets those of which it has none.
    pub(super) fn learn_ages(&mut self, ages: impl Iterator<Item = (Ino, Option<Age>)>) {
        for (ino, age) in ages {
            match age {
                Some(age) => drop(self.ages.insert(ino, age)),
                None => drop(self.ages.remove(&ino)),
            }
        }
    }

    /// Takes in what a commit changed, once it is there.
    pub(super) fn learn(&mut self, changes: Changes) {
        let is_directory = |inode: &Option<Inode>| inode.is_some_and(|inode| inode.kind == Kind::Directory);
        for (ino, inode) in changes.inodes {
            match is_directory(&inode) {
                true => drop(self.inodes.insert(ino, inode)),
                false => {
                    self.inodes.remove(&ino);
                    self.names_of.remove(&ino);
                }
            }
        }
        for (parent, names) in changes.names {
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
        for (parent, hashes) in changes.hashes {
            let named = hashes.into_iter().filter_map(|(name, hash)| Some((Name::new(&name).ok()?, hash)));
            self.entries.extend(named.map(|(name, hash)| ((parent, name), hash)));
        }
        if !changes.cleared_branches.is_empty() {
            self.branches.retain(|(parent, _), _| !changes.cleared_branches.contains(parent));
        }
        self.branches.extend(changes.branches);
        let cleared = changes.cleared_nodes;
        if !cleared.is_empty() {
            self.nodes.retain(|(ino, level, index), _| cleared.get(&(*ino, *level)).is_none_or(|from| index < from));
        }
        self.nodes.extend(changes.nodes);
        if self.bytes() > REMEMBERED_BYTES_MAX {
            *self = Known::default();
        }
    }

    /// Returns roughly the bytes that it takes in memory.
    fn bytes(&self) -> usize {
        let rows =
            self.inodes.len() + self.names_of.len() + self.entries.len() + self.branches.len() + self.nodes.len();
        let rows = rows + self.ages.len() / AGES_IN_A_ROW;
        let kept = self.branches.values().chain(self.nodes.values()).flatten().map(Vec::len).sum::<usize>();
        rows * ROW_BYTES + kept
    }
}

impl<'a> Stored<'a> {
    /// The rows as they are, for inodes below `fresh`.
    pub(super) fn new(connection: &'a mut Connection, known: &'a mut Known, fresh: Ino) -> Stored<'a> {
        let (connection, known) = (RefCell::new(connection), RefCell::new(known));
        Stored { connection, known, buckets: RefCell::default(), leaving: RefCell::default(), fresh }
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
        found.iter().try_for_each(|row| known.take_inode(row))
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
}

impl Snapshot for Stored<'_> {
    fn may_have(&self, ino: Ino) -> bool {
        ino < self.fresh
    }

    fn inode(&self, ino: Ino) -> Result<Option<Inode>> {
        if ino >= self.fresh {
            return Ok(None);
        }
        if let Some(known) = self.known.borrow().inodes.get(&ino) {
            return Ok(*known);
        }
        let rows = self.query(sql::DIGEST_INODES, vec![Box::new(vec![int(ino.0)])])?;
        let known = &mut *self.known.borrow_mut();
        known.inodes.insert(ino, None);
        rows.iter().try_for_each(|row| known.take_inode(row))?;
        Ok(known.inodes[&ino])
    }

    fn leaving(&self, ino: Ino) -> Result<Option<Inode>> {
        match &*self.leaving.borrow() {
            Some(leaving) => Ok(leaving.get(&ino).copied().flatten()),
            None => self.inode(ino),
        }
    }

    fn names_of(&self, ino: Ino) -> Result<Vec<(Ino, Name)>> {
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

    fn entry(&self, parent: Ino, name: &Name) -> Result<Option<Digest>> {
        if parent >= self.fresh {
            return Ok(None);
        }
        if let Some(known) = self.known.borrow().entries.get(&(parent, name.clone())) {
            return Ok(*known);
        }
        let rows = self.query(sql::ENTRY, vec![Box::new(int(parent.0)), Box::new(name.as_bytes().to_vec())])?;
        Ok(rows.first().map(|row| hash_and_sum(row, 0, parent, name.as_bytes())).transpose()?.flatten())
    }

    fn entries(&self, parent: Ino, prefix: &[u8], limit: usize) -> Result<Entries> {
        if parent >= self.fresh {
            return Ok(Entries::new());
        }
        if let Some(bucket) = self.buckets.borrow().get(&(parent, prefix.to_vec())) {
            return Ok(bucket.iter().take(limit).cloned().collect());
        }
        let (from, limit) = (Box::new(prefix.to_vec()), Box::new(int(limit as u64)));
        let rows = match after(prefix) {
            Some(end) => self.query(sql::ENTRIES, vec![Box::new(int(parent.0)), from, Box::new(end), limit])?,
            None => self.query(sql::ENTRIES_TO_END, vec![Box::new(int(parent.0)), from, limit])?,
        };
        rows.iter().map(|row| entry(row, parent)).collect()
    }

    fn branch(&self, parent: Ino, prefix: &[u8]) -> Result<Option<Vec<u8>>> {
        if parent >= self.fresh {
            return Ok(None);
        }
        let key = (parent, prefix.to_vec());
        if let Some(known) = self.known.borrow().branches.get(&key) {
            return Ok(known.clone());
        }
        let parameters: Vec<_> = vec![Box::new(int(parent.0)) as _, Box::new(prefix.to_vec()) as _];
        let branch = self.blob(sql::BRANCH, parameters, |children| sums::branch(parent, prefix, children))?;
        self.known.borrow_mut().branches.insert(key, branch.clone());
        Ok(branch)
    }

    fn extents(&self, ino: Ino, range: Range<u64>) -> Result<Vec<(Span, BlockRef)>> {
        if ino >= self.fresh {
            return Ok(Vec::new());
        }
        read::extents(&mut self.connection.borrow_mut(), ino, &range, None)
    }

    fn bytes(&self, block: &BlockRef) -> Result<Block> {
        let mut read = None;
        read::blocks(&mut self.connection.borrow_mut(), &[*block], &mut |result| read = Some(result))?;
        read.ok_or_else(|| Error::Bug("one block was asked for".into()))?
    }

    fn node(&self, ino: Ino, level: u32, index: u64) -> Result<Option<Vec<u8>>> {
        if ino >= self.fresh {
            return Ok(None);
        }
        let key = (ino, level, index);
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
        if ino >= self.fresh {
            return Ok(Vec::new());
        }
        let parameters: Vec<_> = vec![
            Box::new(int(ino.0)) as _,
            Box::new(i64::from(level)) as _,
            Box::new(int(range.start)) as _,
            Box::new(int(range.end)) as _,
        ];
        self.query(sql::NODES, parameters)?.iter().map(|row| unsigned(row, 0)).collect()
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
fn entry(row: &Row, parent: Ino) -> Result<(Name, Option<Digest>)> {
    let name = name_in(row, 0)?;
    let hash = hash_and_sum(row, 1, parent, name.as_bytes())?;
    Ok((name, hash))
}
