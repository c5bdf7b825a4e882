//! Volumes of the format before. Two were made by the program of that format (`tests/old-volumes`,
//! `tests/data`); others are made of new ones by `downgrade`, which takes away what this format
//! brought and gives them the tables that format 3 (4 in PostgreSQL) had.

use crate::check::{database, look, sample_volume};
use crate::compare::state;
use crate::contract::{HOMES, options};
use crate::sample::{self, SMALL};
use std::fs;
use std::path::{Path, PathBuf};
use weft_store::sqlite::{self, downgrade, open, upgrade};
use weft_store::*;
use weft_store::{OpenOptions, postgres};
use weft_testkit::Cluster;

fn refusal<T>(result: Result<T>) -> (ErrorKind, String) {
    let error = result.map(drop).expect_err("refused");
    (error.kind(), error.to_string())
}

pub fn run(path: &Path, mode: Upgrade) -> Result<Upgraded> {
    upgrade(path, mode, &mut |_| {})
}

#[test]
fn a_volume_of_the_format_before_is_the_same_after_an_upgrade() {
    for home in HOMES {
        let directory = tempfile::tempdir().expect("a directory");
        let path = sample_volume(&directory, home);
        let before = state(&*open(&path).expect("opened").store).expect("readable");
        downgrade(&path).expect("an old one");
        let (kind, text) = refusal(open(&path));
        assert!(kind == ErrorKind::Unusable && text.contains("format 3") && text.contains("weft upgrade"), "{text}");
        let old = fs::read(database(&path)).expect("read");
        let told = run(&path, Upgrade::DryRun).expect("told");
        assert_eq!((told.from, told.to), (3, FORMAT));
        assert!(fs::read(database(&path)).expect("read") == old, "nothing was to be changed");
        assert_eq!(run(&path, Upgrade::Now).expect("upgraded"), told);
        assert_eq!(state(&*open(&path).expect("opened").store).expect("readable"), before);
        assert_ne!(sqlite::header(&path).expect("readable").uuid, [0; 16]);
        let found = look(&path, Repair::No);
        assert!(found.iter().all(|finding| finding.outcome == Outcome::Note), "{found:?}");
        assert!(refusal(run(&path, Upgrade::Now)).1.contains("nothing to upgrade"));
    }
}

/// A database is not even opened to see its format while a file beside it may be a trap.
#[test]
fn an_upgrade_looks_at_the_files_before_it_opens_any() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = sample_volume(&directory, BlockHome::Database);
    let connection = rusqlite::Connection::open(&path).expect("opened");
    connection.execute_batch("PRAGMA user_version = 99").expect("set");
    connection.close().expect("closed");
    let journal = PathBuf::from(format!("{}-journal", path.display()));
    fs::write(&journal, "content").expect("written");
    for mode in [Upgrade::DryRun, Upgrade::Now] {
        let (kind, text) = refusal(run(&path, mode));
        assert!(kind == ErrorKind::Unusable && text.contains("is a rollback journal"), "{text}");
    }
    fs::remove_file(&journal).expect("removed");
    assert!(refusal(run(&path, Upgrade::Now)).1.contains("format 99"));
}

#[test]
fn an_upgraded_volume_has_the_tables_of_a_new_one() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = sample_volume(&directory, BlockHome::Database);
    let schema = || -> Vec<(String, String)> {
        let connection = rusqlite::Connection::open(&path).expect("opened");
        let mut statement = connection.prepare("SELECT name, sql FROM sqlite_schema ORDER BY name").expect("prepared");
        let rows =
            statement.query_map((), |row| Ok((row.get(0)?, row.get::<_, Option<String>>(1)?.unwrap_or_default())));
        rows.and_then(Iterator::collect).expect("listed")
    };
    let new = schema();
    downgrade(&path).expect("an old one");
    assert_ne!(schema(), new);
    run(&path, Upgrade::Now).expect("upgraded");
    assert_eq!(schema(), new);
}

