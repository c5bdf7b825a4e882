//! A volume opened for operations, and closed again.

use crate::advice::filled;
use crate::command::sync::commit_first;
use crate::daemon::{Daemon, Log, Supervisor, may_serve};
use crate::mounted;
use crate::shown;
use anyhow::{Context, Result, bail};
use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use weft_links::LinkOptions;
use weft_store::log::{IntentLog, needs_log};
use weft_store::sqlite::{Closing, Giving, Layout, close_to_others, give_to_owner, replaceable};
use weft_store::{At, CommitNo, Cookie, ErrorKind, Ino, Location, Moment, OpenOptions, Store, Timestamp};
use weft_vfs::{Clock, Options, SystemClock, Vfs, printable};

/// Bytes of the intent log: two halves, each for what the journal holds at most.
const LOG_BYTES: u64 = 64 << 20;

/// Share of the free space that an intent log takes at most: removals are committed in the rest.
const LOG_SHARE: u64 = 4;

/// Interval between checks that the volume is still ours.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// Settings of a volume while it is open.
#[derive(Clone, Default)]
pub struct Settings {
    /// Those of the volume itself.
    pub vfs: Options,
    /// Those of its links.
    pub links: LinkOptions,
    /// The moment as of which it is read, if not the present.
    pub at: Option<Moment>,
}

/// A volume opened for operations.
pub struct Opened {
    pub vfs: Arc<Vfs>,
    pub store: Arc<dyn Store>,
    /// Files of a volume in files.
    pub layout: Option<Layout>,
    pub location: Location,
    pub read_only: bool,
    /// The commit as of which it is read, if not the last.
    pub as_of: Option<AsOf>,
    /// The store itself, whatever moment is read.
    whole: Arc<dyn Store>,
}

/// A commit of the past.
#[derive(Clone, Copy)]
pub struct AsOf {
    pub commit: CommitNo,
    pub made: Timestamp,
}

impl Opened {
    /// Opens the volume `named`.
    pub fn open(named: &Path, settings: Settings, hold: OpenOptions) -> Result<Opened> {
        let Settings { vfs: mut options, links, at } = settings;
        options.read_only |= at.is_some();
        // The past is read beside whoever has the volume.
        let location = if at.is_some() { mounted::volume_named(named)? } else { mounted::unmounted(named)? };
        let context = || format!("cannot open volume {location}");
        let loss = hold.loss;
        if let Some(path) = location.path() {
            // Before it is held: a user who may not open the lock any more cannot hold it next
            // time.
            let closing = if options.read_only { Closing::Look } else { Closing::Close };
            let roots = give_to_owner(path, Giving::Look);
            let replaceable = if options.read_only { None } else { replaceable(path) };
            close_to_others(path, closing)
                .iter()
                .chain(&roots)
                .chain(&replaceable)
                .for_each(|line| tracing::warn!("{}", filled(line)));
        }
        if at == Some(Moment::Now) {
            commit_first(named, &location, "the last commit is shown");
        }
        // Looked for before: to close a file of an open volume would drop the locks that SQLite
        // has.
        let engine = location.engine();
        let note = if options.read_only { engine.note(false) } else { None };
        let volume = match (&at, options.read_only) {
            (Some(_), _) => engine.open_beside(hold),
            (None, true) => engine.open_to_read(hold),
            (None, false) => engine.open(hold),
        };
        drop(engine);
        let volume = volume.with_context(context)?;
        // Printed once, for any number of attempts.
        crate::notes::tell(note);
        for lost in &volume.given_up {
            tracing::warn!("going on without what is lost, as asked for: {lost}");
        }
        for copy in &volume.set_aside {
            tracing::info!("kept a copy of what is given up: {}", copy.display());
        }
        if !may_serve(&volume.store.header()?.uuid) {
            bail!(
                "{location} is another volume than before; unmount what was served, then mount the one that you want"
            );
        }
        if let Some(why) = volume.store.disk_cache().and_then(|cache| cache.failure) {
            tracing::warn!("going on without a disk cache: {why}");
        }
        let read_only = options.read_only;
        let file = match &volume.layout {
            // Operations that wait in the log are later than any commit.
            _ if at.is_some() => None,
            // A reader makes no log, but must see the operations in it.
            Some(layout) if read_only => {
                let _rights = layout.rights()?;
                Some(IntentLog::read_or_blank(&layout.log)?)
            }
            Some(layout) => open_log(layout, volume.store.space()?.bytes_free)?,
            None => None,
        };
        let file = file.map(|file| file.with(loss));
        let log = volume.log.filter(|_| at.is_none()).or(file.map(Into::into));
        let whole = volume.store.clone();
        let (store, as_of) = as_of(volume.store, at.as_ref()).with_context(context)?;
        let vfs = weft_links::open(store.clone(), log, options, links, Arc::new(SystemClock));
        let vfs = vfs.with_context(context)?;
        refuse_unreadable_root(&*store).with_context(context)?;
        Ok(Opened { vfs, store, layout: volume.layout, location, read_only, as_of, whole })
    }

