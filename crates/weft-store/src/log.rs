//! The intent log: a preallocated file to which an fsync appends the operations since the last
//! commit.
//!
//! It knows operations only as numbered bytes. A thread that has appended syncs after, perhaps
//! while the next appends: a [`Sync`] makes durable what was appended before it began, and reports
//! any write that failed since it was last used or made, even one begun elsewhere. The file has two
//! halves; a commit in flight retires one while fsyncs go on in the other ([`IntentLog::switch`]).
//!
//! An [`OperationLog`] is a log wherever it lies: that in a file is one (`in_file`), and engines
//! whose logs are rows have their own. This module knows none of them.
//!
//! A log and a database belong together: `file` writes, `judge` decides what a mount finds, by
//! records that `scan` reads sector by sector (`sector`) and a header that names the last mounts
//! (`slot`). Records go past the page cache (`writer`). docs/reference/format.md has the layout.

mod data_loss;
mod file;
mod in_file;
mod judge;
mod scan;
mod sector;
mod slot;
#[cfg(test)]
mod tests;
mod writer;

pub use data_loss::DataLoss;
pub use file::{IntentLog, Loss, Misfit, Sync, behind, doubt_behind, epoch_as_of, misfit};
pub use judge::needs_log;
pub use slot::Behind;

use crate::batch::Batch;
use crate::error::Result;
use crate::row::{CommitNo, OpNo};
use crate::store::Header;
use std::fmt;
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

/// The intent log of a volume, wherever it lies: a file ([`IntentLog`]), or rows of a server.
pub trait OperationLog: LogReplay + LogEpochs + LogAppends + Send {}

impl<T: LogReplay + LogEpochs + LogAppends + Send> OperationLog for T {}

/// Recovery from a log: the records that a mount applies, and losses.
pub trait LogReplay {
    /// Returns the action to take where the log lacks records that it should have.
    fn loss(&self) -> Loss;

    /// Looks for what the volume that says `header` of itself needs of it. Tells what is lost, if
    /// that is accepted. `Lost` if it is not: then nothing was changed.
    fn check(&mut self, header: &Header) -> Result<Option<DataLoss>>;

    /// The next records of `epoch` that begin after operation `after`, in order; none if there are
    /// no more.
    fn records(&self, epoch: u64, after: OpNo) -> Result<Vec<Record>>;

    /// Reads the records that the last commit, of `epoch`, could not store; they come before the
    /// others. `Lost` if they are damaged, unless that is accepted.
    fn carried(&self, epoch: u64) -> Result<Vec<Record>>;

    /// Returns the loss that [`LogReplay::records`] gave up, as that is accepted. Each is reported
    /// once.
    fn take_given_up(&self) -> Option<DataLoss>;

    /// Copies a log beside itself before a part of it is given up. Returns the place of the copy.
    fn set_aside(&self) -> Result<Option<String>>;
}

/// The epochs of a log: each mount begins one, and closes it.
pub trait LogEpochs {
    /// The epoch of a mount after that of `epoch`: odd while a volume needs its log to be opened
    /// again.
    fn next_epoch(&self, epoch: u64) -> u64;

    /// The first commit of `epoch`, after `commit`, is about to be made. What was found stays
    /// readable until it is durable.
    fn prepare(&mut self, epoch: u64, commit: CommitNo) -> Result<()>;

    /// Goes without the log, if nothing in it is needed and its place cannot be made. False if that
    /// cannot be.
    fn go_without(&mut self) -> bool;

    /// Begins `epoch`, whose first commit is `commit`: earlier records mean nothing any more.
    fn start(&mut self, epoch: u64, commit: CommitNo) -> Result<()>;

    /// Takes no more if its file is gone, or if the volume is `closing`. Gives the epoch that the
    /// next commit then must have, by which the volume no longer needs the log.
    fn leave(&mut self, epoch: u64, closing: bool) -> Option<u64>;

    /// Commit `commit` is durable and has all there is; this lies in segments behind it.
    fn close(&mut self, commit: CommitNo, behind: Behind) -> Result<()>;

    /// True if it is where it was opened.
    fn is_in_place(&self) -> bool;
}

/// Appending to a log, which commits make needless again.
pub trait LogAppends {
    /// True if appended operations survive the end of this process before they are synced.
    fn outlives_process(&self) -> bool;

    /// True if `bytes` more of operations can be appended.
    fn fits(&self, bytes: usize) -> bool;

    /// True if anything was appended since the last commit began.
    fn is_used(&self) -> bool;

    /// True if it is time for a commit.
    fn is_half_full(&self) -> bool;

    /// Appends operations `first` to `last`, which a sync then makes durable.
    fn append(&mut self, first: OpNo, last: OpNo, bytes: &Rope) -> Result<()>;

    /// Appends as [`LogAppends::append`] does where no sync follows soon.
    fn append_unsynced(&mut self, first: OpNo, last: OpNo, bytes: &Rope) -> Result<()> {
        self.append(first, last, bytes)
    }

    /// Stores the bytes that the commit of `batch` will lack: durably before it, or with it. False
    /// if there is no place for them.
    fn carry(&mut self, batch: &mut Batch, bytes: Vec<u8>) -> Result<bool>;

    /// Names `commit`, which is durable. Once the result has synced, a database from before that
    /// commit is missed. None if the log can name none.
    fn name(&mut self, commit: CommitNo) -> Result<Option<Box<dyn LogSync>>>;

    /// Returns the handle that makes appends durable.
    fn syncer(&mut self) -> Result<Box<dyn LogSync>>;

    /// Takes back a syncer that did not fail.
    fn keep(&mut self, sync: Box<dyn LogSync>);

    /// Goes on in the other half: a commit begins that contains all that was appended so far.
    fn switch(&mut self);

    /// Commit `commit` is durable, and contains all that was appended before
    /// [`LogAppends::switch`].
    fn release(&mut self, commit: CommitNo);
}

/// Makes appends durable.
pub trait LogSync: Send {
    /// Makes durable what was appended before it begins.
    fn sync(&self) -> Result<()>;
}

impl fmt::Debug for dyn LogSync {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LogSync")
    }
}

/// The epoch after `epoch` of a volume that needs no log to be opened again: even.
pub fn epoch_without_log(epoch: u64) -> u64 {
    (epoch + 2) & !1
}
