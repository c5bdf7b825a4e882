//! Random changes and restorations, on a store in memory and on those of users.

use super::*;
use proptest::prelude::*;
use tree::Tree;
use weft_store::sqlite::{self, check};
use weft_store::{BlockHome, CheckOptions, Finding, OpenOptions, Outcome, Repair, postgres};
use weft_testkit::Cluster;

/// A step; numbers choose among what is there.
#[derive(Clone, Copy, Debug)]
enum Step {
    Make { place: usize, name: u8, kind: u8 },
    Write { file: usize, offset: u64, len: usize, byte: u8 },
    Resize { file: usize, size: u64 },
    Chmod { path: usize, permissions: u32 },
    Xattr { path: usize, name: u8, value: Option<u8> },
    Remove { path: usize },
    Rename { from: usize, place: usize, name: u8, exchange: bool },
    Link { file: usize, place: usize, name: u8 },
    Hold { path: usize },
    Release,
    Commit,
    Restore { path: usize, commit: usize },
    Copy { path: usize, commit: usize, place: usize, name: u8 },
    Undelete { path: usize, commit: usize },
    Crash,
}

fn step() -> impl Strategy<Value = Step> {
    let (any, name) = (0..1000usize, 0..6u8);
    let offset = prop_oneof![Just(0), 0..200u64, 4000..5000u64, 0..40_000u64];
    let len = prop_oneof![1..90usize, 4000..9000usize];
    prop_oneof![
        6 => (any.clone(), name.clone(), 0..8u8).prop_map(|(place, name, kind)| Step::Make { place, name, kind }),
        6 => (any.clone(), offset.clone(), len, 0..4u8)
            .prop_map(|(file, offset, len, byte)| Step::Write { file, offset, len, byte }),
        2 => (any.clone(), offset).prop_map(|(file, size)| Step::Resize { file, size }),
        2 => (any.clone(), 0..0o1000u32).prop_map(|(path, permissions)| Step::Chmod { path, permissions }),
        2 => (any.clone(), 0..3u8, proptest::option::of(0..3u8))
            .prop_map(|(path, name, value)| Step::Xattr { path, name, value }),
        8 => any.clone().prop_map(|path| Step::Remove { path }),
        4 => (any.clone(), any.clone(), name.clone(), proptest::bool::weighted(0.2))
            .prop_map(|(from, place, name, exchange)| Step::Rename { from, place, name, exchange }),
        4 => (any.clone(), any.clone(), name.clone()).prop_map(|(file, place, name)| Step::Link { file, place, name }),
        1 => any.clone().prop_map(|path| Step::Hold { path }),
        1 => Just(Step::Release),
        4 => Just(Step::Commit),
        6 => (any.clone(), any.clone()).prop_map(|(path, commit)| Step::Restore { path, commit }),
        1 => (any.clone(), any.clone(), any.clone(), name)
            .prop_map(|(path, commit, place, name)| Step::Copy { path, commit, place, name }),
        2 => (any.clone(), any).prop_map(|(path, commit)| Step::Undelete { path, commit }),
        1 => Just(Step::Crash),
    ]
}

/// A volume under random steps, with its tree as of each commit that was noted.
struct Run {
    volume: Volume,
    commits: Vec<(CommitNo, Tree)>,
    held: Vec<Ino>,
    may_crash: bool,
}

impl Run {
    /// Makes what steps can begin with.
    fn populate(&self) {
        let volume = &self.volume;
        for directory in ["/a", "/b", "/a/a", "/a/b", "/b/a"] {
            volume.make(directory, DIRECTORY);
            volume.put(&format!("{directory}/e"), directory.as_bytes());
            volume.put(&format!("{directory}/f"), &directory.as_bytes().repeat(3000));
        }
        volume.link("/a/f", "/b/c");
        volume.link("/b/a/f", "/c");
    }

    fn paths(&self, wanted: impl Fn(Kind) -> bool) -> Vec<String> {
        let all = tree(&self.volume.vfs, "/");
        all.into_iter().filter(|(_, seen)| wanted(seen.kind)).map(|(path, _)| path).collect()
    }

    fn chosen(&self, number: usize, wanted: impl Fn(Kind) -> bool) -> Option<String> {
        let paths = self.paths(wanted);
        paths.get(number % paths.len().max(1)).cloned()
    }

