//! Bringing back the past.

mod deleted;
mod generated;
mod left;
mod one_time;
mod tree;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tree::{check_links, find, tree};
use weft_store::{At, HistoryChange, HistoryFor, Moment, Timestamp, VolumeOptions, sqlite};
use weft_testkit::{Calls, CrashStore, Faults};
use weft_vfs::{
    Caller, CommitNo, Effect, Ino, Kind, MakeNode, ManualClock, Options, RenameMode, RestoreReport, RestoreRequest,
    SetAttributes, SetXattr, Target, Vfs, Writer, forgotten_records,
};

const FILE: MakeNode = MakeNode { kind: Kind::File, permissions: 0o644, umask: 0, rdev: 0 };
const DIRECTORY: MakeNode = MakeNode { kind: Kind::Directory, permissions: 0o755, umask: 0, rdev: 0 };

/// Bytes in a block of the volumes here.
const BLOCK: usize = 4096;

/// A volume that keeps all commits.
struct Volume {
    store: Arc<CrashStore>,
    clock: Arc<ManualClock>,
    vfs: Arc<Vfs>,
}

fn options() -> Options {
    Options { background: false, ..Options::default() }
}

fn volume_options() -> VolumeOptions {
    VolumeOptions { block_size: 4096, inline_max: 100, ..VolumeOptions::default() }
}

impl Volume {
    fn new() -> Volume {
        Volume::over(CrashStore::new(volume_options()), options())
    }

    fn over(store: CrashStore, options: Options) -> Volume {
        let (store, clock) = (Arc::new(store), Arc::new(ManualClock::default()));
        let vfs = Vfs::open(store.clone(), None, options, clock.clone()).expect("opens");
        let keep = || vec![HistoryChange::Keep("all 1d".into(), HistoryFor::All)];
        vfs.change_history(|_, _| Ok(keep())).expect("changed");
        Volume { store, clock, vfs }
    }

    fn reopen(&mut self) {
        self.vfs = Vfs::open(self.store.clone(), None, options(), self.clock.clone()).expect("opens");
    }

    /// Power is lost; only what was synced survives.
    fn crash(&mut self) {
        self.store.crash(0);
        self.reopen();
    }

    fn at(&self, path: &str) -> Ino {
        find(&self.vfs, path).unwrap_or_else(|| panic!("{path} is not there"))
    }

