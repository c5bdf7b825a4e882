//! One stream for several readers, each at its own pace. What one has read and another has not is
//! kept: some of it in memory, where they share it, the rest in a temporary file.

use crate::account::{Account, InMemory};
use crate::flow::compact;
use crate::interrupt::{PERIOD, is_interrupted};
use crate::pull::{Pull, RunError};
use crate::stage::StageError;
use crate::temporary::TemporaryFile;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use weft_block::{Buffer, Rope, Slice};

/// Bytes that a reader may be behind in memory.
const MEMORY_BYTES: usize = 16 << 20;
/// The same if the network keeps much elsewhere.
const MEMORY_BYTES_LEAST: usize = 1 << 20;
/// Bytes read from the file at once.
const READ_BYTES: usize = 64 << 10;

/// A stream and those who read it.
struct Fork {
    before: Box<dyn Pull>,
    readers: Vec<Reader>,
    /// All of the stream from a byte on, once somebody is far behind.
    spilled: Option<TemporaryFile>,
    memory_bytes: usize,
    /// Bytes of the stream so far, and from which byte on the file has it.
    len: u64,
    spilled_from: u64,
    has_ended: bool,
    /// Error that ended the source. Readers that have not had it yet get it too, so that none takes
    /// it for the end.
    failed: Option<Failed>,
    account: Account,
    /// Bytes that wait in memory.
    kept: InMemory,
}

/// An error that one reader was told.
struct Failed {
    text: String,
    why: Why,
}

/// Cause of an error, as far as it matters to the other readers.
enum Why {
    /// A temporary file.
    Temporary(io::ErrorKind),
    /// A stage found no memory.
    Memory(String),
    Other,
}

impl Failed {
    fn of(error: &RunError) -> Failed {
        let why = match error {
            RunError::Temporary(error) | RunError::Stage { source: StageError::Temporary(error), .. } => {
                Why::Temporary(error.kind())
            }
            RunError::Stage { source: StageError::Memory, stage } => Why::Memory(stage.clone()),
            _ => Why::Other,
        };
        Failed { text: error.to_string(), why }
    }

    /// Returns the error for another reader.
    fn again(&self) -> RunError {
        match &self.why {
            Why::Temporary(kind) => RunError::Temporary(io::Error::new(*kind, self.text.clone())),
            Why::Memory(stage) => RunError::Stage { stage: stage.clone(), source: StageError::Memory },
            Why::Other => RunError::Before(self.text.clone()),
        }
    }
}

/// Position of a reader.
struct Reader {
    /// Bytes taken.
    at: u64,
    /// Slices that it has not taken, if nothing is left out.
    slices: VecDeque<Slice>,
    waiting: usize,
    /// True if the bytes it has not taken are to be read from the file.
    is_behind: bool,
    /// Set by itself, and seen when more comes.
    has_left: Arc<AtomicBool>,
    is_gone: bool,
}

/// One of those who read.
struct Handle {
    fork: Arc<Mutex<Fork>>,
    number: usize,
    has_left: Arc<AtomicBool>,
}

/// `count` streams, each of which has all that `before` gives.
pub(crate) fn fork(before: Box<dyn Pull>, count: usize) -> Vec<Box<dyn Pull>> {
    fork_within(MEMORY_BYTES, before, count)
}

fn fork_within(memory_bytes: usize, before: Box<dyn Pull>, count: usize) -> Vec<Box<dyn Pull>> {
    let left: Vec<Arc<AtomicBool>> = (0..count).map(|_| Arc::default()).collect();
    let reader =
        |has_left| Reader { at: 0, slices: VecDeque::new(), waiting: 0, is_behind: false, has_left, is_gone: false };
    let readers = left.iter().cloned().map(reader).collect();
    let account = Account::now();
    let kept = account.memory();
    let (spilled, failed, has_ended) = (None, None, false);
    let fork =
        Fork { before, readers, spilled, memory_bytes, len: 0, spilled_from: 0, has_ended, failed, account, kept };
    let fork = Arc::new(Mutex::new(fork));
    let handle = |(number, has_left)| Box::new(Handle { fork: fork.clone(), number, has_left }) as Box<dyn Pull>;
    left.into_iter().enumerate().map(handle).collect()
}

impl Pull for Handle {
    fn pull(&mut self) -> Result<Option<Rope>, RunError> {
        let mut fork = loop {
            // Whoever has it may read for long.
            match self.fork.try_lock_for(PERIOD) {
                Some(fork) => break fork,
                None if is_interrupted() => return Err(RunError::Interrupted),
                None => {}
            }
        };
        loop {
            if let Some(rope) = fork.take(self.number).map_err(RunError::Temporary)? {
                return Ok(Some(rope));
            }
            if fork.has_ended {
                return Ok(None);
            }
            if let Some(failed) = &fork.failed {
                return Err(failed.again());
            }
            let read = fork.read();
            if let Err(error) = &read
                && !matches!(error, RunError::Interrupted)
            {
                fork.failed = Some(Failed::of(error));
            }
            read?;
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.has_left.store(true, Ordering::Relaxed);
        // Whoever has it may read what this thread holds, so it is not waited for: what is kept
        // here goes when more comes, or with the fork.
        if let Some(mut fork) = self.fork.try_lock() {
            fork.readers[self.number].slices.clear();
        }
    }
}

impl Fork {
    /// Takes the next bytes of the stream.
    fn read(&mut self) -> Result<(), RunError> {
        match self.before.pull()? {
            Some(rope) => self.add(&rope).map_err(RunError::Temporary)?,
            None => self.has_ended = true,
        }
        Ok(())
    }

