//! The intent log in a file, as an operation log.

use super::{
    Behind, DataLoss, IntentLog, LogAppends, LogEpochs, LogReplay, LogSync, Loss, OperationLog, Record,
    epoch_without_log, needs_log,
};
use crate::batch::Batch;
use crate::error::Result;
use crate::row::{CommitNo, OpNo};
use crate::store::Header;
use weft_block::Rope;

impl From<IntentLog> for Box<dyn OperationLog> {
    fn from(log: IntentLog) -> Box<dyn OperationLog> {
        Box::new(log)
    }
}

impl LogReplay for IntentLog {
    fn loss(&self) -> Loss {
        IntentLog::loss(self)
    }

    fn check(&mut self, header: &Header) -> Result<Option<DataLoss>> {
        IntentLog::check(self, header)
    }

    fn records(&self, _epoch: u64, after: OpNo) -> Result<Vec<Record>> {
        let later = IntentLog::records(self).iter().filter(|record| record.first > after);
        Ok(later.cloned().collect())
    }

    fn carried(&self, _epoch: u64) -> Result<Vec<Record>> {
        Ok(IntentLog::carried(self).to_vec())
    }

    fn take_given_up(&self) -> Option<DataLoss> {
        // Checking it told of all.
        None
    }

    fn set_aside(&self) -> Result<Option<String>> {
        Ok(IntentLog::set_aside(self)?.map(|path| path.display().to_string()))
    }
}

impl LogEpochs for IntentLog {
    fn next_epoch(&self, epoch: u64) -> u64 {
        IntentLog::next_epoch(self, epoch)
    }

    fn prepare(&mut self, epoch: u64, commit: CommitNo) -> Result<()> {
        IntentLog::prepare(self, epoch, commit)
    }

    fn go_without(&mut self) -> bool {
        if self.is_free() {
            IntentLog::leave(self);
        }
        self.is_free()
    }

    fn start(&mut self, _epoch: u64, commit: CommitNo) -> Result<()> {
        self.begin(commit)
    }

    fn leave(&mut self, epoch: u64, closing: bool) -> Option<u64> {
        let leaves = self.is_open() && needs_log(epoch) && (closing || self.is_gone());
        leaves.then(|| {
            IntentLog::leave(self);
            epoch_without_log(epoch)
        })
    }

    fn close(&mut self, commit: CommitNo, behind: Behind) -> Result<()> {
        if self.is_gone() { Ok(()) } else { IntentLog::close(self, commit, behind) }
    }

    fn is_in_place(&self) -> bool {
        !self.is_gone()
    }
}

impl LogAppends for IntentLog {
    fn outlives_process(&self) -> bool {
        true
    }

    fn fits(&self, bytes: usize) -> bool {
        IntentLog::fits(self, bytes)
    }

    fn is_used(&self) -> bool {
        IntentLog::is_used(self)
    }

    fn is_half_full(&self) -> bool {
        IntentLog::is_half_full(self)
    }

    fn append(&mut self, first: OpNo, last: OpNo, bytes: &Rope) -> Result<()> {
        IntentLog::append(self, first, last, bytes)
    }

    fn append_unsynced(&mut self, first: OpNo, last: OpNo, bytes: &Rope) -> Result<()> {
        IntentLog::append_unsynced(self, first, last, bytes)
    }

    fn carry(&mut self, batch: &mut Batch, bytes: Vec<u8>) -> Result<bool> {
        if self.is_left() {
            return Ok(false);
        }
        let sync = IntentLog::syncer(self)?;
        IntentLog::carry(self, batch.commit, batch.counters.op, bytes)?;
        sync.sync()?;
        IntentLog::keep(self, sync);
        Ok(true)
    }

    fn name(&mut self, commit: CommitNo) -> Result<Option<Box<dyn LogSync>>> {
        if !self.is_open() {
            return Ok(None);
        }
        let sync = IntentLog::syncer(self)?;
        IntentLog::name(self, commit)?;
        Ok(Some(sync))
    }

    fn syncer(&mut self) -> Result<Box<dyn LogSync>> {
        IntentLog::syncer(self)
    }

    fn keep(&mut self, sync: Box<dyn LogSync>) {
        IntentLog::keep(self, sync);
    }

    fn switch(&mut self) {
        IntentLog::switch(self);
    }

    fn release(&mut self, commit: CommitNo) {
        IntentLog::release(self, commit);
    }
}
