//! Drives a volume and the model side by side, through commits, failures and crashes.

use crate::compare::{Told, compare, compare_below};
use crate::digests::check_digests;
use crate::faults::{Calls, CrashStore, Faults};
use crate::model::{Model, NodeId, ROOT};
use crate::operations::Step;
use crate::rows::check_rows;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weft_digest::Digest;
use weft_store::log::IntentLog;
use weft_store::parts::store_in_parts;
use weft_store::{At, BlockHome, CommitNo, ErrorKind as StoreErrorKind, PastStore, RowStore, VolumeOptions};
use weft_vfs::{AtimePolicy, Caller, Ino, Kind, ManualClock, OpNo, Options, Vfs};

mod operate;

/// Bytes that a disk writes whole or not at all.
const SECTOR: usize = 512;

/// Block size of the volumes driven.
pub const BLOCK_BYTES: u32 = 4096;

/// The log and the memory that a driven volume has.
#[derive(Clone, Copy, Debug)]
pub struct Means {
    /// Size of its intent log; none without one.
    pub log_bytes: Option<u64>,
    /// Most bytes of changes it may keep in memory.
    pub dirty_bytes_max: u64,
    /// Most bytes of inodes and names, and of blocks, that it may keep in memory.
    pub cache_bytes: u64,
}

impl Means {
    /// Enough for any sequence of operations, but caches of next to nothing, so that everything is
    /// evicted and read again.
    pub const AMPLE: Means = Means { log_bytes: Some(1 << 20), dirty_bytes_max: 256 << 20, cache_bytes: 1 };
    /// As much, without an intent log, and with caches from which nothing need go.
    pub const NO_LOG: Means = Means { log_bytes: None, cache_bytes: 1 << 20, ..Means::AMPLE };
    /// So little that operations commit and the log fills up every few of them.
    pub const SCARCE: Means = Means { log_bytes: Some(32 << 10), dirty_bytes_max: 24 << 10, ..Means::AMPLE };
}

/// A volume and its model.
pub struct Driver {
    store: Arc<CrashStore>,
    vfs: Arc<Vfs>,
    clock: Arc<ManualClock>,
    directory: tempfile::TempDir,
    means: Means,
    model: Model,
    inos: HashMap<NodeId, Ino>,
    /// Models after each operation that changed something, by its number; one of them must hold.
    past: Vec<(OpNo, Vec<Model>)>,
    /// The last operation that a sync covered.
    synced: OpNo,
    /// Models and digests of the root at commits that are kept, if history is.
    kept: Option<BTreeMap<CommitNo, (Model, Option<Digest>)>>,
    /// True if the store was said to have no room for a while.
    was_full: bool,
    /// Number of the next time that blocks are stored in parts, if they are.
    parts: Option<u64>,
    /// True if blocks of files are merged after each commit.
    merges: bool,
}

impl Driver {
    /// An empty volume in memory.
    pub fn new(means: Means) -> Driver {
        Driver::over(CrashStore::new(Driver::volume_options(BlockHome::Database)), means)
    }

    /// Options of a volume to drive: small blocks, so that little data makes many.
    pub fn volume_options(home: BlockHome) -> VolumeOptions {
        VolumeOptions { block_size: BLOCK_BYTES, inline_max: 100, home, ..VolumeOptions::default() }
    }

    /// The empty volume in `store`.
    pub fn over(store: CrashStore, means: Means) -> Driver {
        let store = Arc::new(store);
        let directory = tempfile::tempdir().expect("a directory");
        let clock = Arc::new(ManualClock::default());
        let vfs = open(&store, directory.path(), means, &clock).expect("opens");
        let past = vec![(vfs.progress().0, vec![Model::default()])];
        Driver {
            store,
            vfs,
            clock,
            directory,
            means,
            model: Model::default(),
            inos: HashMap::from([(ROOT, Ino::ROOT)]),
            past,
            synced: OpNo(0),
            kept: None,
            was_full: false,
            parts: None,
            merges: false,
        }
    }

    /// Has blocks of files stored in parts, by `seed`, whenever the volume is not mounted.
    #[must_use]
    pub fn in_parts(self, seed: u64) -> Driver {
        Driver { parts: Some(seed), ..self }
    }

