//! A mounted volume: its parts, how it opens and closes, how operations run.

use crate::blocking::{Answer, Wait, about_to_wait};
use crate::cache::BlockCache;
use crate::clock::Clock;
use crate::commit::{ClockWatch, CommitState, ExcludingState, Merging, ROWS_EAGER, Syncs, YieldingState};
use crate::latency::LatencyHistogram;
use crate::locks::Locks;
use crate::observe::Observers;
use crate::opaque::{OpaqueLayer, Seen};
use crate::operations::CountsCache;
use crate::options::Options;
use crate::past::Past;
use crate::read_ahead::ReadAhead;
use crate::refusal::Refusal;
use crate::state::State;
use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::thread::Pid;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use weft_block::Block;
use weft_store::log::OperationLog;
use weft_store::{Ino, OpNo, Store, Timestamp};
use weft_tree::{Error, ErrorKind, Miss, Result, Stop, is_past, is_virtual};

/// Bytes that the place under a volume must have, at most, beside those of changes that are not
/// committed yet.
const ROWS_BESIDE_MAX: u64 = 512 << 20;

mod held_back;
mod load;
mod open;
mod recover;
mod refusing;
mod report;
mod unapplied;
mod writeback;

use held_back::HeldBack;
pub(crate) use load::Locality;
pub use unapplied::{Unapplied, UnappliedList};
pub(crate) use writeback::FailedWriteback;

/// A mounted volume. All methods may be called from any thread.
///
/// Dropping it without [`Vfs::close`] loses what was not synced, as a crash would.
pub struct Vfs {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) options: Options,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) state: Mutex<State>,
    pub(crate) blocks: Arc<BlockCache>,
    pub(crate) read_ahead: Option<ReadAhead>,
    pub(crate) zeros: Block,
    pub(crate) block_size: u32,
    /// Held by whoever commits; the number of the last commit.
    pub(crate) committing: Mutex<CommitState>,
    pub(crate) log: Option<Mutex<Log>>,
    /// Signalled when a sync of the log has ended.
    pub(crate) log_synced: Condvar,
    /// Signalled when a commit has ended, well or badly.
    pub(crate) room: Condvar,
    /// Signalled when the committer should not wait for its interval.
    pub(crate) wake: Condvar,
    pub(crate) kicked: AtomicBool,
    /// Threads that wait for a commit.
    pub(crate) awaiting: AtomicUsize,
    pub(crate) closing: AtomicBool,
    held_back: HeldBack,
    /// True if changes are refused for now. Set with the state locked.
    pub(crate) refuses_changes: AtomicBool,
    /// True if a client goes by the lengths of files that it knows, whatever they are told to be.
    pub(crate) keeps_lengths: AtomicBool,
    /// False while it is being opened: what fails then is told to who opens it.
    pub(crate) is_open: AtomicBool,
    pub(crate) committer: Mutex<Option<Committer>>,
    pub(crate) commits: AtomicU64,
    pub(crate) commits_failed: AtomicU64,
    /// Time that tries of commits take in the store, and syncs until changes are durable.
    pub(crate) commit_latency: LatencyHistogram,
    pub(crate) sync_latency: LatencyHistogram,
    /// Error of the newest commit, if it failed.
    pub(crate) commit_error: Mutex<Option<String>>,
    /// The time of the commit that was tried last.
    pub(crate) tried_at: AtomicI64,
    /// Jumps of the clock that are not trusted yet.
    pub(crate) clock_watch: Mutex<ClockWatch>,
    /// The time of the last look for what is due by the rule of history.
    pub(crate) history_tended_at: AtomicI64,
    /// The time of the last turn of work on history in the background.
    pub(crate) history_worked_at: AtomicI64,
    /// The bytes that history would yield to the present.
    pub(crate) yielding: YieldingState,
    /// What is excluded from history goes.
    pub(crate) excluding: ExcludingState,
    /// Files to be merged in the background. Nothing is locked while this is.
    pub(crate) merging: Mutex<Merging>,
    /// Bytes merged in the background since the mount.
    pub(crate) merged_bytes: AtomicU64,
    pub(crate) synced_at: AtomicU64,
    pub(crate) log_appends: AtomicU64,
    /// Operations of the intent log that were applied as the volume was opened.
    pub(crate) recovered: AtomicU64,
    pub(crate) bytes_read: AtomicU64,
    pub(crate) observers: Observers,
    pub(crate) locks: Locks,
    /// The layer above, outside of the state's lock.
    pub(crate) opaque: Box<dyn OpaqueLayer>,
    /// Files that are seen as something else.
    pub(crate) seen: Seen,
    /// Tells of the server of NFS, while there is one.
    pub(crate) nfs_stats: Mutex<Option<report::NfsCounters>>,
    pub(crate) counts: CountsCache,
    /// Paths into the past.
    pub(crate) past: Past,
    /// Itself, for what outlives an operation.
    pub(crate) me: Weak<Vfs>,
}

