//! Losses with the logs of a volume that is also damaged otherwise: the advice that is given on the
//! way leads out.

use crate::check::{database, look, sample_volume};
use crate::contract::HOMES;
use crate::crash::{copy, wal};
use crate::generate::Change;
use crate::moments::Mount;
use crate::sample::{LARGE, SMALL};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use weft_store::log::Loss;
use weft_store::sqlite::{open, open_to_read, open_with};
use weft_store::*;

/// Damage that a repair puts right, and that keeps a volume from being mounted.
const DAMAGES: [&str; 4] = [
    "DROP INDEX naming_inode",
    "CREATE TRIGGER foreign_one AFTER INSERT ON freed BEGIN SELECT 1; END",
    "DELETE FROM fileatt WHERE ino = 1",
    "DELETE FROM segments",
];

fn log(path: &Path) -> PathBuf {
    if path.is_dir() { path.join("intents") } else { PathBuf::from(format!("{}-intents", path.display())) }
}

/// The sample after a crash: the intent log names a commit that only the write-ahead log has.
fn crashed(directory: &tempfile::TempDir, home: BlockHome, change: impl Fn(&mut Mount)) -> PathBuf {
    let (path, crashed) = (sample_volume(directory, home), directory.path().join("crashed"));
    let mut mount = Mount::begin(&path, Loss::Refuse);
    change(&mut mount);
    let commit = mount.commit(&[], Durability::Durable);
    mount.name(commit);
    copy(&path, &crashed);
    mount.copy_log(&crashed);
    crashed
}

/// Does what the messages advise, from the check on that is asked for first.
#[track_caller]
fn follow(path: &Path) {
    let asks_to_accept = |what: &str| what.contains("--accept-loss");
    for findings in [look(path, Repair::Discard), look(path, Repair::No)] {
        assert!(findings.iter().all(|finding| finding.outcome != Outcome::Repaired), "{findings:?}");
        assert!(findings.iter().any(|finding| asks_to_accept(&finding.what)), "{findings:?}");
    }
    let refused = open(path).map(drop).expect_err("refused").to_string();
    assert!(asks_to_accept(&refused), "{refused}");
    // A look gives nothing up.
    let content = fs::read(log(path)).expect("there");
    let _ = open_to_read(path, Loss::Accept).map(drop);
    assert_eq!(fs::read(log(path)).expect("there"), content);
    for _ in 0..2 {
        let refused = open_with(path, Loss::Accept).map(drop).expect_err("refused").to_string();
        assert!(refused.contains("'weft check --repair"), "{refused}");
    }
    let aside = format!("{}.aside-1", log(path).display());
    assert_eq!(fs::read(aside).expect("a copy is kept"), content);
    let findings = look(path, Repair::Yes);
    assert!(findings.iter().any(|finding| finding.outcome == Outcome::Repaired), "{findings:?}");
    let mut left = findings.iter().filter(|finding| finding.outcome == Outcome::Damaged);
    assert!(left.all(|finding| asks_to_accept(&finding.what)), "{findings:?}");
    let mount = Mount::begin(path, Loss::Accept);
    let names = mount.store.names(Ino::ROOT, Cookie(0), 10).expect("readable");
    assert_eq!(names.len(), 3);
    for (ino, count) in [(SMALL, 0), (LARGE, 3)] {
        let row = mount.store.inodes(Ino(ino), 1).expect("readable").remove(0);
        assert_eq!(row.ino, Ino(ino));
        let blocks = mount.store.extents(Ino(ino), 0..u64::MAX).expect("readable");
        assert_eq!(blocks.len(), count);
        for (_, block) in blocks {
            mount.store.read_block(&block, ReadMode::Blocking).expect("readable");
        }
    }
    mount.end();
    let findings = look(path, Repair::No);
    assert!(findings.iter().all(|finding| finding.outcome != Outcome::Damaged), "{findings:?}");
}

