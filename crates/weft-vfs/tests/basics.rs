//! The plainest uses of a volume: what every other test stands on.

use std::sync::Arc;
use weft_store::memory::MemoryStore;
use weft_store::{BlockHome, Cookie, Ino, Kind, Store, Timestamp, VolumeOptions, sqlite};
use weft_vfs::{Caller, MakeNode, ManualClock, Options, RenameMode, SetAttributes, Vfs};

const FILE: MakeNode = MakeNode { kind: Kind::File, permissions: 0o644, umask: 0, rdev: 0 };
const DIRECTORY: MakeNode = MakeNode { kind: Kind::Directory, permissions: 0o755, umask: 0, rdev: 0 };

fn store() -> MemoryStore {
    let home = BlockHome::Database;
    MemoryStore::new(VolumeOptions { block_size: 4096, inline_max: 100, home, ..VolumeOptions::default() })
}

fn open(store: Arc<dyn Store>) -> Arc<Vfs> {
    let options = Options { background: false, ..Options::default() };
    Vfs::open(store, None, options, Arc::new(ManualClock::default())).expect("opens")
}

#[test]
fn what_was_written_reads_back_before_and_after_a_commit_and_a_remount() {
    let store = Arc::new(store());
    written_reads_back(|| store.clone());
}

#[test]
fn the_same_on_sqlite_with_blocks_in_either_home() {
    for home in [BlockHome::Database, BlockHome::Segments] {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("volume");
        let options = VolumeOptions { block_size: 4096, inline_max: 100, home, ..VolumeOptions::default() };
        sqlite::create(&path, &options, (0, 0), Timestamp(0)).expect("created");
        written_reads_back(|| sqlite::open(&path).expect("opened").store);
    }
}

fn written_reads_back<S: Store + 'static>(store: impl Fn() -> Arc<S>) {
    let vfs = open(store());
    let directory = vfs.make(Caller::ROOT, Ino::ROOT, b"directory", DIRECTORY).expect("made").ino;
    let mut written = Vec::new();
    for len in [0usize, 1, 99, 100, 101, 4095, 4096, 4097, 100_000] {
        let name = format!("file{len}");
        let ino = vfs.make(Caller::ROOT, directory, name.as_bytes(), FILE).expect("made").ino;
        let data: Vec<u8> = (0..len).map(|i| u8::try_from(i % 251).expect("below 251")).collect();
        vfs.write(ino, 0, &data, false).expect("written");
        written.push((name, ino, data));
    }
    let check = |vfs: &Vfs| {
        for (name, ino, data) in &written {
            let found = vfs.lookup(Caller::ROOT, directory, name.as_bytes()).expect("found");
            assert_eq!((found.ino, found.size), (*ino, data.len() as u64), "{name}");
            assert_eq!(&vfs.read(*ino, 0, data.len() + 10).expect("read").to_vec(), data, "{name}");
        }
        assert_eq!(vfs.read_directory(directory, Cookie(0), 100).expect("listed").len(), written.len());
    };
    check(&vfs);
    vfs.commit().expect("committed");
    check(&vfs);
    vfs.close().expect("closed");
    drop(vfs);
    check(&open(store()));
}

#[test]
fn a_cut_file_that_grows_again_reads_zeros_where_it_was_cut() {
    let vfs = open(Arc::new(store()));
    let ino = vfs.make(Caller::ROOT, Ino::ROOT, b"file", FILE).expect("made").ino;
    for commit in [false, true] {
        vfs.write(ino, 0, &[1; 10_000], false).expect("written");
        if commit {
            vfs.commit().expect("committed");
        }
        for size in [5000, 9000] {
            vfs.set_attributes(ino, SetAttributes { size: Some(size), ..SetAttributes::default() }).expect("sized");
        }
        let mut expected = vec![1; 5000];
        expected.resize(9000, 0);
        assert_eq!(vfs.read(ino, 0, 20_000).expect("read").to_vec(), expected);
        vfs.commit().expect("committed");
        assert_eq!(vfs.read(ino, 0, 20_000).expect("read").to_vec(), expected);
    }
}

#[test]
fn removed_and_renamed_entries_list_rightly_over_uncommitted_and_committed_ones() {
    let vfs = open(Arc::new(store()));
    for i in 0..50 {
        vfs.make(Caller::ROOT, Ino::ROOT, format!("{i}").as_bytes(), FILE).expect("made");
        if i == 25 {
            vfs.commit().expect("committed");
        }
    }
    for i in (0..50).step_by(5) {
        vfs.unlink(Ino::ROOT, format!("{i}").as_bytes()).expect("unlinked");
    }
    vfs.rename((Ino::ROOT, b"1"), (Ino::ROOT, b"one"), RenameMode::Replace).expect("renamed");
    vfs.rename((Ino::ROOT, b"2"), (Ino::ROOT, b"3"), RenameMode::Replace).expect("renamed");
    for limit in [1, 7, 100] {
        let mut names = Vec::new();
        let mut after = Cookie(0);
        loop {
            let page = vfs.read_directory(Ino::ROOT, after, limit).expect("listed");
            let Some(last) = page.last() else { break };
            after = last.cookie;
            names.extend(page.iter().map(|entry| String::from_utf8_lossy(entry.name.as_bytes()).into_owned()));
        }
        names.sort();
        let mut expected: Vec<_> =
            (0..50).filter(|i| i % 5 != 0 && ![1, 2].contains(i)).map(|i| i.to_string()).collect();
        expected.push("one".into());
        expected.sort();
        assert_eq!(names, expected, "by {limit}");
    }
}

#[test]
fn paths_in_messages_are_those_of_now() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("volume");
    sqlite::create(&path, &VolumeOptions::default(), (0, 0), Timestamp(0)).expect("created");
    let vfs = open(sqlite::open(&path).expect("opened").store);
    let says = |ino| String::from_utf8(vfs.path(ino)).expect("text");
    let directory = vfs.make(Caller::ROOT, Ino::ROOT, b"directory", DIRECTORY).expect("made").ino;
    let file = vfs.make(Caller::ROOT, directory, b"file", FILE).expect("made").ino;
    assert_eq!(says(file), "/directory/file");
    vfs.commit().expect("committed");
    assert_eq!(says(file), "/directory/file");
    vfs.rename((directory, b"file"), (Ino::ROOT, b"other"), RenameMode::Replace).expect("renamed");
    assert_eq!(says(file), "/other");
    assert_eq!(says(Ino::ROOT), "/");
    assert_eq!(says(Ino(4711)), "#4711");
}
