//! Tests of rights by user, group, squashing and export.

use super::client::{Set, arguments, place, write_set};
use super::{open_to_all, serve};
use weft_links::{LinkDefinition, WithLinks};
use weft_vfs::{Caller, Ino};

const OK: u32 = 0;
const PERM: u32 = 1;
const ACCES: u32 = 13;
const ROFS: u32 = 30;

const READ: u32 = 0x01;
const LOOKUP: u32 = 0x02;
const CHANGE: u32 = 0x04 | 0x08;
const DELETE: u32 = 0x10;
const EXECUTE: u32 = 0x20;

#[test]
fn owner_group_and_others_have_what_the_bits_give_them() {
    let served = open_to_all();
    let mut root = served.client("/");
    let top = root.root.clone();
    let set = |mode| Set { mode: Some(mode), uid: Some(1000), gid: Some(2000), ..Set::default() };
    let file = root.create(&top, "file", 0).unwrap();
    let directory = root.mkdir(&top, "directory", 0).unwrap();
    let mut owner = root.as_user(1000, &[]);
    let mut member = root.as_user(1001, &[5, 2000]);
    let mut other = root.as_user(1002, &[5]);
    for bits in 0..8 {
        for (shift, client) in [(6, &mut owner), (3, &mut member), (0, &mut other)] {
            root.setattr(&file, set(bits << shift));
            root.setattr(&directory, set(bits << shift));
            let has = |bit: u32, rights: u32| if bits & bit == bit { rights } else { 0 };
            assert_eq!(client.access(&file), has(4, READ) | has(2, CHANGE) | has(1, EXECUTE), "{bits} {shift}");
            let expected = has(4, READ) | has(1, LOOKUP) | has(3, CHANGE | DELETE);
            assert_eq!(client.access(&directory), expected, "{bits} {shift}");
            // A file's owner may always do this once it is open; a user who may run a file may read
            // it.
            let reads = shift == 6 || bits & 5 != 0;
            assert_eq!(client.read(&file, 0, 1).is_ok(), reads, "{bits} {shift}");
            let writes = shift == 6 || bits & 2 != 0;
            assert_eq!(client.write(&file, 0, b"x", 0).status, if writes { OK } else { ACCES });
            let lists = bits & 4 != 0;
            assert_eq!(client.readdir(&directory, 0, 4096).is_ok(), lists, "{bits} {shift}");
            let made = client.create(&directory, "made", 0o600);
            assert_eq!(made.is_ok(), bits & 3 == 3, "{bits} {shift}: {made:?}");
            root.remove(&directory, "made");
        }
    }
    root.setattr(&file, set(0));
    assert_eq!(root.access(&file), READ | CHANGE, "nobody runs what nobody may run");
    assert_eq!(root.access(&directory), READ | LOOKUP | CHANGE | DELETE);
}

#[test]
fn attributes_belong_to_the_owner_and_owners_to_the_super_user() {
    let served = open_to_all();
    let mut root = served.client("/");
    let top = root.root.clone();
    let file = root.create(&top, "file", 0o666).unwrap();
    root.setattr(&file, Set { uid: Some(1000), gid: Some(1000), ..Set::default() });
    let (mut owner, mut other) = (root.as_user(1000, &[50]), root.as_user(1001, &[]));
    let status = |answer: super::client::Answer| answer.status;
    let mode = |mode| Set { mode: Some(mode), ..Set::default() };
    assert_eq!(status(other.setattr(&file, mode(0o777))), PERM);
    assert_eq!(status(other.setattr(&file, Set { mtime: Some((1, 1)), ..Set::default() })), PERM);
    assert_eq!(status(other.setattr(&file, Set { touch: true, ..Set::default() })), OK, "it may write");
    assert_eq!(status(other.setattr(&file, Set { size: Some(0), ..Set::default() })), OK);
    assert_eq!(status(owner.setattr(&file, mode(0o600))), OK);
    assert_eq!(status(other.setattr(&file, Set { touch: true, ..Set::default() })), ACCES);
    assert_eq!(status(other.setattr(&file, Set { size: Some(0), ..Set::default() })), ACCES);
    assert_eq!(status(owner.setattr(&file, Set { uid: Some(1001), ..Set::default() })), PERM);
    assert_eq!(status(owner.setattr(&file, Set { gid: Some(51), ..Set::default() })), PERM);
    assert_eq!(status(owner.setattr(&file, Set { uid: Some(1000), gid: Some(50), ..Set::default() })), OK);
    // A user may not set set-group-id of a group that the user is not in.
    root.setattr(&file, Set { gid: Some(51), ..Set::default() });
    owner.setattr(&file, mode(0o2770));
    assert_eq!(root.getattr(&file).unwrap().mode, 0o770);
}

