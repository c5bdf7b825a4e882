//! Running a network: whoever reads asks the last stage, which asks the one before it, up to the
//! source.
//!
//! Nothing is asked for that nobody needs: a stage that has ended lets those before it go. What
//! waits between two stages is bounded by what one of them gives at once.

use crate::account::{Account, Bounds};
use crate::flow::{Input, Output, filled};
use crate::fork::fork;
use crate::interrupt::is_interrupted;
use crate::network::{Network, Part};
use crate::prefetch::prefetch;
use crate::stage::{Progress, Running, StageError};
use std::io::{self, Read};
use std::vec;
use weft_block::{Buffer, Rope, Slice};

/// Bytes read at once.
const READ_BYTES: usize = 64 << 10;

/// Source of a network's bytes.
pub trait Source: Send {
    /// The next bytes; none at the end.
    fn next(&mut self) -> io::Result<Option<Slice>>;
    /// Tells that the next bytes are waited for no longer than a file takes to read. Where somebody
    /// sends them when they like, what was made of others is passed on before.
    fn is_at_hand(&self) -> bool {
        false
    }
}

/// Opener of a network's sources. Each may be opened several times, and is read from its beginning
/// each time.
pub trait Sources {
    /// Opens the input that the network reads if it names no file. It is none of
    /// [`Network::modules`].
    fn input(&mut self) -> io::Result<Box<dyn Source>>;
    /// A file, counted from 0.
    fn file(&mut self, number: usize) -> io::Result<Box<dyn Source>>;
    /// Returns the identity of the content of such a file, if that is known without reading it. It
    /// differs from that of earlier content and of other files.
    fn stamp(&mut self, _number: usize) -> io::Result<Option<[u8; 32]>> {
        Ok(None)
    }
    /// The user whose network it is, if that is not who runs this process.
    fn owner(&self) -> Option<u32> {
        None
    }
    /// Bounds on what the network keeps, unless it is part of another one; none: a person runs it.
    fn bounds(&self) -> Option<Bounds> {
        None
    }
    /// Returns the content of the file that holds the key called so, which is a name and no path.
    fn key(&mut self, name: &str) -> io::Result<Vec<u8>> {
        Err(io::Error::new(io::ErrorKind::NotFound, format!("there is no key '{name}': there are none here")))
    }
}

/// Reads from anything.
pub struct Reading<R>(pub R);

