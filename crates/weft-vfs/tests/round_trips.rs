//! How often a volume in PostgreSQL waits for its server.

use std::sync::Arc;
use std::time::Duration;
use weft_block::Block;
use weft_store::stream::{self, Selection};
use weft_store::{
    BlockHome, BlockStore, CheckOptions, Cookie, Maintenance, OpenOptions, Repair, RowStore, Store, Timestamp,
    VolumeOptions, postgres,
};
use weft_testkit::Cluster;
use weft_vfs::{Caller, Ino, Kind, MakeNode, ManualClock, Options, Vfs};

const FILE: MakeNode = MakeNode { kind: Kind::File, permissions: 0o644, umask: 0, rdev: 0 };
const DIRECTORY: MakeNode = MakeNode { kind: Kind::Directory, permissions: 0o755, ..FILE };

/// Bytes of a block of these volumes.
const BLOCK: usize = 64 << 10;

fn open_with(address: &postgres::Address, options: Options) -> Arc<Vfs> {
    let store = postgres::open(address, OpenOptions::default()).expect("opened");
    Vfs::open(store, None, options, Arc::new(ManualClock::default())).expect("opens")
}

/// Without threads of its own.
fn open(address: &postgres::Address) -> Arc<Vfs> {
    open_with(address, Options { background: false, ..Options::default() })
}

/// With threads that read ahead; they do not commit in between.
fn open_with_threads(address: &postgres::Address) -> Arc<Vfs> {
    open_with(address, Options { commit_interval: Duration::from_hours(1), ..Options::default() })
}

fn volume() -> (postgres::Address, Arc<Vfs>) {
    let address = Cluster::shared().address();
    let options = VolumeOptions { home: BlockHome::Database, ..VolumeOptions::default() };
    postgres::create(&address, &options, (0, 0), Timestamp(0)).expect("created");
    let vfs = open(&address);
    (address, vfs)
}

/// Returns the content of file `number`: no other file holds the same, nor do two blocks of one.
fn content(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (number * 7 + at / BLOCK * 31 + at % 251) as u8).collect()
}

/// A volume with one file of `len` bytes in its root, closed.
fn volume_of_one(len: usize) -> (postgres::Address, Ino) {
    let (address, vfs) = volume();
    let ino = vfs.make(Caller::ROOT, Ino::ROOT, b"file", FILE).expect("made").ino;
    vfs.write(ino, 0, &content(0, len), false).expect("written");
    vfs.close().expect("closed");
    (address, ino)
}

/// A volume with a directory of `count` files of two blocks each, made one after the other; it is
/// closed.
fn volume_of_many(count: usize) -> (postgres::Address, Ino, Vec<Ino>) {
    let (address, vfs) = volume();
    let directory = vfs.make(Caller::ROOT, Ino::ROOT, b"directory", DIRECTORY).expect("made").ino;
    let make = |number| {
        let ino = vfs.make(Caller::ROOT, directory, format!("file {number}").as_bytes(), FILE).expect("made").ino;
        vfs.write(ino, 0, &content(number, 70_000), false).expect("written");
        ino
    };
    let inos = (0..count).map(make).collect();
    vfs.close().expect("closed");
    (address, directory, inos)
}

/// Reads all of `len` bytes of `ino` in calls of `step` bytes.
fn read_whole(vfs: &Vfs, ino: Ino, len: usize, step: usize) -> Vec<u8> {
    let read = |offset| vfs.read(ino, offset as u64, step).expect("read").to_vec();
    (0..len).step_by(step).flat_map(read).collect()
}

fn trips(vfs: &Vfs) -> u64 {
    vfs.stats().round_trips.total()
}

/// Looks at everything in `directory`, and at what is not there.
fn look(vfs: &Vfs, directory: Ino) {
    for number in 0..50 {
        let name = format!("file {number}");
        let found = vfs.lookup(Caller::ROOT, directory, name.as_bytes()).expect("found");
        vfs.attributes(found.ino).expect("there");
        assert_eq!(vfs.read(found.ino, 0, 100_000).expect("read").len(), 70_000);
    }
    assert!(vfs.lookup(Caller::ROOT, directory, b"none").is_err());
    assert_eq!(vfs.read_directory(directory, Cookie(0), 100).expect("listed").len(), 50);
}

#[test]
fn what_is_in_memory_is_never_asked_for() {
    let (address, vfs) = volume();
    let directory = vfs.make(Caller::ROOT, Ino::ROOT, b"directory", DIRECTORY).expect("made").ino;
    for number in 0..50 {
        let ino = vfs.make(Caller::ROOT, directory, format!("file {number}").as_bytes(), FILE).expect("made").ino;
        vfs.write(ino, 0, &vec![number; 70_000], false).expect("written");
    }
    vfs.commit().expect("committed");
    look(&vfs, directory);
    let before = trips(&vfs);
    look(&vfs, directory);
    assert_eq!(trips(&vfs), before, "all was in memory");
    vfs.close().expect("closed");
    drop(vfs);
    let vfs = open(&address);
    let directory = vfs.lookup(Caller::ROOT, Ino::ROOT, b"directory").expect("found").ino;
    look(&vfs, directory);
    let before = trips(&vfs);
    look(&vfs, directory);
    assert_eq!(trips(&vfs), before, "it was read once");
    vfs.close().expect("closed");
}

