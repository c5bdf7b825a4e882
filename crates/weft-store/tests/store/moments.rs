//! A volume with an intent log that names commits.

use crate::check::{database, look};
use crate::contract::{HOMES, new_volume};
use crate::crash::{copy, wal};
use crate::generate::{Change, batch};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weft_store::log::{IntentLog, Loss, epoch_without_log};
use weft_store::sqlite::{self, SqliteStore, open, open_with};
use weft_store::*;

/// A volume that is mounted: its first commit is there, and copied into the database.
pub struct Mount {
    pub store: Arc<SqliteStore>,
    log: IntentLog,
    log_path: PathBuf,
}

impl Mount {
    pub fn begin(path: &Path, loss: Loss) -> Mount {
        let volume = open_with(path, loss).expect("opened");
        let header = volume.store.header().expect("readable");
        let mut log = IntentLog::open(&volume.layout.log, 64 << 10).expect("a log").with(loss);
        log.check(&header).expect("fits");
        let epoch = log.next_epoch(header.counters.epoch);
        log.prepare(epoch, header.commit).expect("prepared");
        let mut first = batch(&*volume.store, &[]);
        first.counters.epoch = epoch;
        volume.store.apply(&first, Durability::Durable).expect("applied");
        log.begin(first.commit).expect("begun");
        Mount { store: volume.store, log, log_path: volume.layout.log }
    }

    pub fn commit(&self, changes: &[Change], durability: Durability) -> CommitNo {
        let batch = batch(&*self.store, changes);
        self.store.apply(&batch, durability).expect("applied");
        batch.commit
    }

    /// Unmounts.
    pub fn end(mut self) {
        let mut last = batch(&*self.store, &[]);
        last.counters.epoch = epoch_without_log(last.counters.epoch);
        self.store.apply(&last, Durability::Durable).expect("applied");
        self.log.leave();
        let behind = self.store.cut().expect("cut");
        self.log.close(last.commit, behind).expect("closed");
        self.store.close().expect("closed");
    }

    /// An fsync relies on `commit` from now on.
    pub fn name(&mut self, commit: CommitNo) {
        self.log.name(commit).expect("named");
    }

    /// Appends and syncs the operation that follows the last commit.
    pub fn append(&mut self, operation: &[u8]) {
        let op = self.store.header().expect("readable").counters.op.next();
        self.log.append(op, op, &operation.to_vec().into()).expect("appended");
        self.log.syncer().and_then(|sync| sync.sync()).expect("synced");
    }

    /// Copies the log to where that of a volume at `to` lies.
    pub fn copy_log(&self, to: &Path) {
        let beside = PathBuf::from(format!("{}-intents", to.display()));
        fs::copy(&self.log_path, if to.is_dir() { to.join("intents") } else { beside }).expect("copied");
    }
}

/// A volume that crashed, without its write-ahead log, which had a commit that the intent log
/// names.
fn without_wal(directory: &tempfile::TempDir, home: BlockHome) -> PathBuf {
    let (path, crashed) = (new_volume(directory, home), directory.path().join("crashed"));
    let mut mount = Mount::begin(&path, Loss::Refuse);
    let commit = mount.commit(&[], Durability::Durable);
    mount.name(commit);
    copy(&path, &crashed);
    mount.copy_log(&crashed);
    fs::remove_file(wal(&crashed)).expect("there was one");
    crashed
}

