//! Records: CSV (RFC 4180) and JSON, a value a line (JSON Lines).

use crate::account::{Account, COUNTED_FROM, InMemory};
use crate::arguments::Arguments;
use crate::language::{Call, NetworkError, Word};
use crate::stage::{Shape, Stage, StageError};
use crate::stages::lines::{LINE_BYTES_MAX, too_long};
use crate::threaded::{Reader, Threaded, Writer};
use serde_json::{Map, Value};
use std::io::{self, BufRead, Read, Write};

/// Most fields of a record.
const FIELDS_MAX: usize = 1 << 20;

/// Bytes of memory, at most, that a value takes which is made of text, for each of these bytes in
/// it: they begin values, or come between them.
const VALUE_BYTES: [(u8, usize); 3] = [(b'{', 700), (b'[', 128), (b',', 128)];

/// The delimiter of fields: `-d` and a byte.
fn delimiter(arguments: &Arguments<'_>) -> Result<u8, NetworkError> {
    let Some(word) = arguments.word('d') else { return Ok(b',') };
    match word.text.as_bytes() {
        [byte] if !matches!(byte, b'"' | b'\n' | b'\r') => Ok(*byte),
        b"\\t" => Ok(b'\t'),
        _ => Err(NetworkError::new(format!("'{}' is no delimiter of fields", word.text), word.at)),
    }
}

pub(crate) fn csv_json(call: &Call) -> Result<Stage, NetworkError> {
    let arguments = Arguments::read(call, "", "d")?;
    let delimiter = delimiter(&arguments)?;
    arguments.end()?;
    let start = move || Threaded::new(move |reader, writer| from_csv(delimiter, reader, writer));
    Ok(Stage { gives: |_| Shape::Records, ..Stage::of_text(start) })
}

fn from_csv(delimiter: u8, reader: Reader, writer: &mut Writer) -> Result<(), StageError> {
    let mut memory = Account::now().memory();
    let reader = Within { reader, delimiter, bytes: 0, fields: 0, memory: Account::now().memory() };
    let mut records = csv::ReaderBuilder::new().delimiter(delimiter).from_reader(reader);
    let names = records.headers().map_err(no_csv)?.clone();
    let mut record = csv::StringRecord::new();
    loop {
        records.get_mut().begin();
        if !records.read_record(&mut record).map_err(no_csv)? {
            return Ok(());
        }
        // Each field becomes a value with its name.
        let bytes = names.as_slice().len() + record.as_slice().len() + record.len() * VALUE_BYTES[2].1;
        if bytes as u64 >= COUNTED_FROM && !memory.raise(bytes) {
            return Err(StageError::Memory);
        }
        let fields = names.iter().zip(record.iter()).map(|(name, value)| (name.to_owned(), value.into()));
        write(writer, &Value::Object(fields.collect::<Map<_, _>>()))?;
    }
}

fn no_csv(error: csv::Error) -> StageError {
    let text = format!("this is no CSV: {error}");
    match error.into_kind() {
        csv::ErrorKind::Io(error) if error.kind() == io::ErrorKind::OutOfMemory => StageError::Memory,
        _ => StageError::data(text),
    }
}

/// Reads records that fit in memory.
struct Within {
    reader: Reader,
    delimiter: u8,
    /// Bytes and delimiters since the record began.
    bytes: usize,
    fields: usize,
    memory: InMemory,
}

impl Within {
    /// Begins with another record.
    fn begin(&mut self) {
        (self.bytes, self.fields) = (0, 0);
    }
}