#[test]
fn what_is_damaged_or_was_not_unmounted_cleanly_is_not_upgraded() {
    for home in HOMES {
        let directory = tempfile::tempdir().expect("a directory");
        let path = sample_volume(&directory, home);
        downgrade(&path).expect("an old one");
        let beside = || PathBuf::from(format!("{}-intent", path.display()));
        let log = if home == BlockHome::Segments { path.join("intent.log") } else { beside() };
        let mut record = b"WEFTLOG1".to_vec();
        // A checksum, the epoch of the sample, the first operation and the last, the length.
        [7, 0, 1, u64::MAX, 0].iter().for_each(|number: &u64| record.extend(number.to_le_bytes()));
        fs::write(&log, [vec![0; 4096], record].concat()).expect("written");
        assert!(refusal(run(&path, Upgrade::Now)).1.contains("not unmounted cleanly"));
        fs::remove_file(&log).expect("removed");
        let edit = |statement: &str| {
            let connection = rusqlite::Connection::open(database(&path)).expect("opened");
            connection.execute(statement, ()).expect("edited");
            connection.close().expect("closed");
        };
        let changes = [
            ("fileatt SET inline", "x'68656c6c70'", "x'68656c6c6f'"),
            // What names say is verified by the digests of their directories.
            ("naming SET name", "x'736d616c6d'", "x'736d616c6c'"),
        ];
        for (column, damage, before) in changes {
            let (inline, name) = (format!("ino = {SMALL}"), format!("ino = {SMALL} AND parent <> 1"));
            let of = if column.starts_with("naming") { name } else { inline };
            edit(&format!("UPDATE {column} = {damage} WHERE {of}"));
            assert_eq!(refusal(run(&path, Upgrade::Now)).0, ErrorKind::Corrupt, "{column}");
            assert!(refusal(open(&path)).1.contains("format 3"), "it is as it was");
            edit(&format!("UPDATE {column} = {before} WHERE {of}"));
        }
        edit("DELETE FROM extents WHERE ino = 23 AND idx = 0");
        assert_eq!(refusal(run(&path, Upgrade::Now)).0, ErrorKind::Corrupt, "blocks are gone");
    }
}

#[test]
fn a_volume_of_an_older_format_in_postgresql_is_the_same_after_an_upgrade() {
    for format in [4, 5, 6, 7] {
        let address = Cluster::shared().address();
        postgres::create(&address, &options(BlockHome::Database), (0, 0), Timestamp(0)).expect("made");
        let open = || postgres::open(&address, OpenOptions::default());
        sample::fill(&*open().expect("opens"));
        let before = state(&*open().expect("opens")).expect("readable");
        postgres::downgrade(&address, format).expect("an old one");
        let (kind, text) = refusal(open());
        let old = format!("format {format}");
        assert!(kind == ErrorKind::Unusable && text.contains(&old) && text.contains("weft upgrade"), "{text}");
        let told = postgres::upgrade(&address, Upgrade::DryRun, &mut |_| {}).expect("told");
        assert_eq!((told.from, told.to), (format, FORMAT));
        assert!(refusal(open()).1.contains(&old), "nothing was to be changed");
        assert_eq!(postgres::upgrade(&address, Upgrade::Now, &mut |_| {}).expect("upgraded"), told);
        assert_eq!(state(&*open().expect("opens")).expect("readable"), before);
        let options = CheckOptions { repair: Repair::No, read_data: true };
        let found = postgres::check(&address, options, &mut |_| {}).expect("checked");
        assert!(found.iter().all(|finding| finding.outcome == Outcome::Note), "{found:?}");
    }
}

/// Nothing tells what the rows in them are.
#[test]
fn a_volume_in_postgresql_with_rows_in_its_old_tables_of_history_is_not_upgraded() {
    let address = Cluster::shared().address();
    postgres::create(&address, &options(BlockHome::Database), (0, 0), Timestamp(0)).expect("made");
    postgres::downgrade(&address, 6).expect("an old one");
    let (cluster, schema) = (Cluster::shared(), address.schema());
    cluster.run(&format!("INSERT INTO {schema}.xattr_history VALUES (1, 'a', 1, 2, 'b')"));
    for mode in [Upgrade::DryRun, Upgrade::Now] {
        let (kind, text) = refusal(postgres::upgrade(&address, mode, &mut |_| {}));
        assert!(kind == ErrorKind::Unusable && text.contains("xattr_history"), "{text}");
    }
    cluster.run(&format!("DELETE FROM {schema}.xattr_history"));
    postgres::upgrade(&address, Upgrade::Now, &mut |_| {}).expect("upgraded");
}