/// The thread that commits in the background.
pub(crate) struct Committer {
    pub(crate) id: Pid,
    /// Joined by close: as long as it runs it keeps the store open.
    pub(crate) thread: JoinHandle<()>,
}

/// The intent log.
pub(crate) struct Log {
    pub(crate) file: Box<dyn OperationLog>,
    /// True if the other half still holds operations that no durable commit contains.
    pub(crate) retired: bool,
    /// Number of switches to the other half so far.
    pub(crate) switches: u64,
    /// After how many switches something was appended that may be lost, until a durable commit
    /// contains it.
    pub(crate) broken: Option<u64>,
    /// True if the mount's first commit is durable: until then what the log holds counts, and
    /// nothing is appended.
    pub(crate) is_begun: bool,
    /// Those under way.
    pub(crate) syncs: Syncs,
}

impl Vfs {
    /// Now, by the volume's clock.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Runs `operation` on the state, fetching what it lacks until it ends. It runs again from its
    /// beginning then, so that it must not have changed anything.
    pub fn run<T>(&self, operation: impl FnMut(&mut State) -> Result<T, Stop>) -> Result<T> {
        self.try_run(operation).map_err(Error::from)
    }

    /// The same, for an operation that is done in another way on opaque inodes.
    pub(crate) fn try_run<T>(&self, mut operation: impl FnMut(&mut State) -> Result<T, Stop>) -> Result<T, Refusal> {
        let (mut made_space, mut has_yielded) = (false, false);
        let (mut gone, mut is_long, mut has_evicted) = (None, false, false);
        loop {
            let stop = match self.run_once(&mut operation, is_long) {
                Ok(value) => return Ok(value),
                Err(stop) => stop,
            };
            match stop {
                Stop::Miss(Miss::Turn) => is_long = true,
                // Results go before anybody is refused.
                Stop::Fail(error) if error.kind() == ErrorKind::QuotaExceeded && self.opaque.clear() => continue,
                Stop::Fail(error) => return Err(error.into()),
                Stop::Opaque => return Err(Refusal::Opaque),
                Stop::Miss(Miss::Space) if made_space => {
                    // History yields where a commit makes no room.
                    if std::mem::replace(&mut has_yielded, true) || !self.yield_to_present()? {
                        return Err(Error::from(ErrorKind::NoSpace).into());
                    }
                }
                Stop::Miss(miss) => {
                    made_space |= miss == Miss::Space;
                    // Once, so that what it fetches is there when it begins again, however small
                    // the bound is.
                    if !std::mem::replace(&mut has_evicted, true) {
                        self.state.lock().tree.evict();
                    }
                    // What comes after a part needs nothing of it.
                    has_evicted &= miss != Miss::Rest;
                    match self.fetch(&miss) {
                        // If its name went with it, the operation finds none the next time.
                        Err(error) if error.kind() == ErrorKind::Stale && gone.as_ref() != Some(&miss) => {
                            gone = Some(miss);
                        }
                        fetched => fetched?,
                    }
                }
            }
        }
    }

    /// Runs `operation` until it ends or stops; within a turn if it holds the lock for long.
    fn run_once<T>(&self, operation: &mut impl FnMut(&mut State) -> Result<T, Stop>, is_long: bool) -> Result<T, Stop> {
        // Nothing is fetched within it: that may take long, or take a turn, too.
        let mut turn = if is_long { Some(self.opaque.take_turn(self)?) } else { None };
        let mut state = self.state.lock();
        turn.iter_mut().for_each(|turn| turn.begin());
        state.opaque.begin(!is_long);
        let result = operation(&mut state);
        state.opaque.begin(false);
        if turn.is_some() {
            // Those who wait come before the next.
            MutexGuard::unlock_fair(state);
        }
        result
    }

