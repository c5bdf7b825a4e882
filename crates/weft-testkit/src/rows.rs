//! Checks the rows of a store that no volume has open: what they say of each other must agree.

use std::collections::BTreeMap;
use weft_store::{Cookie, Ino, InodeRow, Kind, NameRow, Store};

/// The first contradiction in the rows of `store`, if any. Nothing may be held open: orphans count
/// as leaked.
pub fn check_rows(store: &dyn Store) -> Result<(), String> {
    let failed = |error: weft_store::Error| error.to_string();
    let inodes = store.inodes(Ino(0), usize::MAX).map_err(failed)?;
    let inodes: BTreeMap<Ino, InodeRow> = inodes.into_iter().map(|row| (row.ino, row)).collect();
    let mut names = BTreeMap::new();
    for ino in inodes.keys() {
        names.insert(*ino, store.names(*ino, Cookie(0), usize::MAX).map_err(failed)?);
    }
    for row in inodes.values() {
        inode(store, row, &inodes, &names)?;
    }
    let counters = store.header().map_err(failed)?.counters;
    let allocated: u64 = inodes.values().map(|row| row.allocated).sum();
    if (counters.inodes_used, counters.bytes_used) != (inodes.len() as u64, allocated) {
        return Err(format!("{counters:?}, but {} inodes hold {allocated} bytes", inodes.len()));
    }
    Ok(())
}

fn inode(
    store: &dyn Store,
    row: &InodeRow,
    inodes: &BTreeMap<Ino, InodeRow>,
    names: &BTreeMap<Ino, Vec<NameRow>>,
) -> Result<(), String> {
    let of = |ino: Ino| format!("inode {}", ino.0);
    let entries = &names[&row.ino];
    if let Some(dangling) = entries.iter().find(|entry| !inodes.contains_key(&entry.ino)) {
        return Err(format!("{}: {:?} names an inode that is not there", of(row.ino), dangling.name));
    }
    let named = names.values().flatten().filter(|entry| entry.ino == row.ino).count();
    let links = if row.kind == Kind::Directory {
        2 + entries.iter().filter(|entry| entry.kind == Kind::Directory).count()
    } else {
        named
    };
    if named == 0 && row.ino != Ino::ROOT || row.nlink as usize != links {
        return Err(format!("{}: {named} names and {} links, should have {links}", of(row.ino), row.nlink));
    }
    if row.kind == Kind::Directory && row.size != entries.len() as u64 {
        return Err(format!("{}: size {} with {} entries", of(row.ino), row.size, entries.len()));
    }
    let extents = store.extents(row.ino, 0..u64::MAX).map_err(|error| error.to_string())?;
    let stored: u64 = extents.iter().map(|(_, block)| u64::from(block.length)).sum();
    let inline = row.inline.as_ref().map_or(0, |bytes| bytes.len() as u64);
    if row.allocated != stored + inline || inline > 0 && stored > 0 {
        let allocated = row.allocated;
        return Err(format!("{}: {allocated} bytes allocated, {stored} in blocks, {inline} inline", of(row.ino)));
    }
    Ok(())
}
