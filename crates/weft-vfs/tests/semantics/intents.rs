//! A volume in files after a crash, with an intent log that is missing, damaged, or of another
//! moment: it has all that was synced, or it is refused and stays as it was.

mod begun;
mod segments;

use crate::crashed::{Crashed, Named};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;
use weft_block::Rope;
use weft_store::Timestamp;
use weft_store::log::{IntentLog, Loss};
use weft_store::sqlite::{self, check};
use weft_store::{
    Batch, BlockHome, BlockId, CheckOptions, CommitStore, Durability, InodeChange, NewBlock, Outcome, Place, Repair,
    RowStore,
};
use weft_store::{VolumeOptions, Waiting};
use weft_vfs::{Caller, ErrorKind, Ino, ManualClock, Options, SetAttributes, UnappliedList, Vfs};

const LOG_BYTES: u64 = 64 << 10;

const HOMES: [BlockHome; 2] = [BlockHome::Segments, BlockHome::Database];

/// Bytes of a file whose content lies in one block.
const BLOCK: usize = 4096;

/// A volume in a directory of its own.
struct Files {
    directory: TempDir,
    home: BlockHome,
}

struct Mounted {
    vfs: Arc<Vfs>,
    store: Arc<sqlite::SqliteStore>,
    set_aside: Vec<PathBuf>,
}

impl Files {
    fn new(home: BlockHome) -> Files {
        let files = Files { directory: tempfile::tempdir().expect("a directory"), home };
        let options = VolumeOptions { block_size: 4096, inline_max: 100, home, ..VolumeOptions::default() };
        sqlite::create(&files.path(), &options, (0, 0), Timestamp(0)).expect("created");
        files
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("volume")
    }

    fn log(&self) -> PathBuf {
        let (path, name) = (self.path(), self.directory.path().join("volume-intents"));
        if self.home == BlockHome::Segments { path.join("intents") } else { name }
    }

    /// Copies the files as a crash would leave them now, to a directory of their own.
    fn crashed(&self) -> Files {
        let copy = Files { directory: tempfile::tempdir().expect("a directory"), home: self.home };
        copy_all(self.directory.path(), copy.directory.path());
        copy
    }
}

fn copy_all(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("made");
    for entry in fs::read_dir(from).expect("readable") {
        let (path, name) = entry.map(|entry| (entry.path(), entry.file_name())).expect("an entry");
        if path.is_dir() {
            copy_all(&path, &to.join(name));
        } else if !name.to_string_lossy().ends_with("-shm") {
            fs::copy(&path, to.join(name)).expect("copied");
        }
    }
}

impl Crashed for Files {
    type Mounted = Mounted;
    type Content = BTreeMap<PathBuf, Vec<u8>>;

    fn try_mount(&self, loss: Loss) -> Result<Mounted, String> {
        let volume = sqlite::open_with(&self.path(), loss).map_err(|error| error.to_string())?;
        let log = IntentLog::open(&volume.layout.log, LOG_BYTES).expect("a log").with(loss);
        let options = Options { background: false, ..Options::default() };
        let clock = Arc::new(ManualClock::default());
        let vfs =
            Vfs::open(volume.store.clone(), Some(log.into()), options, clock).map_err(|error| error.to_string())?;
        Ok(Mounted { vfs, store: volume.store, set_aside: volume.set_aside })
    }

    /// All that the volume consists of, but for what SQLite makes of the rest.
    fn content(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut found = BTreeMap::new();
        let mut waiting = vec![self.directory.path().to_path_buf()];
        while let Some(directory) = waiting.pop() {
            for entry in fs::read_dir(directory).expect("readable") {
                let path = entry.expect("an entry").path();
                if path.is_dir() {
                    waiting.push(path);
                } else if !path.to_string_lossy().ends_with("-shm") {
                    let content = fs::read(&path).expect("readable");
                    // SQLite removes an empty log.
                    if !(content.is_empty() && path.to_string_lossy().ends_with("-wal")) {
                        found.insert(path, content);
                    }
                }
            }
        }
        found
    }
}

impl Named for Mounted {
    fn vfs(&self) -> &Vfs {
        &self.vfs
    }
}

impl Mounted {
    fn close(self) {
        self.vfs.close().expect("closed");
    }
}