    /// The directory and the name of `path`.
    fn place<'p>(&self, path: &'p str) -> (Ino, &'p [u8]) {
        let (directory, name) = path.rsplit_once('/').expect("a path");
        (self.at(directory), name.as_bytes())
    }

    fn make(&self, path: &str, node: MakeNode) -> Ino {
        let (directory, name) = self.place(path);
        self.vfs.make(Caller::ROOT, directory, name, node).expect("made").ino
    }

    /// Writes all of a file, which may be new.
    fn put(&self, path: &str, content: &[u8]) -> Ino {
        let ino = find(&self.vfs, path).unwrap_or_else(|| self.make(path, FILE));
        let changes = SetAttributes { size: Some(0), ..SetAttributes::default() };
        self.vfs.set_attributes(ino, changes).expect("cut");
        self.vfs.write(ino, 0, content, Writer::Privileged).expect("written");
        ino
    }

    fn read(&self, path: &str) -> Vec<u8> {
        self.vfs.read(self.at(path), 0, 1 << 20).expect("read").to_vec()
    }

    fn remove(&self, path: &str) {
        let (directory, name) = self.place(path);
        match self.vfs.attributes(self.at(path)).expect("there").kind {
            Kind::Directory => self.vfs.remove_directory(directory, name).expect("removed"),
            _ => self.vfs.unlink(directory, name).expect("removed"),
        }
    }

    fn rename(&self, from: &str, to: &str) {
        self.vfs.rename(self.place(from), self.place(to), RenameMode::Replace).expect("renamed");
    }

    fn link(&self, from: &str, to: &str) {
        let (directory, name) = self.place(to);
        self.vfs.link(Caller::ROOT, self.at(from), directory, name).expect("linked");
    }

    fn chmod(&self, path: &str, permissions: u32) {
        let changes = SetAttributes { permissions: Some(permissions), ..SetAttributes::default() };
        self.vfs.set_attributes(self.at(path), changes).expect("set");
    }

    fn commit(&self) -> CommitNo {
        self.clock.advance(1_000_000_000);
        self.vfs.commit_durably().expect("committed")
    }

    fn as_of(&self, commit: CommitNo) -> Arc<Vfs> {
        let at = At::new(self.store.clone(), commit).expect("kept");
        let options = Options { read_only: true, ..options() };
        Vfs::open(Arc::new(at), None, options, self.clock.clone()).expect("opens")
    }

    fn try_restore(&self, path: &str, commit: CommitNo, target: Target) -> Result<RestoreReport, String> {
        self.clock.advance(1_000_000_000);
        let at = Some(Moment::Commit(commit));
        let request = RestoreRequest { path: path.as_bytes().into(), at, target, is_rehearsal: false };
        self.vfs.restore(&request).map_err(|error| error.to_string())
    }

    /// Restores `path` and checks that it is what it was at `commit`, also after a crash.
    fn restore(&mut self, path: &str, commit: CommitNo) -> RestoreReport {
        let report = self.try_restore(path, commit, Target::Place).expect("restored");
        self.is_as_of(path, path, commit);
        self.crash();
        self.is_as_of(path, path, commit);
        report
    }

    /// Checks that `now` is what `then` was at `commit`.
    fn is_as_of(&self, now: &str, then: &str, commit: CommitNo) {
        let (now, then) = (tree(&self.vfs, now), tree(&self.as_of(commit), then));
        assert!(!then.is_empty());
        assert_eq!(now.keys().collect::<Vec<_>>(), then.keys().collect::<Vec<_>>());
        for (path, seen) in &then {
            assert_eq!(&now[path], seen, "{path}");
        }
        check_links(&self.vfs);
    }

    /// A tree with some of everything, and its commit.
    fn sample(&self) -> CommitNo {
        self.make("/d", DIRECTORY);
        self.put("/d/small", b"inline");
        self.put("/d/large", &[7; 3 * BLOCK + 5]);
        let sparse = self.make("/d/sparse", FILE);
        self.vfs.write(sparse, 10 * BLOCK as u64, b"end", Writer::Privileged).expect("written");
        self.make("/d/sub", DIRECTORY);
        self.put("/d/sub/file", b"in sub");
        self.link("/d/sub/file", "/d/linked");
        self.vfs.make_symlink(Caller::ROOT, self.at("/d"), b"sym", b"small").expect("made");
        let device = MakeNode { kind: Kind::CharDevice, permissions: 0o600, umask: 0, rdev: 259 };
        self.make("/d/sub/device", device);
        self.vfs.set_xattr(self.at("/d/small"), b"user.colour", b"blue", SetXattr::Any, false).expect("set");
        self.put("/outside", b"outside");
        self.commit()
    }
}

#[test]
fn what_was_changed_comes_back_and_keeps_its_number() {
    let mut volume = Volume::new();
    let then = volume.sample();
    let before = ["/d/small", "/d/large", "/d/sub/file"].map(|path| volume.at(path));
    volume.put("/d/small", b"something longer than before that is not inline any more".repeat(9).as_slice());
    volume.vfs.write(volume.at("/d/large"), BLOCK as u64 + 1, b"xyz", Writer::Privileged).expect("written");
    volume.chmod("/d/sub/file", 0o400);
    volume.vfs.set_xattr(volume.at("/d/small"), b"user.colour", b"red", SetXattr::Any, false).expect("set");
    volume.vfs.set_xattr(volume.at("/d/sub"), b"user.new", b"1", SetXattr::Any, false).expect("set");
    volume.put("/d/sub/later", b"later");
    volume.commit();
    let report = volume.restore("/d", then);
    assert_eq!((report.back, report.removed), (0, 1));
    assert_eq!(["/d/small", "/d/large", "/d/sub/file"].map(|path| volume.at(path)), before);
    assert_eq!(volume.read("/outside"), b"outside");
}

