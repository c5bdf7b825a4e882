//! Reads records from the pages of a database file without SQLite, which gives up at the first page
//! that is damaged.
//!
//! The format is SQLite's ("Database File Format", sections 1.6 "B-tree Pages", 2.1 "Record
//! Format", 4 "The WAL-Mode File Format"). No page is found by way of another one: each leaf is
//! looked at wherever it lies, but for those that the list of free pages names. Pages that the
//! write-ahead log has are read there (`log_pages`).

use super::log_pages::LogPages;
use crate::sqlite::file_header;
use crate::sqlite::wal::PAGE_DEFAULT;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Bytes of a record at most: a block has 4 MiB.
const RECORD_MAX: u64 = 16 << 20;

/// Kinds of pages that hold records (1.6).
const INDEX_INTERIOR: u8 = 2;
const INDEX_LEAF: u8 = 10;
const TABLE_LEAF: u8 = 13;
/// The one kind that holds none.
const TABLE_INTERIOR: u8 = 5;

/// The kind of a page, judged by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// A page of a tree, in order.
    Whole,
    /// A page of no tree: a record may go on there.
    Other,
    Damaged,
}

/// A value of a record.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Null,
    Integer(i64),
    /// No column of a volume holds one.
    Real,
    Text(Vec<u8>),
    Blob(Vec<u8>),
}

impl Value {
    pub(super) fn integer(&self) -> Option<i64> {
        if let Value::Integer(number) = self { Some(*number) } else { None }
    }

    pub(super) fn unsigned(&self) -> Option<u64> {
        u64::try_from(self.integer()?).ok()
    }

    pub(super) fn blob(&self) -> Option<&[u8]> {
        if let Value::Blob(bytes) = self { Some(bytes) } else { None }
    }

    pub(super) fn is_null(&self) -> bool {
        *self == Value::Null
    }
}

/// The state of a database whose pages are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layer {
    /// With all of its write-ahead log that can be used.
    Newest,
    /// As of the last commit before the damage in that.
    Before,
}

/// The place of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cell {
    layer: Layer,
    page: u32,
    index: u16,
}

impl Cell {
    pub(super) fn page(self) -> u32 {
        self.page
    }
}

/// A record: the key of its row if it is one of a table with such keys, and the columns.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Record {
    pub(super) row: Option<i64>,
    pub(super) columns: Vec<Value>,
}

/// The pages of a database.
pub(super) struct Pages {
    file: File,
    log: Option<LogPages>,
    /// The pages of the log up to the damage in it.
    before: Option<LogPages>,
    page_bytes: usize,
    /// Bytes of a page that hold anything.
    usable: usize,
    count: u32,
    /// Pages in which the records read so far go on.
    rests: RefCell<BTreeSet<u32>>,
}

impl Pages {
    /// Opens the pages of `file`, over which those of `log` lie.
    pub(super) fn open(file: File, log: Option<LogPages>) -> io::Result<Pages> {
        let told = page_bytes(&file);
        let page_bytes = told.or(log.as_ref().map(LogPages::page_bytes)).unwrap_or(PAGE_DEFAULT);
        let mut reserved = [0];
        let reserved = match told {
            Some(_) => {
                file.read_exact_at(&mut reserved, 20).map(|()| usize::from(reserved[0]).min(page_bytes - 480))?
            }
            None => 0,
        };
        let length = file.metadata()?.len().div_ceil(page_bytes as u64);
        let count = u32::try_from(length).unwrap_or(u32::MAX).max(log.as_ref().map_or(0, LogPages::count));
        let usable = page_bytes - reserved;
        Ok(Pages { file, log, before: None, page_bytes, usable, count, rests: RefCell::default() })
    }

    /// The same, with the pages of the log `before` the damage in it.
    pub(super) fn with(self, before: LogPages) -> Pages {
        Pages { before: Some(before), ..self }
    }

