//! Joins, which make one stream of the results of several networks: concat, interleave, merge, zip.

use crate::account::{Account, COUNTED_FROM, InMemory};
use crate::language::{NetworkError, Word};
use crate::pull::{Pull, RunError};
use crate::stage::{Shape, StageError, Wants};
use crate::stages::lines::{LINE_BYTES_MAX, too_long};
use memchr::memchr;
use std::collections::VecDeque;
use std::fmt;
use weft_block::{Rope, Slice};

/// Bytes of lines put together before they are passed on.
const OUTPUT_BYTES: usize = 64 << 10;

/// A way to make one of several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Join {
    /// One after the other.
    Concat,
    /// A line of each in turn, those that have ended left out.
    Interleave,
    /// Lines of all, the one that comes first by its bytes first: of sorted ones, sorted.
    Merge,
    /// A line of each side by side, with tabs between them, until all have ended (paste(1)).
    Zip,
}

impl fmt::Display for Join {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Join::Concat => "concat",
            Join::Interleave => "interleave",
            Join::Merge => "merge",
            Join::Zip => "zip",
        })
    }
}

impl Join {
    pub(crate) fn named(name: &Word) -> Result<Join, NetworkError> {
        let all = [Join::Concat, Join::Interleave, Join::Merge, Join::Zip];
        all.into_iter().find(|join| join.to_string() == name.text).ok_or_else(|| {
            let message = format!("'{}' joins nothing: concat, interleave, merge and zip do", name.text);
            NetworkError::new(message, name.at)
        })
    }

    /// Returns the kind of input that it works on.
    pub(crate) fn wants(self) -> Wants {
        if self == Join::Concat { Wants::Bytes } else { Wants::Lines }
    }

    /// Returns the shape of its output for branches of these shapes.
    pub(crate) fn gives(self, branches: &[Shape]) -> Shape {
        let all = branches.first().filter(|first| branches.iter().all(|shape| shape == *first));
        match (self, all) {
            (Join::Zip, _) => Shape::Text,
            (Join::Interleave | Join::Merge, all) => all.map_or(Shape::Text, |shape| shape.lines()),
            // Lines of one follow those of another, if those end with one.
            (Join::Concat, Some(Shape::Records)) => Shape::Records,
            (Join::Concat, _) => Shape::Unknown,
        }
    }

    /// Joins `branches` into one stream.
    pub(crate) fn of(self, branches: Vec<Box<dyn Pull>>) -> Box<dyn Pull> {
        match self {
            Join::Concat => Box::new(Concat(branches.into())),
            Join::Interleave | Join::Merge | Join::Zip => {
                let branches = branches.into_iter().map(|branch| Branch::new(self, branch)).collect();
                Box::new(ByLine { join: self, branches, turn: 0, output: Vec::new() })
            }
        }
    }
}

struct Concat(VecDeque<Box<dyn Pull>>);

impl Pull for Concat {
    fn pull(&mut self) -> Result<Option<Rope>, RunError> {
        while let Some(first) = self.0.front_mut() {
            if let Some(rope) = first.pull()? {
                return Ok(Some(rope));
            }
            self.0.pop_front();
        }
        Ok(None)
    }
}

/// A network whose results are taken line by line.
struct Branch {
    join: Join,
    pull: Box<dyn Pull>,
    slices: VecDeque<Slice>,
    /// The beginning of a line whose end was not read yet.
    begun: Option<Vec<u8>>,
    /// The line to be taken next, without its newline, once it was looked for; none: there are no
    /// more.
    line: Option<Option<Vec<u8>>>,
    /// The longest line so far, and once more what becomes of it.
    memory: InMemory,
}

impl Branch {
    fn new(join: Join, pull: Box<dyn Pull>) -> Branch {
        Branch { join, pull, slices: VecDeque::new(), begun: None, line: None, memory: Account::now().memory() }
    }

