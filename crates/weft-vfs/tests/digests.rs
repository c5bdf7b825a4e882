//! Digests that a commit keeps up to date are those that all content and all entries give from
//! scratch: of files of many blocks, with holes and shared blocks, and of directories of many
//! names, in other shapes than `sqlite.rs` makes.

use proptest::prelude::*;
use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::path::Path;
use std::sync::Arc;
use weft_digest::{Content, FileHasher};
use weft_store::{BlockHome, Store, Timestamp, VolumeOptions, sqlite};
use weft_testkit::check_digests;
use weft_vfs::{
    AllocateMode, Asker, Caller, Ino, Kind, MakeNode, ManualClock, Options, RenameMode, SetAttributes, Vfs,
};

const FILE: MakeNode = MakeNode { kind: Kind::File, permissions: 0o644, umask: 0, rdev: 0 };
const DIRECTORY: MakeNode = MakeNode { kind: Kind::Directory, permissions: 0o755, ..FILE };

fn volume(block_size: u32, home: BlockHome) -> (tempfile::TempDir, Arc<dyn Store>, Arc<Vfs>) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("volume");
    let options = VolumeOptions { block_size, home, ..VolumeOptions::default() };
    sqlite::create(&path, &options, (0, 0), Timestamp(0)).expect("created");
    let store: Arc<dyn Store> = sqlite::open(&path).expect("opened").store;
    let options = Options { background: false, ..Options::default() };
    let vfs = Vfs::open(store.clone(), None, options, Arc::new(ManualClock::default())).expect("opens");
    (directory, store, vfs)
}

fn resize(vfs: &Vfs, ino: Ino, size: u64) {
    vfs.set_attributes(ino, SetAttributes { size: Some(size), ..SetAttributes::default() }).expect("sized");
}

#[derive(Clone, Debug)]
enum Change {
    Write { file: bool, offset: u64, len: usize, byte: u8 },
    Resize { file: bool, size: u64 },
    Punch { file: bool, offset: u64, len: u64 },
    Copy { to: u64, from: u64, len: u64 },
    Commit,
}

/// Places and lengths in units of a block, some past a level of the tree above.
fn changes(block: u64) -> impl Strategy<Value = Vec<Change>> {
    let place = move || {
        let near = prop_oneof![
            0..3u64,
            Just(1088u64),
            62..67u64,
            1020..1030u64,
            4090..4100u64,
            8190..8200u64,
            300_000..300_002u64
        ];
        (near, prop_oneof![Just(0), 0..block]).prop_map(move |(index, within)| index * block + within)
    };
    let change = prop_oneof![
        5 => (any::<bool>(), place(), 1..3 * block as usize, 0..3u8)
            .prop_map(|(file, offset, len, byte)| Change::Write { file, offset, len, byte }),
        2 => (any::<bool>(), place()).prop_map(|(file, size)| Change::Resize { file, size }),
        1 => (any::<bool>(), place(), 1..200 * block).prop_map(|(file, offset, len)| Change::Punch { file, offset, len }),
        1 => (place(), place(), 1..200 * block).prop_map(|(to, from, len)| Change::Copy { to, from, len }),
        3 => Just(Change::Commit),
    ];
    prop::collection::vec(change, 1..20)
}

fn apply(vfs: &Vfs, files: [Ino; 2], change: &Change) {
    let of = |second: bool| files[usize::from(second)];
    match *change {
        Change::Write { file, offset, len, byte } => {
            vfs.write(of(file), offset, &vec![byte; len], false).expect("written");
        }
        Change::Resize { file, size } => resize(vfs, of(file), size),
        Change::Punch { file, offset, len } => {
            vfs.allocate(of(file), offset, len, AllocateMode::PunchHole).expect("punched");
        }
        Change::Copy { to, from, len } => {
            vfs.copy_range((files[0], from), (files[1], to), len).expect("copied");
        }
        Change::Commit => vfs.commit().expect("committed"),
    }
}

fn files_agree(block_size: u32, home: BlockHome, changes: &[Change]) -> Result<(), TestCaseError> {
    let (_directory, store, vfs) = volume(block_size, home);
    let files = [b"a", b"b"].map(|name| vfs.make(Caller::ROOT, Ino::ROOT, name, FILE).expect("made").ino);
    for change in changes.iter().chain(&[Change::Commit]) {
        apply(&vfs, files, change);
        if let Change::Commit = change {
            check_digests(&*store).map_err(TestCaseError::fail)?;
        }
    }
    // Asked for, it is that of what is there now, committed or not.
    vfs.write(files[0], 5, b"now", false).expect("written");
    for ino in files {
        let mut hasher = FileHasher::new(Content::Always);
        let size = vfs.attributes(ino).expect("there").size;
        if size > 64 << 20 {
            continue;
        }
        let bytes = vfs.read(ino, 0, usize::try_from(size).expect("short")).expect("read");
        bytes.slices().iter().for_each(|slice| hasher.update(slice));
        prop_assert_eq!(vfs.digest(ino).expect("told"), hasher.finish().content);
    }
    vfs.close().expect("closed");
    Ok(())
}