/// A volume that crashed with one file committed, and two in its log.
fn with_records(home: BlockHome) -> Files {
    let files = Files::new(home);
    let mounted = files.mount();
    mounted.put_and_sync("committed", &[1; 3000]);
    mounted.vfs.commit().expect("committed");
    for round in 0..15 {
        mounted.put_and_sync("first", &[round; 3000]);
    }
    mounted.put_and_sync("second", b"small");
    files.crashed()
}

#[track_caller]
fn assert_all(mounted: &Mounted) {
    assert_eq!(mounted.get("committed"), Ok(vec![1; 3000]));
    assert_eq!(mounted.get("first"), Ok(vec![14; 3000]));
    assert_eq!(mounted.get("second").as_deref(), Ok(&b"small"[..]));
}

#[test]
fn whatever_byte_of_the_log_is_flipped_a_mount_has_all_or_is_refused() {
    let files = with_records(BlockHome::Segments);
    let size = fs::metadata(files.log()).expect("there").len();
    let mut refusals = 0;
    for (at, bit) in (13..size).step_by(1117).zip((0..8).cycle()) {
        let flipped = files.crashed();
        let file = fs::OpenOptions::new().read(true).write(true).open(flipped.log()).expect("opens");
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).expect("read");
        file.write_all_at(&[byte[0] ^ 1 << bit], at).expect("flipped");
        match flipped.try_mount(Loss::Refuse) {
            Ok(mounted) => assert_all(&mounted),
            Err(_) => {
                refusals += 1;
                flipped.assert_refused("is damaged");
            }
        }
    }
    assert!(refusals > 10, "only {refusals}");
}

#[test]
fn a_log_that_is_left_out_of_a_copy_after_a_crash_is_missed() {
    for home in HOMES {
        let files = with_records(home);
        assert_all(&files.crashed().mount());
        fs::remove_file(files.log()).expect("removed");
        files.assert_refused("is missing");
        let accepted = files.try_mount(Loss::Accept).expect("accepted");
        assert_eq!(accepted.get("committed"), Ok(vec![1; 3000]));
        accepted.put_and_sync("later", b"works");
        let again = files.crashed();
        drop(accepted);
        assert_eq!(again.mount().get("later").as_deref(), Ok(&b"works"[..]));
    }
}

#[test]
fn a_volume_that_was_unmounted_opens_without_its_log() {
    for home in HOMES {
        let files = with_records(home);
        files.mount().close();
        fs::remove_file(files.log()).expect("removed");
        assert_all(&files.mount());
    }
}

#[test]
fn a_log_of_another_moment_or_volume_is_refused() {
    let files = with_records(BlockHome::Segments);
    let earlier = files.crashed();
    files.mount().close();
    let mounted = files.mount();
    mounted.put_and_sync("first", b"now");
    let later = files.crashed();
    drop(mounted);
    // The database and the segments of now with the log of then, and the other way round.
    fs::copy(later.log(), earlier.directory.path().join("log of now")).expect("copied");
    fs::copy(earlier.log(), later.log()).expect("copied");
    later.assert_refused("older than the database");
    fs::copy(earlier.directory.path().join("log of now"), earlier.log()).expect("copied");
    earlier.assert_refused("the database is older");
    let other = with_records(BlockHome::Segments);
    fs::copy(other.log(), files.log()).expect("copied");
    files.assert_refused("another volume");
}

#[test]
fn a_database_from_before_a_commit_that_the_log_follows_is_refused() {
    let files = Files::new(BlockHome::Database);
    let mounted = files.mount();
    mounted.put_and_sync("file", &[1; 3000]);
    let earlier = files.crashed();
    mounted.vfs.commit().expect("committed");
    mounted.put_and_sync("file", &[2; 3000]);
    let later = files.crashed();
    fs::copy(later.log(), earlier.log()).expect("copied");
    earlier.assert_refused("the database is older");
    assert_eq!(later.mount().get("file"), Ok(vec![2; 3000]));
    // No commit lies between the one that the database has and the first record.
    assert_eq!(earlier.try_mount(Loss::Accept).expect("accepted").get("file"), Ok(vec![2; 3000]));
}

/// A volume that crashed with one file committed, whose operations are in the log or not, and two
/// in its log.
fn with_one_commit(home: BlockHome, is_logged: bool) -> Files {
    let files = Files::new(home);
    let mounted = files.mount();
    match is_logged {
        true => mounted.put_and_sync("committed", &[1; 3000]),
        false => mounted.put("committed", &[1; 3000]),
    }
    mounted.vfs.commit().expect("committed");
    mounted.put_and_sync("first", &[14; 3000]);
    mounted.put_and_sync("second", b"small");
    files.crashed()
}

