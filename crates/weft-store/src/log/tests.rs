mod direct;

use super::scan::sectors;
use super::sector::SECTOR;
use super::slot::HEADER_BYTES;
use super::*;
use crate::memory::MemoryStore;
use crate::store::{RowStore, VolumeOptions};
use crate::{Counters, Error};
use proptest::prelude::*;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const BYTES: u64 = 64 << 10;

/// The epoch of a volume that was not unmounted cleanly.
const EPOCH: u64 = 7;

/// Returns the header of a volume whose last commit has operations up to `op`.
fn header(epoch: u64, commit: u64, op: u64) -> Header {
    let header = MemoryStore::new(VolumeOptions::default()).header().expect("in memory");
    let counters = Counters { epoch, op: OpNo(op), ..header.counters };
    Header { commit: CommitNo(commit), counters, ..header }
}

/// The volume as it is after the mount's first commit.
fn first() -> Header {
    header(EPOCH, 2, 0)
}

/// A log of a mount that has begun, in its own directory.
struct Place {
    directory: tempfile::TempDir,
    log: IntentLog,
}

impl Place {
    fn new() -> Place {
        Place::of(tempfile::tempdir(), BYTES)
    }

    /// With room for `bytes` of records.
    fn of(directory: std::io::Result<tempfile::TempDir>, bytes: u64) -> Place {
        let directory = directory.expect("a directory");
        let mut log = IntentLog::open(&directory.path().join("intents"), bytes).expect("opens");
        log.start(&header(EPOCH - 1, 2, 0), EPOCH).expect("starts");
        Place { directory, log }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("intents")
    }

    fn append(&mut self, op: u64, len: usize) {
        self.log
            .append(OpNo(op), OpNo(op), &vec![u8::try_from(op % 251).expect("small"); len].into())
            .expect("appended");
    }

    fn sync(&mut self) {
        let sync = self.log.syncer().expect("a syncer");
        sync.sync().expect("synced");
        self.log.keep(sync);
    }

    fn bytes(&self) -> Vec<u8> {
        fs::read(self.path()).expect("readable")
    }
}

/// The operations that a mount of the volume would apply, or why it is refused.
fn found(path: &Path, header: &Header) -> std::result::Result<Vec<u64>, String> {
    let mut log = IntentLog::open(path, BYTES).expect("opens");
    match log.check(header) {
        Ok(_) => Ok(log.records().iter().flat_map(|record| record.first.0..=record.last.0).collect()),
        Err(Error::Lost(why)) => Err(why),
        Err(error) => panic!("{error}"),
    }
}

/// The volume is refused with these words, and nothing of the log is changed by that.
#[track_caller]
fn refused(path: &Path, header: &Header, words: &str) {
    let before = fs::read(path).expect("readable");
    let why = found(path, header).expect_err("refused");
    assert!(why.contains(words) && why.contains("--accept-loss"), "{why}");
    assert!(fs::read(path).expect("readable") == before, "it was changed");
}

#[test]
fn appended_records_read_back_in_order_from_both_halves() {
    let mut place = Place::new();
    place.log.append(OpNo(1), OpNo(3), &b"one".to_vec().into()).expect("appended");
    place.log.switch();
    place.log.append(OpNo(4), OpNo(4), &[2; 5000].to_vec().into()).expect("appended");
    assert!(!place.log.is_half_full());
    assert_eq!(found(&place.path(), &first()), Ok(vec![1, 2, 3, 4]));
    assert_eq!(found(&place.path(), &header(EPOCH, 3, 3)), Ok(vec![4]), "the rest is committed");
    let mut log = IntentLog::open(&place.path(), BYTES).expect("opens");
    log.check(&first()).expect("fits");
    assert_eq!((&log.records()[0].bytes[..], &log.records()[1].bytes[..]), (&b"one"[..], &[2; 5000][..]));
}

