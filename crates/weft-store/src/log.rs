//! The intent log: a preallocated file to which an fsync appends the operations since the last commit.
//!
//! It knows operations only as numbered bytes. The file has two halves; a commit in flight retires one
//! while fsyncs go on in the other ([`IntentLog::switch`]). Records carry the mount's epoch, so that
//! those of an earlier mount are never taken for this one's.

use crate::{OpNo, Result};
use std::path::Path;

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

/// The log of one mounted volume.
#[derive(Debug)]
pub struct IntentLog {}

impl IntentLog {
    /// Opens the log at `path` for a mount, making it (with zeros written, so that an append changes no
    /// file-system metadata) when there is none or its size differs.
    pub fn open(_path: &Path, _bytes: u64) -> Result<IntentLog> {
        todo!()
    }

    /// The valid records of `epoch`, by first operation. Torn, overwritten and foreign ones are left out.
    pub fn records(&self, _epoch: u64) -> Result<Vec<Record>> {
        todo!()
    }

    /// From now on appends are of `epoch`, from the start of the first half.
    pub fn start(&mut self, _epoch: u64) -> Result<()> {
        todo!()
    }

    /// Whether a record of `bytes` bytes fits in what is left of the current half.
    pub fn fits(&self, _bytes: usize) -> bool {
        todo!()
    }

    /// Whether anything was appended to the current half.
    pub fn is_used(&self) -> bool {
        todo!()
    }

    /// Appends `bytes`, the operations `first..=last`; they are durable when it returns.
    pub fn append(&mut self, _first: OpNo, _last: OpNo, _bytes: &[u8]) -> Result<()> {
        todo!()
    }

    /// Goes on in the other half, whose records a durable commit must have made needless.
    pub fn switch(&mut self) {
        todo!()
    }
}
