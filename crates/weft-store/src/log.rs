//! The intent log: a preallocated file to which an fsync appends the operations since the last commit.
//!
//! It knows operations only as numbered bytes. Whoever appended syncs after, perhaps while the next appends: a
//! [`Sync`] makes durable what was appended before it began, and tells of any write that failed since it was last used
//! or made, whoever began that write. The file has two halves; a commit in flight retires one
//! while fsyncs go on in the other ([`IntentLog::switch`]). Records carry the mount's epoch, so that
//! those of an earlier mount are never taken for this one's.
//!
//! A record is a header of 48 bytes (magic, CRC-32C of all that follows, epoch, first operation, last
//! operation, length; little endian) and the operations. Records follow one another from the start of a
//! half; one ends the list unless it is whole, of the epoch, and of later operations than the one before.

use crate::error::{Error, Result};
use crate::files;
use crate::postgres::{IntentSync, Intents};
use crate::row::OpNo;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const MAGIC: [u8; 8] = *b"WEFTLOG1";
const HEADER_BYTES: usize = 48;

/// Operations made durable by one append.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The first operation in it.
    pub first: OpNo,
    /// The last operation in it.
    pub last: OpNo,
    /// The operations, as the writer encoded them.
    pub bytes: Vec<u8>,
}

/// The intent log, wherever it is: see [`IntentLog`] for what its methods do.
pub enum OperationLog {
    /// In a file.
    File(IntentLog),
    /// In rows of a server.
    Rows(Intents),
}

/// Makes appends durable.
pub enum LogSync {
    /// In a file.
    File(Sync),
    /// In rows of a server.
    Rows(IntentSync),
}

impl LogSync {
    /// Makes durable what was appended before it begins.
    pub fn sync(&self) -> Result<()> {
        match self {
            LogSync::File(sync) => sync.sync(),
            LogSync::Rows(sync) => sync.sync(),
        }
    }
}

impl From<IntentLog> for OperationLog {
    fn from(log: IntentLog) -> OperationLog {
        OperationLog::File(log)
    }
}

impl OperationLog {
    /// Whether what is appended, and not synced, survives the end of this process.
    pub fn outlives_process(&self) -> bool {
        matches!(self, OperationLog::File(_))
    }

    /// The next records of `epoch` that begin after operation `after`, in order; none if there are no more.
    pub fn records(&self, epoch: u64, after: OpNo) -> Result<Vec<Record>> {
        match self {
            OperationLog::File(log) => {
                let mut records = log.records(epoch)?;
                records.retain(|record| record.first > after);
                Ok(records)
            }
            OperationLog::Rows(log) => log.records(epoch, after),
        }
    }

    /// Begins `epoch`: earlier records mean nothing any more.
    pub fn start(&mut self, epoch: u64) -> Result<()> {
        match self {
            OperationLog::File(log) => log.start(epoch),
            OperationLog::Rows(log) => log.start(epoch),
        }
    }

    /// Whether so many bytes of operations can be appended.
    pub fn fits(&self, bytes: usize) -> bool {
        match self {
            OperationLog::File(log) => log.fits(bytes),
            OperationLog::Rows(log) => log.fits(bytes),
        }
    }

    /// Whether the current half has anything in it.
    pub fn is_used(&self) -> bool {
        match self {
            OperationLog::File(log) => log.is_used(),
            OperationLog::Rows(log) => log.is_used(),
        }
    }

    /// Whether it is time for a commit.
    pub fn is_half_full(&self) -> bool {
        match self {
            OperationLog::File(log) => log.is_half_full(),
            OperationLog::Rows(log) => log.is_half_full(),
        }
    }

    /// Appends operations `first` to `last`.
    pub fn append(&mut self, first: OpNo, last: OpNo, bytes: &[u8]) -> Result<()> {
        match self {
            OperationLog::File(log) => log.append(first, last, bytes),
            OperationLog::Rows(log) => {
                log.append(first, last, bytes);
                Ok(())
            }
        }
    }

    /// What makes appends durable.
    pub fn syncer(&mut self) -> Result<LogSync> {
        Ok(match self {
            OperationLog::File(log) => LogSync::File(log.syncer()?),
            OperationLog::Rows(log) => LogSync::Rows(log.syncer()),
        })
    }

