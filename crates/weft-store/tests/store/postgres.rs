//! Faults between a store and a server: broken connections, lost acknowledgements, conflicts, other
//! daemons.

use crate::compare::state;
use crate::contract::{config, options};
use crate::generate::{Change, batch, changes};
use parking_lot::Mutex;
use proptest::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use weft_store::OpenOptions;
use weft_store::memory::MemoryStore;
use weft_store::postgres::{self, Address, PostgresStore};
use weft_store::*;
use weft_testkit::{Break, Cluster, Proxy};

const HOME: BlockHome = BlockHome::Database;

fn create(address: &Address) {
    postgres::create(address, &options(HOME), (0, 0), Timestamp(0)).expect("made");
}

fn open(address: &Address) -> Arc<PostgresStore> {
    postgres::open(address, OpenOptions::default()).expect("opened")
}

/// A new volume that is reached over a proxy.
fn behind_proxy() -> (Proxy, Address, Arc<PostgresStore>) {
    let cluster = Cluster::shared();
    let proxy = Proxy::new(cluster);
    let address = proxy.address(&cluster.url());
    create(&address);
    let store = open(&address);
    (proxy, address, store)
}

fn some(store: &dyn Store) -> Batch {
    batch(store, &[Change::Name { parent: 1, name: 1, ino: 2 }, Change::Block { ino: 2, index: 0, length: 5000 }])
}

proptest! {
    #![proptest_config(config(24))]
    #[test]
    fn a_commit_whose_acknowledgement_was_lost_is_found_and_not_repeated(
        batches in proptest::collection::vec((changes(), any::<bool>()), 1..6)
    ) {
        let (proxy, address, store) = behind_proxy();
        let memory = MemoryStore::new(options(HOME));
        for (changes, lost) in &batches {
            let batch = batch(&*store, changes);
            memory.apply(&batch, Durability::Durable).expect("the model takes it");
            proxy.set(if *lost { Break::AfterCommit(0) } else { Break::Never });
            let before = proxy.broken();
            store.apply(&batch, Durability::Durable).expect("applied");
            prop_assert_eq!(proxy.broken() - before, u32::from(*lost));
            prop_assert_eq!(state(&*store).expect("readable"), state(&memory).expect("readable"));
        }
        postgres::remove(&address).expect("removed");
    }

    #[test]
    fn a_commit_that_cannot_be_serialized_changes_nothing_and_can_be_tried_again(
        batches in proptest::collection::vec((changes(), 0..3u32), 1..6)
    ) {
        let (proxy, address, store) = behind_proxy();
        let memory = MemoryStore::new(options(HOME));
        for (changes, refused) in &batches {
            let batch = batch(&*store, changes);
            for _ in 0..*refused {
                proxy.set(Break::Refuse(0));
                let before = proxy.broken();
                let error = store.apply(&batch, Durability::Durable).expect_err("refused");
                prop_assert_eq!(error.kind(), ErrorKind::Conflict, "{}", error);
                prop_assert_eq!(proxy.broken() - before, 1);
                prop_assert_eq!(state(&*store).expect("readable"), state(&memory).expect("readable"));
            }
            store.apply(&batch, Durability::Durable).expect("applied");
            memory.apply(&batch, Durability::Durable).expect("the model takes it");
            prop_assert_eq!(state(&*store).expect("readable"), state(&memory).expect("readable"));
        }
        postgres::remove(&address).expect("removed");
    }

    #[test]
    fn a_commit_that_is_cut_off_happens_whole_or_not_at_all(
        batches in proptest::collection::vec((changes(), 0..12u32), 1..6)
    ) {
        let (proxy, address, store) = behind_proxy();
        let memory = MemoryStore::new(options(HOME));
        for (changes, pieces) in &batches {
            let batch = batch(&*store, changes);
            proxy.set(Break::BeforePiece(*pieces));
            match store.apply(&batch, Durability::Durable) {
                Ok(_) => {}
                Err(error) => {
                    prop_assert_eq!(error.kind(), ErrorKind::Conflict, "{}", error);
                    proxy.set(Break::Never);
                    prop_assert_eq!(state(&*store).expect("readable"), state(&memory).expect("readable"));
                    store.apply(&batch, Durability::Durable).expect("a second try succeeds");
                }
            }
            proxy.set(Break::Never);
            memory.apply(&batch, Durability::Durable).expect("the model takes it");
            prop_assert_eq!(state(&*store).expect("readable"), state(&memory).expect("readable"));
        }
        postgres::remove(&address).expect("removed");
    }
}

