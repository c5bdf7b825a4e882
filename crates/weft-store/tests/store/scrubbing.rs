//! Scrubs of a volume that changes meanwhile.

use crate::check::database;
use crate::contract::new_volume;
use crate::sample::fill_many;
use weft_store::sqlite::{open, scrub};
use weft_store::*;

/// Files that are compared in several pages.
const FILES: u64 = 2500;

/// Commits a change of the digest of `ino`.
fn change(store: &dyn Store, ino: Ino, byte: u8) {
    let header = store.header().expect("readable");
    let row = store.inodes(ino, 1).expect("readable").remove(0);
    let counters = Counters { bytes_used: header.counters.bytes_used + 1 - row.allocated, ..header.counters };
    let inline = Some(vec![byte].into());
    let row = InodeRow { inline, size: 1, allocated: 1, ..row };
    let commit = header.commit.next();
    let batch = Batch { commit, counters, inodes: vec![InodeChange::Put(row)], ..Batch::default() };
    store.apply(&batch, Durability::Durable).expect("applied");
}

#[test]
fn a_scrub_holds_no_checkpoint_back_and_tells_no_damage_of_what_changes_meanwhile() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = new_volume(&directory, BlockHome::Database);
    let store = open(&path).expect("opened").store;
    fill_many(&*store, FILES);
    let beside = rusqlite::Connection::open(database(&path)).expect("opened");
    let mut pages = 0;
    let found = scrub(&path, &mut |progress: Progress| {
        if progress.step != "digests" || progress.done == 0 || progress.done == progress.total {
            return;
        }
        pages += 1;
        for ino in [100, 99 + FILES] {
            change(&*store, Ino(ino), pages);
        }
        let checkpoint = "PRAGMA wal_checkpoint(TRUNCATE)";
        let is_busy = beside.query_row(checkpoint, (), |row| row.get::<_, bool>(0)).expect("tried");
        assert!(!is_busy, "after page {pages}");
    });
    assert_eq!(found.expect("scrubbed"), []);
    assert!(pages > 5, "{pages} pages");
}
