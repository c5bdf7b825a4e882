//! Rows that are not as a commit wrote them: told as damage, never served, never made right by what
//! follows.

use crate::check::{database, look, sample_volume};
use crate::contract::{HOMES, options};
use crate::sample::{self, DIRECTORY, LARGE, SMALL, SUBDIRECTORY, SYMLINK};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use weft_store::sqlite::{check, convert, open};
use weft_store::*;
use weft_store::{OpenOptions, postgres};
use weft_testkit::Cluster;

pub type Answers = BTreeMap<String, Result<String>>;

/// Returns the answers of `store` about each thing in the sample, each asked for alone.
pub fn answers(store: &dyn Store) -> Answers {
    let mut answers = Answers::new();
    let mut put = |what: String, answer: Result<String>| drop(answers.insert(what, answer));
    for ino in (1..40).map(Ino) {
        let row = store.inodes(ino, 1).map(|rows| rows.into_iter().filter(|row| row.ino == ino).collect::<Vec<_>>());
        put(format!("inode {}", ino.0), row.map(|row| format!("{row:?}")));
        put(format!("attributes of {}", ino.0), store.xattrs(ino).map(|xattrs| format!("{xattrs:?}")));
        let listed = store.names(ino, Cookie(0), 100);
        put(format!("names in {}", ino.0), listed.map(|names| format!("{names:?}")));
        let read = store.extents(ino, 0..u64::MAX).and_then(|extents| {
            let bytes = |(span, block): &(Span, BlockRef)| {
                let bytes = store.read_block(block, ReadMode::Blocking)?.expect("waited for");
                Ok(format!("{span:?}: {:?}", weft_digest::digest(&bytes)))
            };
            extents.iter().map(bytes).collect::<Result<Vec<_>>>()
        });
        put(format!("content of {}", ino.0), read.map(|read| read.join(", ")));
    }
    for (parent, name) in [(1, &b"dir"[..]), (1, b"symlink"), (1, b"second name"), (DIRECTORY, b"large")] {
        let found = store.name(Ino(parent), &Name::new(name).expect("valid"));
        put(format!("name {name:?}"), found.map(|row| format!("{row:?}")));
    }
    put("orphans".into(), store.orphans().map(|orphans| format!("{orphans:?}")));
    answers
}

/// Writes the changes of an access of the directory, and so the digests above it, if its row can be
/// read.
fn touch(store: &dyn Store) -> Result<()> {
    let header = store.header()?;
    let mut row = store.inodes(Ino(DIRECTORY), 1)?.remove(0);
    row.atime = Timestamp(row.atime.0 + 1);
    let batch = Batch {
        commit: header.commit.next(),
        counters: header.counters,
        inodes: vec![InodeChange::Put(row)],
        ..Batch::default()
    };
    store.apply(&batch, Durability::Durable).map(drop)
}

/// Asserts that each answer now is the answer before or an error of corruption; an orphan less is
/// one that stays.
fn compare(before: &Answers, after: &Answers, what: &str) {
    for (asked, answer) in after {
        match (answer, &before[asked]) {
            (Ok(now), Ok(then)) if now == then => {}
            (Ok(now), _) if asked == "orphans" && now == "[]" => {}
            (Err(error), _) if error.kind() == ErrorKind::Corrupt => {}
            (answer, then) => panic!("{what}: {asked}: {answer:?}, before {then:?}"),
        }
    }
}

/// A column of a row, by what finds the row.
struct Cell {
    table: String,
    column: String,
    which: String,
    /// Its value, as SQL.
    value: String,
}

