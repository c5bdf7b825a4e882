//! Tests of clients that an export lets in, and keeps out.

use super::client::{Client, arguments};
use super::{open_to_all, serve, server, server_of};
use crate::export::Exports;
use crate::programs::{MOUNT, NFS};
use crate::rpc::Procedure;
use crate::server::outsiders::OF_ADDRESS_MAX;
use std::io::Read;
use std::time::Duration;
use weft_vfs::{Caller, Ino, Kind, MakeNode, RenameMode};

const NOENT: u32 = 2;
const ACCES: u32 = 13;
const XDEV: u32 = 18;
const STALE: u32 = 70;
const BADHANDLE: u32 = 10001;

const DIRECTORY: MakeNode = MakeNode { kind: Kind::Directory, permissions: 0o755, umask: 0, rdev: 0 };

#[test]
fn nobody_gets_above_what_is_exported_or_keeps_what_was_moved_out_of_it() {
    let served = open_to_all();
    let top = served.vfs.make(Caller::ROOT, Ino::ROOT, b"shared", DIRECTORY).unwrap().ino;
    served.vfs.make(Caller::ROOT, top, b"inner", DIRECTORY).unwrap();
    let narrow = server(&served.vfs, "/shared *(no_root_squash)");
    let mut client = Client::connect(narrow.address()).mounted("/shared");
    let root = client.root.clone();
    assert_eq!(client.lookup(&root, "..").unwrap(), root);
    let inner = client.lookup(&root, "inner").unwrap();
    assert_eq!(client.lookup(&inner, "..").unwrap(), root);
    served.vfs.rename((top, b"inner"), (Ino::ROOT, b"outer"), RenameMode::Replace).unwrap();
    assert_eq!(client.lookup(&inner, ".."), Err(STALE));
    assert_eq!(client.create(&inner, "file", 0o600), Err(STALE));
    assert_eq!(client.mount("/").status, NOENT);
    assert_eq!(client.mount("/shared/../").status, NOENT);
}

#[test]
fn a_handle_is_good_for_the_export_it_was_found_in_alone() {
    let served = open_to_all();
    for name in [b"a", b"b"] {
        served.vfs.make(Caller::ROOT, Ino::ROOT, name, DIRECTORY).unwrap();
    }
    let both = server(&served.vfs, "/a *(no_root_squash)\n/b *(no_root_squash)");
    let mut client = Client::connect(both.address()).mounted("/a");
    let (a, b) = (client.root.clone(), Client::connect(both.address()).mounted("/b").root);
    client.create(&a, "file", 0o600).unwrap();
    assert_eq!(client.rename((&a, "file"), (&b, "file")).status, XDEV);
    let one = server(&served.vfs, "/a *(no_root_squash)");
    let mut other = Client::connect(one.address());
    assert!(other.getattr(&a).is_ok(), "it outlives servers");
    assert_eq!(other.getattr(&b), Err(STALE), "it is not exported any more");
}

#[test]
fn who_is_not_let_in_can_neither_mount_nor_use_a_handle() {
    let served = open_to_all();
    let root = served.client("/").root;
    let closed = server(&served.vfs, "/ 10.0.0.0/8");
    let mut client = Client::connect(closed.address());
    assert_eq!(client.mount("/").status, ACCES);
    assert_eq!(client.getattr(&root), Err(ACCES));
}

#[test]
fn without_an_export_no_ordinary_user_of_the_machine_is_let_in() {
    let served = open_to_all();
    let mut client = served.client("/");
    let (root, file) = (client.root.clone(), client.create(&served.client("/").root, "file", 0o600).unwrap());
    let default = server_of(&served.vfs, Exports::default());
    // As any process may: from a port that is not reserved, in another user's name.
    let mut client = Client::connect(default.address());
    assert!(client.stream.local_addr().unwrap().port() >= 1024);
    for uid in [0, 1003] {
        client.uid = uid;
        assert_eq!(client.mount("/").status, ACCES);
        assert_eq!(client.getattr(&root), Err(ACCES));
        assert_eq!(client.getattr(&file), Err(ACCES));
    }
}

#[test]
fn who_is_not_let_in_is_answered_and_keeps_no_place_for_long() {
    let served = open_to_all();
    let default = server_of(&served.vfs, Exports::default());
    let answers = |client: &mut Client, program| {
        client.call(Procedure { program, version: 3, number: 0 }, arguments(|_| {})).end();
    };
    let mut first = Client::connect(default.address());
    first.stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    answers(&mut first, NFS);
    // Programs that mount make sure of the server from such ports.
    let mut others: Vec<Client> = (0..OF_ADDRESS_MAX).map(|_| Client::connect(default.address())).collect();
    for client in others.iter_mut().rev() {
        answers(client, MOUNT);
    }
    assert_eq!(first.stream.read(&mut [0; 1]).unwrap(), 0, "the oldest made room");
    let stats = served.vfs.stats().nfs.expect("served");
    assert_eq!((stats.connections, stats.refused.bounds), (OF_ADDRESS_MAX as u64, 1));
    // Clients that are let in have places of their own.
    let mut open: Vec<Client> = (0..=OF_ADDRESS_MAX).map(|_| served.client("/")).collect();
    let root = open[0].root.clone();
    assert!(open.iter_mut().all(|client| client.getattr(&root).is_ok()));
}

