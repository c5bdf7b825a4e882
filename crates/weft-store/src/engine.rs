//! The border between commands and what keeps a volume as a whole: making, opening, checking it.
//!
//! [`Location::engine`](crate::Location::engine) chooses an [`Engine`] by a volume's address, and
//! is the only place that does. `sqlite` and `postgres` implement it.

use crate::disk_cache::DiskCacheOptions;
use crate::error::Result;
use crate::finding::{CheckOptions, Finding, Progress};
use crate::log::{Loss, OperationLog};
use crate::row::{CommitRow, Timestamp};
use crate::sqlite::Layout;
use crate::store::{Header, Store, VolumeOptions};
use crate::upgrade::{Upgrade, Upgraded};
use crate::waiting::Waiting;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// A volume as a whole, whether it is there or not: held by nobody through this alone.
pub trait Engine {
    /// Returns the engine's name, for programs.
    fn name(&self) -> &'static str;

    /// Makes the volume, with a root directory owned by `owner` (user, group) with permissions
    /// 0755, made by commit 1 at `time`. Leaves nothing behind if it fails.
    fn create(&self, options: &VolumeOptions, owner: (u32, u32), time: Timestamp) -> Result<()>;

    /// Makes the volume as [`Engine::create`] does, and opens it. Nobody else can open it until
    /// [`Engine::finish`], not even after this process was killed.
    fn begin(&self, options: &VolumeOptions, time: Timestamp) -> Result<Begun>;

    /// Opens the volume that [`Engine::begin`] made earlier and that was not finished, if one is
    /// there. It stays one that nobody else can open. `Locked` if another process holds it.
    fn begin_again(&self) -> Result<Option<Opened>>;

    /// Has all be able to open the volume that [`Engine::begin`] made, and that is closed now.
    fn finish(&self) -> Result<()>;

    /// Removes the volume that [`Engine::begin`] made, and that is closed now. `had_place` is what
    /// that returned.
    fn discard(&self, had_place: bool) -> Result<()>;

    /// Opens the volume and holds it. Nothing in it changes before the first commit.
    fn open(&self, options: OpenOptions) -> Result<Opened>;

    /// Opens the volume as [`Engine::open`] does, for nothing but reading: also where nothing can
    /// be written.
    fn open_to_read(&self, options: OpenOptions) -> Result<Opened> {
        self.open(options)
    }

    /// Opens the volume to read what it has committed, beside whoever holds it. Two reads of the
    /// present may be of two commits.
    fn open_beside(&self, options: OpenOptions) -> Result<Opened> {
        self.open_to_read(options)
    }

    /// Says, in a line for the user, how a volume is read (or checked) that lies where nothing can
    /// be written.
    fn note(&self, _is_checked: bool) -> Option<String> {
        None
    }

    /// Reads the header of the volume, held or not, as of its last commit.
    fn header(&self) -> Result<Header>;

    /// All commits that the volume remembers, in their order; also while it is held.
    fn commits(&self) -> Result<Vec<CommitRow>>;

    /// Reports the operations in the intent log of a volume that nobody holds, and the loss that a
    /// mount would find.
    fn waiting(&self) -> Result<Waiting>;

    /// Looks for damage, and repairs it as `options` say.
    fn check(&self, options: CheckOptions, progress: &mut dyn FnMut(Progress)) -> Result<Vec<Finding>>;

    /// Reads all of the volume, held or not, and verifies it.
    fn scrub(&self, progress: &mut dyn FnMut(Progress)) -> Result<Vec<Finding>>;

    /// Brings a volume of an older format to this one.
    fn upgrade(&self, mode: Upgrade, progress: &mut dyn FnMut(Progress)) -> Result<Upgraded>;

    /// Returns the bytes that the volume takes where it lies, if that can be told.
    fn size(&self) -> Result<Option<u64>>;
}

/// Options for opening a volume. Those on leases and servers are for volumes that have them.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// Time that the volume stays ours after the last sign of life.
    pub lease: Duration,
    /// Time to wait for another daemon to let go.
    pub wait: Duration,
    /// Time that operations wait for a server that has gone, since it went, before they fail.
    pub patience: Duration,
    /// Returns true if whoever waits for what the calling thread reads from a server was killed.
    pub is_given_up: fn() -> bool,
    /// Cache of blocks on a local disk, if any.
    pub disk_cache: Option<DiskCacheOptions>,
    /// The action to take where synced operations are lost.
    pub loss: Loss,
    /// Words for the purpose of holding it, shown to others: "mounted at /mnt".
    pub purpose: String,
    /// Tells the user of a wait that takes long.
    pub tell: fn(&str),
}

impl Default for OpenOptions {
    fn default() -> OpenOptions {
        let (lease, patience) = (Duration::from_secs(15), Duration::from_secs(60));
        let (loss, purpose) = (Loss::Refuse, String::new());
        let (wait, disk_cache) = (Duration::ZERO, None);
        OpenOptions { lease, wait, patience, is_given_up: || false, disk_cache, loss, purpose, tell: |_| () }
    }
}

/// A volume that is being made.
pub struct Begun {
    /// The volume, open.
    pub opened: Opened,
    /// True if its place was there before: a directory, or a schema.
    pub had_place: bool,
}

/// An open volume: exclusively held until dropped.
pub struct Opened {
    /// Its rows and blocks.
    pub store: Arc<dyn Store>,
    /// Its files, if it lies in files.
    pub layout: Option<Layout>,
    /// Its intent log, if that is no file.
    pub log: Option<Box<dyn OperationLog>>,
    /// Copies of what was given up to open it.
    pub set_aside: Vec<PathBuf>,
    /// Losses that were found and accepted, as the caller asked for.
    pub given_up: Vec<String>,
}
