//! Links that run code of their own.

use crate::{FILE, mount_options, options};
use std::sync::Arc;
use weft_links::{Exported, LinkDefinition, LinkOptions, WithLinks};
use weft_store::memory::MemoryStore;
use weft_store::{Batch, CommitStore, Durability, InodeChange, InodeRow, RowStore, VolumeOptions};
use weft_vfs::{Caller, ErrorKind, Ino, ManualClock};

#[test]
fn a_link_that_runs_code_does_so_only_if_its_maker_is_known_to_have_ordered_it() {
    let store = Arc::new(MemoryStore::new(VolumeOptions::default()));
    let open = || {
        let links = LinkOptions { exported: Exported::Root, ..options() };
        weft_links::open(store.clone(), None, mount_options(), links, Arc::new(ManualClock::default())).expect("opens")
    };
    let vfs = open();
    let file = vfs.make(Caller::ROOT, Ino::ROOT, b"file", FILE).expect("made").ino;
    vfs.write(file, 0, b"content", false).expect("written");
    let definition = LinkDefinition::new(vec![b"/file".to_vec()], "exec cat");
    let made =
        vfs.links().expect("links").make_link(Caller::ROOT, Ino::ROOT, b"link", 0o644, &definition).expect("made").ino;
    assert!(vfs.links().expect("links").link_order(made).expect("told").expect("a link").definition.trusted);
    vfs.close().expect("closed");
    // As links were before that was asked.
    let row = store.inodes(made, 1).expect("readable").remove(0);
    let header = store.header().expect("readable");
    let bytes = definition.encode();
    let old = InodeChange::Put(InodeRow { size: bytes.len() as u64, inline: Some(bytes.into()), ..row });
    let batch =
        Batch { commit: header.commit.next(), counters: header.counters, inodes: vec![old], ..Batch::default() };
    store.apply(&batch, Durability::Durable).expect("changed");
    let vfs = open();
    assert_eq!(vfs.read(made, 0, 100).unwrap_err().kind(), ErrorKind::NotPermitted);
    assert!(!vfs.links().expect("links").link_order(made).expect("told").expect("a link").definition.trusted);
    vfs.close().expect("closed");
}
