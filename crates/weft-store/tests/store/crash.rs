//! The remains of a crash: the files as they are at some moment, less the bytes that no sync had
//! reached.

use crate::compare::{State, state};
use crate::contract::{HOMES, config, new_volume, options};
use crate::generate::{batch, changes};
use proptest::prelude::*;
use std::fs;
use std::path::{Path, PathBuf};
use weft_store::memory::MemoryStore;
use weft_store::*;

/// Copies a volume as it lies there now.
pub fn copy(volume: &Path, to: &Path) {
    if !volume.is_dir() {
        for suffix in ["", "-wal"] {
            let with = |path: &Path| PathBuf::from(format!("{}{suffix}", path.display()));
            if with(volume).exists() {
                fs::copy(with(volume), with(to)).expect("copied");
            }
        }
        return;
    }
    fs::create_dir_all(to.join("segments")).expect("made");
    for name in ["meta.sqlite", "meta.sqlite-wal", "lock"] {
        if volume.join(name).exists() {
            fs::copy(volume.join(name), to.join(name)).expect("copied");
        }
    }
    for entry in fs::read_dir(volume.join("segments")).expect("listed").flatten() {
        fs::copy(entry.path(), to.join("segments").join(entry.file_name())).expect("copied");
    }
}

/// The same, with the new database that is being written beside the old one, by the path that
/// `unfinished` tells.
pub fn copy_rewriting(volume: &Path, to: &Path, unfinished: impl Fn(&Path) -> PathBuf) {
    const MARK: &str = "user.weft.unfinished";
    copy(volume, to);
    let (from, to) = (unfinished(volume), unfinished(to));
    if !from.exists() {
        return;
    }
    fs::copy(&from, &to).expect("copied");
    if rustix::fs::getxattr(&from, MARK, &mut [0; 8][..]).is_ok() {
        rustix::fs::setxattr(&to, MARK, b"1", rustix::fs::XattrFlags::empty()).expect("marked");
    }
}

/// The write-ahead log of a volume.
pub fn wal(volume: &Path) -> PathBuf {
    let database = if volume.is_dir() { volume.join("meta.sqlite") } else { volume.into() };
    PathBuf::from(format!("{}-wal", database.display()))
}

fn length(file: &Path) -> u64 {
    fs::metadata(file).map_or(0, |metadata| metadata.len())
}

fn read(volume: &Path) -> State {
    state(&*sqlite::open(volume).expect("opens").store).expect("all of it is readable and whole")
}

proptest! {
    #![proptest_config(config(24))]
    #[test]
    fn after_a_power_cut_a_volume_is_as_after_a_commit_no_older_than_the_last_durable_one(
        batches in proptest::collection::vec((changes(), any::<bool>(), any::<prop::sample::Index>()), 1..8),
    ) {
        for home in HOMES {
            let directory = tempfile::tempdir().expect("a directory");
            let path = new_volume(&directory, home);
            let memory = MemoryStore::new(options(home));
            let store = sqlite::open(&path).expect("opens").store;
            let mut states = vec![state(&memory).expect("readable")];
            let (mut durable, mut synced) = (0, length(&wal(&path)));
            for (n, (changes, is_durable, cut)) in batches.iter().enumerate() {
                let batch = batch(&memory, changes);
                memory.apply(&batch, Durability::Durable).expect("the model takes it");
                let durability = if *is_durable { Durability::Durable } else { Durability::Eventual };
                store.apply(&batch, durability).expect("applied");
                states.push(state(&memory).expect("readable"));
                if *is_durable {
                    (durable, synced) = (states.len() - 1, length(&wal(&path)));
                }
                // A kill loses nothing.
                let killed = directory.path().join(format!("killed{n}"));
                copy(&path, &killed);
                prop_assert_eq!(&read(&killed), &states[states.len() - 1]);
                // A power cut loses part of what was not synced.
                let cut_off = directory.path().join(format!("cut{n}"));
                copy(&path, &cut_off);
                let unsynced = length(&wal(&path)) - synced;
                let kept = synced + cut.index(usize::try_from(unsynced).expect("small") + 1) as u64;
                fs::OpenOptions::new().write(true).open(wal(&cut_off)).and_then(|wal| wal.set_len(kept)).expect("cut");
                let found = read(&cut_off);
                prop_assert!(states[durable..].contains(&found), "a state of no commit since the durable one");
            }
        }
    }
}
