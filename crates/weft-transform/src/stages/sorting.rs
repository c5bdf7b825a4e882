//! sort, which needs all lines before it gives the first.
//!
//! It keeps so many bytes in memory; beyond, what it has goes into temporary files: sorted runs that are merged at the end.

use super::lines::{ByLine, Fate, Line, Lines};
use crate::arguments::Arguments;
use crate::flow::{Input, Output};
use crate::language::{Call, NetworkError};
use crate::stage::{Progress, Running, Stage, StageError};
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Seek, Write};

/// Bytes of lines held in memory, with what tells where they are.
const MEMORY_BYTES: usize = 64 << 20;
/// Runs merged at once.
const RUNS_MAX: usize = 64;

/// How lines are compared.
#[derive(Clone, Copy, Debug, Default)]
struct Order {
    reverse: bool,
    numeric: bool,
    unique: bool,
}

impl Order {
    fn compare(self, one: &[u8], other: &[u8]) -> Ordering {
        let by_number = || number(one).total_cmp(&number(other));
        let order = if self.numeric { by_number() } else { one.cmp(other) };
        // As sort(1): what compares equal is then compared byte by byte, unless only one of it is kept.
        let order = if order.is_eq() && !self.unique { one.cmp(other) } else { order };
        if self.reverse { order.reverse() } else { order }
    }
}

