//! Streams of volumes: whatever operations made a tree, it is received as it was, and so is each
//! change of it, on whichever engine.

use proptest::prelude::*;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weft_store::postgres::{self, Address};
use weft_store::sqlite;
use weft_store::stream::{Incoming, ReceiveOptions, ReceivedHistory, Selection, send};
use weft_store::{
    At, Batch, BlockHome, CheckOptions, CommitNo, Cookie, Durability, HistoryChange, HistoryFor, Ino, InodeRow,
    Location, OpenOptions, Outcome, Repair, Store, Timestamp, VolumeOptions,
};
use weft_testkit::{BLOCK_BYTES, Cluster, CrashStore, Driver, Means, Step, operations};

/// Steps between two streams.
const STEPS: usize = 12;

/// A place for a volume.
enum Home {
    Files(tempfile::TempDir, BlockHome, u32),
    Postgres(Box<Address>),
}

impl Home {
    fn files(home: BlockHome) -> Home {
        Home::Files(tempfile::tempdir().expect("a directory"), home, BLOCK_BYTES)
    }

    /// A volume whose blocks are long enough to be split.
    fn files_of_long_blocks(home: BlockHome) -> Home {
        Home::Files(tempfile::tempdir().expect("a directory"), home, 64 << 10)
    }

    fn postgres() -> Home {
        Home::Postgres(Box::new(Cluster::shared().address()))
    }

    fn location(&self) -> Location {
        match self {
            Home::Files(directory, ..) => Location::Files(directory.path().join("volume")),
            Home::Postgres(address) => Location::Postgres(address.clone()),
        }
    }

    fn options(&self) -> VolumeOptions {
        match self {
            Home::Files(_, home, block_size) => {
                VolumeOptions { block_size: *block_size, ..Driver::volume_options(*home) }
            }
            Home::Postgres(_) => Driver::volume_options(BlockHome::Database),
        }
    }

    fn open(&self) -> Arc<dyn Store> {
        self.location().engine().open(OpenOptions::default()).expect("opened").store
    }

    fn refuse_damage(&self) -> Result<(), TestCaseError> {
        let options = CheckOptions { repair: Repair::No, read_data: true };
        let mut findings = self.location().engine().check(options, &mut |_| ()).expect("checked");
        findings.retain(|finding| finding.outcome != Outcome::Note);
        prop_assert!(findings.is_empty(), "{:?}", findings);
        Ok(())
    }

    fn remove(&self) {
        if let Home::Postgres(address) = self {
            postgres::remove(address).expect("removed");
        }
    }
}

/// All that names lead to: but for access times, for where blocks lie, and for what a volume keeps
/// for itself.
type Tree = BTreeMap<Ino, Vec<String>>;

fn tree(store: &dyn Store) -> Tree {
    // Where blocks were split, what they are of is in the digests.
    let has_whole_blocks = store.header().expect("readable").options.block_size == BLOCK_BYTES;
    let mut tree = Tree::new();
    let rows = store.inodes(Ino(0), usize::MAX >> 1).expect("readable");
    for row in rows.into_iter().filter(|row| row.nlink > 0) {
        let mut xattrs = store.xattrs(row.ino).expect("readable");
        xattrs.retain(|(name, _)| !name.as_bytes().starts_with(b"weft."));
        let count = u32::try_from(xattrs.len()).expect("few");
        let mut told = vec![format!("{:?}", InodeRow { atime: Timestamp(0), xattrs: count, ..row.clone() })];
        told.push(format!("{:?}", store.digest(row.ino).expect("readable")));
        told.extend(xattrs.into_iter().map(|xattr| format!("{xattr:?}")));
        told.extend(store.names(row.ino, Cookie(0), 1 << 20).expect("readable").iter().map(|name| format!("{name:?}")));
        let extents = store.extents(row.ino, 0..u64::MAX).expect("readable");
        let extents = extents.into_iter().filter(|_| has_whole_blocks).collect::<Vec<_>>();
        told.extend(extents.iter().map(|(span, block)| format!("{span:?} {} {:?}", block.length, block.value)));
        tree.insert(row.ino, told);
    }
    tree
}

