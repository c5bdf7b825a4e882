//! `weft stop`.

use crate::arguments::Stop;
use crate::daemons;
use crate::mounted;
use crate::shown;
use crate::watched::{Ended, Watched};
use anyhow::{Context, Result, bail};
use serde_json::json;
use std::process::ExitCode;
use std::time::Duration;
use weft_control::Kind;

/// Longest wait for the end of a server that did not answer.
const ENDING_MAX: Duration = Duration::from_secs(1);

/// Ends the server of a volume, and waits until it has committed all.
pub fn run(arguments: &Stop) -> Result<ExitCode> {
    let named = shown::path(&arguments.named);
    if mounted::is_mount_point(&arguments.named) {
        bail!("{named} is a mount; 'weft umount {named}' ends that");
    }
    let Some(daemon) = daemons::of(&arguments.named)? else {
        bail!("no daemon of this user serves {named}; 'weft status' lists what they serve")
    };
    let pid = daemon.socket.pid;
    if daemon.socket.kind == Kind::Mount {
        let place = daemon.status.as_ref().ok().and_then(|status| status["place"].as_str()).unwrap_or("DIRECTORY");
        bail!("{named} is mounted by process {pid}; 'weft umount {place}' ends that");
    }
    let process = Watched::new(pid)?;
    let stopped = daemon.answered("/stop").with_context(|| format!("{named} is still served"));
    // One that has ended needs no waiting.
    let Some(process) = process else { return Ok(ExitCode::SUCCESS) };
    // Somebody else may have told it before, so that it answers no more.
    if let Err(error) = stopped
        && !process.await_end_within(ENDING_MAX)?
    {
        return Err(error);
    }
    let limit = Duration::from_secs(arguments.timeout);
    if arguments.timeout > 0 && !process.await_end_within(limit)? {
        let seconds = shown::counted(arguments.timeout, "second", "seconds");
        bail!("process {pid}, which serves {named}, has not ended within {seconds}: it commits, or its server is away");
    }
    match process.await_end()? {
        Ended::Well | Ended::Unknown => {
            match arguments.json {
                true => outln!("{:#}", json!({ "stopped": named, "process": pid })),
                false => outln!("{named} is served no more; all is committed"),
            }
            Ok(ExitCode::SUCCESS)
        }
        Ended::Badly(_) => bail!("process {pid}, which served {named}, ended badly; its log says why"),
    }
}
