//! Rows with one wrong column: no content is lost that a digest or the blocks prove, and none is
//! salvaged that nothing proves.
//!
//! One of five values is tried of a volume in one file, whose rows are the same, another one in
//! each column; all of them by `make soak` (WEFT_SOAK=factor).

use crate::check::{database, look, sample_volume};
use crate::contract::HOMES;
use crate::salvage::{Contents, contents, edit, salvaged};
use crate::sample::{CLONE, DIRECTORY, LARGE, ORPHAN, SMALL, SUBDIRECTORY, SYMLINK};
use std::fs;
use std::path::Path;
use weft_store::sqlite::open;
use weft_store::*;

/// The columns of `fileatt` but its key.
fn columns(database: &Path) -> Vec<String> {
    let connection = rusqlite::Connection::open(database).expect("opened");
    let columns = "SELECT name FROM pragma_table_info('fileatt') WHERE name <> 'ino'";
    let mut statement = connection.prepare(columns).expect("prepared");
    let names = statement.query_map((), |row| row.get(0)).expect("asked");
    names.collect::<rusqlite::Result<_>>().expect("read")
}

/// Has `test` look at the sample with each column of some rows wrong in several ways, and at what
/// changed: the inode and the column.
fn each_wrong_column(home: BlockHome, test: impl Fn(&Path, &Contents, u64, &str, &str)) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = sample_volume(&directory, home);
    let before = contents(&*open(&path).expect("opens").store);
    let columns = columns(&database(&path));
    assert_eq!(columns.len(), 19, "{columns:?}");
    let pristine = fs::read(database(&path)).expect("read");
    let tries_all = home == BlockHome::Segments || std::env::var_os("WEFT_SOAK").is_some();
    let mut tried = 0;
    for (which, ino) in [SMALL, SYMLINK, DIRECTORY, LARGE, ORPHAN].into_iter().enumerate() {
        for (at, column) in columns.iter().enumerate() {
            let values = ["0", "NULL", &format!("{column} + 1"), "9223372036854775807", "x'68656c6c70'"];
            let one = (which + at) % values.len();
            for value in if tries_all { &values[..] } else { &values[one..=one] } {
                fs::write(database(&path), &pristine).expect("restored");
                let connection = rusqlite::Connection::open(database(&path)).expect("opened");
                let damage =
                    format!("UPDATE fileatt SET {column} = {value} WHERE ino = {ino} AND {column} IS NOT {value}");
                // Some columns may not be NULL, and some are what they are set to.
                let changed = connection.execute(&damage, ()).unwrap_or(0);
                connection.close().expect("closed");
                if changed > 0 {
                    test(&path, &before, ino, column, &damage);
                    tried += 1;
                }
            }
        }
    }
    let least = if tries_all { 250 } else { 50 };
    assert!(tried > least, "{tried} damages");
}

/// Returns the contents that must be there after `column` of `ino` was damaged.
fn expected(before: &Contents, ino: u64, column: &str) -> Contents {
    let mut expected = before.clone();
    if column == "inline" && [SMALL, SYMLINK].contains(&ino) {
        // Nothing proves what is there now.
        expected.remove(&ino);
    }
    expected
}

/// Content that is expected is there; that which nothing proves is not.
fn each_is_there(after: &Contents, expected: &Contents, what: &str) {
    for ino in [1, DIRECTORY, SUBDIRECTORY, SMALL, LARGE, CLONE, SYMLINK, ORPHAN] {
        assert!(after.get(&ino) == expected.get(&ino), "{what}: inode {ino}");
    }
}

#[test]
fn a_salvage_brings_all_content_that_is_proved_whatever_column_of_a_row_is_wrong() {
    for home in HOMES {
        each_wrong_column(home, |path, before, ino, column, damage| {
            let new = path.with_extension("new");
            let told = salvaged(path, &new).expect("brought");
            let after = contents(&*open(&new).expect("opens").store);
            let expected = expected(before, ino, column);
            each_is_there(&after, &expected, damage);
            let is_inlined = [SMALL, SYMLINK].contains(&ino);
            if is_inlined && expected.contains_key(&ino) && !column.starts_with("digest") {
                let [missing] = &told.missing[..] else { panic!("{damage}: {:?}", told.missing) };
                assert!(missing.why.contains("a digest proves its content"), "{damage}: {missing:?}");
                let row = open(&new).expect("opens").store.inodes(Ino(ino), 1).expect("readable").remove(0);
                let permissions = if ino == SYMLINK { 0o777 } else { 0o600 };
                assert_eq!((row.permissions, row.uid, row.gid), (permissions, 0, 0), "{damage}");
            }
            let left = look(&new, Repair::No);
            assert!(left.iter().all(|finding| finding.outcome == Outcome::Note), "{damage}: {left:?}");
            fs::remove_dir_all(&new).or_else(|_| fs::remove_file(&new)).expect("removed");
        });
    }
}

#[test]
fn what_is_given_up_of_a_row_with_a_wrong_column_is_no_content_that_is_proved() {
    for home in HOMES {
        each_wrong_column(home, |path, before, ino, column, damage| {
            let told = look(path, Repair::Discard);
            let after = contents(&*open(path).expect("opens").store);
            let expected = expected(before, ino, column);
            each_is_there(&after, &expected, &format!("{damage}: {told:?}"));
            let left = look(path, Repair::No);
            assert!(left.iter().all(|finding| finding.outcome == Outcome::Note), "{damage}: {left:?}");
        });
    }
}

/// The hash of an entry proves the content where the row's digest is damaged too.
#[test]
fn an_entry_proves_the_content_of_a_row_that_is_damaged_with_its_digest() {
    for home in HOMES {
        for is_proved in [true, false] {
            let directory = tempfile::tempdir().expect("a directory");
            let (path, new) = (sample_volume(&directory, home), directory.path().join("new"));
            edit(&path, "UPDATE fileatt SET mtime = 7, digest_sum = 0 WHERE ino IN (22, 25)");
            if !is_proved {
                edit(&path, "UPDATE naming SET digest_sum = 0 WHERE ino IN (22, 25)");
            }
            salvaged(&path, &new).expect("brought");
            look(&path, Repair::Discard);
            for volume in [&new, &path] {
                let after = contents(&*open(volume).expect("opens").store);
                assert_eq!([SMALL, SYMLINK].map(|ino| after.contains_key(&ino)), [is_proved; 2]);
            }
        }
    }
}
