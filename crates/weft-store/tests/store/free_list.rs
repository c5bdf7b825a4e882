//! The effects of a wrong byte in SQLite's list of free pages.

use crate::check::{database, look, sample_volume};
use crate::compare::{State, state};
use crate::contract::HOMES;
use crate::crash::wal;
use crate::sample::SMALL;
use std::fs;
use std::path::{Path, PathBuf};
use weft_store::log::Loss;
use weft_store::sqlite::{open, open_to_read, scrub};
use weft_store::*;

const PAGE: usize = 4096;

/// Gives the small file of the sample attributes of many pages, or takes them.
fn attributes(store: &dyn Store, value: Option<Vec<u8>>) {
    let header = store.header().expect("readable");
    let mut batch = Batch { commit: header.commit.next(), counters: header.counters, ..Batch::default() };
    for number in 0..4 {
        let name = Name::of_xattr(format!("user.{number}").as_bytes()).expect("a valid name");
        batch.xattrs.push(XattrChange { ino: Ino(SMALL), name, value: value.clone() });
    }
    let row = store.inodes(Ino(SMALL), 1).expect("readable").remove(0);
    let xattrs = if value.is_some() { 4 } else { 0 };
    batch.inodes.push(InodeChange::Put(InodeRow { xattrs, ..row }));
    store.apply(&batch, Durability::Durable).expect("applied");
}

/// The sample, closed, in a database with free pages.
fn volume(directory: &tempfile::TempDir, home: BlockHome) -> (PathBuf, State) {
    let path = sample_volume(directory, home);
    let store = open(&path).expect("opened").store;
    attributes(&*store, Some(vec![7; 60_000]));
    attributes(&*store, None);
    let state = state(&*store).expect("readable");
    store.close().expect("closed");
    (path, state)
}

fn word(bytes: &[u8], at: usize) -> usize {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes")) as usize
}

/// Returns the offset of the first page of the list, which has more entries than one.
fn trunk(bytes: &[u8]) -> usize {
    let at = (word(bytes, 32) - 1) * PAGE;
    assert!(word(bytes, at + 4) > 8, "{} free pages", word(bytes, 36));
    at
}

/// Has an entry of the list name the root of the inodes.
fn name_a_page_in_use(path: &Path) {
    let connection = rusqlite::Connection::open_with_flags(
        format!("file:{}?immutable=1", database(path).display()),
        rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY | rusqlite::OpenFlags::SQLITE_OPEN_URI,
    )
    .expect("opened");
    let root = "SELECT rootpage FROM sqlite_schema WHERE name = 'fileatt'";
    let root: u32 = connection.query_row(root, (), |row| row.get(0)).expect("a table");
    let mut bytes = fs::read(database(path)).expect("read");
    let at = trunk(&bytes) + 8 + 4 * 5;
    bytes[at..at + 4].copy_from_slice(&root.to_be_bytes());
    fs::write(database(path), bytes).expect("written");
}

/// Commits something that takes pages.
fn commit(path: &Path) -> Result<()> {
    let store = open(path)?.store;
    let header = store.header()?;
    let name = Name::of_xattr(b"user.new").expect("a valid name");
    let change = XattrChange { ino: Ino(SMALL), name, value: Some(vec![1; 60_000]) };
    let batch =
        Batch { commit: header.commit.next(), counters: header.counters, xattrs: vec![change], ..Batch::default() };
    store.apply(&batch, Durability::Durable).map(drop)
}

/// The volume is not written, can be read, and is whole after a repair.
fn is_refused_and_repaired(path: &Path, expected: &State) {
    let before = fs::read(database(path)).expect("read");
    let refused = commit(path).expect_err("pages in use would be written over");
    assert_eq!(refused.kind(), ErrorKind::Corrupt);
    assert!(refused.to_string().contains("'weft check --repair VOLUME'"), "{refused}");
    assert!(fs::read(database(path)).expect("read") == before, "nothing is changed");
    let store = open_to_read(path, Loss::Refuse).expect("opens").store;
    assert_eq!(&state(&*store).expect("readable"), expected);
    drop(store);
    // An orphan of the sample is noted, which is no damage.
    let look = |repair| {
        let mut found = look(path, repair);
        found.retain(|finding| finding.outcome != Outcome::Note);
        found
    };
    let found = look(Repair::No);
    assert!(found.iter().any(|finding| finding.what.contains("list of free pages")), "{found:?}");
    assert!(found.iter().all(|finding| finding.outcome == Outcome::Damaged), "{found:?}");
    let repaired = look(Repair::Yes);
    assert!(repaired.iter().all(|finding| finding.outcome == Outcome::Repaired), "{repaired:?}");
    assert_eq!(look(Repair::No), [], "{repaired:?}");
    let store = open(path).expect("opens").store;
    assert_eq!(&state(&*store).expect("readable"), expected);
    drop(store);
    commit(path).expect("it can be written again");
}

#[test]
fn a_list_of_free_pages_that_names_a_page_in_use_is_refused_and_rebuilt() {
    for home in HOMES {
        let directory = tempfile::tempdir().expect("a directory");
        let (path, expected) = volume(&directory, home);
        name_a_page_in_use(&path);
        let other = PathBuf::from(format!("{}-inspected", database(&path).display()));
        fs::write(&other, "another volume").expect("written");
        let names = || fs::read_dir(database(&path).parent().expect("has one")).expect("listed").count();
        let before = names();
        is_refused_and_repaired(&path, &expected);
        assert_eq!(fs::read(&other).expect("there"), b"another volume");
        // The log and its index may come, or go.
        assert!(names() <= before + 2, "nothing else is left");
    }
}