/// Copies a volume of segments as it lies there now, with `kept` of 255 of SQLite's write-ahead
/// log.
fn crash(volume: &Path, to: &Path, kept: u8) {
    fs::create_dir_all(to.join("segments")).expect("made");
    for name in ["meta.sqlite", "meta.sqlite-wal", "lock"] {
        fs::copy(volume.join(name), to.join(name)).expect("copied");
    }
    for entry in fs::read_dir(volume.join("segments")).expect("listed").flatten() {
        fs::copy(entry.path(), to.join("segments").join(entry.file_name())).expect("copied");
    }
    let log = OpenOptions::new().write(true).open(to.join("meta.sqlite-wal")).expect("opened");
    let len = log.metadata().expect("there").len();
    log.set_len(len * u64::from(kept) / 255).expect("cut");
}

/// Names of few letters, many of which begin alike; some are the beginning of others.
fn names() -> impl Strategy<Value = BTreeSet<Vec<u8>>> {
    let name = prop_oneof![
        (0..400u32).prop_map(|number| format!("file{number:03}").into_bytes()),
        prop::collection::vec(b'a'..b'c', 1..9),
        prop::collection::vec(250u8.., 1..4),
    ];
    prop::collection::btree_set(name, 0..300)
}

fn config(cases: u32) -> ProptestConfig {
    let all = std::env::var("PROPTEST_CASES").ok().and_then(|all| all.parse::<u32>().ok()).unwrap_or(256);
    ProptestConfig { cases: (all * cases).div_ceil(256), failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config(60))]

    #[test]
    fn a_file_of_small_blocks_has_the_digest_of_its_bytes(changes in changes(4096), segments: bool) {
        files_agree(4096, if segments { BlockHome::Segments } else { BlockHome::Database }, &changes)?;
    }

    #[test]
    fn a_file_of_usual_blocks_has_the_digest_of_its_bytes(changes in changes(65536)) {
        files_agree(65536, BlockHome::Segments, &changes)?;
    }

    #[test]
    fn what_a_crash_leaves_has_its_digests(changes in changes(4096), kept: [u8; 3]) {
        let (directory, _store, vfs) = volume(4096, BlockHome::Segments);
        let files = [b"a", b"b"].map(|name| vfs.make(Caller::ROOT, Ino::ROOT, name, FILE).expect("made").ino);
        for (round, change) in changes.iter().chain(&[Change::Commit]).enumerate() {
            let name = format!("file {round}");
            vfs.rename((Ino::ROOT, b"a"), (Ino::ROOT, name.as_bytes()), RenameMode::Replace).expect("renamed");
            vfs.rename((Ino::ROOT, name.as_bytes()), (Ino::ROOT, b"a"), RenameMode::Replace).expect("renamed");
            vfs.make(Caller::ROOT, Ino::ROOT, name.as_bytes(), FILE).expect("made");
            apply(&vfs, files, change);
            if let Change::Commit = change {
                for kept in kept.iter().chain(&[255]) {
                    let place = directory.path().join(format!("crashed {round} {kept}"));
                    crash(&directory.path().join("volume"), &place, *kept);
                    let left = sqlite::open(&place).expect("opens").store;
                    check_digests(&*left).map_err(TestCaseError::fail)?;
                }
            }
        }
        vfs.close().expect("closed");
    }

    #[test]
    fn a_directory_has_the_digest_of_its_entries(rounds in prop::collection::vec((names(), 0..3u8), 1..6)) {
        let (_directory, store, vfs) = volume(4096, BlockHome::Segments);
        let parent = vfs.make(Caller::ROOT, Ino::ROOT, b"directory", DIRECTORY).expect("made").ino;
        let mut there = BTreeSet::new();
        for (names, what) in rounds {
            for name in names {
                match (what, there.contains(&name)) {
                    (0 | 1, false) => {
                        vfs.make(Caller::ROOT, parent, &name, if name[0] == b'b' { DIRECTORY } else { FILE }).expect("made");
                        there.insert(name);
                    }
                    (1, true) => {
                        let ino = vfs.lookup(Caller::ROOT, parent, &name).expect("found").ino;
                        let permissions = Some(0o600);
                        vfs.set_attributes(ino, SetAttributes { permissions, ..SetAttributes::default() }).expect("set");
                    }
                    (2, true) => {
                        let removed = if name[0] == b'b' { vfs.remove_directory(parent, &name) } else { vfs.unlink(parent, &name) };
                        removed.expect("removed");
                        there.remove(&name);
                    }
                    _ => {}
                }
            }
            vfs.commit().expect("committed");
            check_digests(&*store).map_err(TestCaseError::fail)?;
        }
        // A move changes no digest below.
        let before = store.digest(parent).expect("read");
        vfs.rename((Ino::ROOT, b"directory"), (Ino::ROOT, b"moved"), RenameMode::Replace).expect("renamed");
        vfs.commit().expect("committed");
        prop_assert_eq!(store.digest(parent).expect("read"), before);
        check_digests(&*store).map_err(TestCaseError::fail)?;
        vfs.close().expect("closed");
    }
}

