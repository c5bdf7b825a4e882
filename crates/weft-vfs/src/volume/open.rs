//! Opening a volume: removing orphans, starting the committer; and closing it.

use super::unapplied::Purpose;
use super::{Committer, HeldBack, Log, Vfs};
use crate::cache::{BlockCache, SharedCache};
use crate::clock::Clock;
use crate::commit::{ClockWatch, CommitState, ExcludingState, YieldingState};
use crate::latency::LatencyHistogram;
use crate::locks::Locks;
use crate::observe::Observers;
use crate::opaque::{Layer, Seen};
use crate::operations::CountsCache;
use crate::options::Options;
use crate::past::Past;
use crate::read_ahead::ReadAhead;
use crate::state::State;
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Weak};
use std::thread;
use weft_block::{Block, pool};
use weft_store::log::OperationLog;
use weft_store::{Durability, Store};
use weft_tree::{ErrorKind, PART_BLOCKS, ROW_BYTES, Result};

/// Bytes read ahead of each reader if nobody says how many: where each run of blocks waits for a
/// server there must be more of them on their way.
const AHEAD: u64 = 8 << 20;
const AHEAD_REMOTE: u64 = 16 << 20;

/// Parts of files that are gone that one commit deletes, so that others do not wait for long.
const DRAINED_PARTS: u32 = 16;

impl Vfs {
    /// Opens the volume in `store` without a layer above, so that nobody can use opaque inodes;
    /// else as [`Vfs::open_below`].
    pub fn open(
        store: Arc<dyn Store>,
        log: Option<Box<dyn OperationLog>>,
        options: Options,
        clock: Arc<dyn Clock>,
    ) -> Result<Arc<Vfs>> {
        Vfs::open_below(Layer::absent(), store, log, options, clock)
    }

    /// Opens the volume in `store` below `layer`, which computes its opaque inodes: applies again
    /// what `log` has beyond the last commit, deletes inodes that were open without a name, but for
    /// results that the layer adopts, and starts the committer.
    pub fn open_below(
        layer: Layer,
        store: Arc<dyn Store>,
        log: Option<Box<dyn OperationLog>>,
        options: Options,
        clock: Arc<dyn Clock>,
    ) -> Result<Arc<Vfs>> {
        Vfs::open_with(layer, store, log, options, clock, None)
    }

    /// The same, with the cache of blocks `blocks` of another volume in the same store, if it is
    /// given.
    pub(crate) fn open_with(
        layer: Layer,
        store: Arc<dyn Store>,
        log: Option<Box<dyn OperationLog>>,
        options: Options,
        clock: Arc<dyn Clock>,
        blocks: Option<Arc<BlockCache>>,
    ) -> Result<Arc<Vfs>> {
        let is_first = blocks.is_none();
        let [changes, cached] = [options.dirty_bytes_max, options.block_cache_bytes]
            .map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        if is_first {
            pool::bound(changes, cached);
        }
        let vfs = Vfs::assemble(layer, store, log, options, clock, blocks)?;
        vfs.recover()?;
        vfs.is_open.store(true, Ordering::Relaxed);
        if vfs.options.background && !vfs.options.read_only {
            start_committer(&vfs)?;
        }
        Ok(vfs)
    }