impl<R: Read + Send> Source for Reading<R> {
    fn next(&mut self) -> io::Result<Option<Slice>> {
        let mut buffer = Buffer::any(READ_BYTES);
        loop {
            match self.0.read(&mut buffer) {
                Ok(0) => return Ok(None),
                Ok(len) => return Ok(Some(filled(buffer, len))),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Reason why a network does not run to its end.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The source cannot be read.
    #[error("cannot read: {0}")]
    Source(#[source] io::Error),
    /// A stage cannot go on.
    #[error("{stage}: {source}")]
    Stage {
        /// The stage, as it was written.
        stage: String,
        /// The reason.
        source: StageError,
    },
    /// An error that another chain of the same join got already.
    #[error("{0}")]
    Before(String),
    /// The system gives no thread.
    #[error("cannot start a thread: {0}")]
    Thread(#[source] io::Error),
    /// A thread has ended before its work.
    #[error("a bug in Weft, told above: a stage has ended before its work")]
    Lost,
    /// Nobody waits for it any more. It goes on when it is asked for more.
    #[error("nobody waits for it any more")]
    Interrupted,
    /// Bytes that wait for slower readers cannot be stored.
    #[error("cannot use a temporary file: {0}")]
    Temporary(#[source] io::Error),
}

impl RunError {
    /// True if there is no room for a temporary file, or no more than others leave it.
    pub fn is_full(&self) -> bool {
        match self {
            RunError::Temporary(error) | RunError::Stage { source: StageError::Temporary(error), .. } => {
                error.kind() == io::ErrorKind::StorageFull
            }
            _ => false,
        }
    }

    /// True if it may run where other networks keep less.
    pub fn lacks_room(&self) -> bool {
        self.is_full() || matches!(self, RunError::Stage { source: StageError::Memory, .. })
    }
}

/// Something that gives bytes when asked.
pub(crate) trait Pull: Send {
    /// The next bytes; none at the end. After [`RunError::Interrupted`] it can be asked again.
    fn pull(&mut self) -> Result<Option<Rope>, RunError>;
    /// As [`Source::is_at_hand`].
    fn is_at_hand(&self) -> bool {
        false
    }
}

/// A network that runs: what comes of it, some bytes at a time. After an error there is no more to
/// be had.
pub struct Run(Option<Box<dyn Pull>>);

impl Run {
    /// Begins to run `network` on what `sources` open.
    pub fn start(network: &Network, sources: &mut dyn Sources) -> Result<Run, RunError> {
        let mut plan = network.plan().into_iter();
        // Where each byte is made of one alone nothing is kept, and who begins anew for each part
        // is not to be slow.
        let bounds = if network.keeps().place { None } else { sources.bounds() };
        let account = bounds.map_or_else(Account::now, |bounds| Account::of(sources.owner(), bounds));
        account.during(|| {
            let first = begin(&mut plan, sources)?;
            Ok(Run(Some(run(first, plan, sources)?)))
        })
    }
}

impl Iterator for Run {
    type Item = Result<Rope, RunError>;

    fn next(&mut self) -> Option<Result<Rope, RunError>> {
        let result = self.0.as_mut()?.pull().transpose();
        if !matches!(result, Some(Ok(_) | Err(RunError::Interrupted))) {
            self.0 = None;
        }
        result
    }
}

/// Opens the source that the first of `parts` reads. The part is taken if that is all it does. A
/// join all of whose branches read files reads nothing else.
fn begin(parts: &mut vec::IntoIter<Part>, sources: &mut dyn Sources) -> Result<Box<dyn Pull>, RunError> {
    let source = match parts.as_slice().first() {
        Some(Part::File { number }) => sources.file(*number),
        Some(Part::Join { branches, .. }) if branches.iter().all(|branch| reads_files(branch)) => {
            return Ok(Box::new(Nothing));
        }
        _ => return Ok(Box::new(FromSource(sources.input().map_err(RunError::Source)?))),
    };
    parts.next();
    Ok(Box::new(FromSource(source.map_err(RunError::Source)?)))
}

pub(crate) fn reads_files(parts: &[Part]) -> bool {
    match parts.first() {
        Some(Part::File { .. }) => true,
        Some(Part::Join { branches, .. }) => branches.iter().all(|branch| reads_files(branch)),
        Some(Part::Stage { .. }) | None => false,
    }
}

/// Runs `parts` on what `before` gives.
fn run(
    mut before: Box<dyn Pull>,
    parts: vec::IntoIter<Part>,
    sources: &mut dyn Sources,
) -> Result<Box<dyn Pull>, RunError> {
    let mut parts = parts.peekable();
    while let Some(part) = parts.next() {
        before = match part {
            Part::File { .. } => unreachable!("files come first, and were begun with"),
            Part::Stage { text, stage } => {
                let running = (stage.start)(sources).map_err(|error| match error {
                    StageError::Source(source) => RunError::Source(source),
                    source => RunError::Stage { stage: text.clone(), source },
                })?;
                let node = Box::new(Node { name: text, running, before: Some(before), input: Input::default() });
                // What comes last is run by whoever reads it.
                if stage.is_heavy && parts.peek().is_some() { prefetch(node)? } else { node }
            }
            Part::Join { join, branches } => {
                let count = branches.iter().filter(|branch| !reads_files(branch)).count();
                let mut streams = fork(before, count).into_iter();
                let mut joined = Vec::new();
                for branch in branches {
                    let mut parts = branch.into_iter();
                    let first = match parts.as_slice() {
                        own if reads_files(own) => begin(&mut parts, sources)?,
                        _ => streams.next().expect("one for each that has no other"),
                    };
                    joined.push(run(first, parts, sources)?);
                }
                join.of(joined)
            }
        };
    }
    Ok(before)
}

/// Gives nothing.
struct Nothing;

impl Pull for Nothing {
    fn pull(&mut self) -> Result<Option<Rope>, RunError> {
        Ok(None)
    }
}

struct FromSource(Box<dyn Source>);

impl Pull for FromSource {
    fn pull(&mut self) -> Result<Option<Rope>, RunError> {
        let next = self.0.next().map_err(|error| match error.kind() {
            io::ErrorKind::Interrupted => RunError::Interrupted,
            _ => RunError::Source(error),
        })?;
        Ok(next.map(Rope::from))
    }

    fn is_at_hand(&self) -> bool {
        self.0.is_at_hand()
    }
}

/// A stage, and what it gets its bytes from.
struct Node {
    name: String,
    running: Box<dyn Running>,
    /// None once the stage has ended.
    before: Option<Box<dyn Pull>>,
    input: Input,
}

impl Pull for Node {
    fn pull(&mut self) -> Result<Option<Rope>, RunError> {
        let mut output = Output::default();
        while let Some(before) = &mut self.before {
            // Here nothing is on its way: all that was read is in the input, and all that was made
            // is passed on.
            if is_interrupted() {
                return Err(RunError::Interrupted);
            }
            let progress = match self.running.advance(&mut self.input, &mut output) {
                Err(StageError::Paused) => return Err(RunError::Interrupted),
                progress => progress.map_err(|source| RunError::Stage { stage: self.name.clone(), source })?,
            };
            let made = output.take();
            match progress {
                Progress::Ended => {
                    self.before = None;
                    self.input = Input::default();
                }
                Progress::NeedsInput if made.is_empty() => match before.pull()? {
                    Some(rope) => {
                        self.input.append(&rope);
                        self.input.more_is_at_hand(before.is_at_hand());
                    }
                    None => self.input.end(),
                },
                Progress::NeedsInput | Progress::HasMore => {}
            }
            if !made.is_empty() {
                return Ok(Some(made));
            }
        }
        Ok(None)
    }
}
