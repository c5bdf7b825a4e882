//! Scrubs of a volume that changes meanwhile.

use crate::check::database;
use crate::contract::{HOMES, new_volume};
use crate::crash::{copy, wal};
use crate::generate::batch;
use crate::sample::fill_many;
use std::fs;
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

/// Makes `count` commits of nothing.
fn commits(store: &dyn Store, count: u8) {
    (0..count).for_each(|_| drop(store.apply(&batch(store, &[]), Durability::Durable).expect("applied")));
}

#[test]
fn a_scrub_tells_of_a_write_ahead_log_of_another_life_and_leaves_it() {
    for home in HOMES {
        let directory = tempfile::tempdir().expect("a directory");
        let (path, later) = (new_volume(&directory, home), directory.path().join("later"));
        let store = open(&path).expect("opened").store;
        commits(&*store, 3);
        copy(&path, &later);
        let foreign = fs::read(wal(&later)).expect("there is one");
        let told = |path: &std::path::Path| scrub(path, &mut |_| {}).expect("scrubbed");
        assert_eq!(told(&path), [], "it is mounted, and its own log lies there");
        assert_eq!(told(&later), [], "what a kill leaves");
        // The copy is used, and unmounted.
        let used = open(&later).expect("opens").store;
        commits(&*used, 4);
        drop(used);
        let whole = fs::read(database(&later)).expect("read");
        fs::write(wal(&later), &foreign).expect("put back");
        for _ in 0..2 {
            let found = told(&later);
            let is_told = found.iter().any(|finding| finding.what.contains("is not of this state of the database"));
            assert!(is_told, "{found:?}");
            assert!(fs::read(database(&later)).expect("read") == whole, "nothing is copied from it");
            assert!(fs::read(wal(&later)).expect("read") == foreign);
        }
        // Below a mount: another file takes its place, or is written over it.
        let own = fs::read(wal(&path)).expect("there is one");
        commits(&*store, 2);
        fs::rename(wal(&path), directory.path().join("moved")).expect("moved");
        for bytes in [&foreign, &own, &foreign[..32].to_vec()] {
            fs::write(wal(&path), bytes).expect("put there");
            let found = told(&path);
            let is_told = found.len() == 1 && found[0].what.contains("is not the one that the mount writes");
            assert!(is_told, "{found:?}");
        }
        fs::rename(directory.path().join("moved"), wal(&path)).expect("moved back");
        assert_eq!(told(&path), []);
    }
}