/// All columns of all rows but those of keys, which say which row it is.
fn cells(path: &Path) -> Vec<Cell> {
    let connection = rusqlite::Connection::open(database(path)).expect("opened");
    let list = |query: &str| -> Vec<String> {
        let mut statement = connection.prepare(query).expect("prepared");
        statement.query_map((), |row| row.get(0)).and_then(Iterator::collect).expect("listed")
    };
    let mut cells = Vec::new();
    for table in ["volume", "commits", "fileatt", "naming", "extents", "blocks", "xattr", "segments"] {
        let keys = list(&format!("SELECT name FROM pragma_table_info('{table}') WHERE pk > 0"));
        let which = keys.iter().map(|key| format!("'{key} = ' || quote({key})")).collect::<Vec<_>>();
        let rows = list(&format!("SELECT {} FROM {table}", which.join(" || ' AND ' || ")));
        for column in list(&format!("SELECT name FROM pragma_table_info('{table}') WHERE pk = 0")) {
            for which in &rows {
                let value = list(&format!("SELECT quote({column}) FROM {table} WHERE {which}")).remove(0);
                cells.push(Cell { table: table.into(), column: column.clone(), which: which.clone(), value });
            }
        }
    }
    cells
}

/// Columns that follow from others, and are made right where those change.
fn follows(cell: &Cell) -> bool {
    cell.column.starts_with("digest") || cell.column == "parts"
}

/// One of so many is tried as takes seconds; `make soak` (WEFT_SOAK=factor) tries so many times
/// more.
pub fn usual(step: usize) -> usize {
    let soak = std::env::var("WEFT_SOAK").ok().and_then(|factor| factor.parse().ok()).unwrap_or(1);
    (step / soak).max(1)
}

#[test]
fn a_column_that_no_commit_wrote_is_never_served_and_stays_damage() {
    for home in HOMES {
        let directory = tempfile::tempdir().expect("a directory");
        let path = sample_volume(&directory, home);
        let before = answers(&*open(&path).expect("opened").store);
        let pristine = fs::read(database(&path)).expect("read");
        let values = |cell: &Cell| {
            let near = ["0", "NULL", "9223372036854775807"].map(str::to_owned);
            near.into_iter().chain(["+ 1", "- 1"].map(|change| format!("{} {change}", cell.column))).collect::<Vec<_>>()
        };
        let all = cells(&path).into_iter().flat_map(|cell| {
            values(&cell)
                .into_iter()
                .map(move |to| (cell.table.clone(), to, cell.column.clone(), cell.which.clone(), cell.value.clone()))
                .collect::<Vec<_>>()
        });
        let all = all.collect::<Vec<_>>();
        for (table, to, column, which, value) in all.into_iter().step_by(usual(17)) {
            fs::write(database(&path), &pristine).expect("restored");
            let cell = Cell { table, column, which, value };
            let connection = rusqlite::Connection::open(database(&path)).expect("opened");
            let Cell { table, column, which, .. } = &cell;
            let set = format!("UPDATE OR IGNORE {table} SET {column} = {to} WHERE {which} AND {column} IS NOT ({to})");
            let changed = connection.execute(&set, ()).unwrap_or(0);
            connection.close().expect("closed");
            if changed == 0 {
                continue;
            }
            let what = format!("{table}.{column} = {to} where {which}");
            match open(&path) {
                Ok(volume) => {
                    compare(&before, &answers(&*volume.store), &what);
                    if let Err(error) = touch(&*volume.store) {
                        assert_eq!(error.kind(), ErrorKind::Corrupt, "{what}: {error}");
                    }
                }
                Err(error) => {
                    assert!(table == "volume" && error.kind() == ErrorKind::Corrupt, "{what}: {error}");
                }
            }
            if !follows(&cell) {
                let found = look(&path, Repair::No);
                assert!(found.iter().any(|finding| finding.outcome == Outcome::Damaged), "{what}: made right");
            }
        }
    }
}