    fn new_path(&self, place: usize, name: u8) -> String {
        let directory = self.chosen(place, |kind| kind == Kind::Directory).expect("the root");
        format!("{directory}/{}", char::from(b'a' + name))
    }

    /// The tree of then at `path`, as [`tree`] gives it.
    fn then(&self, commit: CommitNo, path: &str) -> Tree {
        tree(&self.volume.as_of(commit), path)
    }

    fn step(&mut self, step: Step) {
        self.volume.clock.advance(1_000_000_000);
        match step {
            Step::Hold { path } => {
                let Some(path) = self.chosen(path, |_| true) else { return };
                let ino = self.volume.at(&path);
                self.volume.vfs.hold(ino);
                self.held.push(ino);
            }
            Step::Release => {
                if let Some(ino) = self.held.pop() {
                    self.volume.vfs.release(ino, 1);
                }
            }
            Step::Commit => self.note_commit(),
            Step::Restore { path, commit } => self.restore(path, commit),
            Step::Copy { path, commit, place, name } => self.copy(path, commit, place, name),
            Step::Undelete { path, commit } => self.undelete(path, commit),
            Step::Crash if self.may_crash => {
                self.volume.vfs.commit_durably().expect("committed");
                self.held.clear();
                self.volume.crash();
            }
            Step::Crash => {}
            change => self.change(change),
        }
    }

    /// Makes a change as programs do; what cannot be is refused.
    fn change(&self, step: Step) {
        let volume = &self.volume;
        let vfs = &volume.vfs;
        let any = |_| true;
        let is_file = |kind| kind == Kind::File;
        match step {
            Step::Make { place, name, kind } => {
                let path = self.new_path(place, name);
                let (directory, name) = volume.place(&path);
                // One that is there stays.
                let _ = match kind {
                    0..=3 => vfs.make(Caller::ROOT, directory, name, FILE),
                    4..=6 => vfs.make(Caller::ROOT, directory, name, DIRECTORY),
                    _ => vfs.make_symlink(Caller::ROOT, directory, name, b"target"),
                };
            }
            Step::Write { file, offset, len, byte } => {
                let Some(path) = self.chosen(file, is_file) else { return };
                vfs.write(volume.at(&path), offset, &vec![byte; len], Writer::Privileged).expect("written");
            }
            Step::Resize { file, size } => {
                let Some(path) = self.chosen(file, is_file) else { return };
                let changes = SetAttributes { size: Some(size), ..SetAttributes::default() };
                vfs.set_attributes(volume.at(&path), changes).expect("set");
            }
            Step::Chmod { path, permissions } => {
                if let Some(path) = self.chosen(path, any) {
                    volume.chmod(&path, permissions);
                }
            }
            Step::Xattr { path, name, value } => {
                let Some(path) = self.chosen(path, |kind| kind != Kind::Symlink) else { return };
                let (ino, name) = (volume.at(&path), format!("user.{name}"));
                let _ = match value {
                    Some(value) => vfs.set_xattr(ino, name.as_bytes(), &[value], SetXattr::Any, false).map(|_| ()),
                    None => vfs.remove_xattr(ino, name.as_bytes()).map(|_| ()),
                };
            }
            Step::Remove { path } => {
                let Some(path) = self.chosen(path, any).filter(|path| !path.is_empty()) else { return };
                let (directory, name) = volume.place(&path);
                let _ = vfs.unlink(directory, name).or_else(|_| vfs.remove_directory(directory, name));
            }
            Step::Rename { from, place, name, exchange } => {
                let Some(from) = self.chosen(from, any).filter(|path| !path.is_empty()) else { return };
                let to = self.new_path(place, name);
                let mode = if exchange { RenameMode::Exchange } else { RenameMode::Replace };
                let _ = vfs.rename(volume.place(&from), volume.place(&to), mode);
            }
            Step::Link { file, place, name } => {
                let Some(path) = self.chosen(file, is_file) else { return };
                let to = self.new_path(place, name);
                let (directory, name) = volume.place(&to);
                let _ = vfs.link(Caller::ROOT, volume.at(&path), directory, name);
            }
            _ => unreachable!("no change"),
        }
    }

