//! Memory by which this process and a decoder's share a stream: a ring of bytes each way, and words
//! that tell how far each side is.
//!
//! Nobody waits for a turn of the other while there are bytes and room: each side moves its own
//! positions, and wakes the other (futex(2)) only if that one sleeps and there is enough to wake it
//! for. The rings let several pieces be on their way.
//!
//! The other process may write to all of it at any time. So this one keeps its own positions,
//! believes none that makes no sense ([`Broken::Nonsense`]), has no references into the rings, and
//! wakes from time to time whoever calls.

use super::area::Area;
use super::channel::{Broken, SOON};
use crate::interrupt::{PERIOD, is_interrupted};
use crate::stages::codecs::{Format, Room};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::thread::{futex, sched_getcpu};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::time::{Duration, Instant};
use weft_block::Buffer;

/// Bytes of the rings: powers of two. Both fit into the second cache of most processors.
pub(in crate::exported) const INPUT_BYTES: usize = 512 << 10;
pub(in crate::exported) const OUTPUT_BYTES: usize = 1 << 20;

/// Bytes that came of the input for which a sleeper is woken while more is being made, and room for
/// which the decoder is.
const BATCH_BYTES: usize = OUTPUT_BYTES / 4;
const ROOM_BYTES: usize = OUTPUT_BYTES / 2;

/// Bytes copied to one block: blocks of this size are pooled.
const COPY_BYTES: usize = 64 << 10;

/// Bytes of a text that tells of a failure.
pub(super) const SAID_BYTES: usize = 4096;

/// The places of the words, of that text, and of the rings.
const SAID_AT: usize = 4096;
const INPUT_AT: usize = SAID_AT + SAID_BYTES;
const OUTPUT_AT: usize = INPUT_AT + INPUT_BYTES;
const ALL_BYTES: usize = OUTPUT_AT + OUTPUT_BYTES;

/// The words that this process writes.
#[repr(C, align(64))]
struct Orders {
    /// Number of the stream, and its format ([`Stream`]).
    stream: AtomicU32,
    /// The last stream of which nobody wants more.
    stopped: AtomicU32,
    /// Bytes put into the ring, and copied from the other; these and the next two begin at 0 with
    /// each stream and wrap.
    put: AtomicU32,
    copied: AtomicU32,
    /// Nothing comes after the bytes that were put.
    ends: AtomicU32,
    /// The processor to run on at first, counted from 1.
    processor: AtomicU32,
    /// Bytes of memory that the stream may take.
    granted: AtomicU32,
}

/// The words that the decoder's process writes.
#[repr(C, align(64))]
struct Answers {
    /// The stream that the others are about.
    stream: AtomicU32,
    state: AtomicU32,
    taken: AtomicU32,
    made: AtomicU32,
    /// Bytes of the text that tells of a failure.
    said: AtomicU32,
    /// Bytes of memory that the stream takes; more than were granted: the decoder waits for them.
    wanted: AtomicU32,
}

/// Nonzero while somebody sleeps.
#[repr(C, align(64))]
struct Bell(AtomicU32);

#[repr(C)]
struct Words {
    orders: Orders,
    answers: Answers,
    ours: Bell,
    theirs: Bell,
}

/// State of a decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Working,
    /// All is made that ever will be.
    Ended,
    /// It cannot go on, for the reason that was said, after what was made.
    Failed,
    /// Nobody wanted more.
    Stopped,
}

impl State {
    const ALL: [State; 4] = [State::Working, State::Ended, State::Failed, State::Stopped];

    fn number(self) -> u32 {
        match self {
            State::Working => 1,
            State::Ended => 2,
            State::Failed => 3,
            State::Stopped => 4,
        }
    }
}

/// A number of a stream with its format in the lowest byte; 0 is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stream(u32);

impl Stream {
    fn next(self, format: Format) -> Stream {
        Stream((self.0 & !0xff).wrapping_add(0x100) | u32::from(format.number()))
    }