    /// Looks at the state, as far as it is in memory.
    pub fn locked<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        look(&mut self.state.lock())
    }

    /// True if `ino` is opaque. `Stale`.
    pub fn is_opaque(&self, ino: Ino) -> Result<bool> {
        if is_past(ino) {
            return self.past_is_opaque(ino);
        }
        self.run(|state| state.is_opaque(ino))
    }

    /// Itself, for what outlives an operation.
    pub fn weak(&self) -> Weak<Vfs> {
        self.me.clone()
    }

    /// Runs a changing `operation`, unless the volume is read-only; else as [`Vfs::run`].
    pub fn change<T>(&self, operation: impl FnMut(&mut State) -> Result<T, Stop>) -> Result<T> {
        self.try_change(operation).map_err(Error::from)
    }

    /// The same, for an operation that is done in another way on opaque inodes.
    pub(crate) fn try_change<T>(&self, mut operation: impl FnMut(&mut State) -> Result<T, Stop>) -> Result<T, Refusal> {
        self.wait_if_held_back()?;
        let mut outdated = Vec::new();
        let changed = self.try_run(|state| {
            if self.is_read_only() {
                return Err(ErrorKind::ReadOnly.into());
            }
            let result = operation(state);
            if state.wants_commit() && !self.kicked.load(Ordering::Relaxed) {
                self.kick();
            }
            outdated.append(&mut state.opaque.take_outdated());
            result
        });
        self.announce_outdated(outdated);
        changed
    }

    /// The thread that commits in the background, if there is one: for whoever decides where
    /// threads run. Threads that it starts to help end with what they help with, so they may
    /// inherit that.
    pub fn background_thread(&self) -> Option<Pid> {
        self.committer.lock().as_ref().map(|committer| committer.id)
    }

    /// Makes the committer commit now.
    pub(crate) fn kick(&self) {
        self.kicked.store(true, Ordering::Relaxed);
        self.wake.notify_one();
    }

    /// Asks the thread's hook before waiting. `WouldBlock`.
    pub fn may_wait(&self, wait: Wait) -> Result<()> {
        match about_to_wait(wait) {
            Answer::Wait => Ok(()),
            Answer::GiveUp => Err(ErrorKind::WouldBlock.into()),
        }
    }

    /// Asks the thread's hook before rows are read, if that means waiting for a server.
    pub(crate) fn may_read_rows(&self) -> Result<()> {
        if self.store.is_remote() { self.may_wait(Wait::Rows) } else { Ok(()) }
    }

    /// True if a short sync waits only for a disk of this machine.
    pub fn syncs_nearby(&self) -> bool {
        self.log.as_ref().is_some_and(|log| log.lock().file.outlives_process())
    }

    /// True if the file of the intent log is still where it was opened.
    pub fn has_log_in_place(&self) -> bool {
        self.log.as_ref().is_some_and(|log| log.lock().file.is_in_place())
    }

    fn fetch(&self, miss: &Miss) -> Result<()> {
        match miss {
            Miss::Room(bytes) => {
                self.may_wait(Wait::Commit)?;
                self.wait_for_room(*bytes)
            }
            Miss::Commit => {
                self.may_wait(Wait::Commit)?;
                self.commit()
            }
            Miss::Space => {
                self.may_wait(Wait::Commit)?;
                self.make_space()
            }
            Miss::Length(_) | Miss::Shown(..) => self.opaque.fetch(self, miss),
            // Taken where the operation runs.
            Miss::Rest | Miss::Turn => Ok(()),
            Miss::Inode(_)
            | Miss::Ancestors(_)
            | Miss::Name(..)
            | Miss::Extents(..)
            | Miss::LastExtents(..)
            | Miss::Xattrs(_) => {
                self.may_read_rows()?;
                self.load(miss)
            }
        }
    }

    /// Checks that files may take `bytes` more and `inodes` more be made, of blocks that are stored
    /// already, by rows of `row_bytes`. `QuotaExceeded`, `NoSpace`.
    pub(crate) fn permit_restoring(&self, bytes: u64, inodes: u64, row_bytes: u64) -> Result<()> {
        let state = self.state.lock();
        match state.within_quota(bytes, inodes).and_then(|()| state.may_allocate(row_bytes)) {
            Err(Stop::Fail(error)) => Err(error),
            Err(Stop::Miss(_) | Stop::Opaque) => Err(ErrorKind::NoSpace.into()),
            Ok(()) => Ok(()),
        }
    }

    /// The locks of all who use the volume.
    pub fn locks(&self) -> &Locks {
        &self.locks
    }

    /// Takes back `count` holds of `ino`. An inode without name and holds is deleted.
    pub fn release(&self, ino: Ino, count: u64) {
        if is_past(ino) {
            return self.past_release(ino, count);
        }
        let result = self.run(|state| state.release(ino, count));
        if let Err(error) = result {
            self.report("cannot delete an unlinked inode; it will go at the next mount", &error);
        }
        if self.has_substitutes() {
            self.opaque.released(self, ino);
        }
    }

    /// Holds `ino` once more.
    pub fn hold(&self, ino: Ino) {
        if is_past(ino) {
            return self.past_hold(ino);
        }
        self.state.lock().tree.hold(ino);
    }

    /// All inodes that are held.
    pub fn held(&self) -> Vec<Ino> {
        self.state.lock().tree.holds.keys().copied().collect()
    }

    /// True if another process may take the volume while this one has it.
    pub fn may_be_taken(&self) -> bool {
        self.store.is_remote()
    }

    /// The last mutating operation, and the last one known durable.
    pub fn progress(&self) -> (OpNo, OpNo) {
        let state = self.state.lock();
        (state.tree.counters.op, state.durable)
    }

    /// Says that something of the volume as a whole failed, which somebody has to mend.
    pub(crate) fn report_failed(&self, what: &str, error: &Error) {
        tracing::error!("{what}: {error}");
    }

    /// Says that something of the volume as a whole did not go as it should, and what is done
    /// instead.
    pub(crate) fn report(&self, what: &str, error: &Error) {
        tracing::warn!("{what}: {error}");
    }
}