#[test]
fn what_is_gone_gets_its_number_back_with_another_generation() {
    let mut volume = Volume::new();
    let then = volume.sample();
    let before = volume.vfs.attributes(volume.at("/d/large")).expect("there");
    volume.remove("/d/large");
    volume.remove("/d/sub/device");
    volume.commit();
    let report = volume.restore("/d", then);
    assert_eq!((report.back, report.removed), (2, 0));
    let after = volume.vfs.attributes(volume.at("/d/large")).expect("there");
    assert_eq!(after.ino, before.ino);
    assert_ne!(after.generation, before.generation);
    volume.put("/d/large", b"now");
    volume.commit();
    let report = volume.restore("/d", then);
    assert_eq!((report.back, report.changed, report.removed), (0, 1, 0));
    let kept = volume.vfs.attributes(volume.at("/d/large")).expect("there");
    assert_eq!((kept.ino, kept.generation), (after.ino, after.generation));
}

#[test]
fn what_lives_elsewhere_now_stays_there() {
    let mut volume = Volume::new();
    let then = volume.sample();
    let moved = volume.at("/d/sub");
    volume.remove("/d/linked");
    volume.rename("/d/sub", "/moved");
    volume.put("/moved/file", b"changed where it is now");
    volume.commit();
    let outside = tree(&volume.vfs, "/moved");
    volume.restore("/d", then);
    assert_eq!(tree(&volume.vfs, "/moved"), outside);
    assert_eq!(volume.at("/moved"), moved);
    assert_ne!(volume.at("/d/sub"), moved);
}

#[test]
fn a_hard_link_outside_sees_the_restored_content() {
    let mut volume = Volume::new();
    volume.make("/d", DIRECTORY);
    volume.put("/d/file", b"then");
    volume.link("/d/file", "/other");
    let then = volume.commit();
    volume.put("/other", b"now");
    volume.commit();
    let at = Some(Moment::Commit(then));
    let request = RestoreRequest { path: b"/d".into(), at, target: Target::Place, is_rehearsal: true };
    let told = volume.vfs.restore(&request).expect("told");
    assert_eq!((told.committed, told.changed, told.linked), (None, 1, 1));
    assert_eq!(volume.read("/d/file"), b"now", "a rehearsal changes nothing");
    volume.restore("/d", then);
    assert_eq!(volume.read("/other"), b"then");
}

#[test]
fn the_same_restoration_again_changes_nothing() {
    let mut volume = Volume::new();
    volume.make("/d", DIRECTORY);
    volume.put("/d/file", &[1; 100_000]);
    volume.put("/d/small", b"then");
    volume.link("/d/file", "/other");
    volume.link("/d/small", "/more");
    let then = volume.commit();
    ["/d/file", "/d/small", "/d"].into_iter().for_each(|path| volume.remove(path));
    volume.commit();
    volume.restore("/d", then);
    let copies = [volume.at("/d/file"), volume.at("/d/small")];
    assert_ne!(copies[0], volume.at("/other"), "that one lives where it is");
    let told = volume.try_restore("/d", then, Target::Place).expect("restored");
    assert_eq!((told.back, told.changed, told.removed, told.linked), (0, 0, 0, 0));
    let told = volume.try_restore("/d/file", then, Target::Place).expect("restored");
    assert_eq!((told.back, told.changed, told.unchanged), (0, 0, 1));
    assert_eq!([volume.at("/d/file"), volume.at("/d/small")], copies);
    // A copy that was changed is another file.
    volume.put("/d/small", b"now");
    volume.commit();
    let told = volume.try_restore("/d", then, Target::Place).expect("restored");
    assert_eq!((told.changed, volume.read("/d/small")), (1, b"then".to_vec()));
}

