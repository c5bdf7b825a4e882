//! Where programs sync, commits of the background are put off as long as the intent log has all
//! there is: nobody must notice.

use crate::{Volume, options, volume_options};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use weft_store::ErrorKind as StoreError;
use weft_store::log::IntentLog;
use weft_testkit::{CrashStore, Faults, check_rows};
use weft_vfs::{Ino, ManualClock, Options, Vfs};

/// Size of a log that is not half full before a test is over.
const AMPLE: u64 = 8 << 20;

/// Size of a log that is full after a few syncs.
const SCARCE: u64 = 1 << 10;

/// Syncs whose records an ample log holds in less than half of one of its halves.
const SYNCS: u32 = 2000;

/// Longest wait for work in the background.
const PATIENCE: Duration = Duration::from_mins(1);

/// A volume with an intent log, and commits in the background at short intervals.
struct Logged {
    volume: Volume,
    directory: TempDir,
    log_bytes: u64,
}

impl Logged {
    fn new(log_bytes: u64) -> Logged {
        let store = Arc::new(CrashStore::new(volume_options()));
        let directory = tempfile::tempdir().expect("a directory");
        Logged::open(store, directory, log_bytes)
    }

    fn open(store: Arc<CrashStore>, directory: TempDir, log_bytes: u64) -> Logged {
        let log = IntentLog::open(&directory.path().join("log"), log_bytes).expect("a log");
        let clock = Arc::new(ManualClock::default());
        let (commit_interval, defer_max) = (Duration::from_millis(2), Duration::from_millis(20));
        let options = Options { background: true, commit_interval, defer_max, ..options() };
        let vfs = Vfs::open(store.clone(), Some(log.into()), options, clock.clone()).expect("opens");
        Logged { volume: Volume { store, clock, vfs }, directory, log_bytes }
    }

    /// Power is lost: nothing is written any more, and what was not synced is gone.
    fn crashed(self) -> Logged {
        let Volume { store, vfs, .. } = self.volume;
        store.set_faults(Faults { count: u32::MAX, kind: StoreError::Unavailable, ..Faults::NONE });
        let last = Arc::downgrade(&vfs);
        drop(vfs);
        // The committer has it until its interval is over.
        eventually("the committer ends", || last.strong_count() == 0);
        store.crash(0);
        store.set_faults(Faults::NONE);
        Logged::open(store, self.directory, self.log_bytes)
    }

    /// Commits all there is: the background does nothing then before the next change.
    fn commit(&self) {
        self.volume.vfs.commit().expect("committed");
    }

    /// Waits until the background has made all changes so far durable.
    fn await_durable(&self) {
        let (target, _) = self.volume.vfs.progress();
        eventually("nobody syncs it, and it is durable all the same", || self.volume.vfs.progress().1 >= target);
    }

    /// Writes the number `n` to its place in the file.
    fn put(&self, ino: Ino, n: u32) {
        self.volume.write(ino, u64::from(n) * 4, &n.to_le_bytes());
    }

    /// Does so, and sees that it is durable.
    fn put_and_sync(&self, ino: Ino, n: u32) {
        self.put(ino, n);
        self.volume.vfs.sync().expect("synced");
    }

    /// Checks that the numbers below `count` are in their places, and nothing else.
    fn assert_numbers(&self, ino: Ino, count: u32) {
        let expected = (0..count).flat_map(u32::to_le_bytes).collect::<Vec<_>>();
        assert!(self.volume.read(ino, 0, 1 << 20) == expected, "the numbers below {count}");
    }
}

/// Waits until `what` is so, which must not take forever.
fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "never: {what}");
        std::thread::yield_now();
    }
}

#[test]
fn what_is_synced_over_and_over_survives_crashes() {
    for log_bytes in [AMPLE, SCARCE] {
        let mut logged = Logged::new(log_bytes);
        let ino = logged.volume.file("file");
        let mut count = 0;
        for syncs in (1..=50).map(|round| round * 7 % 31) {
            (count..count + syncs).for_each(|number| logged.put_and_sync(ino, number));
            count += syncs;
            logged = logged.crashed();
            logged.assert_numbers(ino, count);
        }
        logged.commit();
        check_rows(&*logged.volume.store).expect("the rows agree");
    }
}

#[test]
fn what_nobody_syncs_after_another_sync_survives_a_crash_a_little_later() {
    let mut logged = Logged::new(AMPLE);
    let ino = logged.volume.file("file");
    for number in (0..20).step_by(2) {
        logged.put_and_sync(ino, number);
        logged.put(ino, number + 1);
        logged.await_durable();
        logged = logged.crashed();
        logged.assert_numbers(ino, number + 2);
    }
}

/// Else it would be lost in a crash for as long as the commit is put off.
#[test]
fn the_log_has_what_nobody_syncs_before_the_commit_that_is_put_off() {
    let logged = Logged::new(AMPLE);
    let ino = logged.volume.file("file");
    let mut numbers = 0..;
    let mut put = || logged.put(ino, numbers.next().expect("endless"));
    // An interval may end between a change and its sync: then nothing is put off that time.
    eventually("the log has it, and no commit", || {
        logged.commit();
        put();
        logged.volume.vfs.sync().expect("synced");
        let before = logged.volume.vfs.stats();
        put();
        logged.await_durable();
        let after = logged.volume.vfs.stats();
        after.commits == before.commits && after.log_appends > before.log_appends
    });
}

#[test]
fn a_commit_comes_in_the_end_although_programs_go_on_syncing() {
    let logged = Logged::new(AMPLE);
    let ino = logged.volume.file("file");
    logged.commit();
    logged.put_and_sync(ino, 0);
    let (tell, committed) = channel();
    logged.volume.store.when_stored(move || tell.send(()).expect("somebody waits"));
    let mut count = 1;
    while count < SYNCS && committed.try_recv().is_err() {
        logged.put_and_sync(ino, count);
        count += 1;
    }
    if count == SYNCS {
        // More would fill the log, and what makes the commit come must not be that.
        committed.recv_timeout(PATIENCE).expect("a commit comes");
    }
    let logged = logged.crashed();
    logged.assert_numbers(ino, count);
}

#[test]
fn where_nobody_syncs_changes_are_committed_and_not_logged() {
    let logged = Logged::new(AMPLE);
    let ino = logged.volume.file("file");
    for number in 0..10 {
        let before = logged.volume.vfs.stats().commits;
        logged.put(ino, number);
        eventually("a commit", || logged.volume.vfs.stats().commits > before);
    }
    assert_eq!(logged.volume.vfs.stats().log_appends, 0);
}
