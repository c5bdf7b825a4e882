//! Merging in the background: files that small writes have fragmented are stored in one piece again
//! once nobody has written to them for a while, sooner where programs read them from front to back.
//!
//! Candidates are kept in memory, and their number has a bound: what is forgotten waits for `weft
//! defragment`. Merging writes no more than a byte for each byte of a small write, or of a
//! fragmented file that was read from front to back, and goes on only while the committer has
//! nothing to do.

use crate::volume::Vfs;
use rustc_hash::FxHashMap;
use std::sync::atomic::Ordering;
use weft_store::{Ino, Timestamp};
use weft_tree::{JobReason, Layout, PendingCommit};

/// Files that are candidates at most.
const FILES_MAX: usize = 1 << 14;

/// Time after the last small write when a file is merged, in nanoseconds.
const COLD: i64 = 600_000_000_000;

/// The same of a file that is read from front to back.
const READ: i64 = 30_000_000_000;

/// Time between two steps, in nanoseconds.
const EVERY: i64 = 1_000_000_000;

/// Bytes that are worth a step.
const STEP_MIN: u64 = 1 << 20;

/// Bytes that may be merged at most, however much was written before.
const CREDIT_MAX: u64 = 4 << 30;

/// A file that is to be merged.
#[derive(Clone, Copy, Debug, Default)]
struct Candidate {
    /// The last small write.
    written: Timestamp,
    /// True if it was read from front to back since.
    is_read: bool,
    /// The byte from which to go on.
    from: u64,
}

impl Candidate {
    fn is_due(&self, now: Timestamp) -> bool {
        let since = now.0.saturating_sub(self.written.0);
        since >= if self.is_read { READ } else { COLD }
    }
}

/// Files to be merged in the background.
#[derive(Debug, Default)]
pub(crate) struct Merging {
    files: FxHashMap<Ino, Candidate>,
    /// Bytes that may be merged.
    credit: u64,
    /// The time of the last step.
    stepped: Timestamp,
}

impl Merging {
    /// Notes a small write of `bytes` to `ino`.
    fn written(&mut self, ino: Ino, bytes: u64, now: Timestamp) {
        self.earn(bytes);
        if self.files.len() < FILES_MAX || self.files.contains_key(&ino) {
            *self.files.entry(ino).or_default() = Candidate { written: now, ..Candidate::default() };
        }
    }

    /// Notes that `bytes` of `ino`, which has fragments there, are read from front to back.
    fn read(&mut self, ino: Ino, bytes: u64) {
        self.earn(bytes);
        if self.files.len() < FILES_MAX || self.files.contains_key(&ino) {
            self.files.entry(ino).or_default().is_read = true;
        }
    }

    fn earn(&mut self, bytes: u64) {
        self.credit = self.credit.saturating_add(bytes).min(CREDIT_MAX);
    }

    /// A file that is due, the byte from which to go on, and the bytes that may be merged, `least`
    /// of them or more.
    fn due(&mut self, now: Timestamp, least: u64) -> Option<(Ino, u64, u64)> {
        // A clock that was set back makes a step late, and no more.
        if (0..EVERY).contains(&now.0.saturating_sub(self.stepped.0)) || self.credit < least {
            return None;
        }
        let (ino, candidate) = self.files.iter().find(|(_, candidate)| candidate.is_due(now))?;
        self.stepped = now;
        Some((*ino, candidate.from, self.credit))
    }

    /// A step of `ino` merged `bytes`, and the next one begins at byte `next`.
    fn merged(&mut self, ino: Ino, bytes: u64, next: Option<u64>) {
        self.credit = self.credit.saturating_sub(bytes);
        match (next, self.files.get_mut(&ino)) {
            (Some(next), Some(candidate)) => candidate.from = next,
            _ => drop(self.files.remove(&ino)),
        }
    }
}

impl Vfs {
    /// Notes the small writes that `pending`, which is stored, has made of files.
    pub(super) fn note_fragments(&self, pending: &PendingCommit) {
        if !self.options.merge {
            return;
        }
        let mut small = FxHashMap::<Ino, u64>::default();
        for job in pending.jobs.iter().filter(|job| job.reason != JobReason::Merge) {
            if let Layout::Parts(parts) = &job.layout {
                let bytes = parts.new.iter().map(|new| u64::from(new.len)).sum::<u64>();
                *small.entry(job.ino).or_default() += bytes;
            }
        }
        if small.is_empty() {
            return;
        }
        let (now, mut merging) = (self.now(), self.merging.lock());
        small.into_iter().for_each(|(ino, bytes)| merging.written(ino, bytes, now));
    }

    /// Notes that `bytes` of file `ino`, stored in `count` blocks, are read from front to back.
    pub(crate) fn note_read(&self, ino: Ino, bytes: u64, count: usize) {
        let is_fragmented = count as u64 > 2 * bytes.div_ceil(u64::from(self.block_size)) + 1;
        if self.options.merge && !self.is_read_only() && is_fragmented {
            self.merging.lock().read(ino, bytes);
        }
    }

    /// Takes a step of merging, if one is due: a commit that has little else.
    pub(crate) fn merge_in_background(&self) {
        if !self.options.merge || self.is_read_only() {
            return;
        }
        let least = STEP_MIN.max(u64::from(self.block_size));
        let Some((ino, from, most)) = self.merging.lock().due(self.now(), least) else { return };
        // What fails was reported, or the file is gone.
        let done = self.merge_some(ino, from, most).ok();
        let bytes = done.map_or(0, |done| done.merged * u64::from(self.block_size));
        self.merged_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.merging.lock().merged(ino, bytes, done.and_then(|done| done.next));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: Ino = Ino(20);

    fn at(seconds: i64) -> Timestamp {
        Timestamp(seconds * 1_000_000_000)
    }

    #[test]
    fn a_file_is_due_when_it_is_cold_and_sooner_when_it_is_read() {
        let mut merging = Merging::default();
        merging.written(FILE, 100, at(10));
        assert_eq!(merging.due(at(600), 100), None);
        assert_eq!(merging.due(at(610), 100), Some((FILE, 0, 100)));
        merging.read(FILE, 0);
        merging.written(FILE, 0, at(700));
        assert_eq!(merging.due(at(740), 100), None, "a write makes it one that is not read");
        merging.read(FILE, 0);
        assert_eq!(merging.due(at(740), 100), Some((FILE, 0, 100)));
    }

    #[test]
    fn no_more_is_merged_than_was_written_or_read() {
        let mut merging = Merging::default();
        merging.written(FILE, 150, at(0));
        assert_eq!(merging.due(at(1000), 100), Some((FILE, 0, 150)));
        merging.merged(FILE, 100, Some(64));
        assert_eq!(merging.due(at(1002), 100), None, "50 are left");
        merging.read(FILE, 60);
        assert_eq!(merging.due(at(1003), 100), Some((FILE, 64, 110)));
        assert_eq!(merging.due(at(1003), 100), None, "one step a second");
        merging.merged(FILE, 0, None);
        assert_eq!(merging.due(at(2000), 100), None, "it is done");
    }
}