/// The volume's own row is an older one then, and its rows have more operations than it says.
#[test]
fn a_salvage_applies_no_operation_to_rows_that_have_it() {
    for (home, is_logged) in HOMES.into_iter().flat_map(|home| [(home, true), (home, false)]) {
        let files = with_one_commit(home, is_logged);
        files.lose_wal(Lost::Start);
        files.assert_refused("its header is damaged");
        let new = Files { directory: tempfile::tempdir().expect("a directory"), home };
        let told = sqlite::salvage(&files.path(), &new.path(), &mut |_| {}).expect("brought");
        let mounted = new.try_mount(Loss::Refuse).unwrap_or_else(|why| panic!("{why}: {told:?}"));
        assert_all(&mounted);
    }
}

#[test]
fn a_lost_write_ahead_log_costs_nothing_that_the_intent_log_still_has() {
    for home in HOMES {
        let files = with_one_commit(home, true);
        files.lose_wal(Lost::Removed);
        files.assert_refused("which go on from that commit");
        let new = Files { directory: tempfile::tempdir().expect("a directory"), home };
        let told = sqlite::salvage(&files.path(), &new.path(), &mut |_| {}).expect("brought");
        assert!(told.waiting > 2 && !told.missing.is_empty(), "{told:?}");
        assert_all(&new.mount());
        let mounted = files.try_mount(Loss::Accept).expect("accepted");
        assert_all(&mounted);
        mounted.close();
        assert_all(&files.mount());
    }
}

/// Way in which a write-ahead log is lost.
#[derive(Clone, Copy, Debug)]
enum Lost {
    Removed,
    /// Three wrong bytes in its first frame, which SQLite takes for a torn one.
    Damaged,
    Halved,
    Zeroed,
    /// Zeros in its first sector.
    Start,
}

impl Files {
    fn lose_wal(&self, how: Lost) {
        let directory = self.home == BlockHome::Segments;
        let wal = self.directory.path().join(if directory { "volume/meta.sqlite-wal" } else { "volume-wal" });
        let mut bytes = fs::read(&wal).expect("there is one");
        let size = bytes.len();
        match how {
            Lost::Removed => return fs::remove_file(wal).expect("removed"),
            Lost::Damaged => [100, 1000, 2000].iter().filter(|at| **at < size).for_each(|at| bytes[*at] ^= 0x55),
            Lost::Halved => bytes.truncate(size / 2),
            Lost::Start => bytes[..512].fill(0),
            Lost::Zeroed => {
                let written = bytes.chunks_mut(512).skip(1).find(|sector| sector.iter().any(|byte| *byte != 0));
                written.into_iter().for_each(|sector| sector.fill(0));
            }
        }
        fs::write(wal, bytes).expect("written");
    }
}

#[test]
fn a_lost_write_ahead_log_is_missed_once_an_fsync_was_answered_by_a_commit() {
    for home in HOMES {
        for how in [Lost::Removed, Lost::Damaged, Lost::Halved, Lost::Zeroed] {
            let files = Files::new(home);
            let mounted = files.mount();
            // Only commits can answer an fsync here: one that a power cut may undo lies below.
            for round in 0..3 {
                mounted.put(&format!("file {round}"), &[round; 3000]);
                mounted.vfs.commit().expect("committed");
                mounted.put_and_sync(&format!("other {round}"), &[round; 3000]);
            }
            let appends = mounted.vfs.stats().log_appends;
            assert_eq!(appends, 0, "no record names a commit");
            let crashed = files.crashed();
            assert_eq!(crashed.crashed().mount().get("other 2"), Ok(vec![2; 3000]));
            crashed.lose_wal(how);
            crashed.assert_refused("names commit");
            let options = CheckOptions { repair: Repair::No, read_data: false };
            let findings = check(&crashed.path(), options, &mut |_| {}).expect("checked");
            let told = |what: &str| what.contains("names commit") && what.contains("--accept-loss");
            assert!(findings.iter().any(|f| f.outcome == Outcome::Damaged && told(&f.what)), "{how:?}: {findings:?}");
            let waiting = sqlite::waiting(&crashed.path()).expect("looked at");
            assert!(waiting.lost.is_some_and(|lost| told(&lost)), "{how:?}");
            let accepted = crashed.try_mount(Loss::Accept).expect("accepted");
            accepted.put_and_sync("later", b"works");
            let again = crashed.crashed();
            drop(accepted);
            assert_eq!(again.mount().get("later").as_deref(), Ok(&b"works"[..]));
        }
    }
}