#[test]
fn a_reused_half_shows_no_records_of_its_former_round() {
    let mut place = Place::new();
    (1..=3).for_each(|op| place.append(op, 100));
    place.log.switch();
    place.log.release(CommitNo(3));
    place.log.switch();
    place.append(9, 100);
    assert_eq!(found(&place.path(), &header(EPOCH, 3, 8)), Ok(vec![9]));
}

#[test]
fn a_full_half_takes_no_more() {
    let mut place = Place::new();
    let mut op = 1;
    while place.log.fits(1000) {
        place.append(op, 1000);
        op += 1;
    }
    assert!(place.log.is_half_full());
    assert!(place.log.append(OpNo(op), OpNo(op), &[2; 1000].to_vec().into()).is_err());
    place.log.switch();
    place.append(op, 1000);
    assert_eq!(found(&place.path(), &first()), Ok((1..=op).collect()));
}

#[test]
fn a_log_with_records_keeps_its_size_and_one_without_grows() {
    let mut place = Place::new();
    place.append(1, 10);
    let path = place.path();
    let size = || fs::metadata(&path).expect("there").len();
    let begin = |header: &Header| {
        let mut log = IntentLog::open(&path, 4 * BYTES).expect("opens");
        log.start(header, header.counters.epoch + 2).expect("starts");
    };
    begin(&first());
    assert_eq!(size(), HEADER_BYTES + BYTES);
    begin(&header(EPOCH + 2, 3, 1));
    assert_eq!(size(), HEADER_BYTES + 4 * BYTES);
}

/// A mount may end again at any time until its first commit is durable.
#[test]
fn what_a_mount_found_stays_readable_until_its_first_commit() {
    for switches in 0..2 {
        let mut place = Place::new();
        (1..=3).for_each(|op| place.append(op, 700));
        (0..switches).for_each(|_| place.log.switch());
        (4..=6).for_each(|op| place.append(op, 700));
        for _ in 0..3 {
            let mut log = IntentLog::open(&place.path(), BYTES).expect("opens");
            log.check(&first()).expect("fits");
            log.prepare(EPOCH + 2, first().commit).expect("prepared");
            log.carry(CommitNo(3), OpNo(6), b"over damage".to_vec()).expect("kept");
            assert_eq!(found(&place.path(), &first()), Ok((1..=6).collect()));
        }
        let mut log = IntentLog::open(&place.path(), BYTES).expect("opens");
        log.check(&header(EPOCH + 2, 3, 6)).expect("its commit has happened");
        assert_eq!(log.carried()[0].bytes, b"over damage".to_vec());
        log.check(&header(EPOCH + 2, 3, 7)).expect("another try of it, with more operations");
        assert!(log.carried().is_empty(), "what that lacks it would have kept anew");
    }
}

/// A first commit fails, or the power goes before it, and each try has an epoch of its own.
#[test]
fn mounts_that_made_no_commit_leave_the_log_as_it_was_found() {
    for switches in 0..2 {
        let mut place = Place::new();
        (1..=3).for_each(|op| place.append(op, 700));
        (0..switches).for_each(|_| place.log.switch());
        (4..=6).for_each(|op| place.append(op, 700));
        let mut last = EPOCH;
        for carries in [true, false, false, true, true, false] {
            let mut log = IntentLog::open(&place.path(), BYTES).expect("opens");
            log.check(&first()).expect("fits");
            let epoch = log.next_epoch(EPOCH);
            assert!(epoch > last, "{epoch} after {last}: sectors of that one would be taken for its own");
            last = epoch;
            log.prepare(epoch, first().commit).expect("prepared");
            if carries {
                log.carry(CommitNo(3), OpNo(6), b"over damage".to_vec()).expect("kept");
            }
            assert_eq!(found(&place.path(), &first()), Ok((1..=6).collect()));
        }
        let mut log = IntentLog::open(&place.path(), BYTES).expect("opens");
        log.check(&header(last, 3, 6)).expect("its commit has happened");
        assert!(log.carried().is_empty(), "those of tries that failed are not its own");
    }
}