/// The number that a line begins with (sort -n); 0 if there is none.
fn number(line: &[u8]) -> f64 {
    let line = line.trim_ascii_start();
    let sign = usize::from(line.first() == Some(&b'-'));
    let digits = line[sign..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let mut end = sign + digits;
    if line.get(end) == Some(&b'.') {
        end += 1 + line[end + 1..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    }
    let number = std::str::from_utf8(&line[..end]).ok().and_then(|text| text.trim_end_matches('.').parse().ok());
    // -0 is no less than 0.
    number.unwrap_or(0.0) + 0.0
}

/// Lines in memory.
#[derive(Default)]
struct Held {
    bytes: Vec<u8>,
    lines: Vec<(usize, usize)>,
}

impl Held {
    fn push(&mut self, line: &[u8]) {
        self.lines.push((self.bytes.len(), line.len()));
        self.bytes.extend_from_slice(line);
    }

    fn len(&self) -> usize {
        self.bytes.len() + self.lines.len() * size_of::<(usize, usize)>()
    }

    fn sorted(&mut self, order: Order) -> impl Iterator<Item = &[u8]> {
        let text = |(start, len): (usize, usize)| &self.bytes[start..start + len];
        self.lines.sort_by(|one, other| order.compare(text(*one), text(*other)));
        self.lines.iter().map(move |line| text(*line))
    }
}

/// sort, while lines come.
struct Sort {
    order: Order,
    memory_bytes: usize,
    held: Held,
    runs: Vec<File>,
    failed: Option<io::Error>,
}

impl Sort {
    /// Writes what is in memory to a file, sorted.
    fn spill(&mut self) -> io::Result<()> {
        let mut file = BufWriter::new(tempfile::tempfile()?);
        for line in self.held.sorted(self.order) {
            file.write_all(&(line.len() as u64).to_ne_bytes())?;
            file.write_all(line)?;
        }
        self.held = Held::default();
        self.runs.push(file.into_inner().map_err(io::IntoInnerError::into_error)?);
        if self.runs.len() == RUNS_MAX {
            let mut merged = BufWriter::new(tempfile::tempfile()?);
            let mut merge = Merge::new(self.order, std::mem::take(&mut self.runs))?;
            while let Some(line) = merge.next()? {
                merged.write_all(&(line.len() as u64).to_ne_bytes())?;
                merged.write_all(&line)?;
            }
            self.runs.push(merged.into_inner().map_err(io::IntoInnerError::into_error)?);
        }
        Ok(())
    }
}

impl Lines for Sort {
    fn line(&mut self, line: Line<'_>, _: &mut Vec<u8>) -> Fate {
        self.held.push(line.text);
        if self.held.len() >= self.memory_bytes {
            self.failed = self.spill().err();
        }
        if self.failed.is_some() { Fate::End } else { Fate::Drop }
    }

    fn end(&mut self, _: &mut Vec<u8>) {}
}

/// The next line of a run.
struct Head {
    line: Vec<u8>,
    run: usize,
    order: Order,
}

impl Ord for Head {
    /// The one that comes first is the greatest; of equal ones, that of the earlier run.
    fn cmp(&self, other: &Head) -> Ordering {
        self.order.compare(&other.line, &self.line).then(other.run.cmp(&self.run))
    }
}

impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Head) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Head {
    fn eq(&self, other: &Head) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Head {}

/// Sorted runs, read as one.
struct Merge {
    order: Order,
    runs: Vec<BufReader<File>>,
    heads: BinaryHeap<Head>,
}

impl Merge {
    fn new(order: Order, runs: Vec<File>) -> io::Result<Merge> {
        let mut merge = Merge { order, runs: Vec::new(), heads: BinaryHeap::new() };
        for mut run in runs {
            run.rewind()?;
            merge.runs.push(BufReader::new(run));
            merge.advance(merge.runs.len() - 1)?;
        }
        Ok(merge)
    }

    fn advance(&mut self, run: usize) -> io::Result<()> {
        let reader = &mut self.runs[run];
        if reader.fill_buf()?.is_empty() {
            return Ok(());
        }
        let mut len = [0; 8];
        io::Read::read_exact(reader, &mut len)?;
        let mut line = vec![0; usize::try_from(u64::from_ne_bytes(len)).expect("it was in memory once")];
        io::Read::read_exact(reader, &mut line)?;
        self.heads.push(Head { line, run, order: self.order });
        Ok(())
    }

    fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        let Some(head) = self.heads.pop() else { return Ok(None) };
        self.advance(head.run)?;
        Ok(Some(head.line))
    }
}

/// sort, from the first line to the last.
enum Sorting {
    /// Lines come.
    Gathering(Box<ByLine<Sort>>),
    /// Sorted lines go: those in memory, from a position on.
    FromMemory { order: Order, held: Held, at: usize },
    /// Sorted lines go: those in files, after one that was told.
    FromFiles { merge: Merge, told: Option<Vec<u8>> },
}

impl Sorting {
    fn new(order: Order, memory_bytes: usize) -> Sorting {
        let sort = Sort { order, memory_bytes, held: Held::default(), runs: Vec::new(), failed: None };
        Sorting::Gathering(Box::new(ByLine::new(sort)))
    }

    /// All lines are there.
    fn sorted(mut sort: Sort) -> Result<Sorting, StageError> {
        if let Some(error) = sort.failed {
            return Err(error.into());
        }
        if sort.runs.is_empty() {
            drop(sort.held.sorted(sort.order));
            return Ok(Sorting::FromMemory { order: sort.order, held: sort.held, at: 0 });
        }
        sort.spill()?;
        Ok(Sorting::FromFiles { merge: Merge::new(sort.order, sort.runs)?, told: None })
    }
}

impl Running for Sorting {
    fn advance(&mut self, input: &mut Input, output: &mut Output) -> Result<Progress, StageError> {
        if let Sorting::Gathering(gathering) = self {
            let progress = gathering.advance(input, output)?;
            if progress != Progress::Ended {
                return Ok(progress);
            }
            let empty = Sorting::FromMemory { order: Order::default(), held: Held::default(), at: 0 };
            if let Sorting::Gathering(gathered) = std::mem::replace(self, empty) {
                *self = Sorting::sorted(gathered.into_lines())?;
            }
        }
        loop {
            if output.is_full() {
                return Ok(Progress::HasMore);
            }
            match self {
                Sorting::Gathering(_) => unreachable!("all lines are there"),
                Sorting::FromMemory { order, held, at } => {
                    let text = |at: usize| held.lines.get(at).map(|(start, len)| &held.bytes[*start..start + len]);
                    let Some(line) = text(*at) else { return Ok(Progress::Ended) };
                    let is_told =
                        at.checked_sub(1).and_then(text).is_some_and(|last| order.compare(last, line).is_eq());
                    *at += 1;
                    if !(order.unique && is_told) {
                        output.write(line);
                        output.write(b"\n");
                    }
                }
                Sorting::FromFiles { merge, told } => {
                    let Some(line) = merge.next()? else { return Ok(Progress::Ended) };
                    let order = merge.order;
                    let is_told = told.as_ref().is_some_and(|last| order.compare(last, &line).is_eq());
                    if !(order.unique && is_told) {
                        output.write(&line);
                        output.write(b"\n");
                    }
                    *told = Some(line);
                }
            }
        }
    }
}

pub(crate) fn sort(call: &Call) -> Result<Stage, NetworkError> {
    let arguments = Arguments::read(call, "rnu", "")?;
    arguments.end()?;
    let order = Order { reverse: arguments.has('r'), numeric: arguments.has('n'), unique: arguments.has('u') };
    Ok(Stage::of_text(move || Sorting::new(order, MEMORY_BYTES)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use weft_block::Slice;

    proptest! {
        #[test]
        fn what_goes_through_files_is_sorted_as_what_stays_in_memory(
            lines in proptest::collection::vec("[ab1-]{0,3}", 0..200), reverse: bool, numeric: bool, unique: bool,
        ) {
            let order = Order { reverse, numeric, unique };
            let run = |memory_bytes: usize| {
                let mut sorting = Sorting::new(order, memory_bytes);
                let (mut input, mut output, mut made) = (Input::default(), Output::default(), Vec::new());
                input.push(Slice::from(lines.join("\n").into_bytes()));
                input.end();
                while sorting.advance(&mut input, &mut output).unwrap() != Progress::Ended {
                    made.extend(output.take().to_vec());
                }
                made.extend(output.take().to_vec());
                made
            };
            prop_assert_eq!(run(40), run(1 << 20));
        }
    }
}
