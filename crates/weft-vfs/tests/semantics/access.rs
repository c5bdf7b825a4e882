//! Privileges and access control lists (acl(5), linux/posix_acl_xattr.h).

use crate::{DIRECTORY, FILE, Volume, kind};
use weft_vfs::{
    AllocateMode, Caller, ErrorKind, Holds, Ino, Kind, MakeNode, Privileges, SetAttributes, SetXattr, Vfs, Writer,
};

const ACCESS: &[u8] = b"system.posix_acl_access";
const DEFAULT: &[u8] = b"system.posix_acl_default";
const NONE: u32 = u32::MAX;

/// An ACL as its attribute's value: version 2, then tag, bits and id of each entry.
fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, bits, id) in entries {
        bytes.extend([tag.to_le_bytes(), bits.to_le_bytes()].concat());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

/// Owner, user 1000, group, mask, others.
fn extended(owner: u16, named: u16, group: u16, mask: u16, other: u16) -> Vec<u8> {
    acl(&[(1, owner, NONE), (2, named, 1000), (4, group, NONE), (0x10, mask, NONE), (0x20, other, NONE)])
}

fn set(vfs: &Vfs, ino: Ino, name: &[u8], value: &[u8]) -> weft_vfs::Result<()> {
    vfs.set_xattr(ino, name, value, SetXattr::Any, false)
}

type Change = fn(&Vfs, Ino, Ino);

#[test]
fn changing_content_without_privilege_takes_set_user_id_away() {
    let changes: [Change; 5] = [
        |vfs, ino, _| assert_eq!(vfs.write(ino, 0, b"x", true).expect("written"), Privileges::Dropped),
        |vfs, ino, _| {
            let changes = SetAttributes { size: Some(3), writer: Writer::Member, ..SetAttributes::default() };
            vfs.set_attributes(ino, changes).expect("set");
        },
        |vfs, ino, _| vfs.allocate(ino, 0, 5, AllocateMode::PunchHole).expect("punched"),
        |vfs, ino, other| assert_eq!(vfs.copy_range((other, 0), (ino, 0), 8192).expect("copied"), 8192),
        |vfs, ino, other| assert_eq!(vfs.copy_range((other, 0), (ino, 1), 100).expect("copied"), 100),
    ];
    for change in changes {
        // Without group execution the set-group-id bit stays (it once meant mandatory locking).
        for (before, after) in [(0o6755, 0o755), (0o6745, 0o2745), (0o4700, 0o700)] {
            let volume = Volume::new();
            let (ino, other) = (volume.file("file"), volume.file("other"));
            volume.write(other, 0, &[1; 8192]);
            volume.chmod(ino, before);
            set(&volume.vfs, ino, b"security.capability", b"all").expect("set");
            change(&volume.vfs, ino, other);
            assert_eq!(volume.attributes(ino).permissions, after, "from {before:o}");
            assert_eq!(kind(volume.vfs.xattr(ino, b"security.capability")), ErrorKind::NoAttribute);
        }
    }
}

#[test]
fn a_write_with_privilege_keeps_set_user_id() {
    let volume = Volume::new();
    let ino = volume.file("file");
    volume.chmod(ino, 0o6755);
    assert_eq!(volume.vfs.write(ino, 0, b"x", false).expect("written"), Privileges::Kept);
    assert_eq!(volume.attributes(ino).permissions, 0o6755);
}

type ChangeAs = fn(&Vfs, Writer, Ino, Ino);

#[test]
fn set_group_id_without_execution_goes_when_a_stranger_to_the_group_writes() {
    let changes: [ChangeAs; 7] = [
        |vfs, writer, ino, _| _ = vfs.write(ino, 0, b"x", writer).expect("written"),
        |vfs, writer, ino, _| {
            let changes = SetAttributes { size: Some(3), writer, ..SetAttributes::default() };
            vfs.set_attributes(ino, changes).expect("set");
        },
        |vfs, writer, ino, _| vfs.allocate_as(writer, ino, (0, 5), AllocateMode::PunchHole).expect("punched"),
        |vfs, writer, ino, _| vfs.allocate_as(writer, ino, (0, 1), AllocateMode::KeepSize).expect("allocated"),
        |vfs, writer, ino, _| vfs.allocate_as(writer, ino, (0, 1), AllocateMode::Extend).expect("allocated"),
        |vfs, writer, ino, other| _ = vfs.copy_range_as(writer, (other, 0), (ino, 0), 8192).expect("copied"),
        |vfs, writer, ino, other| _ = vfs.copy_range_as(writer, (other, 0), (ino, 1), 100).expect("copied"),
    ];
    for change in changes {
        for (before, member, stranger) in [(0o6777, 0o777, 0o777), (0o2666, 0o2666, 0o666), (0o6745, 0o2745, 0o745)] {
            for (writer, after) in
                [(Writer::Privileged, before), (Writer::Member, member), (Writer::Stranger, stranger)]
            {
                let volume = Volume::new();
                let (ino, other) = (volume.file("file"), volume.file("other"));
                volume.write(other, 0, &[1; 8192]);
                volume.write(ino, 0, &[2; 100]);
                volume.chmod(ino, before);
                change(&volume.vfs, writer, ino, other);
                assert_eq!(volume.attributes(ino).permissions, after, "from {before:o} by {writer:?}");
            }
        }
    }
}

#[test]
fn a_new_owner_does_not_get_the_old_ones_set_user_id() {
    let volume = Volume::new();
    let (ino, directory) = (volume.file("file"), volume.directory("directory"));
    let chown = SetAttributes { uid: Some(5), ..SetAttributes::default() };
    for (ino, after) in [(ino, 0o755), (directory, 0o6755)] {
        volume.chmod(ino, 0o6755);
        let found = volume.vfs.set_attributes(ino, chown).expect("set");
        assert_eq!((found.permissions, found.uid), (after, 5));
    }
}

#[test]
fn what_is_made_in_a_set_group_id_directory_gets_its_group() {
    let volume = Volume::new();
    let directory = volume.directory("directory");
    let set = SetAttributes { gid: Some(50), permissions: Some(0o2775), ..SetAttributes::default() };
    volume.vfs.set_attributes(directory, set).expect("set");
    let caller = Caller { uid: 7, gid: 8, holds: Holds::None };
    let file = volume.vfs.make(caller, directory, b"file", FILE).expect("made");
    let below = volume.vfs.make(caller, directory, b"below", DIRECTORY).expect("made");
    assert_eq!((file.uid, file.gid, file.permissions), (7, 50, 0o644));
    assert_eq!((below.uid, below.gid, below.permissions), (7, 50, 0o2755));
}

#[test]
fn an_access_acl_sets_the_permission_bits_and_chmod_sets_its_mask() {
    let mut volume = Volume::new();
    let ino = volume.file("file");
    set(&volume.vfs, ino, ACCESS, &extended(7, 6, 5, 4, 1)).expect("set");
    assert_eq!(volume.attributes(ino).permissions, 0o741);
    volume.chmod(ino, 0o4630);
    volume.remount();
    assert_eq!(volume.vfs.xattr(ino, ACCESS).expect("there"), extended(6, 6, 5, 3, 0));
    assert_eq!(volume.attributes(ino).permissions, 0o4630);
}

#[test]
fn an_acl_that_permission_bits_can_say_is_not_kept() {
    let volume = Volume::new();
    let ino = volume.file("file");
    set(&volume.vfs, ino, ACCESS, &extended(7, 6, 5, 4, 1)).expect("set");
    set(&volume.vfs, ino, ACCESS, &acl(&[(1, 6, NONE), (4, 4, NONE), (0x20, 0, NONE)])).expect("set");
    assert_eq!(volume.attributes(ino).permissions, 0o640);
    assert_eq!(volume.vfs.xattr_names(ino).expect("listed"), []);
}

#[test]
fn setting_an_acl_takes_set_group_id_from_one_outside_the_group() {
    let volume = Volume::new();
    let ino = volume.file("file");
    for (kill, after) in [(false, 0o2750), (true, 0o750)] {
        volume.chmod(ino, 0o2750);
        let value = extended(7, 5, 5, 5, 0);
        volume.vfs.set_xattr(ino, ACCESS, &value, SetXattr::Any, kill).expect("set");
        assert_eq!(volume.attributes(ino).permissions, after);
    }
}

#[test]
fn a_default_acl_is_inherited_and_takes_the_umasks_place() {
    let volume = Volume::new();
    let directory = volume.directory("directory");
    let default = extended(7, 6, 5, 7, 1);
    set(&volume.vfs, directory, DEFAULT, &default).expect("set");
    let node = |kind, permissions| MakeNode { kind, permissions, umask: 0o077, rdev: 0 };
    let file = volume.vfs.make(Caller::ROOT, directory, b"file", node(Kind::File, 0o664)).expect("made");
    assert_eq!(file.permissions, 0o660);
    assert_eq!(volume.vfs.xattr(file.ino, ACCESS).expect("there"), extended(6, 6, 5, 6, 0));
    assert_eq!(kind(volume.vfs.xattr(file.ino, DEFAULT)), ErrorKind::NoAttribute);
    let below = volume.vfs.make(Caller::ROOT, directory, b"below", node(Kind::Directory, 0o777)).expect("made");
    assert_eq!(below.permissions, 0o771);
    assert_eq!(volume.vfs.xattr(below.ino, DEFAULT).expect("there"), default);
    assert_eq!(volume.vfs.xattr(below.ino, ACCESS).expect("there"), extended(7, 6, 5, 7, 1));
    let plain = volume.vfs.make(Caller::ROOT, Ino::ROOT, b"plain", node(Kind::File, 0o664)).expect("made");
    assert_eq!(plain.permissions, 0o600);
}

#[test]
fn default_acls_belong_to_directories_and_malformed_acls_to_nothing() {
    let volume = Volume::new();
    let ino = volume.file("file");
    let refused = set(&volume.vfs, ino, DEFAULT, &extended(7, 6, 5, 7, 1));
    assert_eq!(kind(refused), ErrorKind::NotPermitted);
    assert_eq!(kind(set(&volume.vfs, ino, ACCESS, b"x")), ErrorKind::Invalid);
    let no_mask = acl(&[(1, 7, NONE), (2, 6, 1000), (4, 5, NONE), (0x20, 0, NONE)]);
    assert_eq!(kind(set(&volume.vfs, ino, ACCESS, &no_mask)), ErrorKind::Invalid);
    assert_eq!(volume.attributes(ino).permissions, 0o644);
}

#[test]
fn extended_attributes_keep_to_their_namespaces_modes_and_limits() {
    let volume = Volume::new();
    let ino = volume.file("file");
    let put = |name: &str, len, mode| volume.vfs.set_xattr(ino, name.as_bytes(), &vec![1; len], mode, false);
    assert_eq!(kind(put("user.a", 1, SetXattr::Replace)), ErrorKind::NoAttribute);
    put("user.a", 1, SetXattr::Create).expect("set");
    assert_eq!(kind(put("user.a", 1, SetXattr::Create)), ErrorKind::Exists);
    put("user.a", 65_536, SetXattr::Replace).expect("set");
    assert_eq!(kind(put("user.a", 65_537, SetXattr::Any)), ErrorKind::AttributeTooBig);
    for unknown in ["a", "user.", "other.a", "system.a"] {
        assert_eq!(kind(put(unknown, 1, SetXattr::Any)), ErrorKind::NotSupported, "{unknown}");
    }
    assert_eq!(kind(put(&format!("user.{}", "x".repeat(251)), 1, SetXattr::Any)), ErrorKind::Range);
    assert_eq!(volume.vfs.xattr(ino, b"user.a").expect("there").len(), 65_536);
    let many = (0..100).take_while(|number| put(&format!("user.b{number}"), 65_536, SetXattr::Any).is_ok()).count();
    assert_eq!(many, 15, "a MiB together");
    assert_eq!(kind(put("user.c", 1, SetXattr::Any)), ErrorKind::NoSpace);
    put("user.a", 65_536, SetXattr::Replace).expect("no more than before");
    volume.vfs.remove_xattr(ino, b"user.a").expect("removed");
    assert_eq!(kind(volume.vfs.remove_xattr(ino, b"user.a")), ErrorKind::NoAttribute);
    put("user.c", 65_536, SetXattr::Any).expect("there is room again");
}
