//! Bytes that go from one process to another: by a channel where a volume is, by pipes elsewhere.
//! The one process fills fresh bytes, the other adds all of them up, by the same code whatever lies
//! between. No file is read.

use crate::facts;
use crate::place::Place;
use crate::scale::Scale;
use crate::timing::time;
use anyhow::{Context, Result, bail, ensure};
use rustix::fd::{AsFd, OwnedFd};
use rustix::pipe::{IoSliceRaw, SpliceFlags, fcntl_setpipe_size, splice, vmsplice};
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use weft_block::{Buffer, Rope};
use weft_client::channel::{PLACE_BYTES, Receiver, Sender, sockets};

const LARGE_PIPE: usize = 1 << 20;

/// Transport between the processes. The writer gets its name as an argument.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    /// write(2) and read(2), a pipe of 64 KiB.
    Pipe,
    /// vmsplice(2) of so many bytes and read(2), a large pipe.
    Vmsplice(usize),
    /// vmsplice(2), and splice(2) to where nothing is done with it: nobody looks at any byte.
    Splice,
    Channel,
    /// A channel, and nobody looks at any byte.
    Unread,
}

const WAYS: [(&str, Way); 6] = [
    ("pipe", Way::Pipe),
    ("vmsplice-64k", Way::Vmsplice(64 << 10)),
    ("vmsplice-256k", Way::Vmsplice(256 << 10)),
    ("splice", Way::Splice),
    ("channel", Way::Channel),
    ("unread", Way::Unread),
];

impl Way {
    /// Bytes that are filled, passed on and added up at a time.
    fn chunk(self) -> usize {
        match self {
            Way::Pipe => 64 << 10,
            Way::Vmsplice(chunk) => chunk,
            Way::Splice => LARGE_PIPE / 4,
            Way::Channel | Way::Unread => PLACE_BYTES,
        }
    }

    fn is_read(self) -> bool {
        !matches!(self, Way::Splice | Way::Unread)
    }

    /// The writer's end and the reader's.
    fn ends(self) -> Result<(OwnedFd, OwnedFd)> {
        if matches!(self, Way::Channel | Way::Unread) {
            return Ok(sockets()?);
        }
        let (reader, writer) = std::io::pipe()?;
        if self != Way::Pipe {
            fcntl_setpipe_size(&writer, LARGE_PIPE).context("a pipe cannot have 1 MiB")?;
        }
        Ok((writer.into(), reader.into()))
    }
}

/// Placement of the processes on processors.
#[derive(Clone, Copy, Debug)]
enum Processors {
    /// The kernel's choice.
    Any,
    /// Each on one of its own, if there are two.
    Apart,
    /// Both on one.
    One,
}

impl Processors {
    /// Returns the processors of the writer and of the reader; `None` for any.
    fn pick(self) -> Result<Option<[usize; 2]>> {
        let allowed = rustix::thread::sched_getaffinity(None)?;
        let mut numbers = (0..rustix::thread::CpuSet::MAX_CPU).filter(|number| allowed.is_set(*number));
        let first = numbers.next().context("this program may run nowhere")?;
        Ok(match self {
            Processors::Any => None,
            Processors::Apart => Some([first, numbers.next().unwrap_or(first)]),
            Processors::One => Some([first; 2]),
        })
    }
}

/// Names and units of what [`run`] gives: each by what is compared elsewhere.
pub(super) const PARTS: &[(&str, &str)] = &[
    ("channel-pipe", "MB/s"),
    ("channel-vmsplice", "MB/s"),
    ("channel-vmsplice-apart", "MB/s"),
    ("channel-vmsplice-one-cpu", "MB/s"),
    ("channel-unread-splice", "MB/s"),
];

