//! Own tables of files that are said to be unused: none goes that blocks are in need of.

use crate::contract::options;
use crate::generate::{Change, batch};
use std::collections::BTreeSet;
use std::sync::Arc;
use weft_store::OpenOptions;
use weft_store::postgres::{self, Address, PostgresStore};
use weft_store::*;
use weft_testkit::Cluster;

/// A new volume in which all blocks of a file lie in its own table, and its schema.
fn made() -> (Address, String) {
    let address = Cluster::shared().address();
    let volume = VolumeOptions { own_table_from: Some(0), ..options(BlockHome::Database) };
    postgres::create(&address, &volume, (0, 0), Timestamp(0)).expect("made");
    let schema = address.schema().to_owned();
    (address, schema)
}

fn open(address: &Address) -> Arc<PostgresStore> {
    postgres::open(address, OpenOptions::default()).expect("opened")
}

fn apply(store: &dyn Store, changes: &[Change]) {
    store.apply(&batch(store, changes), Durability::Durable).expect("applied");
}

/// A file of three blocks, written as a whole.
fn write(store: &dyn Store, ino: u8) {
    let mut changes = vec![
        Change::Clear { ino, start: 0, end: None },
        Change::Name { parent: 1, name: ino, ino },
        Change::Inode { ino, size: 15000, inline: None, nlink: 1 },
    ];
    changes.extend((0..3).map(|index| Change::Block { ino, index, length: 5000 }));
    apply(store, &changes);
}

/// Has the next holder drop what it finds, by a commit that does nothing to that.
fn mount(address: &Address) {
    let store = open(address);
    write(&*store, 7);
    apply(&*store, &[Change::RemoveInode { ino: 7 }, Change::RemoveName { parent: 1, name: 7 }]);
}

fn read(store: &dyn Store, ino: u64) {
    let extents = store.extents(Ino(ino), 0..u64::MAX).expect("readable");
    assert_eq!(extents.len(), 3);
    for (_, block) in extents {
        store.read_block(&block, ReadMode::Blocking).expect("its bytes are there");
    }
}

fn dropped(schema: &str) -> BTreeSet<String> {
    Cluster::shared().run(&format!("SELECT owner FROM {schema}.dropped")).lines().map(str::to_owned).collect()
}

fn is_there(schema: &str, table: &str) -> bool {
    !Cluster::shared().run(&format!("SELECT to_regclass('{schema}.{table}')")).is_empty()
}

/// Returns the findings of a check about own tables and bytes that are gone; the files say nothing
/// true of sizes.
fn found(address: &Address, repair: Repair) -> Vec<(String, Outcome)> {
    let options = CheckOptions { repair, read_data: true };
    let findings = postgres::check(address, options, &mut |_| {}).expect("checked");
    let is_of_tables = |what: &str| what.contains("the table") || what.contains("has no bytes");
    let of_tables = findings.into_iter().filter(|finding| is_of_tables(&finding.what));
    of_tables.map(|finding| (finding.what, finding.outcome)).collect()
}

#[test]
fn a_table_that_a_conversion_uses_again_does_not_wait_to_be_dropped_any_more() {
    let (address, schema) = made();
    let store = open(&address);
    write(&*store, 2);
    let reading = Cluster::shared().reading(&format!("{schema}.blocks_of_2"));
    apply(&*store, &[Change::Clear { ino: 2, start: 0, end: None }]);
    write(&*store, 2);
    drop(store);
    assert_eq!(dropped(&schema), BTreeSet::from(["2".into()]), "somebody reads the table");
    postgres::convert(&address, Some(0), &mut |_| {}).expect("converted");
    drop(reading);
    assert_eq!(dropped(&schema), BTreeSet::new());
    mount(&address);
    read(&*open(&address), 2);
    assert_eq!(found(&address, Repair::No), []);
    // Back, and the table goes, with nobody in need of it.
    postgres::convert(&address, None, &mut |_| {}).expect("converted");
    assert!(!is_there(&schema, "blocks_of_2"));
    read(&*open(&address), 2);
}

#[test]
fn a_table_that_blocks_need_is_not_dropped_but_told_whatever_is_said_of_it() {
    let (address, schema) = made();
    let store = open(&address);
    [2, 3].iter().for_each(|ino| write(&*store, *ino));
    // A file whose blocks have no rows any more still names their bytes.
    write(&*store, 4);
    drop(store);
    let cluster = Cluster::shared();
    cluster.run(&format!("INSERT INTO {schema}.dropped VALUES (2), (3), (4), (999), (0)"));
    cluster.run(&format!("CREATE TABLE {schema}.kept AS SELECT * FROM {schema}.blocks WHERE owner = 4"));
    cluster.run(&format!("DELETE FROM {schema}.blocks WHERE owner = 4"));
    mount(&address);
    assert!(["blocks_of_2", "blocks_of_3", "blocks_of_4"].iter().all(|table| is_there(&schema, table)));
    cluster.run(&format!("INSERT INTO {schema}.blocks SELECT * FROM {schema}.kept; DROP TABLE {schema}.kept"));
    assert!(!dropped(&schema).contains("999"), "nothing needs that one");
    let told = found(&address, Repair::No);
    assert_eq!(told.iter().map(|(_, outcome)| *outcome).collect::<Vec<_>>(), [Outcome::Damaged; 3], "{told:?}");
    assert!(told[0].0.contains("blocks_of_2") && told[0].0.contains("blocks need it"), "{told:?}");
    let repaired = found(&address, Repair::Yes);
    assert!(repaired.iter().all(|(_, outcome)| *outcome == Outcome::Repaired), "{repaired:?}");
    assert_eq!(found(&address, Repair::No), []);
    mount(&address);
    let store = open(&address);
    [2, 3, 4].iter().for_each(|ino| read(&*store, *ino));
}

/// A commit that was under way when its connection broke may still happen.
#[test]
fn a_table_that_somebody_writes_to_meanwhile_is_not_dropped() {
    let (address, schema) = made();
    let store = open(&address);
    write(&*store, 2);
    let cluster = Cluster::shared();
    let other = cluster.client();
    // What it does: bytes, then the row that needs them. Its file is emptied meanwhile.
    other.run(&format!(
        "BEGIN; INSERT INTO {schema}.blocks_of_2 VALUES (4000, '\\x00'); INSERT INTO {schema}.blocks \
         (owner, id, refs, length, base, value) VALUES (2, 4000, 1, 1, 0, '\\x00')"
    ));
    apply(&*store, &[Change::Clear { ino: 2, start: 0, end: None }]);
    assert!(is_there(&schema, "blocks_of_2"), "it is written to");
    other.run("COMMIT");
    drop(store);
    mount(&address);
    assert!(is_there(&schema, "blocks_of_2"), "what was written needs it");
    cluster.run(&format!("DELETE FROM {schema}.blocks WHERE id = 4000"));
    mount(&address);
    assert!(!is_there(&schema, "blocks_of_2"));
}