#[test]
fn what_is_durable_already_is_named_by_the_first_fsync_that_asks_for_it() {
    let files = Files::new(BlockHome::Segments);
    let mounted = files.mount();
    mounted.put("file", &[1; 3000]);
    // A commit is durable if the log has anything in it.
    mounted.vfs.record().expect("recorded");
    mounted.vfs.commit().expect("committed");
    let (commits, before) = (mounted.vfs.stats().commits, fs::read(files.log()).expect("readable"));
    let (last, durable) = mounted.vfs.progress();
    assert_eq!(last, durable);
    mounted.vfs.sync().expect("synced");
    let after = fs::read(files.log()).expect("readable");
    assert_eq!(mounted.vfs.stats().commits, commits);
    assert!(before != after, "its header names the commit");
    mounted.vfs.sync().expect("synced");
    assert!(fs::read(files.log()).expect("readable") == after, "once");
    let crashed = files.crashed();
    crashed.lose_wal(Lost::Removed);
    crashed.assert_refused("names commit");
}

#[test]
fn without_an_intent_log_what_an_fsync_acknowledged_is_in_the_database_itself() {
    for home in HOMES {
        for how in [Lost::Removed, Lost::Damaged, Lost::Zeroed] {
            let files = Files::new(home);
            let mounted = files.mount();
            mounted.put_and_sync("file", b"first");
            fs::remove_file(files.log()).expect("removed");
            for round in 0..3 {
                mounted.put_and_sync("file", &[round; 3000]);
                let crashed = files.crashed();
                crashed.lose_wal(how);
                assert_eq!(crashed.mount().get("file"), Ok(vec![round; 3000]), "{home:?}, {how:?}");
            }
        }
    }
}

#[test]
fn accepted_loss_keeps_copies_and_goes_on_with_what_comes_before() {
    let files = with_records(BlockHome::Segments);
    let damaged = fs::read(files.log()).expect("readable");
    // The last sync knows of those before it.
    let at = damaged.windows(100).rposition(|bytes| bytes == [14; 100]).expect("there");
    let file = fs::OpenOptions::new().write(true).open(files.log()).expect("opens");
    file.write_all_at(&[7], at as u64).expect("damaged");
    files.assert_refused("is damaged at byte");
    let before = files.content();
    let findings = check(&files.path(), CheckOptions { repair: Repair::No, read_data: false }, &mut |_| {});
    let findings = findings.expect("checked");
    assert!(findings.iter().any(|f| f.outcome == Outcome::Damaged && f.what.contains("is damaged at byte")));
    let mounted = files.try_mount(Loss::Accept).expect("accepted");
    assert_eq!(mounted.get("committed"), Ok(vec![1; 3000]));
    assert_eq!(mounted.get("first"), Ok(vec![13; 3000]));
    assert_eq!(mounted.get("second"), Err(ErrorKind::NotFound));
    let log = mounted.set_aside.iter().find(|path| path.ends_with("intents.aside-1")).expect("kept");
    assert_eq!(fs::metadata(log).expect("there").permissions().mode() & 0o777, 0o600);
    assert!(fs::read(log).expect("readable") == before[&files.log()], "another log");
    mounted.close();
    files.mount();
}

/// The disk, or a copy that was ended, kept the start of the log alone.
#[test]
fn what_precedes_the_end_of_a_log_that_is_cut_short_is_kept() {
    for home in HOMES {
        let files = with_records(home);
        let whole = fs::read(files.log()).expect("readable");
        let last = whole.windows(5).rposition(|bytes| bytes == b"small").expect("there");
        // Where nothing was ever written, and in the last record.
        for (cut, second) in [(whole.len() - 4096, Ok(b"small".to_vec())), (last, Err(ErrorKind::NotFound))] {
            let cut_files = files.crashed();
            let file = fs::OpenOptions::new().write(true).open(cut_files.log()).expect("opens");
            file.set_len(cut as u64).expect("cut");
            cut_files.assert_refused(&format!("is cut short at byte {cut}"));
            let new = Files { directory: tempfile::tempdir().expect("a directory"), home };
            sqlite::salvage(&cut_files.path(), &new.path(), &mut |_| {}).expect("brought");
            let accepted = cut_files.try_mount(Loss::Accept).expect("accepted");
            for mounted in [accepted, new.mount()] {
                assert_eq!(mounted.get("committed"), Ok(vec![1; 3000]));
                assert_eq!(mounted.get("first"), Ok(vec![14; 3000]));
                assert_eq!(mounted.get("second"), second);
                mounted.close();
            }
        }
    }
}

