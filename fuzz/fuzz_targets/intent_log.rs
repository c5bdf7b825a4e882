//! The file of an intent log: whatever it holds, no record comes out of it whose checksum is wrong.
//!
//! The first byte of the input says whether checksums in the rest are made right, so that records are found at
//! all, and the next two which byte is flipped afterwards.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::sync::Arc;
use weft_fuzz::{mount, scratch, volume_options};
use weft_store::log::{IntentLog, Record};
use weft_store::memory::MemoryStore;
use weft_store::{BlockHome, Store};

const HEADER_BYTES: usize = 48;

fuzz_target!(|bytes: &[u8]| {
    let Some(([fixes, low, high], rest)) = bytes.split_first_chunk::<3>() else { return };
    let mut file = rest.to_vec();
    if fixes & 1 == 1 {
        fix_checksums(&mut file);
    }
    if fixes & 2 == 2 && !file.is_empty() {
        let at = usize::from(u16::from_le_bytes([*low, *high])) % file.len();
        file[at] ^= 1 << (fixes >> 5);
    }
    let directory = scratch();
    let path = directory.path().join("log");
    std::fs::write(&path, &file).expect("written");
    let log = IntentLog::open(&path, 0).expect("opens");
    let mut epochs: Vec<u64> = (0..file.len()).step_by(16).filter_map(|at| number(&file, at + 16)).collect();
    epochs.extend([0, 1]);
    epochs.sort_unstable();
    epochs.dedup();
    for epoch in epochs {
        let records = log.records(epoch).expect("readable");
        assert!(records.is_sorted_by_key(|record| record.first));
        let held: usize = records.iter().map(|record| record.bytes.len() + HEADER_BYTES).sum();
        assert!(held <= file.len(), "no more than the file holds");
        for record in &records {
            assert!(lies_in(&file, epoch, record), "a record that is not in the file: {record:?}");
        }
    }
    // What a volume makes of it: it mounts, or says that it is damaged.
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(volume_options(BlockHome::Database)));
    if let Ok(vfs) = mount(store, Some(log)) {
        vfs.close().expect("a volume in memory takes every commit");
    }
});

fn number(file: &[u8], at: usize) -> Option<u64> {
    file.get(at..at + 8).map(|bytes| u64::from_le_bytes(bytes.try_into().expect("eight bytes")))
}

/// Makes right the checksum of all that looks like a record.
fn fix_checksums(file: &mut [u8]) {
    for at in (0..file.len()).step_by(16) {
        let Some(len) = number(file, at + 40).and_then(|len| usize::try_from(len).ok()) else { return };
        let end = (at + HEADER_BYTES).checked_add(len).filter(|end| *end <= file.len());
        if let (b"WEFTLOG1", Some(end)) = (&file[at..at + 8], end) {
            let crc = u64::from(crc32c::crc32c(&file[at + 16..end]));
            file[at + 8..at + 16].copy_from_slice(&crc.to_le_bytes());
        }
    }
}

fn lies_in(file: &[u8], epoch: u64, record: &Record) -> bool {
    let numbers = [epoch, record.first.0, record.last.0, record.bytes.len() as u64];
    let mut whole: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    whole.extend_from_slice(&record.bytes);
    let crc = u64::from(crc32c::crc32c(&whole));
    let expected = [&b"WEFTLOG1"[..], &crc.to_le_bytes(), &whole].concat();
    (0..file.len()).any(|at| file[at..].starts_with(&expected))
}
