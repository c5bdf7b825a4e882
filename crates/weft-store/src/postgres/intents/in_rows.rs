//! The intent log in rows, as an operation log.

use super::{IntentSync, Intents};
use crate::batch::Batch;
use crate::error::Result;
use crate::log::{
    Behind, DataLoss, LogAppends, LogEpochs, LogReplay, LogSync, Loss, OperationLog, Record, epoch_without_log,
    needs_log,
};
use crate::row::{CommitNo, OpNo};
use crate::store::Header;
use weft_block::Rope;

impl From<Intents> for Box<dyn OperationLog> {
    fn from(log: Intents) -> Box<dyn OperationLog> {
        Box::new(log)
    }
}

impl LogReplay for Intents {
    fn loss(&self) -> Loss {
        Intents::loss(self)
    }

    fn check(&mut self, header: &Header) -> Result<Option<DataLoss>> {
        Intents::check(self, header)
    }

    fn records(&self, epoch: u64, after: OpNo) -> Result<Vec<Record>> {
        Intents::records(self, epoch, after)
    }

    fn carried(&self, epoch: u64) -> Result<Vec<Record>> {
        Ok(Intents::carried(self, epoch)?.into_iter().collect())
    }

    fn take_given_up(&self) -> Option<DataLoss> {
        Intents::take_given_up(self)
    }

    fn set_aside(&self) -> Result<Option<String>> {
        Intents::set_aside(self)
    }
}

impl LogEpochs for Intents {
    fn next_epoch(&self, epoch: u64) -> u64 {
        (epoch + 1) | 1
    }

    fn prepare(&mut self, _epoch: u64, _commit: CommitNo) -> Result<()> {
        Ok(())
    }

    fn go_without(&mut self) -> bool {
        false
    }

    fn start(&mut self, epoch: u64, _commit: CommitNo) -> Result<()> {
        Intents::start(self, epoch);
        Ok(())
    }

    fn leave(&mut self, epoch: u64, closing: bool) -> Option<u64> {
        (needs_log(epoch) && closing).then(|| epoch_without_log(epoch))
    }

    fn close(&mut self, _commit: CommitNo, _behind: Behind) -> Result<()> {
        Ok(())
    }

    fn is_in_place(&self) -> bool {
        true
    }
}

impl LogAppends for Intents {
    fn outlives_process(&self) -> bool {
        false
    }

    fn fits(&self, bytes: usize) -> bool {
        Intents::fits(self, bytes)
    }

    fn is_used(&self) -> bool {
        Intents::is_used(self)
    }

    fn is_half_full(&self) -> bool {
        Intents::is_half_full(self)
    }

    fn append(&mut self, first: OpNo, last: OpNo, bytes: &Rope) -> Result<()> {
        Intents::append(self, first, last, bytes);
        Ok(())
    }

    fn carry(&mut self, batch: &mut Batch, bytes: Vec<u8>) -> Result<bool> {
        batch.carried = bytes;
        Ok(true)
    }

    fn name(&mut self, _commit: CommitNo) -> Result<Option<Box<dyn LogSync>>> {
        // The server has it.
        Ok(None)
    }

    fn syncer(&mut self) -> Result<Box<dyn LogSync>> {
        Ok(Box::new(Intents::syncer(self)))
    }

    fn keep(&mut self, _sync: Box<dyn LogSync>) {}

    fn switch(&mut self) {
        Intents::switch(self);
    }

    fn release(&mut self, _commit: CommitNo) {
        Intents::release(self);
    }
}

impl LogSync for IntentSync {
    fn sync(&self) -> Result<()> {
        IntentSync::sync(self)
    }
}
