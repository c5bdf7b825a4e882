//! Tests of each procedure, as a client finds it.

use super::client::{Answer, Client, Set, arguments, place, write_set};
use super::{Served, open_to_all};
use std::collections::BTreeSet;
use weft_vfs::{Cookie, Ino, Timestamp};

const OK: u32 = 0;
const NOENT: u32 = 2;
const EXIST: u32 = 17;
const NOTDIR: u32 = 20;
const ISDIR: u32 = 21;
const INVAL: u32 = 22;
const NAMETOOLONG: u32 = 63;
const NOTEMPTY: u32 = 66;
const STALE: u32 = 70;
const NOT_SYNC: u32 = 10002;
const TOOSMALL: u32 = 10005;
const BADTYPE: u32 = 10007;

fn start() -> (Served, Client, Vec<u8>) {
    let served = open_to_all();
    let client = served.client("/");
    let root = client.root.clone();
    (served, client, root)
}

#[test]
fn null_answers_nothing() {
    let (_served, mut client, _) = start();
    client.nfs(0, arguments(|_| {})).end();
}

#[test]
fn a_file_is_made_written_read_and_told_of() {
    let (served, mut client, root) = start();
    let file = client.create(&root, "file", 0o640).unwrap();
    served.clock.set(Timestamp::from_parts(2000, 5));
    let data: Vec<u8> = (0..9000u32).map(|at| at as u8).collect();
    let mut answer = client.write(&file, 3, &data, 0);
    let change = answer.change();
    assert_eq!(change.before, Some((0, (1000, 0), (1000, 0))));
    assert_eq!(change.after.unwrap().size, 9003);
    assert_eq!((answer.u32(), answer.u32()), (9000, 0));
    let attributes = client.getattr(&file).unwrap();
    assert_eq!((attributes.kind, attributes.mode, attributes.nlink), (1, 0o640, 1));
    assert_eq!((attributes.mtime, attributes.ctime), ((2000, 5), (2000, 5)));
    assert_eq!(client.read(&file, 0, 5000).unwrap(), ([&[0; 3][..], &data[..4997]].concat(), false));
    assert_eq!(client.read(&file, 9000, 5000).unwrap(), (data[8997..].to_vec(), true));
    assert_eq!(client.read(&file, 9003, 1).unwrap(), (vec![], true));
    assert_eq!(client.read(&root, 0, 1), Err(ISDIR));
}

#[test]
fn what_was_committed_or_written_stable_is_durable_and_one_server_has_one_verifier() {
    let (served, mut client, root) = start();
    let file = client.create(&root, "file", 0o644).unwrap();
    let durable = || {
        let (last, durable) = served.vfs.progress();
        last == durable
    };
    assert!(durable(), "a file is made when that is told");
    let verifier = |answer: &mut Answer| {
        answer.change();
        assert_eq!(answer.u32(), 1);
        (answer.u32(), answer.u64())
    };
    let (committed, first) = verifier(&mut client.write(&file, 0, b"a", 0));
    assert_eq!((committed, durable()), (0, false));
    let (committed, second) = verifier(&mut client.write(&file, 1, b"b", 1));
    assert_eq!((committed, durable()), (2, true));
    client.write(&file, 0, b"c", 0);
    let mut answer = client.nfs(
        21,
        arguments(|to| {
            to.opaque(&file);
            to.u64(0);
            to.u32(0);
        }),
    );
    assert_eq!((answer.status, durable()), (OK, true));
    answer.change();
    assert_eq!([first, second], [answer.u64(); 2]);
    let again = super::server(&served.vfs, "/ *(no_root_squash)");
    let mut other = Client::connect(again.address()).mounted("/");
    let (_, third) = verifier(&mut other.write(&file, 0, b"d", 0));
    assert_ne!(first, third, "the next server has another");
}

#[test]
fn a_file_made_with_a_verifier_is_made_once() {
    let (_served, mut client, root) = start();
    let create = |client: &mut Client, verifier: u64| {
        let mut to = place(&root, "file");
        to.u32(2);
        to.u64(verifier);
        client.nfs(8, to)
    };
    let made = create(&mut client, 0x0102_0304_0506_0708).handle();
    assert_eq!(create(&mut client, 0x0102_0304_0506_0708).handle(), made);
    assert_eq!(create(&mut client, 7).status, EXIST);
    client.write(&made, 0, b"x", 0);
    assert_eq!(create(&mut client, 0x0102_0304_0506_0708).status, EXIST);
}

#[test]
fn an_unchecked_create_takes_what_is_there_and_cuts_it() {
    let (_served, mut client, root) = start();
    let file = client.create(&root, "file", 0o600).unwrap();
    client.write(&file, 0, b"text", 0);
    let create = |client: &mut Client, name: &str, set: Set| {
        let mut to = place(&root, name);
        to.u32(0);
        write_set(&mut to, set);
        client.nfs(8, to)
    };
    let mut again = create(&mut client, "file", Set { mode: Some(0o777), ..Set::default() });
    assert_eq!(again.handle(), file);
    let attributes = again.optional_attributes().unwrap();
    assert_eq!((attributes.mode, attributes.size), (0o600, 4));
    let mut cut = create(&mut client, "file", Set { size: Some(0), ..Set::default() });
    cut.handle();
    assert_eq!(cut.optional_attributes().unwrap().size, 0);
    client.mkdir(&root, "directory", 0o755).unwrap();
    assert_eq!(create(&mut client, "directory", Set::default()).status, EXIST);
    assert_eq!(client.create(&root, "file", 0o600), Err(EXIST));
}

