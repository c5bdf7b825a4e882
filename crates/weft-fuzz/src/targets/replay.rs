//! A record of the intent log that is whole and holds operations no Weft would write in that order:
//! mounting applies them or refuses, and what it made of them can be used and committed.
use crate::volume::{self, look_at_all};
use crate::{INODES, mount, scratch};
use std::sync::Arc;
use weft_store::log::IntentLog;
use weft_store::{Batch, CommitStore, Counters, Durability, RowStore};

/// Takes any bytes as what this is about.
pub fn run(bytes: &[u8]) {
    let store = Arc::new(volume::in_memory());
    let header = store.header().expect("readable");
    let directory = scratch();
    let path = directory.path().join("log");
    let mut log = IntentLog::open(&path, 256 << 10).expect("opens");
    // As a mount with a log leaves it that ended in a crash.
    let counters = Counters { epoch: header.counters.epoch | 1, ..header.counters };
    log.start(&header, counters.epoch).expect("starts");
    let begun = Batch { commit: header.commit.next(), counters, ..Batch::default() };
    store.apply(&begun, Durability::Durable).expect("applied");
    let record = weft_vfs::fuzzing::record(bytes, INODES);
    if !log.fits(record.len()) {
        return;
    }
    let next = header.counters.op.next();
    log.append(next, next, &record.into()).expect("appended");
    let log = IntentLog::open(&path, 256 << 10).expect("opens");
    if let Ok(vfs) = mount(store, Some(log)) {
        look_at_all(&vfs);
        vfs.close().expect("a volume in memory takes every commit");
        look_at_all(&vfs);
    }
}