/// Flips a byte of the one block of `name`, or sets it back.
fn flip_block(files: &Files, mounted: &Mounted, name: &str) {
    let ino = mounted.vfs.lookup(Caller::ROOT, Ino::ROOT, name.as_bytes()).expect("there").ino;
    let block = mounted.store.extents(ino, 0..1).expect("readable")[0].1;
    let Place::Segment { segment, offset } = block.place else { panic!("it lies in a segment") };
    let path = files.path().join(format!("segments/{segment:08}.seg"));
    let file = fs::OpenOptions::new().read(true).write(true).open(path).expect("opens");
    let (mut byte, at) = ([0], offset + 2000);
    file.read_exact_at(&mut byte, at).expect("read");
    file.write_all_at(&[byte[0] ^ 1], at).expect("flipped");
}

#[test]
fn what_was_synced_over_a_damaged_block_is_kept_until_it_can_be_stored() {
    let mut files = Files::new(BlockHome::Segments);
    let mut mounted = files.mount();
    mounted.put("file", &[1; BLOCK]);
    mounted.put_and_sync("other", &[1; BLOCK]);
    mounted.vfs.commit().expect("committed");
    let commits = mounted.vfs.stats().commits;
    mounted.put_and_sync("file", b"synced");
    assert_eq!(mounted.vfs.stats().commits, commits, "the log alone has it");
    flip_block(&files, &mounted, "file");
    for round in 0..4u8 {
        files = files.crashed();
        mounted = files.mount();
        assert_eq!(mounted.get("file"), Err(ErrorKind::Corrupt), "its rest is damaged");
        // Commits of the rest go on, and what cannot be stored stays beside them.
        mounted.put("other", &[round; BLOCK]);
        let failed = mounted.vfs.commit().expect_err("a part cannot be stored");
        assert_eq!(failed.kind(), ErrorKind::Corrupt);
        mounted.put_and_sync("second", &[round; 10]);
    }
    files = files.crashed();
    mounted = files.mount();
    flip_block(&files, &mounted, "file");
    files = files.crashed();
    mounted = files.mount();
    assert_eq!(mounted.get("file"), Ok([&b"synced"[..], &[1; BLOCK - 6]].concat()));
    assert_eq!(mounted.get("other"), Ok(vec![3; BLOCK]));
    assert_eq!(mounted.get("second"), Ok(vec![3; 10]));
    mounted.close();
    assert_eq!(files.mount().get("file"), Ok([&b"synced"[..], &[1; BLOCK - 6]].concat()));
}

/// The same of a block that is damaged below the mount: whatever a crash leaves behind the commit
/// that could not store it, and of whatever later one.
#[test]
fn what_was_synced_over_a_block_is_kept_by_commits_alone_that_cannot_store_it() {
    let files = Files::new(BlockHome::Segments);
    let mounted = files.mount();
    mounted.put_and_sync("file", &[1; BLOCK]);
    mounted.vfs.commit().expect("committed");
    flip_block(&files, &mounted, "file");
    mounted.put_and_sync("file", b"synced");
    for round in 0..3u8 {
        mounted.vfs.commit().expect_err("a part cannot be stored");
        let crashed = files.crashed();
        flip_block(&crashed, &mounted, "file");
        let remounted = crashed.mount();
        let expected = [&b"synced"[..], &[1; BLOCK - 6]].concat();
        assert_eq!(remounted.get("file"), Ok(expected), "after {round} more that were synced");
        mounted.put_and_sync("other", &[round; 10]);
    }
}

