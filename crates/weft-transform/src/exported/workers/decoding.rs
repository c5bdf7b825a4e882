//! A decoder in its own process: it decompresses one stream after the other, all of links of one
//! owner, with a new state for each.

use super::rings::{State, Work};
use crate::stage::StageError;
use crate::stages::codecs::{Codec, Format, Room, cut_off};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::io;

/// Bytes made before the other side can see them.
const PART_BYTES: usize = 64 << 10;

/// Bytes made of a stream from which on it is worth having a processor beside that of the reader.
const LONG_BYTES: usize = 256 << 10;

/// The processors that the process runs on.
///
/// Waking another processor takes longer than decompressing some KiB. So a stream begins on the
/// processor of its reader, which waits meanwhile, and leaves it once the stream is long.
pub(super) struct Placement {
    all: CpuSet,
    near: Option<usize>,
}

impl Placement {
    /// The placement of this process: on any processor.
    pub(super) fn new() -> io::Result<Placement> {
        Ok(Placement { all: sched_getaffinity(None)?, near: None })
    }

    fn come(&mut self, processor: Option<usize>) {
        if let Some(processor) =
            processor.filter(|processor| *processor < CpuSet::MAX_CPU && self.near != Some(*processor))
        {
            let mut one = CpuSet::new();
            one.set(processor);
            set(&one);
            self.near = Some(processor);
        }
    }

    fn leave(&mut self) {
        if let Some(near) = self.near.take() {
            let mut others = self.all;
            others.unset(near);
            if others.count() > 0 {
                set(&others);
            }
            set(&self.all);
        }
    }
}

/// Has this process run on these; where it may not, it is only slower.
fn set(processors: &CpuSet) {
    let _ = sched_setaffinity(None, processors);
}

/// Decompresses, until the process is ended. It fails where the other side makes no sense.
pub(super) fn decode(
    work: &mut Work,
    mut placement: Option<Placement>,
    decoder: impl Fn(Format, Room) -> Box<dyn Codec>,
) -> io::Result<()> {
    loop {
        let (format, processor) = work.next()?;
        if let Some(placement) = &mut placement {
            placement.come(processor);
        }
        let mut decoder = decoder(format, work.room());
        let (state, said) = match stream(work, decoder.as_mut(), placement.as_mut())? {
            Ok(state) => (state, String::new()),
            // It waited for memory.
            Err(_) if work.is_stopped() => (State::Stopped, String::new()),
            Err(error) => (State::Failed, error.to_string()),
        };
        // Whoever is told of the end may begin the next stream at once.
        drop(decoder);
        work.end(state, said.as_bytes());
    }
}

/// Decompresses a stream.
fn stream(
    work: &mut Work,
    decoder: &mut dyn Codec,
    mut placement: Option<&mut Placement>,
) -> io::Result<Result<State, StageError>> {
    let mut all = 0;
    loop {
        let Some(turn) = work.turn(PART_BYTES)? else { return Ok(Ok(State::Stopped)) };
        let is_last = turn.is_last;
        let step = match decoder.step(turn.input, is_last, turn.output) {
            Ok(step) => step,
            Err(error) => return Ok(Err(error)),
        };
        work.done(step.taken, step.made);
        if step.is_done {
            return Ok(Ok(State::Ended));
        }
        if step.taken == 0 && step.made == 0 && is_last {
            return Ok(Err(cut_off()));
        }
        all += step.made;
        if all >= LONG_BYTES
            && let Some(placement) = placement.take()
        {
            placement.leave();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::rings::Feed;
    use super::*;
    use crate::stages::codecs::Step;
    use rustix::process::{PidfdFlags, getpid, pidfd_open};
    use std::os::fd::OwnedFd;
    use std::thread;
    use std::time::Duration;

    /// Gives each byte twice, and fails at a zero.
    struct Twice;

    impl Codec for Twice {
        fn step(&mut self, input: &[u8], is_last: bool, output: &mut [u8]) -> Result<Step, StageError> {
            let taken = input.len().min(output.len() / 2).min(1000);
            if input[..taken].contains(&0) {
                return Err(StageError::data("a zero"));
            }
            for (to, byte) in output.chunks_exact_mut(2).zip(&input[..taken]) {
                to.fill(*byte);
            }
            Ok(Step { taken, made: 2 * taken, is_done: is_last && taken == input.len() })
        }
    }

    /// An end whose other one is a thread, and a process that does not end.
    fn begin() -> (Feed, OwnedFd) {
        let (feed, memory) = Feed::new().unwrap();
        let mut work = Work::of(memory).unwrap();
        thread::spawn(move || decode(&mut work, None, |_, _| Box::new(Twice)));
        (feed, pidfd_open(getpid(), PidfdFlags::empty()).unwrap())
    }

    /// All that comes of `input`, given in pieces so long, and what was said of a failure.
    fn run(feed: &mut Feed, process: &OwnedFd, input: &[u8], piece: usize) -> (Vec<u8>, Option<Vec<u8>>) {
        feed.begin(Format::Zstd, 0, 0);
        let (mut left, mut made) = (input, Vec::new());
        loop {
            let given = feed.give(&left[..left.len().min(piece)]);
            left = &left[given..];
            if left.is_empty() && !feed.ends() {
                feed.end();
            }
            let progress = feed.progress().unwrap();
            if progress.has_ended() {
                return (made, None);
            }
            if progress.has_failed() {
                return (made, Some(feed.said().to_vec()));
            }
            match progress.made {
                0 if given == 0 => feed.wait(process, Duration::from_secs(10)).unwrap(),
                0 => feed.wake(),
                _ => made.extend_from_slice(&feed.copy()),
            }
        }
    }

    #[test]
    fn streams_pass_whole_and_one_after_the_other_and_errors_come_after_what_was_made() {
        let (mut feed, process) = begin();
        let input: Vec<u8> = (0..3_000_000_u32).map(|at| u8::try_from(at % 251 + 1).unwrap()).collect();
        for (len, piece) in [(0, 1), (1, 1), (70_001, 100), (input.len(), 65_536), (input.len(), 1 << 30)] {
            let (made, said) = run(&mut feed, &process, &input[..len], piece);
            assert!(said.is_none() && made.len() == 2 * len, "{len} in pieces of {piece}: {}", made.len());
            assert!(made.chunks_exact(2).zip(&input).all(|(two, one)| two == [*one, *one]), "{len}");
            assert!(feed.is_free());
        }
        let damaged = [&input[..1_000_000], &[0]].concat();
        let (made, said) = run(&mut feed, &process, &damaged, 1 << 20);
        assert_eq!(said.as_deref(), Some(&b"a zero"[..]));
        assert!(made.len() >= 2 * 999_000 && !feed.is_free(), "{}", made.len());
    }

    #[test]
    fn a_stream_that_nobody_wants_is_left_and_another_one_begins_anew() {
        let (mut feed, process) = begin();
        feed.begin(Format::Zstd, 0, 0);
        feed.give(&vec![b'x'; 500_000]);
        while feed.progress().unwrap().made == 0 {
            feed.wait(&process, Duration::from_secs(10)).unwrap();
        }
        feed.stop();
        while !feed.is_free() {
            thread::yield_now();
        }
        assert_eq!(run(&mut feed, &process, b"ab", 1), (b"aabb".to_vec(), None));
    }
}
