//! Going to the background, handling of signals there, and re-exec.

mod log;
mod reexec;
mod signals;
mod supervisor;

#[cfg(feature = "jemalloc")]
use crate::allocator;
use anyhow::{Context, Result, bail};
pub use log::{Log, find_log};
use reexec::StartDirectory;
pub use reexec::{is_reexec, may_serve};
use rustix::process::{Pid, Signal, getpid, getppid, set_parent_process_death_signal};
use signals::{HangUp, Signals};
use std::fs::OpenOptions;
use std::io::{ErrorKind, PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsRawFd;
use std::process::ExitCode;
use std::sync::Arc;
pub use supervisor::Supervisor;

/// This process, which serves a volume or is about to.
#[derive(Clone)]
pub struct Daemon {
    signals: Arc<Signals>,
    place: StartDirectory,
}

/// Side of this process after [`split`].
enum Side {
    /// The process that the user started: exit with this.
    Front(ExitCode),
    /// The daemon: it must report how starting went.
    Daemon(Starting),
}

/// Channel to the waiting front process.
struct Starting {
    pipe: PipeWriter,
}

/// Makes a daemon `start`, in the background or in the `foreground`, and `serve` its result until
/// it ends. In the background messages go to its `log`. The front process waits until the daemon
/// serves, and reports a failure.
pub fn run<T>(
    foreground: bool,
    start: impl FnOnce(&Daemon) -> Result<T>,
    log: impl FnOnce(&T) -> Log,
    serve: impl FnOnce(T, &Daemon) -> Result<ExitCode>,
) -> Result<ExitCode> {
    let place = StartDirectory::here();
    if is_reexec() {
        weft_vfs::write_log();
        let daemon = Daemon::new(place, foreground)?;
        return match start(&daemon) {
            Ok(started) => {
                if !foreground {
                    let log = log(&started);
                    // It may have been renamed while the process waited for the volume.
                    log.reopen();
                    daemon.signals.reopen(log);
                }
                serve(started, &daemon)
            }
            Err(error) if reexec::may_pass(&error) => Err(daemon.place.reexec_later()),
            Err(error) => Err(error),
        };
    }
    if foreground {
        let daemon = Daemon::new(place, foreground)?;
        let started = start(&daemon)?;
        weft_vfs::write_log();
        return serve(started, &daemon);
    }
    match split()? {
        Side::Front(code) => Ok(code),
        Side::Daemon(starting) => {
            weft_vfs::keep_messages();
            let daemon = Daemon::new(place, foreground)?;
            match start(&daemon) {
                Ok(started) => {
                    let log = log(&started);
                    starting.succeeded(&log)?;
                    daemon.signals.reopen(log);
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
    /// Returns this process, in which threads may be started from now on.
    fn new(place: StartDirectory, foreground: bool) -> Result<Daemon> {
        #[cfg(feature = "jemalloc")]
        allocator::start_giving_back().context("cannot have free memory given back")?;
        let hang_up = if foreground && signals::has_terminal() { HangUp::Ends } else { HangUp::Nothing };
        Ok(Daemon { signals: Signals::take(hang_up)?, place })
    }

    /// Keeps signals from ending the process from now on. They do what [`Daemon::on_signal`] will
    /// set.
    pub fn hold_signals(&self) {
        self.signals.hold();
    }

    /// Sets the action of signals that ask for an end. A signal that came since
    /// [`Daemon::hold_signals`] counts.
    pub fn on_signal(&self, end: impl Fn() + Send + 'static) {
        self.signals.on(Box::new(end));
    }

    /// Executes this program again, without any state in memory, and waits for the volume of this
    /// id if need be. Returns only on failure, with the reason.
    pub fn reexec(&self, uuid: &[u8]) -> anyhow::Error {
        self.place.reexec(uuid)
    }
}

/// Splits off a daemon. Must be called before any thread is started or database opened: neither
/// survives a fork. The front process waits until the daemon serves or fails.
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

/// Makes this process end if `front` ends while it waits: nobody wants the service then.
fn end_with(front: Pid) -> Result<()> {
    set_parent_process_death_signal(Some(Signal::TERM)).context("cannot watch who started the daemon")?;
    if getppid() != Some(front) {
        bail!("who started the daemon has ended");
    }
    Ok(())
}

/// Closes inherited descriptors beyond the standard ones: a daemon that kept a script's lock or
/// pipe open would make others wait for it as long as it lives.
fn close_all_but(pipe: &PipeWriter) {
    let Ok(kept) = u32::try_from(pipe.as_raw_fd()) else { return };
    // SAFETY: nothing in this process owns a descriptor above 2 yet, except the pipe, which is left
    // open.
    unsafe {
        if kept > 3 {
            libc::syscall(libc::SYS_close_range, 3, kept - 1, 0);
        }
        libc::syscall(libc::SYS_close_range, kept + 1, u32::MAX, 0);
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
    /// Leaves the terminal, and writes messages to `log` from now on: the daemon serves.
    fn succeeded(mut self, log: &Log) -> Result<()> {
        let null = OpenOptions::new().read(true).write(true).open("/dev/null").context("cannot open /dev/null")?;
        rustix::process::chdir("/").context("cannot leave the directory")?;
        rustix::stdio::dup2_stdin(&null).context("cannot leave the terminal")?;
        if let Err(error) = log.begin() {
            if !matches!(error.kind(), ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied) {
                let path = log.path.display();
                tracing::warn!("cannot write messages to {path}: {error}; they are lost until the next mount");
            }
            // A volume on read-only storage has no log; messages are then lost.
            log::write_to(&null).context("cannot leave the terminal")?;
        }
        weft_vfs::write_log();
        // Data given up to start, above all, is to be found in the log later.
        weft_vfs::repeat_messages();
        set_parent_process_death_signal(None).context("cannot leave who started the daemon")?;
        self.pipe.write_all(b"ok").context("cannot tell that the daemon serves")
    }

    /// Reports that starting failed.
    fn failed(mut self, error: &anyhow::Error) {
        // The front process may be gone.
        let _ = self.pipe.write_all(crate::failure::one_line(error).as_bytes());
    }
}