/// Under serializable isolation a commit fails whose lease was renewed since it began: that is
/// reported as a conflict, and a second try succeeds.
#[test]
fn a_serialization_failure_is_a_conflict_that_changes_nothing() {
    let cluster = Cluster::shared();
    let url = cluster.url();
    let strict = Address::parse(&format!(
        "{url}&application_name=strict&options=-c%20default_transaction_isolation%3Dserializable"
    ));
    let strict = strict.expect("an address");
    let schema = strict.schema();
    create(&strict);
    let store = open(&strict);
    let memory = MemoryStore::new(options(HOME));
    let first = some(&*store);
    let mut transaction = store.begin(Durability::Durable).expect("begun");
    // Enough to be sent before the rows: once the server takes it, the transaction sees no later
    // change.
    let bytes = weft_block::Rope::from(vec![7; 2 << 20]);
    transaction.put_blocks(vec![NewBlock::new(BlockId(1), Ino(2), bytes, 0)]).expect("on its way");
    let sees =
        "FROM pg_stat_activity WHERE application_name = 'strict' AND query LIKE 'COPY%' AND backend_xmin IS NOT NULL";
    while cluster.run(&format!("SELECT count(*) {sees}")).trim() != "1" {
        std::thread::yield_now();
    }
    cluster.run(&format!("UPDATE {schema}.lease SET expires = now() + interval '1 hour'"));
    let error = transaction.commit(&first).expect_err("something was in the way");
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert_eq!(state(&*store).expect("readable"), state(&memory).expect("readable"));
    store.apply(&first, Durability::Durable).expect("a second try succeeds");
    memory.apply(&first, Durability::Durable).expect("the model takes it");
    assert_eq!(state(&*store).expect("readable"), state(&memory).expect("readable"));
}

/// A statement that fails before anything is written leaves no transaction behind, in which nothing
/// could be done any more.
#[test]
fn a_commit_that_fails_while_it_looks_around_can_be_tried_again() {
    let cluster = Cluster::shared();
    let url = cluster.url();
    let address = Address::parse(&url).expect("an address");
    let schema = address.schema();
    create(&address);
    let store = open(&address);
    let inode = |ino| Change::Inode { ino, size: 0, inline: None, nlink: 1 };
    // What is known of a directory is not asked for again.
    let made = |store: &dyn Store, ino| batch(store, &[inode(ino), Change::Name { parent: ino, name: ino, ino }]);
    store.apply(&made(&*store, 2), Durability::Durable).expect("applied");
    cluster.run(&format!("ALTER TABLE {schema}.branches RENAME TO elsewhere"));
    store.apply(&made(&*store, 3), Durability::Durable).expect_err("a table is missing");
    cluster.run(&format!("ALTER TABLE {schema}.elsewhere RENAME TO branches"));
    store.apply(&made(&*store, 3), Durability::Durable).expect("a second try succeeds");
}

/// Makes a file of `blocks` blocks, in a table of the file's own.
fn a_file(store: &dyn Store, ino: u8, blocks: u8) {
    let mut changes = vec![Change::Inode { ino, size: u16::from(blocks), inline: None, nlink: 1 }];
    changes.extend((0..blocks).map(|index| Change::Block { ino, index, length: 5000 }));
    store.apply(&batch(store, &changes), Durability::Durable).expect("applied");
}

