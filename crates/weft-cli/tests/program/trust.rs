//! Links that run code, made by a Weft that let programs make them unasked.

use crate::place::{Place, is_root};
use weft_block::Slice;
use weft_links::LinkDefinition;
use weft_store::{Batch, CommitStore, Durability, Ino, InodeChange, Name, RowStore};

/// Makes the link `name` in the root of volume `v` one that nobody is known to have ordered.
fn make_older(place: &Place, name: &str) {
    let store = weft_store::sqlite::open(&place.path("v")).expect("opened").store;
    let named = store.name(Ino::ROOT, &Name::new(name.as_bytes()).unwrap()).unwrap().expect("there");
    let mut row = store.inodes(named.ino, 1).unwrap().remove(0);
    let definition = LinkDefinition::decode(row.inline.as_ref().expect("its definition")).expect("a definition");
    assert!(definition.trusted);
    let older = LinkDefinition { trusted: false, ..definition }.encode();
    let header = store.header().unwrap();
    let mut batch = Batch { commit: header.commit.next(), counters: header.counters, ..Batch::default() };
    batch.counters.bytes_used -= row.allocated - older.len() as u64;
    (row.size, row.allocated) = (older.len() as u64, older.len() as u64);
    row.inline = Some(Slice::from(older));
    batch.inodes.push(InodeChange::Put(row));
    store.apply(&batch, Durability::Durable).unwrap();
}

#[test]
fn an_older_link_that_runs_code_runs_it_once_its_owner_trusts_it() {
    let Some(place) = Place::to_mount() else { return };
    if !is_root() {
        return eprintln!("SKIPPED an_older_link_that_runs_code_runs_it_once_its_owner_trusts_it: needs root");
    }
    let directory = place.mounted();
    std::fs::write(directory.join("file"), "abc").unwrap();
    place.weft(&["link", "m/file", "m/link", "-n", "exec 'tr a-z A-Z'"]).well();
    assert_eq!(std::fs::read_to_string(directory.join("link")).unwrap(), "ABC");
    place.umount();
    make_older(&place, "link");
    place.weft(&["check", "v"]).well();
    place.mount();
    assert!(std::fs::read(directory.join("link")).is_err());
    assert!(place.weft(&["link", "--show", "m/link"]).well().contains("--trust"));
    place.weft(&["link", "--trust", "m/link"]).well();
    assert_eq!(std::fs::read_to_string(directory.join("link")).unwrap(), "ABC");
    // Nothing else changed, and nothing is left over.
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 2);
    place.umount();
    place.weft(&["check", "v", "--read-data"]).well();
}
