//! Content: sparse files, holes, clones, allocating.

use crate::{Volume, kind, options};
use weft_testkit::Faults;
use weft_vfs::{AllocateMode, ErrorKind, Ino, Options, Whence};

const END: u64 = i64::MAX as u64;

#[test]
fn a_sparse_file_may_be_as_long_as_an_offset_can_say() {
    let mut volume = Volume::new();
    let ino = volume.file("file");
    volume.write(ino, END - 5, b"12345");
    assert_eq!(kind(volume.vfs.write(ino, END - 4, b"12345", false)), ErrorKind::TooBig);
    assert_eq!(kind(volume.vfs.write(ino, u64::MAX, b"1", false)), ErrorKind::TooBig);
    assert_eq!(kind(volume.vfs.allocate(ino, END, 1, AllocateMode::Extend)), ErrorKind::TooBig);
    for _ in 0..2 {
        let found = volume.attributes(ino);
        assert_eq!(found.size, END);
        assert!(found.allocated <= 4096, "{} bytes allocated", found.allocated);
        assert_eq!(volume.read(ino, END - 8, 100), b"\0\0\x0012345");
        assert_eq!(volume.read(ino, 1 << 40, 10_000), [0; 10_000]);
        let data = volume.vfs.seek(ino, 0, Whence::Data).expect("data");
        assert!(data > END - 5000 && data <= END - 5);
        assert_eq!(volume.vfs.seek(ino, 0, Whence::Hole).expect("a hole"), 0);
        volume.remount();
    }
    volume.resize(ino, 3);
    assert_eq!(volume.read(ino, 0, 100), [0; 3]);
}

#[test]
fn what_appends_is_written_at_the_end_wherever_the_writer_takes_it_to_be() {
    let volume = Volume::new();
    let ino = volume.file("file");
    volume.write(ino, 0, b"12345");
    for (taken, data, end) in [(5, "67", 5), (3, "89", 7), (100, "ab", 9), (0, "", 11)] {
        let (_, began) = volume.vfs.write_at_end(ino, taken, data.as_bytes(), false).expect("written");
        assert_eq!(began, end);
    }
    assert_eq!(volume.read(ino, 0, 100), b"123456789ab");
}

#[test]
fn seeking_finds_data_and_holes_before_and_after_commits() {
    let mut volume = Volume::new();
    let ino = volume.file("file");
    volume.write(ino, 4 * 4096, &[1; 2 * 4096]);
    volume.resize(ino, 100 * 4096);
    for _ in 0..2 {
        let seek = |offset: u64, whence| volume.vfs.seek(ino, offset * 4096, whence).map(|found| found / 4096);
        assert_eq!(seek(0, Whence::Data).expect("data"), 4);
        assert_eq!(seek(5, Whence::Data).expect("data"), 5);
        assert_eq!(seek(4, Whence::Hole).expect("a hole"), 6);
        assert_eq!(seek(50, Whence::Hole).expect("a hole"), 50);
        assert_eq!(kind(seek(6, Whence::Data)), ErrorKind::NoData);
        assert_eq!(kind(seek(100, Whence::Hole)), ErrorKind::NoData);
        volume.remount();
    }
}

/// Attack: the kernel locks a file while somebody seeks in it, and many processes may.
#[test]
fn who_looks_for_a_hole_again_does_not_walk_the_whole_file_again() {
    let mut volume = Volume::new();
    let ino = volume.file("file");
    volume.write(ino, 0, &[1; 64 * 4096]);
    let mut blocks = 64;
    while blocks < 1 << 15 {
        volume.vfs.commit().expect("committed");
        let bytes = blocks * 4096;
        assert_eq!(volume.vfs.copy_range((ino, 0), (ino, bytes), bytes).expect("copied"), bytes);
        blocks *= 2;
    }
    volume.resize(ino, (blocks + 8) * 4096);
    volume.vfs.commit().expect("committed");
    // The map does not stay in memory.
    volume.reopen(Options { metadata_cache_bytes: 1 << 20, ..options() });
    let hole = || volume.vfs.seek(ino, 0, Whence::Hole).map(|found| found / 4096);
    assert_eq!(hole().expect("a hole"), blocks);
    volume.store.set_faults(Faults { after: 2, count: u32::MAX, ..Faults::NONE });
    assert_eq!(hole().expect("a hole"), blocks);
    assert_eq!(volume.vfs.seek(ino, 10 * 4096, Whence::Hole).expect("a hole"), blocks * 4096);
    volume.store.set_faults(Faults::NONE);
    // What changed since is looked at again.
    volume.vfs.allocate(ino, 100 * 4096, 4096, AllocateMode::PunchHole).expect("punched");
    assert_eq!(volume.vfs.seek(ino, 0, Whence::Hole).expect("a hole"), 100 * 4096);
}

