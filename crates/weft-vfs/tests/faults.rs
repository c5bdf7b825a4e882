//! The store fails: operations that cannot do without it say so and change nothing, nothing
//! acknowledged is lost, and work goes on when the cause is gone.

use proptest::prelude::*;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use weft_store::log::{IntentLog, Sync};
use weft_store::memory::MemoryStore;
use weft_store::sqlite;
use weft_store::{
    Batch, CommitStore, Durability, ErrorKind as StoreErrorKind, InodeChange, InodeRow, PastStore, RowStore, Timestamp,
    VolumeOptions,
};
use weft_testkit::{Calls, CrashStore, Driver, Faults, Means, Step, operations};
use weft_vfs::{Caller, ErrorKind, Ino, Kind, MakeNode, ManualClock, Options, RenameMode, Vfs};

const FILE: MakeNode = MakeNode { kind: Kind::File, permissions: 0o644, umask: 0, rdev: 0 };

fn store() -> Arc<CrashStore> {
    Arc::new(CrashStore::new(VolumeOptions { block_size: 4096, inline_max: 100, ..VolumeOptions::default() }))
}

fn options() -> Options {
    Options { background: false, ..Options::default() }
}

fn open(store: &Arc<CrashStore>, log: Option<IntentLog>, options: Options) -> Arc<Vfs> {
    let log = log.map(Into::into);
    Vfs::open(store.clone(), log, options, Arc::new(ManualClock::default())).expect("opens")
}

fn commits_fail(kind: StoreErrorKind) -> Faults {
    Faults { count: u32::MAX, kind, calls: Calls::Commits, ..Faults::NONE }
}

/// Runs `steps` with the call after the first `after` failing; tells whether there was one.
fn run(steps: &[Step], means: Means, after: u32, kind: StoreErrorKind) -> Result<bool, String> {
    let mut driver = Driver::new(means);
    driver.fail(Faults { after, count: 1, kind, ..Faults::NONE });
    for (i, step) in steps.iter().filter(|step| !matches!(step, Step::Remount)).enumerate() {
        driver.step(step).map_err(|error| format!("call {after} fails, step {i}, {step:?}: {error}"))?;
    }
    let failed = driver.has_failed();
    for step in [Step::Compare, Step::Remount] {
        driver.step(&step).map_err(|error| format!("call {after} failed, at the end, {step:?}: {error}"))?;
    }
    Ok(failed)
}

fn config() -> ProptestConfig {
    // A case runs its steps once for each call of the store that they make.
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse::<u32>().ok()).unwrap_or(1500);
    ProptestConfig { cases: cases.div_ceil(5), failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn whichever_call_of_the_store_fails_only_its_operation_does(steps in operations(50, false)) {
        let kinds = [StoreErrorKind::Unavailable, StoreErrorKind::Full, StoreErrorKind::Conflict];
        for after in 0.. {
            let kind = kinds[after as usize % 3];
            let mut failed = false;
            for means in [Means::NO_LOG, Means::SCARCE] {
                failed |= run(&steps, means, after, kind).map_err(TestCaseError::fail)?;
            }
            if !failed {
                break;
            }
        }
    }
}

#[test]
fn sync_reports_what_kept_it_from_succeeding_until_the_cause_is_gone() {
    for (cause, error) in [
        (StoreErrorKind::Full, ErrorKind::NoSpace),
        (StoreErrorKind::Unavailable, ErrorKind::Io),
        (StoreErrorKind::Conflict, ErrorKind::Io),
    ] {
        let store = store();
        let vfs = open(&store, None, options());
        let ino = vfs.make(Caller::ROOT, Ino::ROOT, b"file", FILE).expect("made").ino;
        store.set_faults(commits_fail(cause));
        for byte in 0..3 {
            vfs.write(ino, 0, &[byte; 5000], false).expect("memory has room");
            assert_eq!(vfs.sync().expect_err("cannot succeed").kind(), error);
        }
        assert_eq!(vfs.close().expect_err("cannot succeed").kind(), error);
        assert_eq!(vfs.read(ino, 0, 5000).expect("read").to_vec(), [2; 5000]);
        store.set_faults(Faults::NONE);
        vfs.sync().expect("the cause is gone");
        store.crash(0);
        let vfs = open(&store, None, options());
        assert_eq!(vfs.read(ino, 0, 5000).expect("read").to_vec(), [2; 5000]);
    }
}

