//! Power cuts and failing syncs of the whole program: database, write-ahead log, segments, intent
//! log.
//!
//! The volume has a few files; operation *n* writes version *n* of one of them: all of a short one,
//! a part of a long one. So what survives says after how many operations it is, and whether it is
//! whole.

mod power {
    pub mod disk;
}

use power::disk::{Disk, Image};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weft_store::log::IntentLog;
use weft_store::{BlockHome, Timestamp, VolumeOptions, sqlite};
use weft_vfs::{Caller, Ino, Kind, MakeNode, ManualClock, Options, Vfs};

const FILE: MakeNode = MakeNode { kind: Kind::File, permissions: 0o644, umask: 0, rdev: 0 };

/// Files of the volume.
const FILES: u64 = 5;

/// Lengths of files, for inline content and for blocks.
const LENGTHS: [usize; 5] = [100, 9000, 60_000, 3000, 200_000];

/// Length from which on only the first version of a file is written whole.
const LONG: usize = 50_000;

/// Most operations of a test.
const OPERATIONS: u64 = 200;

/// Numbers that look random, always the same for a seed.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// A kind of volume.
#[derive(Clone, Copy, Debug)]
struct Setup {
    home: BlockHome,
    has_log: bool,
    keeps_history: bool,
}

/// A volume on a disk that may lose its power.
struct Machine {
    directory: tempfile::TempDir,
    setup: Setup,
}

impl Machine {
    fn new(setup: Setup) -> Machine {
        // In memory, where there is such a directory: the disk is in this test.
        let memory = Path::new("/dev/shm");
        let directory = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        Machine { directory: directory.expect("a directory"), setup }
    }