/// However much a commit holds, the server is waited for a few times.
#[test]
fn commits_cost_round_trips_by_their_number_and_not_by_their_size() {
    let (_, vfs) = volume();
    let mut most = 0;
    for round in 0..5 {
        let before = trips(&vfs);
        let directory = vfs.make(Caller::ROOT, Ino::ROOT, format!("d{round}").as_bytes(), DIRECTORY).expect("made").ino;
        for number in 0..2000 {
            let parent = if number % 2 == 0 { directory } else { Ino::ROOT };
            let name = format!("file {round} {number}");
            let ino = vfs.make(Caller::ROOT, parent, name.as_bytes(), FILE).expect("made").ino;
            vfs.write(ino, 0, b"some content", false).expect("written");
        }
        vfs.commit().expect("committed");
        most = most.max(trips(&vfs) - before);
    }
    assert!(most <= 20, "{most} round trips for 2001 new files in directories old and new");
    let before = trips(&vfs);
    for number in 0..2000 {
        let parent =
            if number % 2 == 0 { vfs.lookup(Caller::ROOT, Ino::ROOT, b"d3").expect("found").ino } else { Ino::ROOT };
        vfs.unlink(parent, format!("file 3 {number}").as_bytes()).expect("removed");
    }
    vfs.commit().expect("committed");
    let taken = trips(&vfs) - before;
    assert!(taken <= 20, "{taken} round trips for 2000 files removed");
    vfs.close().expect("closed");
}

/// More files than one statement names, with directories large and small, a large file and its tree
/// of digests among them.
#[test]
fn a_commit_that_removes_a_large_tree_costs_a_few_and_leaves_nothing() {
    let (address, vfs) = volume();
    let make = |parent, name: String, what| vfs.make(Caller::ROOT, parent, name.as_bytes(), what).expect("made").ino;
    let top = make(Ino::ROOT, "top".into(), DIRECTORY);
    let directories = (0..100).map(|number| make(top, format!("d{number}"), DIRECTORY)).collect::<Vec<_>>();
    let parent = |number: usize| if number.is_multiple_of(2) { top } else { directories[number % 100] };
    for number in 0..5000 {
        let ino = make(parent(number), format!("file {number}"), FILE);
        vfs.write(ino, 0, &[1; 5000], false).expect("written");
    }
    let large = make(top, "large".into(), FILE);
    vfs.write(large, 0, &vec![2; 10 << 20], false).expect("written");
    vfs.commit().expect("committed");
    let before = trips(&vfs);
    (0..5000).for_each(|number| vfs.unlink(parent(number), format!("file {number}").as_bytes()).expect("removed"));
    vfs.unlink(top, b"large").expect("removed");
    (0..100).for_each(|number| vfs.remove_directory(top, format!("d{number}").as_bytes()).expect("removed"));
    vfs.remove_directory(Ino::ROOT, b"top").expect("removed");
    vfs.commit().expect("committed");
    let taken = trips(&vfs) - before;
    assert!(taken <= 20, "{taken} round trips for 5102 inodes removed");
    vfs.close().expect("closed");
    drop(vfs);
    let options = CheckOptions { repair: Repair::No, read_data: true };
    let findings = postgres::check(&address, options, &mut |_| {}).expect("checked");
    assert!(findings.is_empty(), "{findings:?}");
}

/// Whoever searches a tree waits for a few answers, and not for one a file.
#[test]
fn files_read_in_order_cost_far_fewer_round_trips_than_there_are_files() {
    const COUNT: usize = 200;
    let (address, directory, _) = volume_of_many(COUNT);
    let read_all = |vfs: &Vfs| {
        for number in 0..COUNT {
            let found = vfs.lookup(Caller::ROOT, directory, format!("file {number}").as_bytes()).expect("found");
            let read = vfs.read(found.ino, 0, 100_000).expect("read").to_vec();
            assert!(read == content(number, 70_000), "file {number}");
        }
        let taken = vfs.stats().round_trips;
        vfs.close().expect("closed");
        taken
    };
    let taken = read_all(&open_with_threads(&address));
    assert!(taken.extents + taken.blocks <= 45, "{taken:?} for {COUNT} files");
    // Nobody brings anything meanwhile.
    read_all(&open(&address));
}

