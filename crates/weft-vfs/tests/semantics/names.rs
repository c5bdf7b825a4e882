//! Names: unlinking while held, orphans, renaming, linking, hostile names.

use crate::{DIRECTORY, FILE, Volume, kind};
use weft_store::RowStore;
use weft_vfs::{Caller, ErrorKind, Holds, Ino, Kind, MakeNode, RenameMode};

const HOLDING: Caller = Caller { holds: Holds::Counted, ..Caller::ROOT };

#[test]
fn an_unlinked_file_stays_readable_and_writable_until_released() {
    let volume = Volume::new();
    let ino = volume.vfs.make(HOLDING, Ino::ROOT, b"file", FILE).expect("made").ino;
    volume.write(ino, 0, &[1; 10_000]);
    volume.vfs.unlink(Ino::ROOT, b"file").expect("unlinked");
    volume.vfs.commit().expect("committed");
    volume.write(ino, 10_000, &[2; 10]);
    assert_eq!(volume.attributes(ino).nlink, 0);
    assert_eq!(volume.read(ino, 9_999, 100), [[1].as_slice(), &[2; 10]].concat());
    volume.vfs.release(ino, 1);
    assert_eq!(kind(volume.vfs.attributes(ino)), ErrorKind::Stale);
    volume.vfs.commit().expect("committed");
    assert_eq!(volume.store.block_count(), 0);
}

#[test]
fn each_lookup_holds_once_more_and_the_last_release_deletes() {
    let volume = Volume::new();
    let ino = volume.vfs.make(HOLDING, Ino::ROOT, b"file", FILE).expect("made").ino;
    volume.vfs.lookup(HOLDING, Ino::ROOT, b"file").expect("found");
    volume.vfs.link(HOLDING, ino, Ino::ROOT, b"link").expect("linked");
    volume.vfs.read_directory_attributes(HOLDING, Ino::ROOT, weft_vfs::Cookie(0), 10).expect("listed");
    volume.vfs.unlink(Ino::ROOT, b"file").expect("unlinked");
    volume.vfs.unlink(Ino::ROOT, b"link").expect("unlinked");
    // Made, looked up, linked, listed under two names.
    volume.vfs.release(ino, 4);
    assert_eq!(volume.attributes(ino).nlink, 0);
    volume.vfs.release(ino, 1);
    assert_eq!(kind(volume.vfs.attributes(ino)), ErrorKind::Stale);
}

#[test]
fn a_number_that_no_volume_has_is_stale_in_each_place() {
    let volume = Volume::new();
    let file = volume.file("file");
    for number in [Ino::MAX.0 - 1, Ino::MAX.0, Ino::MAX.0 + 1, u64::MAX].map(Ino) {
        assert_eq!(kind(volume.vfs.attributes(number)), ErrorKind::Stale);
        let moved = volume.vfs.rename((Ino::ROOT, b"file"), (number, b"file"), RenameMode::Replace);
        assert_eq!(kind(moved), ErrorKind::Stale);
        assert_eq!(kind(volume.vfs.link(HOLDING, file, number, b"link")), ErrorKind::Stale);
        assert_eq!(kind(volume.vfs.link(HOLDING, number, Ino::ROOT, b"link")), ErrorKind::Stale);
    }
}

#[test]
fn files_that_were_open_without_a_name_at_a_crash_are_gone_when_the_volume_opens() {
    let mut volume = Volume::new();
    let ino = volume.vfs.make(HOLDING, Ino::ROOT, b"file", FILE).expect("made").ino;
    let unnamed = volume.vfs.make_unnamed(Caller::ROOT, Ino::ROOT, FILE).expect("made").ino;
    volume.write(ino, 0, &[1; 10_000]);
    volume.write(unnamed, 0, &[2; 10_000]);
    volume.vfs.unlink(Ino::ROOT, b"file").expect("unlinked");
    volume.vfs.sync().expect("synced");
    assert_ne!(volume.store.block_count(), 0);
    volume.crash();
    for ino in [ino, unnamed] {
        assert_eq!(kind(volume.vfs.attributes(ino)), ErrorKind::Stale);
    }
    assert_eq!(volume.vfs.stats().inodes_used, 1);
    assert_eq!(volume.store.block_count(), 0);
}

#[test]
fn an_unnamed_file_can_be_given_a_name_and_then_stays() {
    let mut volume = Volume::new();
    let ino = volume.vfs.make_unnamed(Caller::ROOT, Ino::ROOT, FILE).expect("made").ino;
    volume.write(ino, 0, b"kept");
    volume.vfs.link(Caller::ROOT, ino, Ino::ROOT, b"name").expect("linked");
    volume.vfs.release(ino, 1);
    volume.vfs.sync().expect("synced");
    volume.crash();
    let found = volume.find(Ino::ROOT, "name").expect("found");
    assert_eq!((found.ino, found.nlink), (ino, 1));
    assert_eq!(volume.read(ino, 0, 10), b"kept");
}

