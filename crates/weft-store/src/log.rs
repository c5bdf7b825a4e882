//! The intent log: a preallocated file to which an fsync appends the operations since the last
//! commit.
//!
//! It knows operations only as numbered bytes. A thread that has appended syncs after, perhaps
//! while the next appends: a [`Sync`] makes durable what was appended before it began, and reports
//! any write that failed since it was last used or made, even one begun elsewhere. The file has two
//! halves; a commit in flight retires one while fsyncs go on in the other ([`IntentLog::switch`]).
//!
//! A log and a database belong together: `file` writes, `judge` decides what a mount finds, by
//! records that `scan` reads sector by sector (`sector`) and a header that names the last mounts
//! (`slot`). docs/reference/format.md has the layout.

mod file;
mod given_up;
mod judge;
mod scan;
mod sector;
mod slot;
#[cfg(test)]
mod tests;

pub use file::{IntentLog, Loss, Misfit, Sync, behind, epoch_as_of, misfit};
pub use given_up::given_up;
pub use judge::needs_log;
pub use slot::Behind;

use crate::batch::Batch;
use crate::error::Result;
use crate::postgres::{IntentSync, Intents};
use crate::row::{CommitNo, OpNo};
use crate::store::Header;
use weft_block::Rope;

/// Operations made durable by one append.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The first operation in it.
    pub first: OpNo,
    /// The last operation in it.
    pub last: OpNo,
    /// The operations, as the writer encoded them.
    pub bytes: Vec<u8>,
}

/// The intent log, wherever it is: see [`IntentLog`] for what its methods do.
pub enum OperationLog {
    /// In a file.
    File(IntentLog),
    /// In rows of a server.
    Rows(Intents),
}

/// Makes appends durable.
pub enum LogSync {
    /// In a file.
    File(Sync),
    /// In rows of a server.
    Rows(IntentSync),
}

impl LogSync {
    /// Makes durable what was appended before it begins.
    pub fn sync(&self) -> Result<()> {
        match self {
            LogSync::File(sync) => sync.sync(),
            LogSync::Rows(sync) => sync.sync(),
        }
    }
}

impl From<IntentLog> for OperationLog {
    fn from(log: IntentLog) -> OperationLog {
        OperationLog::File(log)
    }
}

impl OperationLog {
    /// True if appended operations survive the end of this process before they are synced.
    pub fn outlives_process(&self) -> bool {
        matches!(self, OperationLog::File(_))
    }

    /// Looks for what the volume that says `header` of itself needs of it. Tells what is lost, if
    /// that is accepted.
    pub fn check(&mut self, header: &Header) -> Result<Option<String>> {
        match self {
            OperationLog::File(log) => log.check(header),
            OperationLog::Rows(log) => log.check(header),
        }
    }

    /// Words for records that [`OperationLog::records`] gave up, as that is accepted.
    pub fn take_given_up(&self) -> Option<String> {
        match self {
            OperationLog::File(_) => None,
            OperationLog::Rows(log) => log.take_given_up(),
        }
    }

    /// The end that what is lost of it is to come to.
    pub fn loss(&self) -> Loss {
        match self {
            OperationLog::File(log) => log.loss(),
            OperationLog::Rows(log) => log.loss(),
        }
    }

    /// Copies a log beside itself before a part of it is given up. Returns the path of the copy.
    pub fn set_aside(&self) -> Result<Option<String>> {
        match self {
            OperationLog::File(log) => Ok(log.set_aside()?.map(|path| path.display().to_string())),
            OperationLog::Rows(log) => log.set_aside(),
        }
    }

    /// Reads the records that the last commit, of `epoch`, could not store; they come before the
    /// others. `Lost` if they are damaged, unless that is accepted.
    pub fn carried(&self, epoch: u64) -> Result<Vec<Record>> {
        match self {
            OperationLog::File(log) => Ok(log.carried().to_vec()),
            OperationLog::Rows(log) => Ok(log.carried(epoch)?.into_iter().collect()),
        }
    }

    /// The epoch of a mount after that of `epoch`: odd while a volume needs its log to be opened
    /// again.
    pub fn next_epoch(&self, epoch: u64) -> u64 {
        match self {
            OperationLog::File(log) => log.next_epoch(epoch),
            OperationLog::Rows(_) => (epoch + 1) | 1,
        }
    }

    /// The first commit of `epoch`, after `commit`, is about to be made. What was found stays
    /// readable until it is durable.
    pub fn prepare(&mut self, epoch: u64, commit: CommitNo) -> Result<()> {
        match self {
            OperationLog::File(log) => log.prepare(epoch, commit),
            OperationLog::Rows(_) => Ok(()),
        }
    }

    /// Goes without the log, if nothing in it is needed and the file cannot be made. False if that
    /// cannot be.
    pub fn go_without(&mut self) -> bool {
        match self {
            OperationLog::File(log) if log.is_free() => {
                log.leave();
                true
            }
            OperationLog::File(_) | OperationLog::Rows(_) => false,
        }
    }