fn sent(store: &Arc<dyn Store>, from: Option<CommitNo>, to: CommitNo) -> Vec<u8> {
    let mut stream = Vec::new();
    let selection = Selection { from, to, snapshots: false };
    send((store, true), &selection, &mut stream, &mut |_| ()).expect("sent");
    stream
}

fn received(stream: &[u8], store: &dyn Store) -> weft_store::Result<()> {
    let options = ReceiveOptions { history: ReceivedHistory::By("all forever".into()), now: Timestamp(i64::MAX) };
    Incoming::open(stream)?.receive(store, &options, &mut |_| ()).map(drop)
}

fn keep_history(store: &dyn Store) {
    let header = store.header().expect("readable");
    let batch = Batch {
        commit: header.commit.next(),
        counters: header.counters,
        history: vec![HistoryChange::Keep("all forever".into(), HistoryFor::All)],
        ..Batch::default()
    };
    store.apply(&batch, Durability::Durable).expect("applied");
}

/// Follows `steps` on a volume at `from`, and now and then sends what changed to the one at `to`.
fn follow(steps: &[Step], from: &Home, to: &Home) -> Result<(), TestCaseError> {
    from.location().engine().create(&from.options(), (0, 0), Timestamp(0)).expect("created");
    let source = from.open();
    keep_history(&*source);
    let mut driver = Driver::over(CrashStore::over(source.clone()), Means::NO_LOG);
    let begun = to.location().engine().begin(&to.options(), Timestamp(0)).expect("begun");
    let target: Arc<dyn Store> = begun.opened.store.clone();
    drop(begun);
    let mut commits: Vec<CommitNo> = Vec::new();
    for steps in steps.chunks(STEPS) {
        for step in steps.iter().chain(&[Step::Commit]) {
            driver.step(step).map_err(|error| TestCaseError::fail(format!("{step:?}: {error}")))?;
        }
        let commit = source.header().expect("readable").commit;
        if commits.last() == Some(&commit) {
            continue;
        }
        let stream = sent(&source, commits.last().copied(), commit);
        if let Err(error) = received(&stream, &*target) {
            return Err(TestCaseError::fail(format!("from {:?} to {}: {error}", commits.last(), commit.0)));
        }
        prop_assert_eq!(tree(&*target), tree(&At::new(source.clone(), commit).expect("kept")));
        commits.push(commit);
    }
    driver.close().map_err(TestCaseError::fail)?;
    target.close().expect("closed");
    drop((driver, source, target));
    to.location().engine().finish().expect("finished");
    to.refuse_damage()?;
    compare_past(from, to, &commits)?;
    [from, to].into_iter().for_each(Home::remove);
    Ok(())
}

/// Each commit that was received is in the history of the receiver.
fn compare_past(from: &Home, to: &Home, commits: &[CommitNo]) -> Result<(), TestCaseError> {
    let (source, target) = (from.open(), to.open());
    let last = target.header().expect("readable").commit.0;
    for (back, commit) in commits.iter().rev().enumerate() {
        let here = CommitNo(last - back as u64);
        let at = |store: &Arc<dyn Store>, commit| tree(&At::new(store.clone(), commit).expect("kept"));
        prop_assert_eq!(at(&source, *commit), at(&target, here));
    }
    Ok(())
}

fn config(cases: u32) -> ProptestConfig {
    let given = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse::<u32>().ok());
    ProptestConfig {
        cases: given.map_or(cases, |given| given.div_ceil(40)),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config(40))]
    #[test]
    fn a_volume_of_segments_goes_into_one_file_as_it_is(steps in operations(80, false)) {
        follow(&steps, &Home::files(BlockHome::Segments), &Home::files(BlockHome::Database))?;
    }

    #[test]
    fn a_volume_of_one_file_goes_into_segments_as_it_is(steps in operations(80, false)) {
        follow(&steps, &Home::files(BlockHome::Database), &Home::files(BlockHome::Segments))?;
    }
}

