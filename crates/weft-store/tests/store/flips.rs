//! Single flipped bits, one after another, in all that the format claims to protect.
//!
//! One of so many is tried as takes seconds; `make soak` (WEFT_SOAK=factor) tries so many times
//! more.

use crate::check::{database, look};
use crate::contract::new_volume;
use crate::sample::{LARGE, SMALL, fill, fill_large};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use weft_store::sqlite::open;
use weft_store::{BlockHome, BlockStore, ErrorKind, Ino, Place, ReadMode, RowStore};
use weft_store::{Outcome, Repair};

/// The bits of `bytes` bytes that are tried: one of `usual`.
fn bits(bytes: usize, usual: usize) -> impl Iterator<Item = (usize, u8)> {
    let soak = std::env::var("WEFT_SOAK").ok().and_then(|factor| factor.parse().ok()).unwrap_or(1);
    (0..bytes * 8).step_by((usual / soak).max(1)).map(|bit| (bit / 8, 1 << (bit % 8)))
}

#[test]
fn no_bit_of_a_block_in_a_segment_is_read_flipped() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = new_volume(&directory, BlockHome::Segments);
    let store = open(&path).expect("opened").store;
    fill(&*store);
    let block = store.extents(Ino(LARGE), 0..1).expect("readable")[0].1;
    let Place::Segment { offset, .. } = block.place else { panic!("it lies in a segment") };
    let whole = store.read_block(&block, ReadMode::Blocking).expect("whole").expect("waited for");
    let file = fs::OpenOptions::new().write(true).open(path.join("segments/00000001.seg")).expect("there");
    for (byte, bit) in bits(whole.len(), 13) {
        file.write_all_at(&[whole[byte] ^ bit], offset + byte as u64).expect("flipped");
        let read = store.read_part(&block, byte..byte + 1, ReadMode::Blocking);
        assert_eq!(read.map(drop).expect_err("damaged").kind(), ErrorKind::Corrupt, "bit {bit:#x} of byte {byte}");
        if byte % 512 == 0 {
            let read = store.read_block(&block, ReadMode::Blocking);
            assert_eq!(read.map(drop).expect_err("damaged").kind(), ErrorKind::Corrupt, "bit {bit:#x} of byte {byte}");
        }
        file.write_all_at(&whole[byte..=byte], offset + byte as u64).expect("set back");
    }
    assert_eq!(*store.read_block(&block, ReadMode::Blocking).expect("whole").expect("waited for"), *whole);
}

/// Flips bits of `column` of the row of `table` that `which` tells, and sets them back.
fn each_is_found(path: &Path, (table, column, which): (&str, &str, &str), usual: usize, expected: &str) {
    let database = database(path);
    let connection = rusqlite::Connection::open(&database).expect("opened");
    let read = format!("SELECT {column} FROM {table} WHERE {which}");
    let before: Vec<u8> = connection.query_row(&read, (), |row| row.get(0)).expect("there");
    let write = format!("UPDATE {table} SET {column} = ?1 WHERE {which}");
    let put = |bytes: &[u8]| assert_eq!(connection.execute(&write, (bytes,)).expect("written"), 1);
    for (byte, bit) in bits(before.len(), usual) {
        let mut bytes = before.clone();
        bytes[byte] ^= bit;
        put(&bytes);
        let found = look(path, Repair::No).into_iter().filter(|finding| finding.outcome != Outcome::Note);
        let found = found.map(|finding| finding.to_string()).collect::<Vec<_>>();
        let is_named = found.iter().any(|what| what.contains(expected));
        assert!(is_named, "bit {bit:#x} of byte {byte} of {column} in {table}: {found:?}");
    }
    put(&before);
}

#[test]
fn each_flipped_bit_of_a_row_is_found_and_named() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = new_volume(&directory, BlockHome::Database);
    fill(&*open(&path).expect("opened").store);
    let small = format!("ino = {SMALL}");
    let large = format!("id = (SELECT block FROM extents WHERE ino = {LARGE} AND start = 0)");
    let last = "number = (SELECT number FROM volume)";
    let rows = [
        ("fileatt", "digest", &*small, 5, "/second name: its digest"),
        ("fileatt", "inline", &*small, 1, "/second name: its row is damaged"),
        ("naming", "name", &*format!("ino = {LARGE}"), 1, "/dir"),
        ("naming", "digest", "name = CAST('large' AS BLOB)", 5, "/dir: the hash of an entry"),
        ("blocks", "value", &*large, 5, "are damaged"),
        ("blocks", "parts", &*large, 12, "what verifies its parts"),
        ("block_bytes", "bytes", &*large, 5000, "are damaged"),
        ("commits", "root_digest", last, 5, "the row of commit"),
        ("commits", "previous_digest", last, 5, "the row of commit"),
    ];
    for (table, column, which, usual, expected) in rows {
        each_is_found(&path, (table, column, which), usual, expected);
    }
    assert!(look(&path, Repair::No).iter().all(|finding| finding.outcome == Outcome::Note));
}

#[test]
fn each_flipped_bit_of_what_is_kept_of_subtrees_is_found_and_named() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = new_volume(&directory, BlockHome::Segments);
    fill_large(&*open(&path).expect("opened").store);
    let rows = [
        ("branches", "prefix = CAST('file' AS BLOB)", "/names: its digest"),
        ("branches", "prefix = x''", "/names: its digest"),
        ("nodes", "level = 1 AND idx = 0", "/sparse: its digest"),
        ("nodes", "level = 2", "/sparse: its digest"),
    ];
    for (table, which, expected) in rows {
        each_is_found(&path, (table, "children", which), 100, expected);
    }
}