impl State {
    fn release(&mut self, ino: Ino, count: u64) -> Result<(), Stop> {
        let left = self.tree.holds.get(&ino).copied().unwrap_or(0).saturating_sub(count);
        if left > 0 {
            self.tree.holds.insert(ino, left);
            return Ok(());
        }
        if self.tree.orphans.contains(&ino) && !self.tree.keep_orphans {
            self.tree.inode(ino)?;
            self.tree.delete_inode(ino);
            self.opaque.forget_deleted(&mut self.tree);
        }
        self.tree.holds.remove(&ino);
        if is_virtual(ino) {
            self.opaque.layer().released(&mut self.tree, ino);
        }
        Ok(())
    }

    /// True if the committer should not wait for its interval because so much changed. The bound is
    /// lower for changes that a disk has yet to write than for changes that the log has and that
    /// are overwritten again and again.
    fn wants_commit(&self) -> bool {
        let share = if self.tree.journal.is_short() { 2 } else { 16 };
        let changed = self.tree.dirty_bytes + self.tree.work_bytes;
        changed > self.tree.dirty_bytes_max / share
            || self.tree.dirty_inodes.len() + self.tree.dirty_names.len() > ROWS_EAGER
    }

    /// Checks that `bytes` more may be stored and `inodes` more made. `NoSpace`, `QuotaExceeded`.
    pub(crate) fn may_grow(&self, bytes: u64, inodes: u64) -> Result<(), Stop> {
        self.within_quota(bytes, inodes)?;
        self.may_allocate(bytes)
    }

    /// Checks the same by the quotas alone. `QuotaExceeded`.
    fn within_quota(&self, bytes: u64, inodes: u64) -> Result<(), Stop> {
        let beyond =
            |used: u64, more: u64, max: Option<u64>| more > 0 && max.is_some_and(|max| used.saturating_add(more) > max);
        if beyond(self.tree.counters.bytes_used, bytes, self.tree.volume.bytes_max)
            || beyond(self.tree.counters.inodes_used, inodes, self.tree.volume.inodes_max)
        {
            return Err(ErrorKind::QuotaExceeded.into());
        }
        Ok(())
    }

    /// Checks that the storage under the volume has room for `bytes` beside all dirty data.
    pub(crate) fn may_allocate(&self, bytes: u64) -> Result<(), Stop> {
        // Rows are written to a log, and from there into pages that they do not fill.
        let beside = self.tree.dirty_bytes.saturating_mul(2).min(ROWS_BESIDE_MAX);
        let changed = self.tree.dirty_bytes.saturating_add(bytes);
        let needed = changed.saturating_add(beside).saturating_add(crate::commit::SPACE_RESERVED);
        if needed > self.space_free { Err(Miss::Space.into()) } else { Ok(()) }
    }
}