proptest! {
    #![proptest_config(config(40))]
    #[test]
    fn a_volume_whose_blocks_are_split_goes_into_others_as_it_is(steps in operations(80, false)) {
        let of_long_blocks = Home::files_of_long_blocks;
        follow(&steps, &of_long_blocks(BlockHome::Segments), &of_long_blocks(BlockHome::Segments))?;
        follow(&steps, &of_long_blocks(BlockHome::Segments), &of_long_blocks(BlockHome::Database))?;
    }
}

proptest! {
    #![proptest_config(config(8))]
    #[test]
    fn a_volume_in_files_goes_into_postgresql_as_it_is(steps in operations(60, false)) {
        follow(&steps, &Home::files(BlockHome::Segments), &Home::postgres())?;
    }

    #[test]
    fn a_volume_in_postgresql_goes_into_files_as_it_is(steps in operations(60, false)) {
        follow(&steps, &Home::postgres(), &Home::files(BlockHome::Segments))?;
    }

    #[test]
    fn a_volume_in_postgresql_goes_into_another_as_it_is(steps in operations(60, false)) {
        follow(&steps, &Home::postgres(), &Home::postgres())?;
    }
}

/// A volume in files that keeps history, with what `steps` leave.
fn made(path: &Path, steps: &[Step]) -> Arc<dyn Store> {
    sqlite::create(path, &Driver::volume_options(BlockHome::Database), (0, 0), Timestamp(0)).expect("created");
    let store: Arc<dyn Store> = sqlite::open(path).expect("opened").store;
    keep_history(&*store);
    change(&store, steps);
    store
}

fn change(store: &Arc<dyn Store>, steps: &[Step]) {
    let mut driver = Driver::over(CrashStore::over(store.clone()), Means::NO_LOG);
    steps.iter().chain(&[Step::Commit]).for_each(|step| driver.step(step).expect("done"));
    driver.close().expect("closed");
}

fn make(name: usize) -> Step {
    use weft_testkit::Operation;
    Step::Do(Operation::Make { directory: 0, name, kind: weft_vfs::Kind::File, permissions: 0o644 })
}

fn path(directory: &tempfile::TempDir, name: &str) -> PathBuf {
    directory.path().join(name)
}

#[test]
fn changes_are_refused_by_a_volume_that_has_the_same_content_by_other_inodes() {
    let directory = tempfile::tempdir().expect("a directory");
    let source = made(&path(&directory, "source"), &[make(0)]);
    let base = source.header().expect("readable").commit;
    let other = made(&path(&directory, "other"), &[make(1), make(0)]);
    let root = |store: &Arc<dyn Store>| store.digest(Ino::ROOT).expect("readable");
    assert_ne!(root(&source), root(&other));
    let header = source.header().expect("readable");
    let row = source.inodes(Ino::ROOT, 1).expect("readable").remove(0);
    let changed = InodeRow { uid: 7, ctime: Timestamp(99), ..row };
    let batch = Batch {
        commit: header.commit.next(),
        time: Timestamp(100),
        counters: header.counters,
        inodes: vec![weft_store::InodeChange::Put(changed)],
        ..Batch::default()
    };
    source.apply(&batch, Durability::Durable).expect("applied");
    let stream = sent(&source, Some(base), batch.commit);
    let error = received(&stream, &*other).expect_err("it has another tree");
    assert!(error.to_string().contains("the last commit here"), "{error}");
    // The same names and content, made at another time.
    let alike = made(&path(&directory, "alike"), &[Step::Commit, make(0)]);
    let before = alike.header().expect("readable").commit;
    let header = alike.header().expect("readable");
    let row = alike.inodes(Ino::ROOT, 1).expect("readable").remove(0);
    let moved = Batch {
        commit: header.commit.next(),
        counters: header.counters,
        inodes: vec![weft_store::InodeChange::Put(InodeRow { gid: 5, ..row })],
        ..Batch::default()
    };
    alike.apply(&moved, Durability::Durable).expect("applied");
    assert_eq!(root(&source), root(&alike));
    let error = received(&stream, &*alike).expect_err("it has other rows");
    assert!(error.to_string().contains("inode 1 (/) is not as commit"), "{error}");
    assert_eq!(alike.header().expect("readable").commit, before.next());
}

