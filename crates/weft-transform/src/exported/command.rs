//! Any command of the shell as a stage: the compatible way, and the slow one, as all goes through
//! pipes.

use super::namespaces::{Ended, Spawned, Terms};
use crate::account::Account;
use crate::arguments::Arguments;
use crate::language::{Call, NetworkError};
use crate::source::Sources;
use crate::stage::{Stage, StageError};
use crate::threaded::{Reader, Threaded, Writer};
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::io::{self, BufRead, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// Seconds in which a command must take or give something, unless it is told otherwise; and the
/// most it can be told.
const IDLE_SECONDS: u64 = 60;
const IDLE_SECONDS_MAX: u64 = 86_400;

/// Bytes read at once.
const READ_BYTES: usize = 64 << 10;

/// Bytes of what a command says of its failure.
const SAID_BYTES: usize = 4096;

pub(crate) fn exec(call: &Call) -> Result<Stage, NetworkError> {
    let mut arguments = Arguments::read(call, "n", "t")?;
    let seconds = arguments.value('t', "a number of seconds")?.unwrap_or(IDLE_SECONDS);
    if !(1..=IDLE_SECONDS_MAX).contains(&seconds) {
        let message = format!("a command can be idle for 1 to {IDLE_SECONDS_MAX} seconds");
        return Err(NetworkError::new(message, arguments.word('t').map_or(call.name.at, |word| word.at)));
    }
    let command = arguments.operand("a command of the shell, in quotes")?.text.clone();
    arguments.end()?;
    let idle = Duration::from_secs(seconds);
    let has_network = arguments.has('n');
    let start = move |sources: &mut dyn Sources| {
        let owner = sources.owner().unwrap_or_else(|| geteuid().as_raw());
        let terms = Terms { has_network, owner, bounds: Account::now().bounds() };
        let given = Given { command: command.clone(), idle, terms };
        Ok(Threaded::new(move |reader, writer| run(&given, reader, writer)))
    };
    Ok(Stage { is_exported: true, is_repeatable: false, ..Stage::reading(start) })
}

/// Parameters of a command: its text, the time that it may do nothing, and the terms of its run.
struct Given {
    command: String,
    idle: Duration,
    terms: Terms,
}

fn run(given: &Given, reader: Reader, writer: &mut Writer) -> Result<(), StageError> {
    let mut spawned = Spawned::start(&given.command, given.terms)?;
    let stdin = spawned.stdin.take().expect("it was not taken before");
    let (taken, stop) = (Mutex::new(Instant::now()), reader.stop());
    let enough = Arc::new(bell()?);
    reader.ring(&enough);
    let (ended, said) = thread::scope(|scope| {
        scope.spawn(|| feed(reader, stdin, &taken, &enough));
        let mut attended = Attended { spawned: &mut spawned, idle: given.idle, taken: &taken, said: Vec::new() };
        let ended = attended.attend(&enough, writer);
        let said = attended.said;
        // Nobody feeds it any more; nor is anything left that it began.
        spawned.kill();
        stop.stop();
        (ended, said)
    });
    let exceeded = spawned.exceeded();
    let how = match ended? {
        // A shell may not mind that a part of a pipeline was killed; what it gave is not whole.
        Ended::Exit(0) if exceeded.is_none() => return Ok(()),
        // So the shell tells of a signal.
        Ended::Exit(code @ 129..) => format!("exit status: {code} (signal: {})", code - 128),
        Ended::Exit(code) => format!("exit status: {code}"),
        Ended::Signal(signal) => format!("signal: {signal}"),
    };
    let said = String::from_utf8_lossy(&said);
    let last = said.lines().last().map(|line| format!(": {line}")).unwrap_or_default();
    let exceeded = exceeded.map(|most| format!(", as its processes had {} MiB of memory together", most >> 20));
    Err(StageError::data(format!("it ended with {how}{}{last}", exceeded.unwrap_or_default())))
}

fn bell() -> io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

/// Gives the command all there is, as long as it takes any, until `enough` rings. `taken` is when
/// it last took something.
fn feed(mut reader: Reader, stdin: OwnedFd, taken: &Mutex<Instant>, enough: &OwnedFd) {
    // A command may end before it has read all, and whoever wanted its results may be gone.
    while let Ok(bytes) = reader.fill_buf()
        && !bytes.is_empty()
    {
        match rustix::io::write(&stdin, bytes) {
            Ok(count) => {
                *taken.lock() = Instant::now();
                reader.consume(count);
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                let mut waits = [PollFd::new(&stdin, PollFlags::OUT), PollFd::new(enough, PollFlags::IN)];
                match poll(&mut waits, None) {
                    Ok(_) if waits[1].revents().is_empty() => {}
                    Err(Errno::INTR) => {}
                    _ => return,
                }
            }
            Err(_) => return,
        }
    }
}

/// A command that is listened to until it has ended.
struct Attended<'a> {
    spawned: &'a mut Spawned,
    idle: Duration,
    /// Time at which it last took something.
    taken: &'a Mutex<Instant>,
    /// Its failure message so far.
    said: Vec<u8>,
}