#[test]
fn a_damaged_row_is_named_and_stays_until_it_is_given_up() {
    let path_of_small = "/second name";
    let cases = [
        (format!("UPDATE fileatt SET nlink = 0 WHERE ino = {SMALL}"), format!("{path_of_small}: its row is damaged")),
        (format!("UPDATE fileatt SET inline = x'68656c6c70' WHERE ino = {SMALL}"), format!("{path_of_small}: its row")),
        (
            format!("UPDATE naming SET ino = {LARGE} WHERE ino = {SYMLINK}"),
            "/symlink: the entry's row is damaged".into(),
        ),
        (
            format!("UPDATE extents SET block = 2 WHERE ino = {LARGE} AND start = 0"),
            "/dir/large: the row of its block at byte 0".into(),
        ),
        ("UPDATE blocks SET refs = 1 WHERE id = 2".into(), "block 2 has a damaged row".into()),
        (format!("UPDATE xattr SET value = x'00' WHERE ino = {LARGE}"), "/dir/large: the row of its attribute".into()),
        ("UPDATE commits SET time = time + 1 WHERE number = 1".into(), "the row of commit 1 is damaged".into()),
    ];
    for home in HOMES {
        let directory = tempfile::tempdir().expect("a directory");
        let path = sample_volume(&directory, home);
        let pristine = fs::read(database(&path)).expect("read");
        for (damage, told) in &cases {
            fs::write(database(&path), &pristine).expect("restored");
            let connection = rusqlite::Connection::open(database(&path)).expect("opened");
            assert_eq!(connection.execute(damage, ()).expect("edited"), 1);
            connection.close().expect("closed");
            let is_told = |findings: &[Finding], outcome| {
                findings.iter().any(|finding| finding.outcome == outcome && finding.to_string().contains(told))
            };
            for repair in [Repair::No, Repair::Yes, Repair::Yes] {
                let found = look(&path, repair);
                assert!(is_told(&found, Outcome::Damaged), "{damage}: {found:?}");
                assert!(found.iter().all(|finding| finding.outcome != Outcome::Repaired), "{damage}: {found:?}");
            }
            let new = directory.path().join("new");
            let other = if home == BlockHome::Segments { BlockHome::Database } else { BlockHome::Segments };
            assert_eq!(convert(&path, &new, other, &mut |_| {}).expect_err("refused").kind(), ErrorKind::Corrupt);
            let found = look(&path, Repair::Discard);
            assert!(is_told(&found, Outcome::Repaired), "{damage}: {found:?}");
            let left = look(&path, Repair::No);
            assert!(
                left.iter().all(|finding| finding.outcome != Outcome::Damaged || finding.what.contains("has no row")),
                "{damage}: {left:?}"
            );
        }
    }
}

#[test]
fn a_mount_removes_nothing_for_a_damaged_row() {
    for home in HOMES {
        let directory = tempfile::tempdir().expect("a directory");
        let path = sample_volume(&directory, home);
        let connection = rusqlite::Connection::open(database(&path)).expect("opened");
        let damage = format!(
            "UPDATE fileatt SET nlink = 0 WHERE ino = {LARGE}; UPDATE blocks SET refs = 1 WHERE id = 2; \
             UPDATE extents SET block = 3 WHERE ino = {LARGE} AND start = 0"
        );
        connection.execute_batch(&damage).expect("edited");
        connection.close().expect("closed");
        let store = open(&path).expect("opened").store;
        assert_eq!(store.orphans().expect("readable"), [Ino(sample::ORPHAN)]);
        let header = store.header().expect("readable");
        let mut batch = Batch { commit: header.commit.next(), counters: header.counters, ..Batch::default() };
        batch.extents.push(ExtentChange::Clear { ino: Ino(sample::CLONE), range: 0..u64::MAX });
        batch.extents.push(ExtentChange::Clear { ino: Ino(LARGE), range: 0..1 });
        store.apply(&batch, Durability::Durable).expect("applied");
        drop(store);
        let connection = rusqlite::Connection::open(database(&path)).expect("opened");
        let there = |query: &str| connection.query_row(query, (), |row| row.get::<_, i64>(0)).expect("counted");
        assert_eq!(there("SELECT count(*) FROM blocks WHERE id IN (1, 2, 3)"), 3);
        assert_eq!(there("SELECT refs FROM blocks WHERE id = 3"), 1, "what the damaged extent named");
    }
}

