//! Schemas that exchange their names while one of them is read: another volume is never read for
//! it.

use crate::compare::state;
use crate::contract::options;
use crate::sample::{self, CLONE, DIRECTORY, LARGE, SMALL};
use std::sync::Arc;
use std::time::{Duration, Instant};
use weft_store::OpenOptions;
use weft_store::postgres::{self, Address, PostgresStore};
use weft_store::*;
use weft_testkit::Cluster;

/// A volume and another one, which has other bytes under the same numbers.
struct Pair {
    cluster: &'static Cluster,
    address: Address,
    schemas: [String; 2],
}

fn schema(address: &Address) -> String {
    address.schema().to_owned()
}

fn open(address: &Address, lease: Duration) -> Arc<PostgresStore> {
    postgres::open(address, OpenOptions { lease, ..OpenOptions::default() }).expect("opened")
}

/// A commit that changes nothing but counters.
fn next(store: &dyn Store) -> Batch {
    let header = store.header().expect("readable");
    let counters = Counters { op: header.counters.op.next(), ..header.counters };
    Batch { commit: header.commit.next(), counters, ..Batch::default() }
}

impl Pair {
    /// Both with the same number of commits and of holders, the first of them held.
    fn new() -> (Pair, Arc<PostgresStore>) {
        Pair::with_lease(OpenOptions::default().lease)
    }

    fn with_lease(lease: Duration) -> (Pair, Arc<PostgresStore>) {
        let cluster = Cluster::shared();
        let [address, other] = [0, 1].map(|_| cluster.address());
        let [store, _] = [(&address, 0), (&other, 1000)].map(|(address, skipped)| {
            postgres::create(address, &options(BlockHome::Database), (0, 0), Timestamp(0)).expect("made");
            let store = open(address, lease);
            let mut skip = next(&*store);
            skip.counters.next_block += skipped;
            store.apply(&skip, Durability::Durable).expect("applied");
            sample::fill(&*store);
            store
        });
        let schemas = [&address, &other].map(schema);
        (Pair { cluster, address, schemas }, store)
    }

    fn exchange(&self) {
        let [first, second] = &self.schemas;
        self.cluster.run(&format!(
            "ALTER SCHEMA {first} RENAME TO {first}_away; ALTER SCHEMA {second} RENAME TO {first}; \
             ALTER SCHEMA {first}_away RENAME TO {second}"
        ));
    }

    /// A value of the volume that has the first one's name.
    fn of_other(&self, query: &str) -> String {
        self.cluster.run(&format!("SET search_path TO {}; {query}", self.schemas[0]))
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        let [first, second] = &self.schemas;
        self.cluster.run(&format!("DROP SCHEMA {first} CASCADE; DROP SCHEMA {second} CASCADE"));
    }
}

fn is_told(error: &Error) -> bool {
    error.kind() == ErrorKind::Unusable && error.to_string().contains("is another volume now")
}

/// A way to read, of a store and a block that it has.
type Reading = fn(&PostgresStore, &BlockRef) -> Result<()>;

const READINGS: &[(&str, Reading)] = &[
    ("inodes", |store, _| store.inodes(Ino(1), 9).map(drop)),
    ("a name", |store, _| store.name(Ino(1), &Name::new(b"dir").expect("a name")).map(drop)),
    ("a name that is not there", |store, _| store.name(Ino(1), &Name::new(b"none").expect("a name")).map(drop)),
    ("names", |store, _| store.names(Ino(1), Cookie(0), 9).map(drop)),
    ("whole names", |store, _| store.whole_names(Ino(1), Cookie(0), 9).map(drop)),
    ("missing names", |store, _| store.refuse_missing_names(Ino(1))),
    ("a listing", |store, _| store.listed(Ino(1), Cookie(0), 9).map(drop)),
    ("names of a file", |store, _| store.names_of(Ino(SMALL)).map(drop)),
    ("extents", |store, _| store.extents(Ino(LARGE), 0..u64::MAX).map(drop)),
    ("an extent", |store, _| store.nth_extent(Ino(LARGE), 0..u64::MAX, Nth::FromEnd(0)).map(drop)),
    ("missing blocks", |store, _| store.refuse_missing_blocks(Ino(LARGE))),
    ("a block", |store, block| store.read_block(block, ReadMode::Blocking).map(drop)),
    ("blocks", |store, block| store.read_blocks(&[*block, *block], &mut |_, _| panic!("a block is told"))),
    ("attributes", |store, _| store.xattrs(Ino(LARGE)).map(drop)),
    ("orphans", |store, _| store.orphans().map(drop)),
    ("a digest", |store, _| store.digest(Ino(DIRECTORY)).map(drop)),
    ("a digest of content", |store, _| store.content_digest(Ino(LARGE)).map(drop)),
    ("commits", |store, _| store.commits(CommitNo(1), 9).map(drop)),
    ("a count", |store, _| store.block_count().map(drop)),
];

