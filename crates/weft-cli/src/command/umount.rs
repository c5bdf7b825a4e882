//! `weft umount`.

use crate::arguments::Umount;
use crate::watched::{Ended, Watched};
use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::ExitCode;

/// Unmounts, and waits until the daemon has committed all and let go of the volume.
pub fn run(arguments: &Umount) -> Result<ExitCode> {
    let directory = std::path::absolute(&arguments.directory).context("cannot tell which directory is meant")?;
    if super::stats::is_dead(&directory) {
        // Its daemon was killed: nobody is left to commit anything, and nobody to wait for.
        weft_fuse::unmount(&directory, true)?;
        return Ok(ExitCode::SUCCESS);
    }
    let stats = super::stats::read(&directory)?;
    let directory = directory.canonicalize().with_context(|| format!("cannot find {}", directory.display()))?;
    let pid =
        stats["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok()).context("the daemon does not say its pid")?;
    // Before it is unmounted: later its number may be another process's.
    let daemon = Watched::new(pid)?;
    if !arguments.lazy {
        sync(&directory)?;
    }
    unmount(&directory, arguments.lazy)?;
    match daemon {
        Some(daemon) if !arguments.lazy => wait(&daemon, &directory),
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// Has the daemon make durable what it was told so far. As long as it cannot, nothing is lost by waiting.
fn sync(directory: &Path) -> Result<()> {
    let Ok(opened) = std::fs::File::open(directory) else { return Ok(()) };
    opened.sync_all().with_context(|| {
        format!(
            "{} stays mounted, as not all changes can be committed; {LOG}. Mend that and try again, or give them up by --lazy",
            directory.display()
        )
    })
}

const LOG: &str = "the daemon's log tells why (weft.log in the volume or VOLUME.log; of one in PostgreSQL in /var/log/weft, or where --log says)";

fn unmount(directory: &Path, lazy: bool) -> Result<()> {
    match weft_fuse::unmount(directory, lazy) {
        Err(error) if !lazy && error.to_string().contains("busy") => {
            bail!("{error}; end what uses it ('fuser -vm {}' tells), or give --lazy", directory.display())
        }
        result => Ok(result?),
    }
}

fn wait(daemon: &Watched, directory: &Path) -> Result<ExitCode> {
    match daemon.await_end()? {
        Ended::Well | Ended::Unknown => Ok(ExitCode::SUCCESS),
        Ended::Badly(_) => {
            bail!("{} is unmounted, but its daemon failed to commit all changes; {LOG}", directory.display())
        }
    }
}
