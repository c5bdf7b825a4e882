//! The contract of every store, tried on all of them with the same batches.

use crate::compare::state;
use crate::generate::{Change, batch, changes};
use proptest::prelude::*;
use std::sync::Arc;
use weft_store::memory::MemoryStore;
use weft_store::sqlite::{self, SqliteStore};
use weft_store::*;
use weft_store::{OpenOptions, postgres};
use weft_testkit::Cluster;

/// Options that put blocks at `home`.
pub fn options(home: BlockHome) -> VolumeOptions {
    VolumeOptions { home, ..VolumeOptions::default() }
}

/// `cases` cases, or as many as PROPTEST_CASES says.
pub fn config(cases: u32) -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(cases);
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

/// Both homes.
pub const HOMES: [BlockHome; 2] = [BlockHome::Segments, BlockHome::Database];

/// A new volume in `directory`.
pub fn new_volume(directory: &tempfile::TempDir, home: BlockHome) -> std::path::PathBuf {
    let path = directory.path().join("volume");
    sqlite::create(&path, &options(home), (0, 0), Timestamp(0)).expect("made");
    path
}

fn open(path: &std::path::Path) -> Arc<SqliteStore> {
    sqlite::open(path).expect("opened").store
}

/// Applies each batch to a store and to the model, and compares what they say then.
fn apply_to_both(
    store: &dyn Store,
    memory: &MemoryStore,
    batches: &[(Vec<Change>, bool)],
) -> Result<(), TestCaseError> {
    for (changes, durable) in batches {
        let batch = batch(store, changes);
        let expected = memory.apply(&batch, Durability::Durable).expect("the model takes it");
        let durability = if *durable { Durability::Durable } else { Durability::Eventual };
        let applied = store.apply(&batch, durability).expect("applied");
        let told = |applied: &Applied| applied.blocks.iter().map(|b| (b.id, b.length, b.value)).collect::<Vec<_>>();
        prop_assert_eq!(told(&applied), told(&expected));
        prop_assert_eq!(state(store).expect("readable"), state(memory).expect("readable"));
    }
    Ok(())
}

fn apply_all(batches: &[(Vec<Change>, bool)], home: BlockHome) -> Result<(), TestCaseError> {
    let directory = tempfile::tempdir().expect("a directory");
    let path = new_volume(&directory, home);
    let memory = MemoryStore::new(options(home));
    let mut store = open(&path);
    apply_to_both(&*store, &memory, batches)?;
    drop(store);
    store = open(&path);
    prop_assert_eq!(state(&*store).expect("readable"), state(&memory).expect("readable"));
    drop(store);
    let findings =
        sqlite::check(&path, CheckOptions { repair: Repair::No, read_data: true }, &mut |_| {}).expect("checked");
    // These batches keep no file-system rule, but blocks and segments must be in order.
    let of_blocks = |f: &&Finding| f.path.is_none() && (f.what.contains("block") || f.what.contains("segment"));
    prop_assert_eq!(findings.iter().filter(of_blocks).collect::<Vec<_>>(), Vec::<&Finding>::new());
    // A name may lead to no inode, whose row is then taken for one that is gone.
    let of_rows = |f: &&Finding| f.what.contains("damaged") && !f.what.contains("damaged or gone");
    prop_assert_eq!(findings.iter().filter(of_rows).collect::<Vec<_>>(), Vec::<&Finding>::new());
    let rows = rusqlite::Connection::open(if home == BlockHome::Segments { path.join("meta.sqlite") } else { path })
        .and_then(|c| c.query_row("SELECT count(*) FROM blocks", (), |row| row.get::<_, isize>(0)));
    prop_assert_eq!(rows.expect("counted").unsigned_abs(), memory.block_count());
    Ok(())
}

proptest! {
    #![proptest_config(config(48))]
    #[test]
    fn any_batches_leave_a_volume_of_segments_as_they_leave_the_model(
        batches in proptest::collection::vec((changes(), any::<bool>()), 1..8)
    ) {
        apply_all(&batches, BlockHome::Segments)?;
    }

    #[test]
    fn any_batches_leave_a_volume_of_one_file_as_they_leave_the_model(
        batches in proptest::collection::vec((changes(), any::<bool>()), 1..8)
    ) {
        apply_all(&batches, BlockHome::Database)?;
    }
}

proptest! {
    // A server makes and removes tables for each of them.
    #![proptest_config(config(12))]
    #[test]
    fn any_batches_leave_a_volume_in_postgresql_as_they_leave_the_model(
        batches in proptest::collection::vec((changes(), any::<bool>()), 1..8)
    ) {
        apply_to_postgres(&batches, None)?;
    }

    #[test]
    fn any_batches_leave_a_volume_of_files_own_tables_as_they_leave_the_model(
        batches in proptest::collection::vec((changes(), any::<bool>()), 1..8), from in prop_oneof![Just(0), Just(64u64 << 10)]
    ) {
        apply_to_postgres(&batches, Some(from))?;
    }
}

