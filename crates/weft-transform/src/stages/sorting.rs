//! sort, which needs all lines before it gives the first.
//!
//! It keeps so many bytes in memory; beyond, what it has goes into temporary files: sorted runs
//! that are merged at the end.

use super::lines::{ByLine, Fate, Line, Lines};
use crate::account::{Account, COUNTED_FROM, InMemory};
use crate::arguments::Arguments;
use crate::flow::{Input, Output};
use crate::language::{Call, NetworkError};
use crate::stage::{Progress, Running, Stage, StageError};
use crate::temporary::TemporaryFile;
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::io::{self, BufRead, BufReader, BufWriter, Seek, Write};
use std::num::NonZero;
use std::thread;

/// Bytes of lines held in memory, with what tells where they are.
const MEMORY_BYTES: usize = 64 << 20;
/// The same if the network keeps much elsewhere.
const MEMORY_BYTES_LEAST: usize = 1 << 20;
/// Lines from which on processors share the work.
const SHARED_LINES: usize = 1 << 14;
/// Runs merged at once.
const RUNS_MAX: usize = 64;

/// Order of lines.
#[derive(Clone, Copy, Debug, Default)]
struct Order {
    reverse: bool,
    numeric: bool,
    unique: bool,
}

impl Order {
    /// Compares two lines with their keys.
    fn compare(self, one: (u64, &[u8]), other: (u64, &[u8])) -> Ordering {
        let order = one.0.cmp(&other.0).then_with(|| {
            // As sort(1): of one number are lines told apart by their bytes, unless only one is
            // kept.
            let by_number = if self.numeric { Decimal::of(one.1).cmp(&Decimal::of(other.1)) } else { Ordering::Equal };
            if self.numeric && self.unique { by_number } else { by_number.then_with(|| one.1.cmp(other.1)) }
        });
        if self.reverse { order.reverse() } else { order }
    }

    /// A number that tells most lines apart: the first bytes, or the number that it begins with.
    fn key(self, line: &[u8]) -> u64 {
        if self.numeric {
            // Bits of numbers, in the order of the numbers.
            let bits = number(line).to_bits();
            return if bits >> 63 == 1 { !bits } else { bits | 1 << 63 };
        }
        let mut first = [0; 8];
        let len = line.len().min(8);
        first[..len].copy_from_slice(&line[..len]);
        u64::from_be_bytes(first)
    }
}

/// The number that a line begins with, of as many digits as it has; 0 if there is none.
#[derive(PartialEq, Eq)]
struct Decimal<'a> {
    is_negative: bool,
    /// Its digits before the point, without zeros before them.
    whole: &'a [u8],
    /// Those after it, without zeros behind them.
    fraction: &'a [u8],
}

impl Decimal<'_> {
    fn of(line: &[u8]) -> Decimal<'_> {
        let digits = |text: &[u8]| text.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let line = line.trim_ascii_start();
        let (is_negative, line) = line.strip_prefix(b"-").map_or((false, line), |rest| (true, rest));
        let (whole, rest) = line.split_at(digits(line));
        let fraction = rest.strip_prefix(b".").map_or(&[][..], |rest| &rest[..digits(rest)]);
        let whole = &whole[whole.iter().take_while(|digit| **digit == b'0').count()..];
        let zeros = fraction.iter().rev().take_while(|digit| **digit == b'0').count();
        let fraction = &fraction[..fraction.len() - zeros];
        // -0 is no less than 0.
        Decimal { is_negative: is_negative && !(whole.is_empty() && fraction.is_empty()), whole, fraction }
    }
}

impl Ord for Decimal<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        let size = |of: &Self, than: &Self| {
            let by_whole = of.whole.len().cmp(&than.whole.len()).then_with(|| of.whole.cmp(than.whole));
            by_whole.then_with(|| of.fraction.cmp(than.fraction))
        };
        match (self.is_negative, other.is_negative) {
            (false, false) => size(self, other),
            (true, true) => size(other, self),
            (is_negative, _) => {
                if is_negative {
                    Ordering::Less
                } else {
                    Ordering::Greater
                }
            }
        }
    }
}

impl PartialOrd for Decimal<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// About the number that a line begins with (sort -n): the first fifteen digits are sure; 0 if
/// there is none.
fn number(line: &[u8]) -> f64 {
    let line = line.trim_ascii_start();
    let digits = line.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if (1..=15).contains(&digits) && line.get(digits) != Some(&b'.') {
        let number = line[..digits].iter().fold(0u64, |number, digit| number * 10 + u64::from(digit - b'0'));
        #[expect(clippy::cast_precision_loss, reason = "15 digits fit")]
        return number as f64;
    }
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
    lines: Vec<Place>,
}

/// A line in memory.
#[derive(Clone, Copy)]
struct Place {
    /// As [`Order::key`] has it.
    key: u64,
    start: usize,
    len: usize,
}