#[test]
fn a_files_own_table_goes_with_its_file_and_waits_for_its_readers() {
    let cluster = Cluster::shared();
    let address = cluster.address();
    let volume = VolumeOptions { own_table_from: Some(0), ..options(HOME) };
    postgres::create(&address, &volume, (0, 0), Timestamp(0)).expect("made");
    let schema = address.schema().to_owned();
    let tables = || {
        let where_from = format!(
            "information_schema.tables WHERE table_schema = '{schema}' AND table_name LIKE 'blocks#_of#_%' ESCAPE '#'"
        );
        let tables = cluster.run(&format!("SELECT table_name FROM {where_from} ORDER BY table_name"));
        tables.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let remove = |store: &dyn Store, ino| {
        store.apply(&batch(store, &[Change::RemoveInode { ino }]), Durability::Durable).expect("applied");
    };
    let store = open(&address);
    for ino in [2, 3, 4] {
        a_file(&*store, ino, 3);
    }
    let there = tables();
    assert_eq!(there.len(), 3);
    remove(&*store, 2);
    assert_eq!(tables(), there[1..]);
    let reading = cluster.reading(&format!("{schema}.{}", there[1]));
    remove(&*store, 3);
    assert_eq!(tables(), there[1..], "somebody reads it");
    drop(store);
    drop(reading);
    let store = open(&address);
    a_file(&*store, 5, 1);
    assert_eq!(tables().len(), 2, "the next commit dropped it: {:?}", tables());
    drop(store);
    let options = CheckOptions { repair: Repair::No, read_data: true };
    let findings = postgres::check(&address, options, &mut |_| {}).expect("checked");
    assert!(!findings.iter().any(|finding| finding.what.contains("table")), "{findings:?}");
    // What it says of a table that is lost, and of one too many.
    cluster.run(&format!("DROP TABLE {schema}.{}; CREATE TABLE {schema}.blocks_of_999 ()", there[2]));
    let findings = postgres::check(&address, options, &mut |_| {}).expect("checked");
    assert_eq!(findings.iter().filter(|finding| finding.what.contains("has no bytes")).count(), 3, "{findings:?}");
    assert!(findings.iter().any(|finding| finding.what.contains("blocks_of_999")), "{findings:?}");
    let store = open(&address);
    let lost = Ino(there[2].rsplit_once('_').expect("a number").1.parse().expect("a number"));
    let (_, block) = store.extents(lost, 0..1).expect("readable")[0];
    assert_eq!(store.read_block(&block, ReadMode::Blocking).expect_err("lost").kind(), ErrorKind::Corrupt);
}

/// Rows of the log that are damaged or missing are neither applied nor passed over, nor removed.
#[test]
fn damage_in_the_log_is_refused_unless_loss_is_accepted() {
    let cluster = Cluster::shared();
    let edits = [
        ("UPDATE {}.intents SET bytes = set_byte(bytes, 1, 33) WHERE first = 3", 3, 2),
        ("DELETE FROM {}.intents WHERE first = 3", 3, 2),
        ("DELETE FROM {}.intents WHERE first = 1", 1, 0),
        ("UPDATE {}.intents SET epoch = 99 WHERE first = 3", 3, 2),
        ("UPDATE {}.intents SET epoch = 99 WHERE first = 4", 4, 3),
    ];
    for (edit, op, left) in edits {
        let address = cluster.address();
        create(&address);
        let schema = address.schema().to_owned();
        let store = open(&address);
        let mut log = store.intents();
        log.start(1);
        for op in 1..=4 {
            log.append(OpNo(op), OpNo(op), &b"a record".to_vec().into());
            log.syncer().sync().expect("written");
        }
        assert_eq!(log.records(1, OpNo(0)).expect("whole").len(), 4);
        cluster.run(&edit.replace("{}", &schema));
        let count = || cluster.run(&format!("SELECT count(*) FROM {schema}.intents"));
        let there = count();
        let error = log.records(1, OpNo(0)).expect_err("damaged");
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        let said = error.to_string();
        assert!(said.contains(&format!("operation {op} ")) && said.contains("--accept-loss"), "{edit}: {said}");
        assert_eq!(count(), there);
        drop((log, store));
        let options = OpenOptions { loss: weft_store::log::Loss::Accept, ..OpenOptions::default() };
        let store = postgres::open(&address, options).expect("opens");
        assert_eq!(store.intents().records(1, OpNo(0)).expect("accepted").len(), left, "{edit}");
    }
}

/// A schema that was brought back to an earlier moment lacks a commit, or a record, that the next
/// record stands on.
#[test]
fn nothing_is_logged_in_a_schema_that_went_back_to_an_earlier_moment() {
    let cluster = Cluster::shared();
    let address = cluster.address();
    create(&address);
    let schema = address.schema().to_owned();
    let store = open(&address);
    let mut log = store.intents();
    log.start(1);
    let mut append = |op: std::ops::RangeInclusive<u64>| {
        for op in op {
            log.append(OpNo(op), OpNo(op), &b"a record".to_vec().into());
        }
        log.syncer().sync()
    };
    append(1..=1).expect("written");
    append(2..=3).expect("written");
    append(4..=4).expect("written");
    cluster.run(&format!("DELETE FROM {schema}.intents WHERE first > 2"));
    append(5..=5).expect_err("it would come after a gap");
    assert_eq!(cluster.run(&format!("SELECT max(first) FROM {schema}.intents")), "2");
    assert!(store.lost().is_none(), "a commit may do instead");
    let mut log = store.intents();
    log.start(1);
    store.apply(&some(&*store), Durability::Durable).expect("applied");
    cluster.run(&format!("UPDATE {schema}.volume SET number = number - 1"));
    for op in [5..=5, 6..=7] {
        for op in op {
            log.append(OpNo(op), OpNo(op), &b"a record".to_vec().into());
        }
        log.syncer().sync().expect_err("the commit before it is gone");
    }
    let lost = store.lost().expect("told");
    assert!(lost.to_string().contains("is at commit 1 and not at 2"), "{lost}");
    assert_eq!(cluster.run(&format!("SELECT max(first) FROM {schema}.intents")), "2");
}

/// The memory in use at once when a log is read has a bound, and the log is read to its end.
#[test]
fn a_long_log_is_read_in_parts() {
    const MIB: usize = 1 << 20;
    let address = Cluster::shared().address();
    create(&address);
    let store = open(&address);
    let mut log = store.intents();
    log.start(1);
    // One that is too long to come with others is among them.
    let lens = [3 * MIB, 4 * MIB, 2 * MIB, 9 * MIB, 1, 2, 3];
    for (op, len) in (1..).zip(lens) {
        log.append(OpNo(op), OpNo(op), &vec![u8::try_from(op).expect("few"); len].into());
        log.syncer().sync().expect("written");
    }
    let (mut parts, mut read) = (Vec::new(), Vec::new());
    loop {
        let after = read.last().map_or(OpNo(0), |record: &weft_store::log::Record| record.first);
        let part = log.records(1, after).expect("readable");
        if part.is_empty() {
            break;
        }
        parts.push(part.len());
        read.extend(part);
    }
    assert_eq!(parts, [2, 1, 1, 3]);
    for (op, (record, len)) in (1..).zip(read.iter().zip(lens)) {
        assert_eq!((record.first, record.last, record.bytes.len()), (OpNo(op), OpNo(op), len));
        assert!(record.bytes.iter().all(|byte| u64::from(*byte) == op));
    }
    assert_eq!(read.len(), lens.len());
}

/// A server that stands before others may say that it cannot reach one of them, on a connection
/// that goes on: no answer to the pending statements is used, and all of them are sent again.
#[test]
fn what_a_server_behind_the_server_had_is_asked_for_again() {
    let cluster = Cluster::shared();
    for said in ["ERRCODE = '08006'", "ERRCODE = 'XX000', MESSAGE = 'failure on connection marked as essential'"] {
        let address = cluster.address();
        create(&address);
        let schema = address.schema().to_owned();
        let store = open(&address);
        // Of three files, so that it takes three statements.
        let blocks = [2, 3, 4].map(|ino| {
            a_file(&*store, ino, 1);
            store.extents(Ino(ino.into()), 0..1).expect("readable")[0].1
        });
        cluster.run(&format!(
            "SET search_path TO {schema};
             CREATE SEQUENCE asked;
             CREATE SCHEMA {schema}_odd;
             CREATE FUNCTION {schema}_odd.bytes_of(bytes bytea) RETURNS bytea LANGUAGE plpgsql AS $$ BEGIN
                 IF nextval('{schema}.asked') = 1 THEN RAISE EXCEPTION USING {said}; END IF;
                 RETURN bytes;
             END $$;
             ALTER TABLE blocks RENAME TO whole;
             CREATE VIEW blocks AS SELECT owner, id, refs, length, base, value,
                 CASE WHEN id = {} THEN {schema}_odd.bytes_of(bytes) ELSE bytes END AS bytes FROM whole",
            blocks[1].id.0
        ));
        let mut visited = Vec::new();
        let read = store.read_blocks(&blocks, &mut |at, read| visited.push((at, read.map(|block| block.len()))));
        read.expect("it is there again");
        let visited: Vec<_> = visited.into_iter().map(|(at, read)| (at, read.expect("whole"))).collect();
        assert_eq!(visited, [(0, 5000), (1, 5000), (2, 5000)]);
    }
}

/// A block that the server was asked for once is read from a disk of this machine, but never a
/// wrong one.
#[test]
fn blocks_are_read_from_a_disk_cache_at_the_next_mount() {
    let address = Cluster::shared().address();
    create(&address);
    let directory = tempfile::tempdir().expect("a directory");
    let cached = || {
        let disk_cache = Some(DiskCacheOptions { directory: directory.path().into(), bytes: 1 << 20 });
        postgres::open(&address, OpenOptions { disk_cache, ..OpenOptions::default() }).expect("opened")
    };
    let read = |store: &dyn Store| {
        let extents = store.extents(Ino(2), 0..u64::MAX).expect("readable");
        let blocks = extents.into_iter().map(|(_, block)| block).collect::<Vec<_>>();
        let mut read = Vec::new();
        let visited = store.read_blocks(&blocks, &mut |at, block| read.push((at, block.expect("readable").to_vec())));
        visited.expect("readable");
        assert!(read.iter().enumerate().all(|(place, (at, _))| place == *at), "in their order");
        read
    };
    let count = |store: &dyn Store| {
        let stats = store.disk_cache().expect("a cache");
        assert_eq!(stats.failure, None);
        (stats.hits, stats.misses, store.round_trips().blocks)
    };
    a_file(&*open(&address), 2, 6);
    let store = cached();
    let bytes = read(&*store);
    let (hits, misses, _) = count(&*store);
    assert_eq!((hits, misses), (0, 6));
    drop(store);
    let store = cached();
    assert_eq!(read(&*store), bytes);
    assert_eq!(count(&*store), (6, 0, 0));
    drop(store);
    // One block of the six is not what it was, whichever.
    let file = std::fs::read_dir(directory.path()).expect("readable").next().expect("a file").expect("readable");
    let mut damaged = std::fs::read(file.path()).expect("readable");
    let at = damaged.windows(16).position(|window| window == &bytes[2].1[100..116]).expect("it is there");
    damaged[at] ^= 1;
    std::fs::write(file.path(), damaged).expect("written");
    let store = cached();
    assert_eq!(read(&*store), bytes);
    assert_eq!(count(&*store).0, 5);
    // What is written is there at once.
    a_file(&*store, 3, 4);
    drop(store);
    let store = cached();
    assert_eq!(store.disk_cache().expect("a cache").blocks, 10);
}

/// Blocks are asked for together: damage to one of them is reported for that one alone.
#[test]
fn a_block_that_cannot_be_read_takes_no_other_with_it() {
    let cluster = Cluster::shared();
    let address = cluster.address();
    create(&address);
    let schema = address.schema().to_owned();
    let store = open(&address);
    a_file(&*store, 2, 6);
    let extents = store.extents(Ino(2), 0..u64::MAX).expect("readable");
    let blocks = extents.into_iter().map(|(_, block)| block).collect::<Vec<_>>();
    let (missing, refused) = (blocks[1].id.0, blocks[3].id.0);
    cluster.run(&format!(
        "SET search_path TO {schema}; DELETE FROM blocks WHERE id = {missing}; ALTER TABLE blocks RENAME TO whole;
         CREATE VIEW blocks AS SELECT owner, id, refs, length, base, value,
            CASE WHEN id = {refused} THEN decode('no' || id, 'hex') ELSE bytes END AS bytes FROM whole"
    ));
    let mut visited = Vec::new();
    store.read_blocks(&blocks, &mut |at, read| visited.push((at, read.is_ok()))).expect("the connection stays");
    assert_eq!(visited, [(0, true), (1, false), (2, true), (3, false), (4, true), (5, true)]);
}

/// Each new connection looks whether the server has all that was committed, while commits go on.
#[test]
fn whoever_connects_during_commits_misses_none() {
    let address = Cluster::shared().address();
    create(&address);
    let store = open(&address);
    let is_done = AtomicBool::new(false);
    // More than are pooled, so that some reconnect each time.
    let readers = 12;
    std::thread::scope(|scope| {
        for _ in 0..readers {
            scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    store.inodes(Ino::ROOT, 10).expect("readable");
                }
            });
        }
        for _ in 0..150 {
            let applied = store.apply(&batch(&*store, &[]), Durability::Durable);
            is_done.store(applied.is_err(), Ordering::Relaxed);
            applied.expect("applied");
        }
        is_done.store(true, Ordering::Relaxed);
    });
    assert!(store.lost().is_none(), "{:?}", store.lost());
}

