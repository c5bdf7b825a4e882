//! Sectors of an intent log that a sync had reached and that are not there any more.

use std::fs;
use std::path::Path;
use weft_store::log::IntentLog;
use weft_store::memory::MemoryStore;
use weft_store::*;

const SECTOR: usize = 512;

/// Bytes before the records.
const HEADER: usize = 8192;

/// Sectors of each record.
const SECTORS: usize = 3;

/// Records of one operation each.
const RECORDS: u64 = 4;

/// The epoch of a volume that was not unmounted cleanly.
const EPOCH: u64 = 7;

/// Returns the header of a volume whose last commit has operations up to `op`.
fn header(epoch: u64, op: u64) -> Header {
    let header = MemoryStore::new(VolumeOptions::default()).header().expect("in memory");
    let counters = Counters { epoch, op: OpNo(op), ..header.counters };
    Header { commit: CommitNo(2), counters, ..header }
}

/// The operations that a mount of the volume would apply, or why it is refused.
fn found(path: &Path, op: u64) -> std::result::Result<Vec<u64>, String> {
    let mut log = IntentLog::open(path, 64 << 10).expect("opens");
    log.check(&header(EPOCH, op)).map_err(|error| error.to_string())?;
    Ok(log.records().iter().map(|record| record.first.0).collect())
}

/// Each sector of each record, made zeros or what lay there before.
#[test]
fn a_sector_that_is_not_there_is_damage_in_all_synced_records_but_the_last() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("intents");
    let mut log = IntentLog::open(&path, 64 << 10).expect("opens");
    log.start(&header(EPOCH - 1, 0), EPOCH).expect("starts");
    let blank = fs::read(&path).expect("readable");
    for op in (1..=RECORDS).map(OpNo) {
        log.append(op, op, &[7; SECTORS * 400].to_vec().into()).expect("appended");
        let sync = log.syncer().expect("a syncer");
        sync.sync().expect("synced");
        log.keep(sync);
    }
    let whole = fs::read(&path).expect("readable");
    let sectors = (HEADER..).step_by(SECTOR).zip((1..=RECORDS).flat_map(|op| [op; SECTORS]));
    for (at, op) in sectors {
        let mut lost = whole.clone();
        assert!(lost[at..at + SECTOR] != blank[at..at + SECTOR]);
        lost[at..at + SECTOR].copy_from_slice(&blank[at..at + SECTOR]);
        fs::write(&path, &lost).expect("written");
        match found(&path, 0) {
            Err(why) if op < RECORDS => {
                assert!(why.contains("which were synced") && why.contains("--accept-loss"), "{why}");
            }
            // No later record says that it was synced: as if the power had gone meanwhile.
            found => assert_eq!(found, Ok((1..RECORDS).collect()), "byte {at}"),
        }
        // Once a commit has it, which follows within seconds, nothing is lost.
        assert_eq!(found(&path, op), Ok((op + 1..=RECORDS).collect()), "byte {at}");
    }
}
