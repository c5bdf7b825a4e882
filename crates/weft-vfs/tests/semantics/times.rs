//! Times: which operation moves which, as POSIX says.

use crate::{DIRECTORY, FILE, Volume, options};
use weft_vfs::{AllocateMode, AtimePolicy, Caller, Ino, RenameMode, SetAttributes, SetTime, SetXattr, Timestamp, Vfs};

const A: u8 = 1;
const M: u8 = 2;
const C: u8 = 4;

/// A file, a directory with another, an empty directory, all made at time 0.
struct Tree {
    volume: Volume,
    file: Ino,
    directory: Ino,
    inner: Ino,
}

fn tree(policy: AtimePolicy) -> Tree {
    let mut volume = Volume::new();
    volume.reopen(weft_vfs::Options { atime: policy, ..options() });
    let (file, directory) = (volume.file("file"), volume.directory("directory"));
    let inner = volume.make(directory, "inner", FILE);
    volume.directory("empty");
    volume.write(file, 0, &[1; 5000]);
    Tree { volume, file, directory, inner }
}

impl Tree {
    /// Returns which times of `ino` equal `now`, as bits.
    fn moved(&self, ino: Ino, now: Timestamp) -> u8 {
        let found = self.volume.attributes(ino);
        let bit = |time, bit| if time == now { bit } else { 0 };
        bit(found.atime, A) | bit(found.mtime, M) | bit(found.ctime, C)
    }
}

type Operation = fn(&Vfs, &Tree);

/// Does `operation` to a new tree; the times moved must be `file`, `directory`, `inner` and the
/// root's.
#[track_caller]
fn moves(policy: AtimePolicy, operation: Operation, expected: [u8; 4]) {
    let tree = tree(policy);
    tree.volume.clock.set(Timestamp(7));
    operation(&tree.volume.vfs, &tree);
    let moved = [tree.file, tree.directory, tree.inner, Ino::ROOT].map(|ino| tree.moved(ino, Timestamp(7)));
    assert_eq!(moved, expected, "times of file, directory, inner file, root");
}

#[test]
fn making_and_removing_entries_moves_the_directorys_mtime_and_ctime() {
    let never = AtimePolicy::Never;
    moves(never, |vfs, tree| drop(vfs.make(Caller::ROOT, tree.directory, b"x", FILE)), [0, M | C, 0, 0]);
    moves(never, |vfs, tree| drop(vfs.make(Caller::ROOT, tree.directory, b"x", DIRECTORY)), [0, M | C, 0, 0]);
    moves(never, |vfs, tree| drop(vfs.make_symlink(Caller::ROOT, tree.directory, b"x", b"y")), [0, M | C, 0, 0]);
    moves(never, |vfs, _| vfs.remove_directory(Ino::ROOT, b"empty").expect("removed"), [0, 0, 0, M | C]);
}

#[test]
fn linking_and_unlinking_moves_the_files_ctime_too() {
    let never = AtimePolicy::Never;
    moves(never, |vfs, tree| drop(vfs.link(Caller::ROOT, tree.file, tree.directory, b"x")), [C, M | C, 0, 0]);
    let unlink = |vfs: &Vfs, tree: &Tree| {
        vfs.hold(tree.file);
        vfs.unlink(Ino::ROOT, b"file").expect("unlinked");
    };
    moves(never, unlink, [C, 0, 0, M | C]);
}

#[test]
fn renaming_moves_both_directories_times_and_the_ctime_of_what_moves() {
    let rename = |vfs: &Vfs, tree: &Tree| {
        vfs.hold(tree.inner);
        vfs.rename((Ino::ROOT, b"file"), (tree.directory, b"inner"), RenameMode::Replace).expect("renamed");
    };
    moves(AtimePolicy::Never, rename, [C, M | C, C, M | C]);
    let exchange = |vfs: &Vfs, tree: &Tree| {
        vfs.rename((Ino::ROOT, b"file"), (tree.directory, b"inner"), RenameMode::Exchange).expect("exchanged");
    };
    moves(AtimePolicy::Never, exchange, [C, M | C, C, M | C]);
}