/// What nobody could open meanwhile is nobody else's when it is removed.
#[test]
fn a_volume_that_is_being_received_is_opened_by_nobody_else_from_its_first_moment_on() {
    let location = Location::parse(std::path::Path::new(&Cluster::shared().url())).expect("an address");
    let is_begun = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let looking = scope.spawn(|| {
            let mut opened = 0;
            while !is_begun.load(Ordering::Relaxed) {
                let hold = OpenOptions { wait: Duration::ZERO, ..OpenOptions::default() };
                opened += usize::from(location.engine().open(hold).is_ok());
            }
            opened
        });
        let begun = location.engine().begin(&options(HOME), Timestamp(0)).expect("begun");
        is_begun.store(true, Ordering::Relaxed);
        assert_eq!(looking.join().expect("no panic"), 0);
        let error = location.engine().header().expect_err("it is not whole");
        assert!(error.to_string().contains("is being received"), "{error}");
        drop(begun.opened);
        location.engine().discard(begun.had_place).expect("removed");
    });
}

#[test]
fn one_daemon_at_a_time_holds_a_volume() {
    static TOLD: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let address = Cluster::shared().address();
    create(&address);
    let purpose = "mounted at /mnt/a\nb".into();
    let store = postgres::open(&address, OpenOptions { purpose, ..OpenOptions::default() }).expect("opened");
    let refused = postgres::open(&address, OpenOptions::default()).err().expect("refused");
    assert_eq!(refused.kind(), ErrorKind::Locked);
    let (process, told) = (std::process::id(), refused.to_string());
    assert!(told.contains(&format!("in use by process {process} on ")), "{told}");
    assert!(told.contains(" (mounted at /mnt/a\u{fffd}b); unmount it there first, or wait"), "{told}");
    let tell = |what: &str| TOLD.lock().push(what.to_owned());
    let wait = Duration::from_secs(3);
    let refused =
        postgres::open(&address, OpenOptions { wait, tell, ..OpenOptions::default() }).err().expect("refused");
    assert!(refused.to_string().contains("b) after 3 seconds; unmount it there first"), "{refused}");
    let told = TOLD.lock();
    assert!(told.len() == 1 && told[0].starts_with(&format!("waiting for process {process} on ")), "{told:?}");
    drop(store);
    drop(open(&address));
}

