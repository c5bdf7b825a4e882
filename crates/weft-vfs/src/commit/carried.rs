//! What a commit cannot store: bytes written over a part of a damaged block. They stay in memory,
//! and the log keeps them beside the commit, so that what was synced survives a crash although the
//! operations that wrote it count as committed.

use super::Snapshot;
use crate::error::Result;
use crate::journal;
use crate::mutation::{Lost, Mutation};
use crate::volume::Vfs;
use std::borrow::Cow;

/// Why a volume cannot be opened.
const NOT_KEPT: &str = "bytes that were synced belong over a part of a damaged block, and there is no place to keep them; restore that block's \
                        file ('weft check --read-data' names it)";

impl Vfs {
    /// Has the log keep what the commit of `snapshot` will lack, durably, before it is made. Where
    /// there is no log in a file they are in memory alone.
    pub(super) fn carry(&self, snapshot: &mut Snapshot) -> Result<()> {
        snapshot.is_carried = false;
        let Some(log) = self.log.as_ref().filter(|_| !snapshot.damaged.is_empty()) else { return Ok(()) };
        let mut bytes = Vec::new();
        for job in &snapshot.damaged {
            let start = job.index * u64::from(self.block_size);
            for (at, piece) in job.pieces.within(0..job.len) {
                let (offset, data) = (start + at as u64, Cow::Borrowed(&piece[..]));
                let time = snapshot.batch.time;
                journal::put(&Mutation::Write { ino: job.ino, offset, data, lost: Lost::default(), time }, &mut bytes);
            }
        }
        let (commit, op) = (snapshot.batch.commit, snapshot.batch.counters.op);
        let mut log = log.lock();
        snapshot.is_carried = log.file.carry(commit, op, &bytes)?;
        // Operations that are applied again count as committed with this: what they wrote must not
        // be lost by that.
        let is_lost = !snapshot.is_carried && !log.is_begun;
        if is_lost { Err(weft_store::Error::Corrupt(NOT_KEPT.into()).into()) } else { Ok(()) }
    }
}
