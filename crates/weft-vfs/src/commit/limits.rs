//! Changes of the limits of a volume, in use or not: commits of their own.

use crate::volume::Vfs;
use weft_store::{Batch, CommitNo, Limits};
use weft_tree::Result;

/// A change of the limits of a volume. Each is kept, taken away, or set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitsChange {
    /// The most bytes that it may store.
    pub bytes_max: Option<Option<u64>>,
    /// The most inodes that it may hold.
    pub inodes_max: Option<Option<u64>>,
}

impl LimitsChange {
    fn of(self, before: Limits) -> Limits {
        Limits {
            bytes_max: self.bytes_max.unwrap_or(before.bytes_max),
            inodes_max: self.inodes_max.unwrap_or(before.inodes_max),
        }
    }
}

impl Vfs {
    /// Changes the limits of the volume. Returns the limits from now on, and the last commit: the
    /// one that says so, if they are others than before. What is stored beyond a limit stays, and
    /// nothing more fits until enough of it is gone. Errors: `ReadOnly`; those of the store and of
    /// [`Vfs::sync`].
    pub fn change_limits(&self, change: LimitsChange) -> Result<(Limits, CommitNo)> {
        let mut limits = Limits::default();
        let changed = self.after_all(|header, time| {
            let before = header.options.limits();
            limits = change.of(before);
            if limits == before {
                return Ok(None);
            }
            let commit = self.commit_apart(header, Batch { time, limits: Some(limits), ..Batch::default() })?;
            self.state.lock().tree.volume.set_limits(limits);
            Ok(Some(commit))
        })?;
        Ok((limits, changed.last()))
    }
}