    fn format(self) -> Option<Format> {
        Format::of(self.0.to_le_bytes()[0])
    }
}

/// The memory, as one process has it.
struct Shared(Area);

impl Shared {
    fn words(&self) -> &Words {
        const { assert!(size_of::<Words>() <= SAID_AT) };
        // SAFETY: the memory begins with the words, at a page, and stays mapped as long as this is
        // there; they are atomic, any number is one of theirs, and nobody has other references to
        // them.
        unsafe { &*self.0.start().cast::<Words>() }
    }

    /// Asks the other side, in the decoder's process, for `bytes` of memory that `stream` takes in
    /// all, and waits for them. False if nobody wants the rest of the stream.
    fn ask(&self, stream: Stream, bytes: usize) -> bool {
        let words = self.words();
        let Ok(bytes) = u32::try_from(bytes) else { return false };
        let is_granted = || words.orders.granted.load(Ordering::SeqCst) >= bytes;
        let is_stopped = || words.orders.stopped.load(Ordering::SeqCst) == stream.0;
        while !is_granted() {
            words.answers.wanted.store(bytes, Ordering::SeqCst);
            words.ours.ring(|| true);
            if is_stopped() || words.theirs.sleep(None, || is_granted() || is_stopped()).is_err() {
                return false;
            }
        }
        true
    }
}

/// Bytes between two positions, which wrap.
fn between(from: u32, to: u32) -> usize {
    to.wrapping_sub(from) as usize
}

fn moved(position: u32, by: usize) -> u32 {
    position.wrapping_add(u32::try_from(by).expect("no more than a ring"))
}

/// The place of a position in a ring of `len` bytes, and how many lie together from there on.
fn place(position: u32, len: usize) -> (usize, usize) {
    let at = position as usize & (len - 1);
    (at, len - at)
}

impl Bell {
    /// Sleeps for up to `time` unless `is_time` says that there is something to do. The order is
    /// that of all who wait and ring: one sees the bell, or the other what it would be rung for.
    fn sleep(&self, time: Option<Duration>, is_time: impl Fn() -> bool) -> Result<(), Errno> {
        self.0.store(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let slept = if is_time() {
            Ok(())
        } else {
            let time =
                time.map(|time| Timespec { tv_sec: time.as_secs().cast_signed(), tv_nsec: time.subsec_nanos().into() });
            match futex::wait(&self.0, futex::Flags::empty(), 1, time.as_ref()) {
                Ok(()) | Err(Errno::AGAIN | Errno::INTR | Errno::TIMEDOUT) => Ok(()),
                Err(error) => Err(error),
            }
        };
        self.0.store(0, Ordering::Relaxed);
        slept
    }

    /// Wakes who sleeps, if it is worth it.
    fn ring(&self, is_worth_it: impl FnOnce() -> bool) {
        fence(Ordering::SeqCst);
        if self.0.load(Ordering::SeqCst) != 0 && is_worth_it() {
            self.0.store(0, Ordering::SeqCst);
            // It may have gone on by itself.
            let _ = futex::wake(&self.0, futex::Flags::empty(), 1);
        }
    }
}

/// Progress of the decoder's process.
#[derive(Clone, Copy, Debug)]
pub(in crate::exported) struct Progress {
    /// Bytes that it was given and has not taken.
    pub(in crate::exported) pending: usize,
    /// Bytes that it has made and that are not copied.
    pub(in crate::exported) made: usize,
    /// Bytes of memory that it waits for, if it does.
    pub(in crate::exported) wanted: Option<usize>,
    state: State,
}

impl Progress {
    /// All is made and copied.
    pub(in crate::exported) fn has_ended(&self) -> bool {
        self.state == State::Ended && self.made == 0
    }