impl Attended<'_> {
    /// Passes on what the command gives, until it has ended: not until nobody has its pipes any
    /// more. `Idle`, and an error if `enough` rings.
    fn attend(&mut self, enough: &OwnedFd, writer: &mut Writer) -> Result<Ended, StageError> {
        let mut last = Instant::now();
        let (mut gives, mut says) = (true, true);
        loop {
            last = last.max(*self.taken.lock());
            let left = self.idle.saturating_sub(last.elapsed());
            let wait = Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
            let wanted = |is: bool| if is { PollFlags::IN } else { PollFlags::empty() };
            let [ended, over, given, said] = {
                let spawned = &*self.spawned;
                let mut ready = [
                    PollFd::new(spawned.process(), PollFlags::IN),
                    PollFd::new(enough, PollFlags::IN),
                    // What has been closed is ready for ever.
                    PollFd::new(if gives { &spawned.stdout } else { enough }, wanted(gives)),
                    PollFd::new(if says { &spawned.stderr } else { enough }, wanted(says)),
                ];
                match poll(&mut ready, Some(&wait)) {
                    Err(Errno::INTR) => continue,
                    Err(error) => return Err(io::Error::from(error).into()),
                    Ok(_) => ready.map(|file| !file.revents().is_empty()),
                }
            };
            if over {
                return Err(io::Error::from(io::ErrorKind::BrokenPipe).into());
            }
            if says && (said || ended) {
                says = self.listen();
            }
            if gives && given {
                gives = self.pass_on(writer)?;
                last = Instant::now();
            } else if ended {
                // All that could write is gone; a pipe that somebody else got hold of is none of
                // ours.
                while gives && self.pass_on(writer)? {}
                return self.spawned.ended();
            } else if left.is_zero() {
                return Err(StageError::Idle(self.idle));
            }
        }
    }

    /// Passes on what there is now; false at the end, or if there is nothing.
    fn pass_on(&mut self, writer: &mut Writer) -> Result<bool, StageError> {
        let mut buffer = [0; READ_BYTES];
        let count = match rustix::io::read(&self.spawned.stdout, &mut buffer[..]) {
            Ok(count) => count,
            Err(Errno::AGAIN) => 0,
            Err(Errno::INTR) => return Ok(true),
            Err(error) => return Err(io::Error::from(error).into()),
        };
        writer.write_all(&buffer[..count])?;
        // What it gives late is of no use to somebody who reads.
        writer.flush()?;
        Ok(count > 0)
    }

    /// Takes in what it says, so that it never waits to say it; false at the end.
    fn listen(&mut self) -> bool {
        let mut buffer = [0; SAID_BYTES];
        match rustix::io::read(&self.spawned.stderr, &mut buffer[..]) {
            Ok(0) => false,
            Ok(count) => {
                let room = SAID_BYTES - self.said.len();
                self.said.extend_from_slice(&buffer[..count.min(room)]);
                true
            }
            Err(Errno::AGAIN | Errno::INTR) => true,
            Err(_) => false,
        }
    }
}
