//! Memory that users can have the daemon hold: what is counted is what is really there.
//!
//! Each test counts the bytes that its own thread has and has not given back.

#![allow(missing_docs)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;
use weft_store::{Timestamp, VolumeOptions, sqlite};
use weft_testkit::CrashStore;
use weft_transform::Network;
use weft_vfs::{
    AllocateMode, Caller, Holds, Ino, Kind, LinkDefinition, MakeNode, ManualClock, Options, Pushed, RenameMode, Scope,
    SetAttributes, SetXattr, Stats, Vfs, ViewKind, Whence,
};

/// The system's allocator, with a count of what a thread has of it.
struct Counting;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: usize, sign: isize) {
    let _ = HELD.try_with(|held| held.set(held.get() + sign * bytes.cast_signed()));
}

// SAFETY: all is passed on to the system's allocator unchanged.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 1);
        // SAFETY: the caller's promises are those that the system's allocator asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(layout.size(), -1);
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(layout.size(), -1);
        count(size, 1);
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Returns the result of `work`, and the number of bytes held since.
fn held<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = HELD.get();
    let made = work();
    (made, usize::try_from(HELD.get() - before).unwrap_or(0))
}

const FILES: usize = 2000;

fn volume(options: Options) -> Arc<Vfs> {
    let store = Arc::new(CrashStore::new(VolumeOptions::default()));
    let options = Options { background: false, ..options };
    Vfs::open(store, None, options, Arc::new(ManualClock::default())).expect("opens")
}

fn make(vfs: &Vfs, parent: Ino, name: &str, kind: Kind) -> Ino {
    let node = MakeNode { kind, permissions: 0o755, umask: 0, rdev: 0 };
    vfs.make(Caller::ROOT, parent, name.as_bytes(), node).expect("made").ino
}

/// A volume with a directory of many files, which are in memory.
fn files() -> (Arc<Vfs>, Ino) {
    let vfs = volume(Options::default());
    let source = make(&vfs, Ino::ROOT, "source", Kind::Directory);
    for number in 0..FILES {
        make(&vfs, source, &number.to_string(), Kind::File);
    }
    (vfs, source)
}

fn view(vfs: &Vfs, name: &str, target: &str, view: ViewKind, network: &str) -> Ino {
    let definition = LinkDefinition { view, ..LinkDefinition::new(vec![target.into()], network) };
    vfs.make_link(Caller::ROOT, Ino::ROOT, name.as_bytes(), 0o777, &definition).expect("made").ino
}

fn plain() -> ViewKind {
    ViewKind::Directory { rename: None, only: None }
}

/// One as in an attack, of 50 stages, which takes 50 kB: a different one for each number.
fn attack(number: usize) -> String {
    let letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ012345678";
    let stage = format!("tr '{letters}{number:06}' '{letters}'");
    vec![stage; 50].join(" | ")
}

/// Has the kernel hold these entries of `view`; gives the bytes that each takes and that are
/// counted.
fn hold(vfs: &Vfs, view: Ino, names: impl Iterator<Item = String>) -> (usize, usize) {
    let caller = Caller { holds: Holds::Counted, ..Caller::ROOT };
    let before = vfs.stats().metadata_bytes;
    let names: Vec<String> = names.collect();
    let ((), held) = held(|| {
        for name in &names {
            vfs.lookup(caller, view, name.as_bytes()).expect("shown");
        }
    });
    let count = names.len();
    let counted = usize::try_from(vfs.stats().metadata_bytes - before).unwrap();
    (held / count, counted / count)
}

#[test]
fn an_entry_of_a_view_takes_a_few_hundred_bytes_whatever_the_network() {
    let (vfs, _) = files();
    for (name, network) in [("short", "rot13"), ("long", &*attack(0))] {
        let view = view(&vfs, name, "/source", plain(), network);
        let (held, counted) = hold(&vfs, view, (0..FILES).map(|number| number.to_string()));
        println!("{name}: {held} bytes each, {counted} counted");
        assert!(held <= 1024, "{held} bytes of each entry of the {name} one");
        // Of the view itself there is one.
        assert!(
            held <= counted + 128 && counted <= 1024 + 1024 * 1024 / FILES,
            "{held} of which {counted} are counted"
        );
    }
    let virtual_inodes = vfs.stats().virtual_inodes;
    assert_eq!(virtual_inodes, 2 * FILES as u64);
}