    /// Stores blocks in parts, if it is to.
    fn store_in_parts(&mut self) -> Result<(), String> {
        let Some(seed) = self.parts else { return Ok(()) };
        self.parts = Some(seed + 1);
        let faults = self.store.set_faults(Faults::NONE);
        store_in_parts(&*self.store, seed).map_err(|error| error.to_string())?;
        self.store.set_faults(faults);
        self.note_commit()
    }

    /// Has blocks of files merged after each commit.
    pub fn merge_blocks(&mut self) {
        self.merges = true;
    }

    /// Merges blocks of all files, if it is to: that changes nothing.
    fn merge(&mut self) -> Result<(), String> {
        if !self.merges {
            return Ok(());
        }
        let before = self.versions()?;
        let live = self.model.live(|node| node.kind == Kind::File);
        for ino in live.iter().map(|id| self.inos[id]) {
            let mut from = Some(0);
            while let Some(at) = from {
                let met = self.store.faults_met();
                match self.vfs.defragment(ino, at) {
                    Err(error) if self.store.faults_met() == met => return Err(format!("merging: {error}")),
                    Err(_) => return Ok(()),
                    Ok(done) => from = done.next,
                }
            }
        }
        self.note_commit()?;
        match self.versions()? == before {
            true => Ok(()),
            false => Err("merging changed rows of inodes, or the digest".into()),
        }
    }

    /// Rows of all inodes with the commits that wrote them, where history is kept, and the digest
    /// of the root.
    fn versions(&self) -> Result<(Vec<String>, Option<Digest>), String> {
        let failed = |error: weft_store::Error| error.to_string();
        let faults = self.store.set_faults(Faults::NONE);
        let last = self.store.header().map_err(failed)?.commit;
        let rows = match self.kept.is_some() {
            true => self.store.inodes_at(last, Ino(0)..Ino::MAX, 10_000).map_err(failed)?,
            false => Vec::new(),
        };
        let digest = self.store.digest(Ino::ROOT).map_err(failed)?;
        self.store.set_faults(faults);
        Ok((rows.iter().map(|row| format!("{row:?}")).collect(), digest))
    }

    /// Keeps all commits from now on.
    pub fn keep_history(&mut self) {
        self.vfs.keep_history("all forever", None).expect("no calls fail yet");
        self.kept = Some(BTreeMap::new());
    }

    /// The commits that were noted, ascending.
    pub(crate) fn kept_commits(&self) -> Vec<CommitNo> {
        self.kept.iter().flat_map(|kept| kept.keys().copied()).collect()
    }

    pub(crate) fn store(&self) -> Arc<CrashStore> {
        self.store.clone()
    }

    pub(crate) fn clock(&self) -> Arc<ManualClock> {
        self.clock.clone()
    }

    /// Notes what the last commit is to show from now on.
    fn note_commit(&mut self) -> Result<(), String> {
        let faults = self.store.set_faults(Faults::NONE);
        if let Some(kept) = &mut self.kept {
            let failed = |error: weft_store::Error| error.to_string();
            let commit = self.store.header().map_err(failed)?.commit;
            kept.insert(commit, (self.model.clone(), self.store.digest(Ino::ROOT).map_err(failed)?));
        }
        self.store.set_faults(faults);
        Ok(())
    }

    /// Each commit that was noted shows what the model was then: as a volume, and as paths of the
    /// present.
    pub fn compare_past(&self) -> Result<(), String> {
        let faults = self.store.set_faults(Faults::NONE);
        for (commit, (model, digest)) in self.kept.iter().flatten() {
            let compared = self.compare_commit(*commit, model, *digest);
            compared.map_err(|error| format!("as of commit {}: {error}", commit.0))?;
        }
        self.store.set_faults(faults);
        Ok(())
    }