    /// Opens the same volume as of another moment, to be read as long as this one is open. Returns
    /// also the commit that this is.
    pub fn also(&self, settings: Settings) -> Result<(Arc<Vfs>, CommitNo)> {
        let context = || format!("cannot open volume {}", self.location);
        let (store, _) = as_of(self.whole.clone(), settings.at.as_ref()).with_context(context)?;
        let commit = store.header()?.commit;
        let options = Options { read_only: true, background: false, ..settings.vfs };
        let vfs = weft_links::open(store, None, options, settings.links, Arc::new(SystemClock));
        Ok((vfs.with_context(context)?, commit))
    }

    /// Returns the log of a daemon in the background: `asked`, or a file near the volume, or one
    /// named for `what` it serves.
    pub fn log(&self, asked: Option<&Path>, what: &Path) -> Result<Log> {
        let Some(layout) = self.layout.as_ref().filter(|_| asked.is_none()) else {
            let path = asked.map_or_else(|| log_of(what), |log| Ok(log.into()))?;
            return Ok(Log { path });
        };
        // The lock is beside the volume, even if a copy is read.
        let path = match layout.segments {
            Some(_) => layout.hold.with_file_name("weft.log"),
            None => layout.hold.with_added_extension("log"),
        };
        Ok(Log { path })
    }

    /// Logs the commit as of which it is shown, if that is not the last.
    pub fn say_as_of(&self) {
        if let Some(AsOf { commit, made }) = self.as_of {
            tracing::info!("{} is shown as of commit {}, made at {}", self.location, commit.0, shown::time(made));
        }
    }

    /// Stops serving the volume once another daemon has taken it, or it no longer has this one's
    /// commits. First `end` ends the service. The mount stays, dead: programs get errors, and
    /// neither read stale data nor write into a directory below a mount. If another daemon took the
    /// volume, this one re-executes itself and waits for it; otherwise a person must look.
    pub fn leave_when_lost(&self, daemon: &Daemon, end: impl Fn() + Send + 'static) -> Result<()> {
        if self.layout.is_some() {
            return Ok(());
        }
        // The volume is closed when serving ends, whatever this thread does.
        let uuid = self.store.header()?.uuid;
        let (store, vfs, daemon) = (Arc::downgrade(&self.store), Arc::downgrade(&self.vfs), daemon.clone());
        let watch = move || {
            let mut away = None;
            let why = loop {
                let Some(held) = store.upgrade() else { return };
                away = told_of_silence(away, held.unanswered());
                if let Some(why) = held.lost() {
                    break why;
                }
                drop(held);
                #[expect(clippy::disallowed_methods, reason = "what happens to the volume is told to nobody")]
                std::thread::sleep(LOOK_AGAIN);
            };
            end();
            let left = vfs.upgrade().map_or(0, |vfs| vfs.stats().dirty_bytes);
            let is_taken = why.kind() == ErrorKind::Locked;
            let lost = format!("{left} bytes of changes had not been committed here, and are lost");
            let but =
                if is_taken { ", except those that an fsync acknowledged: whoever has it now has them" } else { "" };
            tracing::error!("{why}; {lost}{but}");
            if is_taken {
                tracing::info!("waiting to have it again; unmounting or ending this process ends that");
                let error = daemon.reexec(&uuid);
                tracing::error!("{}", crate::failure::one_line(&error));
            }
            std::process::exit(1);
        };
        std::thread::Builder::new().name("weft-held".into()).spawn(watch)?;
        Ok(())
    }

