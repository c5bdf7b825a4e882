//! Databases that are written anew without what nothing is in.

use crate::check::{database, look, sample_volume};
use crate::compare::state;
use crate::contract::HOMES;
use crate::crash::{copy_rewriting, wal};
use std::fs;
use std::path::{Path, PathBuf};
use weft_store::sqlite::{self, Stop, open};
use weft_store::*;

/// Attributes that make a database large.
const MANY: u64 = 200;

fn compact(path: &Path) -> Result<sqlite::Compacted> {
    sqlite::compact(path, &Stop::default(), &mut |_| {})
}

/// The path at which the new database grows.
fn unfinished(volume: &Path) -> PathBuf {
    PathBuf::from(format!("{}-compact", database(volume).display()))
}

/// Adds many attributes, and takes them away.
fn make_space(path: &Path) {
    let store = open(path).expect("opened").store;
    for is_there in [true, false] {
        let header = store.header().expect("readable");
        let attribute = |number: u64| XattrChange {
            ino: Ino::ROOT,
            name: Name::new(format!("user.{number}").as_bytes()).expect("a name"),
            value: is_there.then(|| vec![7; 9000]),
        };
        let xattrs = (0..MANY).map(attribute).collect();
        let commit = header.commit.next();
        let batch = Batch { commit, counters: header.counters, xattrs, ..Batch::default() };
        store.apply(&batch, Durability::Durable).expect("applied");
    }
}

/// A sample volume whose database has space of many attributes that went.
fn with_space(directory: &tempfile::TempDir, home: BlockHome) -> PathBuf {
    let path = sample_volume(directory, home);
    make_space(&path);
    path
}

fn length(path: &Path) -> u64 {
    path.metadata().map_or(0, |metadata| metadata.len())
}

#[test]
fn a_compacted_volume_is_smaller_and_the_same() {
    for home in HOMES {
        let directory = tempfile::tempdir().expect("a directory");
        let path = with_space(&directory, home);
        let before = state(&*open(&path).expect("opened").store).expect("readable");
        let sizes = compact(&path).expect("compacted");
        assert!(sizes.before > MANY * 9000 && sizes.after < sizes.before / 4, "{sizes:?}");
        assert_eq!((length(&database(&path)), length(&wal(&path))), (sizes.after, 0));
        assert!(!unfinished(&path).exists());
        assert!(look(&path, Repair::No).iter().all(|finding| finding.outcome == Outcome::Note));
        assert_eq!(state(&*open(&path).expect("opened").store).expect("readable"), before);
        // It takes what is written later, and can be compacted again.
        make_space(&path);
        assert!(compact(&path).expect("compacted").after < sizes.before / 4);
    }
}

#[test]
fn a_compaction_that_is_killed_anywhere_leaves_the_volume_as_it_was() {
    for home in HOMES {
        let directory = tempfile::tempdir().expect("a directory");
        let path = with_space(&directory, home);
        let before = state(&*open(&path).expect("opened").store).expect("readable");
        let mut killed = Vec::new();
        let mut kill = |_: Progress| {
            let to = directory.path().join(format!("killed{}", killed.len()));
            copy_rewriting(&path, &to, unfinished);
            killed.push(to);
        };
        sqlite::compact(&path, &Stop::default(), &mut kill).expect("compacted");
        assert!(killed.len() >= 6 && killed.iter().any(|path| unfinished(path).exists()));
        for path in killed {
            assert_eq!(state(&*open(&path).expect("opens").store).expect("readable"), before);
            compact(&path).expect("begun again");
            assert!(!unfinished(&path).exists());
            assert_eq!(state(&*open(&path).expect("opens").store).expect("readable"), before);
        }
    }
}

#[test]
fn a_compaction_that_is_refused_or_ended_changes_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = with_space(&directory, BlockHome::Database);
    let files = || fs::read_dir(directory.path()).expect("listed").flatten().map(|entry| entry.file_name());
    let before = (fs::read(&path).expect("read"), files().count());
    let held = open(&path).expect("opened");
    assert_eq!(compact(&path).expect_err("somebody has it").kind(), ErrorKind::Locked);
    drop(held);
    let stop = Stop::default();
    stop.now();
    sqlite::compact(&path, &stop, &mut |_| {}).expect_err("ended before it began");
    let stop = Stop::default();
    let mut late = |progress: Progress| {
        if progress.step == "writing rows" {
            stop.now();
        }
    };
    sqlite::compact(&path, &stop, &mut late).expect_err("ended while it wrote");
    assert!(before == (fs::read(&path).expect("read"), files().count()));
    // What another program put there stays.
    fs::write(unfinished(&path), "mine").expect("written");
    let error = compact(&path).expect_err("in the way").to_string();
    assert!(error.contains("is not what a compaction left") && error.contains("move the file away"), "{error}");
    assert_eq!(fs::read(unfinished(&path)).expect("there"), b"mine");
    fs::remove_file(unfinished(&path)).expect("removed");
    rusqlite::Connection::open(&path)
        .and_then(|connection| connection.execute_batch("UPDATE fileatt SET uid = uid + 1"))
        .expect("edited");
    assert_eq!(compact(&path).expect_err("damaged").kind(), ErrorKind::Corrupt);
}
