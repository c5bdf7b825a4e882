//! Limits: quotas, read-only volumes, operations that may not wait.

use crate::{DIRECTORY, FILE, Volume, kind, options, volume_options};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;
use weft_store::VolumeOptions;
use weft_testkit::{Calls, Faults};
use weft_vfs::blocking::{Answer, set_hook};
use weft_vfs::{AllocateMode, AtimePolicy, Caller, ErrorKind, Ino, Options, RenameMode, SetAttributes, SetXattr};

#[test]
fn the_inode_quota_counts_every_inode_until_it_is_deleted() {
    let volume = Volume::with(VolumeOptions { inodes_max: Some(3), ..volume_options() }, options());
    let ino = volume.file("a");
    volume.directory("b");
    assert_eq!(kind(volume.vfs.make(Caller::ROOT, Ino::ROOT, b"c", FILE)), ErrorKind::QuotaExceeded);
    assert_eq!(kind(volume.vfs.make_symlink(Caller::ROOT, Ino::ROOT, b"c", b"a")), ErrorKind::QuotaExceeded);
    volume.vfs.link(Caller::ROOT, ino, Ino::ROOT, b"c").expect("a link is no inode");
    volume.vfs.remove_directory(Ino::ROOT, b"b").expect("removed");
    volume.make(Ino::ROOT, "b", DIRECTORY);
    assert_eq!(volume.vfs.statfs().expect("told").inodes_free, 0);
}

#[test]
fn the_byte_quota_refuses_writes_beyond_it_and_gives_back_what_is_removed() {
    let max = 100 * 4096;
    let mut volume = Volume::with(VolumeOptions { bytes_max: Some(max), ..volume_options() }, options());
    let ino = volume.file("file");
    let mut written = 0;
    let error = loop {
        match volume.vfs.write(ino, written, &[1; 4096], false) {
            Ok(_) => written += 4096,
            Err(error) => break error.kind(),
        }
        volume.vfs.commit().expect("committed");
        assert!(written <= max, "more is stored than may be");
    };
    assert_eq!(error, ErrorKind::QuotaExceeded);
    assert!(written > max - 8192, "only {written} of {max} bytes could be written");
    volume.remount();
    assert_eq!(volume.attributes(ino).size, written);
    assert_eq!(kind(volume.vfs.write(ino, written, &[1; 8192], false)), ErrorKind::QuotaExceeded);
    volume.resize(ino, 0);
    volume.write(ino, 0, &[1; 8192]);
    let told = volume.vfs.statfs().expect("told");
    assert_eq!(told.bytes_total, max);
}

/// A store that does not tell how much there is room for says that all is free.
#[test]
fn content_counts_as_used_whatever_the_store_says_is_free() {
    let volume = Volume::new();
    let ino = volume.file("file");
    volume.write(ino, 0, &[1; 300_000]);
    volume.vfs.commit().expect("committed");
    let told = volume.vfs.statfs().expect("told");
    assert!(told.bytes_total - told.bytes_free >= 300_000, "{told:?}");
}

#[test]
fn uncommitted_bytes_count_against_the_quota_too() {
    let max = 20 * 4096;
    let volume = Volume::with(VolumeOptions { bytes_max: Some(max), ..volume_options() }, options());
    let ino = volume.file("file");
    let written = (0..100u64).take_while(|i| volume.vfs.write(ino, i * 4096, &[1; 4096], false).is_ok()).count();
    assert!(written <= 20, "{written} blocks fit a quota of 20");
    volume.vfs.commit().expect("committed");
    assert!(volume.vfs.stats().bytes_used <= max);
}