#[test]
fn rows_in_postgresql_that_no_commit_wrote_are_damage() {
    let cluster = Cluster::shared();
    let address = cluster.address();
    postgres::create(&address, &options(BlockHome::Database), (0, 0), Timestamp(0)).expect("made");
    let open = || postgres::open(&address, OpenOptions::default());
    sample::fill(&*open().expect("opens"));
    let schema = address.schema().to_owned();
    let before = answers(&*open().expect("opens"));
    let cases = [
        ("fileatt", "nlink", "0", format!("ino = {SMALL}"), "/second name: its row is damaged"),
        ("fileatt", "inline", "'\\x68656c6c70'", format!("ino = {SMALL}"), "/second name: its row is damaged"),
        ("fileatt", "uid", "uid + 1", format!("ino = {LARGE}"), "/dir/large: its row is damaged"),
        ("naming", "ino", "23", format!("ino = {SYMLINK}"), "/symlink: the entry's row is damaged"),
        (
            "extents",
            "block",
            "block + 1",
            format!("ino = {LARGE} AND start = 0"),
            "/dir/large: the row of its block at byte 0",
        ),
        ("blocks", "refs", "refs - 1", "id = 2".into(), "block 2 has a damaged row"),
        ("xattr", "value", "'\\x00'", format!("ino = {LARGE}"), "/dir/large: the row of its attribute"),
        ("commits", "time", "time + 1", "number = 1".into(), "the row of commit 1 is damaged"),
    ];
    for (table, column, to, which, told) in cases {
        let saved = format!("SET search_path TO {schema}; CREATE TABLE saved AS SELECT * FROM {table}");
        cluster.run(&format!("{saved}; UPDATE {table} SET {column} = {to} WHERE {which}"));
        compare(&before, &answers(&*open().expect("opens")), told);
        let options = CheckOptions { repair: Repair::Yes, read_data: false };
        let found = postgres::check(&address, options, &mut |_| {}).expect("checked");
        let is_told = |finding: &Finding| finding.outcome == Outcome::Damaged && finding.to_string().contains(told);
        assert!(found.iter().any(is_told), "{told}: {found:?}");
        assert!(found.iter().all(|finding| finding.outcome != Outcome::Repaired), "{told}: {found:?}");
        let restore = format!("DELETE FROM {table}; INSERT INTO {table} SELECT * FROM saved; DROP TABLE saved");
        cluster.run(&format!("SET search_path TO {schema}; {restore}"));
    }
    let options = CheckOptions { repair: Repair::No, read_data: true };
    let found = postgres::check(&address, options, &mut |_| {}).expect("checked");
    assert!(found.iter().all(|finding| finding.outcome == Outcome::Note), "{found:?}");
    cluster.run(&format!("UPDATE {schema}.volume SET bytes_max = 1"));
    assert_eq!(open().map(drop).expect_err("refused").kind(), ErrorKind::Corrupt);
}

/// A check of what is in order, so that the tests here do not pass for nothing.
#[test]
fn what_commits_wrote_has_the_sums_it_should() {
    for home in HOMES {
        let directory = tempfile::tempdir().expect("a directory");
        let path = sample_volume(&directory, home);
        touch(&*open(&path).expect("opened").store).expect("written");
        let found = check(&path, CheckOptions { repair: Repair::No, read_data: true }, &mut |_| {}).expect("checked");
        assert!(found.iter().all(|finding| finding.outcome == Outcome::Note), "{found:?}");
    }
}

/// A function that edits rows of a volume, and one that opens the volume.
type Volume<'a> = (&'a dyn Fn(&str), &'a dyn Fn() -> std::sync::Arc<dyn Store>);

