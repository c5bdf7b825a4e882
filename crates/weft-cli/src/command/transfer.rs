//! Code that import and export share: naming a place in a volume, workers, progress, counting.

mod claims;
mod directory;
pub mod encryption;
mod interrupt;
mod outcome;
mod same;
mod tree_path;
mod unfinished;

pub use claims::Claims;
pub use directory::{Directories, Directory, sync_parent, way_to};
pub use interrupt::Interrupt;
pub use outcome::{Interrupted, Transfer, What, Words};
pub use same::is_same;
pub use tree_path::TreePath;
pub use unfinished::Unfinished;

use crate::named::in_volume;
use crate::opened::{Opened, Settings};
use crate::shown;
use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use parking_lot::Mutex;
use serde_json::Value;
use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;
use weft_links::{Exported, LinkOptions};
use weft_store::{CommitNo, Moment, OpenOptions, parent_of};
use weft_vfs::{Attributes, Caller, ErrorKind, Ino, Options, Vfs};

/// Bytes copied at a time.
pub const CHUNK_BYTES: usize = 1 << 20;

/// Most files that wait to be copied.
const QUEUE_MAX: usize = 256;

/// Time between two drawings of the duration of a step.
const TICK: Duration = Duration::from_millis(500);

/// An open volume and the directory in it that was named.
pub struct Place {
    pub opened: Opened,
    pub path: Vec<Vec<u8>>,
    /// Set if this is root, and others may have written the volume.
    pub claims: Option<Claims>,
}

impl Place {
    /// Opens the volume and path of `VOLUME[:PATH]`. If a volume exists whose own name holds a
    /// colon, all of `named` is that volume.
    pub fn open(named: &OsStr, read_only: bool) -> Result<Place> {
        Place::open_by(named, read_only, None)
    }

    /// Opens it to be written to, without names for the past: any name can be made.
    pub fn open_without_past(named: &OsStr) -> Result<Place> {
        Place::open_with(named, |claims| {
            let mut settings = settings(claims.as_ref(), false, None);
            settings.vfs.history_name = None;
            settings
        })
    }

    /// Opens it to be read as of the moment `at`, or of now.
    pub fn open_at(named: &OsStr, at: Option<&Moment>) -> Result<Place> {
        Place::open_by(named, true, at)
    }

    /// Opens it to be read as of `at`; without it as it is now. A volume that a daemon of this user
    /// has is read beside that, as of a commit that it makes now.
    pub fn open_beside(named: &OsStr, at: Option<&Moment>) -> Result<Place> {
        let volume = in_volume(named).map_or(named, |(volume, _)| volume);
        let is_used = at.is_none() && crate::daemons::using(Path::new(volume))?.is_some();
        Place::open_at(named, if is_used { Some(&Moment::Now) } else { at })
    }

    fn open_by(named: &OsStr, read_only: bool, at: Option<&Moment>) -> Result<Place> {
        Place::open_with(named, |claims| settings(claims.as_ref(), read_only, at))
    }

    /// Opens `volume` and `path` in it to be read as of the moment `at`, or of now.
    pub fn of_parts(volume: &Path, path: &[u8], at: Option<&Moment>) -> Result<Place> {
        Place::of_parts_with(volume, path, |claims| settings(claims.as_ref(), true, at))
    }

    /// Opens it with the settings that follow from the claims of others.
    pub fn open_with(named: &OsStr, settings: impl FnOnce(Option<Claims>) -> Settings) -> Result<Place> {
        let (volume, path) = in_volume(named).unwrap_or((named, OsStr::new("")));
        Place::of_parts_with(Path::new(volume), path.as_bytes(), settings)
    }

    fn of_parts_with(volume: &Path, path: &[u8], settings: impl FnOnce(Option<Claims>) -> Settings) -> Result<Place> {
        crate::mounted::refuse_missing_in_mount(volume)?;
        let claims = Claims::of(&crate::mounted::volume_named(volume)?);
        let opened = Opened::open(volume, settings(claims), OpenOptions::default())?;
        Ok(Place { opened, path: names(path)?, claims })
    }

    /// Opens the same volume as of another moment. Returns also the commit that this is.
    pub fn also_at(&self, at: &Moment) -> Result<(Arc<Vfs>, CommitNo)> {
        self.opened.also(settings(self.claims.as_ref(), true, Some(at)))
    }

    /// Commits all and closes the volume.
    pub fn close(self) -> Result<()> {
        self.opened.close()
    }

