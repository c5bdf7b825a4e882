//! `weft umount`.

use super::asking::{LOG, asking, fsync, pass_on, why};
use crate::arguments::Umount;
use crate::daemons;
use crate::mounted;
use crate::opened::{UNSETTLED, UNSETTLED_ADVICE};
use crate::output;
use crate::owner::Owner;
use crate::shown;
use crate::watched::{Ended, Watched};
use anyhow::{Context, Result, bail};
use rustix::io::Errno;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use weft_attributes::Attribute;
use weft_store::{Location, PathWalk};

/// A place of a mount that this process does not see.
const ELSEWHERE: &str = "another mount namespace (a container)";

/// The wait(2) status of a daemon that could not write all it committed to its final place.
const UNSETTLED_STATUS: i32 = (crate::UNSETTLED_CODE as i32) << 8;

/// Longest time after which the user is told that the daemon is waited for.
const TELL_AFTER: Duration = Duration::from_secs(30);

/// Shortest limit of a wait that the user is told of before it is over.
const TOLD_FROM: Duration = Duration::from_secs(10);

/// Longest wait for programs whose reading of links was interrupted to end.
const READERS_MAX: Duration = Duration::from_secs(10);

/// Time between two attempts meanwhile, and their least number.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
const LOOKS_MIN: u32 = 5;

/// Environment variable that says that another process watches this one.
const WATCHED: &str = "WEFT_UMOUNT_WATCHED";

/// Unmounts, and waits until the daemon has committed all and closed the volume. Another process
/// does so: a process that waits for a mount whose daemon does not answer cannot be stopped, and
/// this one ends in time.
pub fn run(arguments: &Umount) -> Result<ExitCode> {
    if arguments.timeout == 0 || std::env::var_os(WATCHED).is_some() {
        return unmount_and_wait(arguments);
    }
    let mut command = Command::new("/proc/self/exe");
    command.arg("umount").arg("--timeout").arg(arguments.timeout.to_string()).env(WATCHED, "1");
    command.args(arguments.lazy.then_some("--lazy")).arg("--").arg(&arguments.directory);
    // The child may keep its files open for longer than this process lives.
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // Without /proc there is no other process, and no deadline.
    let Ok(mut child) = command.spawn() else { return unmount_and_wait(arguments) };
    if let Some(watched) = Watched::new(child.id())? {
        let limit = Duration::from_secs(arguments.timeout);
        let quiet = if limit < TOLD_FROM { limit } else { TELL_AFTER.min(limit / 2) };
        if !watched.await_end_within(quiet)? && quiet < limit {
            let seconds = arguments.timeout;
            tell_of_wait(&arguments.directory, &format!("up to {}", shown::counted(seconds, "second", "seconds")));
            watched.await_end_within(limit - quiet)?;
        }
    }
    if child.try_wait().context("cannot wait for the unmounting process")?.is_some() {
        let said = child.wait_with_output().context("cannot hear the unmounting process")?;
        // A missing reader is ignored.
        output::write(&said.stdout);
        let _ = std::io::stderr().write_all(&said.stderr);
        return Ok(ExitCode::from(said.status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)));
    }
    // No signal may reach it.
    let _ = child.kill();
    if arguments.lazy {
        // The kernel asks nobody for that.
        weft_fuse::unmount(&arguments.directory, true)?;
        return Ok(ExitCode::SUCCESS);
    }
    if !crate::mounted::is_mount_point(&arguments.directory) {
        bail!(
            "{} is unmounted, but its daemon still holds the volume after {}: it commits, or its server is away; {LOG}. It \
             ends by itself, and a new mount waits for it",
            arguments.directory.display(),
            shown::counted(arguments.timeout, "second", "seconds")
        );
    }
    bail!(
        "{} has not been let go of for {}: its daemon does not answer, or still commits, or the volume is mounted in \
         {ELSEWHERE}, too; {LOG}. Try again, with a longer --timeout, or give --lazy",
        arguments.directory.display(),
        shown::counted(arguments.timeout, "second", "seconds")
    )
}

/// Says that the daemon of the mount at `directory` is waited for, and how long that may last.
fn tell_of_wait(directory: &Path, limit: &str) {
    errln!(
        "weft: waiting, {limit}, for the daemon of {} to commit all and end; a copy of the mount in {ELSEWHERE} keeps it, too",
        shown::path(directory)
    );
}

/// Makes the daemon end all computing of networks: programs that wait for it keep a file system
/// mounted. If it refuses, it is only unmounted.
fn stop_computing(directory: &Path) {
    let mut said = [0; 16];
    let _ = rustix::fs::getxattr(directory, Attribute::StopComputing.name(), &mut said[..]);
}