#[test]
fn who_lost_the_lease_can_change_nothing_and_reads_nothing() {
    let cluster = Cluster::shared();
    let address = cluster.address();
    create(&address);
    let first = open(&address);
    let schema = address.schema().to_owned();
    // As if the first one had slept.
    cluster.run(&format!("UPDATE {schema}.lease SET expires = now() - interval '1 second'"));
    let purpose = "mounted at /mnt/second".into();
    let second = postgres::open(&address, OpenOptions { purpose, ..OpenOptions::default() }).expect("opened");
    let batch = some(&*first);
    let before = state(&*second).expect("readable");
    let error = first.apply(&batch, Durability::Durable).expect_err("its connections were ended");
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    let error = first.apply(&batch, Durability::Durable).expect_err("fenced");
    assert_eq!(error.kind(), ErrorKind::Locked, "{error}");
    assert!(error.to_string().contains("(mounted at /mnt/second): this one had not renewed its lease"), "{error}");
    assert_eq!(state(&*second).expect("readable"), before);
    second.apply(&batch, Durability::Durable).expect("the holder goes on");
}

#[test]
fn a_server_that_went_back_to_an_older_commit_is_noticed() {
    let cluster = Cluster::shared();
    let (proxy, url) = (Proxy::new(cluster), cluster.url());
    let address = proxy.address(&url);
    create(&address);
    let store = open(&address);
    for _ in 0..3 {
        store.apply(&some(&*store), Durability::Durable).expect("applied");
    }
    let schema = address.schema();
    cluster.run(&format!("UPDATE {schema}.volume SET number = number - 1"));
    proxy.set(Break::BeforePiece(0));
    let error = store.apply(&some(&*store), Durability::Durable).expect_err("noticed");
    assert_eq!(error.kind(), ErrorKind::Conflict, "the connection broke first: {error}");
    let error = store.apply(&some(&*store), Durability::Durable).expect_err("noticed");
    assert_eq!(error.kind(), ErrorKind::Unusable, "nobody else has it, and waiting does not help: {error}");
    assert!(error.to_string().contains("is at commit 3 and not at 4"), "{error}");
}