    /// Returns the number of pages.
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// The bytes of a page; none if they cannot be read.
    fn page(&self, layer: Layer, number: u32) -> Option<Vec<u8>> {
        let mut bytes = vec![0; self.page_bytes];
        let log = match layer {
            Layer::Newest => self.log.as_ref(),
            Layer::Before => self.before.as_ref(),
        };
        if let Some(read) = log.and_then(|log| log.page(number, &mut bytes)) {
            return read.then_some(bytes);
        }
        let at = u64::from(number.checked_sub(1)?) * self.page_bytes as u64;
        self.file.read_exact_at(&mut bytes, at).ok().map(|()| bytes)
    }

    /// Pages that the database does not use (1.5) in `layer`, as far as it can be told.
    pub(super) fn free(&self, layer: Layer) -> BTreeSet<u32> {
        let mut free = BTreeSet::new();
        let Some(first) = self.page(layer, 1).filter(|page| page.starts_with(file_header::MAGIC)) else {
            return free;
        };
        let mut next = number(&first, 32).unwrap_or(0);
        while next != 0 && next <= self.count && free.insert(next) {
            let Some(trunk) = self.page(layer, next) else { break };
            let leaves = number(&trunk, 4).unwrap_or(0) as usize;
            free.extend((0..leaves.min(self.usable / 4)).filter_map(|leaf| number(&trunk, 8 + 4 * leaf)));
            next = number(&trunk, 0).unwrap_or(0);
        }
        free
    }

    /// Has `visit` see all records of page `number` in `layer`; tells what the page is.
    pub(super) fn each(&self, layer: Layer, page_number: u32, visit: &mut dyn FnMut(Cell, Record)) -> Look {
        let Some(page) = self.page(layer, page_number) else { return Look::Damaged };
        let start = if page_number == 1 { 100 } else { 0 };
        match page[start] {
            INDEX_INTERIOR | INDEX_LEAF | TABLE_LEAF => {}
            TABLE_INTERIOR => return Look::Whole,
            _ => return Look::Other,
        }
        let cells = u16::from_be_bytes([page[start + 3], page[start + 4]]);
        let mut look = Look::Whole;
        for index in 0..cells {
            let cell = Cell { layer, page: page_number, index };
            match self.record_in(&page, cell) {
                Some(record) => visit(cell, record),
                None => look = Look::Damaged,
            }
        }
        look
    }

    /// True if a record that was read goes on in page `number`.
    pub(super) fn is_rest(&self, number: u32) -> bool {
        self.rests.borrow().contains(&number)
    }

    /// The record at `cell`, again.
    pub(super) fn record(&self, cell: Cell) -> Option<Record> {
        self.record_in(&self.page(cell.layer, cell.page)?, cell)
    }

    fn record_in(&self, page: &[u8], cell: Cell) -> Option<Record> {
        let start = if cell.page == 1 { 100 } else { 0 };
        let Start { row, at, length } = start_of(page, start, cell.index)?;
        let payload = self.payload((cell.layer, page), at, length, row.is_some())?;
        Some(Record { row, columns: columns(&payload)? })
    }

    /// Bytes of a record: those in its page, then those in pages that it goes on in (1.6 and 1.7).
    fn payload(&self, (layer, page): (Layer, &[u8]), at: usize, length: usize, is_table: bool) -> Option<Vec<u8>> {
        let usable = self.usable;
        let most = if is_table { usable - 35 } else { (usable - 12) * 64 / 255 - 23 };
        let least = (usable - 12) * 32 / 255 - 23;
        if length <= most {
            return page.get(at..at + length).map(<[u8]>::to_vec);
        }
        let kept = least + (length - least) % (usable - 4);
        let local = if kept <= most { kept } else { least };
        let mut payload = page.get(at..at + local)?.to_vec();
        let mut next = number(page, at + local)?;
        while payload.len() < length {
            let page = self.page(layer, next).filter(|_| next > 1)?;
            self.rests.borrow_mut().insert(next);
            let wanted = (length - payload.len()).min(usable - 4);
            payload.extend_from_slice(page.get(4..4 + wanted)?);
            next = number(&page, 0)?;
        }
        Some(payload)
    }
}