#[test]
fn a_read_only_volume_reads_and_refuses_every_change() {
    let mut volume = Volume::new();
    let ino = volume.file("file");
    volume.write(ino, 0, b"data");
    volume.vfs.close().expect("closed");
    volume.clock.advance(1000);
    volume.reopen(Options { read_only: true, atime: AtimePolicy::Always, ..options() });
    volume.store.set_faults(Faults {
        count: u32::MAX,
        kind: weft_store::ErrorKind::Bug,
        calls: Calls::Commits,
        ..Faults::NONE
    });
    let vfs = &volume.vfs;
    assert_eq!(volume.read(ino, 0, 10), b"data");
    assert_eq!(volume.attributes(ino).atime.0, 0);
    let results = [
        vfs.make(Caller::ROOT, Ino::ROOT, b"x", FILE).map(drop),
        vfs.make_unnamed(Caller::ROOT, Ino::ROOT, FILE).map(drop),
        vfs.make_symlink(Caller::ROOT, Ino::ROOT, b"x", b"y").map(drop),
        vfs.link(Caller::ROOT, ino, Ino::ROOT, b"x").map(drop),
        vfs.unlink(Ino::ROOT, b"file"),
        vfs.rename((Ino::ROOT, b"file"), (Ino::ROOT, b"x"), RenameMode::Replace),
        vfs.write(ino, 0, b"x", false).map(drop),
        vfs.allocate(ino, 0, 1, AllocateMode::ZeroRange),
        vfs.set_attributes(ino, SetAttributes::default()).map(drop),
        vfs.set_xattr(ino, b"user.a", b"", SetXattr::Any, false),
    ];
    for (i, result) in results.into_iter().enumerate() {
        assert_eq!(kind(result), ErrorKind::ReadOnly, "change {i}");
    }
    vfs.sync().expect("nothing to do");
    vfs.close().expect("closed");
}

#[test]
fn an_operation_that_may_not_wait_says_so_and_changes_nothing() {
    let tight = Options { dirty_bytes_max: 64 << 10, ..options() };
    let volume = Volume::with(volume_options(), tight);
    let ino = volume.file("file");
    let vfs = volume.vfs.clone();
    // The hook is the thread's: a thread of its own keeps it from other tests.
    std::thread::spawn(move || {
        set_hook(|_| Answer::GiveUp);
        assert_eq!(kind(vfs.sync()), ErrorKind::WouldBlock);
        let mut written = 0;
        let error = loop {
            match vfs.write(ino, written, &[1; 4096], false) {
                Ok(_) => written += 4096,
                Err(error) => break error.kind(),
            }
        };
        assert_eq!(error, ErrorKind::WouldBlock);
        let before = vfs.progress();
        assert_eq!(kind(vfs.write(ino, 0, &[2; 8192], false)), ErrorKind::WouldBlock);
        let found = vfs.attributes(ino).expect("there");
        assert_eq!((found.size, vfs.progress()), (written, before));
        assert_eq!(vfs.read(ino, 0, 1).expect("read").to_vec(), [1]);
    })
    .join()
    .expect("no assertion failed");
    volume.write(ino, 0, &[2; 8192]);
    assert_eq!(volume.read(ino, 0, 1), [2]);
}

/// Little is changed, but what is to come needs more than is left, and nothing else would have
/// anything committed for an hour.
#[test]
fn who_needs_much_room_has_it_made() {
    let commit_interval = Duration::from_hours(1);
    let options = Options { dirty_bytes_max: 12 << 10, background: true, commit_interval, ..options() };
    let volume = Volume::with(volume_options(), options);
    let ino = volume.file("file");
    volume.vfs.commit().expect("committed");
    volume.write(ino, 0, &[1; 4096]);
    let dirty = volume.vfs.stats().dirty_bytes;
    assert!(dirty > 4096 && dirty < 6144, "{dirty}");
    let (sender, receiver) = channel();
    std::thread::spawn(move || sender.send(volume.vfs.allocate(ino, 0, 100, AllocateMode::Extend)));
    receiver.recv_timeout(Duration::from_mins(1)).expect("it does not wait for the hour").expect("allocated");
}