#[test]
fn set_user_id_goes_when_another_writes() {
    let served = open_to_all();
    let mut root = served.client("/");
    let top = root.root.clone();
    let file = root.create(&top, "file", 0o6777).unwrap();
    root.write(&file, 0, b"x", 0);
    assert_eq!(root.getattr(&file).unwrap().mode, 0o6777);
    root.as_user(1000, &[]).write(&file, 0, b"x", 0);
    assert_eq!(root.getattr(&file).unwrap().mode, 0o777);
}

#[test]
fn in_a_sticky_directory_only_owners_remove_and_rename() {
    let served = open_to_all();
    let mut root = served.client("/");
    let top = root.root.clone();
    let directory = root.mkdir(&top, "sticky", 0o1777).unwrap();
    let (mut owner, mut other) = (root.as_user(1000, &[]), root.as_user(1001, &[]));
    owner.create(&directory, "file", 0o666).unwrap();
    other.create(&directory, "theirs", 0o666).unwrap();
    assert_eq!(other.remove(&directory, "file"), PERM);
    assert_eq!(other.rename((&directory, "file"), (&directory, "taken")).status, PERM);
    assert_eq!(other.rename((&directory, "theirs"), (&directory, "file")).status, PERM, "it would replace it");
    assert_eq!(owner.rename((&directory, "file"), (&directory, "moved")).status, OK);
    assert_eq!(owner.remove(&directory, "moved"), OK);
}

#[test]
fn what_is_made_belongs_to_its_maker_and_devices_are_the_super_users() {
    let served = open_to_all();
    let mut root = served.client("/");
    let top = root.root.clone();
    root.setattr(&top, Set { mode: Some(0o777), ..Set::default() });
    let mut user = root.as_user(1000, &[50]);
    let file = user.create(&top, "file", 0o600).unwrap();
    let made = user.getattr(&file).unwrap();
    assert_eq!((made.uid, made.gid), (1000, 1000));
    let mut device = place(&top, "device");
    device.u32(4);
    write_set(&mut device, Set::default());
    [1, 3].into_iter().for_each(|part| device.u32(part));
    assert_eq!(user.nfs(11, device).status, PERM);
    let mut given = place(&top, "given");
    given.u32(1);
    write_set(&mut given, Set { uid: Some(1001), ..Set::default() });
    assert_eq!(user.nfs(8, given).status, PERM);
    assert_eq!(user.lookup(&top, "given"), Err(2), "it was not made either");
}

#[test]
fn nobody_makes_a_program_that_runs_as_a_group_of_others() {
    let served = open_to_all();
    let mut root = served.client("/");
    let top = root.root.clone();
    let directory = root.mkdir(&top, "shared", 0o777).unwrap();
    root.setattr(&directory, Set { gid: Some(50), ..Set::default() });
    root.setattr(&directory, Set { mode: Some(0o2777), ..Set::default() });
    let made = |groups: &[u32], name: &str, mode: u32| {
        let mut user = root.as_user(1000, groups);
        let file = user.create(&directory, name, mode).unwrap();
        let made = user.getattr(&file).unwrap();
        assert_eq!(made.gid, 50, "the directory gives its group on");
        made.mode
    };
    assert_eq!(made(&[], "stranger", 0o2755), 0o755);
    assert_eq!(made(&[50], "member", 0o2755), 0o2755);
    assert_eq!(made(&[], "locked", 0o2644), 0o2644, "without being a program it means nothing");
}

