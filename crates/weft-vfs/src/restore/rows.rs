//! Rows as of one commit, many at a time.

use super::path::shown;
use super::{Restoring, refused};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeMap;
use weft_digest::Digest;
use weft_store::{CommitNo, Cookie, Error, Ino, InodeRow, Kind, Name, NameRow, Store};
use weft_tree::Stored;

/// Entries of a directory that are read at once.
const NAMES_READ: usize = 1 << 14;

/// Fewest and most inodes that are read at once.
const INODES_READ: (usize, usize) = (16, 1 << 12);

/// Share of the inodes read that are wanted, below which fewer are read.
const WANTED_SHARE: usize = 4;

/// Files that are asked about at once.
const FILES_READ: usize = 512;

/// What is stored of a file, by the indices of its blocks.
pub(super) type Blocks = Vec<(u64, Stored)>;

/// True if a file has blocks.
fn has_blocks(row: &InodeRow) -> bool {
    row.kind == Kind::File && row.inline.is_none() && row.allocated > 0
}

/// An inode's row, and the commit that wrote it.
pub(super) type Versioned = (InodeRow, CommitNo);

/// The rows.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a> {
    store: &'a dyn Store,
    pub(super) commit: CommitNo,
}

impl<'a> Rows<'a> {
    /// Those of `store` as of `commit`, which is kept.
    pub(super) fn new(store: &'a dyn Store, commit: CommitNo) -> Rows<'a> {
        Rows { store, commit }
    }

    /// Inode `ino`, if it was there.
    pub(super) fn inode(&self, ino: Ino) -> weft_store::Result<Option<Versioned>> {
        self.store.row_at(self.commit, ino)
    }

    /// Those of `wanted`, which is ascending, that were there.
    pub(super) fn inodes(&self, wanted: &[Ino]) -> weft_store::Result<FxHashMap<Ino, Versioned>> {
        let mut found = FxHashMap::default();
        let (mut left, mut limit) = (wanted, INODES_READ.0);
        while let (Some(first), Some(last)) = (left.first(), left.last()) {
            let rows = self.store.inodes_at(self.commit, *first..last.next(), limit)?;
            let Some(last) = rows.last().map(|(row, _)| row.ino) else { break };
            let passed = left.partition_point(|ino| *ino <= last);
            let asked = left.iter().take(passed).copied().collect::<FxHashSet<_>>();
            let before = found.len();
            found.extend(rows.into_iter().filter(|(row, _)| asked.contains(&row.ino)).map(|row| (row.0.ino, row)));
            let hits = found.len() - before;
            limit = if hits * WANTED_SHARE >= limit { limit * 4 } else { limit / 2 };
            limit = limit.clamp(INODES_READ.0, INODES_READ.1);
            left = &left[passed..];
        }
        Ok(found)
    }

    /// All entries of the directory whose row is `directory`. `Corrupt` if some are gone.
    pub(super) fn names(&self, directory: &InodeRow) -> weft_store::Result<Vec<NameRow>> {
        let (mut names, mut after) = (Vec::new(), Cookie(0));
        while (names.len() as u64) < directory.size {
            let page = self.store.names_at(self.commit, directory.ino, after, NAMES_READ)?;
            let Some(last) = page.last() else { break };
            after = last.cookie;
            names.extend(page);
        }
        if (names.len() as u64) < directory.size {
            return Err(self.gone("entries", directory.ino));
        }
        Ok(names)
    }

    /// All blocks of those of `files` that have any. `Corrupt` if some are gone.
    pub(super) fn blocks<'r>(
        &self,
        files: impl Iterator<Item = &'r InodeRow>,
        block_size: u64,
    ) -> weft_store::Result<FxHashMap<Ino, Blocks>> {
        let files = files.filter(|row| has_blocks(row)).collect::<Vec<_>>();
        let mut all = FxHashMap::default();
        for some in files.chunks(FILES_READ) {
            let asked = some.iter().map(|row| (row.ino, row.size)).collect::<Vec<_>>();
            for (row, extents) in some.iter().zip(self.store.all_extents_at(self.commit, &asked)?) {
                let held = extents.iter().map(|(_, block)| u64::from(block.length)).sum::<u64>();
                if held < row.allocated {
                    return Err(self.gone("blocks", row.ino));
                }
                all.insert(row.ino, Stored::group(&extents, block_size)?);
            }
        }
        Ok(all)
    }