#[test]
fn exchange_swaps_a_file_and_a_directory_with_all_below_it() {
    let mut volume = Volume::new();
    let (a, b) = (volume.directory("a"), volume.directory("b"));
    let file = volume.make(a, "x", FILE);
    let directory = volume.make(b, "y", DIRECTORY);
    volume.make(directory, "inside", FILE);
    volume.vfs.rename((a, b"x"), (b, b"y"), RenameMode::Exchange).expect("exchanged");
    for _ in 0..2 {
        assert_eq!(volume.find(a, "x").expect("found").ino, directory);
        assert_eq!(volume.find(b, "y").expect("found").ino, file);
        assert_eq!((volume.attributes(a).nlink, volume.attributes(b).nlink), (3, 2));
        assert_eq!(volume.vfs.parent(Caller::ROOT, directory).expect("there").ino, a);
        volume.find(directory, "inside").expect("found");
        volume.remount();
    }
    let missing = volume.vfs.rename((a, b"x"), (b, b"z"), RenameMode::Exchange);
    assert_eq!(kind(missing), ErrorKind::NotFound);
    let below = volume.vfs.rename((Ino::ROOT, b"a"), (a, b"x"), RenameMode::Exchange);
    assert_eq!(kind(below), ErrorKind::Invalid);
}

#[test]
fn rename_replaces_only_like_with_like_and_only_empty_directories() {
    let volume = Volume::new();
    let (file, full) = (volume.file("file"), volume.directory("full"));
    volume.make(full, "entry", FILE);
    volume.directory("empty");
    let rename =
        |from: &str, to: &str, mode| volume.vfs.rename((Ino::ROOT, from.as_bytes()), (Ino::ROOT, to.as_bytes()), mode);
    assert_eq!(kind(rename("file", "empty", RenameMode::Replace)), ErrorKind::IsDirectory);
    assert_eq!(kind(rename("empty", "file", RenameMode::Replace)), ErrorKind::NotDirectory);
    assert_eq!(kind(rename("empty", "full", RenameMode::Replace)), ErrorKind::NotEmpty);
    assert_eq!(kind(rename("file", "full", RenameMode::NoReplace)), ErrorKind::Exists);
    assert_eq!(kind(rename("none", "full", RenameMode::Replace)), ErrorKind::NotFound);
    rename("full", "empty", RenameMode::Replace).expect("renamed");
    assert_eq!(volume.find(Ino::ROOT, "empty").expect("found").ino, full);
    assert_eq!(volume.attributes(Ino::ROOT).nlink, 3);
    let into_itself = volume.vfs.rename((Ino::ROOT, b"empty"), (full, b"below"), RenameMode::Replace);
    assert_eq!(kind(into_itself), ErrorKind::Invalid);
    assert_eq!(volume.attributes(file).nlink, 1);
}

#[test]
fn renaming_one_name_of_a_file_over_another_changes_nothing() {
    let volume = Volume::new();
    let ino = volume.file("a");
    volume.vfs.link(Caller::ROOT, ino, Ino::ROOT, b"b").expect("linked");
    let before = volume.vfs.progress();
    volume.vfs.rename((Ino::ROOT, b"a"), (Ino::ROOT, b"b"), RenameMode::Replace).expect("nothing to do");
    assert_eq!(volume.vfs.progress(), before);
    assert_eq!(volume.attributes(ino).nlink, 2);
}

#[test]
fn nothing_can_be_made_in_a_directory_that_was_removed() {
    let volume = Volume::new();
    let ino = volume.vfs.make(HOLDING, Ino::ROOT, b"gone", DIRECTORY).expect("made").ino;
    let file = volume.file("file");
    volume.vfs.remove_directory(Ino::ROOT, b"gone").expect("removed");
    assert_eq!(kind(volume.vfs.make(Caller::ROOT, ino, b"x", FILE)), ErrorKind::NotFound);
    assert_eq!(kind(volume.vfs.link(Caller::ROOT, file, ino, b"x")), ErrorKind::NotFound);
    let rename = volume.vfs.rename((Ino::ROOT, b"file"), (ino, b"x"), RenameMode::Replace);
    assert_eq!(kind(rename), ErrorKind::NotFound);
    assert_eq!(volume.vfs.read_directory(ino, weft_vfs::Cookie(0), 10).expect("listed"), []);
}

#[test]
fn names_are_any_255_bytes_but_slash_and_nul() {
    let mut volume = Volume::new();
    let longest = [0xffu8; 255];
    let odd: [&[u8]; 4] = [&longest, b"\n", b"-rf *", &[0x80, 0xfe]];
    for name in odd {
        volume.vfs.make(Caller::ROOT, Ino::ROOT, name, FILE).expect("made");
    }
    volume.remount();
    for name in odd {
        volume.vfs.lookup(Caller::ROOT, Ino::ROOT, name).expect("found");
    }
    let make = |name: &[u8]| kind(volume.vfs.make(Caller::ROOT, Ino::ROOT, name, FILE));
    assert_eq!(make(&[b'x'; 256]), ErrorKind::NameTooLong);
    for name in [b"".as_slice(), b".", b"..", b"a/b", b"a\0b"] {
        assert_eq!(make(name), ErrorKind::Invalid, "{name:?}");
    }
}

