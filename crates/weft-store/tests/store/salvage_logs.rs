//! The parts of a write-ahead log that a salvage takes, and its report of a log that it does not
//! take.

use crate::check::sample_volume;
use crate::contract::HOMES;
use crate::crash::{copy, wal};
use crate::moments::Mount;
use crate::salvage::{Contents, contents};
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use weft_block::Slice;
use weft_store::log::Loss;
use weft_store::sqlite::{Salvaged, open, open_with, salvage};
use weft_store::*;

/// Returns the contents of a volume.
fn written(path: &Path) -> Contents {
    contents(&*open(path).expect("opened").store)
}

/// Makes commits at `times`, each of which writes a file of five bytes.
pub fn commit(store: &dyn Store, times: Range<u8>) {
    for time in times {
        let header = store.header().expect("readable");
        let time_of = Timestamp(time.into());
        let mut batch =
            Batch { commit: header.commit.next(), counters: header.counters, time: time_of, ..Batch::default() };
        let mut row = store.inodes(Ino(22), 1).expect("readable").remove(0);
        assert_eq!(row.size, 5);
        row.inline = Some(Slice::from(vec![time; 5]));
        batch.inodes.push(InodeChange::Put(row));
        store.apply(&batch, Durability::Durable).expect("applied");
    }
}

fn salvaged(path: &Path, new: &Path) -> Salvaged {
    salvage(path, new, &mut |_| {}).expect("brought")
}

fn of_wal(told: &Salvaged) -> Vec<&str> {
    let missing = told.missing.iter().filter(|missing| missing.kind == "write-ahead log");
    missing.map(|missing| &*missing.why).collect()
}

/// A volume as a kill leaves it after eight commits.
fn killed(directory: &tempfile::TempDir, home: BlockHome) -> PathBuf {
    let (path, killed) = (sample_volume(directory, home), directory.path().join("killed"));
    let store = open(&path).expect("opened").store;
    commit(&*store, 0..8);
    copy(&path, &killed);
    killed
}

#[test]
fn a_log_of_an_earlier_life_does_not_win_over_the_database() {
    for home in HOMES {
        let directory = tempfile::tempdir().expect("a directory");
        let path = killed(&directory, home);
        let old = fs::read(wal(&path)).expect("read");
        let store = open(&path).expect("opened").store;
        commit(&*store, 8..16);
        store.close().expect("closed");
        drop(store);
        let expected = written(&path);
        fs::write(wal(&path), &old).expect("put back");
        let new = directory.path().join("new");
        let told = salvaged(&path, &new);
        let [why] = of_wal(&told)[..] else { panic!("{:?}", told.missing) };
        assert!(why.contains("it ends with commit ") && why.contains(" without it"), "{why}");
        assert_eq!(written(&new), expected);
    }
}

#[test]
fn a_log_of_another_life_does_not_win_over_the_database() {
    for home in HOMES {
        let directory = tempfile::tempdir().expect("a directory");
        let path = killed(&directory, home);
        let (twin, new) = (directory.path().join("twin"), directory.path().join("new"));
        copy(&path, &twin);
        let live = |path: &Path, numbers: [std::ops::Range<u8>; 2]| {
            let store = open(path).expect("opened").store;
            numbers.into_iter().for_each(|numbers| commit(&*store, numbers));
            copy(path, &path.with_extension("then"));
            store.close().expect("closed");
        };
        live(&path, [8..12, 20..22]);
        live(&twin, [12..20, 30..40]);
        let expected = written(&path);
        fs::copy(wal(&twin.with_extension("then")), wal(&path)).expect("put there");
        let told = salvaged(&path, &new);
        let [why] = of_wal(&told)[..] else { panic!("{:?}", told.missing) };
        assert!(why.contains("is not the one that the database has"), "{why}");
        assert_eq!(written(&new), expected);
    }
}

/// Nothing older passes for the damaged pages, and all of them are reported.
#[test]
fn a_damaged_log_costs_the_pages_that_are_damaged() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = killed(&directory, BlockHome::Segments);
    let whole = fs::read(wal(&path)).expect("read");
    let last = directory.path().join("last");
    copy(&path, &last);
    let (last, mut all) = (written(&last), 0);
    let places = (32..whole.len()).step_by(3 * 4120).flat_map(|frame| [8, 16, 24 + 500].map(|at| frame + at));
    for (n, at) in [0, 3, 9, 17].into_iter().chain(places).enumerate() {
        let mut bytes = whole.clone();
        bytes[at] ^= [1, 0x80, 0xff][n % 3];
        fs::write(wal(&path), &bytes).expect("written");
        let new = directory.path().join(format!("new {at}"));
        let told = salvaged(&path, &new);
        let found = written(&new);
        assert!(!of_wal(&told).is_empty(), "byte {at}: {:?}", told.missing);
        let is_older = |why: &&str| why.contains("may be older") || why.contains("are missing");
        if of_wal(&told).iter().any(is_older) {
            continue;
        }
        assert!(found.iter().all(|(key, value)| last.get(key) == Some(value)), "byte {at}");
        all += usize::from(found == last);
    }
    assert!(all > 5, "{all}: most of it is not in damaged pages");
}