#[test]
fn attributes_are_set_and_a_guard_that_does_not_hold_stops_that() {
    let (served, mut client, root) = start();
    let file = client.create(&root, "file", 0o600).unwrap();
    client.write(&file, 0, b"a text", 0);
    served.clock.set(Timestamp::from_parts(3000, 0));
    let set =
        Set { mode: Some(0o4711), uid: Some(5), gid: Some(6), size: Some(3), mtime: Some((77, 88)), touch: false };
    let change = client.setattr(&file, set).change();
    let after = change.after.unwrap();
    assert_eq!(change.before.unwrap().0, 6);
    assert_eq!((after.mode & 0o777, after.uid, after.gid, after.size, after.mtime), (0o711, 5, 6, 3, (77, 88)));
    assert_eq!(after.ctime, (3000, 0));
    let guarded = |client: &mut Client, ctime: (u32, u32)| {
        let mut to = arguments(|to| to.opaque(&file));
        write_set(&mut to, Set { size: Some(1), ..Set::default() });
        [1, ctime.0, ctime.1].into_iter().for_each(|value| to.u32(value));
        client.nfs(2, to)
    };
    let mut refused = guarded(&mut client, (2999, 0));
    assert_eq!((refused.status, refused.change().after.unwrap().size), (NOT_SYNC, 3));
    assert_eq!(guarded(&mut client, (3000, 0)).change().after.unwrap().size, 1);
    assert_eq!(client.setattr(&root, Set { size: Some(0), ..Set::default() }).status, ISDIR);
}

#[test]
fn names_are_looked_up_moved_linked_and_removed() {
    let (_served, mut client, root) = start();
    let directory = client.mkdir(&root, "directory", 0o755).unwrap();
    let file = client.create(&root, "file", 0o644).unwrap();
    assert_eq!(client.lookup(&root, "file").unwrap(), file);
    assert_eq!(client.lookup(&directory, "..").unwrap(), root);
    assert_eq!(client.lookup(&directory, ".").unwrap(), directory);
    assert_eq!(client.lookup(&root, "nothing"), Err(NOENT));
    assert_eq!(client.lookup(&file, "name"), Err(NOTDIR));
    assert_eq!(client.lookup(&root, &"x".repeat(256)), Err(NAMETOOLONG));
    assert_eq!(client.lookup(&root, "a/b"), Err(INVAL));
    let mut linked = client.link(&file, &directory, "second");
    assert_eq!((linked.status, linked.optional_attributes().unwrap().nlink), (OK, 2));
    assert_eq!(linked.change().after.unwrap().size, 1);
    let mut moved = client.rename((&root, "file"), (&directory, "third"));
    let (from, to) = (moved.change(), moved.change());
    assert_eq!((from.before.unwrap().0, from.after.unwrap().size), (2, 1));
    assert_eq!((to.before.unwrap().0, to.after.unwrap().size), (1, 2));
    assert_eq!(client.rmdir(&root, "directory"), NOTEMPTY);
    assert_eq!(client.remove(&root, "directory"), ISDIR);
    assert_eq!(client.rmdir(&directory, "third"), NOTDIR);
    assert_eq!(client.rename((&root, "directory"), (&directory, "below")).status, INVAL);
    assert_eq!([client.remove(&directory, "third"), client.remove(&directory, "second")], [OK, OK]);
    assert_eq!(client.remove(&directory, "second"), NOENT);
    assert_eq!(client.rmdir(&root, "directory"), OK);
    assert_eq!((client.getattr(&file), client.getattr(&directory)), (Err(STALE), Err(STALE)));
    assert_eq!(client.create(&directory, "late", 0o600), Err(STALE));
}

#[test]
fn dot_and_dot_dot_can_be_neither_made_nor_removed() {
    let (_served, mut client, root) = start();
    let directory = client.mkdir(&root, "directory", 0o755).unwrap();
    for name in [".", ".."] {
        assert_eq!(client.create(&directory, name, 0o600), Err(EXIST));
        assert_eq!(client.mkdir(&directory, name, 0o700), Err(EXIST));
        assert_eq!(client.remove(&directory, name), INVAL);
        assert_eq!(client.rename((&directory, name), (&root, "x")).status, INVAL);
    }
    assert_eq!((client.rmdir(&directory, "."), client.rmdir(&directory, "..")), (INVAL, EXIST));
}

