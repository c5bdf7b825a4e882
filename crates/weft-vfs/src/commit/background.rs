//! Work on history in the background, by the thread that commits: in turns, between commits.
//!
//! There is one turn a second at most. It takes a bounded time, which depends on neither the volume
//! nor its history, and ends early if a commit is asked for. In a volume without history it asks
//! the store nothing.

use crate::volume::Vfs;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Time between two turns, in nanoseconds.
const EVERY: i64 = 1_000_000_000;

/// Time that a turn takes while programs write.
const BUSY: Duration = Duration::from_millis(20);

/// Time that a turn takes while there is nothing to commit.
const IDLE: Duration = Duration::from_millis(200);

/// A turn of this work.
pub(super) struct Turn<'a> {
    vfs: &'a Vfs,
    begun: Instant,
    limit: Duration,
}

impl Turn<'_> {
    /// True once others should go on.
    pub(super) fn is_over(&self) -> bool {
        let is_needed = self.vfs.kicked.load(Ordering::Relaxed) || self.vfs.closing.load(Ordering::Relaxed);
        is_needed || self.took() >= self.limit
    }

    /// Returns the time since it began.
    pub(super) fn took(&self) -> Duration {
        self.begun.elapsed()
    }
}

impl Vfs {
    /// Works on history for a while, if it is time to.
    pub(crate) fn work_on_history(&self) {
        if !self.past.is_kept() {
            return;
        }
        let (now, before) = (self.now().0, self.history_worked_at.load(Ordering::Relaxed));
        if (0..EVERY).contains(&now.saturating_sub(before)) {
            return;
        }
        self.history_worked_at.store(now, Ordering::Relaxed);
        let limit = if self.state.lock().tree.dirty_bytes == 0 { IDLE } else { BUSY };
        let turn = Turn { vfs: self, begun: Instant::now(), limit };
        self.count_yieldable(&turn);
        self.tend_exclusions(&turn);
    }
}