    fn copy(&self, path: usize, commit: usize, place: usize, name: u8) {
        let Some((commit, path)) = self.past_path(path, commit) else { return };
        let to = self.new_path(place, name);
        let before = tree(&self.volume.vfs, &to);
        let copied = self.volume.try_restore(&path, commit, Target::Elsewhere(to.clone().into()));
        assert_eq!(copied.is_ok(), before.is_empty(), "{copied:?}");
        if copied.is_ok() {
            self.is_as_of(&to, &path, commit);
        }
    }

    fn note_commit(&mut self) {
        let commit = self.volume.commit();
        let then = tree(&self.volume.vfs, "/");
        assert_eq!(self.then(commit, "/"), then, "as of the commit");
        self.commits.push((commit, then));
    }

    /// A path of a commit that was noted.
    fn past_path(&self, path: usize, commit: usize) -> Option<(CommitNo, String)> {
        let (commit, then) = self.commits.get(commit % self.commits.len().max(1))?;
        let path = then.keys().nth(path % then.len())?;
        Some((*commit, path.clone()))
    }

    fn restore(&mut self, path: usize, commit: usize) {
        let Some((commit, path)) = self.past_path(path, commit) else { return };
        let others = |tree: Tree| {
            let is_other = |(other, _): &(String, tree::Seen)| {
                !(other.starts_with(&format!("{path}/")) || *other == path || path.starts_with(other.as_str()))
            };
            tree.into_iter().filter(is_other).map(|(path, seen)| (path, seen.kind)).collect::<Vec<_>>()
        };
        let before = others(tree(&self.volume.vfs, "/"));
        let has_parent = path.is_empty() || {
            let (directory, _) = path.rsplit_once('/').expect("a path");
            let found = find(&self.volume.vfs, directory).map(|ino| self.volume.vfs.attributes(ino).expect("there"));
            found.is_some_and(|found| found.kind == Kind::Directory)
        };
        let restored = self.volume.try_restore(&path, commit, Target::Place);
        assert_eq!(restored.is_ok(), has_parent, "{path}: {restored:?}");
        if has_parent {
            self.is_as_of(&path, &path, commit);
        }
        assert_eq!(others(tree(&self.volume.vfs, "/")), before, "others than {path}");
    }

    fn undelete(&mut self, path: usize, commit: usize) {
        let Some((_, path)) = self.past_path(path, commit).filter(|(_, path)| !path.is_empty()) else { return };
        let is_there = find(&self.volume.vfs, &path).is_some();
        let target = Target::EmptyPlace { with_parents: true };
        let request = RestoreRequest { path: path.clone().into(), at: None, target, is_rehearsal: false };
        match self.volume.vfs.restore(&request) {
            Ok(report) => {
                assert!(!is_there);
                let newest = self.commits.iter().rfind(|(_, then)| then.contains_key(&path));
                // A directory is brought back as it was before it was emptied.
                let file = newest.filter(|(_, then)| then[&path].kind != Kind::Directory);
                assert!(file.is_none_or(|(commit, _)| report.then >= *commit), "{path}: {report:?}");
                self.is_as_of(&path, &self.place_then(&path, report.then), report.then);
            }
            // A file may be where a directory was.
            Err(error) => assert!(is_there || error.to_string().contains("is not a directory"), "{path}: {error}"),
        }
    }

    /// The path as of a commit of what was undeleted at `path`: if there was nothing, its directory
    /// lay elsewhere.
    fn place_then(&self, path: &str, commit: CommitNo) -> String {
        let then = self.volume.as_of(commit);
        if find(&then, path).is_some() {
            return path.to_owned();
        }
        let (directory, name) = path.rsplit_once('/').expect("a path");
        let directory = self.volume.at(directory);
        let lay = tree(&then, "/").into_keys().find(|path| find(&then, path) == Some(directory));
        format!("{}/{name}", lay.expect("the directory was there"))
    }

    fn is_as_of(&self, now: &str, then: &str, commit: CommitNo) {
        let (now, then) = (tree(&self.volume.vfs, now), self.then(commit, then));
        assert_eq!(now, then);
        check_links(&self.volume.vfs);
    }
}