impl Read for Within {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.reader.read(buffer)?;
        self.bytes += count;
        self.fields += memchr::memchr_iter(self.delimiter, &buffer[..count]).count();
        if self.bytes > LINE_BYTES_MAX || self.fields > FIELDS_MAX {
            let what = format!("a record has more than {LINE_BYTES_MAX} bytes or {FIELDS_MAX} fields");
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        // Twice as it grows, and where each field ends.
        let held = 2 * self.bytes + self.fields * size_of::<[usize; 2]>();
        if held as u64 >= COUNTED_FROM && !self.memory.raise(held) {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        Ok(count)
    }
}

pub(crate) fn json_csv(call: &Call) -> Result<Stage, NetworkError> {
    let mut arguments = Arguments::read(call, "", "d")?;
    let delimiter = delimiter(&arguments)?;
    let mut names = Vec::new();
    while let Some(name) = arguments.optional() {
        names.push(name.text.clone());
    }
    let start = move || {
        let names = names.clone();
        Threaded::new(move |reader, writer| to_csv(delimiter, names, reader, writer))
    };
    Ok(Stage::of_records(start))
}

fn to_csv(delimiter: u8, mut names: Vec<String>, reader: Reader, writer: &mut Writer) -> Result<(), StageError> {
    let wrong = |error: csv::Error| StageError::data(format!("cannot write CSV: {error}"));
    let mut csv = csv::WriterBuilder::new().delimiter(delimiter).from_writer(writer);
    let mut has_begun = false;
    each(reader, |line, value| {
        let Value::Object(fields) = value else {
            return Err(StageError::data(format!("line {line} is no JSON object")));
        };
        if !has_begun {
            if names.is_empty() {
                names = fields.keys().cloned().collect();
            }
            csv.write_record(&names).map_err(wrong)?;
            has_begun = true;
        }
        let record = names.iter().map(|name| fields.get(name).map_or_else(String::new, plain));
        csv.write_record(record).map_err(wrong)
    })?;
    Ok(csv.flush()?)
}

/// A value as text without quotes.
fn plain(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

pub(crate) fn json_select(call: &Call) -> Result<Stage, NetworkError> {
    let mut arguments = Arguments::read(call, "r", "")?;
    let is_raw = arguments.has('r');
    let mut paths = vec![path(arguments.operand("a path, such as .name or .list[0]")?)?];
    while let Some(word) = arguments.optional() {
        paths.push(path(word)?);
    }
    let start = move || {
        let paths = paths.clone();
        Threaded::new(move |reader, writer| select(&paths, is_raw, reader, writer))
    };
    let gives: fn(Shape) -> Shape = if is_raw { |_| Shape::Text } else { |_| Shape::Records };
    Ok(Stage { gives, ..Stage::of_records(start) })
}

/// A step into a value.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Into {
    Field(String),
    Item(usize),
}

fn path(word: &Word) -> Result<Vec<Into>, NetworkError> {
    let wrong = || NetworkError::new(format!("'{}' is no path such as .name or .list[0]", word.text), word.at);
    let mut steps = Vec::new();
    let mut rest = word.text.as_str();
    if rest == "." {
        return Ok(steps);
    }
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix('[') {
            let (number, after) = after.split_once(']').ok_or_else(wrong)?;
            steps.push(Into::Item(number.parse().map_err(|_| wrong())?));
            rest = after;
        } else {
            let after = rest.strip_prefix('.').ok_or_else(wrong)?;
            let end = after.find(['.', '[']).unwrap_or(after.len());
            // A field of a list that follows another item has no dot of its own.
            if end == 0 && !after.starts_with('[') {
                return Err(wrong());
            }
            if end > 0 {
                steps.push(Into::Field(after[..end].to_owned()));
            }
            rest = &after[end..];
        }
    }
    if steps.is_empty() { Err(wrong()) } else { Ok(steps) }
}

/// Follows the steps into `value`.
fn found<'a>(value: &'a Value, steps: &[Into]) -> &'a Value {
    let step = |value: &'a Value, step: &Into| match step {
        Into::Field(name) => value.get(name),
        Into::Item(at) => value.get(at),
    };
    steps.iter().try_fold(value, step).unwrap_or(&Value::Null)
}

fn select(paths: &[Vec<Into>], is_raw: bool, reader: Reader, writer: &mut Writer) -> Result<(), StageError> {
    each(reader, |_, value| {
        let [only] = paths else {
            // No list of them is made: there may be many, each of all.
            for (before, steps) in std::iter::once("[").chain(std::iter::repeat(",")).zip(paths) {
                write!(writer, "{before}{}", found(&value, steps))?;
            }
            return Ok(writer.write_all(b"]\n")?);
        };
        match found(&value, only) {
            Value::String(text) if is_raw => Ok(writeln!(writer, "{text}")?),
            other => write(writer, other),
        }
    })
}

pub(crate) fn json_format(call: &Call) -> Result<Stage, NetworkError> {
    let arguments = Arguments::read(call, "c", "")?;
    arguments.end()?;
    let is_compact = arguments.has('c');
    let gives: fn(Shape) -> Shape = if is_compact { |_| Shape::Records } else { |_| Shape::Text };
    let start = move || Threaded::new(move |reader, writer| format(is_compact, reader, writer));
    Ok(Stage { gives, ..Stage::of_records(start) })
}

fn format(is_compact: bool, reader: Reader, writer: &mut Writer) -> Result<(), StageError> {
    each(reader, |_, value| {
        if is_compact {
            return write(writer, &value);
        }
        // Blanks may make it much longer than it came.
        serde_json::to_writer_pretty(&mut *writer, &value).map_err(io::Error::from)?;
        Ok(writer.write_all(b"\n")?)
    })
}

fn write(writer: &mut Writer, value: &Value) -> Result<(), StageError> {
    Ok(writeln!(writer, "{value}")?)
}

/// Calls `work` with the value of each line that is not blank, and the line's number.
fn each(mut reader: Reader, mut work: impl FnMut(u64, Value) -> Result<(), StageError>) -> Result<(), StageError> {
    let mut memory = Account::now().memory();
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        let bytes = reader.by_ref().take(LINE_BYTES_MAX as u64 + 1).read_until(b'\n', &mut line)?;
        if bytes == 0 {
            break;
        }
        if bytes > LINE_BYTES_MAX {
            return Err(too_long());
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        if line.len() as u64 >= COUNTED_FROM {
            let count = |(byte, bytes): (u8, usize)| memchr::memchr_iter(byte, &line).count() * bytes;
            if !memory.raise(2 * line.len() + VALUE_BYTES.map(count).into_iter().sum::<usize>()) {
                return Err(StageError::Memory);
            }
        }
        let wrong = |error| StageError::data(format!("line {number} is no JSON value: {error}"));
        work(number, serde_json::from_slice(&line).map_err(wrong)?)?;
    }
    Ok(())
}