#[test]
fn a_volume_that_lost_its_write_ahead_log_and_is_broken_mounts_as_the_advice_says() {
    for (home, damage) in HOMES.into_iter().flat_map(|home| DAMAGES.map(|damage| (home, damage))) {
        if home == BlockHome::Database && damage.contains("segments") {
            continue;
        }
        let directory = tempfile::tempdir().expect("a directory");
        let path = crashed(&directory, home, |_| ());
        fs::remove_file(wal(&path)).expect("there was one");
        let connection = rusqlite::Connection::open(database(&path)).expect("opened");
        connection.execute_batch(damage).expect("edited");
        drop(connection);
        follow(&path);
    }
}

#[test]
fn a_volume_whose_write_ahead_log_rots_and_that_is_broken_mounts_as_the_advice_says() {
    for home in HOMES {
        let directory = tempfile::tempdir().expect("a directory");
        let path = crashed(&directory, home, |mount| {
            let header = mount.store.header().expect("readable");
            let inodes = vec![InodeChange::Remove(Ino::ROOT)];
            let batch = Batch { commit: header.commit.next(), counters: header.counters, inodes, ..Batch::default() };
            mount.store.apply(&batch, Durability::Durable).expect("applied");
        });
        let file = fs::OpenOptions::new().write(true).open(wal(&path)).expect("opened");
        let end = file.metadata().expect("there").len();
        file.write_all_at(&[0x55; 3], end - 2000).expect("written");
        follow(&path);
    }
}

#[test]
fn a_broken_database_from_before_its_segments_mounts_as_the_advice_says_and_cuts_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let (path, older) = (sample_volume(&directory, BlockHome::Segments), directory.path().join("older"));
    Mount::begin(&path, Loss::Refuse).end();
    copy(&path, &older);
    fs::copy(log(&path), log(&older)).expect("copied");
    let mount = Mount::begin(&path, Loss::Refuse);
    mount.commit(&[Change::Block { ino: 2, index: 0, length: 9000 }], Durability::Durable);
    mount.end();
    let segment = |volume: &Path| volume.join("segments/00000001.seg");
    fs::copy(segment(&path), segment(&older)).expect("copied");
    let content = fs::read(segment(&older)).expect("there");
    let connection = rusqlite::Connection::open(database(&older)).expect("opened");
    connection.execute_batch("DELETE FROM fileatt WHERE ino = 1").expect("edited");
    drop(connection);
    follow(&older);
    assert_eq!(fs::read(segment(&older)).expect("there"), content);
}

#[test]
fn a_write_ahead_log_from_before_a_repair_of_the_schema_is_not_used_after_it() {
    for home in HOMES {
        let directory = tempfile::tempdir().expect("a directory");
        let path = crashed(&directory, home, |_| ());
        let content = fs::read(wal(&path)).expect("there is one");
        fs::remove_file(wal(&path)).expect("removed");
        let connection = rusqlite::Connection::open(database(&path)).expect("opened");
        connection.execute_batch("DROP INDEX naming_inode").expect("edited");
        drop(connection);
        let _ = open_with(&path, Loss::Accept).map(drop).expect_err("refused");
        look(&path, Repair::Yes);
        fs::write(wal(&path), content).expect("put back");
        let refused = open(&path).map(drop).expect_err("refused").to_string();
        assert!(refused.contains("not of this state of the database"), "{refused}");
    }
}

#[test]
fn a_volume_that_no_repair_helps_keeps_its_logs_for_a_salvage() {
    for home in HOMES {
        let directory = tempfile::tempdir().expect("a directory");
        let path = crashed(&directory, home, |_| ());
        fs::remove_file(wal(&path)).expect("there was one");
        let connection = rusqlite::Connection::open(database(&path)).expect("opened");
        connection.execute_batch("ALTER TABLE fileatt ADD COLUMN extra TEXT").expect("edited");
        drop(connection);
        let content = fs::read(log(&path)).expect("there");
        let refused = open_with(&path, Loss::Accept).map(drop).expect_err("refused").to_string();
        assert!(refused.contains("--salvage") && !refused.contains("is accepted"), "{refused}");
        assert_eq!(fs::read(log(&path)).expect("it stays"), content);
    }
}
