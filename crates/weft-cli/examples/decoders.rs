//! Measures what confined decoders cost: `decoders WEFT [NAME=EXAMPLE:WEFT]...`.
//!
//! Decompresses the same inputs in this process ("here") and in confined ones of the program WEFT,
//! in turns, and tells the median time of an input and the ratio of the rates. Each NAME is another
//! build of this example, with the program of that build, to be measured in the same run.

use std::env;
use std::fs;
use std::io::{self, BufRead, BufReader, Write, stdin};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;
use weft_block::Slice;
use weft_transform::{Network, Run, Source, Sources};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Bytes of an input once it is decompressed, number of reads that are timed together, and kind of
/// content.
const INPUTS: [(usize, usize, Kind); 4] =
    [(4 << 10, 200, Kind::Text), (64 << 10, 100, Kind::Text), (64 << 20, 1, Kind::Text), (64 << 20, 1, Kind::Dense)];

/// Times that are taken of each.
const ROUNDS: usize = 11;

/// Bytes of a stream of xz.
const XZ_BYTES: usize = 4 << 20;

/// The compressibility of an input.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Text,
    Dense,
}

/// An input in pieces as they are read from files.
#[derive(Clone)]
struct Packed(std::vec::IntoIter<Slice>);

impl Source for Packed {
    fn next(&mut self) -> io::Result<Option<Slice>> {
        Ok(self.0.next())
    }

    fn is_at_hand(&self) -> bool {
        true
    }
}

impl Sources for Packed {
    fn input(&mut self) -> io::Result<Box<dyn Source>> {
        Ok(Box::new(self.clone()))
    }

    fn file(&mut self, _: usize) -> io::Result<Box<dyn Source>> {
        self.input()
    }
}

/// So many bytes of that kind, the same in each process.
fn bytes(count: usize, kind: Kind) -> Vec<u8> {
    let mut state = 1_u64;
    let mut bytes = Vec::with_capacity(count + 128);
    while bytes.len() < count {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let number = state >> 33;
        match kind {
            Kind::Text => {
                writeln!(bytes, "{number:010} GET /page/{} 200 {}", number % 977, number % 65_537).expect("memory");
            }
            Kind::Dense => bytes.extend_from_slice(&state.to_le_bytes()[2..]),
        }
    }
    bytes.truncate(count);
    bytes
}

/// All that `network` makes of `source`, passed through memory as a reader's.
fn run(network: &Network, source: &Packed, mut made: impl FnMut(&[u8])) {
    for rope in Run::start(network, &mut source.clone()).expect("it begins") {
        for slice in rope.expect("it goes on").slices() {
            made(slice);
        }
    }
}

/// Takes times that are asked for by lines of standard input.
fn work(program: Option<&str>) {
    if let Some(program) = program {
        // Confined processes begin at the root.
        weft_transform::worker::set_program(fs::canonicalize(program).expect("the program is there"));
        assert_eq!(weft_transform::worker::why_unconfined(), None);
    }
    let mut inputs = Vec::new();
    for format in ["zstd", "xz"] {
        let back = Network::parse(&format!("{format} -d")).expect("a network");
        for (len, times, kind) in INPUTS {
            let forth = Network::parse(if format == "xz" { "xz -n 1" } else { "zstd" }).expect("a network");
            // Compressing to xz takes long: the same stream again and again.
            let again = if format == "xz" { (len / XZ_BYTES).max(1) } else { 1 };
            let plain = Packed(vec![Slice::from(bytes(len / again, kind))].into_iter());
            let mut packed = Vec::new();
            run(&forth, &plain, |slice| packed.extend_from_slice(slice));
            let packed = packed.repeat(again);
            let pieces: Vec<Slice> = packed.chunks(64 << 10).map(|piece| Slice::from(piece.to_vec())).collect();
            inputs.push((back.clone(), Packed(pieces.into_iter()), times, len));
        }
    }
    let mut reader = vec![0_u8; 1 << 20];
    for line in stdin().lines().map_while(Result::ok) {
        let (network, source, times, len) = &inputs[line.parse::<usize>().expect("a number")];
        let begun = Instant::now();
        for _ in 0..*times {
            let mut made = 0;
            run(network, source, |slice| {
                let to = reader.len() / 2;
                reader[to..to + slice.len()].copy_from_slice(slice);
                made += slice.len();
            });
            assert_eq!(made, *len);
        }
        println!("{}", begun.elapsed().as_nanos() / *times as u128);
    }
}

/// A process that takes times.
struct Timer {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Timer {
    fn start(example: &str, program: &str) -> io::Result<Timer> {
        let mut command = Command::new(example);
        let mut child = command.args(["--work", program]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (orders, answers) = (child.stdin.take(), child.stdout.take());
        let answers = BufReader::new(answers.expect("a pipe"));
        Ok(Timer { child, orders: orders.expect("a pipe"), answers })
    }

    fn time(&mut self, input: usize) -> io::Result<u64> {
        writeln!(self.orders, "{input}")?;
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        line.trim().parse().map_err(io::Error::other)
    }
}

fn main() -> io::Result<()> {
    let words: Vec<String> = env::args().collect();
    match &words[1..] {
        [word, program] if word == "--work" => {
            work(Some(&**program).filter(|program| !program.is_empty()));
            Ok(())
        }
        [program, others @ ..] => compare(&words[0], program, others),
        [] => Err(io::Error::other("usage: decoders WEFT [NAME=EXAMPLE:WEFT]...")),
    }
}

fn compare(example: &str, program: &str, others: &[String]) -> io::Result<()> {
    let mut timers = vec![("here", Timer::start(example, "")?), ("confined", Timer::start(example, program)?)];
    for other in others {
        let parts = other.split_once('=').and_then(|(name, rest)| Some((name, rest.split_once(':')?)));
        let (name, (example, program)) = parts.ok_or_else(|| io::Error::other("NAME=EXAMPLE:WEFT"))?;
        timers.push((name, Timer::start(example, program)?));
    }
    let formats = ["zstd", "xz"].iter().flat_map(|format| INPUTS.map(|input| (format, input)));
    for (number, (format, (len, _, kind))) in formats.enumerate() {
        let mut times = vec![Vec::new(); timers.len()];
        // The first is for what is done once.
        for round in 0..=ROUNDS {
            for ((_, timer), times) in timers.iter_mut().zip(&mut times) {
                let time = timer.time(number)?;
                if round > 0 {
                    times.push(time);
                }
            }
        }
        let medians = times.iter_mut().map(|times| {
            times.sort_unstable();
            times[times.len() / 2] as f64 / 1000.0
        });
        let medians: Vec<f64> = medians.collect();
        print!("{format} -d, {} KiB {kind:?}:", len >> 10);
        for ((name, _), median) in timers.iter().zip(&medians) {
            print!(" {name} {median:.1} us ({:.2})", medians[0] / median);
        }
        println!();
    }
    for (_, mut timer) in timers {
        drop(timer.orders);
        timer.child.wait()?;
    }
    Ok(())
}
