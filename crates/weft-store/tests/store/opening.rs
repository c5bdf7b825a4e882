//! Making and opening volumes: each refusal says what to do, and nothing is touched.

use crate::contract::{HOMES, new_volume, options};
use std::fs;
use weft_store::sqlite::{self, create, open, salvage};
use weft_store::{Batch, BlockHome, CheckOptions, Durability, ErrorKind, Repair, Store, Timestamp};

fn refusal(path: &std::path::Path) -> (ErrorKind, String) {
    let error = open(path).map(|_| ()).expect_err("refused");
    let text = error.to_string();
    assert!(!text.contains('\n'), "one line: {text}");
    (error.kind(), text)
}

#[test]
fn a_volume_is_held_by_one_store_at_a_time() {
    for home in HOMES {
        let directory = tempfile::tempdir().expect("a directory");
        let path = new_volume(&directory, home);
        let held = open(&path).expect("opened");
        let (kind, text) = refusal(&path);
        assert_eq!(kind, ErrorKind::Locked);
        assert!(text.contains("volume") && text.contains("unmount"), "{text}");
        drop(held);
        open(&path).expect("free again");
    }
}

#[test]
fn what_is_no_volume_is_refused_and_left_as_it_was() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("thing");
    assert_eq!(refusal(&path).0, ErrorKind::Unusable);
    assert!(refusal(&path).1.contains("weft init"));
    fs::write(&path, vec![7; 10_000]).expect("written");
    assert_eq!(refusal(&path).0, ErrorKind::Unusable);
    fs::write(&path, b"").expect("written");
    assert_eq!(refusal(&path).0, ErrorKind::Unusable);
    fs::remove_file(&path).expect("removed");
    rusqlite::Connection::open(&path).and_then(|c| c.execute_batch("CREATE TABLE t (a)")).expect("another database");
    assert_eq!(refusal(&path).0, ErrorKind::Unusable);
    let others: Vec<_> = fs::read_dir(directory.path()).expect("listed").collect();
    assert_eq!(others.len(), 1, "no other files appear beside it");
    let empty = directory.path().join("empty");
    fs::create_dir(&empty).expect("made");
    assert_eq!(refusal(&empty).0, ErrorKind::Unusable);
    assert_eq!(fs::read_dir(&empty).expect("listed").count(), 0);
}

#[test]
fn a_newer_format_is_refused_by_name() {
    for home in HOMES {
        let directory = tempfile::tempdir().expect("a directory");
        let path = new_volume(&directory, home);
        let database = if home == BlockHome::Segments { path.join("meta.sqlite") } else { path.clone() };
        let connection = rusqlite::Connection::open(&database).expect("opened");
        connection.execute_batch("PRAGMA user_version = 99; PRAGMA wal_checkpoint(TRUNCATE)").expect("set");
        drop(connection);
        let (kind, text) = refusal(&path);
        assert_eq!(kind, ErrorKind::Unusable);
        assert!(text.contains("format 99") && text.contains("newer weft"), "{text}");
    }
}

#[test]
fn a_volume_is_made_and_opened_by_way_of_links() {
    for home in HOMES {
        let directory = tempfile::tempdir().expect("a directory");
        fs::create_dir(directory.path().join("real")).expect("made");
        let (link, empty) = (directory.path().join("link"), directory.path().join("empty"));
        std::os::unix::fs::symlink("real", &link).expect("linked");
        let path = link.join("volume");
        create(&path, &options(home), (0, 0), Timestamp(0)).expect("made");
        drop(open(&path).expect("opened"));
        assert!(directory.path().join("real/volume").exists());
        if home == BlockHome::Segments {
            fs::create_dir(directory.path().join("real/empty")).expect("made");
            std::os::unix::fs::symlink("real/empty", &empty).expect("linked");
            create(&empty, &options(home), (0, 0), Timestamp(0)).expect("made");
            drop(open(&empty).expect("opened"));
        }
    }
}

#[test]
fn nothing_is_made_where_something_is_already() {
    for home in HOMES {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("volume");
        fs::write(&path, b"precious").expect("written");
        let error = create(&path, &options(home), (0, 0), Timestamp(0)).expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::Unusable);
        assert_eq!(fs::read(&path).expect("there"), b"precious");
        let missing = directory.path().join("no/such/place");
        create(&missing, &options(home), (0, 0), Timestamp(0)).expect_err("refused");
        assert_eq!(fs::read_dir(directory.path()).expect("listed").count(), 1, "nothing is left behind");
    }
}

/// A volume that was moved away alone, even one that is in use, has its logs here still.
#[test]
fn no_volume_is_made_over_the_logs_of_another() {
    let directory = tempfile::tempdir().expect("a directory");
    let old = new_volume(&directory, BlockHome::Database);
    let new = directory.path().join("new");
    for suffix in ["-wal", "-shm", "-journal", "-intents"] {
        let left = directory.path().join(format!("new{suffix}"));
        fs::write(&left, b"of another volume").expect("written");
        for made in [
            create(&new, &options(BlockHome::Database), (0, 0), Timestamp(0)),
            salvage(&old, &new, &mut |_| ()).map(drop),
        ] {
            let error = made.expect_err("refused");
            assert_eq!(error.kind(), ErrorKind::Unusable);
            assert!(error.to_string().contains(&format!("{} exists", left.display())), "{error}");
        }
        assert_eq!(fs::read(&left).expect("there"), b"of another volume");
        fs::remove_file(&left).expect("removed");
    }
    salvage(&old, &new, &mut |_| ()).expect("nothing is in the way");
}

#[test]
fn a_row_of_the_volume_that_is_older_than_its_commits_is_refused_by_name_and_mended() {
    for home in HOMES {
        let directory = tempfile::tempdir().expect("a directory");
        let path = new_volume(&directory, home);
        let store = open(&path).expect("opens").store;
        let commit = |store: &dyn Store| {
            let header = store.header().expect("readable");
            let batch = Batch { commit: header.commit.next(), counters: header.counters, ..Batch::default() };
            store.apply(&batch, Durability::Durable).expect("applied");
        };
        commit(&*store);
        drop(store);
        let database = if path.is_dir() { path.join("meta.sqlite") } else { path.clone() };
        let keep = "CREATE TEMP TABLE kept AS SELECT * FROM volume";
        let connection = rusqlite::Connection::open(&database).expect("opened");
        connection.execute_batch(keep).expect("kept");
        let store = open(&path).expect("opens").store;
        (0..2).for_each(|_| commit(&*store));
        drop(store);
        connection.execute_batch("DELETE FROM volume; INSERT INTO volume SELECT * FROM kept").expect("put back");
        drop(connection);
        let error = open(&path).map(drop).expect_err("refused").to_string();
        assert!(error.contains("it is of commit 2, and commit 3 is there"), "{error}");
        let options = CheckOptions { repair: Repair::Yes, read_data: true };
        sqlite::check(&path, options, &mut |_| {}).expect("checked");
        commit(&*open(&path).expect("opens").store);
    }
}