impl Held {
    fn push(&mut self, line: &[u8], order: Order) {
        self.lines.push(Place { key: order.key(line), start: self.bytes.len(), len: line.len() });
        self.bytes.extend_from_slice(line);
    }

    fn len(&self) -> usize {
        self.bytes.len() + self.lines.len() * size_of::<Place>()
    }

    /// The line at a position, and its key.
    fn line(&self, at: usize) -> Option<(u64, &[u8])> {
        self.lines.get(at).map(|place| (place.key, &self.bytes[place.start..place.start + place.len]))
    }

    fn sort(&mut self, order: Order) {
        let bytes = &self.bytes;
        let keyed = |place: &Place| (place.key, &bytes[place.start..place.start + place.len]);
        let compare = |one: &Place, other: &Place| order.compare(keyed(one), keyed(other));
        let processors = thread::available_parallelism().map_or(1, NonZero::get);
        if self.lines.len() >= SHARED_LINES && processors > 1 {
            let share = self.lines.len().div_ceil(processors);
            thread::scope(|scope| {
                for lines in self.lines.chunks_mut(share) {
                    scope.spawn(move || lines.sort_by(compare));
                }
            });
        }
        // It finds what is sorted already, and merges that.
        self.lines.sort_by(compare);
    }
}

/// sort, while lines come.
struct Sort {
    order: Order,
    memory_bytes: usize,
    runs_max: usize,
    held: Held,
    account: Account,
    /// Account of the memory that `held` takes.
    kept: InMemory,
    /// Those that were merged most often, and so have the first lines, last.
    runs: Vec<Vec<TemporaryFile>>,
    failed: Option<StageError>,
}

impl Sort {
    /// Writes what is in memory to a file, sorted.
    fn spill(&mut self) -> Result<(), StageError> {
        let mut file = BufWriter::new(TemporaryFile::new(&self.account)?);
        self.held.sort(self.order);
        for (key, line) in (0..).map_while(|at| self.held.line(at)) {
            write_line(&mut file, key, line)?;
        }
        self.held = Held::default();
        self.kept.set(0);
        self.add(0, file.into_inner().map_err(io::IntoInnerError::into_error)?)
    }

    /// Adds a run to those that were merged so often; so many of them are merged once more.
    fn add(&mut self, often: usize, run: TemporaryFile) -> Result<(), StageError> {
        if self.runs.len() == often {
            self.runs.push(Vec::new());
        }
        self.runs[often].push(run);
        if self.runs[often].len() < self.runs_max {
            return Ok(());
        }
        let mut merged = BufWriter::new(TemporaryFile::new(&self.account)?);
        let mut merge = Merge::new(self.order, std::mem::take(&mut self.runs[often]), &self.account)?;
        while let Some((key, line)) = merge.next()? {
            write_line(&mut merged, key, &line)?;
        }
        self.add(often + 1, merged.into_inner().map_err(io::IntoInnerError::into_error)?)
    }
}

fn write_line(file: &mut BufWriter<TemporaryFile>, key: u64, line: &[u8]) -> io::Result<()> {
    file.write_all(&key.to_ne_bytes())?;
    file.write_all(&(line.len() as u64).to_ne_bytes())?;
    file.write_all(line)
}

impl Lines for Sort {
    fn passes_over(&self, _: &[u8]) -> usize {
        0
    }

    fn line(&mut self, line: Line<'_>, _: &mut Vec<u8>) -> Fate {
        self.held.push(line.text, self.order);
        let is_much = self.held.len() >= MEMORY_BYTES_LEAST && !self.kept.set(self.held.len());
        if self.held.len() >= self.memory_bytes || is_much {
            self.failed = self.spill().err();
        }
        if self.failed.is_some() { Fate::End } else { Fate::Drop }
    }

    fn end(&mut self, _: &mut Vec<u8>) {}
}

/// The next line of a run.
struct Head {
    key: u64,
    line: Vec<u8>,
    run: usize,
    order: Order,
}

impl Ord for Head {
    /// The one that comes first is the greatest; of equal ones, that of the earlier run.
    fn cmp(&self, other: &Head) -> Ordering {
        self.order.compare((other.key, &other.line), (self.key, &self.line)).then(other.run.cmp(&self.run))
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
    runs: Vec<BufReader<TemporaryFile>>,
    heads: BinaryHeap<Head>,
    /// Bytes of those lines among the heads that are long, and how they are counted.
    long_bytes: usize,
    memory: InMemory,
}

impl Merge {
    fn new(order: Order, runs: Vec<TemporaryFile>, account: &Account) -> Result<Merge, StageError> {
        let memory = account.memory();
        let mut merge = Merge { order, runs: Vec::new(), heads: BinaryHeap::new(), long_bytes: 0, memory };
        for mut run in runs {
            run.rewind()?;
            merge.runs.push(BufReader::new(run));
            merge.advance(merge.runs.len() - 1)?;
        }
        Ok(merge)
    }