    /// The digests of those of `files` of which one block is all, as far as they are kept.
    pub(super) fn digests<'r>(
        &self,
        files: impl Iterator<Item = &'r InodeRow>,
        block_size: u64,
    ) -> weft_store::Result<FxHashMap<Ino, Digest>> {
        let inos = files.filter(|row| has_blocks(row) && row.size <= block_size).map(|row| row.ino).collect::<Vec<_>>();
        let mut all = FxHashMap::default();
        for some in inos.chunks(FILES_READ) {
            let found = self.store.digests_at(self.commit, some)?;
            all.extend(some.iter().zip(found).filter_map(|(ino, digest)| Some((*ino, digest?))));
        }
        Ok(all)
    }

    /// Those of `files` whose content was taken out of history: they look empty, but have no
    /// digest, as an empty file has. None of a volume that keeps no digests, where nobody can tell.
    pub(super) fn forgotten<'r>(
        &self,
        files: impl Iterator<Item = &'r InodeRow>,
    ) -> weft_store::Result<FxHashSet<Ino>> {
        let is_empty = |row: &&InodeRow| row.kind == Kind::File && row.size == 0;
        let inos = files.filter(is_empty).map(|row| row.ino).collect::<Vec<_>>();
        let mut all = FxHashSet::default();
        if inos.is_empty() || self.store.digest_at(self.commit, Ino::ROOT)?.is_none() {
            return Ok(all);
        }
        for some in inos.chunks(FILES_READ) {
            let found = self.store.digests_at(self.commit, some)?;
            all.extend(some.iter().zip(found).filter(|(_, digest)| digest.is_none()).map(|(ino, _)| *ino));
        }
        Ok(all)
    }

    /// All extended attributes of the inode whose row is `row`.
    pub(super) fn xattrs(&self, row: &InodeRow) -> weft_store::Result<BTreeMap<Name, Vec<u8>>> {
        if !row.has_xattrs() {
            return Ok(BTreeMap::new());
        }
        Ok(self.store.xattrs_at(self.commit, row.ino)?.into_iter().collect())
    }

    /// The entry `name` of directory `parent`.
    pub(super) fn name(&self, parent: Ino, name: &Name) -> weft_store::Result<Option<NameRow>> {
        self.store.name_at(self.commit, parent, name)
    }

    /// The entry that `path`, which is not empty, leads to.
    pub(super) fn entry(&self, path: &[Name]) -> weft_store::Result<Option<NameRow>> {
        let (mut at, mut found) = (Ino::ROOT, None);
        for (depth, name) in path.iter().enumerate() {
            let Some(entry) = self.name(at, name)? else { return Ok(None) };
            if entry.kind != Kind::Directory && depth + 1 < path.len() {
                return Ok(None);
            }
            at = entry.ino;
            found = Some(entry);
        }
        Ok(found)
    }

    /// The directory that `path` leads to. Refused if there is none.
    pub(super) fn directory(&self, path: &[Name]) -> Restoring<InodeRow> {
        let mut at = Ino::ROOT;
        for (depth, name) in path.iter().enumerate() {
            match self.name(at, name)? {
                Some(entry) if entry.kind == Kind::Directory => at = entry.ino,
                Some(_) => return refused(format!("{} is not a directory", shown(&path[..=depth]))),
                None => return refused(format!("there is no directory {}", shown(&path[..=depth]))),
            }
        }
        self.existing(at)
    }

    /// Inode `ino`, which an entry names. `Corrupt` if it is gone.
    pub(super) fn existing(&self, ino: Ino) -> Restoring<InodeRow> {
        match self.inode(ino)? {
            Some((row, _)) => Ok(row),
            None => Err(self.gone("the row", ino).into()),
        }
    }

    /// The error of damage.
    pub(super) fn gone(&self, what: &str, ino: Ino) -> Error {
        let (ino, commit) = (ino.0, self.commit.0);
        Error::Corrupt(format!("{what} of inode {ino} as of commit {commit}: gone; 'weft check' tells more"))
    }
}