#[test]
fn the_log_of_another_copy_of_the_volume_is_refused() {
    let place = Place::new();
    let base = fs::read(place.path()).expect("read");
    let live = |name: &str| {
        let path = place.directory.path().join(name);
        fs::write(&path, &base).expect("copied");
        let mut log = IntentLog::open(&path, BYTES).expect("opens");
        log.check(&first()).expect("fits");
        let epoch = log.next_epoch(EPOCH);
        log.start(&first(), epoch).expect("starts");
        log.append(OpNo(1), OpNo(1), &name.as_bytes().to_vec().into()).expect("appended");
        (path, header(epoch, 2, 0))
    };
    let ((a, of_a), (b, of_b)) = (live("a"), live("b"));
    assert_eq!(found(&a, &of_a), Ok(vec![1]));
    assert_eq!(found(&b, &of_b), Ok(vec![1]));
    refused(&a, &of_b, "used apart");
    refused(&b, &of_a, "used apart");
}

#[test]
fn a_log_that_is_gone_is_missed_after_an_unclean_end_alone() {
    let place = Place::new();
    fs::remove_file(place.path()).expect("removed");
    let why = misfit(&place.path(), &first()).expect("looked");
    assert!(why.expect("refused").why.contains("is missing"));
    assert_eq!(misfit(&place.path(), &header(EPOCH + 1, 3, 0)).expect("looked"), None);
    fs::write(place.path(), vec![0; 100_000]).expect("made anew");
    refused(&place.path(), &first(), "is missing");
    assert_eq!(found(&place.path(), &header(EPOCH + 1, 3, 0)), Ok(vec![]));
}

#[test]
fn what_is_not_of_this_volume_and_mount_is_refused() {
    let mut place = Place::new();
    place.append(1, 10);
    let other = Header { uuid: [1; 16], ..first() };
    refused(&place.path(), &other, "another volume");
    let clean = Header { uuid: [1; 16], ..header(EPOCH + 1, 9, 9) };
    refused(&place.path(), &clean, "another volume");
    refused(&place.path(), &header(EPOCH + 2, 9, 9), "is older than the database");
    refused(&place.path(), &header(EPOCH - 2, 1, 0), "the database is older");
    refused(&place.path(), &header(EPOCH - 1, 1, 0), "the database is older");
    fs::write(place.path(), "somebody's own").expect("written");
    refused(&place.path(), &header(EPOCH + 1, 9, 9), "is not an intent log");
}

#[test]
fn a_database_from_before_the_commit_that_records_follow_is_refused() {
    let mut place = Place::new();
    place.append(1, 10);
    place.log.switch();
    place.log.release(CommitNo(3));
    place.append(2, 10);
    refused(&place.path(), &first(), "the database is older");
    assert_eq!(found(&place.path(), &header(EPOCH, 3, 1)), Ok(vec![2]));
}

#[test]
fn a_log_from_before_the_mount_began_is_refused_once_there_were_commits() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("intents");
    let mut log = IntentLog::open(&path, BYTES).expect("opens");
    log.check(&header(EPOCH - 1, 2, 0)).expect("fits");
    log.prepare(EPOCH, CommitNo(2)).expect("prepared");
    assert_eq!(found(&path, &header(EPOCH - 1, 2, 0)), Ok(vec![]), "its first commit did not happen");
    assert_eq!(found(&path, &header(EPOCH, 3, 0)), Ok(vec![]), "it did");
    refused(&path, &header(EPOCH, 4, 0), "is not of mount 7");
}

#[test]
fn a_log_that_was_closed_goes_with_no_database_from_before() {
    let mut place = Place::new();
    place.append(1, 10);
    place.log.close(CommitNo(3), Behind::Nothing).expect("closed");
    assert_eq!(found(&place.path(), &header(EPOCH + 1, 3, 1)), Ok(vec![]));
    refused(&place.path(), &header(EPOCH - 1, 1, 0), "the database is older");
}