#[test]
fn a_directory_in_an_export_can_be_mounted_and_one_that_is_not_there_cannot() {
    let served = open_to_all();
    served.vfs.make(Caller::ROOT, Ino::ROOT, b"inner", DIRECTORY).unwrap();
    let mut client = served.client("/");
    let root = client.root.clone();
    let inner = client.lookup(&root, "inner").unwrap();
    assert_eq!(served.client("/inner/").root, inner);
    assert_eq!(client.mount("/nothing").status, NOENT);
    let exports = "/nothing *".parse().unwrap();
    let options = crate::Options { address: "127.0.0.1:0".parse().unwrap(), exports, tls: None, locking: None };
    let error = crate::Server::start(served.vfs.clone(), options).err().unwrap().to_string();
    assert!(error.contains("/nothing") && error.contains("no such directory"), "{error}");
}

#[test]
fn mounting_tells_nothing_of_what_lies_below_a_closed_directory() {
    let served = serve("/ *");
    let closed = MakeNode { permissions: 0o700, ..DIRECTORY };
    let closed = served.vfs.make(Caller::ROOT, Ino::ROOT, b"closed", closed).unwrap().ino;
    served.vfs.make(Caller::ROOT, closed, b"secret", DIRECTORY).unwrap();
    let mut client = served.client("/");
    for path in ["/closed/secret", "/closed/nothing"] {
        assert_eq!(client.mount(path).status, ACCES, "{path}");
    }
    assert_eq!(client.mount("/closed").status, 0);
}

/// Returns the paths that DUMP reports.
fn dumped(client: &mut Client) -> Vec<Vec<u8>> {
    client.ask(Procedure { program: MOUNT, version: 3, number: 2 }, arguments(|_| {}));
    // In other calls the first word is a status.
    let mut answer = client.answered();
    let (mut has_more, mut paths) = (answer.status == 1, Vec::new());
    while has_more {
        answer.bytes();
        paths.push(answer.bytes());
        has_more = answer.bool();
    }
    paths
}

#[test]
fn who_has_mounted_what_is_told_to_the_client_itself_and_to_no_outsider() {
    let served = open_to_all();
    for name in [b"open".as_slice(), b"secret"] {
        served.vfs.make(Caller::ROOT, Ino::ROOT, name, DIRECTORY).unwrap();
    }
    let exports = "/secret 127.0.0.1(no_root_squash)\n/open 127.0.0.2";
    let split = server(&served.vfs, exports);
    let mut own = Client::connect(split.address()).mounted("/secret");
    assert_eq!(dumped(&mut own), [b"/secret"]);
    let mut other = Client::connect_from([127, 0, 0, 2].into(), split.address()).mounted("/open");
    assert_eq!(dumped(&mut other), [b"/open"], "of others it is told nothing");
    let mut outsider = Client::connect_from([127, 0, 0, 3].into(), split.address());
    assert!(dumped(&mut outsider).is_empty());
}

/// So an ordinary user had another client's call done twice.
#[test]
fn calls_that_are_not_let_in_push_no_replies_out() {
    let served = open_to_all();
    let mut client = served.client("/");
    let root = client.root.clone();
    client.create(&root, "file", 0o600).unwrap();
    let remove = Procedure { program: NFS, version: 3, number: 12 };
    assert_eq!(client.remove(&root, "file"), 0);
    // Handles that nobody gave out, from the same address.
    let mut attacker = Client::connect(served.server.address());
    for _ in 0..600 {
        attacker.ask(remove, super::client::place(&[7; 40], "file"));
    }
    (0..600).for_each(|_| assert_eq!(attacker.answered_any().status, BADHANDLE));
    client.xid -= 1;
    assert_eq!(client.remove(&root, "file"), 0, "it is the same call again");
    assert_eq!(client.remove(&root, "file"), NOENT);
}

#[test]
fn a_handle_that_was_made_up_or_belongs_to_another_volume_is_bad() {
    let (served, other) = (serve("/ *"), serve("/ *"));
    let mut client = served.client("/");
    let foreign = other.client("/").root;
    assert_eq!(client.getattr(&foreign), Err(BADHANDLE));
    assert_eq!(client.getattr(&[]), Err(BADHANDLE));
    let mut forged = client.root.clone();
    forged[19] ^= 2;
    assert_eq!(client.getattr(&forged), Err(BADHANDLE));
}
