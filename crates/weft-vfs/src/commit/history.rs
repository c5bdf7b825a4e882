//! Changes of what is kept of the past: commits of their own, between those of what programs
//! change.
//!
//! Such a commit has no rows of the tree, so that its failure touches nothing that is to be
//! committed. Everything before it is committed first, durably: what it keeps is what was there
//! when it was asked for.

use super::CommitState;
use super::clock_watch::ClockJump;
use super::yielding::changes_pinned;
use crate::volume::Vfs;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use weft_store::history::{due, sweeping, yielding};
use weft_store::log::needs_log;
use weft_store::{Batch, CommitNo, Durability, Header, HistoryChange, Timestamp};
use weft_tree::{Error, ErrorKind, Result};

/// Time between two looks for what is due, in nanoseconds.
const DUE_EVERY: i64 = 30_000_000_000;

/// Time that tending takes at once: commits of what programs change come in between.
const TENDING: Duration = Duration::from_millis(100);

/// Time that one request to collect takes at once.
const COLLECTING: Duration = Duration::from_millis(500);

/// Times that history yields for one request of room.
const YIELDS_MAX: usize = 64;

/// Bytes that history yields before a request of room is tried again.
const YIELDED_ENOUGH: u64 = 64 << 20;

/// Steps that were taken to make room for one commit.
#[derive(Default)]
pub(super) struct RoomSteps {
    /// True if the storage was asked to give back what it can.
    has_asked: bool,
    /// Times that history yielded.
    yields: usize,
}

/// Commits around a change of what is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryChanged {
    /// The last commit of the tree.
    pub tree: CommitNo,
    /// The commit of the changes, if there were any.
    pub made: Option<CommitNo>,
}

impl HistoryChanged {
    /// The last commit there is.
    pub fn last(self) -> CommitNo {
        self.made.unwrap_or(self.tree)
    }
}

/// A part of the work of giving up the past that no kept commit sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Collected {
    /// The last commit before the work began.
    pub since: CommitNo,
    /// Of versions that were replaced up to this commit only those are left that a kept commit
    /// sees.
    pub swept: CommitNo,
    /// The commit up to which that is to be so.
    pub until: CommitNo,
    /// True if nothing is left to do.
    pub is_done: bool,
    /// Bytes that were free at the place of the volume when this part began.
    pub bytes_before: u64,
    /// Bytes that are free now.
    pub bytes_free: u64,
    /// The jump of the clock because of which the rule drops nothing.
    pub clock_jump: Option<ClockJump>,
}

impl Vfs {
    /// Commits all that was changed, durably, then the changes of what is kept that `make` returns
    /// for the last commit and the time. Returns the last commit of the tree, and that of the
    /// changes, if there are any. Errors: `ReadOnly`; those of the store, which may refuse them,
    /// and of [`Vfs::sync`].
    pub fn change_history(
        &self,
        make: impl FnOnce(&Header, Timestamp) -> Result<Vec<HistoryChange>>,
    ) -> Result<HistoryChanged> {
        self.after_all(|header, time| {
            let history = make(header, time)?;
            if history.is_empty() { Ok(None) } else { self.commit_history(header, time, history).map(Some) }
        })
    }

    /// Commits all that was changed, durably, then has `commit` make the next one, if it does.
    pub(super) fn after_all(
        &self,
        commit: impl FnOnce(&Header, Timestamp) -> Result<Option<CommitNo>>,
    ) -> Result<HistoryChanged> {
        if self.options.read_only {
            return Err(ErrorKind::ReadOnly.into());
        }
        let target = self.state.lock().tree.counters.op;
        let mut turn = self.committing.lock();
        self.commit_pending(&mut turn, target)?;
        let header = self.store.header()?;
        let made = commit(&header, self.commit_time())?;
        drop(turn);
        self.name_commit(target)?;
        self.refuse_lost()?;
        Ok(HistoryChanged { tree: header.commit, made })
    }

    /// Commits `history` and nothing else. Returns the commit. The caller has the turn to commit.
    fn commit_history(&self, header: &Header, time: Timestamp, history: Vec<HistoryChange>) -> Result<CommitNo> {
        let is_for_others = |change: &HistoryChange| matches!(change, HistoryChange::Keep(..) | HistoryChange::End);
        let changes_readers = history.iter().any(is_for_others);
        let changes_pinned = history.iter().any(changes_pinned);
        let commit = self.commit_apart(header, Batch { time, history, ..Batch::default() })?;
        if changes_pinned {
            self.forget_yieldable();
        }
        if changes_readers {
            self.history_changed()?;
        }
        Ok(commit)
    }

    /// Has the intent log expect the first commit of this mount after `commit`, if that was not
    /// made yet: no room for it, and history makes some. Else the log of a mount that ends just
    /// then would look as if it were of another moment.
    fn prepare_log_again(&self, commit: CommitNo) -> Result<()> {
        let Some(log) = &self.log else { return Ok(()) };
        let mut log = log.lock();
        let epoch = self.state.lock().tree.counters.epoch;
        if !log.is_begun && needs_log(epoch) {
            log.file.prepare(epoch, commit)?;
        }
        Ok(())
    }

    /// Commits `batch`, which has no rows of the tree, after the commit of `header`. Returns the
    /// commit. The caller has the turn to commit.
    pub(super) fn commit_apart(&self, header: &Header, batch: Batch) -> Result<CommitNo> {
        let (commit, counters, time) = (header.commit.next(), header.counters, batch.time);
        let batch = Batch { commit, counters, ..batch };
        self.prepare_log_again(commit)?;
        self.commit_latency.time(|| self.store.apply(&batch, Durability::Durable))?;
        let mut state = self.state.lock();
        state.last_commit = (commit, Some(time));
        state.durable = state.durable.max(state.committed);
        state.logged = state.logged.max(state.durable);
        state.durable_commit = (commit, state.committed);
        if !self.store.must_be_named() {
            state.named = state.durable;
        }
        self.commits.fetch_add(1, Ordering::Relaxed);
        Ok(commit)
    }