#[test]
fn with_an_intent_log_sync_needs_no_commit_and_a_crash_loses_nothing() {
    let store = store();
    let directory = tempfile::tempdir().expect("a directory");
    let log = || Some(IntentLog::open(&directory.path().join("log"), 1 << 20).expect("a log"));
    let vfs = open(&store, log(), options());
    store.set_faults(commits_fail(StoreErrorKind::Unavailable));
    let ino = vfs.make(Caller::ROOT, Ino::ROOT, b"file", FILE).expect("made").ino;
    vfs.write(ino, 0, b"logged", false).expect("written");
    vfs.sync().expect("the log works");
    assert!(vfs.commit().is_err());
    vfs.write(ino, 6, b" twice", false).expect("written");
    vfs.sync().expect("the log still works");
    store.crash(0);
    store.set_faults(Faults::NONE);
    let vfs = open(&store, log(), options());
    let ino = vfs.lookup(Caller::ROOT, Ino::ROOT, b"file").expect("found").ino;
    assert_eq!(vfs.read(ino, 0, 100).expect("read").to_vec(), b"logged twice");
}

#[test]
fn what_a_log_may_have_lost_is_not_stood_on_until_a_commit_contains_it() {
    let store = store();
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("log");
    let mut log = IntentLog::open(&path, 1 << 20).expect("a log");
    // A pipe cannot be synced.
    let (_reader, pipe) = std::io::pipe().expect("a pipe");
    log.keep(Box::new(Sync::new(File::from(OwnedFd::from(pipe)), &path)));
    let vfs = open(&store, Some(log), options());
    store.set_faults(commits_fail(StoreErrorKind::Unavailable));
    let ino = vfs.make(Caller::ROOT, Ino::ROOT, b"file", FILE).expect("made").ino;
    vfs.write(ino, 0, b"one", false).expect("written");
    vfs.sync().expect_err("neither the log nor the store works");
    vfs.write(ino, 3, b" two", false).expect("written");
    vfs.sync().expect_err("the log works again, but lacks what came before");
    store.set_faults(Faults::NONE);
    vfs.sync().expect("the store works");
    store.set_faults(commits_fail(StoreErrorKind::Unavailable));
    vfs.write(ino, 7, b" three", false).expect("written");
    vfs.sync().expect("the log has all since the commit");
    store.crash(0);
    store.set_faults(Faults::NONE);
    let vfs = open(&store, Some(IntentLog::open(&path, 1 << 20).expect("a log")), options());
    assert_eq!(vfs.read(ino, 0, 100).expect("read").to_vec(), b"one two three");
}

#[test]
fn what_several_threads_sync_at_once_survives() {
    let store = store();
    let directory = tempfile::tempdir().expect("a directory");
    let log = || Some(IntentLog::open(&directory.path().join("log"), 256 << 10).expect("a log"));
    let vfs = open(&store, log(), options());
    let made = |name: &[u8]| vfs.make(Caller::ROOT, Ino::ROOT, name, FILE).expect("made").ino;
    let files = [b"one", b"two", b"six"].map(|name| made(name));
    std::thread::scope(|scope| {
        for ino in files {
            let vfs = &vfs;
            scope.spawn(move || {
                for n in 0..200 {
                    vfs.write(ino, n * 1000, &[n as u8 + 1; 1000], false).expect("written");
                    vfs.sync().expect("synced");
                }
            });
        }
        scope.spawn(|| (0..50).for_each(|_| vfs.commit().expect("committed")));
    });
    store.crash(0);
    let vfs = open(&store, log(), options());
    for ino in files {
        let bytes = vfs.read(ino, 0, 1 << 20).expect("read").to_vec();
        assert_eq!(bytes.len(), 200_000);
        assert!(bytes.chunks(1000).zip(1..).all(|(chunk, n)| chunk == [n; 1000]));
    }
}