/// A database that lost the commits after its second one, with the write-ahead log.
#[test]
fn records_that_go_on_from_a_commit_are_kept_for_a_database_that_lost_later_ones() {
    for (first_op, release, expected) in [(1, None, 3), (2, None, 0), (1, Some(3), 0)] {
        let mut place = Place::new();
        release.into_iter().for_each(|commit| place.log.release(CommitNo(commit)));
        place.append(first_op, 10);
        place.log.release(CommitNo(4));
        place.log.switch();
        (first_op + 1..=3).for_each(|op| place.append(op, 10));
        place.sync();
        place.log.name(CommitNo(5)).expect("named");
        refused(&place.path(), &first(), "names commit 5");
        let (found, lost) = accepted(&place.path(), &first());
        assert_eq!(found, (1..=expected).collect::<Vec<_>>(), "{lost:?}");
        let lost = lost.expect("told");
        assert_eq!(lost.contains("operations 1 to 3, which go on from that commit"), expected > 0, "{lost}");
    }
}

#[test]
fn records_behind_a_gap_are_not_taken_for_a_database_that_lost_commits() {
    let mut place = Place::new();
    [1, 2, 4].into_iter().for_each(|op| place.append(op, 10));
    place.log.name(CommitNo(3)).expect("named");
    assert_eq!(accepted(&place.path(), &first()).0, [1, 2]);
}

#[test]
fn a_torn_end_is_dropped_at_whatever_sector_it_is_torn() {
    let mut place = Place::new();
    place.append(1, 700);
    place.sync();
    let before = place.bytes();
    place.append(2, 3000);
    let after = place.bytes();
    let start = before.iter().zip(&after).position(|(old, new)| old != new).expect("appended");
    let start = start / SECTOR * SECTOR;
    for mask in 0u32..1 << sectors(3000) {
        let mut torn = before.clone();
        for sector in (0..usize::try_from(sectors(3000)).expect("few")).filter(|sector| mask & 1 << sector != 0) {
            let sector = start + sector * SECTOR..start + (sector + 1) * SECTOR;
            torn[sector.clone()].copy_from_slice(&after[sector]);
        }
        fs::write(place.path(), &torn).expect("written");
        let is_whole = mask + 1 == 1 << sectors(3000);
        assert_eq!(found(&place.path(), &first()), Ok(if is_whole { vec![1, 2] } else { vec![1] }), "{mask:b}");
    }
}

#[test]
fn a_bad_record_is_damage_below_what_a_later_one_knows_to_be_synced_and_torn_above() {
    for is_synced in [false, true] {
        let mut place = Place::new();
        place.append(1, 10);
        let before = place.bytes();
        place.append(2, 10);
        if is_synced {
            place.sync();
        }
        place.append(3, 10);
        let mut lost = place.bytes();
        let second = usize::try_from(HEADER_BYTES).expect("small") + SECTOR;
        lost[second..second + SECTOR].copy_from_slice(&before[second..second + SECTOR]);
        fs::write(place.path(), lost).expect("written");
        if is_synced {
            refused(&place.path(), &first(), "operations 2 to 3, which were synced");
        } else {
            assert_eq!(found(&place.path(), &first()), Ok(vec![1]));
        }
        assert_eq!(found(&place.path(), &header(EPOCH, 3, 2)), Ok(vec![3]), "nobody needs it");
    }
}

#[test]
fn a_half_that_is_not_there_is_damage_if_it_was_synced() {
    let mut place = Place::new();
    let blank = place.bytes();
    (1..=3).for_each(|op| place.append(op, 600));
    place.sync();
    place.log.switch();
    place.append(4, 600);
    let mut lost = place.bytes();
    let (start, end) = (usize::try_from(HEADER_BYTES).expect("small"), lost.len() / 2);
    lost[start..end].copy_from_slice(&blank[start..end]);
    fs::write(place.path(), lost).expect("written");
    refused(&place.path(), &first(), "operations 1 to 4");
}

