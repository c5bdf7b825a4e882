//! A small intent log that is filled to its end when the power goes.

use std::path::Path;
use weft_store::log::IntentLog;
use weft_store::memory::MemoryStore;
use weft_store::*;

/// Bytes of the least half of a log.
const SECTOR: u64 = 512;

/// The epoch of a volume that was not unmounted cleanly.
const EPOCH: u64 = 7;

/// Returns the header of a volume whose last commit has operations up to `op`.
fn header(epoch: u64, commit: u64, op: u64) -> Header {
    let header = MemoryStore::new(VolumeOptions::default()).header().expect("in memory");
    let counters = Counters { epoch, op: OpNo(op), ..header.counters };
    Header { commit: CommitNo(commit), counters, ..header }
}

/// The operations that a mount of the volume would apply, or why it is refused.
fn found(path: &Path, header: &Header) -> std::result::Result<Vec<u64>, String> {
    let mut log = IntentLog::open(path, 2 * SECTOR).expect("opens");
    log.check(header).map_err(|error| error.to_string())?;
    Ok(log.records().iter().flat_map(|record| record.first.0..=record.last.0).collect())
}

/// The last record may end where its half does, whichever that is, while the other half is needed,
/// too.
#[test]
fn a_mount_after_one_that_filled_both_halves_finds_room_after_its_first_commit() {
    for committed in [0, 1] {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("intents");
        let open = || IntentLog::open(&path, 2 * SECTOR).expect("opens");
        let mut log = open();
        log.start(&header(EPOCH - 1, 2, 0), EPOCH).expect("starts");
        for op in 1..=committed + 2 {
            // One record fills a half.
            log.append(OpNo(op), OpNo(op), &[1; 100].to_vec().into()).expect("appended");
            log.syncer().expect("a syncer").sync().expect("synced");
            log.switch();
        }
        let crashed = header(EPOCH, 2, committed);
        let needed = Ok(vec![committed + 1, committed + 2]);
        assert_eq!(found(&path, &crashed), needed);
        let mut log = open();
        log.check(&crashed).expect("fits");
        log.prepare(EPOCH + 2, CommitNo(2)).expect("prepared");
        assert!(!log.fits(1) && log.carry(CommitNo(3), OpNo(9), vec![2; 100]).is_err());
        assert_eq!(found(&path, &crashed), needed, "nothing is written over");
        log.begin(CommitNo(3)).expect("begun");
        log.append(OpNo(9), OpNo(9), &[2; 100].to_vec().into()).expect("appended");
        log.syncer().expect("a syncer").sync().expect("synced");
        assert_eq!(found(&path, &header(EPOCH + 2, 3, 8)), Ok(vec![9]), "the next mount finds it");
    }
}