    /// Refuses to copy from a directory in which the volume itself lies, or which is a part of it.
    pub fn refuse_own_source(&self, directory: &Path) -> Result<()> {
        let holds = |real: &Path| self.opened.layout.as_ref().is_some_and(|layout| layout.database.starts_with(real));
        self.refuse_own_part(directory)?;
        if directory.canonicalize().is_ok_and(|real| holds(&real)) {
            bail!("the volume itself lies in {}, and would be copied while it grows", directory.display());
        }
        Ok(())
    }

    /// Refuses a file or directory among the volume's own files.
    fn refuse_own_part(&self, directory: &Path) -> Result<()> {
        let layout = self.opened.layout.as_ref().filter(|layout| layout.segments.is_some());
        let Some(own) = layout.and_then(|layout| layout.database.parent()) else { return Ok(()) };
        // A symbolic link that leads nowhere lies where its parent does.
        let real = directory.canonicalize().or_else(|_| parent_of(directory).canonicalize());
        if real.is_ok_and(|real| real.starts_with(own)) {
            bail!("{} lies among the volume's own files; name a directory elsewhere", directory.display());
        }
        Ok(())
    }
}

/// Settings of a volume that is copied or read, as far as others have claims to it.
fn settings(claims: Option<&Claims>, read_only: bool, at: Option<&Moment>) -> Settings {
    // A link is not root's because others claim so.
    let exported = if claims.is_some() { Exported::Nobody } else { LinkOptions::default().exported };
    let vfs = Options { read_only, ..Options::default() };
    Settings { vfs, links: LinkOptions { exported, ..LinkOptions::default() }, at: at.cloned() }
}

/// Returns a path in JSON. A path that is no UTF-8 is also given in `path_hex`, as its text is not
/// exact.
pub fn path_as_json(path: &[u8]) -> serde_json::Map<String, Value> {
    bytes_as_json("path", path)
}

/// The same of other bytes, as the member `called`.
pub fn bytes_as_json(called: &str, bytes: &[u8]) -> serde_json::Map<String, Value> {
    let mut value = serde_json::Map::new();
    value.insert(called.into(), String::from_utf8_lossy(bytes).into());
    if std::str::from_utf8(bytes).is_err() {
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        value.insert(format!("{called}_hex"), hex.into());
    }
    value
}

/// Finds the entry at `names`, from the root of a volume.
pub fn find(vfs: &Vfs, names: &[Vec<u8>]) -> Result<Attributes> {
    let mut found = vfs.attributes(Ino::ROOT)?;
    for (depth, name) in names.iter().enumerate() {
        let looked_up = vfs.lookup(Caller::ROOT, found.ino, name);
        found = looked_up.map_err(|error| not_found(error, &names[..=depth].join(&b'/')))?;
    }
    Ok(found)
}

/// Finds the entry `name` of the directory `parent`.
pub fn find_in(vfs: &Vfs, parent: Ino, name: &[u8]) -> Result<Attributes> {
    vfs.lookup(Caller::ROOT, parent, name).map_err(|error| not_found(error, name))
}

fn not_found(error: weft_vfs::Error, path: &[u8]) -> anyhow::Error {
    let path = shown::bytes(path);
    let what = match error.kind() {
        ErrorKind::NotFound => format!("there is no {path} in the volume"),
        _ => format!("cannot look up {path} in the volume"),
    };
    anyhow::Error::new(error).context(what)
}

/// Returns the names in a path that begins in some directory and does not leave it.
pub fn names(path: &[u8]) -> Result<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    for name in path.split(|byte| *byte == b'/') {
        match name {
            b"" | b"." => {}
            b".." => bail!("a path in a volume or directory cannot hold '..': {}", String::from_utf8_lossy(path)),
            name => names.push(name.to_vec()),
        }
    }
    Ok(names)
}

/// Counts of a transfer, and its progress at a terminal.
pub struct Progress {
    bar: ProgressBar,
    files: AtomicU64,
    directories: AtomicU64,
    others: AtomicU64,
    bytes: AtomicU64,
}

impl Progress {
    pub fn new() -> Progress {
        // Draws nothing unless standard error is a terminal.
        let bar = ProgressBar::new_spinner();
        let style = ProgressStyle::with_template("{spinner} {msg}  {elapsed}").expect("a constant template");
        bar.set_style(style);
        let zero = || AtomicU64::new(0);
        Progress { bar, files: zero(), directories: zero(), others: zero(), bytes: zero() }
    }