    /// It cannot go on after what was made.
    pub(in crate::exported) fn has_failed(&self) -> bool {
        self.state == State::Failed && self.made == 0
    }
}

/// This process' end: gives bytes, and takes what comes of them.
pub(in crate::exported) struct Feed {
    shared: Shared,
    stream: Stream,
    put: u32,
    copied: u32,
    ends: bool,
    /// Bytes of memory that the stream may take.
    granted: u32,
    /// The positions of the other side that were told last.
    taken: u32,
    made: u32,
}

impl Feed {
    /// A new one, and the memory for the other end.
    pub(super) fn new() -> io::Result<(Feed, OwnedFd)> {
        let (area, memory) = Area::sized(ALL_BYTES)?;
        let shared = Shared(area);
        let feed = Feed { shared, stream: Stream(0), put: 0, copied: 0, ends: false, granted: 0, taken: 0, made: 0 };
        Ok((feed, memory))
    }

    /// Begins a stream, which may take `granted` bytes of memory. The other side must be done with
    /// the one before ([`Feed::is_free`]).
    pub(super) fn begin(&mut self, format: Format, processor: usize, granted: u32) {
        let orders = &self.shared.words().orders;
        (self.put, self.copied, self.ends, self.taken, self.made) = (0, 0, false, 0, 0);
        for position in [&orders.put, &orders.copied, &orders.ends] {
            position.store(0, Ordering::Relaxed);
        }
        orders.processor.store(u32::try_from(processor).map_or(0, |processor| processor + 1), Ordering::Relaxed);
        self.granted = granted;
        orders.granted.store(granted, Ordering::Relaxed);
        self.stream = self.stream.next(format);
        // It is woken when it has something to do.
        orders.stream.store(self.stream.0, Ordering::Release);
    }

    /// Tells the other side that nobody wants more of the stream.
    pub(super) fn stop(&self) {
        let words = self.shared.words();
        words.orders.stopped.store(self.stream.0, Ordering::Release);
        words.theirs.ring(|| true);
    }

    /// The other side has done the last stream, whole or until it was told to stop.
    pub(super) fn is_free(&self) -> bool {
        let answers = &self.shared.words().answers;
        let done = [State::Ended.number(), State::Stopped.number()];
        answers.stream.load(Ordering::Acquire) == self.stream.0 && done.contains(&answers.state.load(Ordering::Acquire))
    }

    /// Gives some of `bytes`, as many as there is room for.
    pub(in crate::exported) fn give(&mut self, bytes: &[u8]) -> usize {
        let free = INPUT_BYTES - between(self.taken, self.put);
        let (at, together) = place(self.put, INPUT_BYTES);
        let count = bytes.len().min(free).min(together);
        if count > 0 {
            self.shared.0.put(INPUT_AT + at, &bytes[..count]);
            self.put = moved(self.put, count);
            self.shared.words().orders.put.store(self.put, Ordering::Release);
        }
        count
    }

    /// Tells that nothing comes after what was given.
    pub(in crate::exported) fn end(&mut self) {
        self.ends = true;
        self.shared.words().orders.ends.store(1, Ordering::Release);
    }

    pub(in crate::exported) fn ends(&self) -> bool {
        self.ends
    }

    /// Lets the stream take `bytes` of memory in all.
    pub(super) fn grant(&mut self, bytes: u32) {
        self.granted = bytes;
        let words = self.shared.words();
        words.orders.granted.store(bytes, Ordering::SeqCst);
        words.theirs.ring(|| true);
    }

    /// Tells how far the other side is.
    pub(in crate::exported) fn progress(&mut self) -> Result<Progress, Broken> {
        let answers = &self.shared.words().answers;
        let (mut state, mut wanted) = (State::Working, None);
        if answers.stream.load(Ordering::Acquire) == self.stream.0 {
            let number = answers.state.load(Ordering::Acquire);
            let (taken, made) = (answers.taken.load(Ordering::Acquire), answers.made.load(Ordering::Acquire));
            state = State::ALL.into_iter().find(|state| state.number() == number).ok_or(Broken::Nonsense)?;
            let goes_on = between(self.taken, taken) <= between(self.taken, self.put)
                && between(self.made, made) <= OUTPUT_BYTES - between(self.copied, self.made);
            if !goes_on || state == State::Stopped {
                return Err(Broken::Nonsense);
            }
            (self.taken, self.made) = (taken, made);
            wanted = Some(answers.wanted.load(Ordering::Acquire)).filter(|wanted| *wanted > self.granted);
        }
        let (pending, made) = (between(self.taken, self.put), between(self.copied, self.made));
        Ok(Progress { pending, made, wanted: wanted.map(|bytes| bytes as usize), state })
    }