    fn advance(&mut self, run: usize) -> Result<(), StageError> {
        let reader = &mut self.runs[run];
        if reader.fill_buf()?.is_empty() {
            return Ok(());
        }
        let (mut key, mut len) = ([0; 8], [0; 8]);
        io::Read::read_exact(reader, &mut key)?;
        io::Read::read_exact(reader, &mut len)?;
        let len = usize::try_from(u64::from_ne_bytes(len)).expect("it was in memory once");
        self.long_bytes += long(len);
        if !self.memory.set(self.long_bytes) {
            return Err(StageError::Memory);
        }
        let mut line = vec![0; len];
        io::Read::read_exact(reader, &mut line)?;
        self.heads.push(Head { key: u64::from_ne_bytes(key), line, run, order: self.order });
        Ok(())
    }

    /// The next line, and its key.
    fn next(&mut self) -> Result<Option<(u64, Vec<u8>)>, StageError> {
        let Some(head) = self.heads.pop() else { return Ok(None) };
        self.long_bytes -= long(head.line.len());
        self.advance(head.run)?;
        Ok(Some((head.key, head.line)))
    }
}

/// Bytes of a line of `len` bytes that are counted.
fn long(len: usize) -> usize {
    if len as u64 >= COUNTED_FROM { len } else { 0 }
}

/// sort, from the first line to the last.
enum Sorting {
    /// Lines come.
    Gathering(Box<ByLine<Sort>>),
    /// Sorted lines go: those in memory, from a position on.
    FromMemory { order: Order, held: Held, _kept: Option<InMemory>, at: usize },
    /// Sorted lines go: those in files, after one that was told.
    FromFiles { merge: Merge, told: Option<(u64, Vec<u8>)> },
}

impl Sorting {
    fn new(order: Order, memory_bytes: usize, runs_max: usize) -> Sorting {
        let (account, held) = (Account::now(), Held::default());
        let kept = account.memory();
        let sort = Sort { order, memory_bytes, runs_max, held, account, kept, runs: Vec::new(), failed: None };
        Sorting::Gathering(Box::new(ByLine::new(sort)))
    }

    /// All lines are there.
    fn sorted(mut sort: Sort) -> Result<Sorting, StageError> {
        if let Some(error) = sort.failed {
            return Err(error);
        }
        if sort.runs.is_empty() {
            sort.held.sort(sort.order);
            return Ok(Sorting::FromMemory { order: sort.order, held: sort.held, _kept: Some(sort.kept), at: 0 });
        }
        sort.spill()?;
        Ok(Sorting::FromFiles {
            merge: Merge::new(sort.order, sort.runs.into_iter().rev().flatten().collect(), &sort.account)?,
            told: None,
        })
    }
}

impl Running for Sorting {
    fn advance(&mut self, input: &mut Input, output: &mut Output) -> Result<Progress, StageError> {
        if let Sorting::Gathering(gathering) = self {
            let progress = gathering.advance(input, output)?;
            if progress != Progress::Ended {
                return Ok(progress);
            }
            let empty = Sorting::FromMemory { order: Order::default(), held: Held::default(), _kept: None, at: 0 };
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
                Sorting::FromMemory { order, held, at, .. } => {
                    let Some(line) = held.line(*at) else { return Ok(Progress::Ended) };
                    let last = at.checked_sub(1).and_then(|last| held.line(last));
                    let is_told = last.is_some_and(|last| order.compare(last, line).is_eq());
                    *at += 1;
                    if !(order.unique && is_told) {
                        output.write(line.1);
                        output.write(b"\n");
                    }
                }
                Sorting::FromFiles { merge, told } => {
                    let Some(line) = merge.next()? else { return Ok(Progress::Ended) };
                    let order = merge.order;
                    let is_told =
                        told.as_ref().is_some_and(|last| order.compare((last.0, &last.1), (line.0, &line.1)).is_eq());
                    if !(order.unique && is_told) {
                        output.write(&line.1);
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
    Ok(Stage { is_heavy: true, ..Stage::of_lines(move || Sorting::new(order, MEMORY_BYTES, RUNS_MAX)) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use weft_block::Slice;

    proptest! {
        #[test]
        fn what_goes_through_files_is_sorted_as_what_stays_in_memory(
            lines in proptest::collection::vec("[ab1-]{0,3}", 0..200), reverse: bool, numeric: bool, unique: bool, runs_max in 2usize..9,
        ) {
            let order = Order { reverse, numeric, unique };
            let run = |memory_bytes: usize, runs_max: usize| {
                let mut sorting = Sorting::new(order, memory_bytes, runs_max);
                let (mut input, mut output, mut made) = (Input::default(), Output::default(), Vec::new());
                input.push(Slice::from(lines.join("\n").into_bytes()));
                input.end();
                while sorting.advance(&mut input, &mut output).unwrap() != Progress::Ended {
                    made.extend(output.take().to_vec());
                }
                made.extend(output.take().to_vec());
                made
            };
            prop_assert_eq!(run(60, runs_max), run(1 << 20, RUNS_MAX));
        }
    }
}
