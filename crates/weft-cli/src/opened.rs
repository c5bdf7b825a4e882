//! A volume opened for operations, and let go of again.

use crate::command;
use crate::daemon::Daemon;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use weft_store::log::{IntentLog, OperationLog};
use weft_store::postgres::OpenOptions;
use weft_store::sqlite::Layout;
use weft_store::{ErrorKind, Location, Store};
use weft_vfs::{Options, SystemClock, Vfs, say};

/// Bytes of the intent log: two halves, each for what the journal holds at most.
const LOG_BYTES: u64 = 32 << 20;

/// How often to look whether the volume is still ours.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// A volume opened for operations.
pub struct Opened {
    pub vfs: Arc<Vfs>,
    pub store: Arc<dyn Store>,
    /// Its files, if it lies in files.
    pub layout: Option<Layout>,
    read_only: bool,
}

impl Opened {
    /// Opens the volume that `named` means.
    pub fn open(named: &Path, options: Options, hold: OpenOptions) -> Result<Opened> {
        let location = Location::parse(named)?;
        let context = || format!("cannot open volume {location}");
        let loss = hold.loss;
        let volume = location.open(hold).with_context(context)?;
        for copy in &volume.set_aside {
            say(format_args!("kept a copy of what is given up: {}", copy.display()));
        }
        if let Some(why) = volume.store.disk_cache().and_then(|cache| cache.failure) {
            say(format_args!("going on without a disk cache: {why}"));
        }
        let read_only = options.read_only;
        // Who only reads makes no log, but must see what one holds.
        let file = match &volume.layout {
            Some(layout) if read_only => IntentLog::read(&layout.log)?,
            Some(layout) => Some(IntentLog::open(&layout.log, LOG_BYTES)?),
            None => None,
        };
        let file = file.map(|file| file.with(loss));
        let log = volume.intents.map(OperationLog::Rows).or(file.map(OperationLog::File));
        let vfs = Vfs::open(volume.store.clone(), log, options, Arc::new(SystemClock)).with_context(context)?;
        Ok(Opened { vfs, store: volume.store, layout: volume.layout, read_only })
    }

    /// Where a daemon in the background writes its messages: to `asked`, or to a file near the volume, or to one that is named for `what` it serves.
    pub fn log(&self, volume: &Path, asked: Option<&Path>, what: &Path) -> Result<PathBuf> {
        match (asked, &self.layout) {
            (Some(log), _) => Ok(log.into()),
            (None, Some(layout)) if layout.segments.is_some() => Ok(volume.join("weft.log")),
            (None, Some(_)) => Ok(volume.with_added_extension("log")),
            (None, None) => log_of(what),
        }
    }

    /// Leaves the volume once it is another daemon's, or not what this one committed any more. What is served stays, dead: whoever uses it is
    /// told, and neither reads what is not true any more nor writes into a directory below a mount. If another daemon took it, this one begins
    /// anew and waits for it; else a person must look.
    pub fn leave_when_lost(&self, daemon: &Daemon) -> Result<()> {
        if self.layout.is_some() {
            return Ok(());
        }
        // The volume is let go of when serving ends, whatever this thread does.
        let (store, vfs, daemon) = (Arc::downgrade(&self.store), Arc::downgrade(&self.vfs), daemon.clone());
        let watch = move || {
            let why = loop {
                let Some(held) = store.upgrade() else { return };
                if let Some(why) = held.lost() {
                    break why;
                }
                drop(held);
                #[expect(clippy::disallowed_methods, reason = "what happens to the volume is told to nobody")]
                std::thread::sleep(LOOK_AGAIN);
            };
            let left = vfs.upgrade().map_or(0, |vfs| vfs.stats().dirty_bytes);
            say(format_args!("{why}; {left} bytes of changes in memory could not be committed and are lost"));
            if why.kind() == ErrorKind::Locked {
                say(format_args!("waiting to have it again; unmounting or ending this process ends that"));
                let error = daemon.begin_anew();
                say(format_args!("{}", command::one_line(&error)));
            }
            std::process::exit(1);
        };
        std::thread::Builder::new().name("weft-held".into()).spawn(watch)?;
        Ok(())
    }

    /// Commits all and lets go of the volume.
    pub fn close(self) -> Result<()> {
        self.vfs
            .close()
            .context("not all changes could be committed; they are lost with this process unless they were synced")?;
        // After a crash the log holds what was synced, until someone has committed it.
        if let Some(layout) = &self.layout
            && layout.segments.is_none()
            && !self.read_only
            && self.vfs.has_log_in_place()
        {
            // All is in the one file now; what is left of the log says nothing.
            std::fs::remove_file(&layout.log).context("cannot remove the empty intent log")?;
        }
        Ok(())
    }
}

/// Where the messages about what is served at `what` go if no file of the volume is near.
fn log_of(what: &Path) -> Result<PathBuf> {
    let home = || {
        std::env::var_os("XDG_STATE_HOME")
            .map(PathBuf::from)
            .or_else(|| Some(std::env::home_dir()?.join(".local/state")))
    };
    let place = match rustix::process::geteuid().is_root() {
        true => PathBuf::from("/var/log"),
        false => home().context("cannot tell where to write messages; name a file with --log")?,
    };
    let place = place.join("weft");
    std::fs::create_dir_all(&place)
        .with_context(|| format!("cannot make {}; name a file with --log", place.display()))?;
    let name = what.to_string_lossy().trim_matches('/').replace('/', "-");
    Ok(place.join(format!("{name}.log")))
}
