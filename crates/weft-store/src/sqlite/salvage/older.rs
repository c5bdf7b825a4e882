//! Rows as of the last commit before the damage in a write-ahead log, for files and directories
//! whose newest rows are not whole: pages that the damage took held them.

use super::pages::{Cell, Pages};
use super::rows::{self, Found};
use crate::row::{BlockId, Ino, InodeRow};
use std::collections::BTreeMap;
use weft_digest::Kind;

/// Takes the rows that `found` lacks from before the damage; tells of them.
pub(super) fn take(pages: &Pages, found: &mut Found) -> Option<String> {
    let older = rows::find_before(pages);
    if let Some(volume) = older.volume.clone() {
        found.take_volume(volume);
    }
    let inodes = older.inodes.keys().copied();
    let inodes = inodes.filter(|ino| !is_whole(pages, found, *ino) && is_whole(pages, &older, *ino));
    let inodes = inodes.collect::<Vec<_>>();
    inodes.iter().for_each(|ino| take_inode(found, &older, *ino));
    let names = take_names(pages, found, &older);
    (inodes.len() + names > 0).then(|| {
        let commit = older.newest().0;
        format!(
            "the newest rows of {} files and directories, and of {names} names, are in damaged frames: they are brought \
             as of commit {commit}, and may be older, or removed since",
            inodes.len()
        )
    })
}

fn row(pages: &Pages, cell: Cell) -> Option<InodeRow> {
    let record = pages.record(cell)?;
    rows::inode(record.row?, &record.columns).map(|(row, ..)| row)
}

/// True if the row of an inode is found, and rows of blocks with all of its content.
fn is_whole(pages: &Pages, found: &Found, ino: Ino) -> bool {
    let Some(row) = found.inodes.get(&ino).and_then(|(_, cell)| row(pages, *cell)) else { return false };
    let own = found.extents.range(rows::extents_of(ino));
    let lengths = own.map(|(_, (_, block))| length(pages, found, *block)).sum::<u64>();
    let inline = row.inline.as_ref().map_or(0, |inline| inline.len() as u64);
    row.kind == Kind::Directory || lengths + inline == row.allocated
}

/// Bytes of a block; 0 if it is not known.
fn length(pages: &Pages, found: &Found, block: BlockId) -> u64 {
    let record = found.blocks.of(block).next().and_then(|cell| pages.record(cell));
    let row = record.and_then(|record| rows::block(record.row?, &record.columns));
    row.map_or(0, |(block, ..)| block.length.into())
}

/// Takes all rows of an inode, and those of its blocks that are lacking. What a block holds shows
/// later which of its rows is right.
fn take_inode(found: &mut Found, older: &Found, ino: Ino) {
    let (extents, xattrs) = (rows::extents_of(ino), (ino, Vec::new())..(ino.next(), Vec::new()));
    found.damaged_inodes.remove(&ino);
    for key in found.extents.range(extents.clone()).map(|(key, _)| *key).collect::<Vec<_>>() {
        found.extents.remove(&key);
    }
    for key in found.xattrs.range(xattrs.clone()).map(|(key, _)| key.clone()).collect::<Vec<_>>() {
        found.xattrs.remove(&key);
    }
    found.inodes.extend(older.inodes.get(&ino).map(|row| (ino, *row)));
    found.xattrs.extend(older.xattrs.range(xattrs).map(|(key, row)| (key.clone(), *row)));
    for (key, row) in older.extents.range(extents) {
        found.extents.insert(*key, *row);
        for (found, older) in [(&mut found.blocks, &older.blocks), (&mut found.bytes, &older.bytes)] {
            older.of(row.1).for_each(|cell| found.put(row.1, cell));
        }
    }
}

/// Takes names that lead to inodes, in directories that lack entries or are not known.
fn take_names(pages: &Pages, found: &mut Found, older: &Found) -> usize {
    let mut entries = BTreeMap::<Ino, u64>::new();
    for (parent, _) in found.names.keys() {
        *entries.entry(*parent).or_default() += 1;
    }
    let mut taken = 0;
    for (key, name) in &older.names {
        let Some(ino) = pages.record(name.1).and_then(|record| rows::name(&record.columns)).map(|(row, ..)| row.ino)
        else {
            continue;
        };
        let counted = found.inodes.get(&key.0).and_then(|(_, cell)| row(pages, *cell)).map_or(u64::MAX, |row| row.size);
        let held = entries.entry(key.0).or_default();
        if !found.names.contains_key(key) && found.inodes.contains_key(&ino) && *held < counted {
            *held += 1;
            found.names.insert(key.clone(), *name);
            taken += 1;
        }
    }
    taken
}
