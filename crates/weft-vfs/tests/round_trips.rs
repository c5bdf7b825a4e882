//! How often a volume in PostgreSQL waits for its server.

use std::sync::Arc;
use weft_store::postgres::{self, OpenOptions};
use weft_store::{BlockHome, CheckOptions, Cookie, Repair, Timestamp, VolumeOptions};
use weft_testkit::Cluster;
use weft_vfs::{Caller, Ino, Kind, MakeNode, ManualClock, Options, Vfs};

const FILE: MakeNode = MakeNode { kind: Kind::File, permissions: 0o644, umask: 0, rdev: 0 };
const DIRECTORY: MakeNode = MakeNode { kind: Kind::Directory, permissions: 0o755, ..FILE };

fn open(address: &postgres::Address) -> Arc<Vfs> {
    let store = postgres::open(address, OpenOptions::default()).expect("opened");
    let options = Options { background: false, ..Options::default() };
    Vfs::open(store, None, options, Arc::new(ManualClock::default())).expect("opens")
}

fn volume() -> (postgres::Address, Arc<Vfs>) {
    let address = Cluster::shared().address();
    let options = VolumeOptions { home: BlockHome::Database, ..VolumeOptions::default() };
    postgres::create(&address, &options, (0, 0), Timestamp(0)).expect("created");
    let vfs = open(&address);
    (address, vfs)
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

/// More files than one statement names, with directories large and small, a large file and its tree of digests among them.
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