#[test]
fn changing_content_moves_mtime_and_ctime() {
    let never = AtimePolicy::Never;
    moves(never, |vfs, tree| drop(vfs.write(tree.file, 0, b"x", false)), [M | C, 0, 0, 0]);
    moves(never, |vfs, tree| drop(vfs.allocate(tree.file, 0, 9, AllocateMode::PunchHole)), [M | C, 0, 0, 0]);
    // As on ext4, also where the file has all of the range.
    moves(never, |vfs, tree| drop(vfs.allocate(tree.file, 0, 1, AllocateMode::KeepSize)), [M | C, 0, 0, 0]);
    moves(never, |vfs, tree| drop(vfs.allocate(tree.file, 0, 1, AllocateMode::Extend)), [M | C, 0, 0, 0]);
    moves(never, |vfs, tree| drop(vfs.copy_range((tree.file, 0), (tree.inner, 0), 5000)), [0, 0, M | C, 0]);
    let truncate = |vfs: &Vfs, tree: &Tree| {
        let changes = SetAttributes { size: Some(5000), ..SetAttributes::default() };
        vfs.set_attributes(tree.file, changes).expect("set");
    };
    moves(never, truncate, [M | C, 0, 0, 0]);
    moves(never, |vfs, tree| drop(vfs.write(tree.file, 0, b"", false)), [0; 4]);
}

#[test]
fn changing_attributes_moves_ctime_only() {
    let never = AtimePolicy::Never;
    let chmod = |vfs: &Vfs, tree: &Tree| {
        let changes = SetAttributes { permissions: Some(0o600), ..SetAttributes::default() };
        vfs.set_attributes(tree.file, changes).expect("set");
    };
    moves(never, chmod, [C, 0, 0, 0]);
    moves(
        never,
        |vfs, tree| vfs.set_xattr(tree.file, b"user.a", b"", SetXattr::Any, false).expect("set"),
        [C, 0, 0, 0],
    );
    let utimes = |vfs: &Vfs, tree: &Tree| {
        let (atime, mtime) = (Some(SetTime::To(Timestamp(-3))), Some(SetTime::Now));
        let found = vfs.set_attributes(tree.file, SetAttributes { atime, mtime, ..SetAttributes::default() });
        assert_eq!(found.expect("set").atime, Timestamp(-3));
    };
    moves(never, utimes, [M | C, 0, 0, 0]);
}

#[test]
fn reading_moves_the_access_time_as_the_policy_says() {
    let read = |vfs: &Vfs, tree: &Tree| {
        vfs.read(tree.file, 0, 10).expect("read");
        vfs.read_directory(tree.directory, weft_vfs::Cookie(0), 10).expect("listed");
    };
    moves(AtimePolicy::Never, read, [0; 4]);
    moves(AtimePolicy::Relative, read, [A, A, 0, 0]);
    moves(AtimePolicy::Always, read, [A, A, 0, 0]);
}

#[test]
fn relatime_moves_the_access_time_once_until_the_file_changes_or_a_day_has_passed() {
    let tree = tree(AtimePolicy::Relative);
    let read_at = |time| {
        tree.volume.clock.set(Timestamp(time));
        tree.volume.read(tree.file, 0, 10);
        tree.volume.attributes(tree.file).atime.0
    };
    assert_eq!(read_at(5), 5);
    assert_eq!(read_at(6), 5);
    tree.volume.write(tree.file, 0, b"x");
    assert_eq!(read_at(8), 8);
    assert_eq!(read_at(9), 8);
    let day = 24 * 3600 * 1_000_000_000;
    assert_eq!(read_at(day + 8), day + 8);
}

#[test]
fn times_keep_their_nanoseconds_and_may_lie_before_1970() {
    let mut volume = Volume::new();
    let ino = volume.file("file");
    for time in [Timestamp(-1), Timestamp::from_parts(-5_000_000_000, 999_999_999), Timestamp(i64::MAX)] {
        let set = Some(SetTime::To(time));
        volume
            .vfs
            .set_attributes(ino, SetAttributes { atime: set, mtime: set, ..SetAttributes::default() })
            .expect("set");
        volume.remount();
        let found = volume.attributes(ino);
        assert_eq!((found.atime, found.mtime), (time, time));
    }
}