    /// Logs that the volume is now `used`, as in "mounted at /mnt", and tells the service manager.
    pub fn begin(&self, used: &str) -> Supervisor {
        let (commit, recovered) = (self.vfs.last_commit().0.0, self.vfs.stats().operations_recovered);
        let recovered = match recovered {
            0 => String::new(),
            count => format!("; {count} operations that were synced before a crash were recovered"),
        };
        let status = format!("{} is {used}, at commit {commit}{recovered}", self.location);
        // A line end would be another assignment of sd_notify(3).
        let status = printable(&status);
        tracing::info!("{status}");
        Supervisor::start(Arc::downgrade(&self.vfs), &status)
    }

    /// Commits all and closes the volume, and logs that: it was served until now, and has `ended`,
    /// as in "unmounted".
    pub fn end(self, ended: &str) -> Result<()> {
        let CommitNo(commit) = self.commit_and_close()?;
        tracing::info!("{ended}; all is committed, up to commit {commit}");
        Ok(())
    }

    /// Commits all and closes the volume.
    pub fn close(self) -> Result<()> {
        self.commit_and_close().map(drop)
    }

    /// The same. Returns the last commit.
    fn commit_and_close(self) -> Result<CommitNo> {
        let missing = self.vfs.failed_writeback();
        self.vfs
            .close()
            .context("not all changes could be committed; they are lost with this process unless they were synced")?;
        let needless = self.layout.as_ref().filter(|_| !self.read_only && self.vfs.has_log_in_place());
        // After a crash the log holds synced changes, until they are committed.
        let needless = if needs_log(self.store.header()?.counters.epoch) { None } else { needless };
        let mut closed = self.store.close();
        if let Some(layout) = needless {
            let lacks_room = closed.as_ref().is_err_and(|error| error.kind() == ErrorKind::Full);
            // By the log the next mount misses commits that are lost with the write-ahead log.
            if closed.is_ok() && layout.is_settled() || lacks_room {
                remove_log(layout)?;
            }
            if lacks_room {
                closed = self.store.close();
            }
        }
        closed.map_err(|error| match error.kind() {
            ErrorKind::Corrupt => anyhow::Error::from(error).context("what was committed is not whole any more"),
            _ => Unsettled(crate::failure::one_line(&error.into())).into(),
        })?;
        if let Some(missing) = missing {
            return Err(anyhow::anyhow!(missing).context("not all changes are in the volume"));
        }
        Ok(self.vfs.last_commit().0)
    }
}

/// Logs that the database's server has gone, or is back: it was `away` for so long at the last
/// look, and now is for `silence`.
fn told_of_silence(away: Option<Duration>, silence: Option<Duration>) -> Option<Duration> {
    match (away, silence) {
        (None, Some(since)) => {
            let seconds = since.as_secs();
            tracing::warn!("the database server has not answered for {seconds} seconds; operations wait for it");
        }
        (Some(since), None) => {
            tracing::info!("the database server answers again, after more than {} seconds", since.as_secs());
        }
        (None, None) | (Some(_), Some(_)) => {}
    }
    silence
}