/// The rates, in that order: of channels in a volume; elsewhere of a pipe of 64 KiB, of vmsplice(2)
/// into a large one (the better of two lengths), and of vmsplice(2) and splice(2).
pub(super) fn run(place: &Place, scale: &Scale) -> Result<Vec<f64>> {
    let bytes = scale.size << 20;
    let is_volume = place.is_volume();
    let pick = |elsewhere: &'static [Way], here: &'static [Way]| if is_volume { here } else { elsewhere };
    const VMSPLICE: &[Way] = &[Way::Vmsplice(64 << 10), Way::Vmsplice(256 << 10)];
    let parts = [
        (pick(&[Way::Pipe], &[Way::Channel]), Processors::Any),
        (pick(VMSPLICE, &[Way::Channel]), Processors::Any),
        (pick(VMSPLICE, &[Way::Channel]), Processors::Apart),
        (pick(VMSPLICE, &[Way::Channel]), Processors::One),
        (pick(&[Way::Splice], &[Way::Unread]), Processors::Any),
    ];
    let rate = |(ways, processors): (&[Way], Processors)| {
        ways.iter().try_fold(0.0, |best: f64, way| Ok(best.max(measure(*way, processors, bytes)?)))
    };
    parts.into_iter().map(rate).collect()
}

/// MB/s from when both processes are ready until the reader has all.
fn measure(way: Way, processors: Processors, bytes: usize) -> Result<f64> {
    let bytes = bytes.next_multiple_of(PLACE_BYTES);
    let (writer, reader) = way.ends()?;
    let processors = processors.pick()?;
    let (mut producer, orders) = start(way, processors.map(|[writer, _]| writer), writer, bytes)?;
    let reading = || -> Result<f64> {
        if let Some([_, reader]) = processors {
            facts::pin(reader)?;
        }
        (&orders).read_exact(&mut [0]).context("the writer does not begin")?;
        let taken = time(|| {
            (&orders).write_all(&[1])?;
            let (all, total) = consume(way, reader)?;
            ensure!(all == bytes, "{way:?}: {all} bytes of {bytes} arrived");
            ensure!(
                !way.is_read() || total == expected(bytes, way.chunk()),
                "{way:?}: other bytes arrived than were sent"
            );
            Ok(())
        })?;
        Ok(bytes as f64 / 1e6 / taken.as_secs_f64())
    };
    // A thread of its own: where it runs is no business of the rest of this program.
    let rate = std::thread::scope(|threads| threads.spawn(reading).join());
    // A writer that still waits to begin hears that nothing comes.
    drop(orders);
    ensure!(producer.wait()?.success(), "{way:?}: the writer failed");
    rate.map_err(|_| anyhow::anyhow!("{way:?}: the reader panicked"))?
}

/// The writer, a process of its own, and by what it is told to begin.
fn start(way: Way, processor: Option<usize>, end: OwnedFd, bytes: usize) -> Result<(Child, UnixStream)> {
    let (orders, theirs) = UnixStream::pair()?;
    let (name, _) = WAYS.iter().find(|(_, known)| *known == way).context("every way has a name")?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--fill", &format!("{name}={bytes}")]);
    if let Some(processor) = processor {
        command.args(["--client-cpu", &processor.to_string()]);
    }
    command.stdin(Stdio::from(end)).stdout(Stdio::from(OwnedFd::from(theirs)));
    let producer = command.spawn().context("cannot run this program again")?;
    Ok((producer, orders))
}

/// Runs the writer: fills the other end of the standard input as `way=bytes` says. It begins when
/// the standard output tells it to.
pub(crate) fn fill(what: &str) -> Result<()> {
    let parsed = what.split_once('=').and_then(|(name, bytes)| {
        let (_, way) = WAYS.iter().find(|(known, _)| *known == name)?;
        Some((*way, bytes.parse::<usize>().ok()?))
    });
    let Some((way, bytes)) = parsed else { bail!("no way to fill anything: '{what}'") };
    let end = std::io::stdin().as_fd().try_clone_to_owned()?;
    // What the parent has must be the only other end.
    rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
    let mut orders = UnixStream::from(std::io::stdout().as_fd().try_clone_to_owned()?);
    orders.write_all(&[1])?;
    orders.read_exact(&mut [0])?;
    produce(way, end, (bytes / way.chunk()) as u64)
}

