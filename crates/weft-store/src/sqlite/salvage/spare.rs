//! Rows in pages that the list of free pages names.
//!
//! Such pages hold rows that were deleted, or moved elsewhere, as whole as any other; but a damaged
//! list names pages that are in use as well. So a row is taken from there only if another one that
//! is in use lacks it, and proves that it is the newest one:
//!
//! - the row of an inode, if a name leads to it whose hash is of just its kind, permissions and
//!   content;
//! - a name, if its inode counts more names, its directory more entries, and its own hash is of the
//!   inode as it is;
//! - blocks of a file that lacks some: its digest is compared later;
//! - a block's row and bytes, which are compared with its value when they are read.
//!
//! Nothing proves that an attribute is the newest one, and an older list of rights would let in
//! others: none is taken. Nor is anything without digests but blocks.

use super::Missing;
use super::pages::{Cell, Pages};
use super::rows::{self, Found};
use crate::row::{Ino, InodeRow, NameRow, Span};
use std::collections::{BTreeMap, BTreeSet};
use weft_digest::{Digest, DirectoryHasher, Entry, Kind};

/// Takes the rows that `found` lacks, and reports them.
pub(super) fn take(pages: &Pages, found: &mut Found) -> Option<Missing> {
    let spare = rows::find_free(pages);
    let mut taken = 0;
    if let Some(volume) = &spare.volume {
        // Its page is never another one.
        let known = found.volume.clone();
        found.take_volume(volume.clone());
        taken += u64::from(found.volume != known);
    }
    let mut taker = Taker { pages, found, spare: &spare, hasher: DirectoryHasher::new() };
    if taker.found.volume.as_ref().is_some_and(|volume| volume.options.digests) {
        taken += taker.inodes() + taker.names() + taker.extents();
    }
    taken += taker.blocks();
    (taken > 0).then(|| Missing {
        kind: "row",
        what: format!("{taken} rows in pages that the list of free pages names").into_bytes(),
        why: "rows elsewhere lack them and prove them, so they are brought; owners and times may be older".into(),
    })
}

struct Taker<'a> {
    pages: &'a Pages,
    found: &'a mut Found,
    spare: &'a Found,
    hasher: DirectoryHasher,
}

impl Taker<'_> {
    fn inode(&self, cell: Cell) -> Option<(InodeRow, Option<Digest>)> {
        let record = self.pages.record(cell)?;
        rows::inode(record.row?, &record.columns).map(|(row, _, digest, _)| (row, digest))
    }

    fn live(&self, ino: Ino) -> Option<(InodeRow, Option<Digest>)> {
        self.inode(self.found.inodes.get(&ino)?.1)
    }

    fn name(&self, cell: Cell) -> Option<(NameRow, Option<Digest>)> {
        rows::name(&self.pages.record(cell)?.columns).map(|(row, _, hash, _)| (row, hash))
    }

    /// True if `hash` is of the entry `name` for that inode.
    fn is_proved(&self, name: &NameRow, hash: Option<Digest>, (row, digest): &(InodeRow, Option<Digest>)) -> bool {
        let (Some(digest), Ok(permissions)) = (*digest, u16::try_from(row.permissions & 0o7777)) else { return false };
        let entry = Entry { name: name.name.as_bytes(), kind: row.kind, permissions, digest };
        name.kind == row.kind && hash == Some(self.hasher.entry(&entry))
    }

    fn inodes(&mut self) -> u64 {
        if self.spare.inodes.is_empty() {
            return 0;
        }
        let mut proved = BTreeMap::new();
        for (_, cell) in self.found.names.values() {
            let Some((name, hash)) = self.name(*cell) else { continue };
            let lacks = !self.found.inodes.contains_key(&name.ino);
            let Some(row) = self.spare.inodes.get(&name.ino).filter(|_| lacks) else { continue };
            if self.inode(row.1).is_some_and(|inode| self.is_proved(&name, hash, &inode)) {
                proved.insert(name.ino, *row);
            }
        }
        let count = proved.len() as u64;
        self.found.inodes.extend(proved);
        count
    }

    fn names(&mut self) -> u64 {
        let lacks = |name: &&(Ino, Vec<u8>)| !self.found.names.contains_key(*name);
        if !self.spare.names.keys().any(|name| lacks(&name)) {
            return 0;
        }
        let (mut names, mut entries) = (BTreeMap::<Ino, u64>::new(), BTreeMap::<Ino, u64>::new());
        for ((parent, _), (_, cell)) in &self.found.names {
            let Some((name, _)) = self.name(*cell) else { continue };
            *names.entry(name.ino).or_default() += 1;
            *entries.entry(*parent).or_default() += 1;
        }
        let mut candidates = self.spare.names.iter().filter(|(name, _)| lacks(name)).collect::<Vec<_>>();
        candidates.sort_by_key(|(_, (since, _))| std::cmp::Reverse(*since));
        let mut proved = Vec::new();
        for (key, row) in candidates {
            let Some((name, hash)) = self.name(row.1) else { continue };
            let (Some(inode), Some((parent, _))) = (self.live(name.ino), self.live(name.parent)) else { continue };
            let counted = if inode.0.kind == Kind::Directory { 1 } else { u64::from(inode.0.nlink) };
            let (names, entries) = (names.entry(name.ino).or_default(), entries.entry(name.parent).or_default());
            let is_lacked = *names < counted && parent.kind == Kind::Directory && *entries < parent.size;
            if is_lacked && self.is_proved(&name, hash, &inode) {
                (*names, *entries) = (*names + 1, *entries + 1);
                proved.push((key.clone(), *row));
            }
        }
        let count = proved.len() as u64;
        self.found.names.extend(proved);
        count
    }

    fn extents(&mut self) -> u64 {
        let files = self.spare.extents.keys().map(|(ino, _)| *ino).collect::<BTreeSet<_>>();
        let mut taken = 0;
        for ino in files {
            let Some((row, _)) = self.live(ino) else { continue };
            let of = |found: &Found| {
                let own = found.extents.range(rows::extents_of(ino));
                own.map(|(key, row)| (*key, *row)).collect::<Vec<_>>()
            };
            let known = of(self.found);
            let stored = known.iter().map(|(_, (_, block))| self.length(*block)).sum::<u64>();
            if stored >= row.allocated {
                continue;
            }
            for (key, row) in of(self.spare) {
                let is_free = |(_, span): &(Ino, Span)| !span.overlaps(&key.1);
                if known.iter().all(|(key, _)| is_free(key)) {
                    self.found.extents.insert(key, row);
                    taken += 1;
                }
            }
        }
        taken
    }

    /// Bytes of a block; 0 if it is not known.
    fn length(&self, block: crate::row::BlockId) -> u64 {
        let cell = self.found.blocks.of(block).chain(self.spare.blocks.of(block)).next();
        let record = cell.and_then(|cell| self.pages.record(cell));
        let row = record.and_then(|record| rows::block(record.row?, &record.columns));
        row.map_or(0, |(block, ..)| block.length.into())
    }

    fn blocks(&mut self) -> u64 {
        if self.spare.blocks.is_empty() && self.spare.bytes.is_empty() {
            return 0;
        }
        let mut taken = 0;
        for (_, block) in self.found.extents.values() {
            for (found, spare) in
                [(&mut self.found.blocks, &self.spare.blocks), (&mut self.found.bytes, &self.spare.bytes)]
            {
                if !found.has(*block) && spare.has(*block) {
                    spare.of(*block).for_each(|cell| found.put(*block, cell));
                    taken += 1;
                }
            }
        }
        taken
    }
}