#[test]
fn writers_that_find_memory_full_fail_as_the_commits_do_and_go_on_when_these_succeed() {
    let store = store();
    let options = Options { dirty_bytes_max: 1 << 20, commit_interval: Duration::from_millis(1), ..Options::default() };
    let vfs = open(&store, None, options);
    let ino = vfs.make(Caller::ROOT, Ino::ROOT, b"file", FILE).expect("made").ino;
    for (cause, expected) in [(StoreErrorKind::Full, ErrorKind::NoSpace), (StoreErrorKind::Unavailable, ErrorKind::Io)]
    {
        store.set_faults(commits_fail(cause));
        let mut written = 0u64;
        let error = loop {
            match vfs.write(ino, written, &[7; 4096], false) {
                Ok(_) => written += 4096,
                Err(error) => break error,
            }
            assert!(written < 4 << 20, "more is dirty than may be");
        };
        assert_eq!(error.kind(), expected);
        assert_eq!(vfs.read(ino, 0, 4096).expect("read").to_vec(), [7; 4096]);
        store.set_faults(Faults::NONE);
        // A try that failed before the cause went may still be told of; after a commit there is
        // room.
        vfs.sync().expect("the cause is gone");
        vfs.write(ino, written, &[8; 4096], false).expect("there is room again");
    }
    vfs.close().expect("closed");
}

/// Where the place says that there is room, a commit that found none lets history be.
#[test]
fn history_makes_room_for_a_commit_that_found_none() {
    for (bytes_free, has_yielded) in [(0, true), (u64::MAX / 2, false)] {
        let store = store();
        let vfs = open(&store, None, options());
        vfs.keep_history("all forever", None).expect("kept");
        let ino = vfs.make(Caller::ROOT, Ino::ROOT, b"file", FILE).expect("made").ino;
        for round in 0..20 {
            vfs.write(ino, 0, &[round; 10_000], false).expect("written");
            vfs.sync().expect("committed");
        }
        let first = |store: &CrashStore| store.history().expect("readable").expect("kept").first;
        let before = first(&store);
        vfs.write(ino, 0, &[99; 10_000], false).expect("written");
        store.set_bytes_free(bytes_free);
        store.set_faults(Faults { count: 1, ..commits_fail(StoreErrorKind::Full) });
        assert_eq!(vfs.sync().is_ok(), has_yielded);
        assert_eq!(first(&store) > before, has_yielded);
        assert_eq!(store.faults_met(), 1);
        vfs.sync().expect("committed");
        assert_eq!(vfs.read(ino, 0, 4).expect("read").to_vec(), [99; 4]);
    }
}

/// All that may go goes at the first request that there is no room for, which names what keeps the
/// rest.
#[test]
fn the_first_request_refused_for_want_of_room_names_the_snapshot_that_keeps_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("volume");
    sqlite::create(&path, &VolumeOptions::default(), (0, 0), Timestamp(0)).expect("made");
    let store = Arc::new(CrashStore::over(sqlite::open(&path).expect("opens").store));
    let vfs = open(&store, None, options());
    vfs.keep_history("all forever", None).expect("kept");
    let ino = vfs.make(Caller::ROOT, Ino::ROOT, b"file", FILE).expect("made").ino;
    for round in 0..20 {
        vfs.write(ino, 0, &[round; 10_000], false).expect("written");
        vfs.sync().expect("committed");
    }
    vfs.create_snapshot("keeper", None).expect("taken");
    store.set_bytes_free(0);
    vfs.statfs().expect("told");
    // The present has all that it has.
    assert_eq!(vfs.write(ino, 0, &[99; 10_000], false).expect_err("full").kind(), ErrorKind::NoSpace);
    assert_eq!(vfs.stats().no_room, None);
    store.set_bytes_free(1 << 30);
    vfs.write(ino, 0, &[99; 10_000], false).expect("written");
    vfs.sync().expect("committed");
    store.set_bytes_free(0);
    vfs.statfs().expect("told");
    assert_eq!(vfs.write(ino, 0, &[100; 10_000], false).expect_err("full").kind(), ErrorKind::NoSpace);
    let why = vfs.stats().no_room.expect("noted");
    assert!(why.contains("snapshot 'keeper' keeps all of the history that there is"), "{why}");
}

