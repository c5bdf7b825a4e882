//! Going to the background, what signals do there, and beginning anew.

mod anew;
mod signals;

use crate::allocator;
use anew::Place;
pub use anew::{is_begun_anew, may_serve};
use anyhow::{Context, Result, bail};
use rustix::fs::OFlags;
use rustix::process::{Pid, Signal, getpid, getppid, set_parent_process_death_signal};
use signals::Signals;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

/// This process, which serves something or is about to.
#[derive(Clone)]
pub struct Daemon {
    signals: Arc<Signals>,
    place: Place,
}

/// Which of the two processes this is after [`split`].
enum Side {
    /// The one the user started: exit with this.
    Front(ExitCode),
    /// The daemon: it must say how starting went.
    Daemon(Starting),
}

/// What the waiting front process is told.
struct Starting {
    pipe: PipeWriter,
}

/// Has a daemon `start`, in the background or in the `foreground`, and `serve` what that gave until it ends. In the background messages
/// go to its `log`, and who started it waits until it serves, and is told if it does not.
pub fn run<T>(
    foreground: bool,
    start: impl FnOnce(&Daemon) -> Result<T>,
    log: impl FnOnce(&T) -> &Path,
    serve: impl FnOnce(T, &Daemon) -> Result<ExitCode>,
) -> Result<ExitCode> {
    let place = Place::here();
    if is_begun_anew() {
        let daemon = Daemon::new(place)?;
        return match start(&daemon) {
            Ok(started) => serve(started, &daemon),
            Err(error) if anew::may_pass(&error) => Err(daemon.place.begin_anew_later()),
            Err(error) => Err(error),
        };
    }
    if foreground {
        let daemon = Daemon::new(place)?;
        return serve(start(&daemon)?, &daemon);
    }
    match split()? {
        Side::Front(code) => Ok(code),
        Side::Daemon(starting) => {
            weft_vfs::keep_messages();
            let daemon = Daemon::new(place)?;
            match start(&daemon) {
                Ok(started) => {
                    starting.succeeded(log(&started))?;
                    serve(started, &daemon)
                }
                Err(error) => {
                    starting.failed(&error);
                    Ok(ExitCode::FAILURE)
                }
            }
        }
    }
}

impl Daemon {
    /// This process, in which threads may be started from now on.
    fn new(place: Place) -> Result<Daemon> {
        allocator::start_giving_back().context("cannot have free memory given back")?;
        Ok(Daemon { signals: Signals::take()?, place })
    }

    /// From now on a signal does not end the process any more, but does what [`Daemon::on_signal`] will say.
    pub fn hold_signals(&self) {
        self.signals.hold();
    }

    /// What a signal that asks for an end does, one that came since [`Daemon::hold_signals`] included.
    pub fn on_signal(&self, end: impl Fn() + Send + 'static) {
        self.signals.on(Box::new(end));
    }

    /// Begins anew, without anything of what is in memory, and waits for the volume of this id if
    /// need be. Gives why not if that cannot be.
    pub fn begin_anew(&self, uuid: &[u8]) -> anyhow::Error {
        self.place.begin_anew(uuid)
    }
}

/// Splits off a daemon. Must be called before any thread is started or database opened: neither survives
/// a fork. The front process waits until the daemon serves or fails.
fn split() -> Result<Side> {
    let (read, write) = std::io::pipe().context("cannot make a pipe")?;
    let front = getpid();
    // SAFETY: no other thread runs yet, so the child may do what it likes.
    match unsafe { libc::fork() } {
        -1 => bail!("cannot start the daemon: {}", std::io::Error::last_os_error()),
        0 => {
            drop(read);
            end_with(front)?;
            close_all_but(&write);
            rustix::process::setsid().context("cannot start a session")?;
            Ok(Side::Daemon(Starting { pipe: write }))
        }
        _ => {
            drop(write);
            Ok(Side::Front(wait(read)))
        }
    }
}

/// Opens the file that messages go to, for its owner alone. A link that somebody else put there is
/// not followed.
fn open_log(path: &Path) -> std::io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    OpenOptions::new().create(true).append(true).mode(0o600).custom_flags(flags.bits().cast_signed()).open(path)
}