fn rows_that_are_gone_are_told((edit, open): Volume<'_>) {
    let blocks = || open().refuse_missing_blocks(Ino(LARGE)).map_err(|error| error.kind());
    let names = |ino| open().refuse_missing_names(Ino(ino)).map_err(|error| error.kind());
    assert_eq!(blocks(), Ok(()), "holes are holes");
    edit("DELETE FROM extents WHERE ino = 23 AND start = 0");
    assert_eq!(blocks(), Err(ErrorKind::Corrupt), "what is a hole, nobody knows");
    assert_eq!((names(DIRECTORY), names(1), names(SUBDIRECTORY)), (Ok(()), Ok(()), Ok(())));
    edit("DELETE FROM naming WHERE parent = 20 AND ino = 24");
    assert_eq!((names(DIRECTORY), names(1)), (Err(ErrorKind::Corrupt), Ok(())));
    edit("DELETE FROM naming WHERE parent = 21");
    assert_eq!(names(SUBDIRECTORY), Err(ErrorKind::Corrupt), "none is left");
}

#[test]
fn rows_that_are_gone_are_told_from_holes_and_from_names_that_never_were() {
    for home in HOMES {
        let directory = tempfile::tempdir().expect("a directory");
        let path = sample_volume(&directory, home);
        let edit = |statements: &str| {
            let connection = rusqlite::Connection::open(database(&path)).expect("opened");
            connection.execute_batch(statements).expect("edited");
        };
        rows_that_are_gone_are_told((&edit, &|| open(&path).expect("opened").store));
    }
}

#[test]
fn a_file_of_which_rows_are_gone_stays_damage_until_it_is_given_up() {
    for home in HOMES {
        let directory = tempfile::tempdir().expect("a directory");
        let path = sample_volume(&directory, home);
        let connection = rusqlite::Connection::open(database(&path)).expect("opened");
        connection.execute_batch("DELETE FROM extents WHERE ino = 23 AND start = 0").expect("edited");
        drop(connection);
        let block = || open(&path).expect("opened").store.refuse_missing_blocks(Ino(LARGE)).map_err(|e| e.kind());
        let digest = || open(&path).expect("opened").store.digest(Ino(LARGE)).expect("readable");
        let before = digest();
        for (repair, outcome) in [
            (Repair::No, Outcome::Damaged),
            (Repair::Yes, Outcome::Damaged),
            (Repair::No, Outcome::Damaged),
            (Repair::Discard, Outcome::Repaired),
        ] {
            assert_eq!((block(), digest()), (Err(ErrorKind::Corrupt), before), "before {repair:?}");
            let found = look(&path, repair);
            let told = found.iter().find(|finding| finding.what.contains("rows of its blocks are gone"));
            assert_eq!(told.map(|told| told.outcome), Some(outcome), "{repair:?}: {found:?}");
        }
        assert_eq!(block(), Ok(()), "a hole now");
        assert_ne!(digest(), before);
        let left = look(&path, Repair::No);
        assert!(left.iter().all(|finding| finding.outcome == Outcome::Note), "{left:?}");
        let converted = directory.path().join("converted");
        assert!(convert(&path, &converted, crate::convert::other(home), &mut |_| {}).is_ok());
    }
}

#[test]
fn rows_that_are_gone_from_postgresql_are_told() {
    let cluster = Cluster::shared();
    for own_table_from in [None, Some(0)] {
        let address = cluster.address();
        let options = VolumeOptions { own_table_from, ..VolumeOptions::default() };
        postgres::create(&address, &options, (0, 0), Timestamp(0)).expect("created");
        let open =
            || -> std::sync::Arc<dyn Store> { postgres::open(&address, OpenOptions::default()).expect("opened") };
        sample::fill(&*open());
        let schema = address.schema().to_owned();
        let edit = |statement: &str| {
            cluster.run(&format!("SET search_path TO {schema}; {statement}"));
        };
        rows_that_are_gone_are_told((&edit, &open));
        postgres::remove(&address).expect("removed");
    }
}
