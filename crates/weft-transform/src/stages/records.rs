//! Records: CSV (RFC 4180) and JSON, a value a line (JSON Lines).

use crate::arguments::Arguments;
use crate::language::{Call, NetworkError, Word};
use crate::stage::{Shape, Stage, StageError};
use crate::stages::lines::{LINE_BYTES_MAX, too_long};
use crate::threaded::{Reader, Threaded, Writer};
use serde_json::{Map, Value};
use std::io::{BufRead, Read, Write};

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
    let wrong = |error: csv::Error| StageError::data(format!("this is no CSV: {error}"));
    let mut records = csv::ReaderBuilder::new().delimiter(delimiter).from_reader(reader);
    let names = records.headers().map_err(wrong)?.clone();
    for record in records.records() {
        let record = record.map_err(wrong)?;
        let fields = names.iter().zip(record.iter()).map(|(name, value)| (name.to_owned(), value.into()));
        write(writer, &Value::Object(fields.collect::<Map<_, _>>()))?;
    }
    Ok(())
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

fn select(paths: &[Vec<Into>], is_raw: bool, reader: Reader, writer: &mut Writer) -> Result<(), StageError> {
    each(reader, |_, value| {
        let found = |steps: &Vec<Into>| {
            let step = |value: &Value, step: &Into| match step {
                Into::Field(name) => value.get(name).cloned(),
                Into::Item(at) => value.get(at).cloned(),
            };
            steps.iter().try_fold(value.clone(), |value, to| step(&value, to)).unwrap_or(Value::Null)
        };
        let selected = if let [only] = paths { found(only) } else { paths.iter().map(found).collect() };
        match selected {
            Value::String(text) if is_raw => Ok(writeln!(writer, "{text}")?),
            other => write(writer, &other),
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
        let text = serde_json::to_string_pretty(&value).map_err(|error| StageError::data(error.to_string()))?;
        Ok(writeln!(writer, "{text}")?)
    })
}

fn write(writer: &mut Writer, value: &Value) -> Result<(), StageError> {
    Ok(writeln!(writer, "{value}")?)
}

/// Calls `work` with the value of each line that is not blank, and the line's number.
fn each(mut reader: Reader, mut work: impl FnMut(u64, Value) -> Result<(), StageError>) -> Result<(), StageError> {
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
        let wrong = |error| StageError::data(format!("line {number} is no JSON value: {error}"));
        work(number, serde_json::from_slice(&line).map_err(wrong)?)?;
    }
    Ok(())
}