    /// Has history be kept by its rule as time passes, if it is time to look. What fails is tried
    /// again at the next look.
    pub(crate) fn tend_history(&self) {
        let now = self.now();
        let before = self.history_tended_at.load(Ordering::Relaxed);
        if (0..DUE_EVERY).contains(&now.0.saturating_sub(before)) {
            return;
        }
        let begun = Instant::now();
        let more = loop {
            match self.make_due(self.trusted_time()) {
                Ok(true) if begun.elapsed() < TENDING => {}
                ended => break ended,
            }
        };
        match more {
            Ok(true) => {}
            Ok(false) => self.history_tended_at.store(now.0, Ordering::Relaxed),
            Err(error) => {
                self.history_tended_at.store(now.0, Ordering::Relaxed);
                self.report("history is not thinned out; will try again", &error);
            }
        }
    }

    /// Makes some of the changes that are due now, as the background does by and by, and has
    /// space given back once there are none. A request goes on with one before if it says `since`
    /// when that was. Refused where no history is kept.
    pub fn collect_history(&self, since: Option<CommitNo>) -> Result<Collected> {
        if self.options.read_only {
            return Err(ErrorKind::ReadOnly.into());
        }
        let bytes_before = self.store.space()?.bytes_free;
        let since = match since.filter(|since| since.0 > 0) {
            Some(since) => since,
            None => self.commit_durably()?,
        };
        if self.needs_past() {
            self.commit_durably()?;
        }
        let begun = Instant::now();
        loop {
            let time = self.trusted_time();
            let is_made = self.make_due(time)?;
            let Some(history) = self.store.history()? else {
                let why = "this volume keeps no history, so that nothing of it is left";
                return Err(weft_store::Error::Unusable(why.into()).into());
            };
            // Each change is a commit, which may be due to go in turn.
            let is_done = !is_made || history.swept >= since;
            if !is_done && begun.elapsed() < COLLECTING {
                continue;
            }
            let space = if is_done { self.store.reclaim()? } else { self.store.space()? };
            let (swept, until, bytes_free) = (history.swept, history.first, space.bytes_free);
            let clock_jump = time.err();
            return Ok(Collected { since, swept, until, is_done, bytes_before, bytes_free, clock_jump });
        }
    }

    /// Makes the changes that are due at `time`, or those that need none; true if there were any.
    fn make_due(&self, time: Result<Timestamp, ClockJump>) -> Result<bool> {
        let turn = self.committing.lock();
        if turn.in_doubt.is_some() || self.needs_past() {
            return Ok(false);
        }
        let changes = match time {
            Ok(now) => due(&*self.store, now, &self.commits_in_use())?,
            Err(_) => sweeping(&*self.store)?,
        };
        if changes.is_empty() {
            return Ok(false);
        }
        let header = self.store.header()?;
        self.commit_history(&header, self.commit_time(), changes)?;
        Ok(true)
    }

    /// Has history that no user asked to be kept make room for the present, the oldest first. True
    /// if there was any.
    pub(crate) fn yield_history(&self) -> Result<bool> {
        let turn = self.committing.lock();
        let free = |vfs: &Vfs| Ok::<_, Error>(vfs.store.space()?.bytes_free);
        let before = free(self)?;
        for round in 0..YIELDS_MAX {
            if !self.yield_some(&turn, round)? {
                return Ok(round > 0);
            }
            if free(self)?.saturating_sub(before) >= YIELDED_ENOUGH {
                break;
            }
        }
        Ok(true)
    }

    /// Has some of that history go; true if there was any. If there was none, it notes what keeps
    /// the rest. `round` is how often it did so already for the same reason.
    fn yield_some(&self, turn: &CommitState, round: usize) -> Result<bool> {
        if turn.in_doubt.is_some() || self.needs_past() {
            return Ok(false);
        }
        let changes = yielding(&*self.store)?;
        if changes.is_empty() {
            self.note_no_room(self.store.space()?.bytes_free)?;
            return Ok(false);
        }
        if round == 0 {
            tracing::warn!("there is no room left: the oldest history goes, to make room for the present");
        }
        let header = self.store.header()?;
        self.commit_history(&header, self.commit_time(), changes)?;
        self.store.reclaim()?;
        Ok(true)
    }

    /// True if the storage has no room for what is changed, or tells nobody.
    fn is_short_of_room(&self) -> Result<bool> {
        let state = self.see_space(&self.store.space()?);
        Ok(self.store.is_remote() || state.may_allocate(0).is_err())
    }

    /// Makes room after a try of a commit found none, and after the steps that were `taken` for the
    /// same commit; true if another one may find some. History yields where the storage itself has
    /// nothing to give back, unless there is room by what it tells: then it was something else, and
    /// passes.
    pub(super) fn find_room(&self, turn: &CommitState, taken: &mut RoomSteps) -> bool {
        if turn.in_doubt.is_some() || taken.yields >= YIELDS_MAX {
            return false;
        }
        let is_made = |result: Result<bool>| {
            result.unwrap_or_else(|error| {
                self.report("cannot make room", &error);
                false
            })
        };
        let make_room = || is_made(self.store.make_room().map_err(Error::from));
        if !std::mem::replace(&mut taken.has_asked, true) && make_room() {
            return true;
        }
        let has_yielded = is_made(self.is_short_of_room()) && is_made(self.yield_some(turn, taken.yields));
        if has_yielded {
            taken.yields += 1;
            make_room();
        }
        has_yielded
    }
}