/// Without a log, data in memory alone is never acknowledged, however often a sync is tried.
#[test]
fn what_no_place_keeps_is_no_more_durable_the_second_time() {
    let files = Files::new(BlockHome::Segments);
    let mounted = files.mount();
    mounted.put("file", &[1; BLOCK]);
    mounted.vfs.commit().expect("committed");
    fs::remove_file(files.log()).expect("removed");
    flip_block(&files, &mounted, "file");
    mounted.put("file", b"in memory");
    for _ in 0..3 {
        let error = mounted.vfs.sync().expect_err("no place keeps it");
        assert_eq!(error.kind(), ErrorKind::Corrupt);
    }
    // Nor does a commit take it for stored: the log that is gone is missed after a crash.
    let crashed = files.crashed();
    crashed.assert_refused("the intent log");
    flip_block(&files, &mounted, "file");
    mounted.vfs.sync().expect("it can be stored");
    assert_eq!(files.crashed().mount().get("file"), Ok([&b"in memory"[..], &[1; BLOCK - 9]].concat()));
}

#[test]
fn where_the_log_is_removed_or_replaced_each_fsync_becomes_a_commit() {
    for is_replaced in [false, true] {
        let files = Files::new(BlockHome::Segments);
        let mounted = files.mount();
        mounted.put_and_sync("file", b"first");
        fs::rename(files.log(), files.directory.path().join("elsewhere")).expect("moved");
        if is_replaced {
            fs::write(files.log(), "another").expect("made");
        }
        mounted.put("file", b"other");
        mounted.vfs.commit().expect("committed");
        let appends = mounted.vfs.stats().log_appends;
        mounted.put_and_sync("file", b"third");
        assert_eq!(mounted.vfs.stats().log_appends, appends);
        let crashed = files.crashed();
        if is_replaced {
            crashed.assert_refused("is not an intent log");
            fs::remove_file(crashed.log()).expect("removed");
        }
        assert_eq!(crashed.mount().get("file").as_deref(), Ok(&b"third"[..]));
        mounted.close();
        assert_eq!(fs::read(files.log()).is_ok(), is_replaced, "it is left alone");
    }
}

#[test]
fn the_first_fsync_after_the_log_was_removed_is_a_commit() {
    for record in [false, true] {
        let files = Files::new(BlockHome::Segments);
        let mounted = files.mount();
        mounted.put_and_sync("file", b"first");
        fs::rename(files.log(), files.directory.path().join("elsewhere")).expect("moved");
        if record {
            mounted.put("file", b"other");
            mounted.vfs.record().expect("recorded");
        } else {
            mounted.put_and_sync("file", b"other");
        }
        assert_eq!(files.crashed().mount().get("file").as_deref(), Ok(&b"other"[..]));
        mounted.close();
    }
}

#[test]
fn check_tells_of_a_log_that_is_missed() {
    let files = with_records(BlockHome::Database);
    let options = CheckOptions { repair: Repair::No, read_data: false };
    let outcomes = |outcome| {
        let findings = check(&files.path(), options, &mut |_| {}).expect("checked");
        findings.into_iter().filter(|finding| finding.outcome == outcome).map(|f| f.what).collect::<Vec<_>>()
    };
    let is_told = |outcome, words: &str| outcomes(outcome).iter().any(|what| what.contains(words));
    assert!(is_told(Outcome::Note, "operations wait in the intent log; a mount applies them"));
    assert_eq!(outcomes(Outcome::Damaged), Vec::<String>::new());
    fs::remove_file(files.log()).expect("removed");
    assert!(is_told(Outcome::Damaged, "is missing"));
}

#[test]
fn a_log_is_looked_at_without_a_mount_and_beside_none() {
    for home in HOMES {
        let files = with_records(home);
        let waiting = || sqlite::waiting(&files.path()).expect("told");
        let scrub = || sqlite::scrub(&files.path(), &mut |_| {}).expect("scrubbed");
        let before = files.content();
        let found = waiting();
        assert!(found.operations > 0 && found.lost.is_none(), "{found:?}");
        assert_eq!(scrub(), []);
        assert!(files.content() == before, "looking changes nothing");
        let log = fs::read(files.log()).expect("readable");
        fs::remove_file(files.log()).expect("removed");
        let lost = waiting().lost.expect("missed");
        assert!(lost.contains("is missing") && lost.contains("--accept-loss"), "{lost}");
        let findings = scrub();
        assert!(findings.len() == 1 && findings[0].outcome == Outcome::Damaged, "{findings:?}");
        assert_eq!(findings[0].what, lost);
        fs::write(files.log(), log).expect("put back");
        let mounted = files.mount();
        mounted.put_and_sync("first", b"under a mount");
        assert_eq!(waiting(), Waiting { is_held: true, ..Waiting::default() }, "its daemon knows");
        mounted.close();
        assert_eq!(waiting(), Waiting::default(), "all is in the database");
    }
}

