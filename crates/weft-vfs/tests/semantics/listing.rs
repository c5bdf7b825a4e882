//! Listing directories while they change, and large ones.

use crate::{FILE, Volume, options};
use std::collections::BTreeMap;
use weft_vfs::{Caller, Cookie, Ino, Options, RenameMode};

/// Lists all of `ino` by pages of `limit`, with `between` the pages; counts how often each name
/// came.
fn list(volume: &Volume, ino: Ino, limit: usize, mut between: impl FnMut()) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    let mut after = Cookie(0);
    loop {
        let page = volume.vfs.read_directory(ino, after, limit).expect("listed");
        let Some(last) = page.last() else { return counts };
        assert!(last.cookie > after, "cookies grow");
        after = last.cookie;
        for entry in page {
            *counts.entry(String::from_utf8_lossy(entry.name.as_bytes()).into_owned()).or_insert(0) += 1;
        }
        between();
    }
}

#[test]
fn an_entry_there_all_the_while_is_listed_exactly_once_whatever_else_changes() {
    for commit_every in [1, 3, usize::MAX] {
        let mut volume = Volume::new();
        // Nearly no cache: listing reads the store and what has not been committed.
        volume.reopen(Options { metadata_cache_bytes: 1, ..options() });
        for i in 0..100 {
            volume.file(&format!("stable{i}"));
            volume.file(&format!("passing{i}"));
        }
        let mut step = 0;
        let counts = list(&volume, Ino::ROOT, 7, || {
            if step == 40 {
                return;
            }
            let vfs = &volume.vfs;
            volume.file(&format!("new{step}"));
            vfs.unlink(Ino::ROOT, format!("passing{}", 99 - step).as_bytes()).expect("unlinked");
            let from = format!("passing{step}");
            vfs.rename((Ino::ROOT, from.as_bytes()), (Ino::ROOT, b"renamed"), RenameMode::Replace).expect("renamed");
            step += 1;
            if step % commit_every == 0 {
                vfs.commit().expect("committed");
            }
        });
        for i in 0..100 {
            assert_eq!(counts.get(&format!("stable{i}")), Some(&1), "stable{i}, commits every {commit_every}");
        }
        assert!(counts.iter().all(|(name, count)| *count == 1 || name == "renamed"), "{counts:?}");
    }
}

#[test]
fn a_removed_directory_lists_nothing_and_a_cookie_outlives_its_entry() {
    let volume = Volume::new();
    for name in ["a", "b", "c"] {
        volume.file(name);
    }
    let first = volume.vfs.read_directory(Ino::ROOT, Cookie(0), 1).expect("listed").remove(0);
    volume.vfs.unlink(Ino::ROOT, first.name.as_bytes()).expect("unlinked");
    assert_eq!(volume.vfs.read_directory(Ino::ROOT, first.cookie, 10).expect("listed").len(), 2);
    volume.vfs.commit().expect("committed");
    assert_eq!(volume.vfs.read_directory(Ino::ROOT, first.cookie, 10).expect("listed").len(), 2);
}

#[test]
fn a_directory_may_have_a_hundred_thousand_entries() {
    let mut volume = Volume::new();
    let directory = volume.directory("large");
    for i in 0..100_000u32 {
        volume.vfs.make(Caller::ROOT, directory, &i.to_le_bytes().map(|byte| byte | 0x80), FILE).ok();
        volume.vfs.make(Caller::ROOT, directory, i.to_string().as_bytes(), FILE).expect("made");
    }
    let size = volume.attributes(directory).size;
    volume.remount();
    assert_eq!(volume.attributes(directory).size, size);
    let names = list(&volume, directory, 5000, || {});
    assert_eq!(names.values().sum::<usize>() as u64, size);
    assert!((0..100_000).all(|i| names[&i.to_string()] == 1));
    volume.find(directory, "99999").expect("found");
}
