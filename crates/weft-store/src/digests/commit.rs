//! The digests that follow from one commit.

use super::zeros::ZeroValues;
use super::{DigestRows, FileChange, Inode, directory, file};
use crate::Name;
use crate::error::{ErrorKind, Result};
use crate::row::{BlockId, Ino, InodeRow, NameRow, Span};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use weft_digest::{Digest, DirectoryHasher, Entry, FileHasher, Kind, device, digest};

/// Computes digests. Holds the state that is the same for all commits.
pub(crate) struct Digester {
    hasher: DirectoryHasher,
    zeros: Arc<ZeroValues>,
}

/// The attributes of an inode that the hash of an entry covers.
#[derive(Clone, Copy)]
struct Listed {
    kind: Kind,
    permissions: u32,
    /// None if it is damaged.
    digest: Option<Digest>,
    names: u32,
}

/// Directories, and names in them, whose entries are others than before.
type Changed = FxHashMap<Ino, Vec<Name>>;

/// Bytes of a file whose blocks change.
#[derive(Default)]
struct Content {
    put: Vec<Range<u64>>,
    cleared: Vec<Range<u64>>,
}

/// The digests of one commit, told what it changes in this order: content, inodes, names.
pub(crate) struct CommitDigests<'a> {
    digester: &'a Digester,
    rows: &'a dyn DigestRows,
    block_size: u64,
    content: FxHashMap<Ino, Content>,
    /// Digests of files of one block, by that block.
    alone: FxHashMap<BlockId, Digest>,
    inodes: FxHashMap<Ino, Listed>,
    changed: Changed,
    /// Inodes other than directories whose entries may be stale.
    unlisted: FxHashSet<Ino>,
    removed: FxHashSet<Ino>,
    is_anew: bool,
}

impl Digester {
    pub(crate) fn new(zeros: Arc<ZeroValues>) -> Digester {
        Digester { hasher: DirectoryHasher::new(), zeros }
    }

    /// Begins a commit of a volume with blocks of `block_size` bytes, in whose transaction `rows`
    /// are.
    pub(crate) fn begin<'a>(&'a self, rows: &'a dyn DigestRows, block_size: u64) -> CommitDigests<'a> {
        CommitDigests {
            digester: self,
            rows,
            block_size,
            content: FxHashMap::default(),
            alone: FxHashMap::default(),
            inodes: FxHashMap::default(),
            changed: Changed::default(),
            unlisted: FxHashSet::default(),
            removed: FxHashSet::default(),
            is_anew: false,
        }
    }

    /// The same where all blocks of each file will be put, and nothing is kept of them.
    pub(crate) fn rebuild<'a>(&'a self, rows: &'a dyn DigestRows, block_size: u64) -> CommitDigests<'a> {
        CommitDigests { is_anew: true, ..self.begin(rows, block_size) }
    }

    /// Returns the hash of the entry `name` that names `ino`, by the stored digest. None if there
    /// is none.
    pub(crate) fn entry(&self, rows: &dyn DigestRows, ino: Ino, name: &Name) -> Result<Option<Digest>> {
        Ok(rows.inode(ino)?.and_then(|inode| self.entry_of(inode, name)))
    }

    /// The hash of the entry `name` that names `inode`; none if that has no digest.
    pub(crate) fn entry_of(&self, inode: Inode, name: &Name) -> Option<Digest> {
        let Inode { kind, permissions, digest, .. } = inode;
        self.hash(&Listed { kind, permissions, digest, names: 1 }, name)
    }

    /// The digest of a directory after `changed`, names in order, each once. None if one of them
    /// has no hash.
    pub(crate) fn directory(&self, rows: &dyn DigestRows, ino: Ino, changed: &[Name]) -> Result<Option<Digest>> {
        directory::update(rows, &self.hasher, ino, changed)
    }

    /// True if the stored tree over the content of `row` is whole and gives `digest`, as far as
    /// that can be told without reading blocks.
    pub(crate) fn is_tree_whole(
        &self,
        rows: &dyn DigestRows,
        block_size: u64,
        row: &InodeRow,
        digest: Digest,
    ) -> Result<bool> {
        Ok(!has_blocks(row) || file::is_whole(rows, &self.zeros, (row.ino, block_size), (row.size, digest))?)
    }

    fn hash(&self, listed: &Listed, name: &Name) -> Option<Digest> {
        let permissions = u16::try_from(listed.permissions & 0o7777).expect("12 bits");
        let Listed { kind, digest, .. } = *listed;
        Some(self.hasher.entry(&Entry { name: name.as_bytes(), kind, permissions, digest: digest? }))
    }
}