fn produce(way: Way, end: OwnedFd, rounds: u64) -> Result<()> {
    let chunk = way.chunk();
    match way {
        Way::Pipe => {
            let (mut pipe, mut buffer) = (File::from(end), Buffer::any(chunk));
            for round in 0..rounds {
                fill_chunk(&mut buffer, round);
                pipe.write_all(&buffer)?;
            }
        }
        Way::Vmsplice(_) | Way::Splice => {
            // Pages in the pipe must stay as they are: what is filled next is what left the pipe
            // for certain.
            let mut buffers: Vec<_> = (0..=LARGE_PIPE / chunk).map(|_| Buffer::any(chunk)).collect();
            let count = buffers.len() as u64;
            for round in 0..rounds {
                let buffer = &mut buffers[(round % count) as usize];
                fill_chunk(buffer, round);
                let mut rest = &buffer[..];
                while !rest.is_empty() {
                    // SAFETY: the buffer stays as it is until it left the pipe (see above), or this
                    // process ends.
                    let gone = unsafe { vmsplice(&end, &[IoSliceRaw::from_slice(rest)], SpliceFlags::empty()) }?;
                    rest = &rest[gone..];
                }
            }
            // The buffers must not go before the reader has read them.
            while rustix::io::ioctl_fionread(&end)? > 0 {
                std::thread::yield_now();
            }
        }
        Way::Channel | Way::Unread => {
            let mut sender = Sender::of(end)?;
            for round in 0..rounds {
                let mut place = sender.place()?;
                fill_chunk(&mut place[..chunk], round);
                sender.send(Rope::from(place.freeze(chunk).whole()))?;
            }
            sender.finish()?;
        }
    }
    Ok(())
}

/// Returns the number of bytes that came, and their sum.
fn consume(way: Way, end: OwnedFd) -> Result<(usize, u64)> {
    let (mut all, mut total) = (0, 0u64);
    match way {
        Way::Pipe | Way::Vmsplice(_) => {
            let (mut pipe, mut buffer, mut have) = (File::from(end), Buffer::any(way.chunk()), 0);
            loop {
                let read = pipe.read(&mut buffer[have..])?;
                have += read;
                if have == buffer.len() || read == 0 {
                    total = total.wrapping_add(sum(&buffer[..have]));
                    all += std::mem::take(&mut have);
                }
                if read == 0 {
                    break;
                }
            }
        }
        Way::Splice => {
            let null = File::options().write(true).open("/dev/null")?;
            loop {
                let gone = splice(&end, None, &null, None, LARGE_PIPE, SpliceFlags::MOVE)?;
                all += gone;
                if gone == 0 {
                    break;
                }
            }
        }
        Way::Channel | Way::Unread => {
            let mut receiver = Receiver::of(end)?;
            while let Some(rope) = receiver.receive()? {
                for slice in rope.slices().iter().filter(|_| way == Way::Channel) {
                    total = total.wrapping_add(sum(slice));
                }
                all += rope.len();
            }
        }
    }
    Ok((all, total))
}

/// Difference between one word and the next: any large odd number.
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// Fills `bytes` with what depends on `round`, as fast as memory takes it.
fn fill_chunk(bytes: &mut [u8], round: u64) {
    let mut value = round;
    for word in bytes.as_chunks_mut().0 {
        *word = value.to_le_bytes();
        value = value.wrapping_add(STEP);
    }
}

/// The words of `bytes` added up.
fn sum(bytes: &[u8]) -> u64 {
    bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).fold(0, u64::wrapping_add)
}

/// Returns the sum that the reader gets if nothing went wrong.
fn expected(bytes: usize, chunk: usize) -> u64 {
    let words = (chunk / 8) as u64;
    let steps = STEP.wrapping_mul(words * (words - 1) / 2);
    (0..(bytes / chunk) as u64).fold(0, |all, round| all.wrapping_add(round.wrapping_mul(words)).wrapping_add(steps))
}