    /// Takes the bytes that reader `number` has not taken; `None` if there are none.
    fn take(&mut self, number: usize) -> io::Result<Option<Rope>> {
        let reader = &mut self.readers[number];
        if reader.is_behind {
            let file = self.spilled.as_mut().expect("it is behind what was spilled");
            let len = READ_BYTES.min(usize::try_from(self.len - reader.at).unwrap_or(READ_BYTES));
            if len == 0 {
                return Ok(None);
            }
            let mut buffer = Buffer::any(len);
            file.read_exact_at(&mut buffer, reader.at - self.spilled_from)?;
            reader.at += len as u64;
            let last = self.readers.iter().filter(|reader| !reader.is_gone).map(|reader| reader.at).min();
            file.forget_before(last.unwrap_or(self.len) - self.spilled_from);
            return Ok(Some(buffer.freeze().whole().into()));
        }
        let mut rope = Rope::new();
        reader.slices.drain(..).for_each(|slice| rope.push(slice));
        reader.at += rope.len() as u64;
        reader.waiting = 0;
        Ok((!rope.is_empty()).then_some(rope))
    }

    /// Gives `rope` to all.
    fn add(&mut self, rope: &Rope) -> io::Result<()> {
        for reader in &mut self.readers {
            if reader.has_left.load(Ordering::Relaxed) && !reader.is_gone {
                reader.is_gone = true;
                reader.slices.clear();
            }
        }
        let room = self.room(rope.len());
        let is_too_far = |reader: &Reader| !reader.is_gone && reader.waiting + rope.len() > room;
        if self.spilled.is_none() && self.readers.iter().any(is_too_far) {
            self.spill()?;
        }
        if let Some(file) = &mut self.spilled {
            for slice in rope.slices() {
                file.append(slice)?;
            }
        }
        self.len += rope.len() as u64;
        let slices: Vec<Slice> = rope.slices().iter().cloned().map(compact).collect();
        for reader in self.readers.iter_mut().filter(|reader| !reader.is_gone && !reader.is_behind) {
            if reader.waiting + rope.len() > room {
                // From where it is on, the file has all.
                reader.is_behind = true;
                reader.slices.clear();
            } else {
                reader.slices.extend(slices.iter().cloned());
                reader.waiting += rope.len();
            }
        }
        Ok(())
    }

    /// Bytes that a reader may be behind in memory when `more` are added: fewer if the network
    /// keeps much already.
    fn room(&mut self, more: usize) -> usize {
        let furthest = self.readers.iter().filter(|reader| !reader.is_gone).map(|reader| reader.waiting).max();
        let wanted = furthest.unwrap_or(0) + more;
        if wanted > self.memory_bytes || self.kept.set(wanted) {
            return self.memory_bytes;
        }
        self.memory_bytes.min(MEMORY_BYTES_LEAST)
    }

    /// Begins a file, with what the one that is furthest behind has not taken.
    fn spill(&mut self) -> io::Result<()> {
        let last = self.readers.iter().filter(|reader| !reader.is_gone).min_by_key(|reader| reader.at);
        let last = last.expect("somebody is behind");
        let mut file = TemporaryFile::new(&self.account)?;
        for slice in &last.slices {
            file.append(slice)?;
        }
        self.spilled_from = last.at;
        self.spilled = Some(file);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    struct Given(VecDeque<Vec<u8>>);

    impl Pull for Given {
        fn pull(&mut self) -> Result<Option<Rope>, RunError> {
            Ok(self.0.pop_front().map(Rope::from))
        }
    }

    struct Fails;

    impl Pull for Fails {
        fn pull(&mut self) -> Result<Option<Rope>, RunError> {
            Err(RunError::Source(io::Error::other("on purpose")))
        }
    }

    #[test]
    fn all_hear_of_a_failure_and_none_takes_it_for_the_end() {
        for mut reader in fork(Box::new(Fails), 3) {
            assert_eq!(reader.pull().unwrap_err().to_string(), "cannot read: on purpose");
        }
    }

    proptest! {
        #[test]
        fn each_reads_all_at_its_own_pace(
            pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..20), 0..30),
            order in proptest::collection::vec(0usize..3, 0..60), memory_bytes in 0usize..100, leaves in 0usize..4,
        ) {
            let mut readers: Vec<_> = fork_within(memory_bytes, Box::new(Given(pieces.clone().into())), 3).into_iter().map(Some).collect();
            let mut read = [Vec::new(), Vec::new(), Vec::new()];
            for (step, which) in order.into_iter().chain([0, 1, 2].into_iter().flat_map(|which| [which].repeat(700))).enumerate() {
                if step == 20 && leaves < 3 {
                    readers[leaves] = None;
                }
                if let Some(reader) = &mut readers[which] && let Some(rope) = reader.pull().unwrap() {
                    read[which].extend(rope.to_vec());
                }
            }
            let expected = pieces.concat();
            for (which, read) in read.iter().enumerate() {
                prop_assert!(which == leaves && expected.starts_with(read) || *read == expected);
            }
        }
    }

    /// Gives something, and lets go of another reader of the same meanwhile.
    struct LettingGo(Arc<Mutex<Option<Box<dyn Pull>>>>);

    impl Pull for LettingGo {
        fn pull(&mut self) -> Result<Option<Rope>, RunError> {
            Ok(self.0.lock().take().map(|_| Rope::from(vec![1])))
        }
    }

    #[test]
    fn a_reader_leaves_while_the_stream_is_read() {
        let other = Arc::new(Mutex::new(None));
        let mut readers = fork(Box::new(LettingGo(other.clone())), 2);
        *other.lock() = readers.pop();
        assert_eq!(readers[0].pull().unwrap().map(|rope| rope.to_vec()), Some(vec![1]));
        assert!(readers[0].pull().unwrap().is_none());
    }
}