#[test]
fn the_end_of_a_file_without_holes_counts_as_one() {
    let mut volume = Volume::new();
    for (name, len) in [("small", 10), ("large", 10_000)] {
        let ino = volume.file(name);
        volume.write(ino, 0, &vec![1; len]);
        for _ in 0..2 {
            assert_eq!(volume.vfs.seek(ino, 3, Whence::Hole).expect("the end"), len as u64);
            assert_eq!(volume.vfs.seek(ino, 3, Whence::Data).expect("data"), 3);
            volume.remount();
        }
    }
}

#[test]
fn copies_share_blocks_until_one_is_written() {
    let mut volume = Volume::new();
    let (from, to) = (volume.file("from"), volume.file("to"));
    let data: Vec<u8> = (0..40_000u32).map(|i| (i / 4096) as u8).collect();
    volume.write(from, 0, &data);
    volume.vfs.commit().expect("committed");
    let blocks = volume.store.block_count();
    assert_eq!(volume.vfs.copy_range((from, 0), (to, 0), u64::MAX).expect("copied"), 40_000);
    volume.vfs.commit().expect("committed");
    assert_eq!(volume.store.block_count(), blocks);
    assert_eq!(volume.attributes(to).allocated, volume.attributes(from).allocated);
    volume.write(to, 4096, &[9; 4096]);
    volume.vfs.commit().expect("committed");
    assert_eq!(volume.store.block_count(), blocks + 1);
    volume.vfs.unlink(Ino::ROOT, b"from").expect("unlinked");
    volume.remount();
    let mut expected = data;
    expected[4096..8192].fill(9);
    assert_eq!(volume.read(to, 0, 50_000), expected);
    assert_eq!(volume.store.block_count(), blocks);
}

#[test]
fn a_copied_hole_is_a_hole_and_no_call_copies_for_ever() {
    let volume = Volume::new();
    let (from, to) = (volume.file("from"), volume.file("to"));
    let end = 1 << 60;
    volume.write(from, end, b"end");
    volume.write(to, 1000, &[7; 20_000]);
    // Blocks that line up, and such that do not.
    for (from_offset, to_offset) in [(0, 0), (4096, 3)] {
        let copied = volume.vfs.copy_range((from, from_offset), (to, to_offset), u64::MAX >> 2).expect("copied");
        assert!((1 << 20..=1 << 30).contains(&copied), "{copied}");
        assert_eq!(volume.read(to, 0, 30_000), [0; 30_000]);
        assert_eq!(volume.attributes(to).size, to_offset + copied);
        assert!(volume.attributes(to).allocated <= 4096, "{}", volume.attributes(to).allocated);
    }
    assert_eq!(volume.vfs.copy_range((from, end - 5000), (to, 1), 6000).expect("the hole, then the data"), 5003);
    assert_eq!(volume.read(to, 1, 5003), [&[0; 5000][..], b"end"].concat());
}

#[test]
fn a_copy_within_a_file_may_not_overlap_itself() {
    let volume = Volume::new();
    let ino = volume.file("file");
    volume.write(ino, 0, &[1; 10_000]);
    assert_eq!(kind(volume.vfs.copy_range((ino, 0), (ino, 4096), 8192)), ErrorKind::Invalid);
    assert_eq!(volume.vfs.copy_range((ino, 0), (ino, 12_288), 8192).expect("copied"), 8192);
    assert_eq!(volume.vfs.copy_range((ino, 1 << 30), (ino, 0), 1).expect("at the end"), 0);
    assert_eq!(volume.attributes(ino).size, 20_480);
}

#[test]
fn punched_holes_give_their_space_back() {
    let volume = Volume::new();
    let ino = volume.file("file");
    volume.write(ino, 0, &[1; 16 * 4096]);
    volume.vfs.commit().expect("committed");
    volume.vfs.allocate(ino, 4096, 14 * 4096, AllocateMode::PunchHole).expect("punched");
    volume.vfs.commit().expect("committed");
    assert_eq!(volume.store.block_count(), 2);
    assert_eq!(volume.attributes(ino).allocated, 2 * 4096);
    assert_eq!(volume.attributes(ino).size, 16 * 4096);
    assert_eq!(kind(volume.vfs.allocate(ino, 0, 0, AllocateMode::PunchHole)), ErrorKind::Invalid);
}

#[test]
fn content_of_anything_but_a_file_is_refused() {
    let volume = Volume::new();
    let directory = volume.directory("directory");
    let link = volume.vfs.make_symlink(weft_vfs::Caller::ROOT, Ino::ROOT, b"link", b"x").expect("made").ino;
    for (ino, error) in [(directory, ErrorKind::IsDirectory), (link, ErrorKind::Invalid)] {
        assert_eq!(kind(volume.vfs.read(ino, 0, 1)), error);
        assert_eq!(kind(volume.vfs.write(ino, 0, b"x", false)), error);
        assert_eq!(kind(volume.vfs.allocate(ino, 0, 1, AllocateMode::Extend)), error);
        assert_eq!(kind(volume.vfs.seek(ino, 0, Whence::Data)), error);
    }
}