/// Returns `store` as of the moment `at`, and the commit that this is; itself if that is the
/// present.
fn as_of(store: Arc<dyn Store>, at: Option<&Moment>) -> Result<(Arc<dyn Store>, Option<AsOf>)> {
    let Some(at) = at else { return Ok((store, None)) };
    let number = at.past_commit(&*store, SystemClock.now())?;
    let row = store.commit_row(number)?;
    let row = row.with_context(|| format!("commit {} is kept, but not listed among the commits", number.0))?;
    Ok((Arc::new(At::new(store, number)?), Some(AsOf { commit: number, made: row.time })))
}

/// Opens the intent log of a volume that has `free` bytes around it: whole, smaller where there is
/// less room, or none, and then an fsync commits.
fn open_log(layout: &Layout, free: u64) -> Result<Option<IntentLog>> {
    let _rights = layout.rights()?;
    refuse_planted(layout)?;
    let there = layout.log.metadata().map_or(0, |metadata| metadata.len());
    let fits = |bytes: u64| bytes <= there || (bytes - there).saturating_mul(LOG_SHARE) <= free;
    let sizes = [LOG_BYTES, LOG_BYTES / 2, LOG_BYTES / 8, LOG_BYTES / 32];
    let bytes = sizes.into_iter().find(|bytes| fits(*bytes)).unwrap_or(0);
    if bytes == 0 {
        tracing::warn!("there is no room for an intent log: each fsync commits");
        if !layout.log.exists() {
            return Ok(None);
        }
    }
    // An existing log may hold operations, whatever its size.
    Ok(Some(IntentLog::open(&layout.log, bytes)?))
}

/// Refuses an intent log that another user owns, who would read synced data.
fn refuse_planted(layout: &Layout) -> Result<()> {
    let (Ok(log), Ok(database)) = (layout.log.symlink_metadata(), layout.database.metadata()) else { return Ok(()) };
    let path = layout.log.display();
    if log.uid() != database.uid() && log.uid() != rustix::process::geteuid().as_raw() {
        bail!(
            "the intent log {path} belongs to another user (number {}) than the volume; find out who put it there, and \
               remove it if it is not the volume's",
            log.uid()
        );
    }
    Ok(())
}

/// Removes an intent log of which all is committed, if it is not to stay: one beside a volume that
/// is one file, and one that is smaller than it should be.
fn remove_log(layout: &Layout) -> Result<()> {
    let _rights = layout.rights()?;
    let Ok(metadata) = layout.log.metadata() else { return Ok(()) };
    if layout.segments.is_none() || metadata.len() < LOG_BYTES {
        std::fs::remove_file(&layout.log).context("cannot remove the empty intent log")?;
    }
    Ok(())
}

/// Error: all is committed, but not all at its final place once the volume is closed.
#[derive(Debug)]
pub struct Unsettled(String);

impl fmt::Display for Unsettled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}); {UNSETTLED_ADVICE}", UNSETTLED, self.0)
    }
}

impl std::error::Error for Unsettled {}

/// Message about it, and advice.
pub const UNSETTLED: &str =
    "all changes are committed and safe, but the write-ahead log could not be copied into the database";
pub const UNSETTLED_ADVICE: &str = "free some space, then mount and unmount the volume again; until then do not copy or \
                                    move it without the files beside it";

/// Refuses a database whose root SQLite cannot read: nobody would get beyond that error, but
/// `weft check --salvage` does. Rows that are damaged in themselves are served as such.
fn refuse_unreadable_root(store: &dyn Store) -> weft_store::Result<()> {
    let (row, names) = (store.inodes(Ino::ROOT, 1).map(drop), store.names(Ino::ROOT, Cookie(0), 1).map(drop));
    let read = [row, names, store.xattrs(Ino::ROOT).map(drop)];
    read.into_iter().filter(|read| read.as_ref().is_err_and(weft_store::Error::is_malformed)).collect()
}

/// Returns the log file for what is served at `what` if no file of the volume is near.
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