    /// A volume of which nothing is done yet.
    pub(super) fn assemble(
        layer: Layer,
        store: Arc<dyn Store>,
        log: Option<Box<dyn OperationLog>>,
        options: Options,
        clock: Arc<dyn Clock>,
        blocks: Option<Arc<BlockCache>>,
    ) -> Result<Arc<Vfs>> {
        let header = store.header()?;
        let mut state = State::new(&header, &options, layer.state);
        state.space_free = store.space()?.bytes_free;
        let last = store.commits(header.commit, 1)?.pop();
        let clock_watch = ClockWatch::new(clock.now(), clock.since_boot());
        let blocks = blocks.unwrap_or_else(|| {
            let shared = SharedCache::new(options.shared_bytes_max, header.options.block_size);
            Arc::new(BlockCache::new(options.block_cache_bytes, shared))
        });
        let past = Past::new(&*store, header.uuid, options.history_name.clone())?;
        state.reserved = past.reserved_name();
        let ahead = options.read_ahead_bytes.unwrap_or(if store.is_remote() { AHEAD_REMOTE } else { AHEAD });
        let ahead = if options.background { ahead.min(options.block_cache_bytes / 4) } else { 0 };
        Ok(Arc::new_cyclic(|me| Vfs {
            read_ahead: ReadAhead::new(store.clone(), blocks.clone(), ahead),
            blocks,
            zeros: Block::new(vec![0; header.options.block_size as usize]),
            block_size: header.options.block_size,
            committing: Mutex::new(CommitState::default()),
            log: log.map(|file| Mutex::new(Log::new(file))),
            state: Mutex::new(state),
            store,
            options,
            clock,
            log_synced: Condvar::new(),
            room: Condvar::new(),
            wake: Condvar::new(),
            kicked: AtomicBool::new(false),
            awaiting: AtomicUsize::new(0),
            held_back: HeldBack::default(),
            closing: AtomicBool::new(false),
            refuses_changes: AtomicBool::new(false),
            keeps_lengths: AtomicBool::new(false),
            is_open: AtomicBool::new(false),
            committer: Mutex::new(None),
            commits: AtomicU64::new(0),
            commits_failed: AtomicU64::new(0),
            merging: Mutex::default(),
            merged_bytes: AtomicU64::new(0),
            commit_latency: LatencyHistogram::default(),
            sync_latency: LatencyHistogram::default(),
            commit_error: Mutex::default(),
            tried_at: AtomicI64::new(last.map_or(0, |row| row.time.0)),
            clock_watch: Mutex::new(clock_watch),
            history_tended_at: AtomicI64::new(i64::MIN),
            history_worked_at: AtomicI64::new(i64::MIN),
            yielding: YieldingState::default(),
            excluding: ExcludingState::default(),
            // As if the last sync were long ago.
            synced_at: AtomicU64::new(0),
            log_appends: AtomicU64::new(0),
            recovered: AtomicU64::new(0),
            bytes_read: AtomicU64::new(0),
            observers: Observers::default(),
            locks: Locks::default(),
            opaque: layer.files,
            seen: Seen::default(),
            nfs_stats: Mutex::default(),
            counts: CountsCache::default(),
            past,
            me: me.clone(),
        }))
    }

    fn recover(&self) -> Result<()> {
        let read_only = self.options.read_only;
        self.state.lock().tree.keep_orphans = true;
        self.refuse_rootless()?;
        self.replay(Purpose::Open(self.accepted_loss()))?;
        self.delete_orphans()?;
        if read_only { Ok(()) } else { self.begin_epoch() }
    }

    fn delete_orphans(&self) -> Result<()> {
        let mut stored = self.store.orphans()?;
        let misnamed = self.store.misnamed()?;
        for ino in &misnamed {
            let advice = "it stays as it is; 'weft check' tells more";
            tracing::error!("inode {} is damaged: it counts no names, but one leads to it; {advice}", ino.0);
        }
        stored.retain(|ino| !misnamed.contains(ino));
        let orphans = {
            let mut state = self.state.lock();
            state.tree.keep_orphans = false;
            let state = &mut *state;
            // A stored orphan may have been given a name by the log.
            let nameless = |ino: &weft_store::Ino| {
                state.tree.inodes.peek(ino).is_none_or(|inode| inode.row.nlink == 0 && !inode.dead)
            };
            state.tree.orphans.extend(stored.into_iter().filter(nameless).collect::<Vec<_>>());
            let mut orphans: Vec<_> = state.tree.orphans.iter().copied().collect();
            // Those made first go first, where there is no room for all results.
            orphans.sort_unstable();
            orphans
        };
        for ino in orphans {
            // What cannot be read is no reason not to open the volume.
            if !self.opaque.adopt(self, ino) {
                self.release(ino, 0);
            }
        }
        Ok(())
    }

    /// Commits all there is durably, also changes that are no operations (access times, deleted
    /// orphans).
    pub(super) fn commit_all(&self) -> Result<()> {
        let target = self.state.lock().tree.counters.op;
        if self.state.lock().tree.dirty_bytes > 0 {
            let mut turn = self.committing.lock();
            self.commit_once(&mut turn, Durability::Durable)?;
        }
        self.commit_until(target, Durability::Durable)
    }

    /// Deletes what has no name and was held to the end: nobody comes back for it. Results stay.
    fn delete_held(&self) {
        let mut orphans: Vec<_> = self.state.lock().tree.orphans.iter().copied().collect();
        orphans.sort_unstable();
        // If that cannot be told, the next mount deletes them.
        let Ok(misnamed) = self.store.misnamed() else { return };
        for ino in orphans.into_iter().filter(|ino| !misnamed.contains(ino)) {
            // What cannot be read goes at the next mount, if it is to.
            if self.opaque.keeps(self, ino).is_ok_and(|keeps| !keeps) {
                self.state.lock().tree.holds.remove(&ino);
                self.release(ino, 0);
            }
        }
    }

