//! A rotten write-ahead log is distinguished from one that a power cut has torn.

use crate::compare::{State, state};
use crate::contract::{HOMES, new_volume};
use crate::crash::{copy, wal};
use crate::generate::{Change, batch};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use weft_store::log::Loss;
use weft_store::sqlite::{check, open, open_with};
use weft_store::*;

/// A volume as a kill leaves it after `commits` commits, and what it holds after each.
fn killed(directory: &tempfile::TempDir, home: BlockHome, commits: u8) -> (PathBuf, Vec<State>) {
    let path = new_volume(directory, home);
    let store = open(&path).expect("opened").store;
    let mut states = vec![state(&*store).expect("readable")];
    for n in 0..commits {
        let changes = [
            Change::Block { ino: 2 + n % 3, index: n / 3, length: 5000 + u16::from(n) },
            Change::Xattr { ino: 2, name: 1, value: Some(vec![n; 10]) },
        ];
        store.apply(&batch(&*store, &changes), Durability::Durable).expect("applied");
        states.push(state(&*store).expect("readable"));
    }
    let killed = directory.path().join("killed");
    copy(&path, &killed);
    (killed, states)
}

/// Returns the offsets of the bytes of the log that are looked at: in the header of the log, of a
/// frame, and in its page.
fn places(length: usize) -> impl Iterator<Item = usize> {
    let in_header = [0, 3, 9, 17, 25, 31];
    let in_frames =
        (32..length).step_by(4120).flat_map(|frame| [0, 2, 8, 13, 16, 23, 24, 1000, 4119].map(|at| frame + at));
    in_header.into_iter().chain(in_frames)
}

#[test]
fn no_byte_of_the_log_rots_in_silence() {
    for home in HOMES {
        let directory = tempfile::tempdir().expect("a directory");
        let (path, states) = killed(&directory, home, 4);
        let whole = fs::read(wal(&path)).expect("read");
        let mut refused = 0;
        for (n, at) in places(whole.len()).enumerate() {
            let mut bytes = whole.clone();
            bytes[at] ^= [1, 0x80, 0xff][n % 3];
            fs::write(wal(&path), &bytes).expect("written");
            match open(&path) {
                Ok(volume) => assert_eq!(state(&*volume.store).as_ref().ok(), states.last(), "byte {at}"),
                Err(error) => {
                    assert!(error.to_string().contains("--accept-loss"), "byte {at}: {error}");
                    assert_eq!(error.kind(), ErrorKind::Corrupt);
                    refused += 1;
                }
            }
            assert!(fs::read(wal(&path)).expect("there") == bytes, "byte {at}: the evidence is left as it was");
        }
        assert!(refused > 20, "{refused} refusals");
    }
}

#[test]
fn a_check_of_a_log_that_rots_says_so_and_leaves_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let (path, _) = killed(&directory, BlockHome::Segments, 4);
    let mut bytes = fs::read(wal(&path)).expect("read");
    bytes[5000] ^= 4;
    fs::write(wal(&path), &bytes).expect("written");
    let options = CheckOptions { repair: Repair::Yes, read_data: true };
    let findings = check(&path, options, &mut |_| {}).expect("checked");
    let refused = open(&path).map(drop).expect_err("refused").to_string();
    // In the order of what they bring.
    let advice = ["weft check --salvage", "a copy of", "--accept-loss"];
    for told in [&refused, &findings[0].what] {
        let places = advice.map(|words| told.find(words).unwrap_or_else(|| panic!("no '{words}' in {told}")));
        assert!(places.is_sorted(), "{told}");
    }
    assert!(fs::read(wal(&path)).expect("there") == bytes);
}

#[test]
fn whoever_accepts_a_loss_goes_on_and_keeps_a_copy_of_the_log() {
    for home in HOMES {
        let directory = tempfile::tempdir().expect("a directory");
        let (path, states) = killed(&directory, home, 4);
        let mut bytes = fs::read(wal(&path)).expect("read");
        // The header, which follows from the first frame, and that.
        bytes[5] ^= 1;
        bytes[2000..2010].iter_mut().for_each(|byte| *byte ^= 0x55);
        fs::write(wal(&path), &bytes).expect("written");
        let store = open_with(&path, Loss::Accept).expect("opens").store;
        assert!(states[..4].contains(&state(&*store).expect("readable")), "an older state");
        store.apply(&batch(&*store, &[]), Durability::Durable).expect("work goes on");
        drop(store);
        let copy = PathBuf::from(format!("{}.aside-1", wal(&path).display()));
        assert!(fs::read(copy).expect("there") == bytes);
        open(&path).expect("what was accepted is not asked again");
    }
}

/// Zeroes the `sectors` of `file` from byte `from` on, which a power cut kept from being written.
fn tear(file: &Path, from: usize, sectors: &[usize]) {
    let mut bytes = fs::read(file).expect("read");
    for sector in sectors {
        let start = (from / 512 + sector) * 512;
        // The header is synced before.
        let start = start.max(32);
        bytes.iter_mut().take((start / 512 + 1) * 512).skip(start).for_each(|byte| *byte = 0);
    }
    fs::write(file, bytes).expect("written");
}

#[test]
fn what_a_power_cut_tears_is_no_rot() {
    let directory = tempfile::tempdir().expect("a directory");
    let (path, states) = killed(&directory, BlockHome::Segments, 4);
    let whole = fs::read(wal(&path)).expect("read");
    for from in (32..whole.len()).step_by(4120) {
        for sectors in [&[0][..], &[3], &[1, 2, 5], &[8], &[4, 20], &[0, 1, 2, 3, 4, 5, 6, 7, 8]] {
            fs::write(wal(&path), &whole).expect("written");
            tear(&wal(&path), from, sectors);
            let store = open(&path).expect("a tear is no damage").store;
            assert!(states.contains(&state(&*store).expect("readable")));
        }
    }
}

#[test]
fn what_rots_in_the_log_under_a_mount_never_reaches_the_database() {
    for home in HOMES {
        let directory = tempfile::tempdir().expect("a directory");
        let path = new_volume(&directory, home);
        let store = open(&path).expect("opened").store;
        let commit = |n: u8| {
            let changes = [Change::Xattr { ino: 2, name: 1, value: Some(vec![n; 1000]) }];
            store.apply(&batch(&*store, &changes), Durability::Durable)
        };
        // The first one of a mount is copied at once, the others wait.
        (0..4).for_each(|n| drop(commit(n).expect("applied")));
        let database = if path.is_dir() { path.join("meta.sqlite") } else { path.clone() };
        let before = fs::read(&database).expect("read");
        let frames = fs::read(wal(&path)).expect("read");
        // A run of wrong bytes in the content of the second frame: no single one explains it.
        let at = 32 + 4120 + 24 + 100;
        let log = fs::OpenOptions::new().write(true).open(wal(&path)).expect("opened");
        let rotten = frames[at..at + 40].iter().map(|byte| byte ^ 0x55).collect::<Vec<_>>();
        log.write_all_at(&rotten, at as u64).expect("written");
        let refused = store.close().expect_err("nothing can be copied from such a log");
        assert_eq!(refused.kind(), ErrorKind::Corrupt);
        assert!(refused.to_string().contains("frame 2 of the write-ahead log"), "{refused}");
        assert_eq!(commit(9).expect_err("it would be lost").kind(), ErrorKind::Corrupt);
        drop(store);
        assert!(fs::read(&database).expect("read") == before, "{home:?}");
    }
}