#[test]
fn a_name_whose_inode_is_gone_is_removed_by_a_repair_alone_as_the_error_says() {
    let files = Files::new(BlockHome::Database);
    let mounted = files.mount();
    mounted.put_and_sync("gone", b"small");
    let ino = mounted.vfs.lookup(Caller::ROOT, Ino::ROOT, b"gone").expect("there").ino;
    mounted.close();
    let store = sqlite::open(&files.path()).expect("opens").store;
    let header = store.header().expect("readable");
    let inodes = vec![InodeChange::Remove(ino)];
    let batch = Batch { commit: header.commit.next(), counters: header.counters, inodes, ..Batch::default() };
    store.apply(&batch, Durability::Durable).expect("applied");
    drop(store);
    for repair in [Repair::No, Repair::Yes, Repair::Discard] {
        let mounted = files.mount();
        let error = mounted.vfs.unlink(Ino::ROOT, b"gone").expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        let why = format!("{error:?}");
        let told = ["the row of /gone is gone", "'weft check --repair'", "with --discard that removes the name"];
        assert!(told.iter().all(|words| why.contains(words)), "{why}");
        mounted.close();
        let findings = check(&files.path(), CheckOptions { repair, read_data: false }, &mut |_| {}).expect("checked");
        let entry = findings.iter().find(|finding| finding.path.as_deref() == Some(b"/gone")).expect("told");
        assert_eq!(entry.outcome == Outcome::Repaired, repair == Repair::Discard, "{findings:?}");
    }
    assert_eq!(files.mount().get("gone"), Err(ErrorKind::NotFound));
}

/// A volume that crashed, with the log of another that had begun as the same and then took another
/// turn: one in which `theirs` was committed before `logged` was done, and not `ours`.
fn of_another_turn(
    home: BlockHome,
    ours: impl Fn(&Mounted),
    theirs: impl Fn(&Mounted),
    logged: impl Fn(&Mounted),
) -> Files {
    let base = Files::new(home);
    base.mount().close();
    let turn = |committed: &dyn Fn(&Mounted), synced: &dyn Fn(&Mounted)| {
        let files = base.crashed();
        let mounted = files.mount();
        mounted.put("kept", b"old");
        committed(&mounted);
        mounted.vfs.commit().expect("committed");
        // A log stands on a durable commit alone.
        mounted.vfs.sync().expect("synced");
        synced(&mounted);
        files.crashed()
    };
    let (files, other) = (turn(&ours, &|_| ()), turn(&theirs, &logged));
    fs::copy(other.log(), files.log()).expect("copied");
    // The epochs of two mounts are never the same.
    let epoch = sqlite::header(&other.path()).expect("readable").counters.epoch;
    sqlite::edit(&files.path(), &format!("UPDATE volume SET epoch = {epoch}")).expect("edited");
    sqlite::seal(&files.path()).expect("sealed");
    files
}

fn rehearsed(files: &Files) -> UnappliedList {
    let volume = sqlite::open_to_read(&files.path(), Loss::Refuse).expect("opens");
    let log = IntentLog::read(&volume.layout.log).expect("readable");
    Vfs::rehearse(volume.store, log.map(Into::into)).expect("tried")
}