    /// The next records of `epoch` that begin after operation `after`, in order; none if there are
    /// no more.
    pub fn records(&self, epoch: u64, after: OpNo) -> Result<Vec<Record>> {
        match self {
            OperationLog::File(log) => {
                let later = log.records().iter().filter(|record| record.first > after);
                Ok(later.cloned().collect())
            }
            OperationLog::Rows(log) => log.records(epoch, after),
        }
    }

    /// Begins `epoch`, whose first commit is `commit`: earlier records mean nothing any more.
    pub fn start(&mut self, epoch: u64, commit: CommitNo) -> Result<()> {
        match self {
            OperationLog::File(log) => log.begin(commit),
            OperationLog::Rows(log) => {
                log.start(epoch);
                Ok(())
            }
        }
    }

    /// Takes no more if its file is gone, or if the volume is `closing`. Gives the epoch that the
    /// next commit then must have, by which the volume no longer needs the log.
    pub fn leave(&mut self, epoch: u64, closing: bool) -> Option<u64> {
        match self {
            OperationLog::File(log) if log.is_open() && needs_log(epoch) && (closing || log.is_gone()) => {
                log.leave();
                Some(epoch_without_log(epoch))
            }
            OperationLog::Rows(_) if needs_log(epoch) && closing => Some(epoch_without_log(epoch)),
            OperationLog::File(_) | OperationLog::Rows(_) => None,
        }
    }

    /// True if it is where it was opened.
    pub fn is_in_place(&self) -> bool {
        match self {
            OperationLog::File(log) => !log.is_gone(),
            OperationLog::Rows(_) => true,
        }
    }

    /// Commit `commit` is durable and has all there is; this lies in segments behind it.
    pub fn close(&mut self, commit: CommitNo, behind: Behind) -> Result<()> {
        match self {
            OperationLog::File(log) if !log.is_gone() => log.close(commit, behind),
            OperationLog::File(_) | OperationLog::Rows(_) => Ok(()),
        }
    }

    /// Stores the bytes that the commit of `batch` will lack: durably before it, or with it. False
    /// if there is no place for them.
    pub fn carry(&mut self, batch: &mut Batch, bytes: Vec<u8>) -> Result<bool> {
        match self {
            OperationLog::File(log) if !log.is_left() => {
                let sync = log.syncer()?;
                log.carry(batch.commit, batch.counters.op, bytes)?;
                sync.sync()?;
                log.keep(sync);
                Ok(true)
            }
            OperationLog::File(_) => Ok(false),
            OperationLog::Rows(_) => {
                batch.carried = bytes;
                Ok(true)
            }
        }
    }

    /// Names `commit`, which is durable. Once the result has synced, a database from before that
    /// commit is missed. None if no file can name it.
    pub fn name(&mut self, commit: CommitNo) -> Result<Option<LogSync>> {
        match self {
            OperationLog::File(log) if log.is_open() => {
                let sync = log.syncer()?;
                log.name(commit)?;
                Ok(Some(LogSync::File(sync)))
            }
            OperationLog::File(_) | OperationLog::Rows(_) => Ok(None),
        }
    }

    /// True if `bytes` more of operations can be appended.
    pub fn fits(&self, bytes: usize) -> bool {
        match self {
            OperationLog::File(log) => log.fits(bytes),
            OperationLog::Rows(log) => log.fits(bytes),
        }
    }

    /// True if the current half has anything in it.
    pub fn is_used(&self) -> bool {
        match self {
            OperationLog::File(log) => log.is_used(),
            OperationLog::Rows(log) => log.is_used(),
        }
    }

    /// True if it is time for a commit.
    pub fn is_half_full(&self) -> bool {
        match self {
            OperationLog::File(log) => log.is_half_full(),
            OperationLog::Rows(log) => log.is_half_full(),
        }
    }

    /// Appends operations `first` to `last`.
    pub fn append(&mut self, first: OpNo, last: OpNo, bytes: &Rope) -> Result<()> {
        match self {
            OperationLog::File(log) => log.append(first, last, bytes),
            OperationLog::Rows(log) => {
                log.append(first, last, bytes);
                Ok(())
            }
        }
    }

    /// Returns the handle that makes appends durable.
    pub fn syncer(&mut self) -> Result<LogSync> {
        Ok(match self {
            OperationLog::File(log) => LogSync::File(log.syncer()?),
            OperationLog::Rows(log) => LogSync::Rows(log.syncer()),
        })
    }

    /// Takes back a syncer that did not fail.
    pub fn keep(&mut self, sync: LogSync) {
        if let (OperationLog::File(log), LogSync::File(sync)) = (self, sync) {
            log.keep(sync);
        }
    }

    /// Goes on in the other half.
    pub fn switch(&mut self) {
        match self {
            OperationLog::File(log) => log.switch(),
            OperationLog::Rows(log) => log.switch(),
        }
    }

    /// Commit `commit` is durable, and contains all that was appended before
    /// [`OperationLog::switch`].
    pub fn release(&mut self, commit: CommitNo) {
        match self {
            OperationLog::File(log) => log.release(commit),
            OperationLog::Rows(log) => log.release(),
        }
    }
}

/// The epoch after `epoch` of a volume that needs no log to be opened again: even.
pub fn epoch_without_log(epoch: u64) -> u64 {
    (epoch + 2) & !1
}
