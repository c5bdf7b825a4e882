//! Changes of what is kept of the past, as a part of a commit.
//!
//! It knows the row of retention and the pins, and decides which commits are kept; which versions
//! no kept commit sees is looked for in `forget`.

use super::PostgresTransaction;
use super::references::Found;
use crate::batch::Batch;
use crate::error::{Error, Result};
use crate::past::{History, HistoryChange, Pin, PinKind, no_history};
use crate::postgres::connection::{Call, Parameter};
use crate::postgres::past;
use crate::postgres::read::int;
use crate::postgres::statements::history as sql;
use crate::row::CommitNo;
use crate::sums;
use std::collections::BTreeMap;

/// Commits that are remembered in any case.
pub(super) const COMMITS_KEPT: u64 = 1024;

/// The end of what a commit replaces, and the changes of what is kept.
#[derive(Default)]
pub(super) struct HistoryPlan {
    /// True if versions are kept of what this commit replaces.
    pub(super) keeps: bool,
    /// True if history is on from this commit on.
    pub(super) is_on: bool,
    /// The calls that change what is kept, and remove versions.
    pub(super) calls: Vec<Call>,
    /// Blocks that these versions name.
    pub(super) found: Found,
}

/// The key of a pin.
type PinKey = (CommitNo, PinKind, Vec<u8>);

/// What is kept, while changes are made to it.
pub(super) struct Kept {
    pub(super) history: Option<History>,
    pins: BTreeMap<PinKey, Pin>,
    /// Versions to forget, at most.
    forget: usize,
    /// True if all that was kept before goes.
    is_ended: bool,
}

impl PostgresTransaction<'_> {
    /// Plans the changes of what is kept.
    pub(super) fn plan_history(&mut self, batch: &Batch) -> Result<HistoryPlan> {
        let is_on = self.writer.keeps_history;
        if batch.history.is_empty() {
            return Ok(HistoryPlan { keeps: is_on, is_on, ..HistoryPlan::default() });
        }
        let (history, pins) = past::kept(self.writer.connection(), (CommitNo(0), CommitNo(u64::MAX)))?;
        let pins = pins.into_iter().map(|pin| (key(&pin), pin)).collect::<BTreeMap<_, _>>();
        let mut kept = Kept { history: history.clone(), pins: pins.clone(), forget: 0, is_ended: false };
        batch.history.iter().try_for_each(|change| kept.change(change, batch))?;
        let (keeps, is_on) = (is_on && !kept.is_ended, kept.history.is_some());
        let mut plan = HistoryPlan { keeps, is_on, ..HistoryPlan::default() };
        if kept.is_ended {
            self.forget_all(&mut plan)?;
        } else if history.is_some() {
            self.forget(&mut kept, batch.commit, &mut plan)?;
        }
        plan.calls.extend(kept.pin_calls(&pins));
        plan.calls.extend(kept.retention_call(history.as_ref()));
        plan.calls.extend(kept.forgotten_commits(batch.commit));
        Ok(plan)
    }
}

fn key(pin: &Pin) -> PinKey {
    (pin.commit, pin.kind, pin.name.clone())
}

fn not_kept(commit: CommitNo) -> Error {
    Error::Unusable(format!("commit {} is not kept", commit.0))
}

impl Kept {
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
            HistoryChange::First(first) => self.move_first(*first, batch.commit)?,
            HistoryChange::Forget(limit) => self.forget = self.forget.saturating_add(*limit),
        }
        Ok(())
    }

    fn end(&mut self) -> Result<()> {
        if self.pins.values().any(|pin| pin.kind == PinKind::Snapshot) {
            return Err(Error::Unusable("there are snapshots; remove them first".into()));
        }
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
        if pin.held_until.is_some_and(|until| until > batch.time) {
            let name = String::from_utf8_lossy(&pin.name);
            return Err(Error::Unusable(format!("snapshot '{name}' is held")));
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
    pub(super) fn gaps(&self, now: CommitNo) -> (usize, Vec<(CommitNo, CommitNo)>) {
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

    fn pin_calls(&self, before: &BTreeMap<PinKey, Pin>) -> Vec<Call> {
        let gone = before.keys().filter(|key| !self.pins.contains_key(key)).map(|(commit, kind, name)| {
            let key: Vec<Parameter> = vec![Box::new(int(commit.0)), Box::new(kind.number()), Box::new(name.clone())];
            Call::new(sql::REMOVE_PIN, key)
        });
        let new = self.pins.iter().filter(|(key, pin)| before.get(key) != Some(pin)).map(|(_, pin)| put_pin(pin));
        gone.chain(new).collect()
    }

    fn retention_call(&self, before: Option<&History>) -> Option<Call> {
        match &self.history {
            None => before.map(|_| Call::new(sql::REMOVE_RETENTION, Vec::new())),
            Some(history) => (before != Some(history)).then(|| set_retention(history)),
        }
    }

    /// Returns the call that forgets commits of which no versions are left.
    fn forgotten_commits(&self, now: CommitNo) -> Option<Call> {
        let history = self.history.as_ref().filter(|_| self.forget > 0)?;
        let before = history.swept.0.min((now.0 + 1).saturating_sub(COMMITS_KEPT));
        Some(Call::new(sql::FORGET_OLD_COMMITS, vec![Box::new(int(before))]))
    }
}

fn put_pin(pin: &Pin) -> Call {
    let columns: Vec<Parameter> = vec![
        Box::new(int(pin.commit.0)),
        Box::new(pin.kind.number()),
        Box::new(pin.name.clone()),
        Box::new(pin.made.0),
        Box::new(pin.held_until.map(|until| until.0)),
        Box::new(sums::pin(pin)),
    ];
    Call::new(sql::PUT_PIN, columns)
}

fn set_retention(history: &History) -> Call {
    let columns: Vec<Parameter> = vec![
        Box::new(history.rule.clone()),
        Box::new(history.readers.name()),
        Box::new(int(history.first.0)),
        Box::new(int(history.swept.0)),
        Box::new(sums::retention(history)),
    ];
    Call::new(sql::SET_RETENTION, columns)
}