    /// Commits everything durably and stops the committer. Errors as [`Vfs::sync`]; the volume then
    /// keeps what it has in memory, and closing may be tried again.
    pub fn close(&self) -> Result<()> {
        self.opaque.stop();
        self.refuse_lost()?;
        if !self.options.read_only {
            self.opaque.store(self);
            if self.opaque.bytes() > 0 {
                // What results are made of is told by what is committed. Where that fails, it fails
                // again below.
                let _ = self.commit();
            }
            self.opaque.end(self);
            self.delete_held();
            self.commit_all()?;
            if !self.state.lock().tree.draining.is_empty() {
                self.drain();
                self.commit_all()?;
            }
            self.end_epoch()?;
        }
        {
            // Under the lock: the committer must not begin to wait in between.
            let _state = self.state.lock();
            self.closing.store(true, Ordering::Relaxed);
            self.wake.notify_all();
        }
        if let Some(committer) = self.committer.lock().take() {
            // One that panicked has said so.
            let _ = committer.thread.join();
        }
        Ok(())
    }

    /// Brings all that was committed to where it stays, after [`Vfs::close`]. Where that fails
    /// nothing is lost: the next mount does it.
    pub fn close_store(&self) -> Result<()> {
        Ok(self.store.close()?)
    }
}

impl Drop for Vfs {
    fn drop(&mut self) {
        self.closing.store(true, Ordering::Relaxed);
        self.wake.notify_all();
    }
}

impl Vfs {
    /// Drains what is gone and too large to be deleted at once, as far as there is room for it in
    /// the next commit, which then follows.
    fn drain(&self) {
        for _ in 0..DRAINED_PARTS {
            let drained = self.run(|state| {
                let has_room = state.tree.room(PART_BLOCKS * ROW_BYTES).is_ok();
                if has_room { state.tree.drain_part() } else { Ok(true) }
            });
            match drained {
                Ok(true) => self.kick(),
                Ok(false) => return,
                Err(error) => {
                    self.report("cannot delete an unlinked inode; it will go at the next mount", &error);
                    self.state.lock().tree.draining.remove_first();
                    return;
                }
            }
        }
    }
}

fn start_committer(vfs: &Arc<Vfs>) -> Result<()> {
    let weak = Arc::downgrade(vfs);
    let (tell, told) = sync_channel(1);
    let started = thread::Builder::new().name("weft-commit".into()).spawn(move || {
        if tell.send(rustix::thread::gettid()).is_ok() {
            commit_loop(&weak);
        }
    });
    let thread = started.map_err(|_| ErrorKind::Io)?;
    let id = told.recv().map_err(|_| ErrorKind::Io)?;
    *vfs.committer.lock() = Some(Committer { id, thread });
    Ok(())
}

/// Commits at each interval, later if that loses nothing, sooner when kicked, until the volume
/// closes or is dropped.
fn commit_loop(vfs: &Weak<Vfs>) {
    let mut intervals = 1;
    while let Some(vfs) = vfs.upgrade() {
        // Behind a commit: those that wait for one need not wait for this, too.
        vfs.work_on_history();
        {
            let mut state = vfs.state.lock();
            if !vfs.kicked.load(Ordering::Relaxed) && !vfs.closing.load(Ordering::Relaxed) {
                vfs.wake.wait_for(&mut state, vfs.options.commit_interval);
            }
        }
        if vfs.closing.load(Ordering::Relaxed) {
            return;
        }
        let is_kicked = vfs.kicked.swap(false, Ordering::Relaxed);
        let is_idle = {
            let state = vfs.state.lock();
            state.tree.dirty_bytes == 0 && state.tree.draining.is_empty()
        };
        vfs.tend_history();
        if is_idle {
            // Nobody writes: others have more use for the memory.
            pool::release();
            intervals = 1;
            vfs.merge_in_background();
            continue;
        }
        let until_next = vfs.options.commit_interval.saturating_mul(intervals + 1);
        if !is_kicked && until_next <= vfs.options.defer_max && vfs.defer_commit() {
            intervals += 1;
            continue;
        }
        intervals = 1;
        // What failed was reported, stays dirty and is tried again.
        let failed = vfs.commit_in_background().is_err();
        if !failed {
            vfs.drain();
            vfs.merge_in_background();
        }
        if failed {
            let mut state = vfs.state.lock();
            if !vfs.closing.load(Ordering::Relaxed) {
                vfs.wake.wait_for(&mut state, vfs.options.commit_interval);
            }
        }
    }
}
