//! Failed writeback: changes that the kernel kept in its page cache and could not pass on.
//!
//! Stores to a mapping, and with `--writeback` all writes, reach the volume after the program that
//! made them was told that they are done. If they fail then, the kernel drops them, tells one
//! fsync, and takes the next one for done. So they are noted here, and no sync of such a file
//! succeeds until the same bytes were written again, by whatever way in, or are none of the file's
//! any more.
//!
//! Invariants: what is noted has a bound. Where the ranges of a file would exceed it, more of it is
//! noted than is missing, never less. Of more files than are noted the owner is told all the same.

use super::Vfs;
use crate::asker::Asker;
use rustc_hash::FxHashMap;
use std::ops::Range;
use weft_store::{Ino, Kind};
use weft_tree::{Error, ErrorKind, Mutation, Ranges, Result};

/// Files that are noted at most.
const FILES_MAX: usize = 1 << 16;

/// Ranges of all of them that are noted one by one.
const RANGES_MAX: usize = 1 << 16;

/// What is missing of one file.
#[derive(Debug)]
struct FailedRanges {
    ranges: Ranges,
    /// How the newest of these writes failed.
    kind: ErrorKind,
}

/// The bytes of files that the kernel could not pass on.
#[derive(Debug, Default)]
pub(crate) struct FailedWriteback {
    files: FxHashMap<Ino, FailedRanges>,
    /// Ranges of all of them.
    ranges: usize,
    /// True if one more file was to be noted than may be, until the end of the mount.
    are_more: bool,
}

impl FailedWriteback {
    /// Notes that `range` of `ino` could not be written. True if nothing of it was missing before.
    fn add(&mut self, ino: Ino, range: Range<u64>, kind: ErrorKind) -> bool {
        let is_new = !self.files.contains_key(&ino);
        if is_new && self.files.len() >= FILES_MAX {
            self.are_more = true;
            return false;
        }
        let missing = self.files.entry(ino).or_insert_with(|| FailedRanges { ranges: Ranges::default(), kind });
        missing.kind = kind;
        let before = missing.ranges.count();
        missing.ranges.add(range);
        if self.ranges - before + missing.ranges.count() > RANGES_MAX {
            missing.ranges.fill();
        }
        self.ranges = self.ranges - before + missing.ranges.count();
        is_new
    }

    /// Notes that `range` of `ino` was written, or is none of the file's any more.
    fn remove(&mut self, ino: Ino, range: Range<u64>) {
        let Some(missing) = self.files.get_mut(&ino) else { return };
        let before = missing.ranges.count();
        missing.ranges.remove(range);
        let left = missing.ranges.count();
        self.ranges = self.ranges - before + left;
        if left == 0 {
            self.files.remove(&ino);
        }
    }

    /// Notes what `mutation` writes again or cuts off.
    pub(crate) fn follow(&mut self, mutation: &Mutation<'_>, block_size: u64) {
        if self.files.is_empty() {
            return;
        }
        match mutation {
            Mutation::Write { ino, offset, data, .. } => self.remove(*ino, *offset..*offset + data.len() as u64),
            Mutation::Zero { ino, offset, len, .. } => self.remove(*ino, *offset..offset.saturating_add(*len)),
            Mutation::Share { to: (ino, index), count, .. } => {
                self.remove(*ino, index * block_size..index.saturating_add(*count).saturating_mul(block_size));
            }
            Mutation::Replace { ino, .. } => self.remove(*ino, 0..u64::MAX),
            Mutation::Attributes { ino, set, .. } => {
                if let Some(size) = set.size {
                    self.remove(*ino, size..u64::MAX);
                }
            }
            _ => {}
        }
    }

    /// How the newest failed write to `ino` failed, if bytes are missing there.
    fn of(&self, ino: Ino) -> Option<ErrorKind> {
        self.files.get(&ino).map(|missing| missing.kind)
    }
}