#[test]
fn so_does_a_member_of_an_archive() {
    let vfs = volume(Options::default());
    let mut tar = tar::Builder::new(Vec::new());
    for number in 0..FILES {
        let mut header = tar::Header::new_gnu();
        header.set_size(1);
        header.set_cksum();
        tar.append_data(&mut header, number.to_string(), &b"m"[..]).expect("added");
    }
    let archive = make(&vfs, Ino::ROOT, "archive", Kind::File);
    vfs.write(archive, 0, &tar.into_inner().expect("whole"), true).expect("written");
    let view = view(&vfs, "view", "/archive", ViewKind::Members, &attack(0));
    vfs.lookup(Caller::ROOT, view, b"0").expect("shown");
    // Those that are used lately are made, within a bound.
    let recent = 4 << 20;
    let (held, counted) = hold(&vfs, view, (0..FILES).map(|number| number.to_string()));
    println!("{held} bytes each, {counted} counted");
    assert!(held <= 1024 + recent / FILES && held <= counted + 128, "{held} of which {counted} are counted");
}

/// Each link that was made was in memory whole until it was committed.
#[test]
fn views_that_are_not_committed_yet_keep_within_the_bound() {
    const BYTES_MAX: u64 = 16 << 20;
    let vfs = volume(Options { metadata_cache_bytes: BYTES_MAX, ..Options::default() });
    make(&vfs, Ino::ROOT, "source", Kind::Directory);
    let ((), held) = held(|| {
        for number in 0..60 {
            let only = Some(format!("{number}[^x]{{0,1200}}"));
            view(&vfs, &number.to_string(), "/source", ViewKind::Directory { rename: None, only }, "rot13");
        }
    });
    let counted = vfs.stats().metadata_bytes;
    println!("{held} bytes, {counted} counted");
    assert!(counted <= BYTES_MAX && held as u64 <= BYTES_MAX, "{counted} counted, {held} held");
}

/// A file of user `uid`.
fn file_of(vfs: &Vfs, uid: u32) -> Ino {
    let file = make(vfs, Ino::ROOT, &format!("of {uid}"), Kind::File);
    vfs.set_attributes(file, SetAttributes { uid: Some(uid), ..SetAttributes::default() }).expect("set");
    file
}

fn push(vfs: &Vfs, ino: Ino, number: u64, network: &str) -> weft_vfs::Result<()> {
    let pushed = Pushed { network: network.into(), code: Vec::new(), may_resize: true };
    vfs.push(Caller { uid: 1000, ..Caller::ROOT }, ino, Scope::Opened(number), &pushed)
}

fn told(vfs: &Vfs) -> (u64, u64, u64, u64) {
    let Stats { networks_pushed, pushed_bytes, pushes_refused, virtual_inodes, .. } = vfs.stats();
    (networks_pushed, pushed_bytes, pushes_refused, virtual_inodes)
}

#[test]
fn equal_networks_that_are_pushed_take_memory_once_and_none_when_closed() {
    let vfs = volume(Options::default());
    let file = file_of(&vfs, 1000);
    push(&vfs, file, 0, &attack(0)).expect("pushed");
    let ((), bytes) = held(|| (1..1000).for_each(|number| push(&vfs, file, number, &attack(0)).expect("pushed")));
    println!("{} bytes each", bytes / 999);
    let (pushed, counted, _, virtual_inodes) = told(&vfs);
    assert!((pushed, virtual_inodes) == (1000, 1000) && bytes / 999 <= 1024, "{} bytes each", bytes / 999);
    assert!(counted <= 2 << 20 && bytes as u64 <= counted, "{counted} counted");
    (0..1000).for_each(|number| vfs.pop_all(file, number));
    assert_eq!(told(&vfs), (0, 0, 0, 0));
}

