//! Memory that users of links can have the daemon hold: what is counted is what is really there.
//!
//! Each test counts the bytes that its own thread has and has not given back.

#![allow(missing_docs)]

use std::sync::Arc;
use weft_links::{LinkDefinition, LinkOptions, Pushed, Scope, ViewKind, WithLinks};
use weft_store::VolumeOptions;
use weft_testkit::{Counting, CrashStore, held};
use weft_transform::Network;
use weft_vfs::{Caller, Holds, Ino, Kind, MakeNode, ManualClock, Options, SetAttributes, Stats, Vfs};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const FILES: usize = 2000;

fn volume(options: Options) -> Arc<Vfs> {
    let store = Arc::new(CrashStore::new(VolumeOptions::default()));
    let options = Options { background: false, ..options };
    weft_links::open(store, None, options, LinkOptions::default(), Arc::new(ManualClock::default())).expect("opens")
}

fn make(vfs: &Vfs, parent: Ino, name: &str, kind: Kind) -> Ino {
    let node = MakeNode { kind, permissions: 0o755, umask: 0, rdev: 0 };
    vfs.make(Caller::ROOT, parent, name.as_bytes(), node).expect("made").ino
}

/// A volume with a directory of many files, which are in memory.
fn files() -> (Arc<Vfs>, Ino) {
    let vfs = volume(Options::default());
    let source = make(&vfs, Ino::ROOT, "source", Kind::Directory);
    for number in 0..FILES {
        make(&vfs, source, &number.to_string(), Kind::File);
    }
    (vfs, source)
}

fn view(vfs: &Vfs, name: &str, target: &str, view: ViewKind, network: &str) -> Ino {
    let definition = LinkDefinition { view, ..LinkDefinition::new(vec![target.into()], network) };
    vfs.links()
        .expect("links")
        .make_link(Caller::ROOT, Ino::ROOT, name.as_bytes(), 0o777, &definition)
        .expect("made")
        .ino
}

fn plain() -> ViewKind {
    ViewKind::Directory { rename: None, only: None }
}

/// One as in an attack, of 50 stages, which takes 50 kB: a different one for each number.
fn attack(number: usize) -> String {
    let letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ012345678";
    let stage = format!("tr '{letters}{number:06}' '{letters}'");
    vec![stage; 50].join(" | ")
}

/// Has the kernel hold these entries of `view`; gives the bytes that each takes and that are
/// counted.
fn hold(vfs: &Vfs, view: Ino, names: impl Iterator<Item = String>) -> (usize, usize) {
    let caller = Caller { holds: Holds::Counted, ..Caller::ROOT };
    let before = vfs.stats().metadata_bytes;
    let names: Vec<String> = names.collect();
    let ((), held) = held(|| {
        for name in &names {
            vfs.lookup(caller, view, name.as_bytes()).expect("shown");
        }
    });
    let count = names.len();
    let counted = usize::try_from(vfs.stats().metadata_bytes - before).unwrap();
    (held / count, counted / count)
}

#[test]
fn an_entry_of_a_view_takes_a_few_hundred_bytes_whatever_the_network() {
    let (vfs, _) = files();
    for (name, network) in [("short", "rot13"), ("long", &*attack(0))] {
        let view = view(&vfs, name, "/source", plain(), network);
        let (held, counted) = hold(&vfs, view, (0..FILES).map(|number| number.to_string()));
        println!("{name}: {held} bytes each, {counted} counted");
        assert!(held <= 1024, "{held} bytes of each entry of the {name} one");
        // Of the view itself there is one.
        assert!(
            held <= counted + 128 && counted <= 1024 + 1024 * 1024 / FILES,
            "{held} of which {counted} are counted"
        );
    }
    let virtual_inodes = vfs.stats().virtual_inodes;
    assert_eq!(virtual_inodes, 2 * FILES as u64);
}

#[test]
fn so_does_a_member_of_an_archive() {
    let vfs = volume(Options::default());
    let mut tar = tar::Builder::new(Vec::new());
    for number in 0..FILES {
        let mut header = tar::Header::new_gnu();
        header.set_size(1);
        header.set_cksum();
        tar.append_data(&mut header, number.to_string(), &b"m"[..]).expect("added");
    }
    let archive = make(&vfs, Ino::ROOT, "archive", Kind::File);
    vfs.write(archive, 0, &tar.into_inner().expect("whole"), true).expect("written");
    let view = view(&vfs, "view", "/archive", ViewKind::Members, &attack(0));
    vfs.lookup(Caller::ROOT, view, b"0").expect("shown");
    // Those that are used lately are made, within a bound.
    let recent = 4 << 20;
    let (held, counted) = hold(&vfs, view, (0..FILES).map(|number| number.to_string()));
    println!("{held} bytes each, {counted} counted");
    assert!(held <= 1024 + recent / FILES && held <= counted + 128, "{held} of which {counted} are counted");
}

