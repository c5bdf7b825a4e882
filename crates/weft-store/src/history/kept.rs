//! The commits that are kept, as the changes of a batch leave them: the same on every engine.
//!
//! It decides, and asks and writes nothing: an engine gives it the rows there are, and stores what
//! is another one then. The store in memory decides by itself, as the model of both.

use crate::batch::Batch;
use crate::error::{Error, Result};
use crate::past::{History, HistoryChange, Pin, PinKind, Rfc3339, no_history};
use crate::row::{CommitNo, Ino};
use std::collections::BTreeMap;

/// Last commits that are remembered, whatever is kept.
pub(crate) const COMMITS_KEPT: u64 = 1024;

/// Snapshots that a message names.
const NAMED_MAX: usize = 5;

/// The key of a pin.
pub(crate) type PinKey = (CommitNo, PinKind, Vec<u8>);

/// The history and the pins of a volume under changes.
pub(crate) struct Kept {
    pub(crate) history: Option<History>,
    before: Option<History>,
    pins: BTreeMap<PinKey, Pin>,
    pins_before: BTreeMap<PinKey, Pin>,
    /// Versions to forget, at most.
    forget: usize,
    /// Files whose versions are emptied.
    pub(crate) emptied: Vec<Ino>,
    /// True if all that was kept before goes.
    is_ended: bool,
}

fn key(pin: &Pin) -> PinKey {
    (pin.commit, pin.kind, pin.name.clone())
}

fn not_kept(commit: CommitNo) -> Error {
    Error::Unusable(format!("commit {} is not kept", commit.0))
}

/// Gives the snapshot that `from` names the name `to`.
fn rename(pins: &mut BTreeMap<PinKey, Pin>, from: &PinKey, to: &[u8]) -> Result<()> {
    if pins.keys().any(|(_, kind, name)| *kind == PinKind::Snapshot && name == to) {
        return Err(Error::Unusable(format!("there is a snapshot '{}' already", String::from_utf8_lossy(to))));
    }
    if let Some(pin) = pins.remove(from) {
        let pin = Pin { name: to.to_vec(), ..pin };
        pins.insert(key(&pin), pin);
    }
    Ok(())
}

impl Kept {
    /// The `history` and `pins` that there are, with the changes of `batch` made.
    pub(crate) fn changed(history: Option<History>, pins: Vec<Pin>, batch: &Batch) -> Result<Kept> {
        let pins = pins.into_iter().map(|pin| (key(&pin), pin)).collect::<BTreeMap<_, _>>();
        let (before, pins_before) = (history.clone(), pins.clone());
        let mut kept = Kept { history, before, pins, pins_before, forget: 0, emptied: Vec::new(), is_ended: false };
        batch.history.iter().try_for_each(|change| kept.change(change, batch))?;
        Ok(kept)
    }

    /// True if all that was kept before goes.
    pub(crate) fn is_ended(&self) -> bool {
        self.is_ended
    }

    /// True if versions are to be forgotten.
    pub(crate) fn forgets(&self) -> bool {
        self.forget > 0
    }

    /// True if there was a history before the changes.
    pub(crate) fn was_on(&self) -> bool {
        self.before.is_some()
    }

    /// True if the history is another one than before the changes.
    pub(crate) fn has_other_history(&self) -> bool {
        self.history != self.before
    }

    /// Pins that are there no more.
    pub(crate) fn gone_pins(&self) -> impl Iterator<Item = &PinKey> {
        self.pins_before.keys().filter(|key| !self.pins.contains_key(key))
    }

    /// Pins that are new, or others than before.
    pub(crate) fn new_pins(&self) -> impl Iterator<Item = &Pin> {
        self.pins.iter().filter(|(key, pin)| self.pins_before.get(key) != Some(pin)).map(|(_, pin)| pin)
    }

