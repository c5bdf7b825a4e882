//! How fast bytes go from one process to another: pipes with read(2) and write(2), vmsplice(2), and channels.
//!
//! Two processes; the one fills fresh bytes, the other adds them all up, by the same code whatever lies between. "untouched": the one sends the same bytes
//! again and again, the other looks at one byte of each page. Ways take turns; medians of all rounds.
//!
//!     cargo run --release -p weft-client --example throughput [MiB [rounds [way]]]

use rustix::fd::{AsFd, OwnedFd};
use rustix::pipe::{SpliceFlags, fcntl_setpipe_size, splice, vmsplice};
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::Instant;
use weft_block::Rope;
use weft_client::channel::{PLACE_BYTES, Receiver, Sender, sockets};

const PAGE: usize = 4096;

/// What lies between the processes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    /// write(2) and read(2).
    Pipe(usize),
    /// vmsplice(2) and read(2).
    Vmsplice(usize),
    /// vmsplice(2), and splice(2) to where nothing is done with it: nobody looks at any byte.
    Splice(usize),
    Channel,
    /// A channel, and nobody looks at any byte.
    Unread,
}

/// Each with the bytes that are filled, passed on and added up at a time.
const WAYS: [(&str, Way, usize); 9] = [
    ("pipe of 64 KiB, write and read", Way::Pipe(64 << 10), 64 << 10),
    ("the same, 256 KiB at a time", Way::Pipe(64 << 10), 256 << 10),
    ("pipe of 1 MiB, write and read", Way::Pipe(1 << 20), 64 << 10),
    ("the same, 256 KiB at a time", Way::Pipe(1 << 20), 256 << 10),
    ("pipe of 1 MiB, vmsplice and read", Way::Vmsplice(1 << 20), 64 << 10),
    ("the same, 256 KiB at a time", Way::Vmsplice(1 << 20), 256 << 10),
    ("vmsplice and splice, nobody reads", Way::Splice(1 << 20), 256 << 10),
    ("channel", Way::Channel, PLACE_BYTES),
    ("channel, nobody reads", Way::Unread, PLACE_BYTES),
];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Touch {
    All,
    OneOfPage,
}

/// Fills `bytes` with what depends on `round`, as fast as memory takes it.
fn fill(bytes: &mut [u8], round: u64) {
    let mut value = round;
    for word in bytes.chunks_exact_mut(8) {
        word.copy_from_slice(&value.to_le_bytes());
        value = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    }
}

/// What the reader makes of `bytes`.
fn sum(bytes: &[u8], touch: Touch) -> u64 {
    match touch {
        Touch::All => {
            let words = bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("eight")));
            words.fold(0, u64::wrapping_add)
        }
        Touch::OneOfPage => bytes.iter().step_by(PAGE).map(|byte| u64::from(*byte)).sum(),
    }
}

/// A buffer that starts where a page does.
fn pages(len: usize) -> weft_block::Buffer {
    let mut buffer = weft_block::Buffer::any(len);
    buffer.fill(1);
    buffer
}

/// The writer: runs in a process of its own.
fn produce((_, way, chunk): (&str, Way, usize), touch: Touch, end: OwnedFd, bytes: usize) {
    let rounds = (bytes / chunk) as u64;
    match way {
        Way::Pipe(_) => {
            let (mut pipe, mut buffer) = (File::from(end), pages(chunk));
            for round in 0..rounds {
                if touch == Touch::All {
                    fill(&mut buffer, round);
                }
                pipe.write_all(&buffer).expect("there is a reader");
            }
        }
        Way::Vmsplice(size) | Way::Splice(size) => {
            // Pages in the pipe must stay as they are: what is filled next is what left the pipe for certain.
            let mut buffers: Vec<_> = (0..=size / chunk).map(|_| pages(chunk)).collect();
            let count = buffers.len() as u64;
            for round in 0..rounds {
                let buffer = &mut buffers[(round % count) as usize];
                if touch == Touch::All {
                    fill(buffer, round);
                }
                let mut rest = &buffer[..];
                while !rest.is_empty() {
                    // SAFETY: the buffer stays until it left the pipe (see above).
                    let gone =
                        unsafe { vmsplice(&end, &[rustix::pipe::IoSliceRaw::from_slice(rest)], SpliceFlags::empty()) };
                    rest = &rest[gone.expect("there is a reader")..];
                }
            }
            // The buffers must not go before the reader has read them.
            let mut reader = File::from(end);
            let _ = reader.flush();
            while rustix::io::ioctl_fionread(&reader).expect("it is a pipe") > 0 {
                std::thread::yield_now();
            }
        }
        Way::Channel | Way::Unread => {
            let mut sender = Sender::of(end).expect("an end of a channel");
            let mut same = sender.place().expect("memory");
            fill(&mut same, 0);
            let same = same.freeze(chunk);
            for round in 0..rounds {
                let rope = if touch == Touch::All {
                    let mut place = sender.place().expect("memory");
                    fill(&mut place, round);
                    Rope::from(place.freeze(chunk).whole())
                } else {
                    Rope::from(same.whole())
                };
                sender.send(rope).expect("there is a receiver");
            }
            sender.finish().expect("there is a receiver");
        }
    }
}

