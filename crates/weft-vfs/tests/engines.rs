//! The random operations of `model.rs` on volumes as users have them: in files, with blocks in the
//! database and in segments, and in PostgreSQL; an intent log, failing calls, and remounts.

use proptest::prelude::*;
use std::sync::Arc;
use weft_store::sqlite::{self, check};
use weft_store::{BlockHome, OpenOptions, Timestamp, VolumeOptions, postgres};
use weft_store::{CheckOptions, Finding, Outcome, Repair};
use weft_testkit::{Break, Cluster, CrashStore, Driver, Means, Proxy, Step, operations};
use weft_vfs::{Caller, Cookie, ErrorKind, Ino, Kind, MakeNode, ManualClock, Options, RenameMode, Vfs};

const FILE: MakeNode = MakeNode { kind: Kind::File, permissions: 0o644, umask: 0, rdev: 0 };

/// A crash here is one of the daemon: the engine loses nothing.
fn drive(steps: &[Step], store: CrashStore, means: Means) -> Result<(), TestCaseError> {
    drive_with(steps, store, means, |_| {})
}

/// The same in a volume that keeps history: every commit stays what it was.
fn drive_and_remember(steps: &[Step], store: CrashStore, means: Means) -> Result<(), TestCaseError> {
    drive_with(steps, store, means, Driver::keep_history)
}

fn drive_with(steps: &[Step], store: CrashStore, means: Means, begin: fn(&mut Driver)) -> Result<(), TestCaseError> {
    let mut driver = Driver::over(store, means);
    begin(&mut driver);
    for (i, step) in steps.iter().chain(&[Step::Compare, Step::Remount]).enumerate() {
        driver.step(step).map_err(|error| TestCaseError::fail(format!("step {i}, {step:?}: {error}")))?;
    }
    driver.compare_past().map_err(TestCaseError::fail)?;
    driver.close().map_err(TestCaseError::fail)
}

/// The same, and blocks that small writes left are merged after each commit.
fn drive_and_merge(steps: &[Step], store: CrashStore, means: Means) -> Result<(), TestCaseError> {
    let begin = |driver: &mut Driver| {
        driver.keep_history();
        driver.merge_blocks();
    };
    drive_with(steps, store, means, begin)
}

/// Options of a volume whose blocks are long enough to be written to in part.
fn large_blocks(home: BlockHome) -> VolumeOptions {
    VolumeOptions { block_size: 64 << 10, ..Driver::volume_options(home) }
}

/// Options of a volume whose blocks may be stored in parts.
fn blocks_of_parts(home: BlockHome) -> VolumeOptions {
    VolumeOptions { block_size: 16 << 10, ..Driver::volume_options(home) }
}

/// The same, with blocks stored in parts after every few steps; every commit stays what it was.
fn drive_in_parts(steps: &[Step], store: CrashStore, means: Means) -> Result<(), TestCaseError> {
    let mut driver = Driver::over(store, means).in_parts(steps.len() as u64);
    driver.keep_history();
    for (i, step) in steps.iter().enumerate() {
        let remount = [Step::Remount];
        for step in [step].into_iter().chain(remount.iter().filter(|_| i % 8 == 7)) {
            driver.step(step).map_err(|error| TestCaseError::fail(format!("step {i}, {step:?}: {error}")))?;
        }
    }
    for step in [Step::Compare, Step::Remount, Step::Compare] {
        driver.step(&step).map_err(|error| TestCaseError::fail(format!("at the end, {step:?}: {error}")))?;
    }
    driver.compare_past().map_err(TestCaseError::fail)?;
    driver.close().map_err(TestCaseError::fail)
}

/// A volume whose blocks lie in one table, in one for each file, or in both.
fn in_postgres() -> impl Strategy<Value = VolumeOptions> {
    let options = Driver::volume_options(BlockHome::Database);
    let layouts = [None, Some(0), Some(2 * u64::from(options.block_size))];
    prop::sample::select(layouts.to_vec())
        .prop_map(move |own_table_from| VolumeOptions { own_table_from, ..options.clone() })
}

