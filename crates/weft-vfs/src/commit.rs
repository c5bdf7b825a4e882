//! Write-back: turns what changed in memory into one batch at a time.
//!
//! A commit takes what changed under the lock (rows copied, dirty pieces frozen), builds the batch
//! and applies it without the lock, then notes under the lock what is clean. Commits run one at a
//! time. If one fails, all that it held counts as changed again, and nothing is lost. Lock order:
//! commit, log, state.

mod background;
mod build;
mod carried;
mod clock_watch;
mod excluding;
mod history;
mod limits;
mod merging;
mod naming;
mod syncs;
mod time;
mod yielding;

pub use clock_watch::ClockJump;
pub(crate) use clock_watch::ClockWatch;
pub(crate) use excluding::ExcludingState;
pub(crate) use merging::Merging;
pub(crate) use yielding::YieldingState;

use history::RoomSteps;
pub use history::{Collected, HistoryChanged};
pub use limits::LimitsChange;
use syncs::Begun;
pub(crate) use syncs::Syncs;

use crate::blocking::Wait;
use crate::state::State;
use crate::volume::{Log, Vfs};
use parking_lot::{Mutex, MutexGuard};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use weft_store::log::{LogSync, OperationLog};
use weft_store::{BlockRef, CommitNo, Durability, OpNo, Space};
use weft_tree::{Error, ErrorKind, PendingCommit, Result};

/// Rows after which a commit does not wait for its interval.
pub(crate) const ROWS_EAGER: usize = 50_000;

/// Bytes under the volume left to the database and the log when there is no room for data any more.
pub(crate) const SPACE_RESERVED: u64 = 4 << 20;

/// Commits after a sync for which commits of the background are made durable, so that the next sync
/// finds nothing but the intent log to write.
const DURABLE_AFTER_SYNC: u64 = 8;

/// Tries of one commit, when something is in its way each time.
const CONFLICTS_MAX: u32 = 8;

/// Whoever has it commits.
#[derive(Default)]
pub(crate) struct CommitState {
    /// The commit in doubt: the store was asked to make it, and its outcome is unknown. The server
    /// may still be working on it. It is retried unchanged before any other commit. If the first
    /// try succeeds after all, the result is the same.
    in_doubt: Option<(PendingCommit, Durability)>,
}

/// What follows an append to the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// A sync, which should find the append written.
    Sync,
    /// More appends, which need not wait for the disk.
    Others,
}

/// The outcome of a commit that was made.
enum Stored {
    /// All that was changed is stored.
    All,
    /// The same, but for what was written over damaged blocks.
    WithoutDamaged,
}

impl Vfs {
    /// All operations before the call are durable when it returns (POSIX fsync(), sync()).
    /// `NoSpace` or `Io` when they cannot be made durable: they stay in memory and are tried again.
    /// `WouldBlock`.
    pub fn sync(&self) -> Result<()> {
        self.sync_changes()?;
        self.refuse_lost()
    }

    /// Fails if what this mount calls durable is nobody's any more, as its files were removed or
    /// moved.
    pub(crate) fn refuse_lost(&self) -> Result<()> {
        let lost = if self.options.read_only { None } else { self.store.lost() };
        let Some(error) = lost else { return Ok(()) };
        let error = error.into();
        self.report_failed("cannot sync", &error);
        Err(error)
    }

    fn sync_changes(&self) -> Result<()> {
        let (target, is_durable, is_short) = {
            let state = self.state.lock();
            if state.named >= state.tree.counters.op {
                return Ok(());
            }
            (state.tree.counters.op, state.durable >= state.tree.counters.op, state.tree.journal.is_short())
        };
        if self.options.read_only {
            return Ok(());
        }
        if is_durable {
            return self.name_commit(target);
        }
        let begun = Instant::now();
        let synced = self.make_durable(target, is_short);
        // Another thread does what this one must not wait for, and counts it.
        if synced.as_ref().err().map(Error::kind) != Some(ErrorKind::WouldBlock) {
            self.sync_latency.add(begun.elapsed());
        }
        synced
    }

    /// Makes all operations up to `target` durable, which may be few enough for the log.
    fn make_durable(&self, target: OpNo, is_short: bool) -> Result<()> {
        self.may_wait(if self.log.is_some() && is_short { Wait::Log } else { Wait::Commit })?;
        self.synced_at.store(self.commits.load(Ordering::Relaxed), Ordering::Relaxed);
        if !self.log_operations(target)? {
            self.may_wait(Wait::Commit)?;
            self.commit_until(target, Durability::Durable)?;
        }
        self.name_commit(target)
    }