/// Opens the log at `path` although it lacks something, and tells its operations and what is lost.
fn accepted(path: &Path, header: &Header) -> (Vec<u64>, Option<String>) {
    let mut log = IntentLog::open(path, BYTES).expect("opens").with(Loss::Accept);
    let lost = log.check(header).expect("accepted").map(|lost| lost.to_string());
    (log.records().iter().flat_map(|record| record.first.0..=record.last.0).collect(), lost)
}

#[test]
fn a_log_that_is_cut_short_costs_what_lay_behind_the_cut() {
    let mut place = Place::new();
    let mut ends = Vec::new();
    for op in 1..=8 {
        if op == 5 {
            place.log.switch();
        }
        place.append(op, 600);
        place.sync();
        let half = if op < 5 { 0 } else { BYTES / 2 };
        ends.push(HEADER_BYTES + half + (op - 1) % 4 * 2 * SECTOR as u64 + 2 * SECTOR as u64);
    }
    let whole = place.bytes();
    for cut in (HEADER_BYTES..whole.len() as u64).step_by(SECTOR / 2).chain([whole.len() as u64 - 1]) {
        fs::write(place.path(), &whole[..usize::try_from(cut).expect("small")]).expect("written");
        refused(&place.path(), &first(), &format!("is cut short at byte {cut}"));
        let kept = (1..).zip(&ends).filter(|(_, end)| **end <= cut).map(|(op, _)| op).collect::<Vec<u64>>();
        let (records, lost) = accepted(&place.path(), &first());
        assert_eq!(records, kept, "cut at {cut}");
        assert!(lost.expect("told").contains(&format!("{} ", kept.len() + 1)), "cut at {cut}");
        assert_eq!(found(&place.path(), &header(EPOCH + 1, 3, 8)), Ok(vec![]), "nobody needs it");
    }
}

#[test]
fn a_log_that_was_cut_short_is_as_long_again_once_the_loss_is_accepted() {
    let mut place = Place::new();
    (1..=3).for_each(|op| place.append(op, 600));
    place.sync();
    let whole = place.bytes();
    let start = usize::try_from(HEADER_BYTES).expect("small");
    for cut in [start + 5 * SECTOR, whole.len() - 1] {
        fs::write(place.path(), &whole[..cut]).expect("written");
        let kept = accepted(&place.path(), &first()).0;
        let mut log = IntentLog::open(&place.path(), BYTES).expect("opens").with(Loss::Accept);
        log.start(&first(), EPOCH + 2).expect("starts");
        log.append(OpNo(9), OpNo(9), &[9; 100].to_vec().into()).expect("appended");
        assert_eq!(place.bytes().len(), whole.len(), "cut at {cut}");
        assert_eq!(found(&place.path(), &header(EPOCH + 2, 2, 8)), Ok(vec![9]), "cut at {cut}");
        assert_eq!(kept, if cut == whole.len() - 1 { vec![1, 2, 3] } else { vec![1, 2] });
    }
}

#[test]
fn two_tries_of_an_append_are_not_taken_for_one() {
    let mut place = Place::new();
    place.append(1, 1500);
    let first_try = place.bytes();
    let mut second = Place::new();
    second.append(2, 1500);
    let mut mixed = second.bytes();
    let start = usize::try_from(HEADER_BYTES).expect("small") + SECTOR;
    mixed[start..start + SECTOR].copy_from_slice(&first_try[start..start + SECTOR]);
    fs::write(place.path(), mixed).expect("written");
    assert_eq!(found(&place.path(), &first()), Ok(vec![]));
}

