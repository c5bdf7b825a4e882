//! Changes of what is kept of the past, as a part of a commit.
//!
//! It knows the row of retention and the pins, and decides which commits are kept; which versions
//! no kept commit sees is looked for in `forget`.

use super::PostgresTransaction;
use super::references::Found;
use crate::batch::Batch;
use crate::error::Result;
use crate::history::kept::{COMMITS_KEPT, Kept};
use crate::past::{History, Pin};
use crate::postgres::connection::{Call, Parameter};
use crate::postgres::past;
use crate::postgres::read::int;
use crate::postgres::statements::history as sql;
use crate::row::CommitNo;
use crate::sums;

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

impl PostgresTransaction<'_> {
    /// Plans the changes of what is kept.
    pub(super) fn plan_history(&mut self, batch: &Batch) -> Result<HistoryPlan> {
        let is_on = self.writer.keeps_history;
        if batch.history.is_empty() {
            return Ok(HistoryPlan { keeps: is_on, is_on, ..HistoryPlan::default() });
        }
        let (history, pins) = past::kept(self.writer.connection(), (CommitNo(0), CommitNo(u64::MAX)))?;
        let mut kept = Kept::changed(history, pins, batch)?;
        let (keeps, is_on) = (is_on && !kept.is_ended(), kept.history.is_some());
        let mut plan = HistoryPlan { keeps, is_on, ..HistoryPlan::default() };
        if kept.is_ended() {
            self.forget_all(&mut plan)?;
        } else if kept.was_on() {
            self.empty_all(&kept.emptied, &mut plan)?;
            self.forget(&mut kept, batch.commit, &mut plan)?;
        }
        plan.calls.extend(pin_calls(&kept));
        plan.calls.extend(retention_call(&kept));
        plan.calls.extend(forgotten_commits(&kept, batch.commit));
        Ok(plan)
    }
}

fn pin_calls(kept: &Kept) -> Vec<Call> {
    let gone = kept.gone_pins().map(|(commit, kind, name)| {
        let key: Vec<Parameter> = vec![Box::new(int(commit.0)), Box::new(kind.number()), Box::new(name.clone())];
        Call::new(sql::REMOVE_PIN, key)
    });
    gone.chain(kept.new_pins().map(put_pin)).collect()
}

fn retention_call(kept: &Kept) -> Option<Call> {
    kept.has_other_history().then(|| match &kept.history {
        None => Call::new(sql::REMOVE_RETENTION, Vec::new()),
        Some(history) => set_retention(history),
    })
}

/// Returns the call that forgets commits of which no versions are left.
fn forgotten_commits(kept: &Kept, now: CommitNo) -> Option<Call> {
    let history = kept.history.as_ref().filter(|_| kept.forgets())?;
    let before = history.swept.0.min((now.0 + 1).saturating_sub(COMMITS_KEPT));
    Some(Call::new(sql::FORGET_OLD_COMMITS, vec![Box::new(int(before))]))
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
