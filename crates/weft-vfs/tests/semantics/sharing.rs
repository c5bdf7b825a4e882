//! Content in memory that programs map, and what is counted of it.

use crate::{Volume, kind, options, volume_options};
use weft_block::Slice;
use weft_vfs::{ErrorKind, Ino, Options, SharedPart, Vfs};

fn parts(vfs: &Vfs, ino: Ino, offset: u64, len: usize) -> Vec<SharedPart> {
    let pool = vfs.shared_pool(ino).expect("memory is shared");
    vfs.read_shared(ino, &pool, offset, len).expect("read").expect("there is room")
}

fn slices(vfs: &Vfs, ino: Ino) -> Vec<Slice> {
    let bytes = |part| match part {
        SharedPart::Bytes(bytes) => bytes,
        SharedPart::Zeros(_) => panic!("nothing but bytes is expected"),
    };
    parts(vfs, ino, 0, 1 << 20).into_iter().map(bytes).collect()
}

fn joined(parts: &[SharedPart]) -> Vec<u8> {
    let mut joined = Vec::new();
    for part in parts {
        match part {
            SharedPart::Bytes(bytes) => joined.extend_from_slice(bytes),
            SharedPart::Zeros(len) => joined.resize(joined.len() + len, 0),
        }
    }
    joined
}

#[test]
fn what_is_read_in_place_is_what_is_read() {
    let mut volume = Volume::new();
    let (inline, ino) = (volume.file("inline"), volume.file("file"));
    volume.write(inline, 0, b"few");
    volume.write(ino, 0, &[7; 10_000]);
    volume.write(ino, 40_000, b"after a hole");
    volume.resize(ino, 60_000);
    for _ in 0..2 {
        for (offset, len) in [(0, 100_000), (5, 3), (4095, 2), (9_990, 31_000), (59_999, 5), (60_000, 1)] {
            let expected = volume.read(ino, offset, len);
            assert_eq!(joined(&parts(&volume.vfs, ino, offset, len)), expected, "{len} from {offset} on");
        }
        assert_eq!(joined(&parts(&volume.vfs, inline, 0, 100)), b"few");
        volume.write(ino, 4_100, b"written over");
        volume.remount();
    }
}

#[test]
fn a_block_is_in_memory_once_for_all_who_read_it() {
    let mut volume = Volume::new();
    let ino = volume.file("file");
    volume.write(ino, 0, &[7; 16_384]);
    volume.remount();
    let first = slices(&volume.vfs, ino);
    let before = volume.vfs.stats();
    let again = slices(&volume.vfs, ino);
    assert!(first.len() == 4 && first.iter().zip(&again).all(|(one, other)| one.as_ptr() == other.as_ptr()));
    let read = volume.vfs.read(ino, 0, 16_384).expect("read");
    assert!(read.slices().iter().zip(&first).all(|(one, other)| one.as_ptr() == other.as_ptr()), "by others, too");
    let after = volume.vfs.stats();
    assert_eq!((after.block_bytes, after.block_misses), (0, before.block_misses));
    assert_eq!(after.shared_bytes, before.shared_bytes);
}

#[test]
fn what_was_read_stays_as_it_was_when_the_file_changes() {
    let mut volume = Volume::new();
    let ino = volume.file("file");
    volume.write(ino, 0, &[1; 8192]);
    volume.remount();
    let old = slices(&volume.vfs, ino);
    volume.write(ino, 0, &[2; 8192]);
    let new = slices(&volume.vfs, ino);
    volume.vfs.sync().expect("synced");
    volume.resize(ino, 0);
    assert!(old.iter().all(|slice| slice.iter().all(|byte| *byte == 1)));
    assert!(new.iter().all(|slice| slice.iter().all(|byte| *byte == 2)));
    assert!(parts(&volume.vfs, ino, 0, 10).is_empty());
}

#[test]
fn each_file_has_memory_of_its_own() {
    let mut volume = Volume::new();
    let (one, other) = (volume.file("one"), volume.file("other"));
    volume.write(one, 0, &[7; 8192]);
    volume.vfs.copy_range((one, 0), (other, 0), 8192).expect("copied");
    volume.remount();
    let pools = [one, other].map(|ino| volume.vfs.shared_pool(ino).expect("memory is shared"));
    for _ in 0..2 {
        for (ino, pool) in [one, other].into_iter().zip(&pools) {
            let slices = slices(&volume.vfs, ino);
            assert!(slices.iter().all(|slice| pool.find(slice).is_some() && **slice == [7; 4096]));
        }
    }
}

#[test]
fn without_room_less_is_read_and_then_nothing() {
    let few = Options { shared_bytes_max: 3 * 4096, ..options() };
    let mut volume = Volume::with(volume_options(), few.clone());
    let ino = volume.file("file");
    volume.write(ino, 0, &[7; 40_960]);
    volume.vfs.close().expect("closed");
    volume.reopen(few);
    let pool = volume.vfs.shared_pool(ino).expect("memory is shared");
    let held = volume.vfs.read_shared(ino, &pool, 0, 40_960).expect("read").expect("there is room");
    assert_eq!(joined(&held), [7; 3 * 4096], "as much as there is room for");
    assert_eq!(volume.vfs.read_shared(ino, &pool, 20_000, 10).expect("read"), None);
    assert_eq!(volume.read(ino, 20_000, 3), [7; 3], "by copies all can be read");
    drop(held);
    assert!(volume.vfs.read_shared(ino, &pool, 20_000, 10).expect("read").is_some());
    let off = Volume::with(volume_options(), Options { shared_bytes_max: 0, ..options() });
    assert!(off.vfs.shared_pool(Ino(5)).is_none());
}

fn counts(vfs: &Vfs, ino: Ino, offset: u64) -> String {
    let name = format!("user.weft.counts.{offset}").into_bytes();
    String::from_utf8(vfs.xattr(ino, &name).expect("counted")).expect("text")
}

#[test]
fn what_a_file_holds_is_counted_once() {
    let mut volume = Volume::new();
    let ino = volume.file("file");
    let text = b"two words\n".repeat(2000);
    volume.write(ino, 0, &text);
    volume.write(ino, 30_000, b" after a hole");
    // The hole's zeros are a word, which the newline before it ends.
    for _ in 0..2 {
        assert_eq!(counts(&volume.vfs, ino, 0), "30013 2000 4004 1 1");
        volume.remount();
    }
    counts(&volume.vfs, ino, 0);
    let before = volume.vfs.stats();
    assert_eq!(counts(&volume.vfs, ino, 0), "30013 2000 4004 1 1");
    let after = volume.vfs.stats();
    assert_eq!((before.block_hits, before.block_misses), (after.block_hits, after.block_misses), "nothing is read");
    volume.write(ino, 0, b"one/word\n\n");
    assert_eq!(counts(&volume.vfs, ino, 0), "30013 2001 4003 1 1");
    assert_eq!(counts(&volume.vfs, ino, 30_001), "12 0 3 1 1");
    assert_eq!(counts(&volume.vfs, ino, 40_000), "0 0 0 0 0");
    let names = volume.vfs.xattr_names(ino).expect("told");
    assert!(names.is_empty(), "nobody copies it along: {names:?}");
    for wrong in ["", "x", "-1", "99999999999999999999"] {
        assert_eq!(kind(volume.vfs.xattr(ino, format!("user.weft.counts.{wrong}").as_bytes())), ErrorKind::NoAttribute);
    }
}