fn agree_in_postgres(steps: &[Step], volume: &VolumeOptions, means: Means) -> Result<(), TestCaseError> {
    agree_in_postgres_by(steps, volume, means, drive)
}

fn agree_in_postgres_by(
    steps: &[Step],
    volume: &VolumeOptions,
    means: Means,
    drive: Drive,
) -> Result<(), TestCaseError> {
    let address = Cluster::shared().address();
    postgres::create(&address, volume, (0, 0), Timestamp(0)).expect("created");
    let store = postgres::open(&address, OpenOptions::default()).expect("opened");
    let logged = store.clone();
    let mut store = CrashStore::over(store);
    if means.log_bytes.is_some() {
        store = store.with_log(move || logged.intents().into());
    }
    drive(steps, store, means)?;
    undamaged(|options| postgres::check(&address, options, &mut |_| {}))?;
    postgres::remove(&address).expect("removed");
    Ok(())
}

fn undamaged(check: impl Fn(CheckOptions) -> weft_store::Result<Vec<Finding>>) -> Result<(), TestCaseError> {
    let findings = check(CheckOptions { repair: Repair::No, read_data: true }).expect("checked");
    let damage: Vec<_> = findings.into_iter().filter(|finding| finding.outcome != Outcome::Note).collect();
    prop_assert!(damage.is_empty(), "{damage:?}");
    Ok(())
}

/// Connections break on the way to a commit, in it, and after it, and commits cannot be serialized:
/// nobody above the store notices.
fn agree_over_breaking_connections(
    steps: &[Step],
    volume: &VolumeOptions,
    breaks: &[Break],
) -> Result<(), TestCaseError> {
    let cluster = Cluster::shared();
    let (proxy, url) = (Proxy::new(cluster), cluster.url());
    let address = proxy.address(&url);
    postgres::create(&address, volume, (0, 0), Timestamp(0)).expect("created");
    let store = postgres::open(&address, OpenOptions::default()).expect("opened");
    let logged = store.clone();
    let store = CrashStore::over(store).with_log(move || logged.intents().into());
    let mut driver = Driver::over(store, Means::NO_LOG);
    let calm = steps.iter().filter(|step| !matches!(step, Step::Fail { .. }));
    for (i, step) in calm.chain(&[Step::Compare, Step::Remount]).enumerate() {
        proxy.set(breaks[i % breaks.len()]);
        driver.step(step).map_err(|error| TestCaseError::fail(format!("step {i}, {step:?}: {error}")))?;
    }
    drop(driver);
    proxy.set(Break::Never);
    undamaged(|options| postgres::check(&address, options, &mut |_| {}))?;
    postgres::remove(&address).expect("removed");
    Ok(())
}

fn breaks() -> impl Strategy<Value = Vec<Break>> {
    let one = prop_oneof![
        2 => Just(Break::Never),
        1 => (0..2u32).prop_map(Break::AfterCommit),
        2 => (0..20u32).prop_map(Break::BeforePiece),
        2 => (0..2u32).prop_map(Break::Refuse),
    ];
    prop::collection::vec(one, 1..8)
}

fn agree(steps: &[Step], volume: &VolumeOptions) -> Result<(), TestCaseError> {
    agree_by(steps, volume, drive)
}

/// Takes steps on a volume in a store.
type Drive = fn(&[Step], CrashStore, Means) -> Result<(), TestCaseError>;

fn agree_by(steps: &[Step], volume: &VolumeOptions, drive: Drive) -> Result<(), TestCaseError> {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("volume");
    sqlite::create(&path, volume, (0, 0), Timestamp(0)).expect("created");
    drive(steps, CrashStore::over(sqlite::open(&path).expect("opened").store), Means::AMPLE)?;
    undamaged(|options| check(&path, options, &mut |_| {}))
}

