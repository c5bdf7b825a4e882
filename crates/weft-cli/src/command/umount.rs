//! `weft umount`.

use crate::arguments::Umount;
use crate::daemon;
use anyhow::Result;
use std::process::ExitCode;

/// Unmounts, and waits until the daemon has committed all and let go of the volume.
pub fn run(arguments: &Umount) -> Result<ExitCode> {
    let stats = super::stats::read(&arguments.directory)?;
    let pid = stats["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok());
    let directory = arguments.directory.canonicalize()?;
    weft_fuse::unmount(&directory, arguments.lazy)?;
    match pid {
        Some(pid) if !arguments.lazy => daemon::await_end(pid)?,
        _ => {}
    }
    Ok(ExitCode::SUCCESS)
}