    fn root(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn open(&self, root: &Path) -> Arc<Vfs> {
        self.try_open(root).expect("the tree opens")
    }

    fn try_open(&self, root: &Path) -> Result<Arc<Vfs>, String> {
        let volume = sqlite::open(&root.join("volume")).map_err(|error| error.to_string())?;
        let log = self.setup.has_log.then(|| IntentLog::open(&volume.layout.log, 256 << 10).expect("a log").into());
        let options = Options { background: false, ..Options::default() };
        let opened = Vfs::open(volume.store, log, options, Arc::new(ManualClock::default()));
        opened.map_err(|error| error.to_string())
    }

    /// A volume with all its files, as of operation `FILES`, closed.
    fn make(&self) -> PathBuf {
        let root = self.root("live");
        std::fs::create_dir(&root).expect("made");
        let options = VolumeOptions { home: self.setup.home, block_size: 64 << 10, ..VolumeOptions::default() };
        sqlite::create(&root.join("volume"), &options, (0, 0), Timestamp(0)).expect("made");
        let vfs = self.open(&root);
        if self.setup.keeps_history {
            vfs.keep_history("all forever", None).expect("kept");
        }
        for n in 0..FILES {
            vfs.make(Caller::ROOT, Ino::ROOT, &name(n), FILE).expect("made");
            write(&vfs, n);
        }
        vfs.close().expect("closed");
        root
    }

    /// Opens what is left of `image`, and tells after which operation it is.
    fn survives(&self, image: &Image, name: &str, keeps: &mut dyn FnMut() -> bool) -> u64 {
        let root = self.root(name);
        image.restore(&root, keeps);
        self.goes_on(&root, self.open(&root))
    }

    /// Opens what is left of `image` without the write-ahead log. None if that is refused.
    fn survives_without_wal(&self, image: &Image) -> Option<u64> {
        let root = self.root("without");
        image.restore(&root, &mut || false);
        let wal = if self.setup.home == BlockHome::Segments { "volume/meta.sqlite-wal" } else { "volume-wal" };
        std::fs::remove_file(root.join(wal)).expect("there was one");
        match self.try_open(&root) {
            Ok(vfs) => Some(self.goes_on(&root, vfs)),
            Err(error) => {
                assert!(error.contains("older than its intent log"), "{error}");
                std::fs::remove_dir_all(&root).expect("removed");
                None
            }
        }
    }

    /// Tells after which operation the tree in `root` is, works on, and removes it.
    fn goes_on(&self, root: &Path, vfs: Arc<Vfs>) -> u64 {
        let last = last_of(&vfs, Ino::ROOT, FILES);
        if self.setup.keeps_history {
            remembers(&vfs, last);
        }
        // Work goes on.
        write(&vfs, last + 1);
        vfs.close().expect("closed");
        // The store gives space back on a thread of its own until it goes.
        drop(vfs);
        std::fs::remove_dir_all(root).expect("removed");
        last
    }
}

fn name(n: u64) -> Vec<u8> {
    format!("file {}", n % FILES).into_bytes()
}

/// The bytes that operation `n` writes, and where.
fn written(n: u64) -> (usize, Vec<u8>) {
    let length = LENGTHS[usize::try_from(n % FILES).expect("few")];
    let mut numbers = Numbers(n);
    let as_usize = |value: u64| usize::try_from(value).expect("short");
    let (start, end) = if length < LONG || n < FILES {
        (0, length)
    } else {
        let start = as_usize(numbers.below(length as u64 - 8));
        let len = if numbers.below(2) == 0 { 4096 } else { 8 + as_usize(numbers.below(9000)) };
        let start = if numbers.below(2) == 0 { start } else { start - start % 4096 };
        (start, (start + len).min(length))
    };
    let rest = (start + 8..end).map(|_| u8::try_from(numbers.below(256)).expect("a byte"));
    (start, n.to_le_bytes().into_iter().chain(rest).take(end - start).collect())
}

/// The versions of a file, up to the one of operation `last`, of which each is after those before.
fn versions(file: u64, last: u64) -> impl Iterator<Item = (u64, Vec<u8>)> {
    let mut content = vec![0; LENGTHS[usize::try_from(file).expect("few")]];
    (file..=last).step_by(usize::try_from(FILES).expect("few")).map(move |n| {
        let (start, bytes) = written(n);
        content[start..start + bytes.len()].copy_from_slice(&bytes);
        (n, content.clone())
    })
}

fn write(vfs: &Vfs, n: u64) {
    let ino = vfs.lookup(Caller::ROOT, Ino::ROOT, &name(n)).expect("found").ino;
    let (start, bytes) = written(n);
    vfs.write(ino, start as u64, &bytes, false).expect("written");
}

/// Returns the operation that left the first `files` files in `directory` as they are.
fn last_of(vfs: &Vfs, directory: Ino, files: u64) -> u64 {
    let versions = (0..files).map(|file| version(vfs, directory, file)).collect::<Vec<_>>();
    let last = *versions.iter().max().expect("there are files");
    for (file, version) in (0..files).zip(&versions) {
        let expected = (0..=last).rev().find(|n| n % FILES == file).expect("each was written");
        assert_eq!(*version, expected, "file {file} after operation {last}: {versions:?}");
    }
    last
}

/// Each commit that is kept is as it was after an operation, none after a later one than the next.
fn remembers(vfs: &Vfs, last: u64) {
    let find = |at, name: &[u8]| vfs.lookup(Caller::ROOT, at, name).map(|found| found.ino);
    let moments = find(Ino::ROOT, b".weft").and_then(|past| find(past, b"at")).expect("there is a past");
    let (mut commits, mut after) = (0, 0);
    for commit in 1.. {
        // The first commits are not kept; there are few.
        let Ok(root) = find(moments, format!("@{commit}").as_bytes()) else {
            if commits == 0 && commit < 10 {
                continue;
            }
            break;
        };
        commits += 1;
        let files = (0..FILES).take_while(|file| find(root, &name(*file)).is_ok()).count() as u64;
        if files == 0 {
            continue;
        }
        let then = last_of(vfs, root, files);
        assert!((after..=last).contains(&then), "commit {commit} is after {then}, the one before after {after}");
        after = then;
    }
    assert!(commits > 0, "nothing is kept");
}

/// Returns the operation that wrote the content of `file`.
fn version(vfs: &Vfs, directory: Ino, file: u64) -> u64 {
    let ino = vfs.lookup(Caller::ROOT, directory, &name(file)).expect("found").ino;
    let bytes = vfs.read(ino, 0, 1 << 20).expect("readable").to_vec();
    let found = versions(file, OPERATIONS).find(|(_, content)| *content == bytes);
    found.unwrap_or_else(|| panic!("file {file} has bytes that no operation left")).0
}

/// An action of a program.
#[derive(Clone, Copy, Debug)]
enum Step {
    Write,
    /// A commit that survives a power cut a little later.
    Commit,
    Sync,
}

fn steps(numbers: &mut Numbers, count: usize) -> Vec<Step> {
    let step = |_| match numbers.below(10) {
        0..5 => Step::Write,
        5..8 => Step::Commit,
        _ => Step::Sync,
    };
    (0..count).map(step).collect()
}

/// Does `steps` after operation `last`; what fails is tried again. Tells the last operation.
fn run(vfs: &Vfs, disk: &Disk, steps: &[Step], mut last: u64) -> u64 {
    for step in steps {
        match step {
            Step::Write => {
                last += 1;
                write(vfs, last);
            }
            Step::Commit => drop(vfs.commit()),
            Step::Sync => {
                if vfs.sync().is_ok() {
                    disk.acknowledge(last);
                }
            }
        }
    }
    last
}

const fn setup(home: BlockHome, has_log: bool, keeps_history: bool) -> Setup {
    Setup { home, has_log, keeps_history }
}

const SETUPS: [Setup; 6] = [
    setup(BlockHome::Segments, true, false),
    setup(BlockHome::Segments, false, false),
    setup(BlockHome::Segments, true, true),
    setup(BlockHome::Database, true, false),
    setup(BlockHome::Database, false, false),
    setup(BlockHome::Database, false, true),
];

#[test]
fn whichever_sync_fails_and_loses_its_pages_nothing_acknowledged_later_is_lost() {
    for setup in SETUPS {
        for seed in 0..2 {
            let mut numbers = Numbers(seed);
            let mut steps = steps(&mut numbers, 24);
            // The sync after the one that failed is believed.
            steps.extend([Step::Write, Step::Sync, Step::Sync, Step::Sync]);
            for failing in 1.. {
                let machine = Machine::new(setup);
                let root = machine.make();
                let disk = Disk::watch(&root);
                let vfs = machine.open(&root);
                disk.fail_sync(failing);
                let last = run(&vfs, &disk, &steps, FILES - 1);
                let has_failed = disk.has_failed();
                let image = disk.image();
                assert_eq!(image.acknowledged, last, "sync {failing} failed, and no later one succeeded");
                for (name, keep) in [("none", 0), ("half", 1), ("all", 2)] {
                    let found = machine.survives(&image, name, &mut || numbers.below(2) < keep);
                    assert_eq!(found, last, "{setup:?}, seed {seed}, sync {failing} failed, {name} kept");
                }
                drop(vfs);
                if !has_failed {
                    break;
                }
            }
        }
    }
}

/// Programs whose power is cut, of each kind of volume, each at tens of moments.
fn rounds() -> u64 {
    std::env::var("WEFT_POWER_CUTS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(3)
}

#[test]
fn wherever_the_power_goes_a_prefix_is_left_that_holds_all_that_was_synced() {
    for setup in SETUPS {
        for seed in 0..rounds() {
            let mut numbers = Numbers(seed + 100);
            let steps = steps(&mut numbers, 40);
            let machine = Machine::new(setup);
            let root = machine.make();
            let disk = Disk::watch(&root);
            disk.take_images(7 + seed % 5);
            let vfs = machine.open(&root);
            disk.acknowledge(FILES - 1);
            let last = run(&vfs, &disk, &steps, FILES - 1);
            vfs.close().expect("closed");
            drop(vfs);
            let images = disk.images();
            assert!(images.len() > 10, "{} images", images.len());
            for (at, image) in images.iter().enumerate() {
                let kept = numbers.below(5);
                let found = machine.survives(image, &format!("cut {at}"), &mut || numbers.below(4) < kept);
                let acknowledged = image.acknowledged;
                let case = format!("{setup:?}, seed {seed}, image {at}");
                assert!((acknowledged..=last).contains(&found), "{case}: {found} is not after {acknowledged}");
            }
        }
    }
}

#[test]
fn a_lost_write_ahead_log_takes_nothing_that_was_acknowledged_or_is_told() {
    for setup in SETUPS {
        let mut refused = 0;
        for seed in 0..2 {
            let mut numbers = Numbers(seed + 200);
            let steps = steps(&mut numbers, 40);
            let machine = Machine::new(setup);
            let root = machine.make();
            let disk = Disk::watch(&root);
            let vfs = machine.open(&root);
            let mut last = FILES - 1;
            for (at, step) in steps.into_iter().enumerate() {
                last = run(&vfs, &disk, &[step], last);
                if !matches!(step, Step::Sync) {
                    continue;
                }
                match machine.survives_without_wal(&disk.image()) {
                    Some(found) => assert_eq!(found, last, "{setup:?}, seed {seed}, step {at}"),
                    None => refused += 1,
                }
            }
        }
        assert_eq!(refused > 3, setup.has_log, "{setup:?}: {refused} refusals");
    }
}

#[test]
fn closing_says_so_if_a_sync_fails_and_can_be_tried_again() {
    for setup in SETUPS {
        let mut told = 0;
        for failing in 1.. {
            let machine = Machine::new(setup);
            let root = machine.make();
            let disk = Disk::watch(&root);
            let vfs = machine.open(&root);
            let last = run(&vfs, &disk, &[Step::Write, Step::Sync, Step::Write, Step::Commit, Step::Write], FILES - 1);
            disk.fail_sync(failing);
            let close = || vfs.close().and_then(|()| vfs.close_store());
            let closed = close();
            if !disk.has_failed() {
                closed.expect("no sync has failed");
                break;
            }
            closed.expect_err("a sync has failed");
            close().expect("closed");
            told += 1;
            let image = disk.image();
            drop(vfs);
            assert_eq!(machine.survives(&image, "cut", &mut || false), last, "{setup:?}, sync {failing}");
        }
        assert!(told > 1, "{told} syncs");
    }
}
