//! Digests of directories with links.

use crate::{DIRECTORY, FILE, mount_options, options};
use std::sync::Arc;
use weft_links::{LinkDefinition, WithLinks};
use weft_store::{Timestamp, VolumeOptions, sqlite};
use weft_vfs::{Asker, Caller, Ino, MakeNode, ManualClock, SetAttributes};

/// A directory lists a link by its definition, which tells where the link leads.
#[test]
fn digests_are_told_to_those_to_whom_links_below_are_open() {
    const ALICE: u32 = 1000;
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("volume");
    sqlite::create(&path, &VolumeOptions::default(), (0, 0), Timestamp(0)).expect("created");
    let store = sqlite::open(&path).expect("opened").store;
    let vfs = weft_links::open(store, None, mount_options(), options(), Arc::new(ManualClock::default()));
    let vfs = vfs.expect("opens");
    let make = |parent, name: &[u8]| {
        let made = vfs.make(Caller::ROOT, parent, name, DIRECTORY).expect("made").ino;
        let changes = SetAttributes { uid: Some(ALICE), gid: Some(ALICE), ..SetAttributes::default() };
        vfs.set_attributes(made, changes).expect("given");
        made
    };
    let top = make(Ino::ROOT, b"top");
    let below = make(top, b"below");
    let told_to_alice = || {
        let _asking = Asker::thread(ALICE, ALICE, 0).asks();
        let names: [&[u8]; 3] = [b"user.weft.digest", b"user.weft.digest.listed", b"user.weft.digest.entries.0"];
        names.map(|name| vfs.xattr(top, name).is_ok())
    };
    assert_eq!(told_to_alice(), [true; 3]);
    let definition = LinkDefinition::new(vec![b"/nothing".to_vec()], "upper");
    let links = vfs.links().expect("links");
    links.make_link(Caller::ROOT, below, b"link", 0o666, &definition).expect("made");
    assert_eq!(told_to_alice(), [true; 3]);
    vfs.make(Caller::ROOT, Ino::ROOT, b"nothing", MakeNode { permissions: 0o600, ..FILE }).expect("made");
    assert_eq!(told_to_alice(), [false; 3]);
}