/// Positions stay with entries that are renamed in their directory; another row must have let go of
/// one first, whatever the order of the names.
#[test]
fn entries_may_swap_and_pass_on_names_between_two_commits() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("volume");
    let home = BlockHome::Segments;
    sqlite::create(&path, &Driver::volume_options(home), (0, 0), Timestamp(0)).expect("created");
    let store = sqlite::open(&path).expect("opened").store;
    let options = Options { background: false, ..Options::default() };
    let vfs = Vfs::open(store, None, options, Arc::new(ManualClock::default())).expect("opens");
    let make = |name: &[u8]| vfs.make(Caller::ROOT, Ino::ROOT, name, FILE).expect("made").ino;
    let rename = |from: &[u8], to: &[u8]| {
        vfs.rename((Ino::ROOT, from), (Ino::ROOT, to), RenameMode::Replace).expect("renamed");
    };
    let (a, z) = (make(b"a"), make(b"z"));
    vfs.commit().expect("committed");
    rename(b"a", b"t");
    rename(b"z", b"a");
    rename(b"t", b"z");
    vfs.commit().expect("committed");
    for (from, to) in [(b"z", b"b"), (b"a", b"y")] {
        rename(from, to);
        make(from);
    }
    vfs.close().expect("closed");
    for (name, ino) in [(b"b", a), (b"y", z)] {
        assert_eq!(vfs.lookup(Caller::ROOT, Ino::ROOT, name).expect("found").ino, ino);
    }
    assert_eq!(vfs.read_directory(Ino::ROOT, Cookie(0), 10).expect("listed").len(), 4);
}

fn config() -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse::<u32>().ok()).unwrap_or(1500);
    ProptestConfig { cases: cases.div_ceil(15), failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_volume_with_blocks_in_the_database_does_what_the_reference_does(steps in operations(80, true)) {
        agree(&steps, &Driver::volume_options(BlockHome::Database))?;
    }

    #[test]
    fn a_volume_with_blocks_in_segments_does_what_the_reference_does(steps in operations(80, true)) {
        agree(&steps, &Driver::volume_options(BlockHome::Segments))?;
    }

    #[test]
    fn each_commit_that_is_kept_shows_what_the_reference_was_then(steps in operations(80, true)) {
        agree_by(&steps, &Driver::volume_options(BlockHome::Database), drive_and_remember)?;
        agree_by(&steps, &Driver::volume_options(BlockHome::Segments), drive_and_remember)?;
    }

    #[test]
    fn each_commit_that_is_kept_stays_what_it_was_when_blocks_are_split(steps in operations(80, true)) {
        agree_by(&steps, &large_blocks(BlockHome::Segments), drive_and_remember)?;
        agree_by(&steps, &large_blocks(BlockHome::Database), drive_and_remember)?;
    }

    #[test]
    fn merging_blocks_changes_nothing_of_the_present_or_the_past(steps in operations(80, true)) {
        agree_by(&steps, &large_blocks(BlockHome::Segments), drive_and_merge)?;
        agree_by(&steps, &large_blocks(BlockHome::Database), drive_and_merge)?;
    }

    #[test]
    fn merging_blocks_in_postgresql_changes_nothing(steps in operations(40, true), volume in in_postgres()) {
        let volume = VolumeOptions { block_size: 64 << 10, ..volume };
        agree_in_postgres_by(&steps, &volume, Means::NO_LOG, drive_and_merge)?;
    }

    #[test]
    fn a_volume_with_blocks_of_several_parts_does_what_the_reference_does(steps in operations(80, true)) {
        agree(&steps, &large_blocks(BlockHome::Segments))?;
        agree(&steps, &large_blocks(BlockHome::Database))?;
    }

    #[test]
    fn a_volume_with_small_extents_does_what_the_reference_does(steps in operations(80, true)) {
        for home in [BlockHome::Database, BlockHome::Segments] {
            agree_by(&steps, &blocks_of_parts(home), drive_in_parts)?;
        }
    }

    #[test]
    fn a_volume_with_small_extents_in_postgresql_does_what_the_reference_does(
        steps in operations(60, true), volume in in_postgres()
    ) {
        let volume = VolumeOptions { block_size: 16 << 10, ..volume };
        agree_in_postgres_by(&steps, &volume, Means::NO_LOG, drive_in_parts)?;
    }

    #[test]
    fn a_volume_with_long_blocks_in_postgresql_does_what_the_reference_does(
        steps in operations(60, true), volume in in_postgres()
    ) {
        let volume = VolumeOptions { block_size: 64 << 10, ..volume };
        agree_in_postgres_by(&steps, &volume, Means::NO_LOG, drive_and_remember)?;
    }

    #[test]
    fn a_volume_in_postgresql_does_what_the_reference_does(
        steps in operations(80, true), volume in in_postgres()
    ) {
        agree_in_postgres(&steps, &volume, Means::NO_LOG)?;
    }

    #[test]
    fn each_commit_kept_in_postgresql_shows_what_the_reference_was_then(
        steps in operations(40, true), volume in in_postgres()
    ) {
        agree_in_postgres_by(&steps, &volume, Means::NO_LOG, drive_and_remember)?;
    }

    #[test]
    fn a_volume_in_postgresql_with_an_intent_log_does_what_the_reference_does(
        steps in operations(40, true), volume in in_postgres()
    ) {
        agree_in_postgres(&steps, &volume, Means::AMPLE)?;
    }

    #[test]
    fn a_volume_in_postgresql_whose_connections_break_and_commits_fail_does_what_the_reference_does(
        steps in operations(40, true), volume in in_postgres(), breaks in breaks()
    ) {
        agree_over_breaking_connections(&steps, &volume, &breaks)?;
    }
}

