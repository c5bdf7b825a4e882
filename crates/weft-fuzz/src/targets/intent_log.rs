//! The file of an intent log: whatever it holds, no record comes out of it that is not there,
//! sector by sector.
//!
//! The first byte of the input says whether checksums in the rest are made right, so that records
//! are found at all, and the next two which byte is flipped afterwards.
use crate::{mount, scratch, volume_options};
use std::sync::Arc;
use weft_store::log::{IntentLog, Loss, Record};
use weft_store::memory::MemoryStore;
use weft_store::{BlockHome, CommitNo, Header, Store};

const HEADER_BYTES: usize = 8192;
const SECTOR: usize = 512;
const ROOM: usize = 488;
const HEAD_BYTES: usize = 64;

/// Takes any bytes as what this is about.
pub fn run(bytes: &[u8]) {
    let Some(([fixes, low, high], rest)) = bytes.split_first_chunk::<3>() else { return };
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(volume_options(BlockHome::Database)));
    let header = store.header().expect("readable");
    let mut file = rest.to_vec();
    if fixes & 1 == 1 {
        fix_checksums(&mut file, &header.uuid);
    }
    if fixes & 2 == 2 && !file.is_empty() {
        let at = usize::from(u16::from_le_bytes([*low, *high])) % file.len();
        file[at] ^= 1 << (fixes >> 5);
    }
    let directory = scratch();
    let path = directory.path().join("log");
    std::fs::write(&path, &file).expect("written");
    let mut epochs: Vec<u64> = [0, 4096].iter().filter_map(|at| number(&file, at + 24)).collect();
    epochs.extend([0, 1]);
    for epoch in epochs {
        for loss in [Loss::Refuse, Loss::Accept] {
            let mut log = IntentLog::read(&path).expect("opens").expect("there").with(loss);
            let mut header = Header { commit: CommitNo(u64::MAX / 2), ..header.clone() };
            header.counters.epoch = epoch;
            let found = log.check(&header);
            assert!(found.is_ok() || loss == Loss::Refuse);
            let records = log.records();
            assert!(records.is_sorted_by_key(|record| record.first));
            for record in records.iter().chain(log.carried()) {
                assert!(lies_in(&file, record), "a record that is not in the file: {record:?}");
            }
        }
    }
    // What a volume makes of it: it mounts, or says that it is damaged.
    let log = IntentLog::open(&path, 0).expect("opens").with(Loss::Accept);
    if let Ok(vfs) = mount(store, Some(log)) {
        vfs.close().expect("a volume in memory takes every commit");
    }
}

fn number(file: &[u8], at: usize) -> Option<u64> {
    file.get(at..at + 8).map(|bytes| u64::from_le_bytes(bytes.try_into().expect("eight bytes")))
}

/// Makes right the checksums of the header and of all sectors after it.
fn fix_checksums(file: &mut [u8], id: &[u8]) {
    let (header, sectors) = file.split_at_mut(HEADER_BYTES.min(file.len()));
    for slot in header.chunks_exact_mut(SECTOR) {
        let crc = crc32c::crc32c(&slot[..SECTOR - 4]);
        slot[SECTOR - 4..].copy_from_slice(&crc.to_le_bytes());
    }
    for sector in sectors.chunks_exact_mut(SECTOR) {
        let crc = crc32c::crc32c_append(crc32c::crc32c(id), &sector[..ROOM]);
        let crc = crc32c::crc32c_append(crc, &sector[ROOM + 4..]);
        sector[ROOM..ROOM + 4].copy_from_slice(&crc.to_le_bytes());
    }
}

/// True if the record begins in some sector of the file and goes on in those after it.
fn lies_in(file: &[u8], record: &Record) -> bool {
    let mut sectors = file[HEADER_BYTES.min(file.len())..].chunks_exact(SECTOR).map(|sector| &sector[..ROOM]);
    while let Some(first) = sectors.next() {
        let (start, rest) = record.bytes.split_at(record.bytes.len().min(ROOM - HEAD_BYTES));
        let numbers = [record.first.0, record.last.0];
        let is_head = numbers.iter().zip([8, 16]).all(|(value, at)| number(first, at) == Some(*value));
        if is_head && first[HEAD_BYTES..].starts_with(start) {
            let mut following = sectors.clone();
            if rest.chunks(ROOM).all(|part| following.next().is_some_and(|sector| sector.starts_with(part))) {
                return true;
            }
        }
    }
    false
}
