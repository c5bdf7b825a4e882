//! The past of a store in memory: the rows of every commit, as they were.
//!
//! It is the model that engines are compared with, so it keeps whole copies instead of versions.
//! One thing differs from them: an engine writes an access time over the row that is there, so that
//! past commits see the last one of the row's version.

use super::rows::Rows;
use crate::batch::Batch;
use crate::error::{Error, Result};
use crate::past::{History, HistoryChange, HistoryFor, Pin, PinKind};
use crate::row::{BlockId, CommitNo, Ino, InodeRow};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

/// All that is kept.
#[derive(Clone)]
pub(super) struct Past {
    rule: String,
    readers: HistoryFor,
    first: CommitNo,
    swept: CommitNo,
    pins: BTreeMap<(CommitNo, PinKind, Vec<u8>), Pin>,
    moments: BTreeMap<CommitNo, Arc<Rows>>,
    versions: BTreeMap<Ino, Vec<Version>>,
}

/// A row that a later commit replaced, and the commits in which it held.
type Version = (InodeRow, Range<CommitNo>);

impl Past {
    fn new((rule, readers): (&str, HistoryFor), first: CommitNo) -> Past {
        Past {
            rule: rule.to_owned(),
            readers,
            first,
            swept: first,
            pins: BTreeMap::new(),
            moments: BTreeMap::new(),
            versions: BTreeMap::new(),
        }
    }

    /// The rows that `commit` left. Fails if they are not kept.
    pub(super) fn rows(&self, commit: CommitNo) -> Result<&Rows> {
        let rows = self.moments.get(&commit).filter(|_| self.keeps(commit));
        rows.map(|rows| &**rows).ok_or_else(|| Error::Unusable(format!("commit {} is not kept", commit.0)))
    }

    /// True if `commit`, which has been, is kept.
    pub(super) fn keeps(&self, commit: CommitNo) -> bool {
        commit >= self.first || self.pins.keys().any(|(pinned, ..)| *pinned == commit)
    }

    pub(super) fn pins(&self) -> Vec<Pin> {
        self.pins.values().cloned().collect()
    }

    pub(super) fn history(&self) -> History {
        History { rule: self.rule.clone(), readers: self.readers, first: self.first, swept: self.swept }
    }

    /// Those of the versions of `ino` that [`crate::PastStore::versions`] tells.
    pub(super) fn versions(&self, ino: Ino, until: CommitNo, limit: usize) -> Vec<Version> {
        let versions = self.versions.get(&ino).into_iter().flatten().rev();
        versions.filter(|(_, held)| held.end <= until).take(limit).cloned().collect()
    }

    /// The blocks that rows of the past name.
    pub(super) fn blocks(&self) -> BTreeSet<BlockId> {
        self.moments.values().flat_map(|rows| rows.blocks()).collect()
    }

    /// Adds commit `commit`, which left `rows`.
    fn add(&mut self, commit: CommitNo, rows: &Rows) {
        if let Some((_, before)) = self.moments.last_key_value() {
            for (row, since) in before.inodes.values() {
                if rows.inodes.get(&row.ino).is_none_or(|(_, now)| now != since) {
                    self.versions.entry(row.ino).or_default().push((row.clone(), *since..commit));
                }
            }
        }
        self.moments.insert(commit, Arc::new(rows.clone()));
    }

    fn pin(&mut self, pin: &Pin, now: CommitNo) -> Result<()> {
        if pin.commit > now || !self.keeps(pin.commit) {
            return Err(Error::Unusable(format!("commit {} is not kept", pin.commit.0)));
        }
        let key = (pin.commit, pin.kind, pin.name.clone());
        if self.pins.get(&key).is_some_and(|old| old.held_until > pin.held_until) {
            return Err(Error::Unusable(format!(
                "snapshot '{}' is held for longer",
                String::from_utf8_lossy(&pin.name)
            )));
        }
        self.pins.insert(key, pin.clone());
        Ok(())
    }

    fn unpin(&mut self, key: (CommitNo, PinKind, Vec<u8>), batch: &Batch) -> Result<()> {
        let Some(pin) = self.pins.get(&key) else { return Ok(()) };
        if pin.held_until.is_some_and(|until| until > batch.time) {
            let name = String::from_utf8_lossy(&pin.name);
            return Err(Error::Unusable(format!("snapshot '{name}' is held")));
        }
        self.pins.remove(&key);
        if !self.keeps(key.0) {
            self.swept = self.swept.min(key.0);
        }
        Ok(())
    }

