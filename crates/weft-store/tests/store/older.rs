//! A database that is older than the write-ahead log beside it, or was used apart from it.

use crate::check::{database, look, sample_volume};
use crate::contract::HOMES;
use crate::crash::{copy, wal};
use crate::moments::Mount;
use crate::salvage::{Contents, contents};
use crate::salvage_logs::commit;
use std::fs;
use std::path::{Path, PathBuf};
use weft_store::log::Loss;
use weft_store::sqlite::{convert, open, open_to_read, salvage, scrub, waiting};
use weft_store::*;

/// Bytes of a page.
const PAGE: usize = 4096;

fn written(path: &Path) -> Contents {
    contents(&*open(path).expect("opened").store)
}

/// Has all of the write-ahead log copied, so that the next commit restarts it.
fn begin_anew(path: &Path) {
    let beside = rusqlite::Connection::open(database(path)).expect("opened");
    beside.execute_batch("PRAGMA wal_autocheckpoint = 0").expect("set");
    let copied = |row: &rusqlite::Row<'_>| Ok(row.get::<_, i64>(1)? == row.get::<_, i64>(2)?);
    assert!(beside.query_row("PRAGMA wal_checkpoint(PASSIVE)", (), copied).expect("copied"));
}

/// A volume as a kill leaves it, with its database put back that it had before the mount; and what
/// that holds.
fn restored(directory: &tempfile::TempDir, home: BlockHome) -> (PathBuf, Contents) {
    let path = sample_volume(directory, home);
    let [backup, crashed] = ["backup", "crashed"].map(|name| directory.path().join(name));
    copy(&path, &backup);
    let mut mount = Mount::begin(&path, Loss::Refuse);
    for time in 0..3 {
        commit(&*mount.store, time..time + 1);
        begin_anew(&path);
    }
    commit(&*mount.store, 3..5);
    mount.name(mount.store.header().expect("readable").commit);
    copy(&path, &crashed);
    mount.copy_log(&crashed);
    fs::copy(database(&backup), database(&crashed)).expect("put back");
    (crashed, written(&backup))
}

/// A refusal that says what is the matter and what to do, in the order in which to do it.
#[track_caller]
fn told(what: &str) {
    let words = ["is older than its write-ahead log", "of one moment", "weft check --salvage", "--accept-loss"];
    let places = words.map(|words| what.find(words).unwrap_or_else(|| panic!("no '{words}' in {what}")));
    assert!(places.is_sorted(), "{what}");
}

#[test]
fn a_database_from_before_what_its_write_ahead_log_follows_is_refused_by_all_that_opens_it() {
    for home in HOMES {
        let directory = tempfile::tempdir().expect("a directory");
        let (path, expected) = restored(&directory, home);
        let files = || [database(&path), wal(&path)].map(|file| fs::read(file).expect("readable"));
        let before = files();
        let new = directory.path().join("new");
        told(&open(&path).map(drop).expect_err("refused").to_string());
        for link in [false, true] {
            // A volume whose files have other names is only read, by a copy.
            let name = directory.path().join("other name");
            if link {
                fs::hard_link(database(&path), &name).expect("linked");
            }
            told(&open_to_read(&path, Loss::Refuse).map(drop).expect_err("refused").to_string());
            let findings = look(&path, if link { Repair::No } else { Repair::Discard });
            assert_eq!((findings.len(), findings[0].outcome), (1, Outcome::Damaged), "{findings:?}");
            told(&findings[0].what);
            if link {
                let read = open_to_read(&path, Loss::Accept).expect("opened");
                assert_eq!(contents(&*read.store), expected);
                told_given_up(&read.given_up);
                fs::remove_file(&name).expect("removed");
            }
        }
        told(&waiting(&path).expect("looked").lost.expect("told"));
        told(&convert(&path, &new, home, &mut |_| {}).expect_err("refused").to_string());
        let findings = scrub(&path, &mut |_| {}).expect("scrubbed");
        assert_eq!(findings.len(), 1, "{findings:?}");
        told(&findings[0].what);
        let salvaged = salvage(&path, &new, &mut |_| {}).expect("brought");
        let why = salvaged.missing.iter().find(|missing| missing.kind == "write-ahead log").expect("told");
        assert!(why.why.contains("it goes on after commit") && why.why.contains("nothing of it is used"), "{why:?}");
        assert_eq!(written(&new), expected);
        assert!(files() == before, "the evidence is left as it was");
    }
}