#[test]
fn nothing_is_repaired_that_would_hide_a_commit_which_the_intent_log_names() {
    let broken = ["UPDATE volume SET inodes_used = 7", "DROP INDEX fileatt_orphans"];
    for (home, damage) in HOMES.into_iter().flat_map(|home| broken.map(|damage| (home, damage))) {
        let directory = tempfile::tempdir().expect("a directory");
        let path = without_wal(&directory, home);
        let connection = rusqlite::Connection::open(database(&path)).expect("opened");
        connection.execute_batch(damage).expect("edited");
        drop(connection);
        if !damage.starts_with("DROP") {
            sqlite::seal(&path).expect("sealed");
        }
        let before = look(&path, Repair::No);
        for _ in 0..2 {
            let findings = look(&path, Repair::Discard);
            assert_eq!(findings.len(), before.len(), "{findings:?}");
            assert!(findings.len() > 1, "{findings:?}");
            assert!(findings.iter().all(|finding| finding.outcome != Outcome::Repaired), "{findings:?}");
            let told = ["names commit 3", "--accept-loss", "nothing is repaired before that"];
            assert!(told.iter().all(|words| findings[0].what.contains(words)), "{findings:?}");
        }
        let refused = open(&path).map(drop).expect_err("refused").to_string();
        if damage.starts_with("DROP") {
            continue;
        }
        assert!(refused.contains("names commit 3"), "{refused}");
        drop(Mount::begin(&path, Loss::Accept));
        let findings = look(&path, Repair::Yes);
        assert!(findings.iter().any(|finding| finding.outcome == Outcome::Repaired), "{findings:?}");
        assert!(findings.iter().all(|finding| finding.outcome != Outcome::Damaged), "{findings:?}");
        open(&path).expect("all is as it should be");
    }
}

#[test]
fn a_row_of_the_volume_of_an_earlier_mount_is_mended_beside_an_intent_log() {
    for (home, is_unmounted) in HOMES.into_iter().flat_map(|home| [(home, true), (home, false)]) {
        let directory = tempfile::tempdir().expect("a directory");
        let path = new_volume(&directory, home);
        Mount::begin(&path, Loss::Refuse).end();
        let keep = "CREATE TEMP TABLE kept AS SELECT * FROM volume";
        let connection = rusqlite::Connection::open(database(&path)).expect("opened");
        connection.execute_batch(keep).expect("kept");
        let mut mount = Mount::begin(&path, Loss::Refuse);
        let commit = mount.commit(&[Change::Block { ino: 2, index: 0, length: 9000 }], Durability::Durable);
        mount.name(commit);
        if is_unmounted {
            mount.end();
        } else {
            drop(mount);
        }
        connection.execute_batch("DELETE FROM volume; INSERT INTO volume SELECT * FROM kept").expect("put back");
        drop(connection);
        let older = |what: &str| what.contains("volume's own row is older");
        assert!(older(&open(&path).map(drop).expect_err("refused").to_string()));
        // Nothing is lost that could be given up.
        let refused = open_with(&path, Loss::Accept).map(drop).expect_err("refused").to_string();
        assert!(older(&refused) && !refused.contains("is accepted"), "{refused}");
        assert!(look(&path, Repair::No).iter().any(|finding| older(&finding.what)));
        let findings = look(&path, Repair::Yes);
        assert!(findings.iter().any(|finding| finding.outcome == Outcome::Repaired && older(&finding.what)));
        for findings in [findings, look(&path, Repair::No)] {
            assert!(findings.iter().all(|finding| finding.outcome != Outcome::Damaged), "{findings:?}");
        }
        Mount::begin(&path, Loss::Refuse).end();
    }
}

/// Two lives of a volume from one backup, each with a mount that was killed.
#[test]
fn a_log_that_another_life_of_the_volume_wrote_is_told_by_all() {
    for home in HOMES {
        let directory = tempfile::tempdir().expect("a directory");
        let (path, twin) = (new_volume(&directory, home), directory.path().join("twin"));
        copy(&path, &twin);
        let crashed = [&path, &twin].map(|path| {
            let mut mount = Mount::begin(path, Loss::Refuse);
            let commit = mount.commit(&[], Durability::Durable);
            mount.name(commit);
            let crashed = path.with_extension("crashed");
            copy(path, &crashed);
            mount.copy_log(&crashed);
            open(&crashed).expect("its own log");
            (mount, crashed)
        });
        crashed[0].0.copy_log(&crashed[1].1);
        let told = |what: &str| what.contains("used apart from it") && what.contains("--accept-loss");
        let refused = open(&crashed[1].1).map(drop).expect_err("refused").to_string();
        assert!(told(&refused), "{refused}");
        let findings = look(&crashed[1].1, Repair::No);
        assert!(findings.iter().any(|finding| finding.outcome == Outcome::Damaged && told(&finding.what)));
        assert!(sqlite::waiting(&crashed[1].1).expect("looked").lost.is_some_and(|lost| told(&lost)));
    }
}
