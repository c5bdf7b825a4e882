//! A volume that a daemon is about to close: it is unmounted, but not all is committed yet.

use crate::mounted;
use crate::watched::Watched;
use crate::{daemons, shown};
use anyhow::{Result, anyhow};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use weft_store::Location;
use weft_store::sqlite::{Holder, Layout};

/// Longest wait for such a daemon.
const WAIT_MAX: Duration = Duration::from_secs(120);

/// Time after which the user is told.
const TELL_AFTER: Duration = Duration::from_secs(2);

/// Interval between checks that the daemon is still leaving, and has not mounted the volume
/// meanwhile.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Holder of a volume.
enum Held {
    /// Nobody any more, or an unknown process.
    Nobody,
    /// The daemon of a mount that is no more, or not yet.
    Leaving(u32),
    /// The daemon of a mount at this directory, from where the volume was moved away.
    Moved(PathBuf),
    /// A process that may go on for long.
    Staying,
}

/// Opens the volume `named` by `open`. Tries again whenever a daemon that is leaving may have
/// closed it.
pub fn open_after<T>(named: &Path, open: impl Fn() -> Result<T>) -> Result<T> {
    let begun = Instant::now();
    let (mut is_told, mut had_nobody) = (false, false);
    loop {
        let error = match open() {
            Err(error) if is_locked(&error) => error,
            opened => return opened,
        };
        let pid = match holder(named) {
            Held::Leaving(pid) => pid,
            // It was closed in between.
            Held::Nobody if !std::mem::replace(&mut had_nobody, true) => continue,
            Held::Moved(directory) => {
                let place = shown::word(directory.as_os_str());
                return Err(error.context(format!(
                    "{} was moved while it was mounted at {}, and is mounted there still; move it back, then unmount it \
                     ('weft umount {place}')",
                    named.display(),
                    directory.display()
                )));
            }
            Held::Nobody | Held::Staying => return Err(error),
        };
        if begun.elapsed() > WAIT_MAX {
            let seconds = WAIT_MAX.as_secs();
            let why = format!("process {pid}, which had it mounted, has not let go of it for {seconds} seconds");
            return Err(anyhow!("{error}: {why}; its log tells what it waits for"));
        }
        if begun.elapsed() > TELL_AFTER && !std::mem::replace(&mut is_told, true) {
            let volume = named.display();
            tracing::info!("waiting for process {pid}, which had {volume} mounted, to commit and let go of it");
        }
        if let Some(daemon) = Watched::new(pid)? {
            daemon.await_end_within(LOOK_AGAIN)?;
        }
    }
}

/// True if a volume in files could not be opened because a process holds it.
fn is_locked(error: &anyhow::Error) -> bool {
    let mut causes = error.chain().filter_map(|cause| cause.downcast_ref::<weft_store::Error>());
    causes.any(|cause| matches!(cause, weft_store::Error::Locked(_)))
}

fn holder(named: &Path) -> Held {
    let layout = Location::parse(named).ok().and_then(|location| Layout::find(location.path()?).ok());
    match layout.as_ref().and_then(Holder::of) {
        None => Held::Nobody,
        Some(Holder { pid, mounted_at: None }) if is_mounting(pid) => match mount_of(pid) {
            Some(directory) => Held::Moved(directory),
            None => Held::Leaving(pid),
        },
        Some(_) => Held::Staying,
    }
}

/// Returns the directory where process `pid` has a volume mounted, as it reports to this user, and
/// as the kernel has it.
fn mount_of(pid: u32) -> Option<PathBuf> {
    let all = daemons::all().ok()?;
    let status = all.into_iter().find(|daemon| daemon.socket.pid == pid)?.status.ok()?;
    let directory = PathBuf::from(status["place"].as_str()?);
    mounted::mount_at(&directory).map(|_| directory)
}

/// True if process `pid` was called to mount a volume.
fn is_mounting(pid: u32) -> bool {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let mut words = line.split(|byte| *byte == 0);
    let program = words.next().and_then(|word| word.rsplit(|byte| *byte == b'/').next());
    program.is_some_and(|name| name.starts_with(b"mount.")) || words.next() == Some(b"mount")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_serves_no_mount_is_not_waited_for() {
        assert!(!is_mounting(std::process::id()));
    }
}