/// The start of a record in its page.
struct Start {
    /// The key of its row, if it is one of a table with such keys.
    row: Option<i64>,
    /// Place and length of its columns.
    at: usize,
    length: usize,
}

/// The start of record `index` of a page of a tree, whose own header lies at `start`.
fn start_of(page: &[u8], start: usize, index: u16) -> Option<Start> {
    let kind = page[start];
    let pointers = start + if kind == INDEX_INTERIOR { 12 } else { 8 };
    let pointer = page.get(pointers + 2 * usize::from(index)..)?.first_chunk::<2>()?;
    let mut at = usize::from(u16::from_be_bytes(*pointer));
    if kind == INDEX_INTERIOR {
        at += 4;
    }
    let length = varint(page, &mut at)?;
    let row = if kind == TABLE_LEAF { Some(varint(page, &mut at)?.cast_signed()) } else { None };
    (length <= RECORD_MAX).then_some(Start { row, at, length: usize::try_from(length).ok()? })
}

/// The records of a `page`, if it is a page of a tree with records, but for the first page, and all
/// of them lie in it as a whole.
pub(super) fn records(page: &[u8]) -> Option<Vec<Record>> {
    if !matches!(page[0], INDEX_INTERIOR | INDEX_LEAF | TABLE_LEAF) {
        return None;
    }
    let record = |index| {
        let Start { row, at, length } = start_of(page, 0, index)?;
        Some(Record { row, columns: columns(page.get(at..at.checked_add(length)?)?)? })
    };
    (0..u16::from_be_bytes([page[3], page[4]])).map(record).collect()
}

/// The record of a `page` that is the leaf of a table with one row, which lies in it as a whole.
pub(super) fn only_record(page: &[u8]) -> Option<Record> {
    let is_leaf = page.first() == Some(&TABLE_LEAF) && page.get(3..5) == Some(&[0, 1]);
    let pointer = page.get(8..)?.first_chunk::<2>().filter(|_| is_leaf)?;
    let mut at = usize::from(u16::from_be_bytes(*pointer));
    let length = usize::try_from(varint(page, &mut at)?).ok()?;
    let row = varint(page, &mut at)?.cast_signed();
    let payload = page.get(at..at.checked_add(length)?)?;
    Some(Record { row: Some(row), columns: columns(payload)? })
}

/// Bytes of a page of the database in `file`, if its header is whole.
pub(super) fn page_bytes(file: &File) -> Option<usize> {
    let mut header = [0; file_header::BYTES];
    file.read_exact_at(&mut header, 0).ok().filter(|()| header.starts_with(file_header::MAGIC))?;
    let told = usize::from(u16::from_be_bytes([header[16], header[17]]));
    let told = if told == 1 { 65536 } else { told };
    (told.is_power_of_two() && told >= 512).then_some(told)
}

/// The columns of a record (2.1).
fn columns(payload: &[u8]) -> Option<Vec<Value>> {
    let mut at = 0;
    let header = usize::try_from(varint(payload, &mut at)?).ok()?;
    let mut kinds = Vec::new();
    while at < header {
        kinds.push(varint(payload, &mut at)?);
    }
    if at != header {
        return None;
    }
    let mut columns = Vec::with_capacity(kinds.len());
    for kind in kinds {
        let length = match kind {
            0 | 8 | 9 => 0,
            1..=4 => usize::try_from(kind).ok()?,
            5 => 6,
            6 | 7 => 8,
            12.. => usize::try_from((kind - 12) / 2).ok()?,
            10 | 11 => return None,
        };
        let bytes = payload.get(at..at.checked_add(length)?)?;
        at += length;
        columns.push(match kind {
            0 => Value::Null,
            8 => Value::Integer(0),
            9 => Value::Integer(1),
            7 => Value::Real,
            1..=6 => Value::Integer(integer(bytes)),
            _ if kind % 2 == 0 => Value::Blob(bytes.to_vec()),
            _ => Value::Text(bytes.to_vec()),
        });
    }
    (at == payload.len()).then_some(columns)
}