#[test]
fn digests_are_told_to_those_who_may_read_what_they_confirm() {
    const ALICE: u32 = 1000;
    let (_directory, _store, vfs) = volume(4096, BlockHome::Database);
    let directory = |parent, name: &[u8]| vfs.make(Caller::ROOT, parent, name, DIRECTORY).expect("made").ino;
    let file = |parent, name: &[u8], permissions| {
        let file = vfs.make(Caller::ROOT, parent, name, MakeNode { permissions, ..FILE }).expect("made").ino;
        vfs.write(file, 0, b"1234", false).expect("written");
        file
    };
    let give = |ino| {
        let changes = SetAttributes { uid: Some(ALICE), gid: Some(ALICE), ..SetAttributes::default() };
        vfs.set_attributes(ino, changes).expect("given");
    };
    let top = directory(Ino::ROOT, b"top");
    let below = directory(top, b"below");
    file(top, b"public", 0o644);
    file(below, b"public", 0o644);
    let first = b"user.weft.digest.entries.0";
    let told =
        |ino| [&b"user.weft.digest"[..], b"user.weft.digest.listed", first].map(|name| vfs.xattr(ino, name).is_ok());
    let told_to = |uid, ino| {
        let _asking = Asker::thread(uid, uid, 0).asks();
        told(ino)
    };
    assert_eq!(told_to(ALICE, top), [true; 3]);
    let secret = file(below, b"secret", 0o600);
    for of in [top, below] {
        assert_eq!((told_to(ALICE, of), told_to(0, of), told(of)), ([false; 3], [true; 3], [true; 3]));
    }
    assert_eq!(told_to(ALICE, secret)[..2], [false; 2]);
    // She may own the directories, and read nothing that is root's.
    give(top);
    give(below);
    assert_eq!(told_to(ALICE, below), [false; 3]);
    give(secret);
    assert_eq!((told_to(ALICE, below), told_to(ALICE, top)), ([true; 3], [true; 3]));
    let hidden = vfs.make(Caller::ROOT, top, b"hidden", MakeNode { permissions: 0o711, ..DIRECTORY }).expect("made");
    assert_eq!(told_to(ALICE, top), [false; 3]);
    give(hidden.ino);
    assert_eq!(told_to(ALICE, top), [true; 3]);
}

#[test]
fn entries_are_told_to_those_who_may_list_and_search_their_directory() {
    let (_directory, _store, vfs) = volume(4096, BlockHome::Database);
    let top = vfs.make(Caller::ROOT, Ino::ROOT, b"top", DIRECTORY).expect("made").ino;
    let file = vfs.make(Caller::ROOT, top, b"file", MakeNode { permissions: 0o644, ..FILE }).expect("made").ino;
    vfs.write(file, 0, b"1234", false).expect("written");
    vfs.make_symlink(Caller::ROOT, top, b"symlink", b"/somewhere").expect("made");
    let first = b"user.weft.digest.entries.0";
    for (permissions, is_told) in [(0o755, true), (0o744, false), (0o711, false), (0o700, false)] {
        let changes = SetAttributes { permissions: Some(permissions), ..SetAttributes::default() };
        vfs.set_attributes(top, changes).expect("set");
        let _asking = Asker::thread(1000, 1000, 0).asks();
        assert_eq!(vfs.xattr(top, first).is_ok(), is_told, "{permissions:o}");
    }
    assert!(vfs.xattr(top, first).is_ok(), "the holder of the volume");
}

#[test]
fn what_is_too_much_to_look_at_is_told_in_parts() {
    let (_directory, _store, vfs) = volume(4096, BlockHome::Database);
    let top = vfs.make(Caller::ROOT, Ino::ROOT, b"top", DIRECTORY).expect("made").ino;
    let parts = [b"a", b"b"].map(|name| vfs.make(Caller::ROOT, top, name, DIRECTORY).expect("made").ino);
    for part in parts {
        for number in 0..2100 {
            let node = MakeNode { kind: Kind::Fifo, ..FILE };
            vfs.make(Caller::ROOT, part, number.to_string().as_bytes(), node).expect("made");
        }
    }
    let _asking = Asker::thread(1000, 1000, 0).asks();
    assert_eq!([top, parts[0], parts[1]].map(|of| vfs.xattr(of, b"user.weft.digest").is_ok()), [false, true, true]);
}
