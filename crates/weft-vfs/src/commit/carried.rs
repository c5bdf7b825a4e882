//! What a commit cannot store: bytes written over a part of a damaged block. They stay in memory,
//! and the log keeps them beside the commit, so that what was synced survives a crash although the
//! operations that wrote it count as committed.

use crate::volume::Vfs;
use weft_tree::{Data, Lost, Mutation, PendingCommit, Result, journal};

/// Error message of a commit that fails because the log has no place for carried bytes.
const NOT_KEPT: &str = "bytes that were written belong over a part of a damaged block, and there is no place to keep \
                        them; restore that block ('weft check --read-data' names its file), or remove the file";

impl Vfs {
    /// Has the log keep what the commit of `pending` will lack, durably, before it is made or with
    /// it: operations count as committed with the commit, and what they wrote must not be lost by
    /// that. `Corrupt` where the log has no place for it. Without a log it is in memory alone.
    pub(super) fn carry(&self, pending: &mut PendingCommit) -> Result<()> {
        pending.batch.carried.clear();
        let Some(log) = self.log.as_ref().filter(|_| !pending.damaged.is_empty()) else { return Ok(()) };
        let mut bytes = Vec::new();
        for job in &pending.damaged {
            let start = job.index * u64::from(self.block_size);
            for (at, piece) in job.pieces.within(0..job.len) {
                let (offset, data) = (start + at as u64, Data::from(&piece[..]));
                let time = pending.batch.time;
                journal::put(&Mutation::Write { ino: job.ino, offset, data, lost: Lost::default(), time }, &mut bytes);
            }
        }
        let is_kept = log.lock().file.carry(&mut pending.batch, bytes)?;
        if is_kept { Ok(()) } else { Err(weft_store::Error::Corrupt(NOT_KEPT.into()).into()) }
    }
}