    fn compare_commit(&self, commit: CommitNo, model: &Model, digest: Option<Digest>) -> Result<(), String> {
        let failed = |error: weft_vfs::Error| error.to_string();
        let at = Arc::new(At::new(self.store.clone(), commit).map_err(|error| error.to_string())?);
        if at.digest(Ino::ROOT).map_err(|error| error.to_string())? != digest {
            return Err("the root has another digest".into());
        }
        let options = Options { read_only: true, background: false, ..Options::default() };
        let then = Vfs::open(at, None, options, self.clock.clone()).map_err(failed)?;
        compare_below(&then, Ino::ROOT, model, Told::AsOfThen)?;
        let walk = |at, name: &[u8]| self.vfs.lookup(Caller::ROOT, at, name).map(|found| found.ino).map_err(failed);
        let moments = walk(walk(Ino::ROOT, b".weft")?, b"at")?;
        let root = walk(moments, format!("@{}", commit.0).as_bytes())?;
        compare_below(&self.vfs, root, model, Told::WithRightsOf(&self.model))
    }

    /// Takes one step; tells the first thing that is wrong.
    pub fn step(&mut self, step: &Step) -> Result<(), String> {
        self.take(step)?;
        if self.was_full
            && let Some(kept) = &mut self.kept
            && let Ok(Some(history)) = self.store.history()
        {
            // The oldest history has made room.
            kept.retain(|commit, _| *commit >= history.first);
        }
        Ok(())
    }

    fn take(&mut self, step: &Step) -> Result<(), String> {
        match step {
            Step::Do(operation) => self.operate(operation),
            Step::Compare => self.compare(),
            Step::Sync => {
                let target = self.vfs.progress().0;
                let met = self.store.faults_met();
                match self.vfs.sync() {
                    Ok(()) => self.synced = target,
                    Err(error) if self.store.faults_met() == met => return Err(format!("sync: {error}")),
                    Err(_) => {}
                }
                Ok(())
            }
            Step::Commit => {
                let met = self.store.faults_met();
                match self.vfs.commit() {
                    Err(error) if self.store.faults_met() == met => return Err(format!("commit: {error}")),
                    Err(_) => {}
                    Ok(()) => {
                        self.note_commit()?;
                        self.merge()?;
                    }
                }
                self.compare()
            }
            Step::Remount => {
                // What was injected may fail the first tries; all must be kept for the one that
                // succeeds.
                let closed = (0..8).any(|_| self.vfs.close().is_ok());
                if !closed {
                    return Err("closing fails for good".into());
                }
                self.synced = self.vfs.progress().0;
                self.store_in_parts()?;
                self.reopen()
            }
            Step::Crash { survives, torn } => {
                if let Some(torn) = torn
                    && self.store.log().is_none()
                {
                    self.tear_log(*torn);
                }
                self.store.crash(*survives);
                let faults = self.store.set_faults(Faults::NONE);
                let last = self.store.header().map_err(|error| error.to_string())?.commit;
                self.store.set_faults(faults);
                self.kept.iter_mut().for_each(|kept| kept.retain(|commit, _| *commit <= last));
                self.reopen()
            }
            Step::Fail { after, count, kind } => {
                self.fail(Faults { after: *after, count: *count, kind: *kind, ..Faults::NONE });
                Ok(())
            }
        }
    }

    /// Makes these calls of the store fail from now on.
    pub fn fail(&mut self, faults: Faults) {
        self.was_full |= faults.kind == StoreErrorKind::Full;
        self.store.set_faults(faults);
    }

    /// True if some calls that were to fail have done so.
    pub fn has_failed(&self) -> bool {
        self.store.faults_met() > 0
    }

    fn compare(&self) -> Result<(), String> {
        let faults = self.store.set_faults(Faults::NONE);
        let result = compare(&self.vfs, &self.model, &self.inos);
        let result =
            if self.store.keeps_digests() { result.and_then(|()| check_digests(&*self.store)) } else { result };
        self.store.set_faults(faults);
        result
    }

    /// Closes the volume.
    pub fn close(&self) -> Result<(), String> {
        self.vfs.close().map_err(|error| error.to_string())
    }