impl Vfs {
    /// Notes that the kernel could not pass on `range` of file `ino`, as `error` says: until that
    /// is written again, [`Vfs::sync_inode`] fails.
    pub fn writeback_failed(&self, ino: Ino, range: Range<u64>, error: &Error) {
        if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Stale) {
            return;
        }
        if !self.state.lock().failed_writeback.add(ino, range.clone(), error.kind()) {
            return;
        }
        let path = self.path(ino);
        tracing::error!(
            "the kernel could not pass on changes of {}, bytes {} to {} first: {error}; no sync of it succeeds until they \
             are written again",
            String::from_utf8_lossy(&path),
            range.start,
            range.end.saturating_sub(1),
        );
    }

    /// Notes that the kernel has passed on `range` of file `ino`, whatever that was written to.
    pub fn writeback_done(&self, ino: Ino, range: Range<u64>) {
        self.state.lock().failed_writeback.remove(ino, range);
    }

    /// As [`Vfs::sync`], for whoever changed inode `ino` by way of the kernel. Fails as the write
    /// did while changes are missing that the kernel could not pass on.
    ///
    /// What was not changed since it was made durable is not synced again for an ordinary user: the
    /// kernel locks an inode while it is synced, and who may only read it could keep all others
    /// from it.
    pub fn sync_inode(&self, ino: Ino) -> Result<()> {
        if Asker::now(Asker::is_mighty) || !self.is_settled(ino) {
            self.sync()?;
        } else {
            self.refuse_lost()?;
        }
        match self.state.lock().failed_writeback.of(ino) {
            Some(kind) => Err(Error::new(kind, ino)),
            None => Ok(()),
        }
    }

    /// True if all changes of file or directory `ino` are durable.
    fn is_settled(&self, ino: Ino) -> bool {
        let is_settled = self.run(|state| {
            let inode = state.tree.inode(ino)?;
            // A link is changed by changes of what it leads to.
            let is_plain = matches!(inode.row.kind, Kind::File | Kind::Directory);
            Ok(is_plain && inode.touched <= state.named)
        });
        self.seen(ino, None) == ino && is_settled.is_ok_and(|is_settled| is_settled)
    }

    /// Says which changes are missing that the kernel could not pass on, if there are any: in
    /// words, for the volume's owner.
    pub fn failed_writeback(&self) -> Option<String> {
        let files: Vec<Ino> = self.state.lock().failed_writeback.files.keys().copied().collect();
        for ino in files {
            // What has no name any more is missed by nobody.
            let is_gone = match self.run(|state| Ok(state.tree.inode(ino)?.row.nlink)) {
                Ok(links) => links == 0,
                Err(error) => error.kind() == ErrorKind::Stale,
            };
            if is_gone {
                self.writeback_done(ino, 0..u64::MAX);
            }
        }
        let (first, others) = {
            let failed = &self.state.lock().failed_writeback;
            let first = failed.files.iter().min_by_key(|(ino, _)| **ino);
            let first = first.map(|(ino, missing)| (*ino, missing.ranges.total(), missing.kind))?;
            (first, failed.files.len() - 1 + usize::from(failed.are_more))
        };
        let (ino, bytes, kind) = first;
        let path = self.path(ino);
        let others = if others == 0 { String::new() } else { format!(", and not all of {others} more files") };
        Some(format!(
            "the kernel could not pass on up to {bytes} bytes of {}{others} ({}): write them again, or remove it",
            String::from_utf8_lossy(&path),
            Error::from(kind)
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: Ino = Ino(20);

    fn failed(ranges: &[Range<u64>]) -> FailedWriteback {
        let mut failed = FailedWriteback::default();
        ranges.iter().for_each(|range| {
            failed.add(FILE, range.clone(), ErrorKind::NoSpace);
        });
        failed
    }

    #[test]
    fn bytes_are_missing_until_each_is_written_again() {
        let mut failed = failed(&[0..4096, 8192..12288]);
        failed.remove(FILE, 0..4096);
        failed.remove(FILE, 8192..12287);
        assert_eq!(failed.of(FILE), Some(ErrorKind::NoSpace));
        failed.remove(FILE, 12287..12288);
        assert_eq!(failed.of(FILE), None);
        assert!(failed.files.is_empty());
    }

    #[test]
    fn what_is_noted_has_a_bound_and_nothing_is_left_out() {
        let ranges: Vec<_> = (0..RANGES_MAX as u64 + 1000).map(|number| number * 8192..number * 8192 + 4096).collect();
        let mut failed = failed(&ranges);
        assert!(failed.ranges <= RANGES_MAX && failed.ranges == failed.files[&FILE].ranges.count());
        for range in &ranges {
            assert!(failed.files[&FILE].ranges.covers(range.clone()));
        }
        for number in 0..2 * FILES_MAX as u64 {
            failed.add(Ino(100 + number), 0..1, ErrorKind::QuotaExceeded);
        }
        assert!(failed.files.len() <= FILES_MAX && failed.are_more);
        failed.remove(FILE, 0..u64::MAX);
        (0..2 * FILES_MAX as u64).for_each(|number| failed.remove(Ino(100 + number), 0..1));
        assert_eq!((failed.ranges, failed.files.len()), (0, 0));
    }
}
