//! Drives a volume and the model side by side, through commits, failures and crashes.

use crate::compare::compare;
use crate::faults::CrashStore;
use crate::model::{Model, NodeId, ROOT};
use crate::operations::{Operation, Step};
use std::collections::HashMap;
use std::sync::Arc;
use weft_store::log::IntentLog;
use weft_store::{BlockHome, VolumeOptions};
use weft_vfs::{
    AllocateMode, Caller, ErrorKind, Ino, Kind, MakeNode, ManualClock, OpNo, Options, SetAttributes, SetXattr, Vfs,
};

/// Block size of the volumes driven.
pub const BLOCK_BYTES: u32 = 4096;

const LOG_BYTES: u64 = 256 << 10;

/// Names that operations choose from: ordinary ones, so that they meet, and hostile ones.
fn name(index: usize) -> Vec<u8> {
    match index % 7 {
        4 => vec![b'x'; 255],
        5 => vec![0xff, b'\n', 0x80],
        6 => b" -rf".to_vec(),
        index => vec![b'a' + u8::try_from(index).expect("below 7")],
    }
}

fn xattr(index: usize) -> Vec<u8> {
    format!("user.{}", ["one", "two", "a/b"][index % 3]).into_bytes()
}

/// A volume and its model.
pub struct Driver {
    store: Arc<CrashStore>,
    vfs: Arc<Vfs>,
    directory: tempfile::TempDir,
    log: bool,
    model: Model,
    inos: HashMap<NodeId, Ino>,
    /// The model after each operation that changed something, by its number.
    past: Vec<(OpNo, Model)>,
    /// The last operation that a sync covered.
    synced: OpNo,
}

impl Driver {
    /// An empty volume, with an intent log if `log`.
    pub fn new(log: bool) -> Driver {
        let options = VolumeOptions {
            block_size: BLOCK_BYTES,
            inline_max: 100,
            home: BlockHome::Database,
            ..VolumeOptions::default()
        };
        let store = Arc::new(CrashStore::new(options));
        let directory = tempfile::tempdir().expect("a directory");
        let vfs = open(&store, &directory, log);
        let past = vec![(vfs.progress().0, Model::default())];
        Driver {
            store,
            vfs,
            directory,
            log,
            model: Model::default(),
            inos: HashMap::from([(ROOT, Ino::ROOT)]),
            past,
            synced: OpNo(0),
        }
    }

    /// Takes one step; tells the first thing that is wrong.
    pub fn step(&mut self, step: &Step) -> Result<(), String> {
        match step {
            Step::Do(operation) => self.operate(operation),
            Step::Compare => compare(&self.vfs, &self.model),
            Step::Sync => {
                let target = self.vfs.progress().0;
                if self.vfs.sync().is_ok() {
                    self.synced = target;
                }
                Ok(())
            }
            Step::Commit => {
                // A failure is injected: then nothing is claimed.
                let _ = self.vfs.commit();
                compare(&self.vfs, &self.model)
            }
            Step::Remount => {
                // What was injected may fail the first tries; all must be kept for the one that succeeds.
                let closed = (0..4).any(|_| self.vfs.close().is_ok());
                if !closed {
                    return Err("closing fails for good".into());
                }
                self.synced = self.vfs.progress().0;
                self.reopen()
            }
            Step::Crash { survives } => {
                self.store.crash(*survives);
                self.store.fail_next(0, weft_store::ErrorKind::Bug);
                self.reopen()
            }
            Step::Fail { count, kind } => {
                self.store.fail_next(*count, *kind);
                Ok(())
            }
        }
    }