#[test]
fn the_root_is_restored_and_one_file_alone() {
    let mut volume = Volume::new();
    let then = volume.sample();
    volume.rename("/d/sub", "/sub");
    volume.remove("/d/large");
    volume.put("/d/small", b"now");
    let now = volume.commit();
    volume.restore("/d/small", then);
    assert_eq!(find(&volume.vfs, "/d/large"), None);
    volume.restore("/", then);
    volume.restore("/", now);
    volume.restore("/d", then);
}

#[test]
fn elsewhere_all_is_new_and_nothing_may_be_there() {
    let volume = Volume::new();
    let then = volume.sample();
    volume.put("/d/small", b"now");
    volume.commit();
    let there = |to: &str| Target::Elsewhere(to.into());
    volume.try_restore("/d", then, there("/copy")).expect("restored");
    volume.is_as_of("/copy", "/d", then);
    assert_eq!(volume.read("/d/small"), b"now");
    assert_ne!(volume.at("/copy"), volume.at("/d"));
    let refused = volume.try_restore("/d", then, there("/copy")).expect_err("it is there");
    assert_eq!(refused, "/copy is there");
    let refused = volume.try_restore("/d", then, there("/none/copy")).expect_err("no directory");
    assert_eq!(refused, "there is no directory /none");
    let refused = volume.try_restore("/none", then, Target::Place).expect_err("was not there");
    assert_eq!(refused, format!("/none was not there at commit {}", then.0));
}

#[test]
fn another_kind_of_inode_gives_way() {
    let mut volume = Volume::new();
    let then = volume.sample();
    volume.remove("/d/small");
    volume.make("/d/small", DIRECTORY);
    volume.put("/d/small/in", b"a directory now");
    volume.remove("/d/linked");
    volume.rename("/d/sub/file", "/d/linked");
    volume.remove("/d/sub/device");
    volume.remove("/d/sub");
    volume.put("/d/sub", b"a file now");
    let now = volume.commit();
    volume.restore("/d", then);
    volume.restore("/d", now);
}

#[test]
fn open_files_that_go_keep_what_they_have() {
    let volume = Volume::new();
    let then = volume.sample();
    let later = volume.put("/d/later", b"later");
    volume.vfs.hold(later);
    let large = volume.at("/d/large");
    volume.vfs.hold(large);
    volume.put("/d/large", b"now");
    volume.remove("/d/large");
    volume.commit();
    volume.try_restore("/d", then, Target::Place).expect("restored");
    volume.is_as_of("/d", "/d", then);
    assert_eq!(volume.vfs.read(later, 0, 9).expect("open").to_vec(), b"later");
    assert_eq!(volume.vfs.read(large, 0, 9).expect("open").to_vec(), b"now");
    assert_ne!(volume.at("/d/large"), large, "the number is that of the open file");
    volume.vfs.release(later, 1);
    volume.vfs.release(large, 1);
    volume.is_as_of("/d", "/d", then);
}

