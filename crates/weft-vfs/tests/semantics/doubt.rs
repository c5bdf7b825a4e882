//! Commits that happen although whoever made them was told that they failed: a connection broke, or
//! a server finished them later.

use crate::{Volume, options, volume_options};
use weft_store::ErrorKind as StoreError;
use weft_testkit::{Calls, Faults, InDoubt, check_rows};
use weft_vfs::{Ino, Options, SetAttributes};

/// A file of two blocks, a piece of the first written anew; nothing of what is stored is kept in
/// memory.
fn written() -> (Volume, Ino) {
    let volume = Volume::with(volume_options(), Options { block_cache_bytes: 0, ..options() });
    let ino = volume.file("file");
    volume.write(ino, 0, &[1; 8192]);
    volume.vfs.commit().expect("committed");
    volume.write(ino, 100, &[2; 100]);
    (volume, ino)
}

fn resize(volume: &Volume, ino: Ino, size: u64) {
    let set = SetAttributes { size: Some(size), ..SetAttributes::default() };
    volume.vfs.set_attributes(ino, set).expect("sized");
}

/// A commit of which its maker hears so is found by a later try: nothing is lost, nor taken for
/// damage.
fn is_found(doubt: InDoubt) {
    let (mut volume, ino) = written();
    volume.store.leave_in_doubt(doubt);
    volume.vfs.commit().expect("a later try finds it");
    let expected = [[1; 100].as_slice(), &[2; 100], &[1; 7992]].concat();
    assert_eq!(volume.read(ino, 0, 10_000), expected);
    volume.write(ino, 50, &[3; 10]);
    volume.vfs.commit().expect("blocks are what they are said to be");
    volume.remount();
    check_rows(&*volume.store).expect("the rows agree");
    assert_eq!(volume.read(ino, 0, 10_000), [&expected[..50], &[3; 10], &expected[60..]].concat());
}

#[test]
fn what_was_in_the_way_of_a_commit_that_happened_is_not_noticed() {
    is_found(InDoubt::Interrupted);
}

/// The second try has begun by then, and finds its base gone: that is no damage.
#[test]
fn a_commit_that_happens_in_the_middle_of_the_next_try_is_found() {
    is_found(InDoubt::Late);
}

#[test]
fn what_is_changed_after_a_commit_in_doubt_lies_over_it() {
    let (mut volume, ino) = written();
    volume.store.leave_in_doubt(InDoubt::Unheard);
    volume.vfs.commit().expect_err("nobody knows");
    // What the commit wrote beyond the new end must not come back.
    resize(&volume, ino, 150);
    resize(&volume, ino, 4096);
    volume.write(ino, 10, &[3; 10]);
    let other = volume.file("other");
    volume.write(other, 0, &[4; 5000]);
    let expected = [[1; 10].as_slice(), &[3; 10], &[1; 80], &[2; 50], &[0; 3946]].concat();
    assert_eq!(volume.read(ino, 0, 10_000), expected, "the block below is another one by now");
    volume.vfs.commit().expect("committed");
    volume.remount();
    check_rows(&*volume.store).expect("the rows agree");
    assert_eq!(volume.read(ino, 0, 10_000), expected);
    let other = volume.find(Ino::ROOT, "other").expect("found").ino;
    assert_eq!(volume.read(other, 0, 10_000), [4; 5000]);
}

#[test]
fn a_commit_that_failed_is_made_again_with_all_that_came_since() {
    // The transaction does not begin, its blocks are not taken, or it is not committed.
    for after in 0..3 {
        let (mut volume, ino) = written();
        volume.store.set_faults(Faults {
            after,
            count: 1,
            kind: StoreError::Unavailable,
            calls: Calls::Commits,
            ..Faults::NONE
        });
        volume.vfs.commit().expect_err("the server is away");
        assert_eq!(volume.store.faults_met(), 1);
        volume.write(ino, 150, &[3; 100]);
        volume.vfs.unlink(Ino::ROOT, b"file").expect("unlinked");
        let other = volume.file("file");
        volume.write(other, 0, &[4; 5000]);
        volume.vfs.commit().expect("committed");
        volume.remount();
        check_rows(&*volume.store).expect("the rows agree");
        let other = volume.find(Ino::ROOT, "file").expect("found").ino;
        assert_eq!(volume.read(other, 0, 10_000), [4; 5000]);
        assert_eq!(volume.vfs.stats().inodes_used, 2);
    }
}
