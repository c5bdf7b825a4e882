//! Any command of the shell as a stage: the compatible way, and the slow one, as all goes through pipes.

use super::confined::confine;
use crate::arguments::Arguments;
use crate::language::{Call, NetworkError};
use crate::stage::{Stage, StageError};
use crate::threaded::{Reader, Threaded, Writer};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use std::io::{self, BufRead, Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Seconds in which a command must take or give something, unless it is told otherwise; and the most it can be told.
const IDLE_SECONDS: u64 = 60;
const IDLE_SECONDS_MAX: u64 = 86_400;

/// Bytes read at once.
const READ_BYTES: usize = 64 << 10;

/// Bytes of what a command says of its failure.
const SAID_BYTES: u64 = 4096;

pub(crate) fn exec(call: &Call) -> Result<Stage, NetworkError> {
    let mut arguments = Arguments::read(call, "", "t")?;
    let seconds = arguments.value('t', "a number of seconds")?.unwrap_or(IDLE_SECONDS);
    if !(1..=IDLE_SECONDS_MAX).contains(&seconds) {
        let message = format!("a command can be idle for 1 to {IDLE_SECONDS_MAX} seconds");
        return Err(NetworkError::new(message, arguments.word('t').map_or(call.name.at, |word| word.at)));
    }
    let command = arguments.operand("a command of the shell, in quotes")?.text.clone();
    arguments.end()?;
    let idle = Duration::from_secs(seconds);
    let start = move || {
        let command = command.clone();
        Threaded::new(move |reader, writer| run(&command, idle, reader, writer))
    };
    Ok(Stage { is_exported: true, is_repeatable: false, ..Stage::new(start) })
}

fn run(command: &str, idle: Duration, reader: Reader, writer: &mut Writer) -> Result<(), StageError> {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", command]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    confine(&mut shell);
    let mut child = Killed(shell.spawn().map_err(|error| StageError::data(format!("cannot start a shell: {error}")))?);
    let stdin = child.0.stdin.take().expect("piped");
    let stderr = child.0.stderr.take().expect("piped");
    let (taken, stop) = (AtomicU64::new(0), reader.stop());
    let (ended, said) = thread::scope(|scope| {
        scope.spawn(|| feed(reader, stdin, &taken));
        let said = scope.spawn(|| {
            let (mut said, mut stderr) = (Vec::new(), stderr);
            // The rest is read, so that nobody waits to say it. What cannot be read is not told.
            let _ = stderr.by_ref().take(SAID_BYTES).read_to_end(&mut said);
            let _ = io::copy(&mut stderr, &mut io::sink());
            said
        });
        let ended = give(&mut child, idle, &taken, writer).and_then(|()| wait(&child, idle));
        // Nobody feeds it, or hears what it says, any more; nor is anything left that it began.
        stop.stop();
        child.kill();
        (ended, said.join().unwrap_or_default())
    });
    ended?;
    let status = child.0.wait()?;
    if status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&said);
    let last = said.lines().last().map(|line| format!(": {line}")).unwrap_or_default();
    Err(StageError::data(format!("it ended with {status}{last}")))
}

/// Gives the command all there is, as long as it takes any.
fn feed(mut reader: Reader, mut stdin: ChildStdin, taken: &AtomicU64) {
    // A command may end before it has read all, and whoever wanted its results may be gone.
    while let Ok(bytes) = reader.fill_buf()
        && !bytes.is_empty()
    {
        let Ok(count) = stdin.write(bytes) else { return };
        taken.fetch_add(count as u64, Ordering::Relaxed);
        reader.consume(count);
    }
}

/// Passes on what the command gives.
fn give(child: &mut Killed, idle: Duration, taken: &AtomicU64, writer: &mut Writer) -> Result<(), StageError> {
    let mut stdout = child.0.stdout.take().expect("piped");
    let mut buffer = vec![0; READ_BYTES];
    let (mut last, mut before) = (Instant::now(), 0);
    loop {
        let left = idle.saturating_sub(last.elapsed());
        let mut ready = [PollFd::new(&stdout, PollFlags::IN)];
        let wait = Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
        match poll(&mut ready, Some(&wait)) {
            Ok(0) => {
                let now = taken.load(Ordering::Relaxed);
                if now == before {
                    return Err(StageError::Idle(idle));
                }
                (last, before) = (Instant::now(), now);
            }
            Ok(_) => {
                let count = stdout.read(&mut buffer)?;
                if count == 0 {
                    return Ok(());
                }
                writer.write_all(&buffer[..count])?;
                // What it gives late is of no use to somebody who reads.
                writer.flush()?;
                last = Instant::now();
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(io::Error::from(error).into()),
        }
    }
}

/// Waits until a command that gives nothing any more has ended.
fn wait(child: &Killed, idle: Duration) -> Result<(), StageError> {
    let Some(pid) = child.pid() else { return Ok(()) };
    let process = pidfd_open(pid, PidfdFlags::empty()).map_err(io::Error::from)?;
    let until = Instant::now() + idle;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let wait = Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
        match poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&wait)) {
            Ok(0) => return Err(StageError::Idle(idle)),
            Ok(_) => return Ok(()),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(io::Error::from(error).into()),
        }
    }
}

/// A process that ends, with all in its group, when this goes.
struct Killed(Child);

impl Killed {
    fn kill(&mut self) {
        if let Some(group) = self.pid() {
            // It may have ended.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }

    fn pid(&self) -> Option<Pid> {
        Pid::from_raw(i32::try_from(self.0.id()).ok()?)
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        self.kill();
        let _ = self.0.wait();
    }
}
