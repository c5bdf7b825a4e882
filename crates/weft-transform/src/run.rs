//! Running a network: whoever reads asks the last stage, which asks the one before it, up to the
//! source.
//!
//! Nothing is asked for that nobody needs: a stage that has ended lets those before it go. What
//! waits between two stages is bounded by what one of them gives at once.

use crate::account::Account;
use crate::flow::{Input, Output};
use crate::fork::fork;
use crate::interrupt::is_interrupted;
use crate::network::{Network, Part};
use crate::prefetch::prefetch;
use crate::pull::{Pull, RunError};
use crate::source::{Source, Sources, WithInput};
use crate::stage::{Progress, Running, StageError};
use std::io;
use std::vec;
use weft_block::{Rope, Slice};

impl Network {
    /// Applies it to `bytes`, which are all the input; or any part of it, if it keeps places.
    /// `files` open those that it names.
    pub fn apply(&self, bytes: Rope, files: &mut dyn Sources) -> Result<Rope, RunError> {
        let mut applied = Rope::new();
        let input = || Ok(Box::new(Slices(bytes.slices().to_vec().into_iter())) as Box<dyn Source>);
        for rope in Run::start(self, &mut WithInput { input, files })? {
            rope?.slices().iter().for_each(|slice| applied.push(slice.clone()));
        }
        Ok(applied)
    }
}

struct Slices(vec::IntoIter<Slice>);

impl Source for Slices {
    fn next(&mut self) -> io::Result<Option<Slice>> {
        Ok(self.0.find(|slice| !slice.is_empty()))
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