    /// A copy of the next bytes that the other side has made.
    pub(in crate::exported) fn copy(&mut self) -> Buffer {
        let (at, together) = place(self.copied, OUTPUT_BYTES);
        let count = between(self.copied, self.made).min(together).min(COPY_BYTES);
        let copy = self.shared.0.copy(OUTPUT_AT + at..OUTPUT_AT + at + count);
        self.copied = moved(self.copied, count);
        self.shared.words().orders.copied.store(self.copied, Ordering::Release);
        copy
    }

    /// Returns the other side's failure message.
    pub(in crate::exported) fn said(&self) -> Buffer {
        let said = self.shared.words().answers.said.load(Ordering::Acquire) as usize;
        self.shared.0.copy(SAID_AT..SAID_AT + said.min(SAID_BYTES))
    }

    /// Wakes the other side, if it sleeps and has enough to do.
    pub(in crate::exported) fn wake(&self) {
        let room = OUTPUT_BYTES - between(self.copied, self.made);
        self.shared.words().theirs.ring(|| room >= ROOM_BYTES);
    }

    /// Waits, for `time` at most, until something has changed for which it is worth going on;
    /// `process` is that of the other side.
    pub(super) fn wait(&mut self, process: impl AsFd, time: Duration) -> Result<(), Broken> {
        let begun = Instant::now();
        let (taken, made) = (self.taken, self.made);
        loop {
            self.shared.words().theirs.ring(|| true);
            let patience = if begun.elapsed() < SOON { SOON } else { PERIOD };
            let words = self.shared.words();
            let answers = &words.answers;
            words.ours.sleep(Some(patience.min(time)), || {
                let made = answers.made.load(Ordering::SeqCst);
                between(self.copied, made) >= BATCH_BYTES
                    || answers.stream.load(Ordering::SeqCst) == self.stream.0
                        && (answers.state.load(Ordering::SeqCst) != State::Working.number()
                            || answers.wanted.load(Ordering::SeqCst) > self.granted)
            })?;
            let progress = self.progress()?;
            let is_new = (taken, made) != (self.taken, self.made) || progress.wanted.is_some();
            if is_new || progress.state != State::Working {
                return Ok(());
            }
            let now = Timespec { tv_sec: 0, tv_nsec: 0 };
            if poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&now)) != Ok(0) {
                return Err(Broken::Ended);
            }
            if begun.elapsed() >= time {
                return Err(Broken::Late);
            }
            if begun.elapsed() >= SOON && is_interrupted() {
                return Err(Broken::Stopped);
            }
        }
    }
}

/// Number of the processor that this thread runs on.
pub(super) fn here() -> usize {
    sched_getcpu()
}

/// The decoder's end, in its process.
pub(super) struct Work {
    shared: Arc<Shared>,
    stream: Stream,
    taken: u32,
    made: u32,
}

/// Input that a decoder has, and room that it may fill now.
pub(super) struct Turn<'a> {
    pub(super) input: &'a [u8],
    /// Nothing comes after `input`.
    pub(super) is_last: bool,
    pub(super) output: &'a mut [u8],
}

impl Work {
    /// The end of those whose memory `file` is.
    pub(super) fn of(file: impl AsFd) -> io::Result<Work> {
        let shared = Arc::new(Shared(Area::mapped(file, ALL_BYTES)?));
        Ok(Work { shared, stream: Stream(0), taken: 0, made: 0 })
    }