#[test]
fn another_volume_that_gets_the_name_is_never_read() {
    for (what, read) in READINGS {
        for is_warm in [false, true] {
            let (pair, store) = Pair::new();
            let block = store.extents(Ino(CLONE), 0..1).expect("readable")[0].1;
            if is_warm {
                // All statements are prepared, and have been used as often as the server wants
                // before it plans them for good.
                (0..6).for_each(|_| drop(state(&*store).expect("readable")));
            }
            pair.exchange();
            let error = read(&store, &block).expect_err(what);
            assert!(is_told(&error), "{what}: {error}");
            // As where a commit finds it.
            assert!(is_told(&store.lost().expect(what)));
            assert!(is_told(&store.apply(&next(&*store), Durability::Durable).expect_err(what)), "{what}");
            assert!(is_told(&store.inodes(Ino(1), 1).expect_err(what)), "{what}");
        }
    }
}

/// After a commit that failed nothing is known of the next one but what the database says.
#[test]
fn a_commit_after_one_that_failed_is_not_made_in_another_volume_either() {
    let (pair, store) = Pair::new();
    let batch = next(&*store);
    pair.exchange();
    pair.of_other("ALTER TABLE volume RENAME TO away");
    let error = store.apply(&batch, Durability::Durable).expect_err("there is no such table");
    assert!(!is_told(&error), "{error}");
    pair.of_other("ALTER TABLE away RENAME TO volume");
    let before = pair.of_other("SELECT max(number) FROM commits");
    let error = store.apply(&batch, Durability::Durable).expect_err("noticed");
    assert!(is_told(&error), "{error}");
    assert_eq!(pair.of_other("SELECT max(number) FROM commits"), before);
}

#[test]
fn a_check_does_not_go_on_in_another_volume() {
    for step in ["copying rows", "data"] {
        let (pair, store) = Pair::new();
        drop(store);
        let mut is_first = true;
        let options = CheckOptions { repair: Repair::No, read_data: true };
        let checked = postgres::check(&pair.address, options, &mut |progress| {
            if progress.step == step && std::mem::take(&mut is_first) {
                // Where rows come, nothing else may be waited for.
                std::thread::scope(|scope| scope.spawn(|| pair.exchange()).join().expect("exchanged"));
            }
        });
        let error = checked.expect_err(step);
        assert!(is_told(&error), "{error}");
    }
}

#[test]
fn a_mount_that_only_waits_notices_and_lets_the_lease_of_another_volume_be() {
    let (pair, store) = Pair::with_lease(Duration::from_secs(1));
    let epoch = pair.of_other("SELECT epoch FROM lease");
    pair.exchange();
    // Another holder of the same number.
    pair.of_other(&format!("UPDATE lease SET epoch = {epoch}, expires = now() + interval '1 day'"));
    let began = Instant::now();
    while store.lost().is_none() {
        assert!(began.elapsed() < Duration::from_secs(30), "it has not noticed");
        std::thread::yield_now();
    }
    assert!(is_told(&store.lost().expect("lost")));
    drop(store);
    assert_eq!(pair.of_other("SELECT expires > now() FROM lease"), "t");
    pair.exchange();
    // Unmounted before it could notice.
    let (pair, store) = Pair::new();
    pair.exchange();
    pair.of_other(&format!("UPDATE lease SET epoch = {epoch}, expires = now() + interval '1 day'"));
    drop(store);
    assert_eq!(pair.of_other("SELECT expires > now() FROM lease"), "t");
}