/// They are orphans then, whose rows a check reads as any others.
#[test]
fn directories_in_use_that_go_are_left_as_by_rmdir() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("volume");
    sqlite::create(&path, &volume_options(), (0, 0), Timestamp(0)).expect("created");
    let volume = Volume::over(CrashStore::over(sqlite::open(&path).expect("opened").store), options());
    let then = volume.sample();
    let [by_hand, restored] = ["/d/x", "/d/y"].map(|top| {
        let paths = ["", "/file", "/large", "/sub", "/sub/file"].map(|name| format!("{top}{name}"));
        let [_, file, large, sub, inner] = &paths;
        volume.make(top, DIRECTORY);
        volume.make(sub, DIRECTORY);
        volume.put(file, b"one");
        volume.put(inner, b"two");
        volume.put(large, &[5; 2 * BLOCK]);
        let inodes = paths.each_ref().map(|path| volume.at(path));
        inodes.iter().for_each(|ino| volume.vfs.hold(*ino));
        (paths, inodes)
    });
    volume.commit();
    // A restoration takes place a second later, and this at the same time.
    volume.clock.advance(1_000_000_000);
    by_hand.0.iter().rev().for_each(|path| volume.remove(path));
    volume.vfs.commit_durably().expect("committed");
    volume.clock.advance(-1_000_000_000);
    volume.try_restore("/d", then, Target::Place).expect("restored");
    volume.is_as_of("/d", "/d", then);
    let told = |ino: Ino| {
        let now = volume.vfs.attributes(ino).expect("held");
        (now.kind, now.nlink, now.size, now.allocated, now.mtime, now.ctime)
    };
    assert_eq!(restored.1.map(told), by_hand.1.map(told));
    assert_eq!(told(restored.1[0]).2, 0, "no entries");
    assert_eq!(volume.vfs.read(restored.1[1], 0, 9).expect("open").to_vec(), b"one");
    // As if the daemon were killed.
    drop(volume);
    generated::undamaged(sqlite::check(&path, generated::CHECK, &mut |_| {}));
}

#[test]
fn a_crash_leaves_all_of_it_or_nothing() {
    let mut volume = Volume::new();
    let then = volume.sample();
    volume.remove("/d/large");
    volume.put("/d/small", b"now");
    let now = volume.commit();
    for after in 0..10 {
        let calls = Faults { after, count: 100, kind: weft_store::ErrorKind::Full, calls: Calls::Commits, met: 0 };
        volume.store.set_faults(calls);
        let restored = volume.try_restore("/d", then, Target::Place);
        let met = volume.store.faults_met();
        volume.store.set_faults(Faults::NONE);
        assert_eq!(restored.is_err(), met > 0, "{restored:?}");
        volume.crash();
        volume.is_as_of("/d", "/d", if met > 0 { now } else { then });
        if met == 0 {
            return;
        }
    }
    panic!("no restoration succeeded");
}

/// Blocks that only the past has must not go while a restoration that names them waits.
#[test]
fn history_is_kept_until_a_restoration_is_committed() {
    let volume = Volume::new();
    let then = volume.sample();
    volume.remove("/d/large");
    volume.commit();
    let failing = Faults { after: 0, count: 100, kind: weft_store::ErrorKind::Full, calls: Calls::Commits, met: 0 };
    volume.put("/outside", b"not committed");
    volume.commit();
    volume.store.set_faults(Faults { after: 0, ..failing });
    volume.try_restore("/d", then, Target::Place).expect_err("commits fail");
    assert!(volume.vfs.end_history().is_err(), "it commits the restoration first");
    volume.store.set_faults(Faults::NONE);
    volume.vfs.end_history().expect("ended");
    assert_eq!(volume.read("/d/large"), [7; 3 * BLOCK + 5]);
}

#[test]
fn too_much_for_one_commit_is_refused() {
    let volume = Volume::over(CrashStore::new(volume_options()), Options { dirty_bytes_max: 1 << 16, ..options() });
    volume.make("/d", DIRECTORY);
    for number in 0..100 {
        volume.put(&format!("/d/{number}"), b"x");
    }
    let then = volume.commit();
    for number in 0..100 {
        volume.remove(&format!("/d/{number}"));
    }
    volume.commit();
    let refused = volume.try_restore("/d", then, Target::Place).expect_err("too much");
    assert!(refused.contains("too much for one commit"), "{refused}");
    volume.try_restore("/d/5", then, Target::Place).expect("restored");
}