    /// Waits for the next stream, whose first bytes are there. Tells its format, and the processor
    /// that it is to begin on.
    pub(super) fn next(&mut self) -> io::Result<(Format, Option<usize>)> {
        let words = self.shared.words();
        let next = || Stream(words.orders.stream.load(Ordering::SeqCst));
        while next() == self.stream {
            words.theirs.sleep(None, || next() != self.stream)?;
        }
        self.stream = next();
        (self.taken, self.made) = (0, 0);
        let answers = &words.answers;
        answers.taken.store(0, Ordering::Relaxed);
        answers.made.store(0, Ordering::Relaxed);
        answers.wanted.store(0, Ordering::Relaxed);
        answers.state.store(State::Working.number(), Ordering::Release);
        answers.stream.store(self.stream.0, Ordering::Release);
        let format = self.stream.format().ok_or(io::ErrorKind::InvalidData)?;
        let processor = words.orders.processor.load(Ordering::Relaxed);
        Ok((format, usize::try_from(processor).ok().and_then(|processor| processor.checked_sub(1))))
    }

    /// Asks the other side for the memory that this stream takes.
    pub(super) fn room(&self) -> Room {
        let (shared, stream) = (self.shared.clone(), self.stream);
        Box::new(move |bytes| shared.ask(stream, bytes))
    }

    /// Nobody wants more of this stream.
    pub(super) fn is_stopped(&self) -> bool {
        self.shared.words().orders.stopped.load(Ordering::SeqCst) == self.stream.0
    }