    pub fn file(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let files = self.files.fetch_add(1, Ordering::Relaxed) + 1;
        if files.is_multiple_of(64) {
            let copied = crate::size::show(self.bytes.load(Ordering::Relaxed));
            self.bar.set_message(format!("{files} files, {copied}"));
            self.bar.tick();
        }
    }

    pub fn directory(&self) {
        self.directories.fetch_add(1, Ordering::Relaxed);
    }

    pub fn other(&self) {
        self.others.fetch_add(1, Ordering::Relaxed);
    }

    /// Prints a message beside the bar.
    pub fn say(&self, what: &str) {
        // Standard error may have no room, which is no reason to end.
        self.bar.suspend(|| {
            let _ = writeln!(std::io::stderr(), "{what}");
        });
    }

    /// Removes the bar.
    pub fn end(&self) {
        self.bar.finish_and_clear();
    }

    /// Returns the counts so far.
    pub fn counts(&self) -> Counts {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            files: count(&self.files),
            directories: count(&self.directories),
            others: count(&self.others),
            bytes: count(&self.bytes),
        }
    }
}

/// Counts of a transfer.
pub struct Counts {
    pub files: u64,
    pub directories: u64,
    pub others: u64,
    pub bytes: u64,
}

/// A bar for work in steps; draws nothing unless standard error is a terminal, and goes when
/// dropped.
pub struct Steps(ProgressBar);

/// See [`Steps`].
pub fn steps() -> Steps {
    let style =
        ProgressStyle::with_template("{msg:14} {wide_bar} {percent} %  {elapsed}").expect("a constant template");
    let bar = ProgressBar::new(0).with_style(style);
    // A step may take minutes without an update, and is at work all the same.
    if !bar.is_hidden() {
        bar.enable_steady_tick(TICK);
    }
    Steps(bar)
}

impl Steps {
    pub fn show(&self, progress: weft_store::Progress) {
        self.0.set_length(progress.total);
        self.0.set_position(progress.done);
        self.0.set_message(progress.step);
    }
}

impl Drop for Steps {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// Returns the exit code of a copy. Prints an error that prevented it, with exit code 2.
pub fn exit_code(done: Result<ExitCode>) -> ExitCode {
    done.unwrap_or_else(|error| {
        tracing::error!("{}", crate::shown::message(&crate::failure::one_line(&error)));
        ExitCode::from(2)
    })
}

/// Runs `produce` on this thread and `consume` for each item it sends on a few others. The first
/// error stops all.
pub fn in_parallel<T: Send>(
    produce: impl FnOnce(&Sender<T>) -> Result<()>,
    consume: impl Fn(T) -> Result<()> + Sync,
) -> Result<()> {
    let workers = std::thread::available_parallelism().map_or(2, usize::from).clamp(2, 8);
    let (send, receive) = sync_channel::<T>(QUEUE_MAX);
    let receive = Mutex::new(receive);
    let stopped = AtomicBool::new(false);
    let failure = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(item) = next(&receive) {
                    // After a failure the rest is taken and dropped, so that the producer does not
                    // wait.
                    if stopped.load(Ordering::Relaxed) {
                        continue;
                    }
                    if let Err(error) = consume(item) {
                        stopped.store(true, Ordering::Relaxed);
                        failure.lock().get_or_insert(error);
                    }
                }
            });
        }
        let sender = Sender { send, stopped: &stopped };
        let produced = produce(&sender);
        drop(sender);
        produced
    })?;
    failure.into_inner().map_or(Ok(()), Err)
}

fn next<T>(receive: &Mutex<Receiver<T>>) -> Option<T> {
    receive.lock().recv().ok()
}

/// Sends work to the workers.
pub struct Sender<'a, T> {
    send: SyncSender<T>,
    stopped: &'a AtomicBool,
}

impl<T> Sender<'_, T> {
    /// Sends one item. False: a worker failed, there is no need for more.
    pub fn send(&self, item: T) -> Result<bool> {
        if self.stopped.load(Ordering::Relaxed) {
            return Ok(false);
        }
        self.send.send(item).ok().context("the workers are gone")?;
        Ok(true)
    }
}

/// Returns a name in a directory as the system's functions take it.
pub fn os(name: &[u8]) -> &OsStr {
    OsStr::from_bytes(name)
}