fn apply_to_postgres(batches: &[(Vec<Change>, bool)], own_table_from: Option<u64>) -> Result<(), TestCaseError> {
    let address = Cluster::shared().address();
    let options = VolumeOptions { own_table_from, ..options(BlockHome::Database) };
    let memory = MemoryStore::new(options.clone());
    postgres::create(&address, &options, (0, 0), Timestamp(0)).expect("made");
    let open = || postgres::open(&address, OpenOptions::default()).expect("opened");
    let store = open();
    apply_to_both(&*store, &memory, batches)?;
    prop_assert_eq!(store.block_count().expect("counted"), memory.block_count() as u64);
    drop(store);
    prop_assert_eq!(state(&*open()).expect("readable"), state(&memory).expect("readable"));
    if own_table_from.is_some() {
        for layout in [None, Some(0), Some(128 << 10), None] {
            postgres::convert(&address, layout, &mut |_| {}).expect("converted");
            let store = open();
            prop_assert_eq!(store.header().expect("readable").options.own_table_from, layout);
            let (found, expected) = (state(&*store).expect("readable"), state(&memory).expect("readable"));
            prop_assert_eq!(found.without_options(), expected.without_options());
            drop(store);
            let options = CheckOptions { repair: Repair::No, read_data: true };
            let findings = postgres::check(&address, options, &mut |_| {}).expect("checked");
            let of_blocks = |f: &Finding| f.what.contains("has no bytes") || f.what.starts_with("the table ");
            prop_assert!(!findings.iter().any(of_blocks), "{findings:?}");
        }
    }
    postgres::remove(&address).expect("removed");
    Ok(())
}

fn each_store(test: impl Fn(&dyn Store)) {
    test(&MemoryStore::new(VolumeOptions::default()));
    let address = Cluster::shared().address();
    postgres::create(&address, &options(BlockHome::Database), (0, 0), Timestamp(0)).expect("made");
    test(&*postgres::open(&address, OpenOptions::default()).expect("opened"));
    for home in HOMES {
        let directory = tempfile::tempdir().expect("a directory");
        test(&*open(&new_volume(&directory, home)));
    }
}

fn next(store: &dyn Store) -> Batch {
    batch(store, &[])
}

#[test]
fn a_new_volume_has_a_root_and_its_first_commit() {
    each_store(|store| {
        let header = store.header().expect("readable");
        assert_eq!((header.commit, header.counters.inodes_used), (CommitNo(1), 1));
        assert_eq!(header.format, FORMAT);
        let rows = store.inodes(Ino(0), 10).expect("readable");
        assert_eq!(rows, [InodeRow::new_root(0, 0, Timestamp(0))]);
        assert_eq!(store.orphans().expect("readable"), []);
    });
}

#[test]
fn a_commit_that_does_not_follow_the_last_is_refused_and_changes_nothing() {
    each_store(|store| {
        let before = state(store).expect("readable");
        let mut batch = batch(store, &[Change::Name { parent: 1, name: 1, ino: 2 }]);
        batch.commit = batch.commit.next();
        assert_eq!(store.apply(&batch, Durability::Durable).expect_err("refused").kind(), ErrorKind::Bug);
        assert_eq!(state(store).expect("readable"), before);
        store.apply(&next(store), Durability::Eventual).expect("the store goes on");
    });
}

#[test]
fn a_new_block_that_nothing_names_is_refused() {
    each_store(|store| {
        let before = state(store).expect("readable");
        let mut batch = batch(store, &[Change::Block { ino: 2, index: 0, length: 5000 }]);
        batch.extents.clear();
        assert_eq!(store.apply(&batch, Durability::Durable).expect_err("refused").kind(), ErrorKind::Bug);
        assert_eq!(state(store).expect("readable"), before);
    });
}

#[test]
fn a_shared_block_lives_until_its_last_extent_goes() {
    each_store(|store| {
        let apply = |changes: &[Change]| store.apply(&batch(store, changes), Durability::Durable).expect("applied");
        let block = apply(&[Change::Block { ino: 2, index: 0, length: 5000 }]).blocks[0];
        apply(&[Change::Share { ino: 3, index: 4, which: 1 }]);
        apply(&[Change::Clear { ino: 2, start: 0, end: None }]);
        assert_eq!(store.extents(Ino(3), 0..9 << 16).expect("readable"), [(Span::of_block(4, 65536), block)]);
        assert_eq!(store.read_block(&block, ReadMode::Blocking).expect("readable").expect("waited").len(), 5000);
        apply(&[Change::RemoveInode { ino: 3 }]);
        assert_eq!(store.extents(Ino(3), 0..9 << 16).expect("readable"), []);
    });
}

#[test]
fn the_space_of_the_place_is_told() {
    each_store(|store| {
        let space = store.space().expect("told");
        assert!(space.bytes_total >= space.bytes_free && space.bytes_free > 0);
    });
}
