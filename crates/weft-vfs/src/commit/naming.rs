//! Durable commits outlive the loss of the log that the store puts them into, or their loss is
//! told.
//!
//! SQLite believes what is left of its write-ahead log, or does without it, and says nothing. So
//! before an fsync is answered because a commit has what it asks for, the intent log names that
//! commit: not before the commit is durable, or a power cut in between would be taken for a loss.
//! Records of operations need no name: the first of them would not follow the database. Where
//! there is no intent log, the store copies the commit to where it stays.

use super::Begun;
use crate::blocking::Wait;
use crate::volume::{Log, Vfs};
use weft_store::OpNo;
use weft_store::log::LogSync;
use weft_tree::Result;

/// A name that was written and is to be synced.
struct Written {
    op: OpNo,
    sync: Box<dyn LogSync>,
    begun: Begun,
    half: Option<u64>,
}

impl Vfs {
    /// Sees that no loss of the store's own log goes unnoticed that takes operations up to `target`
    /// with it. They are durable.
    pub(crate) fn name_commit(&self, target: OpNo) -> Result<()> {
        if self.state.lock().named >= target {
            return Ok(());
        }
        self.may_wait(Wait::Log)?;
        if self.name_in_log() {
            return Ok(());
        }
        self.may_wait(Wait::Commit)?;
        let durable = self.state.lock().durable;
        self.store.settle()?;
        let mut state = self.state.lock();
        state.named = state.named.max(durable);
        Ok(())
    }

    /// Has the intent log name the last durable commit. False if it cannot.
    fn name_in_log(&self) -> bool {
        let Some(log) = &self.log else { return false };
        let Some(Written { op, sync, begun, half }) = self.write_name(&mut log.lock()) else { return false };
        if !self.sync_log(log, sync, begun, half) {
            return false;
        }
        let mut state = self.state.lock();
        state.named = state.named.max(op);
        true
    }

    fn write_name(&self, log: &mut Log) -> Option<Written> {
        if !log.is_begun || log.broken.is_some() {
            return None;
        }
        let (commit, op) = self.state.lock().durable_commit;
        match log.file.name(commit) {
            Ok(sync) => Some(Written { op, sync: sync?, begun: log.syncs.begin(), half: log.last_used() }),
            Err(error) => {
                self.report("cannot name a commit in the intent log", &error.into());
                None
            }
        }
    }
}

impl Log {
    /// The last half that has what no durable commit contains, if one has.
    fn last_used(&self) -> Option<u64> {
        let before = || self.switches.checked_sub(1).filter(|_| self.retired);
        if self.file.is_used() { Some(self.switches) } else { before() }
    }
}