    /// Takes back a syncer that did not fail.
    pub fn keep(&mut self, sync: LogSync) {
        if let (OperationLog::File(log), LogSync::File(sync)) = (self, sync) {
            log.keep(sync);
        }
    }

    /// Goes on in the other half.
    pub fn switch(&mut self) {
        match self {
            OperationLog::File(log) => log.switch(),
            OperationLog::Rows(log) => log.switch(),
        }
    }

    /// A commit is durable that contains all that was appended before [`OperationLog::switch`].
    pub fn release(&mut self) {
        match self {
            OperationLog::File(_) => {}
            OperationLog::Rows(log) => log.release(),
        }
    }
}

/// The log of one mounted volume in a file.
#[derive(Debug)]
pub struct IntentLog {
    file: File,
    path: PathBuf,
    half_bytes: u64,
    epoch: u64,
    half: u64,
    /// Where the next record goes, from the start of the half.
    used: u64,
    buffer: Vec<u8>,
    /// Not in use.
    syncs: Vec<Sync>,
}

/// Makes appends durable. Each has a descriptor of its own, since the kernel tells each descriptor once of a write
/// that failed.
#[derive(Debug)]
pub struct Sync {
    file: File,
    path: PathBuf,
}

impl Sync {
    /// Syncs `file`, which lies at `path`.
    pub fn new(file: File, path: &Path) -> Sync {
        Sync { file, path: path.into() }
    }

    /// What was appended before the call is durable when it returns without error.
    pub fn sync(&self) -> Result<()> {
        let synced = self.file.sync_data();
        synced.map_err(|source| Error::Io { what: "cannot sync", path: self.path.clone(), source })
    }
}

impl IntentLog {
    /// Opens the log at `path` for a mount, making it (with zeros written, so that an append changes no
    /// file-system metadata) when there is none or it is smaller than `bytes` and holds no record.
    pub fn open(path: &Path, bytes: u64) -> Result<IntentLog> {
        let io = |source| Error::Io { what: "cannot open the intent log", path: path.into(), source };
        let mut options = files::options();
        let file = files::open(options.read(true).write(true).create(true).truncate(false), path).map_err(io)?;
        let mut size = file.metadata().map_err(io)?.len();
        // Where the second half begins depends on the size: one that may hold records keeps it.
        if size < bytes && !holds_records(&file, size).map_err(io)? {
            fill(&file, size, bytes).map_err(io)?;
            size = bytes;
        }
        let half_bytes = size / 2;
        let (buffer, syncs) = (Vec::new(), Vec::new());
        Ok(IntentLog { file, path: path.into(), half_bytes, epoch: 0, half: 0, used: 0, buffer, syncs })
    }

    /// The valid records of `epoch`, by first operation. Torn, overwritten and foreign ones are left out.
    pub fn records(&self, epoch: u64) -> Result<Vec<Record>> {
        let mut records = Vec::new();
        for half in 0..2 {
            self.scan(half, epoch, &mut records)?;
        }
        records.sort_by_key(|record: &Record| record.first);
        Ok(records)
    }

    fn scan(&self, half: u64, epoch: u64, records: &mut Vec<Record>) -> Result<()> {
        let mut at = 0;
        let mut last = OpNo(0);
        while at + HEADER_BYTES as u64 <= self.half_bytes {
            let mut header = [0; HEADER_BYTES];
            self.read(half, at, &mut header)?;
            let Some(found) = Header::decode(&header) else { break };
            let room = self.half_bytes - at - HEADER_BYTES as u64;
            if found.epoch != epoch || found.len > room || found.first <= last || found.last < found.first {
                break;
            }
            let mut bytes = vec![0; usize::try_from(found.len).expect("no longer than a half")];
            self.read(half, at + HEADER_BYTES as u64, &mut bytes)?;
            if found.crc != checksum(&header, &bytes) {
                break;
            }
            last = found.last;
            at += padded(HEADER_BYTES as u64 + found.len);
            records.push(Record { first: found.first, last: found.last, bytes });
        }
        Ok(())
    }

    fn read(&self, half: u64, at: u64, bytes: &mut [u8]) -> Result<()> {
        let read = self.file.read_exact_at(bytes, half * self.half_bytes + at);
        read.map_err(|source| self.io("cannot read", source))
    }

