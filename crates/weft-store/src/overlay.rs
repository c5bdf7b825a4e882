//! Rows as of a commit, and rows under changes that no commit has yet.
//!
//! A [`Snapshot`] is the rows as some commit left them, whoever keeps them. An [`Overlay`] is a
//! snapshot under changes: what is asked of it is answered as if they were made. It is a snapshot
//! itself. No locks, no threads, no engine. Inodes from some number on may be known to be of the
//! changes alone ([`Snapshot::may_have`]), so that nobody looks for rows of them.

use crate::Name;
use crate::digests::{DigestRows, Inode};
use crate::error::{Error, Result};
use crate::row::{BlockId, BlockRef, Ino, InodeRow, NameRow, Span};
use rustc_hash::{FxHashMap, FxHashSet};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, Range};
use weft_block::{Block, Rope};
use weft_digest::{Digest, Kind};

type Bytes = Vec<u8>;

/// Rows as of a commit, as far as digests follow from them.
pub(crate) trait Snapshot {
    /// False if it surely has no rows of inode `ino`.
    fn may_have(&self, _ino: Ino) -> bool {
        true
    }
    /// Returns an inode; none if there is none.
    fn inode(&self, ino: Ino) -> Result<Option<Inode>>;
    /// An inode that is about to be removed. May be none as well if nothing is kept for it but its
    /// digest.
    fn leaving(&self, ino: Ino) -> Result<Option<Inode>> {
        self.inode(ino)
    }
    /// Directories that name `ino`, and the names.
    fn names_of(&self, ino: Ino) -> Result<Vec<(Ino, Name)>>;
    /// The hash of an entry; none if there is no such entry, or no hash.
    fn entry(&self, parent: Ino, name: &Name) -> Result<Option<Digest>>;
    /// The first `limit` entries of `parent` whose names begin with `prefix`, in the order of the
    /// names' bytes, with their hashes.
    fn entries(&self, parent: Ino, prefix: &[u8], limit: usize) -> Result<Vec<(Name, Option<Digest>)>>;
    /// Returns the stored branch of the entries of `parent` that begin with `prefix`.
    fn branch(&self, parent: Ino, prefix: &[u8]) -> Result<Option<Vec<u8>>>;
    /// The extents of `ino` that start in `range`, in their order.
    fn extents(&self, ino: Ino, range: Range<u64>) -> Result<Vec<(Span, BlockRef)>>;
    /// The bytes of a block, verified.
    fn bytes(&self, block: &BlockRef) -> Result<Block>;
    /// Returns the stored node `index` at `level` of a file's tree.
    fn node(&self, ino: Ino, level: u32, index: u64) -> Result<Option<Vec<u8>>>;
    /// Returns the indices of stored nodes of `level` in `range`, in their order.
    fn nodes(&self, ino: Ino, level: u32, range: Range<u64>) -> Result<Vec<u64>>;
}

/// A new entry.
#[derive(Clone, Copy)]
pub(crate) struct NewName {
    pub(crate) ino: Ino,
    pub(crate) kind: Kind,
    pub(crate) hash: Option<Digest>,
}

/// Changes over a snapshot.
#[derive(Default)]
pub(crate) struct Changes {
    /// Inodes that are put, or whose digest is; none: removed.
    pub(crate) inodes: FxHashMap<Ino, Option<Inode>>,
    /// Digests of inodes that are not put.
    pub(crate) digests: BTreeMap<Ino, Option<Digest>>,
    put: FxHashSet<Ino>,
    /// Names by directory; none: removed.
    pub(crate) names: FxHashMap<Ino, BTreeMap<Bytes, Option<NewName>>>,
    names_of: FxHashMap<Ino, BTreeSet<(Ino, Name)>>,
    /// Hashes of entries that are not put.
    pub(crate) hashes: FxHashMap<Ino, BTreeMap<Bytes, Option<Digest>>>,
    /// Branches; none: removed.
    pub(crate) branches: BTreeMap<(Ino, Bytes), Option<Bytes>>,
    /// Directories of which all branches of the snapshot are gone.
    pub(crate) cleared_branches: FxHashSet<Ino>,
    /// Nodes; none: removed.
    pub(crate) nodes: BTreeMap<(Ino, u32, u64), Option<Bytes>>,
    /// Index from which on the nodes of a level are gone.
    pub(crate) cleared_nodes: BTreeMap<(Ino, u32), u64>,
    extents: BTreeMap<(Ino, Span), BlockRef>,
    cleared: FxHashMap<Ino, Vec<Range<u64>>>,
    blocks: FxHashMap<BlockId, Rope>,
}