    fn rename(&mut self, from: (CommitNo, PinKind, Vec<u8>), to: &[u8]) -> Result<()> {
        if self.pins.values().any(|pin| pin.kind == PinKind::Snapshot && pin.name == to) {
            return Err(Error::Unusable("there is a snapshot of that name".into()));
        }
        if let Some(pin) = self.pins.remove(&from) {
            self.pins.insert((from.0, from.1, to.to_vec()), Pin { name: to.to_vec(), ..pin });
        }
        Ok(())
    }

    fn move_first(&mut self, first: CommitNo, now: CommitNo) -> Result<()> {
        if first > now {
            return Err(Error::Unusable(format!("commit {} has not been yet", first.0)));
        }
        self.first = self.first.max(first);
        Ok(())
    }

    /// Empties the versions of file `ino` that are not those of the present `rows`.
    fn empty(&mut self, ino: Ino, rows: &Rows) {
        let present = rows.inodes.get(&ino).map(|(_, since)| *since);
        let emptied = |row: &InodeRow| InodeRow { size: 0, allocated: 0, inline: None, ..row.clone() };
        for moment in self.moments.values_mut() {
            let Some((row, since)) = moment.inodes.get(&ino).filter(|(_, since)| Some(*since) != present) else {
                continue;
            };
            let emptied = (emptied(row), *since);
            let moment = Arc::make_mut(moment);
            moment.inodes.insert(ino, emptied);
            moment.clear(ino, 0..u64::MAX);
        }
        for (row, _) in self.versions.get_mut(&ino).into_iter().flatten() {
            *row = emptied(row);
        }
    }

    /// Drops up to `limit` of the commits that are not kept, and the versions that none sees then.
    fn forget(&mut self, limit: usize) {
        let unkept = self.moments.keys().copied().filter(|commit| !self.keeps(*commit)).collect::<Vec<_>>();
        for commit in unkept.iter().take(limit) {
            self.moments.remove(commit);
        }
        self.swept = unkept.get(limit).copied().unwrap_or(self.first);
        let seen = |held: &Range<CommitNo>| self.moments.range(held.clone()).next().is_some();
        for versions in self.versions.values_mut() {
            versions.retain(|(_, held)| seen(held));
        }
    }
}

/// Makes the changes of `batch` to what is kept, after its `rows` are as it leaves them.
pub(super) fn apply(past: &mut Option<Past>, batch: &Batch, rows: &Rows) -> Result<()> {
    if let Some(past) = past {
        past.add(batch.commit, rows);
    }
    for change in &batch.history {
        change_one(past, change, batch, rows)?;
    }
    Ok(())
}

fn change_one(past: &mut Option<Past>, change: &HistoryChange, batch: &Batch, rows: &Rows) -> Result<()> {
    match (change, past.as_mut()) {
        (HistoryChange::Keep(rule, readers), Some(past)) => {
            past.rule.clone_from(rule);
            past.readers = *readers;
        }
        (HistoryChange::Keep(rule, readers), None) => {
            let mut begun = Past::new((rule, *readers), batch.commit);
            begun.add(batch.commit, rows);
            *past = Some(begun);
        }
        (HistoryChange::End, Some(before)) => {
            if before.pins.keys().any(|(_, kind, _)| *kind == PinKind::Snapshot) {
                return Err(Error::Unusable("there are snapshots; remove them first".into()));
            }
            *past = None;
        }
        (HistoryChange::Pin(pin), Some(past)) => past.pin(pin, batch.commit)?,
        (HistoryChange::Pin(_), None) => return Err(crate::past::no_history()),
        (HistoryChange::Unpin(commit, kind, name), Some(past)) => past.unpin((*commit, *kind, name.clone()), batch)?,
        (HistoryChange::Rename(commit, from, to), Some(past)) => {
            past.rename((*commit, PinKind::Snapshot, from.clone()), to)?;
        }
        (HistoryChange::First(first), Some(past)) => past.move_first(*first, batch.commit)?,
        (HistoryChange::Empty(ino), Some(past)) => past.empty(*ino, rows),
        (HistoryChange::Forget(limit), Some(past)) => past.forget(*limit),
        (HistoryChange::End | HistoryChange::Unpin(..) | HistoryChange::First(_), None)
        | (HistoryChange::Rename(..), None)
        | (HistoryChange::Empty(_) | HistoryChange::Forget(_), None) => {}
    }
    Ok(())
}