#[test]
fn links_devices_and_pipes_are_made_and_told_of() {
    let (_served, mut client, root) = start();
    let mut to = place(&root, "link");
    write_set(&mut to, Set::default());
    to.opaque(b"some/where");
    let link = client.nfs(10, to).handle();
    assert_eq!(client.getattr(&link).unwrap().kind, 5);
    let mut read = client.nfs(5, arguments(|to| to.opaque(&link)));
    read.optional_attributes();
    assert_eq!(read.bytes(), b"some/where");
    assert_eq!(client.nfs(5, arguments(|to| to.opaque(&root))).status, INVAL);
    let mknod = |client: &mut Client, name: &str, kind: u32, device: &[u32]| {
        let mut to = place(&root, name);
        to.u32(kind);
        if !matches!(kind, 1 | 2 | 5) {
            write_set(&mut to, Set { mode: Some(0o644), ..Set::default() });
        }
        device.iter().for_each(|part| to.u32(*part));
        client.nfs(11, to)
    };
    let mut device = mknod(&mut client, "device", 4, &[300, 70_000]);
    device.handle();
    let attributes = device.optional_attributes().unwrap();
    assert_eq!((attributes.kind, attributes.device), (4, (300, 70_000)));
    assert_eq!(mknod(&mut client, "pipe", 7, &[]).status, OK);
    assert_eq!(mknod(&mut client, "socket", 6, &[]).status, OK);
    assert_eq!(mknod(&mut client, "file", 1, &[]).status, BADTYPE);
    assert_eq!(mknod(&mut client, "far", 3, &[1 << 12, 0]).status, INVAL);
}

#[test]
fn a_directory_is_listed_whole_in_replies_of_any_size_while_it_changes() {
    let (served, mut client, root) = start();
    for at in 0..300 {
        client.create(&root, &format!("file{at}"), 0o644).unwrap();
    }
    let mut seen = BTreeSet::new();
    for count in [160, 512, 8192, 1 << 20] {
        let (mut after, mut names) = (0, Vec::new());
        loop {
            let (entries, at_end) = client.readdir(&root, after, count).unwrap();
            after = entries.last().map_or(after, |(_, cookie)| *cookie);
            names.extend(entries.into_iter().map(|(name, _)| name));
            // Entries that come and go meanwhile are listed or not, all others once.
            client.create(&root, &format!("new{count}-{}", names.len()), 0o644).unwrap();
            client.remove(&root, &format!("new{count}-{}", names.len()));
            if at_end {
                break;
            }
        }
        let unique: BTreeSet<String> = names.iter().filter(|name| !name.starts_with("new")).cloned().collect();
        assert_eq!(names.iter().filter(|name| !name.starts_with("new")).count(), unique.len());
        assert_eq!(unique.len(), 302, "with . and ..");
        seen.insert(unique);
    }
    assert_eq!(seen.len(), 1);
    assert_eq!(client.readdir(&root, 0, 100), Err(TOOSMALL));
    assert_eq!(served.vfs.read_directory(Ino::ROOT, Cookie(0), 1000).unwrap().len(), 300);
}

#[test]
fn a_listing_with_attributes_gives_handles_that_work() {
    let (_served, mut client, root) = start();
    let directory = client.mkdir(&root, "directory", 0o755).unwrap();
    let file = client.create(&directory, "file", 0o600).unwrap();
    let mut answer = client.nfs(
        17,
        arguments(|to| {
            to.opaque(&directory);
            [0, 0].into_iter().for_each(|value| to.u64(value));
            [4096, 4096].into_iter().for_each(|value| to.u32(value));
        }),
    );
    answer.optional_attributes().unwrap();
    answer.u64();
    let mut found = Vec::new();
    while answer.bool() {
        let (fileid, name, _cookie) = (answer.u64(), answer.bytes(), answer.u64());
        let attributes = answer.optional_attributes().unwrap();
        assert_eq!(attributes.fileid, fileid);
        found.push((name, answer.handle()));
    }
    assert!(answer.bool(), "that was all");
    answer.end();
    assert_eq!(found, [(b".".to_vec(), directory), (b"..".to_vec(), root), (b"file".to_vec(), file)]);
}

#[test]
fn the_whole_tells_its_bounds() {
    let (_served, mut client, root) = start();
    let mut sizes = client.nfs(18, arguments(|to| to.opaque(&root)));
    sizes.optional_attributes().unwrap();
    let (total, free, available) = (sizes.u64(), sizes.u64(), sizes.u64());
    assert!(total >= free && free >= available);
    let mut bounds = client.nfs(19, arguments(|to| to.opaque(&root)));
    bounds.optional_attributes().unwrap();
    let most = bounds.u32();
    assert_eq!(most, 1 << 20);
    let mut names = client.nfs(20, arguments(|to| to.opaque(&root)));
    names.optional_attributes().unwrap();
    names.u32();
    assert_eq!(names.u32(), 255);
    // As much as is allowed, and no more.
    let file = client.create(&root, "file", 0o600).unwrap();
    let data = vec![7; most as usize];
    assert_eq!(client.write(&file, 0, &data, 0).status, OK);
    assert_eq!(client.read(&file, 0, 2 * most).unwrap(), (data, true));
}