fn unmount_and_wait(arguments: &Umount) -> Result<ExitCode> {
    if let Ok(location) = Location::parse(&arguments.directory)
        && location.address().is_some()
    {
        bail!("{}", crate::mounted::no_mount(Path::new(&location.to_string())));
    }
    let directory = std::path::absolute(&arguments.directory).context("cannot tell which directory is meant")?;
    refuse_links_of_others(&directory)?;
    let owner = Owner::of(&directory);
    if asking(owner, || super::stats::is_dead(&directory))? {
        // Its daemon was killed: nobody is left to commit anything, and nobody to wait for.
        let mounted = without_link(&directory);
        // The daemon of a volume in files waits for no other one.
        let is_in_files =
            Location::parse(&crate::mounted::volume_at(&mounted)).is_ok_and(|volume| volume.path().is_some());
        weft_fuse::unmount(&mounted, true)?;
        outln!("the daemon of {} had ended{}", directory.display(), after_its_end(is_in_files));
        return Ok(ExitCode::SUCCESS);
    }
    let stats = match asking(owner, || super::stats::read(&directory))? {
        // The root itself cannot be read, so the daemon cannot be asked anything.
        Err(error) if is_unreadable(&directory) => return unmount_unasked(&directory, arguments.lazy, &error),
        stats => stats?,
    };
    let directory = directory.canonicalize().with_context(|| format!("cannot find {}", directory.display()))?;
    let volume = crate::mounted::volume_at(&directory);
    let device = crate::mounted::mount_at(&directory).map(|(device, _)| device);
    let is_read_only =
        rustix::fs::statvfs(&directory).is_ok_and(|stat| stat.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY));
    let pid =
        stats["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok()).context("the daemon does not say its pid")?;
    owner.map_or(Ok(()), |owner| owner.refuse_other(pid))?;
    // Before it is unmounted: later its number may be another process's.
    let daemon = Watched::new(pid)?;
    if !arguments.lazy {
        asking(owner, || sync(&directory, is_read_only))??;
    }
    unmount_after_readers(&directory, arguments.lazy, owner, Computing::of(&stats))?;
    if let Some(elsewhere) =
        device.filter(|_| !arguments.lazy).and_then(|device| crate::mounted::place_of(device, &volume))
    {
        // Its daemon goes on: to wait for its end could take for ever.
        outln!("{} is unmounted; the volume stays mounted at {}", directory.display(), elsewhere.display());
        return Ok(ExitCode::SUCCESS);
    }
    if arguments.lazy {
        refuse_silent_loss(&directory, &stats)?;
    }
    match daemon {
        Some(daemon) if !arguments.lazy => wait(&daemon, &directory, owner, Some(&volume).filter(|_| !is_read_only)),
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// Fails if changes are given up by a lazy unmounting of `directory`, whose daemon told `stats`:
/// its last commit failed, and it ends soon.
fn refuse_silent_loss(directory: &Path, stats: &serde_json::Value) -> Result<()> {
    let Some(error) = stats["volume"]["commit_error"].as_str() else { return Ok(()) };
    let left = stats["volume"]["dirty_bytes"].as_u64().unwrap_or(0);
    bail!(
        "{} is unmounted, and {} of changes are given up that cannot be committed: {}",
        shown::path(directory),
        crate::size::show(left),
        shown::message(error)
    )
}

/// Says what may have become of a volume whose daemon has ended.
fn after_its_end(is_in_files: bool) -> String {
    let is_there = "what was synced is there at the next mount";
    if is_in_files {
        return format!("; {is_there}");
    }
    format!(
        ", or waited for a volume that another one took; {is_there}, unless the database lost commits or was put back to \
         an earlier state: {LOG}"
    )
}

/// Refuses to unmount for root through a link on the way to `directory` that is neither root's nor
/// of the user who mounted it.
fn refuse_links_of_others(directory: &Path) -> Result<()> {
    let (Some(parent), Some(name)) = (directory.parent(), directory.file_name()) else { return Ok(()) };
    // A missing path is reported where it is looked for.
    let Ok(way) = PathWalk::to(parent) else { return Ok(()) };
    let owner = crate::mounted::mount_at(&way.path.join(name)).map_or(0, |(_, (user, _))| user);
    way.refuse_links_of_others(owner, directory)?;
    // One that stands for the directory itself.
    mounted::refuse_foreign_link(directory)
}

/// True if a Weft volume is mounted at `directory` whose root cannot be read.
fn is_unreadable(directory: &Path) -> bool {
    let asked = rustix::fs::getxattr(directory, Attribute::Stats.name(), &mut [0_u8; 0][..]);
    // The directory itself need not be resolved.
    let real = directory.parent().and_then(|parent| parent.canonicalize().ok()).zip(directory.file_name());
    let real = real.map_or_else(|| directory.into(), |(parent, name)| parent.join(name));
    asked.is_err_and(|error| matches!(error, Errno::IO | Errno::STALE)) && crate::mounted::mount_at(&real).is_some()
}

/// Unmounts a mount whose daemon cannot be asked for its process, so that it cannot be waited for.
fn unmount_unasked(directory: &Path, lazy: bool, error: &anyhow::Error) -> Result<ExitCode> {
    unmount(&without_link(directory), lazy)?;
    bail!(
        "{} is unmounted, but its daemon could not be asked whether all is committed ({error}); {LOG}",
        directory.display()
    )
}

/// Follows `path` if it is a symbolic link; the file system at its end need not answer for that.
fn without_link(path: &Path) -> PathBuf {
    let target = std::fs::read_link(path).ok().zip(path.parent());
    target.map_or_else(|| path.into(), |(target, parent)| parent.join(target))
}

/// Makes the daemon make the changes received so far durable. While it cannot, waiting loses
/// nothing.
fn sync(directory: &Path, is_read_only: bool) -> Result<()> {
    if std::fs::File::open(directory).is_err() {
        return Ok(());
    }
    let failed = |why: &str| {
        format!(
            "{} stays mounted, as not all changes can be committed{why}. Mend that and try again, or give them up by --lazy",
            shown::path(directory)
        )
    };
    // An error of the kernel is a number, without the reason.
    let explained = || failed(&format!("; {}", why(directory)));
    match daemons::mounting(directory).ok().flatten().filter(|_| !is_read_only) {
        // An fsync keeps readers of the directory waiting as long as that takes, and cannot be
        // given up.
        Some(daemon) => {
            pass_on(directory).with_context(explained)?;
            daemon.commit().map(drop).with_context(|| failed(""))
        }
        None => fsync(directory).with_context(explained),
    }
}

/// Numbers of requests that networks compute for, and of those that were interrupted.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Computing {
    requests: u64,
    interrupted: u64,
}

impl Computing {
    fn of(stats: &serde_json::Value) -> Computing {
        let number = |name: &str| stats["volume"][name].as_u64().unwrap_or_default();
        Computing { requests: number("requests_computing"), interrupted: number("computing_interrupted") }
    }
}

/// Unmounts; waits for programs to leave whose reads of links were interrupted for that. `before`
/// has the counts from before.
fn unmount_after_readers(directory: &Path, lazy: bool, owner: Option<Owner>, before: Computing) -> Result<()> {
    let begun = Instant::now();
    let mut looked = 0;
    loop {
        asking(owner, || stop_computing(directory))?;
        let error = match unmount(directory, lazy) {
            Err(error) if is_busy(&error) && begun.elapsed() < READERS_MAX => error,
            unmounted => return unmounted,
        };
        #[expect(clippy::disallowed_methods, reason = "nobody tells when a program closes a file")]
        std::thread::sleep(LOOK_AGAIN);
        looked += 1;
        let Ok(stats) = asking(owner, || super::stats::read(directory))? else { return Err(error) };
        let now = Computing::of(&stats);
        // A request between two others is interrupted at the next.
        let is_interrupted = now.requests > 0 || now.interrupted > before.interrupted || before.requests > 0;
        if !is_interrupted && looked >= LOOKS_MIN {
            return Err(error);
        }
    }
}

fn is_busy(error: &anyhow::Error) -> bool {
    error.to_string().contains("busy")
}

fn unmount(directory: &Path, lazy: bool) -> Result<()> {
    match weft_fuse::unmount(directory, lazy) {
        Err(error) if !lazy && error.to_string().contains("busy") => {
            if let Some(inner) = mounted::mounted_below(directory) {
                bail!("{error}: another file system is mounted at {}; unmount that first", inner.display());
            }
            bail!("{error}; end what uses it ('fuser -vm {}' tells), or give --lazy", directory.display())
        }
        result => Ok(result?),
    }
}

fn wait(daemon: &Watched, directory: &Path, owner: Option<Owner>, written: Option<&PathBuf>) -> Result<ExitCode> {
    // The process that watches this one tells it.
    if std::env::var_os(WATCHED).is_none() && !daemon.await_end_within(TELL_AFTER)? {
        tell_of_wait(directory, "without a limit");
    }
    let ended = daemon.await_end()?;
    // The kernel may not tell how it ended.
    let left = asking(owner, || written.and_then(|volume| weft_store::sqlite::left_in_wal(volume)))?;
    if let (Ended::Well | Ended::Unknown | Ended::Badly(UNSETTLED_STATUS), Some(left)) = (&ended, left) {
        bail!("{} is unmounted; {UNSETTLED}, and {left} bytes are in it: {UNSETTLED_ADVICE}", directory.display());
    }
    match ended {
        Ended::Well | Ended::Unknown => Ok(ExitCode::SUCCESS),
        Ended::Badly(_) => {
            bail!(
                "{} is unmounted, but its daemon did not end well: changes that were not synced may be missing; {LOG}",
                directory.display()
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The daemon may have ended because the database was restored.
    #[test]
    fn what_was_synced_to_a_server_is_not_said_to_be_there_whatever_became_of_that() {
        assert!(after_its_end(true).ends_with("what was synced is there at the next mount"));
        let said = after_its_end(false);
        assert!(said.contains("unless the database lost commits") && said.contains("log tells why"), "{said}");
    }
}