impl Changes {
    /// Returns the digest of an inode that is put.
    pub(crate) fn digest(&self, ino: Ino) -> Option<Digest> {
        self.inodes.get(&ino).copied().flatten().and_then(|inode| inode.digest)
    }
}

/// A snapshot under changes.
pub(crate) struct Overlay<S> {
    snapshot: S,
    changes: RefCell<Changes>,
}

impl<S: Snapshot> Overlay<S> {
    /// `snapshot` as it is.
    pub(crate) fn new(snapshot: S) -> Overlay<S> {
        Overlay { snapshot, changes: RefCell::default() }
    }

    /// What lies below.
    pub(crate) fn snapshot(&self) -> &S {
        &self.snapshot
    }

    /// Returns the changes.
    pub(crate) fn into_changes(self) -> Changes {
        self.changes.into_inner()
    }

    /// Puts an inode, with the digest that it has then.
    pub(crate) fn put_inode(&self, row: &InodeRow, digest: Option<Digest>) {
        let InodeRow { kind, permissions, size, parent, .. } = *row;
        let mut changes = self.changes.borrow_mut();
        changes.put.insert(row.ino);
        changes.inodes.insert(row.ino, Some(Inode { kind, permissions, size, parent, digest }));
    }

    /// Removes an inode.
    pub(crate) fn remove_inode(&self, ino: Ino) {
        self.changes.borrow_mut().inodes.insert(ino, None);
    }

    /// Puts a name, and the hash of its entry.
    pub(crate) fn put_name(&self, row: &NameRow, hash: Option<Digest>) {
        let mut changes = self.changes.borrow_mut();
        changes.names_of.entry(row.ino).or_default().insert((row.parent, row.name.clone()));
        let new = NewName { ino: row.ino, kind: row.kind, hash };
        changes.names.entry(row.parent).or_default().insert(row.name.as_bytes().to_vec(), Some(new));
    }

    /// Removes a name.
    pub(crate) fn remove_name(&self, parent: Ino, name: &Name) {
        self.changes.borrow_mut().names.entry(parent).or_default().insert(name.as_bytes().to_vec(), None);
    }

    /// Removes the extents of `range`.
    pub(crate) fn clear_extents(&self, ino: Ino, range: Range<u64>) {
        self.changes.borrow_mut().cleared.entry(ino).or_default().push(range);
    }

    /// Puts an extent.
    pub(crate) fn put_extent(&self, ino: Ino, span: Span, block: BlockRef) {
        self.changes.borrow_mut().extents.insert((ino, span), block);
    }

    /// Remembers the bytes of a block that the snapshot does not have.
    pub(crate) fn put_block(&self, id: BlockId, bytes: Rope) {
        self.changes.borrow_mut().blocks.insert(id, bytes);
    }
}

/// Returns those of `names` that begin with `prefix`.
fn beginning<'n, T>(names: &'n BTreeMap<Bytes, T>, prefix: &'n [u8]) -> impl Iterator<Item = (&'n Bytes, &'n T)> {
    let from = (Bound::Included(prefix), Bound::Unbounded);
    names.range::<[u8], _>(from).take_while(move |(name, _)| name.starts_with(prefix))
}

impl<S: Snapshot> Snapshot for Overlay<S> {
    fn may_have(&self, ino: Ino) -> bool {
        self.snapshot.may_have(ino) || self.changes.borrow().put.contains(&ino)
    }