#[test]
fn what_was_deleted_last_is_found_and_brought_back() {
    let volume = Volume::new();
    volume.sample();
    volume.put("/d/sub/file", b"second");
    volume.remove("/d/linked");
    let then = volume.commit();
    volume.remove("/d/sub/file");
    volume.remove("/d/sub/device");
    volume.remove("/d/sub");
    volume.commit();
    volume.put("/d/sub", b"a file for some time");
    volume.commit();
    volume.remove("/d/sub");
    volume.commit();
    let undelete = |path: &str, with_parents| {
        let target = Target::EmptyPlace { with_parents };
        let request = RestoreRequest { path: path.into(), at: None, target, is_rehearsal: false };
        volume.vfs.restore(&request).map_err(|error| error.to_string())
    };
    assert_eq!(undelete("/d/small", false).expect_err("there"), "/d/small is there");
    assert_eq!(undelete("/d/none", false).expect_err("none"), "no commit that is kept has /d/none");
    let error = undelete("/d/sub/file", false).expect_err("no parent");
    assert_eq!(error, "there is no directory /d/sub; --parents brings back directories on the way, too");
    let report = undelete("/d/sub/file", true).expect("undeleted");
    assert_eq!((report.then, report.back), (then, 2));
    assert_eq!(volume.read("/d/sub/file"), b"second");
    assert_eq!(find(&volume.vfs, "/d/sub/device"), None, "parents come without what else was in them");
    undelete("/d/sub/device", false).expect("undeleted");
    volume.is_as_of("/d/sub/device", "/d/sub/device", then);
    check_links(&volume.vfs);
}

#[test]
fn a_rehearsal_lists_paths() {
    let volume = Volume::new();
    let then = volume.sample();
    volume.remove("/d/large");
    volume.put("/d/small", b"now");
    volume.put("/d/later", b"later");
    let at = Some(Moment::Commit(then));
    let request = RestoreRequest { path: b"/d".into(), at, target: Target::Place, is_rehearsal: true };
    let told = volume.vfs.restore(&request).expect("told");
    let effect = |path: &[u8]| told.paths.iter().find(|told| told.path == path).map(|told| told.effect);
    assert_eq!(effect(b"/large"), Some(Effect::Back));
    assert_eq!(effect(b"/small"), Some(Effect::Changed));
    assert_eq!(effect(b"/later"), Some(Effect::Removed));
    assert_eq!(effect(b"/sub"), None);
    assert_eq!(find(&volume.vfs, "/d/large"), None);
}

#[test]
fn a_rehearsal_lists_each_name_that_comes_goes_or_changes_once() {
    let volume = Volume::new();
    for directory in ["/d", "/d/sub", "/d/gone"] {
        volume.make(directory, DIRECTORY);
    }
    for file in ["/d/a", "/d/b", "/d/saved", "/d/h1", "/d/both", "/d/sub/s", "/d/gone/g", "/d/out"] {
        volume.put(file, file.as_bytes());
    }
    volume.link("/d/h1", "/d/h2");
    let then = volume.commit();
    let rename = |from: &str, to: &str| volume.rename(from, to);
    rename("/d/a", "/d/renamed");
    rename("/d/sub", "/d/sub2");
    rename("/d/both", "/d/sub2/both");
    rename("/d/gone/g", "/d/swap");
    rename("/d/b", "/d/gone/g");
    rename("/d/swap", "/d/b");
    rename("/d/out", "/out");
    volume.put("/d/sub2/both", b"other");
    volume.put("/d/new", b"new");
    rename("/d/new", "/d/saved");
    volume.remove("/d/h1");
    volume.link("/d/sub2/s", "/d/extra");
    volume.put("/d/later", b"later");
    let at = Some(Moment::Commit(then));
    let request = RestoreRequest { path: b"/d".into(), at, target: Target::Place, is_rehearsal: true };
    let told = volume.vfs.restore(&request).expect("told");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let line = |told: &weft_vfs::PathEffect| {
        let from = told.from.as_ref().map(|from| format!(" from {}", text(from)));
        format!("{:?} {}{}", told.effect, text(&told.path), from.unwrap_or_default())
    };
    let expected = [
        "Changed ",
        "Moved /a from /renamed",
        "Moved /b from /gone/g",
        "Changed /both from /sub2/both",
        "Removed /extra",
        "Changed /gone",
        "Moved /gone/g from /b",
        "Back /h1",
        "Removed /later",
        "Back /out",
        "Changed /saved",
        "Changed /sub from /sub2",
    ];
    assert_eq!(told.paths.iter().map(line).collect::<Vec<_>>(), expected);
    let counts = [told.back, told.moved, told.changed, told.removed];
    assert_eq!(counts.iter().sum::<u64>(), told.paths.len() as u64);
    volume.try_restore("/d", then, Target::Place).expect("restored");
    volume.is_as_of("/d", "/d", then);
}