#[test]
fn networks_that_a_user_pushes_have_a_bound_and_what_they_take_is_counted() {
    let vfs = volume(Options::default());
    let (file, others) = (file_of(&vfs, 1000), file_of(&vfs, 1001));
    let (refused, bytes) =
        held(|| (0..).find_map(|number| push(&vfs, file, number as u64, &attack(number)).err()).expect("it ends"));
    assert_eq!(refused.errno(), 122, "EDQUOT");
    let (pushed, counted, refused, _) = told(&vfs);
    println!("{pushed} pushed in {bytes} bytes, {counted} counted");
    assert!(pushed > 100 && refused == 1 && counted <= 16 << 20, "{pushed} pushed, {counted} counted");
    assert!(bytes as u64 <= counted, "{bytes} held, {counted} counted");
    let other = Pushed { network: "rot13".into(), code: Vec::new(), may_resize: true };
    vfs.push(Caller { uid: 1001, ..Caller::ROOT }, others, Scope::Opened(1 << 32), &other).expect("others have room");
    vfs.pop_all(file, 0);
    push(&vfs, file, 0, &attack(0)).expect("there is room again");
}

#[test]
fn a_network_takes_no_more_than_it_says() {
    let long = "x".repeat(5000);
    let networks = [
        "identity | rot13 | upper | xor 7 | tr 'a-z' 'A-Z'".to_owned(),
        "grep '^pa' | sort | uniq | wc -l | head -n 3 | nl | rev".to_owned(),
        "gzip | gzip -d | base64 | base64 -d | sha256".to_owned(),
        format!("replace '{long}' '{long}' | grep '{long}'"),
        format!("replace '{long}' y"),
        "concat(rot13, upper | rev, lower, $1)".to_owned(),
        attack(1),
    ];
    for text in networks {
        let (network, bytes) = held(|| Network::known(&text));
        let network = network.unwrap_or_else(|error| panic!("{text:.60}: {error}"));
        assert!(bytes + size_of::<Network>() <= network.bytes(), "{bytes} of {}: {:.60}", network.bytes(), text);
        assert!(network.bytes() <= 4 * bytes + 4096, "{bytes} of {}: {:.60}", network.bytes(), text);
    }
    for entry in weft_transform::catalog::STAGES {
        let (network, bytes) = held(|| Network::known(entry.name));
        if let Ok(network) = network {
            assert!(bytes + size_of::<Network>() <= network.bytes(), "{bytes} of {}: {}", network.bytes(), entry.name);
        }
    }
}

const BLOCK: u64 = 4096;

/// Blocks of large files in these tests: more than are deleted at once.
const BLOCKS: u64 = 300_000;

/// Bounds of a volume on which a user makes very many blocks.
fn small() -> Options {
    Options { metadata_cache_bytes: 16 << 20, dirty_bytes_max: 64 << 20, ..Options::default() }
}

/// Bytes that the bounds of [`small`] allow, and room for a part of a map beyond.
const HELD_MAX: usize = (16 << 20) + (8 << 20);

/// A volume in a file, so that rows take no memory that counts; with blocks that are cheap to make.
fn in_file(directory: &Path, options: Options) -> Arc<Vfs> {
    let path = directory.join("v.weft");
    if !path.exists() {
        let volume = VolumeOptions { block_size: 4096, inline_max: 0, digests: false, ..VolumeOptions::default() };
        sqlite::create(&path, &volume, (0, 0), Timestamp(0)).expect("created");
    }
    let store = sqlite::open(&path).expect("opened").store;
    Vfs::open(store, None, options, Arc::new(ManualClock::default())).expect("opens")
}

/// A file of so many blocks that all are the same few, doubled again and again.
fn cloned(vfs: &Vfs, name: &str, blocks: u64, mut each: impl FnMut()) -> Ino {
    let file = make(vfs, Ino::ROOT, name, Kind::File);
    vfs.write(file, 0, &vec![1; 64 * BLOCK as usize], true).expect("written");
    let mut size = 64 * BLOCK;
    while size < blocks * BLOCK {
        let wanted = size.min(blocks * BLOCK - size);
        let mut copied = 0;
        while copied < wanted {
            copied += vfs.copy_range((file, copied), (file, size + copied), wanted - copied).expect("copied");
            each();
        }
        size += copied;
    }
    file
}