    /// All operations before the call survive the end of this process when it returns, though not a
    /// power cut; with a volume in files, that is: others keep what they are given by syncs and
    /// commits alone. As [`Vfs::sync`].
    pub fn record(&self) -> Result<()> {
        self.record_changes()?;
        self.refuse_lost()
    }

    fn record_changes(&self) -> Result<()> {
        let Some(log) = self.log.as_ref().filter(|_| !self.options.read_only) else { return Ok(()) };
        let target = {
            let state = self.state.lock();
            if state.durable.max(state.logged) >= state.tree.counters.op {
                return Ok(());
            }
            state.tree.counters.op
        };
        let mut log = log.lock();
        if !log.file.outlives_process() {
            return Ok(());
        }
        if let Some((_, sync)) = self.append(&mut log, target, Next::Others) {
            if let Some(sync) = sync {
                log.file.keep(sync);
            }
            if log.file.is_in_place() {
                return Ok(());
            }
        }
        drop(log);
        self.may_wait(Wait::Commit)?;
        self.synced_at.store(self.commits.load(Ordering::Relaxed), Ordering::Relaxed);
        self.commit_until(target, Durability::Durable)
    }

    /// Sees that all operations until `target` are durable in the intent log. False if a commit
    /// must do instead. Several threads may do so at once: they append one by one and sync
    /// together.
    fn log_operations(&self, target: OpNo) -> Result<bool> {
        let Some(log) = &self.log else { return Ok(false) };
        let (last, sync, begun, half) = {
            let mut log = log.lock();
            let Some((last, sync)) = self.append(&mut log, target, Next::Sync) else { return Ok(false) };
            let Some(sync) = sync else { return Ok(true) };
            (last, sync, log.syncs.begin(), log.switches)
        };
        if !self.sync_log(log, sync, begun, Some(half)) {
            return Ok(false);
        }
        let mut state = self.state.lock();
        state.durable = state.durable.max(last);
        state.named = state.named.max(last);
        Ok(true)
    }

    /// Syncs what was written to the log. False if it may be lost. What was appended to its `half`
    /// may be, too, then.
    fn sync_log(&self, log: &Mutex<Log>, sync: Box<dyn LogSync>, begun: Begun, half: Option<u64>) -> bool {
        let synced = sync.sync();
        let mut log = log.lock();
        log.syncs.end(begun);
        if synced.is_err() {
            log.broken = log.broken.max(half);
        }
        self.log_synced.notify_all();
        if let Err(error) = synced {
            self.report("cannot sync the intent log; committing instead", &error.into());
            return false;
        }
        log.file.keep(sync);
        // A descriptor that was opened after another sync had heard of a lost record has not heard
        // of it itself.
        while log.syncs.is_any_before(begun) {
            self.log_synced.wait(&mut log);
        }
        // Nobody finds a record in a file that was removed or moved.
        log.broken.is_none() && log.file.is_in_place()
    }

    /// Appends all operations not yet in the log; tells the last one there, and what makes it
    /// durable if it is not yet. None if a commit must do instead.
    fn append(&self, log: &mut Log, target: OpNo, next: Next) -> Option<(OpNo, Option<Box<dyn LogSync>>)> {
        let (first, last, unlogged) = {
            let mut state = self.state.lock();
            if state.durable >= target {
                return Some((state.durable, None));
            }
            // A commit that a power cut may still undo lies below: the log cannot stand on it.
            if log.broken.is_some() || !log.is_begun || state.committed > state.logged {
                return None;
            }
            (state.logged.next(), state.tree.counters.op, state.tree.journal.unlogged()?)
        };
        if !log.file.fits(unlogged.bytes.len()) {
            return None;
        }
        let sync = log.file.syncer();
        let appended = sync.and_then(|sync| {
            if !unlogged.bytes.is_empty() {
                match next {
                    Next::Sync => log.file.append(first, last, &unlogged.bytes)?,
                    Next::Others => log.file.append_unsynced(first, last, &unlogged.bytes)?,
                }
                self.log_appends.fetch_add(1, Ordering::Relaxed);
            }
            Ok(sync)
        });
        let sync = match appended {
            Ok(sync) => sync,
            Err(error) => {
                self.report("cannot append to the intent log; committing instead", &error.into());
                return None;
            }
        };
        let mut state = self.state.lock();
        state.tree.journal.mark_logged(&unlogged);
        state.logged = last;
        if log.file.is_half_full() && !log.retired && !self.kicked.load(Ordering::Relaxed) {
            // So that there is a half to go on in before this one is full.
            self.kick();
        }
        Some((last, Some(sync)))
    }