fn run(store: CrashStore, steps: &[Step], may_crash: bool) -> Run {
    let mut run = Run { volume: Volume::over(store, options()), commits: Vec::new(), held: Vec::new(), may_crash };
    run.populate();
    run.note_commit();
    for step in steps {
        run.step(*step);
    }
    // All that was noted is there still, and the volume can be opened again.
    for (commit, then) in &run.commits {
        assert_eq!(&run.then(*commit, "/"), then, "commit {}", commit.0);
    }
    let before = tree(&run.volume.vfs, "/");
    run.held.drain(..).for_each(|ino| run.volume.vfs.release(ino, 1));
    run.volume.vfs.close().expect("closed");
    run.volume.reopen();
    assert_eq!(tree(&run.volume.vfs, "/"), before);
    run.volume.vfs.close().expect("closed");
    deleted::check(&*run.volume.store);
    run
}

pub(crate) fn undamaged(findings: weft_store::Result<Vec<Finding>>) {
    let findings = findings.expect("checked");
    let damage = findings.into_iter().filter(|finding| finding.outcome != Outcome::Note).collect::<Vec<_>>();
    assert!(damage.is_empty(), "{damage:?}");
}

pub(crate) const CHECK: CheckOptions = CheckOptions { repair: Repair::No, read_data: true };

fn config(cases: u32) -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(cases);
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

/// A directory is moved away and back, and loses a name meanwhile: that is found in the directory.
#[test]
fn what_a_directory_lost_while_it_lay_elsewhere_comes_back() {
    let steps = [
        Step::Link { file: 0, place: 92, name: 2 },
        Step::Commit,
        Step::Commit,
        Step::Commit,
        Step::Link { file: 0, place: 56, name: 2 },
        Step::Commit,
        Step::Make { place: 21, name: 1, kind: 4 },
        Step::Link { file: 0, place: 128, name: 0 },
        Step::Rename { from: 622, place: 0, name: 0, exchange: false },
        Step::Commit,
        Step::Commit,
        Step::Copy { path: 32, commit: 0, place: 316, name: 2 },
        Step::Link { file: 0, place: 367, name: 0 },
        Step::Commit,
        Step::Make { place: 21, name: 3, kind: 4 },
        Step::Make { place: 65, name: 3, kind: 0 },
        Step::Rename { from: 451, place: 8, name: 1, exchange: true },
        Step::Commit,
        Step::Restore { path: 399, commit: 46 },
        Step::Commit,
        Step::Undelete { path: 95, commit: 427 },
    ];
    run(CrashStore::new(volume_options()), &steps, true);
}

proptest! {
    #![proptest_config(config(300))]

    #[test]
    fn any_path_of_any_commit_comes_back_as_it_was(steps in proptest::collection::vec(step(), 1..60)) {
        run(CrashStore::new(volume_options()), &steps, true);
    }
}

proptest! {
    #![proptest_config(config(12))]

    #[test]
    fn the_same_in_files_which_stay_undamaged(
        steps in proptest::collection::vec(step(), 1..60),
        in_segments in any::<bool>(),
    ) {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("volume");
        let home = if in_segments { BlockHome::Segments } else { BlockHome::Database };
        let options = VolumeOptions { home, ..volume_options() };
        sqlite::create(&path, &options, (0, 0), weft_vfs::Timestamp(0)).expect("created");
        let run = run(CrashStore::over(sqlite::open(&path).expect("opened").store), &steps, false);
        drop(run);
        undamaged(check(&path, CHECK, &mut |_| {}));
    }

    #[test]
    fn the_same_in_postgresql(
        steps in proptest::collection::vec(step(), 1..60),
        own_table_from in prop::sample::select(vec![None, Some(0), Some(8192)]),
    ) {
        let address = Cluster::shared().address();
        let options = VolumeOptions { home: BlockHome::Database, own_table_from, ..volume_options() };
        postgres::create(&address, &options, (0, 0), weft_vfs::Timestamp(0)).expect("created");
        let store = postgres::open(&address, OpenOptions::default()).expect("opened");
        let run = run(CrashStore::over(store), &steps, false);
        drop(run);
        undamaged(postgres::check(&address, CHECK, &mut |_| {}));
        postgres::remove(&address).expect("removed");
    }
}