/// Whoever cloned a file again and again had its map in memory as a whole, without a bound, and one
/// commit had all of it.
#[test]
fn blocks_that_are_cloned_wait_for_commits_and_go_from_memory() {
    let directory = tempfile::tempdir().expect("a directory");
    let vfs = in_file(directory.path(), Options { background: false, ..small() });
    let (mut most, mut commits) = (0, 0);
    let start = HELD.get();
    cloned(&vfs, "file", BLOCKS, || {
        most = most.max(usize::try_from(HELD.get() - start).unwrap_or(0));
        commits = vfs.stats().commits;
    });
    println!("{most} bytes at most, {commits} commits");
    assert!(most <= HELD_MAX, "{most} bytes");
    // As if the bytes had been written.
    assert!(commits >= BLOCKS * BLOCK / (64 << 20), "{commits} commits");
    vfs.close().expect("closed");
}

/// Sought, punched and cut, a file was loaded as a whole.
#[test]
fn a_file_of_very_many_blocks_is_looked_at_and_cut_in_parts() {
    let directory = tempfile::tempdir().expect("a directory");
    let vfs = in_file(directory.path(), Options { background: false, ..small() });
    let file = cloned(&vfs, "file", BLOCKS, || {});
    vfs.allocate(file, (BLOCKS - 1) * BLOCK, BLOCK, AllocateMode::PunchHole).expect("punched");
    vfs.close().expect("closed");
    drop(vfs);
    let vfs = in_file(directory.path(), Options { background: false, ..small() });
    let step = |what: &str, work: &dyn Fn()| {
        let ((), bytes) = held(work);
        println!("{what}: {bytes} bytes, {} counted", vfs.stats().metadata_bytes);
        assert!(bytes <= HELD_MAX, "{what}: {bytes} bytes");
    };
    step("seek", &|| {
        assert_eq!(vfs.seek(file, 0, Whence::Hole).expect("found"), (BLOCKS - 1) * BLOCK);
        assert_eq!(vfs.seek(file, BLOCK, Whence::Data).expect("found"), BLOCK);
        assert!(vfs.seek(file, (BLOCKS - 1) * BLOCK, Whence::Data).is_err());
    });
    step("punch", &|| {
        vfs.allocate(file, 10 * BLOCK + 1, BLOCKS / 2 * BLOCK, AllocateMode::PunchHole).expect("punched");
        assert_eq!(vfs.seek(file, 0, Whence::Hole).expect("found"), 11 * BLOCK);
        assert_eq!(vfs.seek(file, 11 * BLOCK, Whence::Data).expect("found"), (10 + BLOCKS / 2) * BLOCK);
    });
    let taken = vfs.attributes(file).expect("there").allocated;
    assert_eq!(taken, (BLOCKS - 1 - (BLOCKS / 2 - 1)) * BLOCK);
    step("cut", &|| {
        let set = SetAttributes { size: Some(10 * BLOCK + 5), ..SetAttributes::default() };
        vfs.set_attributes(file, set).expect("cut");
    });
    let attributes = vfs.attributes(file).expect("there");
    assert_eq!((attributes.size, attributes.allocated), (10 * BLOCK + 5, 10 * BLOCK + 5));
    assert_eq!(vfs.read(file, 10 * BLOCK, 100).expect("readable").contiguous()[..], [1, 0, 0, 0, 0]);
    vfs.close().expect("closed");
}

