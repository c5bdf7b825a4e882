//! Stages made of what reads and writes as it likes: it runs in a thread of its own, between two
//! queues with bounds.

use crate::account::Account;
use crate::flow::{Input, Output};
use crate::interrupt::{PERIOD, is_interrupted};
use crate::stage::{Progress, Running, StageError};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::io::{self, BufRead, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread;
use weft_block::{Block, Slice};

/// Bytes that wait in a queue.
const QUEUE_BYTES: usize = 1 << 20;

/// Bytes that are written before they are handed over.
const WRITE_BYTES: usize = 64 << 10;

/// Work of the thread: it reads until it has what it needs, writes, and ends.
pub(crate) type Work = dyn FnOnce(Reader, &mut Writer) -> Result<(), StageError> + Send;

/// A stage that runs in a thread.
pub(crate) struct Threaded {
    /// None once it runs.
    work: Option<Box<Work>>,
    queues: Arc<Queues>,
    account: Account,
}

#[derive(Default)]
struct Queues {
    state: Mutex<State>,
    /// Signalled when anything changes.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    input: VecDeque<Slice>,
    input_bytes: usize,
    input_ended: bool,
    /// The thread waits for input.
    is_hungry: bool,
    output: VecDeque<Slice>,
    output_bytes: usize,
    done: Option<Result<(), StageError>>,
    /// The thread wants no more input.
    is_stopped: bool,
    /// Nobody wants the results any more.
    is_gone: bool,
    /// Bell to ring when the thread is to stop, or nobody wants its results.
    bell: Option<Arc<OwnedFd>>,
}

impl State {
    fn ring(&self) {
        // It cannot fail but by overflow, and then it rings already.
        let _ = self.bell.as_ref().map(|bell| rustix::io::write(bell, &1u64.to_ne_bytes()));
    }
}

/// Ends what reads a [`Reader`], from another thread.
pub(crate) struct Stop(Arc<Queues>);

impl Stop {
    pub(crate) fn stop(&self) {
        let mut state = self.0.state.lock();
        state.is_stopped = true;
        state.is_hungry = false;
        state.ring();
        self.0.changed.notify_all();
    }
}

impl Reader {
    /// Has `bell`, an event's descriptor, rung when nobody wants the results any more, or this was
    /// stopped: for a thread that waits for something else.
    pub(crate) fn ring(&self, bell: &Arc<OwnedFd>) {
        let mut state = self.queues.state.lock();
        state.bell = Some(bell.clone());
        if state.is_gone {
            state.ring();
        }
    }

    /// Returns a handle that ends reading: the next read that finds nothing at hand fails, and all
    /// after it.
    pub(crate) fn stop(&self) -> Stop {
        Stop(self.queues.clone())
    }
}

/// Input of such a stage.
pub(crate) struct Reader {
    queues: Arc<Queues>,
    front: Slice,
    taken: usize,
}

/// Output of such a stage.
pub(crate) struct Writer {
    queues: Arc<Queues>,
    bytes: Vec<u8>,
}

impl Threaded {
    /// A stage that does `work`.
    pub(crate) fn new(work: impl FnOnce(Reader, &mut Writer) -> Result<(), StageError> + Send + 'static) -> Threaded {
        Threaded { work: Some(Box::new(work)), queues: Arc::default(), account: Account::now() }
    }

    fn begin(&mut self) -> Result<(), StageError> {
        let Some(work) = self.work.take() else { return Ok(()) };
        let (queues, account) = (self.queues.clone(), self.account.clone());
        let run = move || {
            let ended = Ended(&queues);
            let reader = Reader { queues: queues.clone(), front: Slice::default(), taken: 0 };
            let mut writer = Writer { queues: queues.clone(), bytes: Vec::new() };
            let done = account.during(|| work(reader, &mut writer)).and_then(|()| Ok(writer.flush()?));
            queues.state.lock().done = Some(done);
            drop(ended);
        };
        thread::Builder::new().name("weft-stage".into()).spawn(run)?;
        Ok(())
    }
}

/// Says that the thread is at its end, however it came to that.
struct Ended<'a>(&'a Queues);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state
            .done
            .get_or_insert_with(|| Err(StageError::data("a bug in Weft, told above: it has ended before its work")));
        self.0.changed.notify_all();
    }
}

impl Running for Threaded {
    fn advance(&mut self, input: &mut Input, output: &mut Output) -> Result<Progress, StageError> {
        self.begin()?;
        let mut state = self.queues.state.lock();
        loop {
            while state.input_bytes < QUEUE_BYTES
                && let Some(slice) = input.take()
            {
                state.input_bytes += slice.len();
                state.input.push_back(slice);
                state.is_hungry = false;
                self.queues.changed.notify_all();
            }
            if input.has_ended() && !state.input_ended {
                state.input_ended = true;
                state.is_hungry = false;
                self.queues.changed.notify_all();
            }
            if !state.output.is_empty() {
                state.output.drain(..).for_each(|slice| output.push(slice));
                state.output_bytes = 0;
                self.queues.changed.notify_all();
                return Ok(Progress::HasMore);
            }
            match state.done.take() {
                Some(Ok(())) => return Ok(Progress::Ended),
                Some(Err(error)) => return Err(error),
                None => {}
            }
            if state.is_hungry && state.input.is_empty() && !state.input_ended {
                return Ok(Progress::NeedsInput);
            }
            if self.queues.changed.wait_for(&mut state, PERIOD).timed_out() && is_interrupted() {
                return Err(StageError::Paused);
            }
        }
    }
}