/// Asserts that the content which `tests/old-volumes` put into the volumes of `tests/data` is
/// there.
pub fn has_what_the_old_program_wrote(store: &dyn Store) {
    let name = |parent, name: &str| {
        let row = store.name(parent, &Name::new(name.as_bytes()).expect("valid")).expect("readable");
        row.unwrap_or_else(|| panic!("{name}")).ino
    };
    let inode = |ino| store.inodes(ino, 1).expect("readable").remove(0);
    let small = inode(name(Ino::ROOT, "small"));
    assert_eq!(small.inline.as_deref(), Some(&b"content in a row\n"[..]));
    assert_eq!((small.permissions, small.nlink), (0o4750, 2));
    let attribute = (Name::of_xattr(b"user.attribute").expect("valid"), b"value".to_vec());
    assert_eq!(store.xattrs(small.ino).expect("readable"), [attribute]);
    let directory = name(Ino::ROOT, "directory");
    let blocks = inode(name(directory, "blocks"));
    assert_eq!((blocks.uid, blocks.gid, blocks.mtime.0), (1000, 1001, 1_582_979_696_789_000_000));
    let numbers = (1..=3000).map(|number| format!("{number}\n")).collect::<String>().into_bytes();
    for ino in [blocks.ino, name(name(directory, "below"), "clone")] {
        let extents = store.extents(ino, 0..u64::MAX).expect("readable");
        let read = |(_, block): &(Span, BlockRef)| {
            store.read_block(block, ReadMode::Blocking).expect("whole").expect("there").to_vec()
        };
        assert!(extents.iter().flat_map(read).eq(numbers.iter().copied()));
    }
    assert_eq!(store.extents(name(directory, "holes"), 0..u64::MAX).expect("readable")[0].0.start, 256 << 12);
    assert_eq!(inode(name(Ino::ROOT, "symbolic")).inline.as_deref(), Some(&b"directory/blocks"[..]));
    assert_eq!(inode(name(directory, "pipe")).kind, Kind::Fifo);
    assert_eq!(name(directory, "hard"), small.ino);
}

/// Asserts that the content which `tests/old-volumes` replaced is there as of a kept commit.
fn has_what_was_there_before(store: &dyn Store) {
    let (first, last) =
        (store.history().expect("readable").expect("kept").first, store.header().expect("readable").commit);
    let numbers = (3000..=5000).map(|number| format!("{number}\n")).collect::<String>().into_bytes();
    let name = |commit, parent, name: &str| {
        let name = Name::new(name.as_bytes()).expect("valid");
        store.name_at(commit, parent, &name).expect("readable").map(|row| row.ino)
    };
    let content = |commit| {
        let file = name(commit, name(commit, Ino::ROOT, "directory")?, "blocks")?;
        let extents = store.extents_at(commit, file, 0..u64::MAX).expect("readable");
        let read = |(_, block): &(Span, BlockRef)| store.read_block(block, ReadMode::Blocking).expect("whole");
        Some(extents.iter().flat_map(|extent| read(extent).expect("there").to_vec()).collect::<Vec<_>>())
    };
    let mut commits = (first.0..=last.0).map(CommitNo);
    assert!(commits.any(|commit| content(commit).as_ref() == Some(&numbers)));
}

#[test]
fn volumes_that_older_programs_made_are_upgraded_whole() {
    let tables = [
        (3, include_str!("../data/format-3.sql")),
        (5, include_str!("../data/format-5.sql")),
        (6, include_str!("../data/format-6.sql")),
        (7, include_str!("../data/format-7.sql")),
    ];
    for (from, tables) in tables {
        let (_directory, path) = load(tables);
        assert_eq!(run(&path, Upgrade::Now).expect("upgraded").from, from);
        let store = open(&path).expect("opens").store;
        has_what_the_old_program_wrote(&*store);
        if from >= 7 {
            has_what_was_there_before(&*store);
        }
        drop(store);
        let found = look(&path, Repair::No);
        assert!(found.iter().all(|finding| finding.outcome == Outcome::Note), "{found:?}");
    }
    let tables = [
        (4, include_str!("../data/format-4.sql")),
        (5, include_str!("../data/format-5-postgres.sql")),
        (6, include_str!("../data/format-6-postgres.sql")),
        (7, include_str!("../data/format-7-postgres.sql")),
    ];
    for (from, tables) in tables {
        let (address, _) = load_into_postgres(tables);
        assert_eq!(postgres::upgrade(&address, Upgrade::Now, &mut |_| {}).expect("upgraded").from, from);
        let store = postgres::open(&address, OpenOptions::default()).expect("opens");
        has_what_the_old_program_wrote(&*store);
        if from >= 7 {
            has_what_was_there_before(&*store);
        }
        drop(store);
        let options = CheckOptions { repair: Repair::No, read_data: true };
        let found = postgres::check(&address, options, &mut |_| {}).expect("checked");
        assert!(found.iter().all(|finding| finding.outcome == Outcome::Note), "{found:?}");
    }
}

