//! Going to the background, and what signals do there.

use anyhow::{Context, Result, bail};
use std::fs::OpenOptions;
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::ExitCode;

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
    start: impl FnOnce() -> Result<T>,
    log: impl FnOnce(&T) -> &Path,
    serve: impl FnOnce(T, libc::sigset_t) -> Result<ExitCode>,
) -> Result<ExitCode> {
    if foreground {
        let signals = block_signals();
        return serve(start()?, signals);
    }
    match split()? {
        Side::Front(code) => Ok(code),
        Side::Daemon(starting) => {
            let signals = block_signals();
            match start() {
                Ok(started) => {
                    starting.succeeded(log(&started))?;
                    serve(started, signals)
                }
                Err(error) => {
                    starting.failed(&error);
                    Ok(ExitCode::FAILURE)
                }
            }
        }
    }
}

/// Splits off a daemon. Must be called before any thread is started or database opened: neither survives
/// a fork. The front process waits until the daemon serves or fails.
fn split() -> Result<Side> {
    let (read, write) = std::io::pipe().context("cannot make a pipe")?;
    // SAFETY: no other thread runs yet, so the child may do what it likes.
    match unsafe { libc::fork() } {
        -1 => bail!("cannot start the daemon: {}", std::io::Error::last_os_error()),
        0 => {
            drop(read);
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
            eprintln!("weft: the daemon ended before it served");
            ExitCode::FAILURE
        }
        (Ok(_), error) => {
            eprintln!("weft: {error}");
            ExitCode::FAILURE
        }
    }
}

impl Starting {
    /// The daemon serves: leaves the terminal, and writes messages to `log` from now on.
    fn succeeded(mut self, log: &Path) -> Result<()> {
        let log = OpenOptions::new().create(true).append(true).open(log);
        let null = OpenOptions::new().read(true).write(true).open("/dev/null").context("cannot open /dev/null")?;
        // A volume on read-only storage has no log; messages are then lost.
        let messages = log.unwrap_or(null.try_clone().context("cannot copy a descriptor")?);
        rustix::process::chdir("/").context("cannot leave the directory")?;
        rustix::stdio::dup2_stdin(&null).context("cannot leave the terminal")?;
        rustix::stdio::dup2_stdout(&messages).context("cannot leave the terminal")?;
        rustix::stdio::dup2_stderr(&messages).context("cannot leave the terminal")?;
        self.pipe.write_all(b"ok").context("cannot tell that the daemon serves")
    }

    /// Starting failed.
    fn failed(mut self, error: &anyhow::Error) {
        // If nobody waits any more, nobody is to be told.
        let _ = self.pipe.write_all(crate::command::one_line(error).as_bytes());
    }
}

/// Blocks SIGTERM, SIGINT and SIGHUP for this thread and those it starts; they are then awaited by
/// [`await_signal`]. Must be called before threads are started.
fn block_signals() -> libc::sigset_t {
    // SAFETY: an all-zero sigset_t is valid for sigemptyset to fill in, and the pointers are to locals.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
            libc::sigaddset(&raw mut set, signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
        set
    }
}

/// Waits for one of the blocked signals.
pub fn await_signal(set: &libc::sigset_t) {
    let mut signal = 0;
    // SAFETY: both pointers are valid for the call.
    unsafe { libc::sigwait(std::ptr::from_ref(set), &raw mut signal) };
}
