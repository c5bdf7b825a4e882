//! Operations of the intent log that the volume does not take any more: what they are about, and
//! what becomes of them when a volume opens.
//!
//! An operation that was synced holds all that was decided when it was made, so applying it to the
//! state that it followed always works. If it does not, that state is damaged or was repaired.

use super::Vfs;
use crate::clock::ManualClock;
use crate::opaque::Layer;
use crate::options::Options;
use std::fmt;
use std::sync::Arc;
use weft_store::log::{Loss, OperationLog};
use weft_store::{Ino, Kind, Name, OpNo, Store};
use weft_tree::{self, Error, ErrorKind, Mutation, Result};

/// Most operations that are kept by name; more are only counted.
const NAMED_MAX: usize = 1000;

/// An operation that was synced and cannot be applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unapplied {
    /// Its number.
    pub op: OpNo,
    /// The path that it is about, as far as one is known.
    pub path: Vec<u8>,
    /// The kind of operation, such as "the removal".
    pub kind: &'static str,
    /// Reason why it cannot be applied.
    pub why: String,
}

impl fmt::Display for Unapplied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (op, kind, path) = (self.op.0, self.kind, String::from_utf8_lossy(&self.path));
        write!(f, "operation {op}, {kind} of {path}, was synced and cannot be applied: {}", self.why)
    }
}

/// Operations of a log that cannot be applied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnappliedList {
    /// The first of them, in their order.
    pub named: Vec<Unapplied>,
    /// Number of operations beside those.
    pub more: u64,
}

/// The purpose for which a log is replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// To open the volume, with this done about operations that cannot be applied.
    Open(Loss),
    /// To see in memory whether it could be opened. Nothing is committed.
    Rehearse,
}

/// One replay under way: what could not be applied so far.
#[derive(Debug)]
pub(super) struct Replay {
    purpose: Purpose,
    pub(super) unapplied: UnappliedList,
}

impl Replay {
    pub(super) fn new(purpose: Purpose) -> Replay {
        Replay { purpose, unapplied: UnappliedList::default() }
    }

    /// True if nothing may be committed: a commit would pass operations that are not given up.
    pub(super) fn must_not_commit(&self) -> bool {
        match self.purpose {
            Purpose::Open(Loss::Accept) => false,
            Purpose::Open(Loss::Refuse) => !self.unapplied.named.is_empty(),
            Purpose::Rehearse => true,
        }
    }

    /// Passes over `operation`, number `op`, which fails with `error`. Gives the error back if it
    /// tells of a condition that may pass, and not of the volume's state.
    pub(super) fn pass(&mut self, vfs: &Vfs, op: OpNo, operation: Option<&Mutation<'_>>, error: Error) -> Result<()> {
        if !is_lasting(error.kind()) {
            return Err(error);
        }
        let is_first = self.unapplied.named.is_empty();
        if self.unapplied.named.len() == NAMED_MAX {
            self.unapplied.more += 1;
            return Ok(());
        }
        let (kind, path) = operation.map_or(("one", b"no known kind".to_vec()), |operation| told(vfs, operation));
        let unapplied = Unapplied { op, path, kind, why: error.to_string() };
        if self.purpose == Purpose::Open(Loss::Accept) {
            if is_first {
                vfs.set_log_aside()?;
            }
            tracing::warn!("going on without what is lost, as asked for: {unapplied}");
        }
        self.unapplied.named.push(unapplied);
        Ok(())
    }

    /// The end of a replay. `Lost` if operations that cannot be applied are not given up.
    pub(super) fn finish(self) -> Result<UnappliedList> {
        let (first, more) = match self.unapplied.named.split_first() {
            None => return Ok(self.unapplied),
            Some((first, others)) => (first, others.len() as u64 + self.unapplied.more),
        };
        match self.purpose {
            Purpose::Rehearse => Ok(self.unapplied),
            Purpose::Open(Loss::Accept) => {
                if self.unapplied.more > 0 {
                    let more = self.unapplied.more;
                    tracing::warn!("going on without {more} more operations that cannot be applied");
                }
                Ok(self.unapplied)
            }
            Purpose::Open(Loss::Refuse) => {
                let more = match more {
                    0 => String::new(),
                    1 => ", and one more operation".to_owned(),
                    more => format!(", and {more} more operations"),
                };
                let what = format!(
                    "{first}{more}; 'weft check' names all of them; restore the volume from a copy, or mount with \
                     --accept-loss, which gives up what cannot be applied and applies the rest"
                );
                Err(weft_store::Error::Lost(what).into())
            }
        }
    }
}

