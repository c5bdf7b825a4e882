//! What changed between two commits, found by a look at all rows of both: for stores that find it
//! by nothing better.

use super::{ChangedExtent, ChangedNames, PastStore};
use crate::error::Result;
use crate::row::{CommitNo, Cookie, Ino, NameRow};
use std::collections::BTreeMap;
use std::ops::Range;

/// Rows that are asked for together.
const TOGETHER: usize = 4096;

/// See [`PastStore::changed_inodes`].
pub(super) fn inodes(store: &(impl PastStore + ?Sized), (after, to): (CommitNo, CommitNo)) -> Result<Vec<Ino>> {
    let mut now = BTreeMap::new();
    every_inode(store, to, |ino, since| {
        now.insert(ino, since);
    })?;
    let mut changed = Vec::new();
    every_inode(store, after, |ino, _| {
        if now.get(&ino).is_none_or(|since| *since > after) {
            changed.push(ino);
        }
    })?;
    Ok(changed)
}

fn every_inode(
    store: &(impl PastStore + ?Sized),
    commit: CommitNo,
    mut visit: impl FnMut(Ino, CommitNo),
) -> Result<()> {
    let mut from = Ino(0);
    loop {
        let rows = store.inodes_at(commit, from..Ino::MAX, TOGETHER)?;
        let Some((last, _)) = rows.last() else { return Ok(()) };
        from = last.ino.next();
        rows.iter().for_each(|(row, since)| visit(row.ino, *since));
    }
}

/// See [`PastStore::changed_names`].
pub(super) fn names(
    store: &(impl PastStore + ?Sized),
    (after, to): (CommitNo, CommitNo),
    parent: Ino,
) -> Result<ChangedNames> {
    let mut before = all_names(store, after, parent)?;
    let mut changed = ChangedNames::new();
    for (name, row) in all_names(store, to, parent)? {
        if before.remove(&name).is_none_or(|old| old != row) {
            changed.insert(name, Some(row));
        }
    }
    changed.extend(before.into_keys().map(|name| (name, None)));
    Ok(changed)
}

fn all_names(
    store: &(impl PastStore + ?Sized),
    commit: CommitNo,
    parent: Ino,
) -> Result<BTreeMap<crate::Name, NameRow>> {
    let (mut all, mut after) = (BTreeMap::new(), Cookie(0));
    loop {
        let names = store.names_at(commit, parent, after, TOGETHER)?;
        let Some(last) = names.last() else { return Ok(all) };
        after = last.cookie;
        all.extend(names.into_iter().map(|row| (row.name.clone(), row)));
    }
}

/// See [`PastStore::changed_extents`].
pub(super) fn extents(
    store: &(impl PastStore + ?Sized),
    (after, to): (CommitNo, CommitNo),
    ino: Ino,
    range: Range<u64>,
) -> Result<Vec<ChangedExtent>> {
    let before = store.extents_at(after, ino, range.clone())?;
    let mut before = before.into_iter().map(|(span, block)| (span, block.id)).collect::<BTreeMap<_, _>>();
    let mut changed = Vec::new();
    for (span, block) in store.extents_at(to, ino, range)? {
        let old = before.remove(&span);
        if old != Some(block.id) {
            changed.push(ChangedExtent { span, was_there: old.is_some(), now: Some(block) });
        }
    }
    changed.extend(before.into_keys().map(|span| ChangedExtent { span, was_there: true, now: None }));
    changed.sort_unstable_by_key(|extent| extent.span);
    Ok(changed)
}