/// A signed number of up to eight bytes.
fn integer(bytes: &[u8]) -> i64 {
    let sign = if bytes.first().is_some_and(|byte| byte & 0x80 != 0) { -1 } else { 0 };
    bytes.iter().fold(sign, |number, byte| number << 8 | i64::from(*byte))
}

fn number(page: &[u8], at: usize) -> Option<u32> {
    page.get(at..)?.first_chunk::<4>().map(|bytes| u32::from_be_bytes(*bytes))
}

/// A number of one to nine bytes at `at`, which goes on behind it (1.6).
fn varint(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let mut number = 0u64;
    for place in 0..9 {
        let byte = *bytes.get(*at)?;
        *at += 1;
        if place == 8 {
            return Some(number << 8 | u64::from(byte));
        }
        number = number << 7 | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::super::wal::Wal;
    use super::super::log_pages::Log;
    use super::*;
    use rusqlite::Connection;

    /// Rows of all lengths, read from pages as SQLite wrote them, in the database and in its
    /// write-ahead log.
    #[test]
    fn records_are_what_sqlite_was_given() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("database");
        let connection = Connection::open(&path).expect("opened");
        let table = "PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0; \
                     CREATE TABLE t (id INTEGER PRIMARY KEY, n INTEGER, b BLOB); \
                     CREATE TABLE w (k INTEGER, b BLOB, PRIMARY KEY (k)) WITHOUT ROWID";
        connection.execute_batch(table).expect("made");
        let numbers = [0, 1, -1, 127, -129, 70_000, -9_000_000, 1 << 40, i64::MIN, i64::MAX];
        let blob = |i: usize| vec![u8::try_from(i % 251).expect("small"); i * i % 30_011];
        for i in 0..300usize {
            let n = numbers[i % numbers.len()];
            let key = i64::try_from(i).expect("small") * 1000;
            connection.execute("INSERT INTO t VALUES (?1, ?2, ?3)", (key, n, blob(i))).expect("put");
            connection.execute("INSERT INTO w VALUES (?1, ?2)", (key, blob(i))).expect("put");
            if i == 150 {
                connection.execute_batch("PRAGMA wal_checkpoint(PASSIVE)").expect("copied");
            }
        }
        let open = || {
            let wal = Wal::look(&path).expect("readable").expect("there");
            let log = Log::read(wal, 4096).expect("readable");
            assert_eq!(log.damage, None);
            Pages::open(File::open(&path).expect("there"), Some(log.taken)).expect("readable")
        };
        let pages = open();
        let (mut rows, mut keys) = (BTreeSet::new(), BTreeSet::new());
        for page in 1..=pages.count() {
            let look = pages.each(Layer::Newest, page, &mut |cell, record| {
                assert_eq!(pages.record(cell).as_ref(), Some(&record));
                let key = |key: i64| usize::try_from(key / 1000).expect("small");
                match (record.row, &record.columns[..]) {
                    (Some(row), [Value::Null, n, Value::Blob(bytes)]) => {
                        assert_eq!(n.integer(), Some(numbers[key(row) % numbers.len()]));
                        assert_eq!(*bytes, blob(key(row)));
                        rows.insert(row);
                    }
                    (None, [Value::Integer(k), Value::Blob(bytes)]) => {
                        assert_eq!(*bytes, blob(key(*k)));
                        keys.insert(*k);
                    }
                    _ => {}
                }
            });
            assert_ne!(look, Look::Damaged, "page {page}");
        }
        assert_eq!((rows.len(), keys.len()), (300, 300));
        connection.execute_batch("DELETE FROM t").expect("deleted");
        let pages = open();
        assert!(pages.free(Layer::Newest).len() > 100, "what is free is known");
    }
}