/// A table `volume` that was restored from an older moment than the others.
#[test]
fn a_row_of_the_volume_that_is_older_than_its_commits_in_postgresql_is_refused_and_mended() {
    let cluster = Cluster::shared();
    let address = cluster.address();
    create(&address);
    let schema = address.schema().to_owned();
    let store = open(&address);
    store.apply(&some(&*store), Durability::Durable).expect("applied");
    cluster.run(&format!("CREATE TABLE {schema}_kept AS SELECT * FROM {schema}.volume"));
    for ino in [2, 3] {
        let batch = batch(&*store, &[Change::Inode { ino, size: 0, inline: None, nlink: 1 }]);
        store.apply(&batch, Durability::Durable).expect("applied");
    }
    drop(store);
    cluster.run(&format!("DELETE FROM {schema}.volume; INSERT INTO {schema}.volume SELECT * FROM {schema}_kept"));
    let refused = postgres::open(&address, OpenOptions::default()).err().expect("refused").to_string();
    assert!(refused.contains("it is of commit 2, and commit 3 is there"), "{refused}");
    let options = CheckOptions { repair: Repair::Yes, read_data: true };
    postgres::check(&address, options, &mut |_| {}).expect("checked");
    let store = open(&address);
    assert_eq!(store.inodes(Ino(2), 2).expect("readable").len(), 2, "what came later is kept");
    store.apply(&some(&*store), Durability::Durable).expect("applied");
}