    fn inode(&self, ino: Ino) -> Result<Option<Inode>> {
        if let Some(changed) = self.changes.borrow().inodes.get(&ino) {
            return Ok(*changed);
        }
        self.snapshot.inode(ino)
    }

    fn leaving(&self, ino: Ino) -> Result<Option<Inode>> {
        self.snapshot.leaving(ino)
    }

    fn names_of(&self, ino: Ino) -> Result<Vec<(Ino, Name)>> {
        let mut names = self.snapshot.names_of(ino)?;
        let changes = self.changes.borrow();
        let new = |parent: Ino, name: &Name| changes.names.get(&parent).and_then(|names| names.get(name.as_bytes()));
        names.retain(|(parent, name)| new(*parent, name).is_none());
        let put = changes.names_of.get(&ino).into_iter().flatten();
        let holds =
            |(parent, name): &&(Ino, Name)| new(*parent, name).copied().flatten().is_some_and(|new| new.ino == ino);
        names.extend(put.filter(holds).cloned());
        Ok(names)
    }

    fn entry(&self, parent: Ino, name: &Name) -> Result<Option<Digest>> {
        {
            let changes = self.changes.borrow();
            if let Some(new) = changes.names.get(&parent).and_then(|names| names.get(name.as_bytes())) {
                return Ok(new.and_then(|new| new.hash));
            }
            if let Some(hash) = changes.hashes.get(&parent).and_then(|hashes| hashes.get(name.as_bytes())) {
                return Ok(*hash);
            }
        }
        self.snapshot.entry(parent, name)
    }

    fn entries(&self, parent: Ino, prefix: &[u8], limit: usize) -> Result<Vec<(Name, Option<Digest>)>> {
        let changed = {
            let changes = self.changes.borrow();
            changes.names.get(&parent).map_or(0, |names| beginning(names, prefix).count())
        };
        // Each change takes one of the rows away at most.
        let stored = self.snapshot.entries(parent, prefix, limit.saturating_add(changed))?;
        let changes = self.changes.borrow();
        let (names, hashes) = (changes.names.get(&parent), changes.hashes.get(&parent));
        if names.is_none() && hashes.is_none() {
            return Ok(stored);
        }
        let mut entries: BTreeMap<Name, Option<Digest>> = stored.into_iter().collect();
        for (name, hash) in hashes.into_iter().flat_map(|hashes| beginning(hashes, prefix)) {
            entries.entry(valid(name)?).and_modify(|own| *own = *hash);
        }
        for (name, new) in names.into_iter().flat_map(|names| beginning(names, prefix)) {
            match new {
                Some(new) => drop(entries.insert(valid(name)?, new.hash)),
                None => drop(entries.remove(&valid(name)?)),
            }
        }
        Ok(entries.into_iter().take(limit).collect())
    }

    fn branch(&self, parent: Ino, prefix: &[u8]) -> Result<Option<Vec<u8>>> {
        {
            let changes = self.changes.borrow();
            if let Some(branch) = changes.branches.get(&(parent, prefix.to_vec())) {
                return Ok(branch.clone());
            }
            if changes.cleared_branches.contains(&parent) {
                return Ok(None);
            }
        }
        self.snapshot.branch(parent, prefix)
    }

    fn extents(&self, ino: Ino, range: Range<u64>) -> Result<Vec<(Span, BlockRef)>> {
        let mut extents: BTreeMap<Span, BlockRef> = self.snapshot.extents(ino, range.clone())?.into_iter().collect();
        let changes = self.changes.borrow();
        for cleared in changes.cleared.get(&ino).into_iter().flatten() {
            extents.retain(|span, _| !cleared.contains(&span.start));
        }
        let at = |start| (ino, Span { start, length: 0 });
        for ((_, span), block) in changes.extents.range(at(range.start)..at(range.end)) {
            let replaced = extents.range(Span { start: span.start, length: 0 }..Span { start: span.end(), length: 0 });
            let replaced = replaced.map(|(span, _)| *span).collect::<Vec<_>>();
            for span in &replaced {
                extents.remove(span);
            }
            extents.insert(*span, *block);
        }
        Ok(extents.into_iter().collect())
    }

