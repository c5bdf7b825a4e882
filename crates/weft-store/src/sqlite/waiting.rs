//! Reports the operations in the intent log of a volume that nobody has mounted, also if a mount
//! begins meanwhile.

use super::behind;
use super::layout::Layout;
use super::lost_wal;
use super::open::{Beside, read_header};
use crate::error::Result;
use crate::files;
use crate::log::{IntentLog, Loss, misfit};
use crate::waiting::Waiting;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::path::Path;

/// Operations that wait in the intent log of the volume at `path`, and what is lost of them, as a
/// mount would find it. Nothing while somebody holds the volume: then its daemon knows. Errors: as
/// of [`super::header`].
pub fn waiting(path: &Path) -> Result<Waiting> {
    // Nothing is held while the log is read: a mount would be refused. One that came and went has
    // made commits.
    {
        let (layout, _rights) = Layout::enter(path)?;
        if is_held(&layout) {
            return Ok(Waiting { is_held: true, ..Waiting::default() });
        }
    }
    look(&Beside::open(path)?)
}

/// The same of `volume`. No connection to its database may be open in this process.
pub(super) fn look(volume: &Beside) -> Result<Waiting> {
    let layout = &volume.layout;
    if is_held(layout) {
        return Ok(Waiting { is_held: true, ..Waiting::default() });
    }
    if let Some(refusal) = lost_wal::refusal(layout, layout)? {
        // A mount may have come meanwhile, and gone.
        let is_sure = !is_held(layout) && lost_wal::refusal(layout, layout)?.is_some();
        let lost = is_sure.then(|| refusal.to_string()).filter(|_| !is_held(layout));
        return Ok(Waiting { lost, ..Waiting::default() });
    }
    let connection = volume.connect()?;
    let before = read_header(&connection)?;
    let found = match IntentLog::read(&layout.log)? {
        None => Waiting { lost: misfit(&layout.log, &before)?.map(|misfit| misfit.why), ..Waiting::default() },
        Some(log) => {
            // A mount that accepts the loss applies what is left.
            let mut log = log.with(Loss::Accept);
            let lost = log.check(&before)?.map(|lost| lost.to_string());
            let last = log.records().last().map_or(0, |record| record.last.0);
            let is_carried = !log.carried().is_empty();
            Waiting { operations: last.saturating_sub(before.counters.op.0), is_carried, lost, ..Waiting::default() }
        }
    };
    let beyond = match found.lost {
        Some(_) => None,
        None => behind::misfit(layout, &before, &connection, volume.segments().as_ref())?,
    };
    let found = Waiting { lost: beyond.or(found.lost), ..found };
    let is_same = read_header(&connection)? == before;
    // Looking whether it is held drops the locks that this process has.
    drop(connection);
    if found != Waiting::default() && (!is_same || is_held(layout)) {
        return Ok(Waiting { is_held: true, ..Waiting::default() });
    }
    Ok(found)
}

/// True if a process holds the volume. No connection to its database may be open in this process:
/// closing a file drops the locks on it.
pub(super) fn is_held(layout: &Layout) -> bool {
    [&layout.hold, &layout.database].into_iter().any(|path| {
        let opened = files::open(files::options().read(true), path);
        opened.is_ok_and(|file| flock(&file, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK))
    })
}