impl Vfs {
    /// Keeps a copy of the intent log, part of which is about to be given up.
    pub(super) fn set_log_aside(&self) -> Result<()> {
        let Some(log) = self.log.as_ref().filter(|_| !self.options.read_only) else { return Ok(()) };
        if let Some(copy) = log.lock().file.set_aside()? {
            tracing::info!("kept a copy of what is given up: {copy}");
        }
        Ok(())
    }
}

/// True if an operation that fails so would fail again, however often it is tried.
fn is_lasting(kind: ErrorKind) -> bool {
    match kind {
        ErrorKind::NotFound
        | ErrorKind::Exists
        | ErrorKind::NotDirectory
        | ErrorKind::IsDirectory
        | ErrorKind::NotEmpty
        | ErrorKind::Invalid
        | ErrorKind::NotPermitted
        | ErrorKind::AccessDenied
        | ErrorKind::NameTooLong
        | ErrorKind::TooBig
        | ErrorKind::TooManyLinks
        | ErrorKind::NoAttribute
        | ErrorKind::Range
        | ErrorKind::AttributeTooBig
        | ErrorKind::NoData
        | ErrorKind::NotSupported
        | ErrorKind::QuotaExceeded
        | ErrorKind::ReadOnly
        | ErrorKind::Corrupt
        | ErrorKind::Loop
        | ErrorKind::Stale => true,
        ErrorKind::NoSpace
        | ErrorKind::NoMemory
        | ErrorKind::Io
        | ErrorKind::CrossDevice
        | ErrorKind::NotSynchronized
        | ErrorKind::TimedOut
        | ErrorKind::WouldBlock
        | ErrorKind::Interrupted
        | ErrorKind::Busy => false,
    }
}

/// The kind of `operation` and the path that it is about.
fn told(vfs: &Vfs, operation: &Mutation<'_>) -> (&'static str, Vec<u8>) {
    let of_name = |(parent, name): (Ino, &Name)| {
        let mut path = vfs.path(parent);
        if !path.ends_with(b"/") {
            path.push(b'/');
        }
        path.extend_from_slice(name.as_bytes());
        path
    };
    match operation {
        Mutation::Make { parent, name, inode } => {
            let kind = match inode.kind {
                Kind::Directory => "the making of directory",
                _ => "the making",
            };
            let path = match name {
                Some((name, _)) => of_name((*parent, name)),
                None => format!("#{}", inode.ino.0).into_bytes(),
            };
            (kind, path)
        }
        Mutation::Link { parent, name, .. } => ("the link", of_name((*parent, name))),
        Mutation::Remove { parent, name, .. } => ("the removal", of_name((*parent, name))),
        Mutation::Rename { from, .. } | Mutation::Whiteout { from, .. } => ("the renaming", of_name((from.0, &from.1))),
        Mutation::Attributes { ino, .. } => ("a change of attributes", vfs.path(*ino)),
        Mutation::Write { ino, .. } => ("a write", vfs.path(*ino)),
        Mutation::Zero { ino, .. } => ("a change of the length or a hole", vfs.path(*ino)),
        Mutation::Share { to, .. } => ("sharing of blocks, a write", vfs.path(to.0)),
        Mutation::Replace { ino, .. } => ("the replacement of all content", vfs.path(*ino)),
        Mutation::Xattr { ino, name, .. } => {
            let mut path = vfs.path(*ino);
            path.extend([b" (", name.as_bytes(), b")"].concat());
            ("a change of an extended attribute", path)
        }
    }
}

/// The operation that `bytes` of a record hold.
pub(super) fn decoded(mut bytes: &[u8]) -> Result<Mutation<'_>> {
    let what = || weft_store::Error::Corrupt("the log holds there what no Weft writes".into());
    weft_tree::decode(&mut bytes).ok_or_else(|| what().into())
}

impl Vfs {
    /// Looks, in memory alone, which operations that wait in `log` could not be applied to the
    /// volume in `store` by a mount. Nothing is written. Empty if it cannot be told without that.
    pub fn rehearse(store: Arc<dyn Store>, log: Option<Box<dyn OperationLog>>) -> Result<UnappliedList> {
        // Enough for all that a log holds: nothing may have to be committed for want of room.
        let dirty_bytes_max = 1 << 40;
        let options = Options { read_only: true, background: false, dirty_bytes_max, ..Options::default() };
        let vfs = Vfs::assemble(Layer::absent(), store, log, options, Arc::new(ManualClock::default()), None)?;
        {
            let mut state = vfs.state.lock();
            (state.tree.keep_orphans, state.space_free) = (true, u64::MAX);
        }
        vfs.replay(Purpose::Rehearse)
    }
}