/// An operation that was synced and that the volume does not take any more is told by its number,
/// kind and path; accepted, it alone is given up.
#[test]
fn an_operation_that_cannot_be_applied_is_named_and_given_up_alone() {
    for home in HOMES {
        let logged = |mounted: &Mounted| {
            mounted.vfs.unlink(Ino::ROOT, b"gone").expect("removed");
            mounted.put("kept", b"new");
            mounted.put_and_sync("later", b"small");
        };
        let files = of_another_turn(home, |ours| ours.put("other", b""), |theirs| theirs.put("gone", b""), logged);
        files.assert_refused("the removal of /gone, was synced and cannot be applied: No such file or directory");
        let before = files.content();
        let found = rehearsed(&files);
        assert!(files.content() == before, "a rehearsal changes nothing");
        let [unapplied] = &found.named[..] else { panic!("{found:?}") };
        assert_eq!((&unapplied.path[..], unapplied.kind), (&b"/gone"[..], "the removal"));
        let log = fs::read(files.log()).expect("readable");
        let mounted = files.try_mount(Loss::Accept).expect("accepted");
        assert_eq!(mounted.get("kept").as_deref(), Ok(&b"new"[..]));
        assert_eq!(mounted.get("later").as_deref(), Ok(&b"small"[..]));
        assert!(fs::read(files.log().with_added_extension("aside-1")).expect("kept aside") == log);
        mounted.put_and_sync("after", b"works");
        let again = files.crashed();
        mounted.close();
        for files in [again, files] {
            let mounted = files.mount();
            assert_eq!(mounted.get("after").as_deref(), Ok(&b"works"[..]));
            assert_eq!(mounted.get("later").as_deref(), Ok(&b"small"[..]));
        }
    }
}

/// Operations that depend on one that cannot be applied are given up with it, and no others.
#[test]
fn all_that_was_done_to_a_file_that_is_gone_is_given_up_with_it() {
    let two = |mounted: &Mounted| {
        for permissions in [0o755, 0o700] {
            let changes = SetAttributes { permissions: Some(permissions), ..SetAttributes::default() };
            mounted.vfs.set_attributes(Ino::ROOT, changes).expect("set");
        }
    };
    let logged = |mounted: &Mounted| {
        mounted.put("lost", &[1; 3000]);
        mounted.put("other", &[2; 3000]);
        mounted.put_and_sync("lost", &[3; 5000]);
    };
    let files = of_another_turn(BlockHome::Segments, two, |theirs| theirs.put("lost", &[1; 10]), logged);
    files.assert_refused("and one more operation");
    let found = rehearsed(&files);
    assert_eq!(found.named.iter().map(|unapplied| unapplied.kind).collect::<Vec<_>>(), ["a write"; 2]);
    let mounted = files.try_mount(Loss::Accept).expect("accepted");
    assert_eq!(mounted.get("other"), Ok(vec![2; 3000]));
    assert_eq!(mounted.get("lost"), Err(ErrorKind::NotFound));
    mounted.close();
    assert_eq!(rehearsed(&files), UnappliedList::default());
}

/// A failed salvage removes everything that it brought, the intent log of the new volume included.
#[test]
fn a_salvage_that_fails_at_its_end_leaves_nothing() {
    for home in HOMES {
        let files = with_records(home);
        let place = tempfile::tempdir().expect("a directory");
        let new = place.path().join("new");
        let mut taken = |_| {
            fs::create_dir_all(new.join("taken")).expect("made");
        };
        sqlite::salvage(&files.path(), &new, &mut taken).expect_err("the name is taken meanwhile");
        let left = fs::read_dir(place.path()).expect("readable").map(|entry| entry.expect("an entry").file_name());
        assert_eq!(left.collect::<Vec<_>>(), ["new"], "{home:?}");
    }
}

#[test]
fn what_was_synced_over_a_damaged_block_is_in_what_a_salvage_brings() {
    for written in [BLOCK, 100] {
        let files = Files::new(BlockHome::Segments);
        let mounted = files.mount();
        mounted.put_and_sync("file", &[1; 3 * BLOCK]);
        mounted.vfs.commit().expect("committed");
        let commits = mounted.vfs.stats().commits;
        mounted.put_and_sync("file", &vec![7; written]);
        mounted.put_and_sync("later", b"synced");
        assert_eq!(mounted.vfs.stats().commits, commits, "the log alone has it");
        flip_block(&files, &mounted, "file");
        let new = Files { directory: tempfile::tempdir().expect("a directory"), home: BlockHome::Segments };
        let told = sqlite::salvage(&files.crashed().path(), &new.path(), &mut |_| {}).expect("brought");
        assert!(told.missing.iter().all(|missing| missing.kind == "bytes"), "{:?}", told.missing);
        let mounted = new.mount();
        assert_eq!(mounted.get("later").as_deref(), Ok(&b"synced"[..]));
        let whole = [vec![7; BLOCK], vec![1; 2 * BLOCK]].concat();
        let expected = if written == BLOCK { Ok(whole) } else { Err(ErrorKind::Corrupt) };
        assert_eq!(mounted.get("file"), expected);
    }
}