impl Drop for Threaded {
    fn drop(&mut self) {
        let mut state = self.queues.state.lock();
        state.is_gone = true;
        state.ring();
        drop(state);
        self.queues.changed.notify_all();
    }
}

/// Returns the thread's error for when nobody wants its results.
fn gone() -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, "nobody reads this")
}

impl BufRead for Reader {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.taken == self.front.len() {
            self.taken = 0;
            let mut state = self.queues.state.lock();
            self.front = loop {
                if state.is_gone || state.is_stopped {
                    return Err(gone());
                }
                if let Some(slice) = state.input.pop_front() {
                    state.input_bytes -= slice.len();
                    self.queues.changed.notify_all();
                    break slice;
                }
                if state.input_ended {
                    break Slice::default();
                }
                state.is_hungry = true;
                self.queues.changed.notify_all();
                self.queues.changed.wait(&mut state);
            };
        }
        Ok(&self.front[self.taken..])
    }

    fn consume(&mut self, count: usize) {
        self.taken += count;
    }
}

impl Read for Reader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.fill_buf()?;
        let count = bytes.len().min(buffer.len());
        buffer[..count].copy_from_slice(&bytes[..count]);
        weft_block::copied(count);
        self.consume(count);
        Ok(count)
    }
}

impl Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.extend_from_slice(bytes);
        if self.bytes.len() >= WRITE_BYTES {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.bytes.is_empty() {
            return Ok(());
        }
        let slice = Block::new(std::mem::take(&mut self.bytes)).whole();
        let mut state = self.queues.state.lock();
        while state.output_bytes >= QUEUE_BYTES && !state.is_gone {
            self.queues.changed.wait(&mut state);
        }
        if state.is_gone {
            return Err(gone());
        }
        state.output_bytes += slice.len();
        state.output.push_back(slice);
        self.queues.changed.notify_all();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_block::Buffer;

    /// All that `stage` makes of `bytes`, given `at_once` of them together.
    fn run(mut stage: Threaded, bytes: &[u8], at_once: usize) -> Result<Vec<u8>, StageError> {
        let (mut input, mut made, mut pieces) = (Input::default(), Vec::new(), bytes.chunks(at_once));
        loop {
            let mut output = Output::default();
            let progress = stage.advance(&mut input, &mut output)?;
            made.extend(output.take().to_vec());
            match progress {
                Progress::Ended => return Ok(made),
                Progress::HasMore => {}
                Progress::NeedsInput => match pieces.next() {
                    Some(piece) => input.push(Buffer::copy_of(piece).freeze().whole()),
                    None => input.end(),
                },
            }
        }
    }

    fn copy(mut reader: Reader, writer: &mut Writer) -> Result<(), StageError> {
        Ok(io::copy(&mut reader, writer).map(|_| ())?)
    }

    #[test]
    fn bytes_come_through_in_order_however_they_are_cut() {
        let bytes: Vec<u8> = (0..5_000_000u32).map(|number| (number % 251) as u8).collect();
        for at_once in [1 << 20, 70_001, 4_999_999] {
            assert!(run(Threaded::new(copy), &bytes, at_once).unwrap() == bytes);
        }
        assert_eq!(run(Threaded::new(copy), b"", 1).unwrap(), b"");
    }

    #[test]
    fn it_may_end_early_fail_or_panic() {
        let head = |mut reader: Reader, writer: &mut Writer| {
            let mut first = [0; 3];
            reader.read_exact(&mut first)?;
            Ok(writer.write_all(&first)?)
        };
        assert_eq!(run(Threaded::new(head), b"abcdef", 2).unwrap(), b"abc");
        let fails = |_: Reader, _: &mut Writer| Err(StageError::data("on purpose"));
        assert_eq!(run(Threaded::new(fails), b"abc", 2).unwrap_err().to_string(), "on purpose");
        let panics = |_: Reader, _: &mut Writer| panic!("on purpose");
        assert!(run(Threaded::new(panics), b"abc", 2).unwrap_err().to_string().contains("ended before its work"));
    }

    #[test]
    fn who_leaves_is_not_waited_for() {
        let (tell, told) = std::sync::mpsc::channel();
        let mut stage = Threaded::new(move |_, writer| {
            let error = loop {
                if let Err(error) = writer.write_all(&[0; 1000]) {
                    break error;
                }
            };
            tell.send(error.kind()).expect("somebody listens");
            Ok(())
        });
        stage.advance(&mut Input::default(), &mut Output::default()).unwrap();
        drop(stage);
        assert_eq!(told.recv().unwrap(), io::ErrorKind::BrokenPipe);
    }
}