fn has_blocks(row: &InodeRow) -> bool {
    row.kind == Kind::File && row.inline.is_none() && row.allocated > 0
}

/// The digest of what is neither a directory nor has blocks.
pub(crate) fn small(row: &InodeRow) -> Digest {
    let inline = row.inline.as_deref().unwrap_or_default();
    match row.kind {
        Kind::File => {
            let mut hasher = FileHasher::new(weft_digest::Content::IfListed);
            let inline = &inline[..inline.len().min(usize::try_from(row.size).unwrap_or(usize::MAX))];
            hasher.update(inline);
            hasher.zeros(row.size - inline.len() as u64);
            hasher.finish().listed
        }
        Kind::CharDevice | Kind::BlockDevice => {
            let rdev = u64::from(row.rdev);
            device(rustix::fs::major(rdev), rustix::fs::minor(rdev))
        }
        _ => digest(inline),
    }
}

impl CommitDigests<'_> {
    /// Notes that the extents of `ino` in `bytes` are gone, but for those that are put. All
    /// changes of blocks come before those of inodes.
    pub(crate) fn clear(&mut self, ino: Ino, bytes: Range<u64>) {
        self.content.entry(ino).or_default().cleared.push(bytes);
    }

    /// The extent `span` of `ino` is put, after those before it.
    pub(crate) fn put(&mut self, ino: Ino, span: Span) {
        let put = &mut self.content.entry(ino).or_default().put;
        match put.last_mut() {
            Some(last) if last.end == span.start => last.end = span.end(),
            _ => put.push(span.range()),
        }
    }

    /// The digest of a file that has this block and nothing else.
    pub(crate) fn alone(&mut self, block: BlockId, digest: Digest) {
        self.alone.insert(block, digest);
    }

    /// Inode `ino` is about to be removed.
    pub(crate) fn remove(&mut self, ino: Ino) -> Result<()> {
        self.removed.insert(ino);
        match self.rows.leaving(ino)? {
            Some(Inode { kind: Kind::Directory, .. }) => self.rows.clear_branches(ino),
            Some(Inode { kind: Kind::File, size, .. }) => file::forget(self.rows, ino, self.block_size, size),
            _ => Ok(()),
        }
    }

    /// `row` is about to be put: tells the digest to put with it. None if it is not known.
    pub(crate) fn inode(&mut self, row: &InodeRow) -> Result<Option<Digest>> {
        if row.kind == Kind::Directory {
            self.changed.entry(row.ino).or_default();
            // As long as nothing else follows.
            return Ok(self.rows.inode(row.ino)?.and_then(|inode| inode.digest));
        }
        let digest = if has_blocks(row) { self.file(row)? } else { self.without_blocks(row)? };
        let listed = Listed { kind: row.kind, permissions: row.permissions, digest, names: row.nlink };
        self.inodes.insert(row.ino, listed);
        self.unlisted.insert(row.ino);
        Ok(digest)
    }

    fn without_blocks(&self, row: &InodeRow) -> Result<Option<Digest>> {
        if self.content.contains_key(&row.ino)
            && let Some(old) = self.rows.inode(row.ino)?
        {
            file::forget(self.rows, row.ino, self.block_size, old.size)?;
        }
        Ok(Some(small(row)))
    }

    fn file(&self, row: &InodeRow) -> Result<Option<Digest>> {
        let old = self.rows.inode(row.ino)?;
        let content = self.content.get(&row.ino);
        if let Some(Inode { size, digest: Some(digest), .. }) = old
            && size == row.size
            && content.is_none()
        {
            return Ok(Some(digest));
        }
        let change = FileChange {
            ino: row.ino,
            block_size: self.block_size,
            old_size: old.map_or(0, |old| old.size),
            old_digest: old.and_then(|old| old.digest),
            is_anew: self.is_anew,
            size: row.size,
            allocated: row.allocated,
            put: content.map_or(&[], |content| &content.put),
            cleared: content.map_or(&[], |content| &content.cleared),
            alone: &|block| self.alone.get(&block.id).copied(),
        };
        match file::update(self.rows, &self.digester.zeros, &change) {
            Ok(digest) => Ok(Some(digest)),
            // What is damaged has no digest. The rest of the commit must not wait for it.
            Err(error) if error.kind() == ErrorKind::Corrupt => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The entry `name` of `parent` is removed.
    pub(crate) fn remove_name(&mut self, parent: Ino, name: &Name) {
        self.changed.entry(parent).or_default().push(name.clone());
    }

    /// `row` is about to be put: tells the hash to put with it. None if it names a directory, whose
    /// digest follows, or what has no digest.
    pub(crate) fn name(&mut self, row: &NameRow) -> Result<Option<Digest>> {
        self.changed.entry(row.parent).or_default().push(row.name.clone());
        if let Some(listed) = self.inodes.get(&row.ino) {
            if listed.names == 1 {
                self.unlisted.remove(&row.ino);
            }
            return Ok(self.digester.hash(listed, &row.name));
        }
        if row.kind == Kind::Directory {
            self.changed.entry(row.ino).or_default();
            return Ok(None);
        }
        self.digester.entry(self.rows, row.ino, &row.name)
    }

    /// Makes all digests right that follow, of directories from the lowest up. All inodes and names
    /// are put.
    pub(crate) fn finish(mut self) -> Result<()> {
        for ino in std::mem::take(&mut self.unlisted) {
            list(self.digester, self.rows, ino, &self.inodes[&ino], &mut self.changed)?;
        }
        let mut depths = FxHashMap::from_iter([(Ino::ROOT, Some(0))]);
        let mut by_depth = BTreeMap::<usize, Changed>::new();
        for (ino, names) in std::mem::take(&mut self.changed) {
            if !self.removed.contains(&ino)
                && let Some(depth) = depth(self.rows, ino, &mut depths)?
            {
                by_depth.entry(depth).or_default().insert(ino, names);
            }
        }
        while let Some((depth, directories)) = by_depth.pop_last() {
            let mut above = Changed::default();
            for (ino, mut names) in directories {
                names.sort_unstable();
                names.dedup();
                self.directory(ino, &names, &mut above)?;
            }
            for (ino, names) in above {
                let Some(depth) = depth.checked_sub(1) else { continue };
                by_depth.entry(depth).or_default().entry(ino).or_default().extend(names);
            }
        }
        Ok(())
    }

    fn directory(&self, ino: Ino, changed: &[Name], above: &mut Changed) -> Result<()> {
        let Some(inode) = self.rows.inode(ino)? else { return Ok(()) };
        let update = || self.digester.directory(self.rows, ino, changed);
        let digest = match inode.digest {
            // Only the directory itself is another.
            Some(digest) if changed.is_empty() => Some(digest),
            _ => match update() {
                // What is kept is damaged. It follows from the entries, too.
                Err(error) if error.kind() == ErrorKind::Corrupt => {
                    self.rows.clear_branches(ino)?;
                    update()?
                }
                other => other?,
            },
        };
        if inode.digest != digest {
            self.rows.set_digest(ino, digest.as_ref())?;
        }
        if ino == Ino::ROOT {
            return Ok(());
        }
        let listed = Listed { kind: inode.kind, permissions: inode.permissions, digest, names: 1 };
        list(self.digester, self.rows, ino, &listed, above)
    }
}

/// Has all names of `ino` say what it is; tells which change.
fn list(digester: &Digester, rows: &dyn DigestRows, ino: Ino, listed: &Listed, changed: &mut Changed) -> Result<()> {
    for (parent, name) in rows.names_of(ino)? {
        let hash = digester.hash(listed, &name);
        if rows.entry(parent, &name)? != hash {
            rows.set_entry(parent, &name, hash.as_ref())?;
            changed.entry(parent).or_default().push(name);
        }
    }
    Ok(())
}

/// Returns the number of directories above `ino`. None if no path leads to the root: `ino` is
/// damaged, or was deleted while it was open.
fn depth(rows: &dyn DigestRows, ino: Ino, depths: &mut FxHashMap<Ino, Option<usize>>) -> Result<Option<usize>> {
    let mut way = Vec::new();
    let mut at = ino;
    let mut depth = loop {
        if let Some(known) = depths.get(&at) {
            break *known;
        }
        // A walk that comes back here has gone in a circle.
        depths.insert(at, None);
        way.push(at);
        match rows.inode(at)? {
            Some(Inode { kind: Kind::Directory, parent, .. }) => at = parent,
            _ => break None,
        }
    };
    for ino in way.into_iter().rev() {
        depth = depth.map(|depth| depth + 1);
        depths.insert(ino, depth);
    }
    Ok(depth)
}
