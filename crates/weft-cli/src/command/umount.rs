//! `weft umount`.

use crate::arguments::Umount;
use crate::opened::{UNSETTLED, UNSETTLED_ADVICE};
use crate::output;
use crate::owner::Owner;
use crate::watched::{Ended, Watched};
use anyhow::{Context, Result, bail};
use rustix::io::Errno;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

/// The wait(2) status of a daemon that could not bring all it committed to where it lies.
const UNSETTLED_STATUS: i32 = (crate::UNSETTLED_CODE as i32) << 8;

/// Says, in the environment of a process, that another one watches it.
const WATCHED: &str = "WEFT_UMOUNT_WATCHED";

/// Unmounts, and waits until the daemon has committed all and let go of the volume. Another process
/// does so: one that waits for a mount whose daemon does not answer cannot be stopped, and this one
/// ends in time.
pub fn run(arguments: &Umount) -> Result<ExitCode> {
    if arguments.timeout == 0 || std::env::var_os(WATCHED).is_some() {
        return unmount_and_wait(arguments);
    }
    let mut command = Command::new("/proc/self/exe");
    command.args(std::env::args_os().skip(1)).env(WATCHED, "1");
    // It may keep its files open for longer than this process is there.
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // Without /proc there is no other process, and no deadline.
    let Ok(mut child) = command.spawn() else { return unmount_and_wait(arguments) };
    if let Some(watched) = Watched::new(child.id())? {
        watched.await_end_within(Duration::from_secs(arguments.timeout))?;
    }
    if child.try_wait().context("cannot wait for the unmounting process")?.is_some() {
        let said = child.wait_with_output().context("cannot hear the unmounting process")?;
        // Who does not listen is not told.
        output::write(&said.stdout);
        let _ = std::io::stderr().write_all(&said.stderr);
        return Ok(ExitCode::from(said.status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)));
    }
    // It may be where no signal reaches it.
    let _ = child.kill();
    if arguments.lazy {
        // The kernel asks nobody for that.
        weft_fuse::unmount(&arguments.directory, true)?;
        return Ok(ExitCode::SUCCESS);
    }
    bail!(
        "{} has not been let go of for {} seconds: its daemon does not answer, or still commits; {LOG}. Try again, with a longer --timeout, or give --lazy",
        arguments.directory.display(),
        arguments.timeout
    )
}

/// Has the daemon end all that networks compute: what programs wait for keeps a file system
/// mounted. One that refuses is asked for no more than to be unmounted.
fn stop_computing(directory: &Path) {
    let mut said = [0; 16];
    let _ = rustix::fs::getxattr(directory, weft_fuse::STOP_COMPUTING, &mut said[..]);
}