#[test]
fn memory_for_changes_and_caches_stays_within_its_bounds() {
    let (dirty, cached) = (1 << 20, 1 << 20);
    let bounds =
        Options { dirty_bytes_max: dirty, metadata_cache_bytes: cached, block_cache_bytes: cached, ..options() };
    let volume = Volume::with(volume_options(), bounds);
    let data = vec![1; 20_000];
    let mut inos = Vec::new();
    for i in 0..500 {
        let ino = volume.file(&i.to_string());
        volume.write(ino, 0, &data);
        inos.push(ino);
        assert!(volume.vfs.stats().dirty_bytes <= dirty);
    }
    volume.vfs.commit().expect("committed");
    for ino in inos {
        assert_eq!(volume.read(ino, 0, 30_000), data);
        let stats = volume.vfs.stats();
        assert!(stats.metadata_bytes <= 2 * cached && stats.block_bytes <= 2 * cached, "{stats:?}");
    }
    assert_eq!(Arc::strong_count(&volume.vfs), 1);
}

#[test]
fn changes_are_refused_from_a_commit_on_until_they_are_taken_again() {
    let volume = Volume::with(volume_options(), Options { atime: AtimePolicy::Always, ..options() });
    let ino = volume.file("file");
    volume.write(ino, 0, &[1; 5000]);
    volume.vfs.refuse_changes().expect("committed");
    assert!(volume.vfs.is_read_only());
    let (done, durable) = volume.vfs.progress();
    assert_eq!(done, durable);
    assert_eq!(kind(volume.vfs.write(ino, 0, b"x", false)), ErrorKind::ReadOnly);
    assert_eq!(kind(volume.vfs.make(Caller::ROOT, Ino::ROOT, b"new", FILE)), ErrorKind::ReadOnly);
    volume.clock.advance(1000);
    let before = volume.attributes(ino).atime;
    assert_eq!(volume.read(ino, 0, 5000), [1; 5000]);
    assert_eq!(volume.attributes(ino).atime, before, "reading moves nothing");
    assert_eq!(volume.vfs.stats().dirty_bytes, 0);
    volume.vfs.take_changes().expect("taken");
    volume.write(ino, 0, b"x");
}

#[test]
fn changes_are_taken_as_before_if_they_cannot_be_committed_to_be_refused() {
    let volume = Volume::new();
    let ino = volume.file("file");
    let kind_of_store = weft_store::ErrorKind::Full;
    volume.store.set_faults(Faults { count: u32::MAX, kind: kind_of_store, calls: Calls::Commits, ..Faults::NONE });
    assert_eq!(kind(volume.vfs.refuse_changes()), ErrorKind::NoSpace);
    volume.write(ino, 0, b"x");
    volume.store.set_faults(Faults::NONE);
    volume.vfs.refuse_changes().expect("committed");
}

/// One user's directories, nested half a million deep, kept all others waiting for minutes: the
/// walk up from there began again for each directory that was not in memory.
#[test]
fn a_directory_is_not_moved_to_where_the_way_up_is_too_long() {
    const LEVELS: usize = 1 << 14;
    let mut volume = Volume::with(volume_options(), Options { metadata_cache_bytes: 0, ..options() });
    let mut way = vec![Ino::ROOT];
    for _ in 0..LEVELS + 2 {
        way.push(volume.make(way[way.len() - 1], "d", DIRECTORY));
    }
    let places = [LEVELS - 2, LEVELS + 1].map(|level| (way[level], volume.make(way[level], "moved", DIRECTORY)));
    let beside = places.map(|(parent, _)| volume.make(parent, "beside", DIRECTORY));
    volume.remount();
    let moved = |number: usize| {
        let from = (places[number].0, &b"moved"[..]);
        volume.vfs.rename(from, (beside[number], b"moved"), RenameMode::Replace)
    };
    moved(0).expect("its way is short enough");
    assert_eq!(kind(moved(1)), ErrorKind::NameTooLong);
    let to_itself = volume.vfs.rename((Ino::ROOT, b"d"), (way[LEVELS / 2], b"x"), RenameMode::Replace);
    assert_eq!(kind(to_itself), ErrorKind::Invalid);
}