    /// Commits all changes to the store. They survive the daemon's death, and a power cut a little
    /// later.
    pub fn commit(&self) -> Result<()> {
        if self.options.read_only {
            return Ok(());
        }
        let target = self.state.lock().tree.counters.op;
        self.commit_until(target, Durability::Eventual)
    }

    /// Commits all changes to the store, durably. Returns the last commit then.
    ///
    /// Unlike [`Vfs::sync`] it does not leave them to the intent log. Errors as there.
    pub fn commit_durably(&self) -> Result<CommitNo> {
        if !self.options.read_only {
            let target = self.state.lock().tree.counters.op;
            let _awaiting = self.awaiting();
            self.commit_pending(&mut self.committing.lock(), target)?;
            self.name_commit(target)?;
            self.refuse_lost()?;
        }
        Ok(self.last_commit().0)
    }

    /// Commits durably, unless operations up to `target` and all else that changed are durable and
    /// nothing is in doubt. The caller has the turn to commit.
    pub(crate) fn commit_pending(&self, turn: &mut CommitState, target: OpNo) -> Result<()> {
        let is_clean = {
            let state = self.state.lock();
            state.committed.min(state.durable) >= target && state.tree.dirty_bytes == 0
        };
        if is_clean && turn.in_doubt.is_none() { Ok(()) } else { self.commit_once(turn, Durability::Durable) }
    }

    /// Commits until operation `target` is committed, or durable.
    pub(crate) fn commit_until(&self, target: OpNo, durability: Durability) -> Result<()> {
        let _awaiting = self.awaiting();
        let mut turn = self.committing.lock();
        let done = {
            let state = self.state.lock();
            match durability {
                Durability::Durable => state.durable >= target,
                Durability::Eventual => state.committed >= target && state.tree.dirty_bytes == 0,
            }
        };
        if done { Ok(()) } else { self.commit_once(&mut turn, durability) }
    }

    /// Returns when the commit that is under way, if any, is over, and one that was in doubt was
    /// tried again. `WouldBlock`.
    pub(crate) fn await_commit(&self) -> Result<()> {
        if self.committing.try_lock().is_some_and(|turn| turn.in_doubt.is_none()) {
            return Ok(());
        }
        self.may_wait(Wait::Commit)?;
        let _awaiting = self.awaiting();
        let mut turn = self.committing.lock();
        if turn.in_doubt.is_some() {
            // What fails is reported.
            let _ = self.try_hard(&mut turn, Durability::Durable);
        }
        Ok(())
    }

    /// Sees that nothing is lost if the background puts off its commit; tells whether it may. Where
    /// programs sync, the log has most of what changed already, and blocks that they go on writing
    /// to are then made once for many writes.
    pub(crate) fn defer_commit(&self) -> bool {
        let is_synced = self.synced_at.load(Ordering::Relaxed) == self.commits.load(Ordering::Relaxed);
        let has_room =
            self.log.as_ref().map(|log| log.lock()).is_some_and(|log| log.broken.is_none() && !log.file.is_half_full());
        if !is_synced || !has_room {
            return false;
        }
        let target = {
            let state = self.state.lock();
            if state.failure.is_some() || !state.tree.journal.is_short() {
                return false;
            }
            state.tree.counters.op
        };
        self.log_operations(target).unwrap_or(false)
    }