/// Readers do not wait for blocks that a thread prefetches while files are read in order.
#[test]
fn files_that_are_brought_meanwhile_are_not_waited_for() {
    const COUNT: usize = 200;
    let (address, _, inos) = volume_of_many(COUNT);
    let store = postgres::open(&address, OpenOptions::default()).expect("opened");
    let (mut waited, mut brought) = (0, 0);
    for (number, ino) in inos.into_iter().enumerate() {
        let before = store.round_trips().total();
        let blocks = store.extents(ino, 0..10 << 16).expect("readable").into_iter().map(|(_, block)| block);
        let mut read = Vec::new();
        let mut take = |_, block: weft_store::Result<Block>| read.extend_from_slice(&block.expect("undamaged"));
        store.read_blocks(&blocks.collect::<Vec<_>>(), &mut take).expect("readable");
        assert!(read == content(number, 70_000), "file {number}");
        waited += store.round_trips().total() - before;
        if store.wants_more() {
            store.prefetch().expect("brought");
            brought += 1;
        }
    }
    assert!(waited <= 10, "waited for {waited} round trips");
    assert!(brought <= 30, "brought {brought} times for {COUNT} files");
}

/// The first bytes of a file are read together, however small the pieces are in which a program
/// asks for them.
#[test]
fn a_file_read_from_its_start_costs_a_few_round_trips_and_not_one_a_block() {
    const LEN: usize = 300_000;
    for step in [LEN, 128 << 10, 4096] {
        let (address, ino) = volume_of_one(LEN);
        let vfs = open_with_threads(&address);
        let read = read_whole(&vfs, ino, LEN, step);
        assert!(read == content(0, LEN), "in calls of {step}");
        let taken = vfs.stats().round_trips.blocks;
        assert!((1..=2).contains(&taken), "{taken} round trips for blocks, in calls of {step}");
        vfs.close().expect("closed");
    }
}

/// A commit reads all partly overwritten blocks that it needs together.
#[test]
fn a_commit_that_completes_many_blocks_costs_a_few_round_trips_for_them() {
    const BLOCKS: usize = 100;
    let (address, ino) = volume_of_one(BLOCKS * BLOCK);
    let vfs = open(&address);
    let mut expected = content(0, BLOCKS * BLOCK);
    for (index, block) in expected.chunks_mut(BLOCK).enumerate() {
        let at = index * 601;
        block[at..at + 4].copy_from_slice(b"anew");
        vfs.write(ino, (index * BLOCK + at) as u64, b"anew", false).expect("written");
    }
    let before = vfs.stats().round_trips.blocks;
    vfs.commit().expect("committed");
    let taken = vfs.stats().round_trips.blocks - before;
    assert!((1..=4).contains(&taken), "{taken} round trips for {BLOCKS} blocks");
    vfs.close().expect("closed");
    drop(vfs);
    let vfs = open(&address);
    assert!(read_whole(&vfs, ino, expected.len(), 1 << 20) == expected, "after a remount");
    vfs.close().expect("closed");
}

/// However few entries the kernel wants at a time, the store is asked for all of a list that is
/// kept.
#[test]
fn a_directory_that_is_listed_bit_by_bit_is_read_at_once() {
    let (address, directory, _) = volume_of_many(200);
    let vfs = open(&address);
    let (mut after, mut listed) = (Cookie(0), 0);
    loop {
        let entries = vfs.read_directory(directory, after, 25).expect("listed");
        let Some(last) = entries.last() else { break };
        (after, listed) = (last.cookie, listed + entries.len());
    }
    assert_eq!(listed, 200);
    let taken = vfs.stats().round_trips.names;
    assert!(taken <= 2, "{taken} round trips for the names of one directory");
    vfs.close().expect("closed");
}

/// Files of a tree that is sent are read many together.
#[test]
fn a_tree_is_sent_in_far_fewer_round_trips_than_it_has_files() {
    const COUNT: usize = 200;
    let (address, vfs) = volume();
    vfs.keep_history("all forever", None).expect("kept");
    for number in 0..COUNT {
        let name = format!("file {number}");
        let ino = vfs.make(Caller::ROOT, Ino::ROOT, name.as_bytes(), FILE).expect("made").ino;
        vfs.write(ino, 0, &content(number, 70_000), false).expect("written");
    }
    vfs.close().expect("closed");
    let store: Arc<dyn Store> = postgres::open_beside(&address, &OpenOptions::default()).expect("opened");
    let to = store.header().expect("readable").commit;
    let (selection, mut stream) = (Selection { from: None, to, snapshots: false }, Vec::new());
    let before = store.round_trips().total();
    let sent = stream::send((&store, false), &selection, &mut stream, &mut |_| {}).expect("sent");
    let taken = store.round_trips().total() - before;
    assert!(sent.bytes > 70_000 * COUNT as u64, "{sent:?}");
    assert!(taken <= 40, "{taken} round trips for {COUNT} files");
}