/// Volumes in files are tried by the whole program.
#[test]
fn names_whose_inodes_have_no_rows_in_postgresql_are_errors_and_a_volume_without_a_root_is_refused() {
    let cluster = Cluster::shared();
    let address = cluster.address();
    postgres::create(&address, &VolumeOptions::default(), (0, 0), Timestamp(0)).expect("created");
    let schema = address.schema().to_owned();
    let delete = |ino: Ino| cluster.run(&format!("DELETE FROM {schema}.fileatt WHERE ino = {}", ino.0));
    let open = || {
        let store = postgres::open(&address, OpenOptions::default()).expect("opened");
        let options = Options { background: false, ..Options::default() };
        Vfs::open(store, None, options, Arc::new(ManualClock::default()))
    };
    let vfs = open().expect("opens");
    let directory = MakeNode { kind: Kind::Directory, permissions: 0o755, ..FILE };
    let directory = vfs.make(Caller::ROOT, Ino::ROOT, b"directory", directory).expect("made").ino;
    let gone = vfs.make(Caller::ROOT, directory, b"gone", FILE).expect("made").ino;
    vfs.make(Caller::ROOT, directory, b"there", FILE).expect("made");
    vfs.close().expect("closed");
    drop(vfs);

    delete(gone);
    let vfs = open().expect("opens");
    let errors = [
        vfs.lookup(Caller::ROOT, directory, b"gone").map(drop),
        vfs.unlink(directory, b"gone"),
        vfs.listed_entries(directory, Cookie(0)).map(drop),
    ];
    for error in errors.map(|result| result.expect_err("nobody knows it")) {
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert!(error.to_string().contains("'weft check'"), "{error}");
    }
    vfs.lookup(Caller::ROOT, directory, b"there").expect("found");
    let listed = vfs.read_directory_attributes(Caller::ROOT, directory, Cookie(0), 10).expect("listed");
    assert_eq!(listed.iter().map(|(_, attributes)| attributes.is_some()).collect::<Vec<_>>(), [false, true]);
    vfs.close().expect("closed");
    drop(vfs);

    delete(Ino::ROOT);
    let error = open().map(drop).expect_err("nothing can be reached");
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(error.to_string().contains("'weft check --repair' makes it anew"), "{error}");
}