#[test]
fn changes_that_were_received_are_refused_the_second_time() {
    let directory = tempfile::tempdir().expect("a directory");
    let source = made(&path(&directory, "source"), &[make(0)]);
    let base = source.header().expect("readable").commit;
    let whole = sent(&source, None, base);
    let target = path(&directory, "target");
    let target = Location::Files(target);
    let begun = target.engine().begin(&Driver::volume_options(BlockHome::Database), Timestamp(0)).expect("begun");
    received(&whole, &*begun.opened.store).expect("received");
    let header = source.header().expect("readable");
    let row = source.inodes(Ino::ROOT, 1).expect("readable").remove(0);
    let batch = Batch {
        commit: header.commit.next(),
        time: Timestamp(i64::MAX),
        counters: header.counters,
        inodes: vec![weft_store::InodeChange::Put(InodeRow { permissions: 0o700, ..row })],
        ..Batch::default()
    };
    source.apply(&batch, Durability::Durable).expect("applied");
    let changes = sent(&source, Some(base), batch.commit);
    received(&changes, &*begun.opened.store).expect("received");
    let before = tree(&*begun.opened.store);
    let error = received(&changes, &*begun.opened.store).expect_err("they are there");
    assert!(error.to_string().contains("received before"), "{error}");
    assert_eq!(tree(&*begun.opened.store), before);
}

#[test]
fn blocks_that_are_merged_while_they_are_sent_are_sent_as_they_were() {
    use weft_vfs::{Caller, Kind, MakeNode, ManualClock, Options, Vfs};
    let directory = tempfile::tempdir().expect("a directory");
    let (from, to) = (path(&directory, "source"), path(&directory, "target"));
    sqlite::create(&from, &VolumeOptions::default(), (0, 0), Timestamp(0)).expect("created");
    let source: Arc<dyn Store> = sqlite::open(&from).expect("opened").store;
    keep_history(&*source);
    let options = Options { background: false, ..Options::default() };
    let vfs = Vfs::open(source.clone(), None, options, Arc::new(ManualClock::default())).expect("opens");
    let file = MakeNode { kind: Kind::File, permissions: 0o644, umask: 0, rdev: 0 };
    let ino = vfs.make(Caller::ROOT, Ino::ROOT, b"file", file).expect("made").ino;
    let mut content: Vec<u8> = (0..4 << 20).map(|at| u8::try_from(at / 1000 % 251).expect("a byte")).collect();
    vfs.write(ino, 0, &content, false).expect("written");
    vfs.commit_durably().expect("committed");
    for start in (8 << 10..content.len()).step_by(64 << 10) {
        content[start..start + 4096].fill(255);
        vfs.write(ino, start as u64, &[255; 4096], false).expect("written");
    }
    let commit = vfs.commit_durably().expect("committed");
    let (mut stream, mut steps) = (Vec::new(), 0);
    let selection = Selection { from: None, to: commit, snapshots: false };
    send((&source, true), &selection, &mut stream, &mut |_| {
        steps += 1;
        if steps == 4 {
            let mut next = Some(0);
            while let Some(from) = next {
                next = vfs.defragment(ino, from).expect("merged").next;
            }
            vfs.commit_durably().expect("committed");
            source.reclaim().expect("given back");
        }
    })
    .expect("sent");
    assert!(steps > 4, "{steps}");
    let begun = Location::Files(to).engine().begin(&VolumeOptions::default(), Timestamp(0));
    let target: Arc<dyn Store> = begun.expect("begun").opened.store.clone();
    received(&stream, &*target).expect("received");
    let options = Options { read_only: true, background: false, ..Options::default() };
    let copy = Vfs::open(target, None, options, Arc::new(ManualClock::default())).expect("opens");
    assert!(copy.read(ino, 0, content.len()).expect("readable").to_vec() == content);
}
