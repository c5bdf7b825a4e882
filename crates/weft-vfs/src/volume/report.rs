//! What a mounted volume tells of itself.

use super::Vfs;
use crate::commit::SPACE_RESERVED;
use crate::read_ahead::ReadAhead;
use crate::stats::{NfsStats, Stats};
use std::sync::atomic::Ordering;
use weft_store::{CommitNo, Ino, Space, Timestamp};
use weft_tree::{Result, Statfs, is_past, is_virtual};

/// Tells what a server of NFS counts; nothing once it is gone.
pub(crate) type NfsCounters = Box<dyn Fn() -> Option<NfsStats> + Send + Sync>;

/// Inodes a volume without a quota is said to hold: there is no bound but the space.
const INODES_MAX: u64 = 1 << 32;

/// The size of a volume, the bytes that are free there, and those of them that can be written, with
/// `dirty` bytes yet to be committed and those that history would yield; `quota`: its size and the
/// bytes used of it. What is kept for the super-user is free: programs count as used what is not
/// (df(1)).
fn sizes(space: &Space, (dirty, yieldable): (u64, u64), quota: Option<(u64, u64)>) -> (u64, u64, u64) {
    let writable = space.bytes_free.saturating_add(yieldable).saturating_sub(dirty);
    let (free, available) = (writable.saturating_add(space.bytes_reserved), writable.saturating_sub(SPACE_RESERVED));
    match quota {
        Some((max, used)) => {
            let left = max.saturating_sub(used);
            (max, free.min(left), available.min(left))
        }
        None => (space.bytes_total, free, available),
    }
}

impl Vfs {
    /// A path that leads to `ino`, for messages, or led there lately; of what a view shows, the
    /// path of its target; `#` and its number if none is known.
    pub fn path(&self, ino: Ino) -> Vec<u8> {
        if is_past(ino) {
            return self.past_path(ino);
        }
        if let Ok(Some(target)) = self.source_path(ino) {
            return [&target[..], b" in a view"].concat();
        }
        let path = weft_store::path_to(ino, |ino| {
            let names = self.state.lock().tree.names_since_commit(ino);
            if names.is_empty() { self.store.names_of(ino) } else { Ok(names) }
        });
        path.unwrap_or_else(|_| format!("#{}", ino.0).into_bytes())
    }

    fn source_path(&self, ino: Ino) -> Result<Option<Vec<u8>>> {
        if !is_virtual(ino) {
            return Ok(None);
        }
        self.run(|state| state.opaque.layer().source_path(&mut state.tree, ino))
    }

    /// Space and inodes, as statvfs() tells them: of the quota if there is one, and of the place
    /// the volume lies in.
    pub fn statfs(&self) -> Result<Statfs> {
        self.may_read_rows()?;
        let space = self.store.space()?;
        let yieldable = self.yieldable().unwrap_or(0);
        let state = self.see_space(&space);
        let (total, free, available) = sizes(
            &space,
            (state.tree.dirty_bytes, yieldable),
            state.tree.volume.bytes_max.map(|max| (max, state.tree.counters.bytes_used)),
        );
        // A server of PostgreSQL does not tell what its disks hold.
        let total = total.max(free.saturating_add(state.tree.counters.bytes_used));
        let inodes_total = state.tree.volume.inodes_max.unwrap_or(INODES_MAX);
        Ok(Statfs {
            block_size: self.block_size,
            bytes_total: total,
            bytes_free: free,
            bytes_available: available,
            inodes_total,
            inodes_free: inodes_total.saturating_sub(state.tree.counters.inodes_used),
        })
    }

    /// Has [`Vfs::stats`] tell what a server of NFS counts, which `counters` gives while there is
    /// one.
    pub fn tell_of_nfs(&self, counters: impl Fn() -> Option<NfsStats> + Send + Sync + 'static) {
        *self.nfs_stats.lock() = Some(Box::new(counters));
    }

    /// The last commit, and its time if it was made since the volume was opened.
    pub fn last_commit(&self) -> (CommitNo, Option<Timestamp>) {
        self.state.lock().last_commit
    }

