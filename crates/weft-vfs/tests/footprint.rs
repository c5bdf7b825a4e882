//! Memory that users can have the daemon hold: what is counted is what is really there.
//!
//! Each test counts the bytes that its own thread has and has not given back.

#![allow(missing_docs)]

use std::path::Path;
use std::sync::Arc;
use weft_store::{Timestamp, VolumeOptions, sqlite};
use weft_testkit::{Counting, held, held_bytes};
use weft_vfs::{
    AllocateMode, Caller, Ino, Kind, MakeNode, ManualClock, Options, RenameMode, SetAttributes, SetXattr, Vfs, Whence,
};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn make(vfs: &Vfs, parent: Ino, name: &str, kind: Kind) -> Ino {
    let node = MakeNode { kind, permissions: 0o755, umask: 0, rdev: 0 };
    vfs.make(Caller::ROOT, parent, name.as_bytes(), node).expect("made").ino
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
    let start = held_bytes();
    cloned(&vfs, "file", BLOCKS, || {
        most = most.max(usize::try_from(held_bytes() - start).unwrap_or(0));
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
    let start = held_bytes();
    let mut most = 0;
    for index in 0..60_000 {
        vfs.write(file, index * BLOCK, b"x", true).expect("written");
        most = most.max(usize::try_from(held_bytes() - start).unwrap_or(0));
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
        let start = held_bytes();
        let mut step = |work: &dyn Fn()| {
            work();
            most = most.max(usize::try_from(held_bytes() - start).unwrap_or(0));
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
