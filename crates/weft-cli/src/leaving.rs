//! A volume that a daemon is about to let go of: it is unmounted, but not all is committed yet.

use crate::command::mounted;
use crate::watched::Watched;
use anyhow::{Result, anyhow};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};
use weft_store::Location;
use weft_store::sqlite::Layout;
use weft_vfs::say;

/// How long such a daemon is waited for.
const WAIT_MAX: Duration = Duration::from_secs(120);

/// After how long the user is told.
const TELL_AFTER: Duration = Duration::from_secs(2);

/// How often to look whether it is still one, and has not mounted the volume meanwhile.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Who holds a volume.
enum Holder {
    /// Nobody any more, or nobody knows who.
    Nobody,
    /// The daemon of a mount that is no more, or not yet.
    Leaving(u32),
    /// Somebody who may go on for long.
    Staying,
}

/// Opens the volume that `named` means by `open`, once more whenever a daemon that is leaving may
/// have let go of it.
pub fn open_after<T>(named: &Path, open: impl Fn() -> Result<T>) -> Result<T> {
    let begun = Instant::now();
    let (mut is_told, mut had_nobody) = (false, false);
    loop {
        let error = match open() {
            Err(error) if is_locked(&error) => error,
            opened => return opened,
        };
        let pid = match holder(named) {
            Holder::Leaving(pid) => pid,
            // It let go in between.
            Holder::Nobody if !std::mem::replace(&mut had_nobody, true) => continue,
            Holder::Nobody | Holder::Staying => return Err(error),
        };
        if begun.elapsed() > WAIT_MAX {
            let seconds = WAIT_MAX.as_secs();
            let why = format!("process {pid}, which had it mounted, has not let go of it for {seconds} seconds");
            return Err(anyhow!("{error}: {why}; its log tells what it waits for"));
        }
        if begun.elapsed() > TELL_AFTER && !std::mem::replace(&mut is_told, true) {
            let volume = named.display();
            say(format_args!("waiting for process {pid}, which had {volume} mounted, to commit and let go of it"));
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

fn holder(named: &Path) -> Holder {
    let layout = Location::parse(named).ok().and_then(|location| Layout::find(location.path()?).ok());
    let pid = layout.as_ref().and_then(|layout| locker(&layout.hold));
    let Some((pid, layout)) = pid.zip(layout) else { return Holder::Nobody };
    let volume = layout.volume.canonicalize().unwrap_or(layout.volume);
    if is_mounting(pid) && !mounted::is_mounted_by(pid, &volume) { Holder::Leaving(pid) } else { Holder::Staying }
}

/// The process that has locked `file` (proc_locks(5)).
fn locker(file: &Path) -> Option<u32> {
    let is = file.metadata().ok()?;
    let (major, minor) = (rustix::fs::major(is.dev()), rustix::fs::minor(is.dev()));
    let place = format!("{major:02x}:{minor:02x}:{}", is.ino());
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    locks.lines().find_map(|line| locker_in(line, &place))
}

/// The process that has locked what lies at `place` whole, if a line tells of it. Those that wait
/// for the lock have an arrow in theirs.
fn locker_in(line: &str, place: &str) -> Option<u32> {
    let words: Vec<_> = line.split_whitespace().collect();
    match words[..] {
        [_, "FLOCK", _, _, pid, at, ..] if at == place => pid.parse().ok().filter(|pid| *pid != 0),
        _ => None,
    }
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
    fn a_lock_is_found_by_where_its_file_lies() {
        let line = "12: FLOCK  ADVISORY  WRITE 4711 fe:00:1234 0 EOF";
        assert_eq!(locker_in(line, "fe:00:1234"), Some(4711));
        assert_eq!(locker_in(line, "fe:00:123"), None);
        assert_eq!(locker_in("12: -> FLOCK  ADVISORY  WRITE 4712 fe:00:1234 0 EOF", "fe:00:1234"), None);
        assert_eq!(locker_in("13: POSIX  ADVISORY  WRITE 4711 fe:00:1234 0 EOF", "fe:00:1234"), None);
        assert_eq!(locker_in("14: FLOCK  ADVISORY  WRITE 0 fe:00:1234 0 EOF", "fe:00:1234"), None);
    }

    #[test]
    fn this_process_holds_what_it_has_locked_and_stays() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(locker(file.path()), None);
        rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
        assert_eq!(locker(file.path()), Some(std::process::id()));
        assert!(!is_mounting(std::process::id()));
    }
}