#[track_caller]
fn told_given_up(given_up: &[String]) {
    assert!(given_up.iter().any(|what| what.contains("is older than its write-ahead log")), "{given_up:?}");
}

#[test]
fn whoever_accepts_that_a_database_is_older_goes_on_with_it_and_keeps_the_logs() {
    for home in HOMES {
        let directory = tempfile::tempdir().expect("a directory");
        let (path, expected) = restored(&directory, home);
        let newer = fs::read(wal(&path)).expect("readable");
        let mount = Mount::begin(&path, Loss::Accept);
        assert_eq!(contents(&*mount.store), expected);
        commit(&*mount.store, 9..10);
        let then = contents(&*mount.store);
        drop(mount);
        assert_eq!(written(&path), then, "what was accepted is not asked again");
        let aside = PathBuf::from(format!("{}.aside-1", wal(&path).display()));
        assert!(fs::read(aside).expect("kept") == newer);
    }
}

/// The database `before`, with those pages of `after` that a copying had written when it was ended.
fn half_copied(before: &[u8], after: &[u8], is_written: impl Fn(usize) -> bool) -> Vec<u8> {
    let mut bytes = after.to_vec();
    for (page, old) in before.chunks_exact(PAGE).enumerate().filter(|(page, _)| !is_written(*page)) {
        bytes[page * PAGE..(page + 1) * PAGE].copy_from_slice(old);
    }
    bytes
}

#[test]
fn a_database_is_accepted_wherever_the_copying_of_its_log_was_ended() {
    for home in HOMES {
        let directory = tempfile::tempdir().expect("a directory");
        let (path, crashed) = (sample_volume(&directory, home), directory.path().join("crashed"));
        let store = open(&path).expect("opened").store;
        let (mut before, mut salts) = (fs::read(database(&path)).expect("readable"), Vec::new());
        for life in 0..4_u8 {
            commit(&*store, life * 4..life * 4 + 1 + life % 3);
            let log = fs::read(wal(&path)).expect("readable");
            assert!(log[16..24] != salts, "another life");
            salts = log[16..24].to_vec();
            copy(&path, &crashed);
            let expected = written(&crashed);
            begin_anew(&path);
            let after = fs::read(database(&path)).expect("readable");
            let pages = after.len() / PAGE;
            for seed in 0..10 {
                let is_written = |page: usize| match seed {
                    0 => false,
                    1 => true,
                    2..6 => page < pages * (seed - 1) / 5,
                    _ => (page * 7 + seed).is_multiple_of(3),
                };
                fs::write(database(&crashed), half_copied(&before, &after, is_written)).expect("written");
                assert_eq!(written(&crashed), expected, "life {life}, {seed}");
            }
            before = after;
        }
    }
}

/// The row of the database's last commit may lie in a page that the log does not have.
#[test]
fn a_log_of_another_life_that_follows_a_commit_of_that_number_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = sample_volume(&directory, BlockHome::Database);
    let [twin, tried] = ["twin", "tried"].map(|name| directory.path().join(name));
    copy(&path, &twin);
    let stores = [&path, &twin].map(|path| open(path).expect("opened").store);
    // So many rows of commits do not fit a page.
    for time in 0..50 {
        let databases = [&path, &twin].map(|path| fs::read(database(path)).expect("readable"));
        commit(&*stores[0], time..time + 1);
        commit(&*stores[1], time + 100..time + 101);
        let logs = [&path, &twin].map(|path| fs::read(wal(path)).expect("readable"));
        fs::write(database(&tried), &databases[0]).expect("written");
        for (log, is_own) in logs.iter().zip([true, false]) {
            fs::write(wal(&tried), log).expect("written");
            // Before the first commit both are the same.
            assert_eq!(open(&tried).is_ok(), is_own || time == 0, "after {time} commits");
        }
        [&path, &twin].into_iter().for_each(|path| begin_anew(path));
    }
}