#[test]
fn a_server_that_is_away_for_good_is_told_as_unavailable() {
    let cluster = Cluster::start("-c fsync=off");
    let address = cluster.address();
    create(&address);
    let store = postgres::open(&address, OpenOptions { patience: Duration::ZERO, ..OpenOptions::default() });
    let store = store.expect("opened");
    let batch = some(&*store);
    cluster.tell("crash");
    assert_eq!(store.inodes(Ino(0), 1).expect_err("away").kind(), ErrorKind::Unavailable);
    let error = store.apply(&batch, Durability::Durable).expect_err("away");
    assert!([ErrorKind::Unavailable, ErrorKind::Conflict].contains(&error.kind()), "{error}");
    cluster.tell("start");
    store.apply(&batch, Durability::Durable).expect("back again");
}

/// A daemon that was stopped in the middle of a commit has rows that the next one makes, too.
#[test]
fn nobody_waits_for_the_transaction_of_a_daemon_that_lost_its_lease() {
    let cluster = Cluster::shared();
    let url = cluster.url();
    let address = Address::parse(&url).expect("an address");
    create(&address);
    let first = open(&address);
    let batch = some(&*first);
    let mut stopped = first.begin(Durability::Durable).expect("begun");
    stopped.put_blocks(batch.blocks.clone()).expect("put");
    // It sends what it has with the next ones.
    let more = Batch { blocks: Vec::new(), ..batch.clone() };
    let schema = address.schema();
    cluster.run(&format!("UPDATE {schema}.lease SET expires = now() - interval '1 second'"));
    let second = open(&address);
    let error = stopped.commit(&more).expect_err("its connections were ended");
    assert!([ErrorKind::Conflict, ErrorKind::Unavailable].contains(&error.kind()), "{error}");
    second.apply(&batch, Durability::Durable).expect("applied");
}