/// Finds the log that the user asked for, or says why messages cannot go there: before anything is
/// served, as nobody would hear of it later.
pub fn find_log(asked: Option<&Path>) -> Result<Option<PathBuf>> {
    let Some(asked) = asked else { return Ok(None) };
    let cannot = || format!("cannot write messages to {}", asked.display());
    let path = follow_own_links(asked).with_context(cannot)?;
    match open_log(&path) {
        Err(error) if error.raw_os_error() == Some(libc::ELOOP) => {
            bail!("{}: it is a symbolic link in a directory where others can make one; name its target", cannot())
        }
        opened => opened.map(|_| Some(path)).with_context(cannot),
    }
}

/// Most symbolic links that are followed, as the kernel does (path_resolution(7)).
const LINKS_MAX: u32 = 40;

/// The path of a file, in a directory without links on the way to it. It is a symbolic link itself
/// only where somebody else could have made that: it may lead to any file of this user.
fn follow_own_links(path: &Path) -> std::io::Result<PathBuf> {
    let mut path = path.to_path_buf();
    for _ in 0..LINKS_MAX {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let directory = parent.canonicalize()?;
        let file = directory.join(path.file_name().ok_or(std::io::ErrorKind::InvalidFilename)?);
        if others_write(&directory.metadata()?) || !file.is_symlink() {
            return Ok(file);
        }
        path = directory.join(file.read_link()?);
    }
    Err(std::io::Error::from_raw_os_error(libc::ELOOP))
}

/// Whether others than this user and root can make files in a directory of these attributes.
fn others_write(directory: &std::fs::Metadata) -> bool {
    let owners = [0, rustix::process::geteuid().as_raw()];
    directory.mode() & 0o022 != 0 || !owners.contains(&directory.uid())
}

/// Has this process told to end if `front` is ended while it waits: nobody wants what it would serve then.
fn end_with(front: Pid) -> Result<()> {
    set_parent_process_death_signal(Some(Signal::TERM)).context("cannot watch who started the daemon")?;
    if getppid() != Some(front) {
        bail!("who started the daemon has ended");
    }
    Ok(())
}

/// Closes what the program was started with beyond the standard descriptors: a daemon that kept a script's lock
/// or pipe open would make others wait for it as long as it lives.
fn close_all_but(pipe: &PipeWriter) {
    let Ok(kept) = u32::try_from(pipe.as_raw_fd()) else { return };
    // SAFETY: nothing in this process owns a descriptor above 2 yet, except the pipe, which is left open.
    unsafe {
        if kept > 3 {
            libc::close_range(3, kept - 1, 0);
        }
        libc::close_range(kept + 1, u32::MAX, 0);
    }
}

fn wait(mut pipe: PipeReader) -> ExitCode {
    let mut said = String::new();
    let read = pipe.read_to_string(&mut said);
    match (read, said.as_str()) {
        (Ok(_), "ok") => ExitCode::SUCCESS,
        (Ok(_), "") | (Err(_), _) => {
            errln!("weft: the daemon ended before it served");
            ExitCode::FAILURE
        }
        (Ok(_), error) => {
            errln!("weft: {}", weft_vfs::printable(error));
            ExitCode::FAILURE
        }
    }
}

impl Starting {
    /// The daemon serves: leaves the terminal, and writes messages to `log` from now on.
    fn succeeded(mut self, log: &Path) -> Result<()> {
        let opened = open_log(log);
        if let Err(error) = &opened
            && !matches!(error.kind(), ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied)
        {
            let log = log.display();
            weft_vfs::say(format_args!("cannot write messages to {log}: {error}; they are lost until the next mount"));
        }
        let null = OpenOptions::new().read(true).write(true).open("/dev/null").context("cannot open /dev/null")?;
        // A volume on read-only storage has no log; messages are then lost.
        let messages = opened.unwrap_or(null.try_clone().context("cannot copy a descriptor")?);
        rustix::process::chdir("/").context("cannot leave the directory")?;
        rustix::stdio::dup2_stdin(&null).context("cannot leave the terminal")?;
        rustix::stdio::dup2_stdout(&messages).context("cannot leave the terminal")?;
        rustix::stdio::dup2_stderr(&messages).context("cannot leave the terminal")?;
        // What was given up to start, above all, is to be found later.
        weft_vfs::repeat_messages();
        set_parent_process_death_signal(None).context("cannot leave who started the daemon")?;
        self.pipe.write_all(b"ok").context("cannot tell that the daemon serves")
    }

    /// Starting failed.
    fn failed(mut self, error: &anyhow::Error) {
        // If nobody waits any more, nobody is to be told.
        let _ = self.pipe.write_all(crate::command::one_line(error).as_bytes());
    }
}