    fn io(&self, what: &'static str, source: std::io::Error) -> Error {
        Error::Io { what, path: self.path.clone(), source }
    }

    /// From now on appends are of `epoch`, from the start of the first half.
    pub fn start(&mut self, epoch: u64) -> Result<()> {
        self.epoch = epoch;
        self.half = 0;
        self.used = 0;
        Ok(())
    }

    /// Whether a record of `bytes` bytes fits in what is left of the current half.
    pub fn fits(&self, bytes: usize) -> bool {
        self.used + padded((HEADER_BYTES + bytes) as u64) <= self.half_bytes
    }

    /// Whether anything was appended to the current half.
    pub fn is_used(&self) -> bool {
        self.used > 0
    }

    /// Whether the current half has less room left than it has used.
    pub fn is_half_full(&self) -> bool {
        self.used > self.half_bytes / 2
    }

    /// Appends `bytes`, the operations `first..=last`; a [`Sync`] then makes them durable.
    pub fn append(&mut self, first: OpNo, last: OpNo, bytes: &[u8]) -> Result<()> {
        if !self.fits(bytes.len()) {
            return Err(Error::Bug("a record that does not fit the intent log".into()));
        }
        self.buffer.clear();
        let mut header = Header { crc: 0, epoch: self.epoch, first, last, len: bytes.len() as u64 }.encode();
        let crc = checksum(&header, bytes);
        header[8..16].copy_from_slice(&u64::from(crc).to_le_bytes());
        self.buffer.extend_from_slice(&header);
        self.buffer.extend_from_slice(bytes);
        let at = self.half * self.half_bytes + self.used;
        let written = self.file.write_all_at(&self.buffer, at);
        written.map_err(|source| self.io("cannot append to", source))?;
        self.used += padded(self.buffer.len() as u64);
        Ok(())
    }

    /// To be given back with [`IntentLog::keep`], unless it failed.
    pub fn syncer(&mut self) -> Result<Sync> {
        if let Some(sync) = self.syncs.pop() {
            return Ok(sync);
        }
        let opened = files::open(files::options().write(true), &self.path);
        Ok(Sync::new(opened.map_err(|source| self.io("cannot open", source))?, &self.path))
    }

    /// Keeps `sync` for later use.
    pub fn keep(&mut self, sync: Sync) {
        self.syncs.push(sync);
    }

    /// Goes on in the other half, whose records a durable commit must have made needless.
    pub fn switch(&mut self) {
        self.half = 1 - self.half;
        self.used = 0;
    }
}

/// Records start at multiples of 16 bytes.
fn padded(bytes: u64) -> u64 {
    bytes.next_multiple_of(16)
}

struct Header {
    crc: u32,
    epoch: u64,
    first: OpNo,
    last: OpNo,
    len: u64,
}

impl Header {
    fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        let fields = [u64::from(self.crc), self.epoch, self.first.0, self.last.0, self.len];
        for (place, field) in bytes[8..].chunks_exact_mut(8).zip(fields) {
            place.copy_from_slice(&field.to_le_bytes());
        }
        bytes
    }

    fn decode(bytes: &[u8; HEADER_BYTES]) -> Option<Header> {
        let (fields, _) = bytes.as_chunks::<8>();
        let [magic, crc, epoch, first, last, len] = fields else { return None };
        let number = |field: &[u8; 8]| u64::from_le_bytes(*field);
        let crc = u32::try_from(number(crc)).ok()?;
        let (first, last) = (OpNo(number(first)), OpNo(number(last)));
        (*magic == MAGIC).then(|| Header { crc, epoch: number(epoch), first, last, len: number(len) })
    }
}

/// CRC of the header after its own field, and the operations.
fn checksum(header: &[u8; HEADER_BYTES], bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&header[16..]), bytes)
}