#[test]
fn a_full_disk_refuses_data_but_lets_files_be_removed() {
    let store = store();
    let vfs = open(&store, None, options());
    let ino = vfs.make(Caller::ROOT, Ino::ROOT, b"file", FILE).expect("made").ino;
    vfs.write(ino, 0, &[1; 100_000], false).expect("written");
    vfs.commit().expect("committed");
    store.set_bytes_free(0);
    vfs.statfs().expect("told");
    assert_eq!(vfs.write(ino, 0, &[2; 10_000], false).expect_err("full").kind(), ErrorKind::NoSpace);
    vfs.unlink(Ino::ROOT, b"file").expect("unlinked");
    vfs.commit().expect("committed");
    assert_eq!(store.block_count(), 0);
    assert_eq!(vfs.make(Caller::ROOT, Ino::ROOT, b"file", FILE).expect_err("full").kind(), ErrorKind::NoSpace);
    // Nobody tells: whoever is about to refuse looks.
    store.set_bytes_free(1 << 30);
    let ino = vfs.make(Caller::ROOT, Ino::ROOT, b"file", FILE).expect("made").ino;
    vfs.write(ino, 0, &[2; 10_000], false).expect("written");
}

#[test]
fn what_is_said_to_be_available_can_be_written_and_no_more() {
    let store = store();
    let vfs = open(&store, None, options());
    let ino = vfs.make(Caller::ROOT, Ino::ROOT, b"file", FILE).expect("made").ino;
    vfs.commit().expect("committed");
    for spare in [0, 1 << 20, 4 << 20, (4 << 20) + 100_000] {
        store.set_bytes_free(spare);
        let told = vfs.statfs().expect("told");
        assert!(told.bytes_available <= told.bytes_free && told.bytes_free == spare);
        let len = usize::try_from(told.bytes_available).expect("little");
        let more = vfs.write(ino, 0, &vec![1; len + 1], false);
        assert_eq!(more.expect_err("one byte more").kind(), ErrorKind::NoSpace);
        vfs.write(ino, 0, &vec![1; len], false).expect("there is room for as much as is said");
        vfs.commit().expect("committed");
    }
}

#[test]
fn a_whiteout_in_the_intent_log_is_made_again() {
    let directory = tempfile::tempdir().expect("a directory");
    let log = || Some(IntentLog::open(&directory.path().join("log"), 1 << 20).expect("a log"));
    let store = store();
    let vfs = open(&store, log(), options());
    let made = vfs.make(Caller::ROOT, Ino::ROOT, b"file", FILE).expect("made");
    vfs.sync().expect("synced");
    vfs.rename_leaving_whiteout(Caller::ROOT, (Ino::ROOT, b"file"), (Ino::ROOT, b"moved"), RenameMode::Replace)
        .expect("renamed");
    let appended = vfs.stats().log_appends;
    vfs.sync().expect("synced");
    assert_eq!(vfs.stats().log_appends, appended + 1, "it is in the log alone");
    drop(vfs);
    store.crash(0);
    let vfs = open(&store, log(), options());
    let found = |name: &[u8]| vfs.lookup(Caller::ROOT, Ino::ROOT, name).expect("there");
    assert_eq!(found(b"moved").ino, made.ino);
    assert_eq!((found(b"file").kind, found(b"file").rdev), (Kind::CharDevice, 0));
}

#[test]
fn an_inode_that_counts_no_names_is_kept_as_long_as_one_leads_to_it() {
    let store = Arc::new(MemoryStore::new(VolumeOptions::default()));
    let open = || Vfs::open(store.clone(), None, options(), Arc::new(ManualClock::default())).expect("opens");
    let vfs = open();
    let ino = vfs.make(Caller::ROOT, Ino::ROOT, b"file", FILE).expect("made").ino;
    vfs.write(ino, 0, b"content", false).expect("written");
    vfs.close().expect("closed");
    let row = store.inodes(ino, 1).expect("readable").remove(0);
    let header = store.header().expect("readable");
    let damaged = InodeChange::Put(InodeRow { nlink: 0, ..row });
    let batch =
        Batch { commit: header.commit.next(), counters: header.counters, inodes: vec![damaged], ..Batch::default() };
    store.apply(&batch, Durability::Durable).expect("damaged");
    for _ in 0..2 {
        let vfs = open();
        let found = vfs.lookup(Caller::ROOT, Ino::ROOT, b"file").expect("found").ino;
        assert_eq!(vfs.read(found, 0, 100).expect("readable").to_vec(), b"content");
        vfs.close().expect("closed");
    }
    let vfs = open();
    vfs.unlink(Ino::ROOT, b"file").expect("removed");
    vfs.close().expect("closed");
    open().close().expect("closed");
    assert!(store.inodes(ino, 1).expect("readable").is_empty(), "nothing leads to it any more");
}