    /// Looks for the next line, if that was not done yet.
    fn look(&mut self) -> Result<(), RunError> {
        if self.line.is_none() {
            self.line = Some(self.read()?);
        }
        Ok(())
    }

    fn take(&mut self) -> Result<Option<Vec<u8>>, RunError> {
        self.look()?;
        match &mut self.line {
            // Nothing comes after the end.
            Some(None) | None => Ok(None),
            Some(_) => Ok(self.line.take().flatten()),
        }
    }

    fn read(&mut self) -> Result<Option<Vec<u8>>, RunError> {
        loop {
            let Some(slice) = self.slices.pop_front() else {
                match self.pull.pull()? {
                    Some(rope) => self.slices.extend(rope.slices().iter().cloned()),
                    None => return Ok(self.begun.take()),
                }
                continue;
            };
            let line = self.begun.get_or_insert_default();
            let end = memchr(b'\n', &slice);
            let text = &slice[..end.unwrap_or(slice.len())];
            if line.len() + text.len() > LINE_BYTES_MAX {
                return Err(RunError::Stage { stage: self.join.to_string(), source: too_long() });
            }
            let len = line.len() + text.len();
            if len as u64 >= COUNTED_FROM && !self.memory.raise(2 * len) {
                return Err(RunError::Stage { stage: self.join.to_string(), source: StageError::Memory });
            }
            line.extend_from_slice(text);
            if let Some(end) = end {
                if end + 1 < slice.len() {
                    self.slices.push_front(slice.slice(end + 1..slice.len()));
                }
                return Ok(self.begun.take());
            }
        }
    }
}

struct ByLine {
    join: Join,
    branches: Vec<Branch>,
    /// Index of the branch whose turn it is.
    turn: usize,
    /// Lines that were not passed on yet.
    output: Vec<u8>,
}

impl ByLine {
    /// Adds the next line to the output; false if there is none.
    fn next(&mut self) -> Result<bool, RunError> {
        let line = match self.join {
            Join::Concat => unreachable!("it does not look at lines"),
            Join::Interleave => self.interleaved()?,
            Join::Merge => self.merged()?,
            Join::Zip => self.zipped()?,
        };
        let Some(line) = line else { return Ok(false) };
        self.output.extend_from_slice(&line);
        self.output.push(b'\n');
        Ok(true)
    }

    fn interleaved(&mut self) -> Result<Option<Vec<u8>>, RunError> {
        for _ in 0..self.branches.len() {
            let line = self.branches[self.turn].take()?;
            self.turn = (self.turn + 1) % self.branches.len();
            if let Some(line) = line {
                return Ok(Some(line));
            }
        }
        Ok(None)
    }

    fn merged(&mut self) -> Result<Option<Vec<u8>>, RunError> {
        for branch in &mut self.branches {
            branch.look()?;
        }
        let lines = self.branches.iter().enumerate();
        // Of equal ones that of the first branch.
        let first = lines.filter_map(|(at, branch)| Some((branch.line.as_ref()?.as_ref()?, at))).min();
        first.map(|(_, at)| at).map_or(Ok(None), |at| self.branches[at].take())
    }

    fn zipped(&mut self) -> Result<Option<Vec<u8>>, RunError> {
        // All of them first: none is lost if one is not there yet.
        self.branches.iter_mut().try_for_each(Branch::look)?;
        let lines = self.branches.iter_mut().map(Branch::take).collect::<Result<Vec<_>, _>>()?;
        if lines.iter().all(Option::is_none) {
            return Ok(None);
        }
        let lines: Vec<_> = lines.into_iter().map(Option::unwrap_or_default).collect();
        Ok(Some(lines.join(&b'\t')))
    }
}

impl Pull for ByLine {
    fn pull(&mut self) -> Result<Option<Rope>, RunError> {
        while self.output.len() < OUTPUT_BYTES && self.next()? {}
        let output = std::mem::take(&mut self.output);
        Ok((!output.is_empty()).then(|| Rope::from(output)))
    }
}