/// Records of the intent log count up to the first that is missing: nobody may be told that one
/// after it is safe.
#[test]
fn nothing_is_logged_behind_records_that_were_lost_until_a_commit_has_them() {
    let (proxy, address, store) = behind_proxy();
    let mut log = store.intents();
    log.start(1);
    let append = |log: &mut postgres::Intents, op| {
        log.append(OpNo(op), OpNo(op), &b"a record".to_vec().into());
        log.syncer()
    };
    append(&mut log, 1).sync().expect("written");
    let early = append(&mut log, 2);
    proxy.set(Break::BeforePiece(0));
    early.sync().expect_err("the connection broke");
    // The server is there again, but a record is missing.
    let late = append(&mut log, 3);
    late.sync().expect_err("it would come after a gap");
    early.sync().expect_err("still");
    let written = |log: &postgres::Intents| {
        let records = log.records(1, OpNo(0)).expect("read");
        records.iter().map(|record| record.first.0).collect::<Vec<_>>()
    };
    assert_eq!(written(&log), [1]);
    log.switch();
    append(&mut log, 4).sync().expect_err("the commit has only begun");
    log.switch();
    log.release();
    append(&mut log, 5).sync().expect("commits have all before");
    // There were none here, so that a reader misses what they would have.
    let lost = log.records(1, OpNo(0)).expect_err("a gap");
    assert!(lost.to_string().contains("operation 2"), "{lost}");
    postgres::remove(&address).expect("removed");
}

#[test]
fn a_schema_that_has_a_volume_or_other_tables_is_refused_in_those_words() {
    let cluster = Cluster::shared();
    for (is_volume, words) in [(true, "a volume is there already"), (false, "a table 'other' of something else")] {
        let url = cluster.url();
        let address = Address::parse(&url).expect("an address");
        let schema = address.schema();
        if is_volume {
            create(&address);
        } else {
            cluster.run(&format!("CREATE SCHEMA {schema}; CREATE TABLE {schema}.other (x integer)"));
        }
        let told = postgres::create(&address, &options(HOME), (0, 0), Timestamp(0)).expect_err("refused").to_string();
        assert!(told.contains(words) && told.contains(schema) && told.contains("name another schema"), "{told}");
    }
}

/// Many addresses leave out where they lead to, for variables and files to say.
#[test]
fn errors_of_a_server_say_which_it_is_and_never_the_password() {
    let cluster = Cluster::shared();
    let nowhere = Address::parse("postgres://me:hidden@127.0.0.1:1/files").expect("an address");
    let told = postgres::header(&nowhere).expect_err("nobody is there").to_string();
    assert!(told.contains("cannot connect: PostgreSQL at 127.0.0.1:1, database files: "), "{told}");
    assert!(!told.contains("hidden"), "{told}");
    let address = cluster.address();
    create(&address);
    let store = open(&address);
    let schema = address.schema().to_owned();
    cluster.run(&format!("ALTER TABLE {schema}.xattr RENAME TO elsewhere"));
    let told = store.xattrs(Ino(1)).expect_err("the table is gone").to_string();
    let server = format!("PostgreSQL at {}:5432, database postgres: ", cluster.socket().display());
    assert!(told.contains(&server), "{told}");
    drop(store);
    postgres::remove(&address).expect("removed");
}

/// The server plans a statement once for all files, by how many blocks most of them have.
#[test]
fn a_block_of_a_large_file_among_small_ones_is_found_by_its_number() {
    let cluster = Cluster::shared();
    let address = cluster.address();
    create(&address);
    let schema = address.schema().to_owned();
    let store = open(&address);
    store.apply(&some(&*store), Durability::Durable).expect("applied");
    let block = store.extents(Ino(2), 0..1).expect("readable")[0].1;
    let rows = "INSERT INTO blocks SELECT owner, id, 1, 0, 0, '', 0, '' FROM generate_series(1, 20000) AS n";
    let of = |owner: &str, id: &str| rows.replace("owner", owner).replace("id", id);
    let (small, large) = (of("1000 + n", "n + 50000"), of("2", "n + 100000"));
    cluster.run(&format!("SET search_path TO {schema}; {small}; {large}; ANALYZE blocks"));
    for _ in 0..12 {
        store.read_block(&block, ReadMode::Blocking).expect("readable");
    }
    // The server counts at the latest when a connection has ended.
    drop(store);
    let used = format!("SELECT backend_type FROM pg_stat_activity WHERE application_name LIKE '%{schema}'");
    while !cluster.run(&used).is_empty() {
        std::thread::yield_now();
    }
    let read = cluster.run(&format!(
        "SELECT idx_tup_read FROM pg_stat_user_indexes WHERE schemaname = '{schema}' AND indexrelname = 'blocks_pkey'"
    ));
    assert!(read.parse::<u64>().expect("a number") < 1000, "{read} rows of the index were read");
    postgres::remove(&address).expect("removed");
}