#[test]
fn the_super_user_is_squashed_unless_the_export_says_otherwise() {
    let served = serve("/ *");
    let mut root = served.client("/");
    let top = root.root.clone();
    assert_eq!(root.create(&top, "file", 0o600), Err(ACCES));
    served
        .vfs
        .set_attributes(weft_vfs::Ino::ROOT, weft_vfs::SetAttributes { permissions: Some(0o777), ..Default::default() })
        .unwrap();
    let file = root.create(&top, "file", 0o600).unwrap();
    assert_eq!(root.getattr(&file).unwrap().uid, 65534);
    let squashed = super::server(&served.vfs, "/ *(all_squash,anonuid=7,anongid=8)");
    let mut user = super::Client::connect(squashed.address()).mounted("/");
    user.uid = 1000;
    let file = user.create(&top, "squashed", 0o600).unwrap();
    let made = user.getattr(&file).unwrap();
    assert_eq!((made.uid, made.gid), (7, 8));
}

#[test]
fn a_read_only_export_refuses_every_change() {
    let served = open_to_all();
    let mut writer = served.client("/");
    let top = writer.root.clone();
    let file = writer.create(&top, "file", 0o666).unwrap();
    let read_only = super::server(&served.vfs, "/ *(ro,no_root_squash)");
    let mut client = super::Client::connect(read_only.address()).mounted("/");
    assert_eq!(client.access(&file), READ);
    assert_eq!(client.access(&top), READ | LOOKUP);
    let refused = [
        client.setattr(&file, Set { mode: Some(0), ..Set::default() }).status,
        client.write(&file, 0, b"x", 0).status,
        client.create(&top, "new", 0o600).unwrap_err(),
        client.mkdir(&top, "new", 0o700).unwrap_err(),
        client.remove(&top, "file"),
        client.rmdir(&top, "file"),
        client.rename((&top, "file"), (&top, "new")).status,
        client.link(&file, &top, "new").status,
        client
            .nfs(10, {
                let mut to = place(&top, "new");
                write_set(&mut to, Set::default());
                to.opaque(b"x");
                to
            })
            .status,
        client
            .nfs(11, {
                let mut to = place(&top, "new");
                to.u32(7);
                write_set(&mut to, Set::default());
                to
            })
            .status,
    ];
    assert_eq!(refused, [ROFS; 10]);
    assert_eq!(client.nfs(1, arguments(|to| to.opaque(&file))).status, OK);
}

#[test]
fn a_link_tells_a_user_nothing_of_what_that_user_may_not_read() {
    let served = open_to_all();
    let mut root = served.client("/");
    let directory = root.root.clone();
    let secret = root.create(&directory, "secret", 0o600).unwrap();
    root.write(&secret, 0, b"password\n", 2);
    for (name, network) in [("right", "grep '^pa'"), ("wrong", "grep '^pb'")] {
        let definition = LinkDefinition::new(vec![b"/secret".to_vec()], network);
        let made =
            served.vfs.links().expect("links").make_link(Caller::ROOT, Ino::ROOT, name.as_bytes(), 0o666, &definition);
        made.expect("made");
    }
    let right = root.lookup(&directory, "right").unwrap();
    assert_eq!((root.getattr(&right).unwrap().size, root.read(&right, 0, 99).unwrap().0), (9, b"password\n".to_vec()));
    let mut alice = root.as_user(1000, &[]);
    assert_eq!((alice.getattr(&right).map(|seen| seen.size), alice.read(&right, 0, 99)), (Err(ACCES), Err(ACCES)));
    let seen = ["right", "wrong"].map(|name| {
        let link = alice.lookup(&directory, name).unwrap();
        assert_eq!((alice.read(&link, 0, 99), alice.access(&link)), (Err(ACCES), 0));
        let seen = alice.getattr(&link).unwrap();
        (seen.size, seen.mode, seen.mtime)
    });
    assert_eq!((seen[0].0, seen[0].1), (1, 0));
    assert_eq!(seen[0], seen[1]);
    assert_eq!(alice.remove(&directory, "wrong"), ACCES, "the directory is root's");
    assert_eq!(root.remove(&directory, "wrong"), 0);
}