/// Each link that was made was in memory whole until it was committed.
#[test]
fn views_that_are_not_committed_yet_keep_within_the_bound() {
    const BYTES_MAX: u64 = 16 << 20;
    let vfs = volume(Options { metadata_cache_bytes: BYTES_MAX, ..Options::default() });
    make(&vfs, Ino::ROOT, "source", Kind::Directory);
    let ((), held) = held(|| {
        for number in 0..60 {
            let only = Some(format!("{number}[^x]{{0,1200}}"));
            view(&vfs, &number.to_string(), "/source", ViewKind::Directory { rename: None, only }, "rot13");
        }
    });
    let counted = vfs.stats().metadata_bytes;
    println!("{held} bytes, {counted} counted");
    assert!(counted <= BYTES_MAX && held as u64 <= BYTES_MAX, "{counted} counted, {held} held");
}

/// A file of user `uid`.
fn file_of(vfs: &Vfs, uid: u32) -> Ino {
    let file = make(vfs, Ino::ROOT, &format!("of {uid}"), Kind::File);
    vfs.set_attributes(file, SetAttributes { uid: Some(uid), ..SetAttributes::default() }).expect("set");
    file
}

fn push(vfs: &Vfs, ino: Ino, number: u64, network: &str) -> weft_vfs::Result<()> {
    let pushed = Pushed { network: network.into(), code: Vec::new(), may_resize: true };
    vfs.links().expect("links").push(Caller { uid: 1000, ..Caller::ROOT }, ino, Scope::Opened(number), &pushed)
}

fn told(vfs: &Vfs) -> (u64, u64, u64, u64) {
    let Stats { networks_pushed, pushed_bytes, pushes_refused, virtual_inodes, .. } = vfs.stats();
    (networks_pushed, pushed_bytes, pushes_refused, virtual_inodes)
}

#[test]
fn equal_networks_that_are_pushed_take_memory_once_and_none_when_closed() {
    let vfs = volume(Options::default());
    let file = file_of(&vfs, 1000);
    push(&vfs, file, 0, &attack(0)).expect("pushed");
    let ((), bytes) = held(|| (1..1000).for_each(|number| push(&vfs, file, number, &attack(0)).expect("pushed")));
    println!("{} bytes each", bytes / 999);
    let (pushed, counted, _, virtual_inodes) = told(&vfs);
    assert!((pushed, virtual_inodes) == (1000, 1000) && bytes / 999 <= 1024, "{} bytes each", bytes / 999);
    assert!(counted <= 2 << 20 && bytes as u64 <= counted, "{counted} counted");
    (0..1000).for_each(|number| vfs.links().expect("links").pop_all(file, number));
    assert_eq!(told(&vfs), (0, 0, 0, 0));
}

#[test]
fn networks_that_a_user_pushes_have_a_bound_and_what_they_take_is_counted() {
    let vfs = volume(Options::default());
    let (file, others) = (file_of(&vfs, 1000), file_of(&vfs, 1001));
    let (refused, bytes) =
        held(|| (0..).find_map(|number| push(&vfs, file, number as u64, &attack(number)).err()).expect("it ends"));
    assert_eq!(refused.errno(), 122, "EDQUOT");
    let (pushed, counted, refused, _) = told(&vfs);
    println!("{pushed} pushed in {bytes} bytes, {counted} counted");
    assert!(pushed > 100 && refused == 1 && counted <= 16 << 20, "{pushed} pushed, {counted} counted");
    assert!(bytes as u64 <= counted, "{bytes} held, {counted} counted");
    let other = Pushed { network: "rot13".into(), code: Vec::new(), may_resize: true };
    vfs.links()
        .expect("links")
        .push(Caller { uid: 1001, ..Caller::ROOT }, others, Scope::Opened(1 << 32), &other)
        .expect("others have room");
    vfs.links().expect("links").pop_all(file, 0);
    push(&vfs, file, 0, &attack(0)).expect("there is room again");
}

#[test]
fn a_network_takes_no_more_than_it_says() {
    let long = "x".repeat(5000);
    let networks = [
        "identity | rot13 | upper | xor 7 | tr 'a-z' 'A-Z'".to_owned(),
        "grep '^pa' | sort | uniq | wc -l | head -n 3 | nl | rev".to_owned(),
        "gzip | gzip -d | base64 | base64 -d | sha256".to_owned(),
        format!("replace '{long}' '{long}' | grep '{long}'"),
        format!("replace '{long}' y"),
        "concat(rot13, upper | rev, lower, $1)".to_owned(),
        attack(1),
    ];
    for text in networks {
        let (network, bytes) = held(|| Network::known(&text));
        let network = network.unwrap_or_else(|error| panic!("{text:.60}: {error}"));
        assert!(bytes + size_of::<Network>() <= network.bytes(), "{bytes} of {}: {:.60}", network.bytes(), text);
        assert!(network.bytes() <= 4 * bytes + 4096, "{bytes} of {}: {:.60}", network.bytes(), text);
    }
    for entry in weft_transform::catalog::STAGES {
        let (network, bytes) = held(|| Network::known(entry.name));
        if let Ok(network) = network {
            assert!(bytes + size_of::<Network>() <= network.bytes(), "{bytes} of {}: {}", network.bytes(), entry.name);
        }
    }
}