/// Whether a half of a log of `size` bytes begins with a record of any mount.
fn holds_records(file: &File, size: u64) -> std::io::Result<bool> {
    let mut start = [0; MAGIC.len()];
    for half in [0, size / 2] {
        if half + MAGIC.len() as u64 <= size {
            file.read_exact_at(&mut start, half)?;
            if start == MAGIC {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

fn fill(file: &File, from: u64, to: u64) -> std::io::Result<()> {
    let zeros = vec![0; 1 << 20];
    let mut at = from;
    while at < to {
        let now = (to - at).min(zeros.len() as u64);
        file.write_all_at(&zeros[..usize::try_from(now).expect("at most the buffer")], at)?;
        at += now;
    }
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BYTES: u64 = 64 << 10;

    fn log(directory: &tempfile::TempDir) -> IntentLog {
        let mut log = IntentLog::open(&directory.path().join("log"), BYTES).expect("opens");
        log.start(7).expect("starts");
        log
    }

    fn numbers(log: &IntentLog, epoch: u64) -> Vec<(u64, u64)> {
        let records = log.records(epoch).expect("readable");
        records.iter().map(|record| (record.first.0, record.last.0)).collect()
    }

    #[test]
    fn appended_records_read_back_in_order_from_both_halves() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut log = log(&directory);
        log.append(OpNo(1), OpNo(3), b"one").expect("appended");
        log.switch();
        log.append(OpNo(4), OpNo(4), b"two").expect("appended");
        assert!(!log.is_half_full());
        let reopened = IntentLog::open(&directory.path().join("log"), BYTES).expect("opens");
        assert_eq!(numbers(&reopened, 7), [(1, 3), (4, 4)]);
        assert_eq!(reopened.records(7).expect("readable")[0].bytes, b"one");
        assert_eq!(numbers(&reopened, 8), [], "records of another mount");
    }

    #[test]
    fn a_reused_half_shows_no_records_of_its_former_round() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut log = log(&directory);
        for op in 1..=3 {
            log.append(OpNo(op), OpNo(op), &[1; 100]).expect("appended");
        }
        log.switch();
        log.switch();
        log.append(OpNo(9), OpNo(9), &[1; 100]).expect("appended");
        assert_eq!(numbers(&log, 7), [(9, 9)]);
    }

    #[test]
    fn a_full_half_takes_no_more() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut log = log(&directory);
        let mut op = 1;
        while log.fits(1000) {
            log.append(OpNo(op), OpNo(op), &[2; 1000]).expect("appended");
            op += 1;
        }
        assert!(log.is_half_full());
        assert!(log.append(OpNo(op), OpNo(op), &[2; 1000]).is_err());
        assert_eq!(numbers(&log, 7).len() as u64, op - 1);
    }

    #[test]
    fn a_log_with_records_keeps_its_size_when_a_larger_one_is_asked_for() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut log = log(&directory);
        log.append(OpNo(1), OpNo(1), b"one").expect("appended");
        log.switch();
        log.append(OpNo(2), OpNo(2), b"two").expect("appended");
        let reopened = IntentLog::open(&directory.path().join("log"), 4 * BYTES).expect("opens");
        assert_eq!(numbers(&reopened, 7), [(1, 1), (2, 2)]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn damage_loses_no_record_before_it_and_makes_up_none(at in 0usize..2000, mask in 1u8..) {
            let directory = tempfile::tempdir().expect("a directory");
            let mut log = log(&directory);
            for op in 1..=10 {
                log.append(OpNo(op), OpNo(op), &[u8::try_from(op).expect("small"); 100]).expect("appended");
            }
            let mut byte = [0];
            log.file.read_exact_at(&mut byte, at as u64).expect("read");
            log.file.write_all_at(&[byte[0] ^ mask], at as u64).expect("written");
            let found = numbers(&log, 7);
            let whole = at / 160;
            prop_assert!(found.len() >= whole.min(10) && found.len() <= 10);
            for (i, record) in log.records(7).expect("readable").iter().enumerate().take(whole) {
                prop_assert_eq!(record.first.0, i as u64 + 1);
                prop_assert_eq!(&record.bytes, &vec![record.bytes[0]; 100]);
            }
        }

        #[test]
        fn any_bytes_are_a_log_without_records_of_this_mount(bytes in proptest::collection::vec(any::<u8>(), 0..5000)) {
            let directory = tempfile::tempdir().expect("a directory");
            let path = directory.path().join("log");
            std::fs::write(&path, &bytes).expect("written");
            let log = IntentLog::open(&path, BYTES).expect("opens");
            prop_assert_eq!(numbers(&log, 7), []);
        }
    }
}