fn unmount_and_wait(arguments: &Umount) -> Result<ExitCode> {
    let directory = std::path::absolute(&arguments.directory).context("cannot tell which directory is meant")?;
    let owner = Owner::of(&directory);
    if asking(owner, || super::stats::is_dead(&directory))? {
        // Its daemon was killed: nobody is left to commit anything, and nobody to wait for.
        weft_fuse::unmount(&without_link(&directory), true)?;
        outln!(
            "the daemon of {} had ended, or waited for a volume that another one took; what was synced is there at the next mount",
            directory.display()
        );
        return Ok(ExitCode::SUCCESS);
    }
    let stats = match asking(owner, || super::stats::read(&directory))? {
        // The root itself cannot be read, so the daemon cannot be asked anything.
        Err(error) if is_unreadable(&directory) => return unmount_unasked(&directory, arguments.lazy, &error),
        stats => stats?,
    };
    let directory = directory.canonicalize().with_context(|| format!("cannot find {}", directory.display()))?;
    let volume = super::mounted::volume_at(&directory);
    let device = super::mounted::mount_at(&directory).map(|(device, _)| device);
    let is_read_only =
        rustix::fs::statvfs(&directory).is_ok_and(|stat| stat.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY));
    let pid =
        stats["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok()).context("the daemon does not say its pid")?;
    owner.map_or(Ok(()), |owner| owner.refuse_other(pid))?;
    // Before it is unmounted: later its number may be another process's.
    let daemon = Watched::new(pid)?;
    if !arguments.lazy {
        asking(owner, || sync(&directory))??;
    }
    stop_computing(&directory);
    unmount(&directory, arguments.lazy)?;
    if let Some(elsewhere) = device.and_then(super::mounted::place_of).filter(|_| !arguments.lazy) {
        // Its daemon goes on: to wait for its end could take for ever.
        outln!("{} is unmounted; the volume stays mounted at {}", directory.display(), elsewhere.display());
        return Ok(ExitCode::SUCCESS);
    }
    match daemon {
        Some(daemon) if !arguments.lazy => wait(&daemon, &directory, owner, Some(&volume).filter(|_| !is_read_only)),
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// True if a Weft volume is mounted at `directory` that answers with errors of input and output.
fn is_unreadable(directory: &Path) -> bool {
    let asked = rustix::fs::getxattr(directory, super::stats::ATTRIBUTE, &mut [0_u8; 0][..]);
    // What the directory itself leads to need not be told.
    let real = directory.parent().and_then(|parent| parent.canonicalize().ok()).zip(directory.file_name());
    let real = real.map_or_else(|| directory.into(), |(parent, name)| parent.join(name));
    asked.is_err_and(|error| error == Errno::IO) && super::mounted::mount_at(&real).is_some()
}

/// Unmounts what cannot be asked which process serves it, so that nobody can wait for that.
fn unmount_unasked(directory: &Path, lazy: bool, error: &anyhow::Error) -> Result<ExitCode> {
    unmount(&without_link(directory), lazy)?;
    bail!(
        "{} is unmounted, but its daemon could not be asked whether all is committed ({error}); {LOG}",
        directory.display()
    )
}

/// Does `what` as the `owner` of the mount, if root works for that user.
fn asking<T: Send>(owner: Option<Owner>, what: impl FnOnce() -> T + Send) -> Result<T> {
    match owner {
        Some(owner) => owner.run(what),
        None => Ok(what()),
    }
}

/// Follows `path` if it is a symbolic link; the file system at its end need not answer for that.
fn without_link(path: &Path) -> PathBuf {
    let target = std::fs::read_link(path).ok().zip(path.parent());
    target.map_or_else(|| path.into(), |(target, parent)| parent.join(target))
}

/// Has the daemon make durable what it was told so far. As long as it cannot, nothing is lost by waiting.
fn sync(directory: &Path) -> Result<()> {
    let Ok(opened) = std::fs::File::open(directory) else { return Ok(()) };
    opened.sync_all().with_context(|| {
        // A log that lay in the volume may be gone with it.
        let lost = super::stats::read(directory).ok().and_then(|stats| Some(stats["volume"]["lost"].as_str()?.to_owned()));
        let why = lost.unwrap_or_else(|| LOG.into());
        format!(
            "{} stays mounted, as not all changes can be committed; {why}. Mend that and try again, or give them up by --lazy",
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

fn wait(daemon: &Watched, directory: &Path, owner: Option<Owner>, written: Option<&PathBuf>) -> Result<ExitCode> {
    let ended = daemon.await_end()?;
    // The kernel may not tell how it ended.
    let left = asking(owner, || written.and_then(|volume| weft_store::sqlite::left_in_wal(volume)))?;
    if let (Ended::Well | Ended::Unknown | Ended::Badly(UNSETTLED_STATUS), Some(left)) = (&ended, left) {
        bail!("{} is unmounted; {UNSETTLED}, and {left} bytes are in it: {UNSETTLED_ADVICE}", directory.display());
    }
    match ended {
        Ended::Well | Ended::Unknown => Ok(ExitCode::SUCCESS),
        Ended::Badly(_) => {
            bail!("{} is unmounted, but its daemon failed to commit all changes; {LOG}", directory.display())
        }
    }
}
