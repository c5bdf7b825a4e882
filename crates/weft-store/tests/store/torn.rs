//! Frames that a power cut tears while they are written over older ones in the write-ahead log.

use crate::check::database;
use crate::contract::{HOMES, new_volume};
use crate::crash::{copy, wal};
use crate::generate::Change;
use crate::moments::Mount;
use std::fs;
use std::path::Path;
use weft_store::log::Loss;
use weft_store::sqlite::{check, open, open_to_read, waiting};
use weft_store::*;

const SECTOR: usize = 512;

/// Bytes of the header of the log, which SQLite syncs before it writes the first frame.
const HEADER: usize = 32;

/// Lives of the log of one volume.
const LIVES: u8 = 8;

/// Tears of any sectors in each life, and tears that look like rot.
const ANY: u64 = 16;
const ALIKE: usize = 14;

/// Numbers that look random, always the same for a seed.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// An attribute over several pages, which differs from that of other lives by a byte or two.
fn value(life: u8) -> Vec<u8> {
    let mut value = vec![7; 12_000];
    value[500 + 1400 * usize::from(life)] = 100 + life;
    value
}

fn change(life: u8) -> [Change; 1] {
    [Change::Xattr { ino: 2, name: 1, value: Some(value(life)) }]
}

/// Returns the life that the volume is of.
fn life_of(store: &dyn Store) -> u8 {
    let found = store.xattrs(Ino(2)).expect("readable");
    (0..=LIVES).find(|life| found[0].1 == value(*life)).expect("a whole value")
}

/// The log as the power cut leaves it: of the sectors that were written those that `keeps` says.
fn torn(before: &[u8], after: &[u8], keeps: &mut dyn FnMut(usize) -> bool) -> Vec<u8> {
    let mut bytes = after.to_vec();
    for at in (0..before.len().min(after.len())).step_by(SECTOR).filter(|at| !keeps(*at)) {
        let range = at.max(HEADER)..(at + SECTOR).min(before.len()).min(after.len());
        bytes[range.clone()].copy_from_slice(&before[range]);
    }
    bytes
}

/// Returns the sectors whose older content differs by one byte.
fn alike(before: &[u8], after: &[u8]) -> Vec<usize> {
    let differing = |at: &usize| {
        let pairs = before[*at..].iter().zip(&after[*at..]).take(SECTOR);
        pairs.filter(|(old, new)| old != new).count() == 1
    };
    (SECTOR..before.len().min(after.len())).step_by(SECTOR).filter(differing).collect()
}

/// All that opens the volume refuses it, and says what to do.
#[track_caller]
fn assert_refused(path: &Path) {
    let told = |what: &str| what.contains("the write-ahead log");
    for error in [open(path).map(drop), open_to_read(path, Loss::Refuse).map(drop)] {
        let error = error.expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(told(&error.to_string()) && error.to_string().contains("--accept-loss"), "{error}");
    }
    let options = CheckOptions { repair: Repair::Yes, read_data: false };
    let findings = check(path, options, &mut |_| {}).expect("checked");
    assert!(findings.iter().any(|finding| told(&finding.what)), "{findings:?}");
    assert!(waiting(path).expect("looked at").lost.is_some_and(|lost| told(&lost)));
}

#[test]
fn what_is_torn_over_an_older_frame_is_no_rot_unless_the_intent_log_names_it() {
    let (mut tears, mut refusals) = (0, 0);
    for (seed, home) in (0..).zip(HOMES) {
        let directory = tempfile::tempdir().expect("a directory");
        let (path, crashed) = (new_volume(&directory, home), directory.path().join("crashed"));
        let mut mount = Mount::begin(&path, Loss::Refuse);
        let (mut numbers, mut last) = (Numbers(seed), mount.commit(&change(0), Durability::Durable));
        let beside = rusqlite::Connection::open(database(&path)).expect("opened");
        for life in 1..=LIVES {
            if life % 2 == 0 {
                mount.name(last);
            }
            // The next commit is written from the start of the log on.
            let before = fs::read(wal(&path)).expect("read");
            let copied = "PRAGMA wal_checkpoint(PASSIVE)";
            beside.query_row(copied, (), |row| row.get::<_, bool>(0)).expect("copied");
            let commit = mount.commit(&change(life), Durability::Eventual);
            let after = fs::read(wal(&path)).expect("read");
            assert!(before[16..24] != after[16..24], "another life");
            copy(&path, &crashed);
            mount.copy_log(&crashed);
            let alike = alike(&before, &after).into_iter().take(ALIKE).collect::<Vec<_>>();
            let any = (0..ANY).map(|_| {
                let kept = 1 + numbers.below(9);
                torn(&before, &after, &mut |_| numbers.below(10) < kept)
            });
            let any = any.collect::<Vec<_>>();
            let lacking = |lacks: &usize| torn(&before, &after, &mut |at| at != *lacks);
            for bytes in alike.iter().map(lacking).chain(any) {
                fs::write(wal(&crashed), &bytes).expect("written");
                let store = open(&crashed).expect("a tear is no damage").store;
                let number = store.header().expect("readable").commit;
                assert!(number == last || number == commit, "{number:?} after {last:?}");
                assert_eq!(life_of(&*store), if number == last { life - 1 } else { life });
                drop(store);
                assert!(fs::read(wal(&crashed)).expect("there") == bytes, "it is left as it was");
                tears += 1;
            }
            // An fsync relies on that commit: what was a tear is damage.
            mount.name(commit);
            mount.copy_log(&crashed);
            for bytes in alike.iter().take(2).map(lacking) {
                fs::write(wal(&crashed), &bytes).expect("written");
                assert_refused(&crashed);
                assert!(fs::read(wal(&crashed)).expect("there") == bytes, "it is left as it was");
                refusals += 1;
            }
            fs::write(wal(&crashed), &after).expect("written");
            assert_eq!(life_of(&*open(&crashed).expect("whole").store), life);
            last = commit;
        }
    }
    assert!(tears > 260 && refusals > 10, "{tears} tears, {refusals} refusals");
}