#[test]
fn no_byte_of_the_list_of_free_pages_changes_in_silence() {
    let directory = tempfile::tempdir().expect("a directory");
    let (path, expected) = volume(&directory, BlockHome::Segments);
    let whole = fs::read(database(&path)).expect("read");
    let trunk = trunk(&whole);
    let of_trunk = (0..8 + 4 * word(&whole, trunk + 4)).map(|at| trunk + at);
    let refused = |at: usize, by: u8| {
        let mut bytes = whole.clone();
        bytes[at] ^= by;
        fs::write(database(&path), bytes).expect("written");
        // It may find the damage before.
        let Ok(volume) = open(&path) else { return true };
        volume.store.begin(Durability::Durable).is_err()
    };
    for (n, at) in (32..40).chain(of_trunk).enumerate() {
        assert!(refused(at, [1, 0x10, 0xff][n % 3]), "byte {at}");
    }
    // A seal that is damaged itself, or the count of changes: nothing is known, and nothing lost.
    for at in [24, 27, 72, 75] {
        assert!(!refused(at, 1), "byte {at}");
    }
    fs::write(database(&path), &whole).expect("written");
    assert_eq!(state(&*open(&path).expect("opens").store).expect("readable"), expected);
}

#[test]
fn a_list_that_rots_after_a_crash_is_refused_too() {
    for home in HOMES {
        let directory = tempfile::tempdir().expect("a directory");
        let (path, _) = volume(&directory, home);
        let store = open(&path).expect("opened").store;
        // The first commit is copied into the database, the others wait in the log.
        attributes(&*store, Some(vec![8; 20_000]));
        attributes(&*store, Some(vec![9; 10]));
        let expected = state(&*store).expect("readable");
        let killed = directory.path().join("killed");
        crate::crash::copy(&path, &killed);
        assert!(fs::metadata(wal(&killed)).expect("there").len() > 0);
        commit(&killed).expect("a crash alone is no damage");
        fs::remove_file(wal(&killed)).ok();
        crate::crash::copy(&path, &killed);
        name_a_page_in_use(&killed);
        let refused = commit(&killed).expect_err("pages in use would be written over");
        assert!(refused.to_string().contains("list of free pages"), "{refused}");
        look(&killed, Repair::Yes);
        assert_eq!(state(&*open(&killed).expect("opens").store).expect("readable"), expected);
        commit(&killed).expect("it can be written again");
    }
}

#[test]
fn a_list_that_others_changed_by_sqlite_is_believed() {
    let directory = tempfile::tempdir().expect("a directory");
    let (path, expected) = volume(&directory, BlockHome::Segments);
    let connection = rusqlite::Connection::open(database(&path)).expect("opened");
    connection.execute_batch("CREATE TABLE t AS SELECT zeroblob(9000); DROP TABLE t; VACUUM").expect("changed");
    drop(connection);
    commit(&path).expect("written");
    assert_ne!(state(&*open(&path).expect("opens").store).expect("readable"), expected);
}

#[test]
fn a_scrub_tells_of_a_damaged_list_of_free_pages_mounted_or_not() {
    for home in HOMES {
        let directory = tempfile::tempdir().expect("a directory");
        let (path, _) = volume(&directory, home);
        let told = || scrub(&path, &mut |_| {}).expect("scrubbed");
        assert_eq!(told(), []);
        name_a_page_in_use(&path);
        let is_told = |found: Vec<Finding>| {
            found.iter().any(|f| f.what.contains("the list of free pages in") && f.what.contains("--repair VOLUME"))
        };
        assert!(is_told(told()));
        let store = open(&path).expect("it is read").store;
        assert!(is_told(told()));
        drop(store);
    }
}

/// Loses the list of free pages of the volume at `path`, as a disk may: nothing leads to its pages.
fn lose_the_list(path: &Path) {
    let mut bytes = fs::read(database(path)).expect("read");
    // The list and its length, and the seal.
    bytes[32..40].fill(0);
    bytes[72..92].fill(0);
    fs::write(database(path), bytes).expect("written");
}

/// SQLite itself does not count pages if a view or a virtual table is the first of its tables, as
/// the hashes of their names go.
#[test]
fn pages_that_nothing_leads_to_are_told_whatever_the_first_table_is() {
    let directory = tempfile::tempdir().expect("a directory");
    let (whole, _) = volume(&directory, BlockHome::Segments);
    let letters = ('a'..='z').flat_map(|letter| [format!("{letter}"), format!("{letter}{letter}")]);
    let views = letters.map(|name| format!("CREATE VIEW {name} AS SELECT 1"));
    let of_fts = ["s", "t", "u"].map(|name| format!("CREATE VIRTUAL TABLE {name} USING fts5(text)"));
    let mut hidden = 0;
    for (number, made) in views.chain(of_fts).enumerate() {
        let path = directory.path().join(number.to_string());
        crate::crash::copy(&whole, &path);
        let connection = rusqlite::Connection::open(database(&path)).expect("opened");
        connection.execute_batch(&made).expect("made");
        drop(connection);
        let is_told = |found: &[Finding]| found.iter().any(|finding| finding.what.contains("nothing leads to some"));
        let found = look(&path, Repair::No);
        assert!(!is_told(&found), "{made}: {found:?}");
        lose_the_list(&path);
        let connection = rusqlite::Connection::open(database(&path)).expect("opened");
        let said: String = connection.query_row("PRAGMA integrity_check", (), |row| row.get(0)).expect("asked");
        drop(connection);
        hidden += usize::from(said == "ok");
        let found = look(&path, Repair::Yes);
        assert!(is_told(&found), "{made}: {said}, {found:?}");
        assert!(found.iter().all(|finding| finding.outcome != Outcome::Repaired), "{made}: {found:?}");
    }
    assert!(hidden > 0, "SQLite counted the pages each time, so that this test shows nothing");
}