/// The removal of a directory takes several commits, each of which leaves less.
#[test]
fn a_directory_is_undeleted_as_it_was_before_its_removal_began() {
    let volume = Volume::new();
    volume.make("/d", DIRECTORY);
    for number in 0..6 {
        volume.put(&format!("/d/{number}"), b"x");
    }
    let whole = volume.commit();
    for number in 0..6 {
        volume.remove(&format!("/d/{number}"));
        volume.commit();
    }
    volume.remove("/d");
    volume.commit();
    let target = Target::EmptyPlace { with_parents: false };
    let request = RestoreRequest { path: b"/d".into(), at: None, target, is_rehearsal: false };
    assert_eq!(volume.vfs.restore(&request).expect("undeleted").then, whole);
    volume.is_as_of("/d", "/d", whole);
}

/// Blocks of the past are stored already: a full disk keeps nobody from having them back.
#[test]
fn a_restoration_takes_no_room_but_counts_by_the_quota() {
    let quota = 20 * BLOCK as u64;
    let options_of_volume = VolumeOptions { bytes_max: Some(quota), ..volume_options() };
    let volume = Volume::over(CrashStore::new(options_of_volume), options());
    volume.put("/large", &[1; 15 * BLOCK]);
    let then = volume.commit();
    volume.remove("/large");
    volume.put("/other", &[2; 10 * BLOCK]);
    volume.commit();
    let refused = volume.try_restore("/large", then, Target::Place).expect_err("the quota is used up");
    assert!(refused.contains("quota"), "{refused}");
    volume.remove("/other");
    volume.commit();
    volume.store.set_bytes_free(10 << 20);
    volume.commit();
    volume.try_restore("/large", then, Target::Place).expect("restored");
    volume.is_as_of("/large", "/large", then);
}

/// What programs change while a restoration is planned is not in the rows that it is planned by.
#[test]
fn changes_while_it_is_planned_are_seen() {
    let volume = Volume::new();
    let then = volume.sample();
    volume.put("/d/small", b"now");
    let (vfs, directory, small) = (volume.vfs.clone(), volume.at("/d/sub"), volume.at("/d/large"));
    volume.store.when_stored(move || {
        vfs.make(Caller::ROOT, directory, b"meanwhile", FILE).expect("made");
        vfs.write(small, 5, b"meanwhile", Writer::Privileged).expect("written");
        vfs.unlink(directory, b"device").expect("removed");
    });
    let report = volume.try_restore("/d", then, Target::Place).expect("restored");
    assert_eq!((report.back, report.removed), (1, 1));
    volume.is_as_of("/d", "/d", then);
}

#[test]
fn a_program_that_writes_all_the_time_keeps_nobody_from_restoring() {
    let volume = Volume::new();
    let then = volume.sample();
    for file in 0..100 {
        volume.put(&format!("/d/{file}"), b"later");
    }
    let (vfs, small, ends) = (volume.vfs.clone(), volume.at("/d/small"), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let writes = || {
            while !ends.load(Ordering::Relaxed) {
                vfs.write(small, 0, b"written all the time", Writer::Privileged).expect("written");
            }
        };
        scope.spawn(writes);
        let restored = volume.try_restore("/d", then, Target::Place);
        ends.store(true, Ordering::Relaxed);
        assert_eq!(restored.expect("restored").removed, 100);
    });
}