    /// Opens the volume again: its state must be the model's after some operation that is not before the last
    /// sync, and exactly that.
    fn reopen(&mut self) -> Result<(), String> {
        self.store.fail_next(0, weft_store::ErrorKind::Bug);
        self.vfs = open(&self.store, &self.directory, self.log);
        let op = self.vfs.progress().0;
        if op < self.synced {
            return Err(format!("operations up to {} were synced, only {} are there", self.synced.0, op.0));
        }
        self.past.retain(|(past, _)| *past <= op);
        let (_, model) = self.past.last().ok_or("no model of that time")?;
        self.model = model.clone();
        compare(&self.vfs, &self.model).map_err(|error| format!("after operation {}: {error}", op.0))?;
        self.learn_inos(Ino::ROOT, ROOT);
        Ok(())
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

    fn pick(&self, index: usize, wanted: impl Fn(&crate::Node) -> bool) -> Option<(NodeId, Ino)> {
        let live = self.model.live(wanted);
        let id = *live.get(index % live.len().max(1))?;
        Some((id, self.inos[&id]))
    }

    fn directory(&self, index: usize) -> (NodeId, Ino) {
        self.pick(index, |node| node.kind == Kind::Directory).expect("the root is one")
    }

    fn file(&self, index: usize) -> Option<(NodeId, Ino)> {
        self.pick(index, |node| node.kind == Kind::File)
    }

    fn operate(&mut self, operation: &Operation) -> Result<(), String> {
        let before = self.vfs.progress().0;
        let agreed = self.on_both(operation);
        let (now, _) = self.vfs.progress();
        if now > before {
            self.past.push((now, self.model.clone()));
        }
        match agreed {
            Some((ours, theirs)) if ours != theirs => {
                Err(format!("{operation:?} gave {ours:?}, should give {theirs:?}"))
            }
            _ => Ok(()),
        }
    }

    /// What the volume and the model say of the operation; none if there is nothing to do it to.
    fn on_both(&mut self, operation: &Operation) -> Option<(Outcome, Outcome)> {
        match operation {
            Operation::Make { .. } | Operation::Symlink { .. } => self.make(operation),
            Operation::Link { node, directory, name: index } => {
                let (id, ino) = self.pick(*node, |_| true)?;
                let (at, parent) = self.directory(*directory);
                let ours = outcome(self.vfs.link(Caller::ROOT, ino, parent, &name(*index)).map(|_| 0));
                Some((ours, self.model.link(id, at, &name(*index)).map(|()| 0)))
            }
            Operation::Unlink { directory, name: index } => {
                let (at, parent) = self.directory(*directory);
                let ours = outcome(self.vfs.unlink(parent, &name(*index)).map(|()| 0));
                Some((ours, self.model.unlink(at, &name(*index)).map(|()| 0)))
            }
            Operation::RemoveDirectory { directory, name: index } => {
                let (at, parent) = self.directory(*directory);
                let ours = outcome(self.vfs.remove_directory(parent, &name(*index)).map(|()| 0));
                Some((ours, self.model.remove_directory(at, &name(*index)).map(|()| 0)))
            }
            Operation::Rename { from, to, mode } => {
                let ((a, a_ino), (b, b_ino)) = (self.directory(from.0), self.directory(to.0));
                let (old, new) = (name(from.1), name(to.1));
                let ours = outcome(self.vfs.rename((a_ino, &old), (b_ino, &new), *mode).map(|()| 0));
                Some((ours, self.model.rename((a, &old), (b, &new), *mode).map(|_| 0)))
            }
            Operation::Chmod { node, permissions } => {
                let (id, ino) = self.pick(*node, |_| true)?;
                let changes = SetAttributes { permissions: Some(*permissions), ..SetAttributes::default() };
                let ours = outcome(self.vfs.set_attributes(ino, changes).map(|_| 0));
                self.model.nodes[id].permissions = *permissions;
                Some((ours, Ok(0)))
            }
            Operation::SetXattr { node, name, value } => {
                let (id, ino) = self.pick(*node, |_| true)?;
                let ours =
                    outcome(self.vfs.set_xattr(ino, &xattr(*name), &[*value; 5], SetXattr::Any, false).map(|()| 0));
                self.model.nodes[id].xattrs.insert(xattr(*name), vec![*value; 5]);
                Some((ours, Ok(0)))
            }
            Operation::RemoveXattr { node, name } => {
                let (id, ino) = self.pick(*node, |_| true)?;
                let ours = outcome(self.vfs.remove_xattr(ino, &xattr(*name)).map(|()| 0));
                let removed = self.model.nodes[id].xattrs.remove(&xattr(*name));
                Some((ours, removed.map(|_| 0).ok_or(ErrorKind::NoAttribute)))
            }
            Operation::Write { .. }
            | Operation::Resize { .. }
            | Operation::Allocate { .. }
            | Operation::Copy { .. } => self.on_content(operation),
        }
    }

    fn make(&mut self, operation: &Operation) -> Option<(Outcome, Outcome)> {
        let (directory, index, kind, permissions, target) = match operation {
            Operation::Make { directory, name, kind, permissions } => {
                (*directory, *name, *kind, *permissions, Vec::new())
            }
            Operation::Symlink { directory, name, target } => {
                (*directory, *name, Kind::Symlink, 0o777, vec![*target; 9])
            }
            _ => return None,
        };
        let (at, parent) = self.directory(directory);
        let name = name(index);
        let ours = if kind == Kind::Symlink {
            self.vfs.make_symlink(Caller::ROOT, parent, &name, &target)
        } else {
            self.vfs.make(Caller::ROOT, parent, &name, MakeNode { kind, permissions, umask: 0, rdev: 0 })
        };
        let theirs = self.model.make(at, &name, kind, permissions, &target);
        if let (Ok(made), Ok(id)) = (&ours, &theirs) {
            self.inos.insert(*id, made.ino);
        }
        Some((outcome(ours.map(|_| 0)), theirs.map(|_| 0)))
    }

    fn on_content(&mut self, operation: &Operation) -> Option<(Outcome, Outcome)> {
        match operation {
            Operation::Write { file, offset, len, byte } => {
                let (id, ino) = self.file(*file)?;
                let data = vec![*byte; *len];
                let ours = outcome(self.vfs.write(ino, *offset as u64, &data, false).map(|_| 0));
                self.model.write(id, *offset, &data);
                Some((ours, Ok(0)))
            }
            Operation::Resize { file, size } => {
                let (id, ino) = self.file(*file)?;
                let changes = SetAttributes { size: Some(*size as u64), ..SetAttributes::default() };
                let ours = outcome(self.vfs.set_attributes(ino, changes).map(|_| 0));
                self.model.resize(id, *size);
                Some((ours, Ok(0)))
            }
            Operation::Allocate { file, offset, len, mode } => {
                let (id, ino) = self.file(*file)?;
                let ours = outcome(self.vfs.allocate(ino, *offset as u64, *len as u64, *mode).map(|()| 0));
                match mode {
                    AllocateMode::Extend => {
                        let size = self.model.nodes[id].content.len().max(offset + len);
                        self.model.resize(id, size);
                    }
                    AllocateMode::KeepSize => {}
                    AllocateMode::PunchHole | AllocateMode::ZeroRangeKeepSize => {
                        self.model.zero(id, *offset, *len, false)
                    }
                    AllocateMode::ZeroRange => self.model.zero(id, *offset, *len, true),
                }
                Some((ours, Ok(0)))
            }
            Operation::Copy { from, to, len } => {
                let ((a, a_ino), (b, b_ino)) = (self.file(from.0)?, self.file(to.0)?);
                let ours = self.vfs.copy_range((a_ino, from.1 as u64), (b_ino, to.1 as u64), *len as u64);
                // A commit that a failure was injected into: what was copied until then counts.
                let copied = match &ours {
                    Ok(copied) => usize::try_from(*copied).expect("small"),
                    Err(error) if error.kind() == ErrorKind::Invalid => *len,
                    Err(_) => return None,
                };
                let whole = self.model.clone().copy((a, from.1), (b, to.1), *len);
                if ours.is_ok() && whole.is_ok_and(|whole| copied < whole) {
                    let _ = self.model.copy((a, from.1), (b, to.1), copied);
                    return None;
                }
                Some((outcome(ours), self.model.copy((a, from.1), (b, to.1), copied).map(|copied| copied as u64)))
            }
            _ => None,
        }
    }
}

type Outcome = Result<u64, ErrorKind>;

fn outcome(result: weft_vfs::Result<u64>) -> Outcome {
    result.map_err(|error| error.kind())
}

fn open(store: &Arc<CrashStore>, directory: &tempfile::TempDir, log: bool) -> Arc<Vfs> {
    // Caches of next to nothing, so that everything is evicted and read again.
    let options =
        Options { metadata_cache_bytes: 1, block_cache_bytes: 1, background_commits: false, ..Options::default() };
    let log = log.then(|| IntentLog::open(&directory.path().join("log"), LOG_BYTES).expect("a log"));
    Vfs::open(store.clone(), log, options, Arc::new(ManualClock::default())).expect("opens")
}