    /// Counters since the mount.
    pub fn stats(&self) -> Stats {
        let nfs = self.nfs_stats.lock().as_ref().and_then(|counters| counters());
        let failed_writeback = self.failed_writeback();
        let yieldable_bytes = self.yieldable();
        let state = self.state.lock();
        let (virtual_inodes, virtual_bytes) = state.tree.inodes.virtual_ones();
        let bytes_max = state.tree.volume.bytes_max;
        // The store is not asked: it may have to wait for its server.
        let space = Space { bytes_total: 0, bytes_free: state.space_free, bytes_reserved: 0 };
        let quota = bytes_max.map(|max| (max, state.tree.counters.bytes_used));
        let (_, _, available) = sizes(&space, (state.tree.dirty_bytes, yieldable_bytes.unwrap_or(0)), quota);
        let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        let mut stats = Stats {
            lost: self.store.lost().map(|error| error.to_string()),
            unanswered_seconds: self.store.unanswered().map(|since| since.as_secs()),
            operations: state.tree.operations,
            inode_hits: state.tree.inode_hits,
            inode_misses: state.tree.inode_misses,
            name_hits: state.tree.name_hits,
            name_misses: state.tree.name_misses,
            block_hits: count(&self.blocks.hits),
            block_misses: count(&self.blocks.misses),
            metadata_bytes: state.metadata_bytes() as u64,
            virtual_inodes: virtual_inodes as u64,
            virtual_bytes: virtual_bytes as u64,
            blocks_read_ahead: self.read_ahead.as_ref().map_or(0, ReadAhead::blocks_read),
            block_bytes: self.blocks.bytes(),
            shared_bytes: self.blocks.shared.bytes(),
            nfs,
            dirty_bytes: state.tree.dirty_bytes,
            commits: count(&self.commits),
            commits_failed: count(&self.commits_failed),
            merged_bytes: count(&self.merged_bytes),
            commit_error: self.commit_error.lock().clone(),
            commit_latency: self.commit_latency.latency(),
            sync_latency: self.sync_latency.latency(),
            damaged_requests: crate::stats::damaged_requests(),
            failed_writeback,
            no_room: self.no_room(state.space_free),
            yieldable_bytes,
            log_appends: count(&self.log_appends),
            operations_recovered: count(&self.recovered),
            bytes_read: count(&self.bytes_read),
            bytes_written: state.tree.bytes_written,
            bytes_copied: weft_block::bytes_copied(),
            inodes_used: state.tree.counters.inodes_used,
            bytes_used: state.tree.counters.bytes_used,
            bytes_available: available,
            bytes_max,
            held_inodes: state.tree.holds.len() as u64,
            disk_cache: self.store.disk_cache(),
            round_trips: self.store.round_trips(),
            ..Stats::default()
        };
        // The layer may be waiting for the state with locks of its own taken.
        drop(state);
        self.opaque.count(&mut stats);
        stats
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_kept_for_the_super_user_are_free_and_not_available() {
        let gib = 1 << 30;
        let space = Space { bytes_total: 250 * gib, bytes_free: 40 * gib, bytes_reserved: 160 * gib };
        let (total, free, available) = sizes(&space, (gib, 0), None);
        assert_eq!((total, free, available), (250 * gib, 199 * gib, 39 * gib - SPACE_RESERVED));
        assert_eq!(sizes(&space, (0, 0), Some((10 * gib, 4 * gib))), (10 * gib, 6 * gib, 6 * gib));
    }

    #[test]
    fn what_history_would_yield_is_free() {
        let gib = 1 << 30;
        let space = Space { bytes_total: 10 * gib, bytes_free: gib, bytes_reserved: 0 };
        assert_eq!(
            sizes(&space, (gib / 2, 3 * gib), None),
            (10 * gib, 3 * gib + gib / 2, 3 * gib + gib / 2 - SPACE_RESERVED)
        );
        assert_eq!(sizes(&space, (0, 3 * gib), Some((10 * gib, 9 * gib))), (10 * gib, gib, gib));
    }
}
