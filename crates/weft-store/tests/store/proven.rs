//! Rows that say that space is free are believed only if the rows of blocks say so, too.

use crate::check::{database, sample_volume};
use crate::compare::{State, state};
use crate::generate::batch;
use std::path::Path;
use weft_store::sqlite::open;
use weft_store::*;

fn edit(path: &Path, statements: &str) {
    let connection = rusqlite::Connection::open(database(path)).expect("opened");
    connection.execute_batch(statements).expect("edited");
    drop(connection);
    // As if a commit had written it.
    weft_store::sqlite::seal(path).expect("sealed");
}

/// Opens the volume, commits, and closes it when all that is free was given back. Tells what a
/// person should know.
fn mount(path: &Path) -> Result<(State, Vec<String>)> {
    let store = open(path)?.store;
    store.apply(&batch(&*store, &[]), Durability::Durable)?;
    store.reclaim()?;
    Ok((state(&*store)?, store.notices()))
}

#[test]
fn space_that_a_block_lies_in_is_not_given_back() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = sample_volume(&directory, BlockHome::Segments);
    let (before, notices) = mount(&path).expect("mounted");
    assert_eq!(notices, Vec::<String>::new());
    edit(
        &path,
        "INSERT INTO freed (segment, position, length) SELECT segment, position, 1 FROM blocks WHERE segment > 0",
    );
    edit(&path, "INSERT INTO freed (id, segment, position, length) VALUES (1000, 1, 0, 1 << 40)");
    for _ in 0..2 {
        let (after, notices) = mount(&path).expect("mounted");
        assert_eq!(after.rows(), before.rows());
        assert!(notices.iter().any(|notice| notice.contains("belongs to block")), "{notices:?}");
    }
    let count = "SELECT count(*) FROM freed";
    let connection = rusqlite::Connection::open(database(&path)).expect("opened");
    let left: i64 = connection.query_row(count, (), |row| row.get(0)).expect("counted");
    assert!(left > 1, "what is wrong stays until a check has looked at it");
}

#[test]
fn a_segment_that_counts_no_blocks_but_has_some_is_not_deleted() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = sample_volume(&directory, BlockHome::Segments);
    let (before, _) = mount(&path).expect("mounted");
    edit(&path, "UPDATE segments SET live = 0; INSERT INTO segments (id, length, live) VALUES (2, 0, 0)");
    let (after, notices) = mount(&path).expect("mounted");
    assert_eq!(after.rows(), before.rows());
    assert!(notices.iter().any(|notice| notice.contains("segment 1 holds other blocks")), "{notices:?}");
    assert_eq!(mount(&path).expect("mounted").0.rows(), before.rows());
    crate::check::look(&path, Repair::Yes);
    assert_eq!(mount(&path).expect("mounted").1, Vec::<String>::new());
}

#[test]
fn nothing_is_cut_off_where_a_block_lies() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = sample_volume(&directory, BlockHome::Segments);
    let segment = path.join("segments/00000001.seg");
    let size = || std::fs::metadata(&segment).expect("there").len();
    let before = size();
    // The last block's row is damaged, too, and says nothing of where the segment ends.
    edit(&path, "UPDATE segments SET length = 4096");
    edit(&path, "UPDATE blocks SET position = 0, length = 1 WHERE id = (SELECT max(id) FROM blocks)");
    let error = mount(&path).map(|_| ()).expect_err("refused");
    assert!(error.to_string().contains("weft check --repair"), "{error}");
    assert_eq!(size(), before);
}

#[test]
fn opening_alone_changes_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = sample_volume(&directory, BlockHome::Segments);
    let segment = path.join("segments/00000001.seg");
    let mut bytes = std::fs::read(&segment).expect("read");
    bytes.extend([7; 10_000]);
    std::fs::write(&segment, &bytes).expect("written");
    let before = std::fs::read(database(&path)).expect("read");
    drop(open(&path).expect("opened"));
    assert!(std::fs::read(&segment).expect("read") == bytes);
    assert!(std::fs::read(database(&path)).expect("read") == before);
    let left = std::fs::read_dir(&path).expect("listed").flatten().map(|entry| entry.file_name());
    let left = left.filter(|name| name.to_string_lossy().starts_with("meta.sqlite-")).collect::<Vec<_>>();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn inodes_that_count_no_names_but_have_one_are_told_from_orphans() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = sample_volume(&directory, BlockHome::Segments);
    edit(&path, "UPDATE fileatt SET nlink = 0 WHERE ino = (SELECT min(ino) FROM naming)");
    let store = open(&path).expect("opened").store;
    assert_eq!(store.misnamed().expect("readable").len(), 1);
    assert!(store.orphans().expect("readable").contains(&store.misnamed().expect("readable")[0]));
}