    /// Tells a commit that the calling thread waits for it, so that it takes all processors.
    fn awaiting(&self) -> Awaiting<'_> {
        self.awaiting.fetch_add(1, Ordering::Relaxed);
        Awaiting(&self.awaiting)
    }

    /// Commits what is dirty, as the background does.
    pub(crate) fn commit_in_background(&self) -> Result<()> {
        let mut turn = self.committing.lock();
        let since = self.commits.load(Ordering::Relaxed).saturating_sub(self.synced_at.load(Ordering::Relaxed));
        let durability = if since < DURABLE_AFTER_SYNC { Durability::Durable } else { Durability::Eventual };
        if self.state.lock().tree.dirty_bytes == 0 {
            return Ok(());
        }
        self.commit_in_turn(&mut turn, durability)
    }

    /// Commits all there is, again if something was in the way; first what is in doubt. The caller
    /// waits for it.
    pub(crate) fn commit_once(&self, turn: &mut CommitState, durability: Durability) -> Result<()> {
        let _awaiting = self.awaiting();
        self.commit_in_turn(turn, durability)
    }

    fn commit_in_turn(&self, turn: &mut CommitState, durability: Durability) -> Result<()> {
        if turn.in_doubt.is_some() {
            let tried = self.try_hard(turn, durability);
            if turn.in_doubt.is_some() {
                return tried;
            }
        }
        self.try_hard(turn, durability)
    }

    fn try_hard(&self, turn: &mut CommitState, durability: Durability) -> Result<()> {
        let (mut conflicts, mut taken) = (1, RoomSteps::default());
        let result = loop {
            match self.try_commit(turn, durability) {
                Ok(Stored::All) => break Ok(()),
                Ok(Stored::WithoutDamaged) => {
                    self.commits_failed.fetch_add(1, Ordering::Relaxed);
                    break Err(ErrorKind::Corrupt.into());
                }
                Err(error) if error.is_conflict() && conflicts < CONFLICTS_MAX => {
                    self.report("cannot commit; trying again", &error);
                    conflicts += 1;
                }
                Err(error) if error.kind() == ErrorKind::NoSpace && self.find_room(turn, &mut taken) => {}
                Err(error) => {
                    self.state.lock().failure = Some(error.kind());
                    self.commits_failed.fetch_add(1, Ordering::Relaxed);
                    break Err(error);
                }
            }
        };
        self.after_commit(result.as_ref().err());
        result
    }

    /// Tries once. Whoever waits for room goes on waiting if it fails.
    fn try_commit(&self, turn: &mut CommitState, durability: Durability) -> Result<Stored> {
        let was_in_doubt = turn.in_doubt.is_some();
        let (mut pending, durability) = turn.in_doubt.take().unwrap_or_else(|| self.take_pending(durability));
        let stored = self.commit_latency.time(|| self.store_snapshot(&mut pending, durability));
        let is_stored = stored.is_ok();
        let (number, epoch) = (pending.batch.commit, pending.batch.counters.epoch);
        let space = self.store.space();
        let mut state = self.state.lock();
        if let Ok(space) = space {
            state.space_free = space.bytes_free;
        }
        let mut replaced = Vec::new();
        let brings_back = is_stored && state.committed < state.restored;
        let result = match stored {
            Ok(blocks) => {
                state.failure = None;
                state.tree.finish(&pending, &blocks);
                state.committed = pending.batch.counters.op;
                state.last_commit = (number, Some(pending.batch.time));
                if durability == Durability::Durable {
                    state.durable = state.durable.max(state.committed);
                    state.logged = state.logged.max(state.durable);
                    state.durable_commit = (number, state.committed);
                    if !self.store.must_be_named() {
                        state.named = state.durable;
                    }
                }
                self.commits.fetch_add(1, Ordering::Relaxed);
                replaced = pending.replaced();
                self.note_fragments(&pending);
                Ok(if pending.damaged.is_empty() { Stored::All } else { Stored::WithoutDamaged })
            }
            Err(error) => {
                // That one try fails says nothing of those before.
                if was_in_doubt || (pending.is_sent && error.leaves_doubt()) {
                    turn.in_doubt = Some((pending, durability));
                } else {
                    state.tree.thaw(&pending);
                }
                Err(error)
            }
        };
        while state.tree.is_to_evict() {
            MutexGuard::bump(&mut state);
            state.tree.evict();
        }
        if brings_back {
            self.forget_yieldable();
        }
        drop(state);
        replaced.into_iter().for_each(|id| self.blocks.forget(id));
        if durability == Durability::Durable
            && is_stored
            && let Some(log) = &self.log
        {
            log.lock().release(number, epoch)?;
        }
        result
    }

    /// Stores all of the pending commit or nothing; tells its new blocks.
    fn store_snapshot(&self, pending: &mut PendingCommit, durability: Durability) -> Result<Vec<BlockRef>> {
        let mut transaction = self.store.begin(durability)?;
        // Asked for anew: a commit that seemed to fail may have happened.
        let header = self.store.header()?;
        if pending.is_last_of(&header) {
            drop(transaction);
            return self.stored_blocks(pending);
        }
        pending.batch.commit = header.commit.next();
        let was_sent = pending.is_sent;
        let blocks = self.store_blocks(pending, &mut *transaction)?;
        self.carry(pending)?;
        pending.is_sent = true;
        transaction.commit(&pending.batch)?;
        if was_sent && !pending.damaged.is_empty() {
            // If it was an earlier try that has happened, meanwhile, it took away what this one
            // missed, and has all blocks: the next one looks.
            return Err(weft_store::Error::Interrupted.into());
        }
        Ok(blocks)
    }

    /// Takes what is to be committed, and goes on in the other half of the log if this one has
    /// anything in it: the commit must then be durable before the half is used again.
    fn take_pending(&self, durability: Durability) -> (PendingCommit, Durability) {
        let mut log = self.log.as_ref().map(|log| log.lock());
        let mut state = self.state.lock();
        let left = log.as_mut().and_then(|log| log.file.leave(state.tree.counters.epoch, false));
        if let Some(epoch) = left {
            state.tree.counters.epoch = epoch;
        }
        let mut pending = state.tree.freeze();
        drop(state);
        if left.is_some() {
            tracing::warn!("the intent log is gone; until the next mount each fsync is a commit");
        }
        pending.batch.time = self.commit_time();
        let retired = log.as_mut().is_some_and(|log| log.retire()) || left.is_some();
        let is_durable = retired || self.store.are_commits_durable();
        let durability = if is_durable { Durability::Durable } else { durability };
        (pending, durability)
    }

    fn after_commit(&self, error: Option<&Error>) {
        let before = std::mem::replace(&mut *self.commit_error.lock(), error.map(Error::to_string));
        if error.is_none() && before.is_some() {
            tracing::info!("all changes are committed again");
        }
        if let Some(error) = error
            && self.is_open.load(Ordering::Relaxed)
        {
            self.report_failed("cannot commit; will try again", error);
        }
        self.store.notices().into_iter().for_each(|notice| tracing::warn!("{notice}"));
        self.room.notify_all();
        self.opaque.committed(self);
    }

    /// Has all space given back that is free, as far as that is possible, and sees how much there
    /// is.
    pub(crate) fn make_space(&self) -> Result<()> {
        // Where commits fail, whoever refuses one operation after the other need not try again each
        // time.
        self.opaque.clear();
        let may_commit = self.state.lock().failure.is_none();
        if may_commit {
            // What fails is reported, and nothing is freed then.
            let _ = self.commit();
        }
        drop(self.see_space(&self.store.reclaim()?));
        Ok(())
    }

    /// Notes the space that there is. Returns the state.
    pub(crate) fn see_space(&self, space: &Space) -> MutexGuard<'_, State> {
        let mut state = self.state.lock();
        state.space_free = space.bytes_free;
        state
    }

    /// Has history make space, the oldest first. True if there was any.
    pub(crate) fn yield_to_present(&self) -> Result<bool> {
        self.may_wait(Wait::Commit)?;
        if self.state.lock().failure.is_some() {
            return Ok(false);
        }
        let has_yielded = self.yield_history().unwrap_or_else(|error| {
            self.report("history does not yield", &error);
            false
        });
        // What it gave up is given back already.
        drop(self.see_space(&self.store.space()?));
        Ok(has_yielded)
    }

    /// Waits until there is room for `bytes` more of changes, or a commit has ended, as long as
    /// commits succeed.
    pub(crate) fn wait_for_room(&self, bytes: u64) -> Result<()> {
        if !self.options.background {
            return self.commit();
        }
        let mut state = self.state.lock();
        let seen = (state.tree.finished, self.commits_failed.load(Ordering::Relaxed));
        if state.tree.room(bytes).is_ok() {
            return Ok(());
        }
        self.kick();
        let _awaiting = self.awaiting();
        while state.tree.finished == seen.0 {
            if self.commits_failed.load(Ordering::Relaxed) != seen.1 {
                return Err(state.failure.unwrap_or(ErrorKind::Io).into());
            }
            self.room.wait(&mut state);
        }
        Ok(())
    }
}

/// Somebody waits for a commit as long as there is one of these.
struct Awaiting<'a>(&'a AtomicUsize);

impl Drop for Awaiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Log {
    pub(crate) fn new(file: Box<dyn OperationLog>) -> Log {
        Log { file, retired: false, switches: 0, broken: None, is_begun: false, syncs: Syncs::default() }
    }

    /// Durable commit `commit`, of `epoch`, has made the half that is not the current one needless.
    /// The first one of a mount begins its epoch.
    fn release(&mut self, commit: CommitNo, epoch: u64) -> Result<()> {
        self.retired = false;
        self.file.release(commit);
        self.broken = self.broken.filter(|half| *half == self.switches);
        if !self.is_begun {
            self.file.start(epoch, commit)?;
            self.is_begun = true;
        }
        Ok(())
    }

    /// Retires the current half if it has anything in it. True if a half waits for a durable
    /// commit.
    fn retire(&mut self) -> bool {
        if !self.retired && self.file.is_used() {
            self.file.switch();
            self.retired = true;
            self.switches += 1;
        }
        self.retired
    }
}
