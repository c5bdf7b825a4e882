//! Power cuts and failing syncs of the whole program: database, write-ahead log, segments, intent
//! log.
//!
//! The volume has a few files; operation *n* writes version *n* of one of them. So what survives
//! says after how many operations it is, and whether it is whole.

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
const LENGTHS: [usize; 5] = [100, 9000, 20_000, 3000, 70_000];

/// Numbers that look random, always the same for a seed.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// A volume on a disk that may lose its power.
struct Machine {
    directory: tempfile::TempDir,
    home: BlockHome,
    has_log: bool,
}

impl Machine {
    fn new(home: BlockHome, has_log: bool) -> Machine {
        // In memory, where there is such a directory: the disk is in this test.
        let memory = Path::new("/dev/shm");
        let directory = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        Machine { directory: directory.expect("a directory"), home, has_log }
    }

    fn root(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn open(&self, root: &Path) -> Arc<Vfs> {
        self.try_open(root).expect("the tree opens")
    }

    fn try_open(&self, root: &Path) -> Result<Arc<Vfs>, String> {
        let volume = sqlite::open(&root.join("volume")).map_err(|error| error.to_string())?;
        let log = self.has_log.then(|| IntentLog::open(&volume.layout.log, 256 << 10).expect("a log").into());
        let options = Options { background: false, ..Options::default() };
        let opened = Vfs::open(volume.store, log, options, Arc::new(ManualClock::default()));
        opened.map_err(|error| error.to_string())
    }

    /// A volume with all its files, as of operation `FILES`, closed.
    fn make(&self) -> PathBuf {
        let root = self.root("live");
        std::fs::create_dir(&root).expect("made");
        let options = VolumeOptions { home: self.home, block_size: 16 << 10, ..VolumeOptions::default() };
        sqlite::create(&root.join("volume"), &options, (0, 0), Timestamp(0)).expect("made");
        let vfs = self.open(&root);
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
        let wal = if self.home == BlockHome::Segments { "volume/meta.sqlite-wal" } else { "volume-wal" };
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
        let versions = (0..FILES).map(|file| version(&vfs, file)).collect::<Vec<_>>();
        let last = *versions.iter().max().expect("there are files");
        for (file, version) in (0..FILES).zip(&versions) {
            let expected = (0..=last).rev().find(|n| n % FILES == file).expect("each was written");
            assert_eq!(*version, expected, "file {file} after operation {last}: {versions:?}");
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

fn content(n: u64) -> Vec<u8> {
    let length = LENGTHS[usize::try_from(n % FILES).expect("few")];
    let mut numbers = Numbers(n);
    let rest = (8..length).map(|_| u8::try_from(numbers.below(256)).expect("a byte"));
    n.to_le_bytes().into_iter().chain(rest).collect()
}

fn write(vfs: &Vfs, n: u64) {
    let ino = vfs.lookup(Caller::ROOT, Ino::ROOT, &name(n)).expect("found").ino;
    vfs.write(ino, 0, &content(n), false).expect("written");
}

/// Returns the operation that wrote the content of `file`.
fn version(vfs: &Vfs, file: u64) -> u64 {
    let ino = vfs.lookup(Caller::ROOT, Ino::ROOT, &name(file)).expect("found").ino;
    let bytes = vfs.read(ino, 0, 1 << 20).expect("readable").to_vec();
    let n = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
    assert!(bytes == content(n), "file {file} has wrong bytes, of operation {n}");
    n
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

const KINDS: [(BlockHome, bool); 4] = [
    (BlockHome::Segments, true),
    (BlockHome::Segments, false),
    (BlockHome::Database, true),
    (BlockHome::Database, false),
];

#[test]
fn whichever_sync_fails_and_loses_its_pages_nothing_acknowledged_later_is_lost() {
    for (home, has_log) in KINDS {
        for seed in 0..2 {
            let mut numbers = Numbers(seed);
            let mut steps = steps(&mut numbers, 24);
            // The sync after the one that failed is believed.
            steps.extend([Step::Write, Step::Sync, Step::Sync, Step::Sync]);
            for failing in 1.. {
                let machine = Machine::new(home, has_log);
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
                    assert_eq!(found, last, "{home:?}, log {has_log}, seed {seed}, sync {failing} failed, {name} kept");
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
    for (home, has_log) in KINDS {
        for seed in 0..rounds() {
            let mut numbers = Numbers(seed + 100);
            let steps = steps(&mut numbers, 40);
            let machine = Machine::new(home, has_log);
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
                let case = format!("{home:?}, log {has_log}, seed {seed}, image {at}");
                assert!((acknowledged..=last).contains(&found), "{case}: {found} is not after {acknowledged}");
            }
        }
    }
}

#[test]
fn a_lost_write_ahead_log_takes_nothing_that_was_acknowledged_or_is_told() {
    for (home, has_log) in KINDS {
        let mut refused = 0;
        for seed in 0..2 {
            let mut numbers = Numbers(seed + 200);
            let steps = steps(&mut numbers, 40);
            let machine = Machine::new(home, has_log);
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
                    Some(found) => assert_eq!(found, last, "{home:?}, log {has_log}, seed {seed}, step {at}"),
                    None => refused += 1,
                }
            }
        }
        assert_eq!(refused > 3, has_log, "{home:?}: {refused} refusals");
    }
}

#[test]
fn closing_says_so_if_a_sync_fails_and_can_be_tried_again() {
    for (home, has_log) in KINDS {
        let mut told = 0;
        for failing in 1.. {
            let machine = Machine::new(home, has_log);
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
            assert_eq!(machine.survives(&image, "cut", &mut || false), last, "{home:?}, log {has_log}, sync {failing}");
        }
        assert!(told > 1, "{told} syncs");
    }
}