fn load(tables: &str) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("volume");
    let connection = rusqlite::Connection::open(&path).expect("opened");
    connection.execute_batch(tables).expect("loaded");
    connection.close().expect("closed");
    (directory, path)
}

/// Loads a volume into a schema of its own; gives its name, too.
fn load_into_postgres(tables: &str) -> (postgres::Address, String) {
    let cluster = Cluster::shared();
    let address = cluster.address();
    let schema = address.schema().to_owned();
    let tables = tables.replace("old.", &format!("{schema}."));
    cluster.run(&tables.replace("CREATE SCHEMA old", &format!("CREATE SCHEMA {schema}")));
    (address, schema)
}

/// No sum of a new row hides what was wrong with the old one.
#[test]
fn damaged_rows_of_format_5_are_not_upgraded() {
    let damages = [
        ("UPDATE fileatt SET uid = 7 WHERE ino = 1", "has a damaged row"),
        ("DELETE FROM xattr", "has no extended attributes and says that it has"),
    ];
    for (damage, told) in damages {
        let (_directory, path) = load(include_str!("../data/format-5.sql"));
        rusqlite::Connection::open(&path).expect("opened").execute(damage, ()).expect("edited");
        let (kind, text) = refusal(run(&path, Upgrade::Now));
        assert!(kind == ErrorKind::Corrupt && text.contains(told), "{text}");
        assert!(refusal(open(&path)).1.contains("format 5"), "it is as it was");
        let (address, schema) = load_into_postgres(include_str!("../data/format-5-postgres.sql"));
        Cluster::shared().run(&format!("SET search_path TO {schema}; {damage}"));
        let (kind, text) = refusal(postgres::upgrade(&address, Upgrade::Now, &mut |_| {}));
        assert!(kind == ErrorKind::Corrupt && text.contains(told), "{text}");
    }
    let (_directory, path) = load(include_str!("../data/format-5.sql"));
    let damage = "UPDATE naming SET kind = 4096 WHERE name = CAST('small' AS BLOB)";
    rusqlite::Connection::open(&path).expect("opened").execute(damage, ()).expect("edited");
    assert_eq!(refusal(run(&path, Upgrade::Now)).0, ErrorKind::Corrupt);
}

/// Their sums are others, so nothing else would tell of the damage any more.
#[test]
fn damaged_extents_of_format_7_are_not_upgraded() {
    for damage in ["extents SET block = block + 1", "extents SET idx = idx + 500"] {
        let damage = format!("UPDATE {damage}");
        let (_directory, path) = load(include_str!("../data/format-7.sql"));
        rusqlite::Connection::open(&path).expect("opened").execute(&damage, ()).expect("edited");
        let (kind, text) = refusal(run(&path, Upgrade::Now));
        assert!(kind == ErrorKind::Corrupt, "{text}");
        assert!(refusal(open(&path)).1.contains("format 7"), "it is as it was");
        let (address, schema) = load_into_postgres(include_str!("../data/format-7-postgres.sql"));
        Cluster::shared().run(&format!("SET search_path TO {schema}; {damage}"));
        let (kind, text) = refusal(postgres::upgrade(&address, Upgrade::Now, &mut |_| {}));
        assert!(kind == ErrorKind::Corrupt && text.contains("damaged row"), "{text}");
        assert!(refusal(postgres::open(&address, OpenOptions::default())).1.contains("format 7"));
    }
}

/// What is damaged of the past keeps nobody from the present.
#[test]
fn damaged_versions_of_extents_of_format_7_stay_damaged() {
    let damage = "UPDATE extents_history SET block = 1 WHERE idx = 1";
    let told = |found: &[Finding]| {
        let words = "a version of its block at byte 4096, of commits";
        found.iter().filter(|finding| finding.outcome == Outcome::Damaged && finding.what.contains(words)).count()
    };
    let (_directory, path) = load(include_str!("../data/format-7.sql"));
    rusqlite::Connection::open(&path).expect("opened").execute(damage, ()).expect("edited");
    run(&path, Upgrade::Now).expect("upgraded");
    assert_eq!(told(&look(&path, Repair::No)), 1);
    let (address, schema) = load_into_postgres(include_str!("../data/format-7-postgres.sql"));
    Cluster::shared().run(&format!("SET search_path TO {schema}; {damage}"));
    postgres::upgrade(&address, Upgrade::Now, &mut |_| {}).expect("upgraded");
    let options = CheckOptions { repair: Repair::No, read_data: true };
    assert_eq!(told(&postgres::check(&address, options, &mut |_| {}).expect("checked")), 1);
}