    fn bytes(&self, block: &BlockRef) -> Result<Block> {
        if let Some(bytes) = self.changes.borrow().blocks.get(&block.id) {
            return Ok(Block::new(bytes.to_vec()));
        }
        self.snapshot.bytes(block)
    }

    fn node(&self, ino: Ino, level: u32, index: u64) -> Result<Option<Vec<u8>>> {
        {
            let changes = self.changes.borrow();
            if let Some(node) = changes.nodes.get(&(ino, level, index)) {
                return Ok(node.clone());
            }
            if changes.cleared_nodes.get(&(ino, level)).is_some_and(|from| index >= *from) {
                return Ok(None);
            }
        }
        self.snapshot.node(ino, level, index)
    }

    fn nodes(&self, ino: Ino, level: u32, range: Range<u64>) -> Result<Vec<u64>> {
        let changes = self.changes.borrow();
        let end = changes.cleared_nodes.get(&(ino, level)).map_or(range.end, |from| range.end.min(*from));
        let mut nodes: BTreeSet<u64> = BTreeSet::new();
        if range.start < end {
            nodes.extend(self.snapshot.nodes(ino, level, range.start..end)?);
        }
        for ((_, _, index), node) in changes.nodes.range((ino, level, range.start)..(ino, level, range.end)) {
            match node {
                Some(_) => nodes.insert(*index),
                None => nodes.remove(index),
            };
        }
        Ok(nodes.into_iter().collect())
    }
}

impl<S: Snapshot> DigestRows for Overlay<S> {
    fn set_digest(&self, ino: Ino, digest: Option<&Digest>) -> Result<()> {
        let inode = self.inode(ino)?.map(|inode| Inode { digest: digest.copied(), ..inode });
        let changes = &mut *self.changes.borrow_mut();
        changes.inodes.insert(ino, inode);
        if !changes.put.contains(&ino) {
            changes.digests.insert(ino, digest.copied());
        }
        Ok(())
    }

    fn set_entry(&self, parent: Ino, name: &Name, hash: Option<&Digest>) -> Result<()> {
        let hash = hash.copied();
        let changes = &mut *self.changes.borrow_mut();
        match changes.names.get_mut(&parent).and_then(|names| names.get_mut(name.as_bytes())) {
            Some(Some(new)) => new.hash = hash,
            Some(None) => {}
            None => drop(changes.hashes.entry(parent).or_default().insert(name.as_bytes().to_vec(), hash)),
        }
        Ok(())
    }

    fn set_branch(&self, parent: Ino, prefix: &[u8], branch: Option<&[u8]>) -> Result<()> {
        self.changes.borrow_mut().branches.insert((parent, prefix.to_vec()), branch.map(<[u8]>::to_vec));
        Ok(())
    }

    fn clear_branches(&self, parent: Ino) -> Result<()> {
        let changes = &mut *self.changes.borrow_mut();
        changes.branches.retain(|(own, _), _| *own != parent);
        if self.snapshot.may_have(parent) {
            changes.cleared_branches.insert(parent);
        }
        Ok(())
    }

    fn set_node(&self, ino: Ino, level: u32, index: u64, node: Option<&[u8]>) -> Result<()> {
        self.changes.borrow_mut().nodes.insert((ino, level, index), node.map(<[u8]>::to_vec));
        Ok(())
    }

    fn clear_nodes(&self, ino: Ino, level: u32, index: u64) -> Result<()> {
        let changes = &mut *self.changes.borrow_mut();
        changes.nodes.retain(|(own, at, own_index), _| (*own, *at) != (ino, level) || *own_index < index);
        if self.snapshot.may_have(ino) {
            let from = changes.cleared_nodes.entry((ino, level)).or_insert(index);
            *from = index.min(*from);
        }
        Ok(())
    }
}

fn valid(name: &[u8]) -> Result<Name> {
    Name::new(name).map_err(|_| Error::Corrupt("a directory entry has no name that Weft writes".into()))
}

#[cfg(test)]
mod tests;