#[test]
fn every_kind_of_inode_keeps_its_kind_and_device_number() {
    let mut volume = Volume::new();
    let kinds = [Kind::Fifo, Kind::Socket, Kind::CharDevice, Kind::BlockDevice, Kind::File, Kind::Directory];
    for (i, made) in kinds.into_iter().enumerate() {
        let device = matches!(made, Kind::CharDevice | Kind::BlockDevice);
        let node = MakeNode { kind: made, permissions: 0o600, umask: 0o077, rdev: if device { 0x0103 } else { 0 } };
        volume.make(Ino::ROOT, &i.to_string(), node);
    }
    volume.vfs.make_symlink(Caller::ROOT, Ino::ROOT, b"link", &[b'x'; 4095]).expect("made");
    let too_long = volume.vfs.make_symlink(Caller::ROOT, Ino::ROOT, b"long", &[b'x'; 4096]);
    assert_eq!(kind(too_long), ErrorKind::NameTooLong);
    volume.remount();
    for (i, made) in kinds.into_iter().enumerate() {
        let found = volume.find(Ino::ROOT, &i.to_string()).expect("found");
        assert_eq!((found.kind, found.permissions), (made, 0o600));
        assert_eq!(found.rdev != 0, matches!(made, Kind::CharDevice | Kind::BlockDevice));
    }
    let link = volume.find(Ino::ROOT, "link").expect("found");
    assert_eq!((link.kind, link.size, link.permissions), (Kind::Symlink, 4095, 0o777));
    assert_eq!(volume.vfs.read_symlink(link.ino).expect("read"), [b'x'; 4095]);
    assert_eq!(kind(volume.vfs.read_symlink(Ino::ROOT)), ErrorKind::Invalid);
}

#[test]
fn inode_numbers_are_never_used_twice() {
    let mut volume = Volume::new();
    let first = volume.file("a");
    volume.vfs.unlink(Ino::ROOT, b"a").expect("unlinked");
    volume.remount();
    let second = volume.file("a");
    assert!(second > first);
}

#[test]
fn files_that_are_held_without_a_name_when_the_volume_is_closed_go_with_the_last_commit() {
    let mut volume = Volume::new();
    let ino = volume.vfs.make(HOLDING, Ino::ROOT, b"file", FILE).expect("made").ino;
    volume.vfs.make_unnamed(Caller::ROOT, Ino::ROOT, FILE).expect("made");
    volume.write(ino, 0, &[1; 10_000]);
    volume.vfs.commit().expect("committed");
    volume.vfs.unlink(Ino::ROOT, b"file").expect("unlinked");
    volume.vfs.commit().expect("committed");
    assert_eq!(volume.store.orphans().expect("told").len(), 2);
    volume.vfs.close().expect("closed");
    assert_eq!(volume.store.orphans().expect("told"), []);
    assert_eq!(volume.store.block_count(), 0);
    // What the kernel says of them later says nothing.
    volume.vfs.release(ino, 1);
    volume.reopen(crate::options());
    assert_eq!(volume.vfs.stats().inodes_used, 1);
}

#[test]
fn a_rename_that_leaves_a_whiteout_is_one_operation() {
    let caller = Caller { uid: 5, gid: 6, holds: Holds::None };
    for in_one_directory in [true, false] {
        let mut volume = Volume::new();
        let target = if in_one_directory { Ino::ROOT } else { volume.directory("directory") };
        let (file, replaced) = (volume.file("file"), volume.make(target, "replaced", FILE));
        let before = volume.vfs.progress().0;
        let rename =
            |to: &[u8], mode| volume.vfs.rename_leaving_whiteout(caller, (Ino::ROOT, b"file"), (target, to), mode);
        assert_eq!(kind(rename(b"replaced", RenameMode::NoReplace)), ErrorKind::Exists);
        assert_eq!(kind(rename(b"replaced", RenameMode::Exchange)), ErrorKind::Invalid);
        rename(b"replaced", RenameMode::Replace).expect("renamed");
        assert_eq!(volume.vfs.progress().0, before.next());
        for _ in 0..2 {
            let whiteout = volume.find(Ino::ROOT, "file").expect("there");
            assert_eq!((whiteout.kind, whiteout.permissions, whiteout.rdev), (Kind::CharDevice, 0, 0));
            assert_eq!((whiteout.uid, whiteout.gid, whiteout.nlink), (5, 6, 1));
            assert_eq!(volume.find(target, "replaced").expect("there").ino, file);
            assert_eq!(kind(volume.vfs.attributes(replaced)), ErrorKind::Stale);
            let entries = volume.vfs.read_directory(Ino::ROOT, weft_vfs::Cookie(0), 10).expect("listed");
            assert_eq!(entries.len(), 2);
            assert_ne!(entries[0].cookie, entries[1].cookie);
            volume.remount();
        }
        // Neither the number of the whiteout nor its place is given again.
        let whiteout = volume.find(Ino::ROOT, "file").expect("there").ino;
        assert!(volume.file("another") > whiteout);
    }
}
