//! Volumes with small extents, and all that is done with volumes that nobody has mounted.

use crate::check::{look, sample_volume};
use crate::contract::{HOMES, options};
use crate::salvage::salvaged;
use crate::sample::{self, CLONE, LARGE};
use std::path::Path;
use std::sync::Arc;
use weft_store::parts::store_in_parts;
use weft_store::sqlite::{convert, open, scrub};
use weft_store::stream::{Incoming, ReceiveOptions, Selection, send};
use weft_store::*;
use weft_testkit::Cluster;

/// The digest and the content of each file with blocks.
fn files(store: &dyn Store) -> Vec<(u64, Option<Digest>, Vec<u8>)> {
    let content = |ino: u64| {
        let size = store.row_of(Ino(ino)).expect("readable").expect("there").size;
        let mut bytes = vec![0; usize::try_from(size).expect("short")];
        for (span, block) in store.extents(Ino(ino), 0..u64::MAX).expect("readable") {
            let stored = store.read_block(&block, ReadMode::Blocking).expect("whole").expect("waited for");
            let start = usize::try_from(span.start).expect("short");
            bytes[start..start + stored.len()].copy_from_slice(&stored);
        }
        (ino, store.digest(Ino(ino)).expect("readable"), bytes)
    };
    [LARGE, CLONE].map(content).into()
}

/// True if a file with a name is stored in parts.
fn has_parts(store: &dyn Store) -> bool {
    let extents = [LARGE, CLONE].map(|ino| store.extents(Ino(ino), 0..u64::MAX).expect("readable"));
    extents.iter().flatten().any(|(span, _)| span.length < 65536)
}

/// Stores blocks in parts until a file has some.
fn divide(store: &dyn Store, seed: u64) {
    let mut seeds = (seed..).step_by(10);
    while !has_parts(store) {
        store_in_parts(store, seeds.next().expect("there are many")).expect("stored");
    }
}

fn assert_in_order(path: &Path) {
    let found = look(path, Repair::No);
    assert!(found.iter().all(|finding| finding.outcome == Outcome::Note), "{found:?}");
}

#[test]
fn a_volume_with_small_extents_is_checked_converted_and_salvaged_whole() {
    for (home, other) in [(HOMES[0], HOMES[1]), (HOMES[1], HOMES[0])] {
        for seed in 0..4 {
            let directory = tempfile::tempdir().expect("a directory");
            let path = sample_volume(&directory, home);
            let store = open(&path).expect("opened").store;
            let before = files(&*store);
            divide(&*store, seed);
            assert_eq!(files(&*store), before);
            drop(store);
            assert_in_order(&path);
            assert_eq!(scrub(&path, &mut |_| {}).expect("scrubbed"), []);
            let [converted, brought] = ["converted", "brought"].map(|name| directory.path().join(name));
            convert(&path, &converted, other, &mut |_| {}).expect("converted");
            salvaged(&path, &brought).expect("brought");
            for new in [converted, brought] {
                assert_in_order(&new);
                let store = open(&new).expect("opened").store;
                assert!(has_parts(&*store));
                assert_eq!(files(&*store), before);
            }
        }
    }
}

#[test]
fn a_volume_with_small_extents_goes_from_engine_to_engine() {
    let address = Cluster::shared().address();
    let options = options(BlockHome::Database);
    postgres::create(&address, &options, (0, 0), Timestamp(0)).expect("made");
    let store: Arc<dyn Store> = postgres::open(&address, OpenOptions::default()).expect("opens");
    sample::fill(&*store);
    let before = files(&*store);
    divide(&*store, 3);
    assert_eq!(files(&*store), before);
    let mut stream = Vec::new();
    let selection = Selection { from: None, to: store.header().expect("readable").commit, snapshots: false };
    send((&store, false), &selection, &mut stream, &mut |_| {}).expect("sent");
    drop(store);
    let check = CheckOptions { repair: Repair::No, read_data: true };
    let found = postgres::check(&address, check, &mut |_| {}).expect("checked");
    assert!(found.iter().all(|finding| finding.outcome == Outcome::Note), "{found:?}");
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("received");
    sqlite::create(&path, &options, (0, 0), Timestamp(0)).expect("made");
    let received = open(&path).expect("opened").store;
    let incoming = Incoming::open(&stream[..]).expect("a stream");
    incoming.receive(&*received, &ReceiveOptions::default(), &mut |_| ()).expect("received");
    assert!(has_parts(&*received));
    assert_eq!(files(&*received), before);
    drop(received);
    assert_in_order(&path);
}
