//! Parts of blocks, read and verified alone.

use crate::check::{database, sample_volume};
use crate::sample::LARGE;
use std::fs;
use std::os::unix::fs::FileExt;
use weft_store::sqlite::open;
use weft_store::{BlockHome, BlockRef, BlockStore, ErrorKind, Ino, Place, ReadMode, Store};

const PART: usize = weft_digest::PART_BYTES;

fn first_block(store: &dyn Store) -> BlockRef {
    store.extents(Ino(LARGE), 0..1).expect("readable")[0].1
}

#[test]
fn damage_of_one_part_is_an_error_there_and_nowhere_else() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = sample_volume(&directory, BlockHome::Segments);
    let store = open(&path).expect("opens").store;
    let block = first_block(&*store);
    let Place::Segment { offset, .. } = block.place else { panic!("it lies in a segment") };
    let file = fs::OpenOptions::new().write(true).open(path.join("segments/00000001.seg")).expect("there");
    file.write_all_at(b"\xee", offset + 2 * PART as u64 + 5).expect("damaged");
    let read = |range: std::ops::Range<usize>| store.read_part(&block, range, ReadMode::Blocking);
    for part in [0, 1, 3] {
        let (start, bytes) = read(part * PART + 7..part * PART + 9).expect("whole").expect("waited for");
        assert_eq!((start, bytes.len()), (part * PART, PART));
    }
    for range in [2 * PART..2 * PART + 1, 3 * PART - 1..3 * PART, PART - 1..PART + 1, 0..4 * PART] {
        assert_eq!(read(range.clone()).expect_err("damaged").kind(), ErrorKind::Corrupt, "{range:?}");
    }
    let mut kinds = Vec::new();
    let mut visit = |_, read: weft_store::Result<_>| kinds.push(read.expect_err("damaged").kind());
    store.read_blocks(&[block], &mut visit).expect("read");
    assert_eq!(kinds, [ErrorKind::Corrupt]);
}

#[test]
fn without_what_verifies_parts_blocks_are_read_whole() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = sample_volume(&directory, BlockHome::Segments);
    let connection = rusqlite::Connection::open(database(&path)).expect("opened");
    connection.execute_batch("UPDATE blocks SET parts = NULL").expect("edited");
    drop(connection);
    let store = open(&path).expect("opens").store;
    let (start, bytes) =
        store.read_part(&first_block(&*store), 5..6, ReadMode::Blocking).expect("whole").expect("waited for");
    assert_eq!((start, bytes.len()), (0, 4 * PART));
}