#[test]
fn a_log_that_cannot_be_read_is_told() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = killed(&directory, BlockHome::Segments);
    fs::remove_file(wal(&path)).expect("removed");
    fs::create_dir(wal(&path)).expect("made");
    let told = salvaged(&path, &directory.path().join("new"));
    assert!(of_wal(&told)[0].contains("nothing of it is used"), "{:?}", told.missing);
}

/// Bytes of a frame.
const FRAME: usize = 24 + 4096;

/// Damage that the log's own sums put right.
fn determined(whole: &[u8]) -> Vec<Vec<u8>> {
    let flipped = |at: usize| {
        let mut bytes = whole.to_vec();
        bytes[at] ^= 4;
        bytes
    };
    let frames = (32..whole.len() - FRAME).step_by(3 * FRAME);
    let in_frames = frames.flat_map(|frame| [1, 13, 17, 23, 24, 1001, 4118].map(|at| frame + at));
    let in_last = [1, 13, 17, 24, 1001].map(|at| whole.len() - FRAME + at);
    let zeroed = [vec![0; 32], whole[32..].to_vec()].concat();
    (0..32).chain(in_frames).chain(in_last).map(flipped).chain([zeroed]).collect()
}

#[test]
fn what_the_log_itself_puts_right_costs_nothing() {
    for home in HOMES {
        let directory = tempfile::tempdir().expect("a directory");
        let path = killed(&directory, home);
        let last = directory.path().join("last");
        copy(&path, &last);
        let (expected, whole) = (written(&last), fs::read(wal(&path)).expect("read"));
        for (n, bytes) in determined(&whole).into_iter().enumerate() {
            let [damaged, new] = ["damaged", "new"].map(|name| directory.path().join(format!("{name} {n}")));
            copy(&path, &damaged);
            fs::write(wal(&damaged), &bytes).expect("written");
            let refused = open(&damaged).map(drop).expect_err("refused").to_string();
            assert!(refused.contains("--salvage") && refused.contains("write-ahead log"), "{n}: {refused}");
            let told = salvaged(&damaged, &new);
            assert!(written(&new) == expected, "{home:?} {n}: {:?}", told.missing);
            assert!(of_wal(&told).iter().any(|why| why.contains("put right")), "{:?}", told.missing);
            let volume = open_with(&damaged, Loss::Accept).expect("accepted");
            assert!(contents(&*volume.store) == expected, "{home:?} {n}: {:?}", volume.given_up);
            let copy = PathBuf::from(format!("{}.aside-1", wal(&damaged).display()));
            assert!(fs::read(copy).expect("kept") == bytes);
        }
    }
}

/// The header of the log was synced before any frame was written.
#[test]
fn a_log_without_its_first_sector_is_told_and_brought() {
    for home in HOMES {
        let directory = tempfile::tempdir().expect("a directory");
        let path = killed(&directory, home);
        let [last, new] = ["last", "new"].map(|name| directory.path().join(name));
        copy(&path, &last);
        let mut bytes = fs::read(wal(&path)).expect("read");
        bytes[..512].fill(0);
        fs::write(wal(&path), &bytes).expect("written");
        let refused = open(&path).map(drop).expect_err("refused").to_string();
        assert!(refused.contains("its header is damaged"), "{refused}");
        let told = salvaged(&path, &new);
        assert!(written(&new) == written(&last), "{:?}", told.missing);
    }
}

/// A run of wrong bytes in any frame, which the intent log tells from a tear.
#[test]
fn a_damaged_log_costs_no_more_in_a_salvage_than_in_a_mount_that_accepts_the_loss() {
    let directory = tempfile::tempdir().expect("a directory");
    let (path, crashed) = (sample_volume(&directory, BlockHome::Segments), directory.path().join("crashed"));
    let mut mount = Mount::begin(&path, Loss::Refuse);
    commit(&*mount.store, 0..8);
    mount.name(mount.store.header().expect("readable").commit);
    copy(&path, &crashed);
    mount.copy_log(&crashed);
    let (newest, whole) = (contents(&*mount.store), fs::read(wal(&crashed)).expect("read"));
    let mut newer = 0;
    for (n, frame) in (32..whole.len()).step_by(FRAME).enumerate() {
        let [damaged, new] = ["damaged", "new"].map(|name| directory.path().join(format!("{name} {n}")));
        copy(&crashed, &damaged);
        mount.copy_log(&damaged);
        let mut bytes = whole.clone();
        bytes[frame + 24..frame + FRAME].iter_mut().for_each(|byte| *byte ^= 0x55);
        fs::write(wal(&damaged), &bytes).expect("written");
        let told = salvaged(&damaged, &new);
        let brought = written(&new);
        let accepted = contents(&*open_with(&damaged, Loss::Accept).expect("accepted").store);
        for (ino, content) in &accepted {
            let is_known = |found: &_| found == content || Some(found) == newest.get(ino);
            assert!(brought.get(ino).is_some_and(is_known), "inode {ino}, frame {n}: {:?}", told.missing);
        }
        newer += usize::from(brought == newest && accepted != newest);
    }
    assert!(newer > 5, "{newer}: most frames are written again later");
}