    fn change(&mut self, change: &HistoryChange, batch: &Batch) -> Result<()> {
        match change {
            HistoryChange::Keep(rule, readers) => {
                let begun =
                    || History { rule: String::new(), readers: *readers, first: batch.commit, swept: batch.commit };
                let history = self.history.get_or_insert_with(begun);
                history.rule.clone_from(rule);
                history.readers = *readers;
            }
            HistoryChange::End => self.end()?,
            HistoryChange::Pin(pin) => self.pin(pin, batch.commit)?,
            HistoryChange::Unpin(commit, kind, name) => self.unpin(&(*commit, *kind, name.clone()), batch)?,
            HistoryChange::Rename(commit, from, to) => {
                let from = (*commit, PinKind::Snapshot, from.clone());
                rename(&mut self.pins, &from, to)?;
            }
            HistoryChange::First(first) => self.move_first(*first, batch.commit)?,
            HistoryChange::Empty(ino) => self.emptied.push(*ino),
            HistoryChange::Forget(limit) => self.forget = self.forget.saturating_add(*limit),
        }
        Ok(())
    }

    fn end(&mut self) -> Result<()> {
        refuse_end(self.pins.values().filter(|pin| pin.kind == PinKind::Snapshot))?;
        self.is_ended |= self.history.take().is_some();
        self.pins.clear();
        Ok(())
    }

    fn is_pinned(&self, commit: CommitNo) -> bool {
        self.pins.keys().any(|(pinned, ..)| *pinned == commit)
    }

    fn pin(&mut self, pin: &Pin, now: CommitNo) -> Result<()> {
        let history = self.history.as_ref().ok_or_else(no_history)?;
        if pin.commit > now || (pin.commit < history.first && !self.is_pinned(pin.commit)) {
            return Err(not_kept(pin.commit));
        }
        if self.pins.get(&key(pin)).is_some_and(|old| old.held_until > pin.held_until) {
            return Err(Error::Unusable(format!(
                "snapshot '{}' is held for longer",
                String::from_utf8_lossy(&pin.name)
            )));
        }
        self.pins.insert(key(pin), pin.clone());
        Ok(())
    }

    fn unpin(&mut self, key: &PinKey, batch: &Batch) -> Result<()> {
        let Some(pin) = self.pins.get(key) else { return Ok(()) };
        if let Some(until) = pin.held_until.filter(|until| *until > batch.time) {
            let name = String::from_utf8_lossy(&pin.name);
            return Err(Error::Unusable(format!("snapshot '{name}' is held until {}", Rfc3339(until))));
        }
        self.pins.remove(key);
        let is_pinned = self.is_pinned(key.0);
        // Versions that it alone needed were replaced after it.
        if let Some(history) = self.history.as_mut().filter(|history| key.0 < history.first && !is_pinned) {
            history.swept = history.swept.min(key.0);
        }
        Ok(())
    }

    fn move_first(&mut self, first: CommitNo, now: CommitNo) -> Result<()> {
        let Some(history) = &mut self.history else { return Ok(()) };
        if first > now {
            return Err(not_kept(first));
        }
        history.first = history.first.max(first);
        Ok(())
    }

    /// Returns how many versions are to be forgotten at most, and between which commits: none that
    /// is kept lies between the two of a pair, and all that was replaced before them is forgotten.
    pub(crate) fn gaps(&self, now: CommitNo) -> (usize, Vec<(CommitNo, CommitNo)>) {
        let Some(history) = self.history.as_ref().filter(|_| self.forget > 0) else { return (0, Vec::new()) };
        // What this commit replaces is not there yet.
        let end = history.first.min(CommitNo(now.0.saturating_sub(1)));
        let mut kept = self.pins.keys().map(|(commit, ..)| *commit).filter(|commit| *commit < end).collect::<Vec<_>>();
        kept.insert(0, CommitNo(0));
        kept.push(end);
        kept.dedup();
        let gaps = kept.windows(2).map(|pair| (pair[0], pair[1])).filter(|(_, end)| *end > history.swept);
        (self.forget, gaps.collect())
    }
}

/// Refuses that history ends while there are `snapshots`.
pub(super) fn refuse_end<'a>(snapshots: impl Iterator<Item = &'a Pin>) -> Result<()> {
    let names = snapshots.map(|pin| String::from_utf8_lossy(&pin.name)).collect::<Vec<_>>();
    if names.is_empty() {
        return Ok(());
    }
    let named = names.iter().take(NAMED_MAX).map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", ");
    let more = names.len().saturating_sub(NAMED_MAX);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    Err(Error::Unusable(format!("history cannot end while there are snapshots: {named}{more}; delete them first")))
}