#[test]
fn accepted_loss_goes_on_with_what_comes_before_and_begins_after_every_mount_that_was() {
    let mut place = Place::new();
    for op in 1..=5 {
        place.append(op, 10);
        place.sync();
    }
    let file = fs::OpenOptions::new().write(true).open(place.path()).expect("opens");
    file.write_all_at(&[7; 9], HEADER_BYTES + 2 * SECTOR as u64 + 70).expect("damaged");
    refused(&place.path(), &first(), "operations 3 to 5");
    let open = || IntentLog::open(&place.path(), BYTES).expect("opens").with(Loss::Accept);
    let mut log = open();
    assert!(log.check(&first()).expect("accepted").expect("told").cause.contains("operations 3 to 5"));
    assert_eq!(log.records().last().map(|record| record.last), Some(OpNo(2)));
    // A database from a year ago: what the log holds must never be taken for the new mount's.
    let mut log = open();
    let old = header(3, 2, 0);
    log.check(&old).expect("accepted").expect("told");
    let epoch = log.next_epoch(3);
    assert!(epoch > EPOCH && needs_log(epoch), "{epoch}");
    log.start(&old, epoch).expect("starts");
    assert_eq!(found(&place.path(), &header(epoch, 2, 0)), Ok(vec![]));
}

#[test]
fn a_file_that_was_removed_or_replaced_is_noticed() {
    let mut place = Place::new();
    assert!(!place.log.is_gone());
    fs::rename(place.path(), place.directory.path().join("elsewhere")).expect("moved");
    assert!(place.log.is_gone());
    fs::write(place.path(), "another").expect("made");
    assert!(place.log.is_gone());
    assert!(place.log.syncer().is_err(), "it would sync the wrong file");
    let mut log = Box::<dyn OperationLog>::from(place.log);
    assert_eq!(log.leave(EPOCH, false), Some(EPOCH + 1));
    assert!(!log.fits(1));
    assert_eq!(log.leave(EPOCH + 1, false), None);
}

/// A log of several rounds whose last record was synced, and the operations that are not committed.
fn busy() -> (Place, Header, Vec<u64>) {
    let mut place = Place::new();
    let mut op = 0;
    for round in 0..3 {
        while place.log.fits(900) {
            op += 1;
            place.append(op, 40 * usize::try_from(op).expect("few") % 900);
            place.sync();
        }
        if round < 2 {
            place.log.release(CommitNo(2 + round));
            place.log.switch();
        }
    }
    let committed = op / 2;
    (place, header(EPOCH, 9, committed), (committed + 1..=op).collect())
}

#[test]
fn every_flipped_byte_is_harmless_or_refused() {
    let (place, header, expected) = busy();
    assert_eq!(found(&place.path(), &header).as_deref(), Ok(&expected[..]));
    let file = fs::OpenOptions::new().read(true).write(true).open(place.path()).expect("opens");
    let size = file.metadata().expect("there").len();
    let mut refusals = 0;
    // A stride that is coprime to the sector meets every byte of one.
    for (at, bit) in (0..size).step_by(61).zip((0..8).cycle()) {
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).expect("read");
        file.write_all_at(&[byte[0] ^ 1 << bit], at).expect("flipped");
        match found(&place.path(), &header) {
            Ok(found) => assert!(found == expected, "silence about byte {at}"),
            Err(_) => refusals += 1,
        }
        file.write_all_at(&byte, at).expect("set back");
    }
    assert!(refusals > 300, "only {refusals}");
}

#[test]
fn every_flipped_bit_of_the_last_synced_record_is_refused() {
    let mut place = Place::new();
    place.append(1, 10);
    place.sync();
    let file = fs::OpenOptions::new().read(true).write(true).open(place.path()).expect("opens");
    for bit in 0..SECTOR * 8 {
        let at = HEADER_BYTES + bit as u64 / 8;
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).expect("read");
        file.write_all_at(&[byte[0] ^ 1 << (bit % 8)], at).expect("flipped");
        assert!(found(&place.path(), &first()).is_err(), "bit {bit}");
        file.write_all_at(&byte, at).expect("set back");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_bytes_are_refused_or_a_log_without_records(bytes in proptest::collection::vec(any::<u8>(), 0..20_000)) {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("intents");
        fs::write(&path, &bytes).expect("written");
        prop_assert!(found(&path, &first()).is_err(), "it needs its log");
        prop_assert_eq!(found(&path, &header(EPOCH + 1, 2, 0)).unwrap_or_default(), Vec::<u64>::new());
    }
}