#[test]
fn a_file_that_is_taken_out_of_history_is_empty_in_it() {
    let volume = Volume::new();
    let first = volume.sample();
    let blocks = volume.store.block_count();
    volume.put("/d/large", &[8; 2 * BLOCK]);
    volume.chmod("/d/small", 0o600);
    let last = volume.commit();
    assert!(volume.store.block_count() > blocks);
    let forget = |path: &str| volume.vfs.forget_history(path.as_bytes(), 7).map_err(|error| error.to_string());
    assert_eq!(forget("/d/large"), Ok(1));
    assert_eq!(forget("/d/small"), Ok(1));
    let records = forgotten_records(&*volume.store).expect("readable");
    let told = records.iter().map(|record| (&record.path[..], record.user));
    assert_eq!(told.collect::<Vec<_>>(), [(&b"/d/large"[..], 7), (b"/d/small", 7)]);
    assert!(records.iter().all(|record| (record.files, record.versions) == (1, 1)), "{records:?}");
    assert!(forget("/d/sub").expect_err("a directory").contains("is a directory; only files"));
    let mut then = tree(&volume.as_of(first), "/d");
    assert!(then["/large"].content.is_empty() && then["/small"].content.is_empty());
    assert_eq!(then.remove("/sub/file").expect("there").content, b"in sub");
    assert_eq!(volume.read("/d/large"), [8; 2 * BLOCK]);
    volume.is_as_of("/d", "/d", last);
    assert_eq!(volume.store.block_count(), blocks - 4 + 2);
}

#[test]
fn what_was_taken_out_of_history_replaces_nothing() {
    // In memory no digests are kept, which tell.
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("volume");
    sqlite::create(&path, &volume_options(), (0, 0), Timestamp(0)).expect("created");
    let store = CrashStore::over(sqlite::open(&path).expect("opened").store);
    let volume = Volume::over(store, options());
    let first = volume.sample();
    volume.put("/d/large", &[8; 2 * BLOCK]);
    volume.put("/d/small", b"other");
    volume.remove("/d/small");
    volume.put("/d/empty", b"");
    volume.commit();
    for path in ["/d/large", "/d/small"] {
        volume.vfs.forget_history(path.as_bytes(), 7).expect("forgotten");
    }
    for (path, target) in [("/d/large", Target::Place), ("/d/small", Target::EmptyPlace { with_parents: false })] {
        let error = volume.try_restore(path, first, target).expect_err("nothing of it is left");
        assert!(error.contains(&format!("the content of {path} as of commit")), "{error}");
    }
    let report = volume.try_restore("/d", first, Target::Place).expect("restored");
    assert_eq!(report.forgotten, 2);
    assert_eq!(volume.read("/d/large"), [8; 2 * BLOCK]);
    let left = tree(&volume.vfs, "/d");
    assert!(!left.contains_key("/small") && !left.contains_key("/empty") && left.contains_key("/sub/file"));
    let report = volume.try_restore("/d", first, Target::Elsewhere(b"/copy".to_vec())).expect("restored");
    assert_eq!(report.forgotten, 2);
    let copy = tree(&volume.vfs, "/copy");
    assert!(!copy.contains_key("/small") && !copy.contains_key("/large") && copy.contains_key("/sub/file"));
}

#[test]
fn nothing_is_restored_whose_length_a_client_keeps() {
    let volume = Volume::new();
    volume.make("/d", DIRECTORY);
    volume.put("/d/file", b"then, and longer");
    let then = volume.commit();
    volume.put("/d/file", b"now");
    volume.commit();
    volume.vfs.client_keeps_lengths();
    let error = volume.try_restore("/d", then, Target::Place).expect_err("refused");
    assert!(error.contains("--writeback"), "{error}");
    assert_eq!(volume.read("/d/file"), b"now");
    volume.try_restore("/d", then, Target::Elsewhere(b"/copy".into())).expect("restored");
    assert_eq!(volume.read("/copy/file"), b"then, and longer");
}