/// The reader. Tells what it saw.
fn consume((_, way, chunk): (&str, Way, usize), touch: Touch, end: OwnedFd) -> (usize, u64) {
    let (mut all, mut total) = (0, 0u64);
    match way {
        Way::Pipe(_) | Way::Vmsplice(_) => {
            let (mut pipe, mut buffer, mut have) = (File::from(end), pages(chunk), 0);
            loop {
                let read = pipe.read(&mut buffer[have..]).expect("a pipe is read");
                have += read;
                if have == chunk || read == 0 {
                    total = total.wrapping_add(sum(&buffer[..have], touch));
                    all += std::mem::take(&mut have);
                }
                if read == 0 {
                    return (all, total);
                }
            }
        }
        Way::Splice(size) => {
            let null = File::options().write(true).open("/dev/null").expect("there is one");
            loop {
                let gone = splice(&end, None, &null, None, size, SpliceFlags::MOVE).expect("a pipe is spliced");
                all += gone;
                if gone == 0 {
                    return (all, total);
                }
            }
        }
        Way::Channel | Way::Unread => {
            let mut receiver = Receiver::of(end).expect("an end of a channel");
            while let Some(rope) = receiver.receive().expect("a channel is read") {
                for slice in rope.slices().iter().filter(|_| way == Way::Channel) {
                    total = total.wrapping_add(sum(slice, touch));
                }
                all += rope.len();
            }
            (all, total)
        }
    }
}

/// Seconds from when both processes are ready until the reader has all.
fn measure(number: usize, touch: Touch, bytes: usize) -> f64 {
    let (_, way, chunk) = WAYS[number];
    let (writer, reader): (OwnedFd, OwnedFd) = match way {
        Way::Channel | Way::Unread => sockets().expect("a channel"),
        Way::Pipe(size) | Way::Vmsplice(size) | Way::Splice(size) => {
            let (reader, writer) = std::io::pipe().expect("a pipe");
            fcntl_setpipe_size(&writer, size).expect("a pipe may have 1 MiB");
            (writer.into(), reader.into())
        }
    };
    let (ready, child_ready) = UnixStream::pair().expect("a pair of sockets");
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args(["--produce", &number.to_string(), &(touch == Touch::All).to_string(), &bytes.to_string()])
        .stdin(Stdio::from(writer))
        .stdout(Stdio::from(OwnedFd::from(child_ready)))
        .spawn()
        .expect("this program runs");
    let mut word = [0];
    (&ready).read_exact(&mut word).expect("the writer is ready");
    let begun = Instant::now();
    (&ready).write_all(&word).expect("the writer waits");
    let (all, total) = consume(WAYS[number], touch, reader);
    let seconds = begun.elapsed().as_secs_f64();
    assert!(child.wait().expect("it ran").success());
    assert_eq!(all, bytes, "{way:?}: all bytes arrive");
    if touch == Touch::All && !matches!(way, Way::Splice(_) | Way::Unread) {
        assert_eq!(total, expected(bytes, chunk), "{way:?}: the right bytes arrive");
    }
    seconds
}

/// What the reader sees if nothing went wrong.
fn expected(bytes: usize, chunk: usize) -> u64 {
    let words = (chunk / 8) as u64;
    let steps = 0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(words * (words - 1) / 2);
    (0..(bytes / chunk) as u64).fold(0, |all, round| all.wrapping_add(round.wrapping_mul(words)).wrapping_add(steps))
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, way, all, bytes] = &arguments[..]
        && flag == "--produce"
    {
        let end = std::io::stdin().as_fd().try_clone_to_owned().expect("a descriptor");
        // What the parent has must be the only other end.
        drop(OwnedFd::from(File::open("/dev/null").expect("there is one")));
        rustix::stdio::dup2_stdin(File::open("/dev/null").expect("there is one")).expect("a descriptor");
        let ready = std::io::stdout().as_fd().try_clone_to_owned().expect("a descriptor");
        let mut ready = UnixStream::from(ready);
        ready.write_all(&[1]).expect("the parent waits");
        ready.read_exact(&mut [0]).expect("the parent begins");
        let touch = if all == "true" { Touch::All } else { Touch::OneOfPage };
        produce(WAYS[way.parse::<usize>().expect("a number")], touch, end, bytes.parse().expect("a number"));
        return;
    }
    let number = |at: usize, default: usize| arguments.get(at).map_or(default, |text| text.parse().expect("a number"));
    let (bytes, rounds) = (number(0, 1024) << 20, number(1, 9));
    let ways: Vec<usize> = if arguments.len() > 2 { vec![number(2, 0)] } else { (0..WAYS.len()).collect() };
    for (title, touch) in [("all bytes filled and added up", Touch::All), ("untouched", Touch::OneOfPage)] {
        let mut times = vec![Vec::new(); ways.len()];
        for _ in 0..rounds {
            ways.iter().zip(&mut times).for_each(|(way, times)| times.push(measure(*way, touch, bytes)));
        }
        println!("{title}: {} MiB, median of {rounds}", bytes >> 20);
        let rates: Vec<_> = times
            .iter_mut()
            .map(|times| {
                times.sort_by(f64::total_cmp);
                bytes as f64 / times[rounds / 2] / 1e6
            })
            .collect();
        for (way, (rate, times)) in ways.iter().zip(rates.iter().zip(&times)) {
            let name = WAYS[*way].0;
            let (slow, fast) = (bytes as f64 / times[rounds - 1] / 1e6, bytes as f64 / times[0] / 1e6);
            println!("  {name:<36} {rate:>8.0} MB/s ({slow:.0}..{fast:.0})  {:>6.2} of the first", rate / rates[0]);
        }
    }
}