/// One commit deleted all rows of a file, however many there were.
#[test]
fn a_file_of_very_many_blocks_is_deleted_over_several_commits() {
    let directory = tempfile::tempdir().expect("a directory");
    let vfs = in_file(directory.path(), Options { background: false, ..small() });
    cloned(&vfs, "file", BLOCKS, || {});
    vfs.close().expect("closed");
    drop(vfs);
    let vfs = in_file(directory.path(), small());
    let before = vfs.stats().commits;
    vfs.unlink(Ino::ROOT, b"file").expect("removed");
    assert!(vfs.lookup(Caller::ROOT, Ino::ROOT, b"file").is_err(), "the name is gone at once");
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while vfs.stats().inodes_used > 1 || vfs.stats().dirty_bytes > 0 {
        assert!(std::time::Instant::now() < deadline, "{:?}", vfs.stats());
        std::thread::yield_now();
    }
    let (stats, bytes) = (vfs.stats(), vfs.stats().bytes_used);
    assert!(bytes == 0 && stats.commits - before >= 2, "{} commits, {bytes} bytes", stats.commits - before);
    vfs.close().expect("closed");
}

/// A byte in each of many blocks counted as one.
#[test]
fn bytes_in_very_many_blocks_count_with_what_they_take() {
    let directory = tempfile::tempdir().expect("a directory");
    let vfs = in_file(directory.path(), Options { background: false, dirty_bytes_max: 16 << 20, ..small() });
    let file = make(&vfs, Ino::ROOT, "file", Kind::File);
    let start = HELD.get();
    let mut most = 0;
    for index in 0..60_000 {
        vfs.write(file, index * BLOCK, b"x", true).expect("written");
        most = most.max(usize::try_from(HELD.get() - start).unwrap_or(0));
    }
    println!("{most} bytes at most, {} commits", vfs.stats().commits);
    assert!(most <= HELD_MAX + (16 << 20) && vfs.stats().commits >= 2, "{most} bytes, {}", vfs.stats().commits);
    vfs.close().expect("closed");
}

/// An inode kept all values that were ever set or read, whatever they weighed.
#[test]
fn extended_attributes_wait_for_commits_and_go_from_memory() {
    let directory = tempfile::tempdir().expect("a directory");
    let vfs = in_file(directory.path(), Options { background: false, ..small() });
    let value = vec![7; 60_000];
    let files: Vec<Ino> = (0..240).map(|number| make(&vfs, Ino::ROOT, &format!("file {number}"), Kind::File)).collect();
    let mut most = 0;
    let ((), _) = held(|| {
        let start = HELD.get();
        let mut step = |work: &dyn Fn()| {
            work();
            most = most.max(usize::try_from(HELD.get() - start).unwrap_or(0));
        };
        for (file, number) in files.iter().flat_map(|file| (0..17).map(move |number| (*file, number))) {
            let name = format!("user.{number}");
            step(&|| vfs.set_xattr(file, name.as_bytes(), &value, SetXattr::Any, false).expect("set"));
        }
        for file in &files {
            step(&|| assert_eq!(vfs.xattr(*file, b"user.16").expect("there"), value));
        }
    });
    println!("{most} bytes at most, {} commits", vfs.stats().commits);
    // Those that wait for a commit count as changes.
    assert!(most <= HELD_MAX + (64 << 20), "{most} bytes");
    vfs.close().expect("closed");
}

/// Each row that an operation fetched pushed another one out that it needed, too.
#[test]
fn operations_end_however_small_the_bound_of_metadata_is() {
    let directory = tempfile::tempdir().expect("a directory");
    let options = Options { background: false, metadata_cache_bytes: 0, ..Options::default() };
    let vfs = in_file(directory.path(), options);
    let directories: Vec<Ino> =
        (0..40).map(|number| make(&vfs, Ino::ROOT, &format!("d{number}"), Kind::Directory)).collect();
    for directory in &directories {
        for number in 0..20 {
            make(&vfs, *directory, &format!("f{number}"), Kind::File);
        }
    }
    vfs.commit().expect("committed");
    // More than are kept whatever they weigh, and none of them can go.
    for number in 0..600 {
        make(&vfs, Ino::ROOT, &format!("new{number}"), Kind::File);
    }
    for (from, to) in directories.iter().zip(directories.iter().rev()) {
        for number in 0..20 {
            let name = format!("f{number}");
            vfs.rename((*from, name.as_bytes()), (*to, format!("from {}", from.0).as_bytes()), RenameMode::Replace)
                .expect("renamed");
        }
    }
    vfs.close().expect("closed");
}