    /// Waits until there is something to do, and tells what. None if nobody wants more.
    pub(super) fn turn(&mut self, output_bytes: usize) -> io::Result<Option<Turn<'_>>> {
        let words = self.shared.words();
        let orders = &words.orders;
        let is_stopped = || orders.stopped.load(Ordering::SeqCst) == self.stream.0;
        let pending = || between(self.taken, orders.put.load(Ordering::SeqCst));
        let room = || OUTPUT_BYTES.saturating_sub(between(orders.copied.load(Ordering::SeqCst), self.made));
        let ends = || orders.ends.load(Ordering::SeqCst) != 0;
        let can_go_on = || room() > 0 && (pending() > 0 || ends());
        while !is_stopped() && !can_go_on() {
            // What there is may be what the other side waits for.
            words.ours.ring(|| true);
            words.theirs.sleep(None, || is_stopped() || can_go_on())?;
        }
        if is_stopped() {
            return Ok(None);
        }
        // In this order: what was put before that is seen.
        let ends = ends();
        let pending = pending();
        let ((from, together), (to, free)) = (place(self.taken, INPUT_BYTES), place(self.made, OUTPUT_BYTES));
        let input = pending.min(together);
        let output = room().min(free).min(output_bytes);
        // SAFETY: the parts lie in the memory, which stays mapped as long as this is there. The
        // other process writes to no byte of the input that was not told to be taken, and reads
        // none of the output that was not told to be made; and this one has no other references
        // into the rings.
        let (input, output) = unsafe {
            let start = self.shared.0.start();
            let input_part = std::slice::from_raw_parts(start.add(INPUT_AT + from), input);
            (input_part, std::slice::from_raw_parts_mut(start.add(OUTPUT_AT + to), output))
        };
        Ok(Some(Turn { input, is_last: ends && input.len() == pending, output }))
    }

    /// Tells the other side that so many bytes were taken and made, and wakes it if that is enough.
    pub(super) fn done(&mut self, taken: usize, made: usize) {
        (self.taken, self.made) = (moved(self.taken, taken), moved(self.made, made));
        let words = self.shared.words();
        // In this order: who sees that all was taken sees all that was made of it.
        words.answers.made.store(self.made, Ordering::Release);
        words.answers.taken.store(self.taken, Ordering::Release);
        let copied = words.orders.copied.load(Ordering::Relaxed);
        words.ours.ring(|| between(copied, self.made) >= BATCH_BYTES);
    }

    /// Ends the stream, with `said` if it has failed.
    pub(super) fn end(&mut self, state: State, said: &[u8]) {
        let said = &said[..said.len().min(SAID_BYTES)];
        self.shared.0.put(SAID_AT, said);
        let words = self.shared.words();
        words.answers.said.store(u32::try_from(said.len()).expect("a page"), Ordering::Relaxed);
        words.answers.state.store(state.number(), Ordering::SeqCst);
        words.ours.ring(|| true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{PidfdFlags, getpid, pidfd_open};
    use std::thread;

    /// A stream to which 1000 bytes were given, and the other side, which has begun it.
    fn begun() -> (Feed, Shared) {
        let (mut feed, memory) = Feed::new().unwrap();
        let other = Shared(Area::mapped(memory, ALL_BYTES).unwrap());
        feed.begin(Format::Xz, 0, 0);
        feed.give(&[b'x'; 1000]);
        let answers = &other.words().answers;
        answers.stream.store(feed.stream.0, Ordering::SeqCst);
        answers.state.store(1, Ordering::SeqCst);
        (feed, other)
    }

    #[test]
    fn positions_that_make_no_sense_are_not_believed() {
        let (put, half) = (1000, u32::MAX / 2);
        for (state, taken, made) in
            [(0, 0, 0), (5, 0, 0), (4, 0, 0), (1, put + 1, 0), (1, 0, 1 + (1 << 20)), (2, half, 0), (1, 0, half)]
        {
            let (mut feed, other) = begun();
            let answers = &other.words().answers;
            assert_eq!(feed.progress().unwrap().pending, 1000);
            answers.state.store(state, Ordering::SeqCst);
            answers.taken.store(taken, Ordering::SeqCst);
            answers.made.store(made, Ordering::SeqCst);
            answers.said.store(u32::MAX, Ordering::SeqCst);
            assert!(matches!(feed.progress(), Err(Broken::Nonsense)), "{state} {taken} {made}");
            assert_eq!(feed.said().len(), SAID_BYTES);
        }
    }

    #[test]
    fn a_position_may_not_go_back() {
        let (mut feed, other) = begun();
        let answers = &other.words().answers;
        answers.taken.store(900, Ordering::SeqCst);
        answers.made.store(10, Ordering::SeqCst);
        assert_eq!(feed.progress().unwrap().made, 10);
        answers.made.store(9, Ordering::SeqCst);
        assert!(matches!(feed.progress(), Err(Broken::Nonsense)));
    }

    #[test]
    fn memory_that_is_wanted_is_told_until_it_is_granted() {
        let (mut feed, memory) = Feed::new().unwrap();
        let mut work = Work::of(memory).unwrap();
        feed.begin(Format::Xz, 0, 1000);
        feed.give(b"x");
        work.next().unwrap();
        let mut room = work.room();
        assert!(room(1000), "it was granted at once");
        assert_eq!(feed.progress().unwrap().wanted, None);
        let asked = thread::spawn(move || (room(2000), room(3000), room(2500)));
        let process = pidfd_open(getpid(), PidfdFlags::empty()).unwrap();
        for bytes in [2000, 3000] {
            feed.wait(&process, Duration::from_secs(10)).unwrap();
            assert_eq!(feed.progress().unwrap().wanted, Some(bytes as usize));
            feed.grant(bytes);
        }
        assert_eq!(asked.join().unwrap(), (true, true, true));
        assert_eq!(feed.progress().unwrap().wanted, None);
        // Whoever waits for more ends with the stream.
        let mut room = work.room();
        let asked = thread::spawn(move || room(4000));
        feed.wait(&process, Duration::from_secs(10)).unwrap();
        feed.stop();
        assert!(!asked.join().unwrap() && work.is_stopped());
    }

    #[test]
    fn who_never_answers_is_late() {
        let (mut feed, _memory) = Feed::new().unwrap();
        feed.begin(Format::Xz, 0, 0);
        feed.give(b"x");
        let process = pidfd_open(getpid(), PidfdFlags::empty()).unwrap();
        assert!(matches!(feed.wait(&process, Duration::from_millis(5)), Err(Broken::Late)));
    }
}
