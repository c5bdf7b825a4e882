//! Volumes of the format before: made of new ones by taking away what this format brought, since
//! the program that wrote them is not here. `downgrade` gives them the tables that format 3 (4 in
//! PostgreSQL) had.

use crate::check::{database, look, sample_volume};
use crate::compare::state;
use crate::contract::{HOMES, options};
use crate::sample::{self, SMALL};
use std::fs;
use std::path::{Path, PathBuf};
use weft_store::postgres::{self, OpenOptions};
use weft_store::sqlite::{self, downgrade, open, upgrade};
use weft_store::*;
use weft_testkit::Cluster;

fn refusal<T>(result: Result<T>) -> (ErrorKind, String) {
    let error = result.map(drop).expect_err("refused");
    (error.kind(), error.to_string())
}

fn run(path: &Path, mode: Upgrade) -> Result<Upgraded> {
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
        let beside = |suffix: &str| {
            let mut name = database(&path).into_os_string();
            name.push(suffix);
            PathBuf::from(name)
        };
        fs::write(beside("-wal"), b"pages").expect("written");
        assert!(refusal(run(&path, Upgrade::Now)).1.contains("not unmounted cleanly"));
        fs::remove_file(beside("-wal")).expect("removed");
        let log = if home == BlockHome::Segments { path.join("intent.log") } else { beside("-intent") };
        let mut record = b"WEFTLOG1".to_vec();
        // A checksum, the epoch of the sample, the first operation and the last, the length.
        [7, 0, 1, u64::MAX, 0].iter().for_each(|number: &u64| record.extend(number.to_le_bytes()));
        fs::write(&log, [vec![0; 4096], record].concat()).expect("written");
        assert!(refusal(run(&path, Upgrade::Now)).1.contains("not unmounted cleanly"));
        fs::remove_file(&log).expect("removed");
        let connection = rusqlite::Connection::open(database(&path)).expect("opened");
        let damage = format!("UPDATE fileatt SET inline = x'68656c6c70' WHERE ino = {SMALL}");
        connection.execute(&damage, ()).expect("edited");
        connection.close().expect("closed");
        assert_eq!(refusal(run(&path, Upgrade::Now)).0, ErrorKind::Corrupt);
        assert!(refusal(open(&path)).1.contains("format 3"), "it is as it was");
    }
}

#[test]
fn a_volume_of_the_format_before_in_postgresql_is_the_same_after_an_upgrade() {
    let address = Cluster::shared().address();
    postgres::create(&address, &options(BlockHome::Database), (0, 0), Timestamp(0)).expect("made");
    let open = || postgres::open(&address, OpenOptions::default());
    sample::fill(&*open().expect("opens"));
    let before = state(&*open().expect("opens")).expect("readable");
    postgres::downgrade(&address).expect("an old one");
    let (kind, text) = refusal(open());
    assert!(kind == ErrorKind::Unusable && text.contains("format 4") && text.contains("weft upgrade"), "{text}");
    let told = postgres::upgrade(&address, Upgrade::DryRun, &mut |_| {}).expect("told");
    assert_eq!((told.from, told.to), (4, FORMAT));
    assert!(refusal(open()).1.contains("format 4"), "nothing was to be changed");
    assert_eq!(postgres::upgrade(&address, Upgrade::Now, &mut |_| {}).expect("upgraded"), told);
    assert_eq!(state(&*open().expect("opens")).expect("readable"), before);
    let options = CheckOptions { repair: Repair::No, read_data: true };
    let found = postgres::check(&address, options, &mut |_| {}).expect("checked");
    assert!(found.iter().all(|finding| finding.outcome == Outcome::Note), "{found:?}");
}