    /// A sync is under way: of the sectors that it appends to the intent log only a part of `torn`
    /// out of 255 is
    /// written. Nobody was told that it had succeeded.
    fn tear_log(&self, torn: u8) {
        let Some(path) = self.log_path() else { return };
        self.store.set_faults(Faults {
            count: u32::MAX,
            kind: StoreErrorKind::Unavailable,
            calls: Calls::Commits,
            ..Faults::NONE
        });
        let before = std::fs::read(&path).expect("the log");
        let _ = self.vfs.sync();
        let mut after = std::fs::read(&path).expect("the log");
        let sectors = (0..after.len()).step_by(SECTOR).map(|at| at..after.len().min(at + SECTOR));
        let changed: Vec<_> = sectors.filter(|sector| before[sector.clone()] != after[sector.clone()]).collect();
        let lost = (changed.len() * usize::from(255 - torn)).div_ceil(255);
        for sector in &changed[changed.len() - lost..] {
            after[sector.clone()].copy_from_slice(&before[sector.clone()]);
        }
        std::fs::write(&path, after).expect("the log");
    }

    fn log_path(&self) -> Option<PathBuf> {
        self.means.log_bytes.map(|_| log_path(self.directory.path()))
    }

    /// Opens the volume again: its state must be the model's after some operation that is not
    /// before the last sync, and exactly that. Opening itself may fail first.
    fn reopen(&mut self) -> Result<(), String> {
        let failing = self.open();
        let met = self.store.set_faults(Faults::NONE).met;
        self.vfs = match failing {
            Ok(vfs) => vfs,
            Err(_) if met > 0 => self.open().map_err(|error| error.to_string())?,
            Err(error) => return Err(format!("opening: {error}")),
        };
        let op = self.vfs.progress().0;
        if op < self.synced {
            return Err(format!("operations up to {} were synced, only {} are there", self.synced.0, op.0));
        }
        self.past.retain(|(past, _)| *past <= op);
        let (_, models) = self.past.last().ok_or("no model of that time")?;
        let mut result = Ok(());
        for model in models.clone() {
            self.model = model;
            self.model.release_all();
            result = self.compare();
            if result.is_ok() {
                break;
            }
        }
        result.map_err(|error| format!("after operation {}: {error}", op.0))?;
        self.past.last_mut().expect("just read").1 = vec![self.model.clone()];
        self.inos.clear();
        self.learn_inos(Ino::ROOT, ROOT);
        // An orphan that could not be deleted for a failure goes at the next mount.
        if met == 0 { self.account() } else { Ok(()) }
    }

    /// Right after opening, the rows agree with each other and nothing has leaked.
    fn account(&self) -> Result<(), String> {
        let (used, live) = (self.vfs.stats().inodes_used, self.model.live(|_| true).len() as u64);
        if used != live {
            return Err(format!("{used} inodes are said to be in use, {live} are"));
        }
        check_rows(&*self.store)
    }

    fn learn_inos(&mut self, ino: Ino, id: NodeId) {
        self.inos.insert(id, ino);
        for (name, child) in self.model.nodes[id].entries.clone() {
            let found = self.vfs.lookup(Caller::ROOT, ino, &name).expect("compared before");
            if found.kind == Kind::Directory {
                self.learn_inos(found.ino, child);
            } else {
                self.inos.insert(child, found.ino);
            }
        }
    }

    fn open(&self) -> weft_vfs::Result<Arc<Vfs>> {
        open(&self.store, self.directory.path(), self.means, &self.clock)
    }
}

fn log_path(directory: &Path) -> PathBuf {
    directory.join("log")
}

fn open(
    store: &Arc<CrashStore>,
    directory: &Path,
    means: Means,
    clock: &Arc<ManualClock>,
) -> weft_vfs::Result<Arc<Vfs>> {
    let options = Options {
        metadata_cache_bytes: means.cache_bytes,
        block_cache_bytes: means.cache_bytes,
        dirty_bytes_max: means.dirty_bytes_max,
        background: false,
        atime: AtimePolicy::Never,
        ..Options::default()
    };
    let log = means.log_bytes.map(|bytes| IntentLog::open(&log_path(directory), bytes)).transpose()?;
    let log = store.log().or(log.map(Into::into));
    Vfs::open(store.clone(), log, options, clock.clone())
}
