//! Asks the daemon of a mount to make changes durable, and why it could not.

use super::stats;
use crate::owner::Owner;
use anyhow::{Result, bail};
use std::fs::File;
use std::path::Path;

/// Advice where an error has no reason with it.
pub const LOG: &str = "the daemon's log tells why (weft.log in the volume or VOLUME.log; of one in PostgreSQL in /var/log/weft, or where --log says)";

/// Does `what` as the `owner` of the mount, if root works for that user.
pub fn asking<T: Send>(owner: Option<Owner>, what: impl FnOnce() -> T + Send) -> Result<T> {
    match owner {
        Some(owner) => owner.run(what),
        None => Ok(what()),
    }
}

/// Makes the kernel write back its cached changes. What was stored to a mapping of a file of the
/// past is refused (`EROFS`), and no change of the volume; of others the daemon knows which are
/// missing.
pub fn pass_on(directory: &Path) -> std::io::Result<()> {
    match rustix::fs::syncfs(File::open(directory)?) {
        Err(rustix::io::Errno::ROFS) => Ok(()),
        passed => Ok(passed?),
    }
}

/// Makes the daemon of the mount at `root` make all changes it received durable. Fails if the
/// kernel could not write all back.
pub fn fsync(root: &Path) -> Result<()> {
    File::open(root)?.sync_all()?;
    match stats::read(root)?["volume"]["failed_writeback"].as_str() {
        Some(missing) => bail!("{missing}"),
        None => Ok(()),
    }
}
/// Returns the reason that not all changes of the mount at `directory` can be committed, or the
/// place to find it.
pub fn why(directory: &Path) -> String {
    // A log that lay in the volume may be gone with it, or have had no room.
    let stats = stats::read(directory).unwrap_or_default();
    let told = ["lost", "commit_error", "failed_writeback"].iter().find_map(|why| stats["volume"][why].as_str());
    told.unwrap_or(LOG).into()
}
