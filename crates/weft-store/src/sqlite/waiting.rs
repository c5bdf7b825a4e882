//! Tells what the intent log of a volume has that nobody has mounted, beside whoever mounts it
//! meanwhile.

use super::behind;
use super::layout::Layout;
use super::open::{Beside, header, rot_of_log, would_lose};
use crate::error::Result;
use crate::files;
use crate::log::{IntentLog, Loss, misfit};
use crate::store::Header;
use crate::waiting::Waiting;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::path::Path;

/// Operations that wait in the intent log of the volume at `path`, and what is lost of them, as a
/// mount would find it. Nothing while somebody holds the volume: then its daemon knows. Errors: as
/// of [`header`].
pub fn waiting(path: &Path) -> Result<Waiting> {
    let layout = Layout::find(path)?;
    // Nothing is held while the log is read: a mount would be refused. One that came and went has
    // made commits.
    if is_held(&layout) {
        return Ok(Waiting::default());
    }
    if let Some(why) = rot_of_log(&layout)? {
        let lost = Some(would_lose(&layout, &why).to_string()).filter(|_| !is_held(&layout));
        return Ok(Waiting { operations: 0, lost });
    }
    let before = header(path)?;
    let found = match IntentLog::read(&layout.log)? {
        None => Waiting { operations: 0, lost: misfit(&layout.log, &before)? },
        Some(log) => {
            // A mount that accepts the loss applies what is left.
            let mut log = log.with(Loss::Accept);
            let lost = log.check(&before)?;
            let last = log.records().last().map_or(0, |record| record.last.0);
            Waiting { operations: last.saturating_sub(before.counters.op.0), lost }
        }
    };
    let lost = if found.lost.is_some() { None } else { beyond(path, &before)? };
    let found = Waiting { lost: lost.or(found.lost), ..found };
    if found == Waiting::default() || is_held(&layout) || header(path)? != before {
        return Ok(Waiting::default());
    }
    Ok(found)
}

/// Tells why segments are of a later moment than the database, if they are.
fn beyond(path: &Path, header: &Header) -> Result<Option<String>> {
    let volume = Beside::open(path)?;
    behind::misfit(&volume.layout, header, &volume.connect()?, volume.segments().as_ref())
}

/// True if a process holds the volume. No connection to its database may be open in this process:
/// closing a file drops the locks on it.
fn is_held(layout: &Layout) -> bool {
    [&layout.hold, &layout.database].into_iter().any(|path| {
        let opened = files::open(files::options().read(true), path);
        opened.is_ok_and(|file| flock(&file, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK))
    })
}
