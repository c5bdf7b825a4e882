//! Making and opening volumes.

use super::apply::{Writer, refuse_lost_tail};
use super::aside::{self, Lost, leave_wal, set_aside_misfit};
use super::behind::{self, Verdict};
use super::check::newest;
use super::connection::{self, Access, AtClose, connect_somehow};
use super::file_header::FileHeader;
use super::foreign::Alone;
use super::holder::InUse;
use super::layout::{Layout, beside};
use super::lost_segments;
use super::lost_wal::LostWal;
use super::medium::{self, Medium, Need, Reading};
use super::names::Names;
use super::network::refuse_shared;
use super::read::unsigned;
use super::readers::Readers;
use super::renew::Database;
use super::schema::{self, APPLICATION_ID};
use super::segments::Segments;
use super::shape;
use super::unfinished;
use super::upgrade::State;
use super::{SqliteStore, read};
use crate::FORMAT;
use crate::batch::Counters;
use crate::copies::{sync_beside, sync_directory};
use crate::digests::ZeroValues;
use crate::error::{Error, Result};
use crate::files;
use crate::log::Loss;
use crate::missing::refuse_rootless;
use crate::row::{CommitNo, Ino, Timestamp};
use crate::store::{BlockHome, Header, VolumeOptions};
use crate::user::{AtEnd, Rights};
use parking_lot::Mutex;
use rusqlite::Connection;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// An open volume: exclusively held until dropped.
pub struct Volume {
    /// Its rows and blocks.
    pub store: Arc<SqliteStore>,
    /// Its files.
    pub layout: Layout,
    /// Copies of what was given up to open it.
    pub set_aside: Vec<PathBuf>,
    /// Losses that were found and accepted, as the caller asked for.
    pub given_up: Vec<String>,
}

fn io(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    move |source| Error::Io { what, path: path.into(), source }
}

/// Makes a volume at `path` (nothing may be there yet but an empty directory): a directory for
/// `BlockHome::Segments`, one file for `BlockHome::Database`. It has a root directory owned by
/// `uid`:`gid` with permissions 0755, made by commit 1 at `time`. Leaves nothing behind if it
/// fails.
pub fn create(path: &Path, options: &VolumeOptions, owner: (u32, u32), time: Timestamp) -> Result<()> {
    create_as(APPLICATION_ID, path, options, owner, time)
}

/// Makes a volume whose database has the application id `id`.
pub(super) fn create_as(
    id: u32,
    path: &Path,
    options: &VolumeOptions,
    owner: (u32, u32),
    time: Timestamp,
) -> Result<()> {
    options.check()?;
    let layout = Layout::of(path, options.home);
    let made_directory = prepare(&layout)?;
    let result = fill(&layout, id, options, owner, time);
    if result.is_err() {
        remove(&layout, made_directory);
    }
    result
}

/// Makes the place of a volume, where nothing may be in the way; tells whether it made the volume's
/// directory. Of two that make one at once, one succeeds here, and only that one removes anything.
fn prepare(layout: &Layout) -> Result<bool> {
    let path = &layout.volume;
    let Some(segments) = &layout.segments else {
        layout.refuse_taken()?;
        return make_database(layout).map(|()| false);
    };
    let taken = || Error::Unusable(format!("{} already exists and is not an empty directory", path.display()));
    let own = layout.database.parent().unwrap_or(path);
    let made = match files::make_directory(own) {
        Ok(()) => true,
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let mut entries = std::fs::read_dir(own).map_err(|_| taken())?;
            if entries.next().is_some() {
                return Err(unfinished::refusal(layout).unwrap_or_else(taken));
            }
            false
        }
        Err(error) => return Err(io("cannot make", path)(error)),
    };
    files::make_directory(segments).map_err(|error| {
        files::remove_all(own, &[], made);
        io("cannot make", segments)(error)
    })?;
    make_database(layout).inspect_err(|_| remove(layout, made))?;
    Ok(made)
}

pub(super) fn remove(layout: &Layout, made_directory: bool) {
    // Best effort: the error that led here is what the user must see.
    let database = ["", "-wal", "-shm"].map(|suffix| beside(&layout.database, suffix));
    let others = [layout.segments.clone(), layout.segments.as_ref().map(|_| layout.hold.clone())];
    let all = database.into_iter().chain(others.into_iter().flatten());
    let names: Vec<_> = all.filter_map(|path| Some(path.file_name()?.to_owned())).collect();
    if let Some(directory) = layout.database.parent() {
        files::remove_all(directory, &names, layout.segments.is_some() && made_directory);
    }
}

/// Makes the empty file of the database before SQLite opens it, so that a missing directory or
/// permission shows as what it is.
fn make_database(layout: &Layout) -> Result<()> {
    let made = files::open(files::options().write(true).create_new(true), &layout.database);
    made.map(drop).map_err(io("cannot make", &layout.database))
}

fn fill(layout: &Layout, id: u32, options: &VolumeOptions, owner: (u32, u32), time: Timestamp) -> Result<()> {
    let sqlite = |source| Error::Sqlite { what: "cannot make the database", source };
    let connection = connect(&layout.database, 8)?;
    connection.execute_batch("BEGIN").map_err(sqlite)?;
    connection.pragma_update(None, "application_id", id).map_err(sqlite)?;
    connection.pragma_update(None, "user_version", FORMAT).map_err(sqlite)?;
    connection.execute_batch(&schema::statements()).map_err(sqlite)?;
    schema::make_views(&connection)?;
    let home = options.home.name();
    connection
        .execute(
            "INSERT INTO volume (id, created, uuid, block_size, inline_max, home, bytes_max, inodes_max, digests, \
             number, op, next_id, next_block, epoch, bytes_used, inodes_used) \
             VALUES (1, ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, 1, 0, 16, 1, 0, 0, 1)",
            (
                time.0,
                crate::uuid::new()?,
                options.block_size,
                options.inline_max,
                home,
                options.bytes_max.map(read::sql),
                options.inodes_max.map(read::sql),
                options.digests,
            ),
        )
        .map_err(sqlite)?;
    let root = crate::InodeRow::new_root(owner.0, owner.1, time);
    let digest = options.digests.then(|| weft_digest::directory([]));
    super::put::put_inode(&connection, CommitNo(1), &root, digest.as_ref())?;
    let first = (time.0, digest.as_ref().map(|digest| &digest[..]));
    let commit = "INSERT INTO commits (number, time, op, root_digest) VALUES (1, ?1, 0, ?2)";
    connection.execute(commit, first).map_err(sqlite)?;
    [super::sums::VOLUME, super::sums::COMMIT].iter().try_for_each(|summed| summed.seal(&connection))?;
    connection.execute_batch("COMMIT; PRAGMA wal_checkpoint(TRUNCATE)").map_err(sqlite)?;
    connection.close().map_err(|(_, source)| sqlite(source))?;
    if layout.segments.is_some() {
        let lock = files::open(files::options().write(true).create(true), &layout.hold);
        lock.map_err(io("cannot make", &layout.hold))?;
        sync_directory(&layout.volume)?;
    }
    sync_beside(&layout.volume)
}

/// A connection with a page cache of `cache_mib` MiB.
pub(super) fn connect(database: &Path, cache_mib: u32) -> Result<Connection> {
    connection::connect(database, cache_mib, Access::Shared)
}

/// A volume that is read beside the process that holds it, or where nothing can be written. This
/// thread has the rights by which its files are used as long as this lives.
pub(super) struct Beside {
    pub(super) layout: Layout,
    reading: Option<Reading>,
    /// Dropped last.
    _rights: Rights,
}

impl Beside {
    /// The one at `path`. Errors as of [`open`], but for `Locked` where it can be written.
    pub(super) fn open(path: &Path) -> Result<Beside> {
        let (layout, _rights) = Layout::enter(path)?;
        Ok(match medium::look(&layout)? {
            Medium::Writable => Beside { layout, reading: None, _rights },
            medium @ (Medium::ReadOnly | Medium::Linked(_)) => match Reading::open(&layout, Need::Rows) {
                // Its holder has made the files that this user could not make.
                Err(Error::Locked(_)) if medium == Medium::ReadOnly && medium::takes_writes(&layout) => {
                    Beside { layout, reading: None, _rights }
                }
                reading => {
                    let reading = reading?;
                    Beside { layout: reading.layout.clone(), reading: Some(reading), _rights }
                }
            },
        })
    }

    /// A connection that only reads.
    pub(super) fn connect(&self) -> Result<Connection> {
        match &self.reading {
            Some(reading) => reading.connect(8),
            None => connection::connect_beside(&self.layout.database),
        }
    }

    /// The segments.
    pub(super) fn segments(&self) -> Option<Segments> {
        match &self.reading {
            Some(_) => self.layout.segments.clone().map(Segments::new_to_read),
            None => Segments::of(&self.layout),
        }
    }
}

/// Reads the header of a volume, held or not, as of its last commit. Errors as of [`open`], but for
/// `Locked`.
pub fn header(path: &Path) -> Result<Header> {
    read_header(&Beside::open(path)?.connect()?)
}

/// Opens the volume at `path` and holds it. Nothing in it changes before the first commit. Errors:
/// `Locked`, `Unusable` (no such path, not a volume, newer format, nothing can be written there),
/// `Unavailable` (no permission), `Corrupt` (also where what was synced is lost: [`Error::Lost`]).
pub fn open(path: &Path) -> Result<Volume> {
    open_with(path, Loss::Refuse)
}

/// Opens as [`open`] does; `loss` is done where synced operations are lost.
pub fn open_with(path: &Path, loss: Loss) -> Result<Volume> {
    open_for(path, loss, Purpose::Write)
}

/// The purpose for which a volume is opened where it can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// To show its content: what is lost is not given up.
    Read,
    Write,
}

fn open_for(path: &Path, loss: Loss, purpose: Purpose) -> Result<Volume> {
    let (layout, _rights) = Layout::enter(path)?;
    medium::refuse_read_only(&layout)?;
    open_writable(layout, loss, purpose)
}

/// Opens the volume at `path`, which is being made and is no volume by its header yet; none if
/// there is no such one of this user. What another user left there is nothing to go on with: it may
/// hold anything.
pub(super) fn open_unfinished(path: &Path) -> Result<Option<Volume>> {
    let user = rustix::process::geteuid().as_raw();
    if !path.symlink_metadata().is_ok_and(|there| !there.is_symlink() && there.uid() == user) {
        return Ok(None);
    }
    let (layout, _rights) = Layout::enter(path)?;
    if !unfinished::is_marked(&layout) {
        // What made it was killed at once.
        if unfinished::is_untouched(&layout) {
            remove(&layout, true);
        }
        return Ok(None);
    }
    open_writable(layout, Loss::Refuse, Purpose::Write).map(Some)
}

/// Opens the volume of `layout`, which can be written where it lies.
fn open_writable(layout: Layout, loss: Loss, purpose: Purpose) -> Result<Volume> {
    refuse_shared(&layout)?;
    let hold = hold(&layout)?;
    let alone = Alone::look(&layout);
    let is_given_up = (loss, purpose) == (Loss::Accept, Purpose::Write);
    let (mut set_aside, mut given_up) = judge_wal(&layout, &alone, loss)?;
    let database = Arc::new(Database::open(&layout.database)?);
    let (connection, access) = connect_somehow(&layout, 32).map_err(|error| alone.explain(error, &layout))?;
    // The caller may yet find that something is missing.
    connection::at_close(&connection, AtClose::Leave)?;
    let header =
        read_header(&connection).map_err(|error| alone.explain(shape::explain(error, &connection), &layout))?;
    layout.refuse_other_home(header.options.home)?;
    alone.refuse_foreign(&connection, &layout)?;
    let is_wal_lost = !set_aside.is_empty();
    let newest = newest(&layout, &connection, header.clone())?;
    if !is_wal_lost {
        set_aside = set_aside_misfit(&layout, &newest, &connection, loss)?;
    }
    shape::refuse_to_write(&connection)
        .and_then(|()| refuse_older_row(&connection, &header))
        .and_then(|()| if is_given_up { refuse_broken(&connection, &database) } else { Ok(()) })
        .or_else(|refusal| {
            let lost = Lost { set_aside: std::mem::take(&mut set_aside), is_wal_lost };
            let opened = (&layout, &newest, &connection, &*database);
            // What only a salvage reads keeps all that it can use.
            let is_repairable = matches!(refusal, Error::Corrupt(_)) && !shape::is_beyond_repair(&connection);
            Err(if is_given_up && is_repairable { lost.give_up(opened, refusal)? } else { refusal })
        })?;
    let segments = Segments::of(&layout).map(Arc::new);
    if let Some(segments) = &segments {
        match (lost_segments(&connection, segments)?, loss) {
            (lost, Loss::Accept) => given_up.extend(lost),
            (lost, Loss::Refuse) => refuse_lost_segments(lost)?,
        }
        segments.find()?;
    }
    let loss = match behind::judge(&layout, &header, &connection, segments.as_deref())? {
        Verdict::Hold => loss,
        Verdict::Keep => Loss::Accept,
        Verdict::Refuse(lost) if loss == Loss::Refuse => {
            leave_wal(&layout, &connection)?;
            return Err(Error::Lost(lost.to_string()));
        }
        Verdict::Refuse(lost) => {
            given_up.push(lost.given_up());
            loss
        }
    };
    let parts = Parts {
        connection,
        access,
        loss,
        database: Some(database),
        names: Names::of(&layout),
        segments,
        writes: true,
        hold: Some(hold),
        directory: None,
        set_aside,
        given_up,
    };
    finish(parts, header, layout)
}

/// Looks at the write-ahead log of the volume of `layout` before SQLite does. If something of it is
/// lost, and the loss is accepted: copies it, and tells where the copies are and what is given up.
fn judge_wal(layout: &Layout, alone: &Alone, loss: Loss) -> Result<(Vec<PathBuf>, Vec<String>)> {
    let Some(lost) = LostWal::look(layout, alone)? else { return Ok((Vec::new(), Vec::new())) };
    if loss == Loss::Refuse {
        return Err(lost.refusal(layout));
    }
    let set_aside = aside::set_aside(layout)?;
    Ok((set_aside, lost.give_up(layout, layout, alone)?))
}

/// Opens the volume at `path` to read it: as [`open`], and also where nothing can be written.
pub fn open_to_read(path: &Path, loss: Loss) -> Result<Volume> {
    let (layout, _rights) = Layout::enter(path)?;
    if medium::look(&layout)? == Medium::Writable {
        return open_for(path, loss, Purpose::Read);
    }
    let reading = Reading::open(&layout, Need::Operations)?;
    // By the copy, which SQLite can open.
    let alone = Alone::look(&reading.layout);
    let given_up = match LostWal::look(&reading.layout, &alone)? {
        Some(lost) if loss == Loss::Refuse => return Err(lost.refusal(&layout)),
        Some(lost) => lost.give_up(&layout, &reading.layout, &alone)?,
        None => Vec::new(),
    };
    let connection = reading.connect(32)?;
    let Reading { layout, access, hold, directory } = reading;
    let segments = layout.segments.clone().map(Segments::new_to_read).map(Arc::new);
    let (database, names, set_aside) = (None, Names::none(), Vec::new());
    let header = read_header(&connection).map_err(|error| shape::explain(error, &connection))?;
    layout.refuse_other_home(header.options.home)?;
    shape::refuse_to_read(&connection)?;
    let writes = false;
    let parts =
        Parts { connection, access, loss, database, names, segments, writes, hold, directory, set_aside, given_up };
    finish(parts, header, layout)
}

/// Opens the volume at `path` to read what it has committed, beside the process that holds it, if
/// one does. Errors as of [`open_to_read`], but for `Locked`.
pub fn open_beside(path: &Path) -> Result<Volume> {
    let (layout, _rights) = Layout::enter(path)?;
    if medium::look(&layout)? != Medium::Writable {
        return open_to_read(path, Loss::Refuse);
    }
    let alone = Alone::look(&layout);
    let access = Access::Beside;
    let connection = connection::connect(&layout.database, 32, access)?;
    let header =
        read_header(&connection).map_err(|error| alone.explain(shape::explain(error, &connection), &layout))?;
    layout.refuse_other_home(header.options.home)?;
    shape::refuse_to_read(&connection)?;
    let segments = layout.segments.clone().map(Segments::new_to_read).map(Arc::new);
    let parts = Parts {
        connection,
        access,
        loss: Loss::Refuse,
        database: None,
        names: Names::none(),
        segments,
        writes: false,
        hold: None,
        directory: None,
        set_aside: Vec::new(),
        given_up: Vec::new(),
    };
    finish(parts, header, layout)
}

/// The parts of a store.
struct Parts {
    connection: Connection,
    access: Access,
    loss: Loss,
    database: Option<Arc<Database>>,
    names: Names,
    segments: Option<Arc<Segments>>,
    writes: bool,
    hold: Option<Hold>,
    directory: Option<tempfile::TempDir>,
    set_aside: Vec<PathBuf>,
    given_up: Vec<String>,
}

fn finish(parts: Parts, header: Header, layout: Layout) -> Result<Volume> {
    let zeros = Arc::new(ZeroValues::default());
    // Without segments it cuts nothing off and punches nothing.
    let written = parts.segments.as_ref().filter(|_| parts.writes);
    let files = (&*layout.database, parts.access, parts.database.clone());
    let writer = Writer::open(parts.connection, files, (written, parts.loss), &header, &zeros)?;
    let names = Arc::new(parts.names);
    let room = writer.room();
    let store = SqliteStore {
        layout: layout.clone(),
        header: Mutex::new(header),
        history: Mutex::new(writer.history().cloned()),
        writer: Mutex::new(writer),
        room,
        readers: Readers::new(&layout, parts.access, names.clone()),
        segments: parts.segments,
        zeros,
        names,
        writes: parts.writes,
        _directory: parts.directory,
        _database: parts.database,
        _hold: parts.hold,
        rights_at_end: AtEnd::default(),
    };
    Ok(Volume { store: Arc::new(store), layout, set_aside: parts.set_aside, given_up: parts.given_up })
}

/// Looks at the database file before SQLite does, so that a file that is no volume is left as it
/// was.
pub(super) fn check_file(layout: &Layout) -> Result<()> {
    match format_of(layout)? {
        FORMAT => Ok(()),
        newer if newer > FORMAT => Err(Error::Unusable(format!(
            "{} has format {newer}, this program reads up to {FORMAT}; use a newer weft",
            layout.volume.display()
        ))),
        older => Err(Error::Unusable(match State::look(layout).map_or(older, |state| state.format) {
            FORMAT => {
                format!("{} was being upgraded; run 'weft upgrade' again, which ends that", layout.volume.display())
            }
            older => format!(
                "{} has format {older}, this program reads {FORMAT}; 'weft upgrade' brings it up",
                layout.volume.display()
            ),
        })),
    }
}

/// The format of the volume there, by its database file alone. Errors: `Unusable` if it is none.
pub(super) fn format_of(layout: &Layout) -> Result<u32> {
    let path = &layout.volume;
    let advice = "name what 'weft init' made";
    let not_a_volume = || Error::Unusable(format!("{} is not a Weft volume; {advice}", path.display()));
    if let Some(segments) = &layout.segments
        && segments.is_symlink()
    {
        let what = "is a symbolic link; put the directory itself there, or mount it there (mount --bind)";
        return Err(Error::Unusable(format!("{} {what}", segments.display())));
    }
    let file = match files::open(files::options().read(true), &layout.database) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Err(without_database(layout).unwrap_or_else(not_a_volume));
        }
        Err(error) => return Err(io("cannot open", &layout.database)(error)),
    };
    let not_a_volume = || {
        match &layout.segments {
        // What else lies there is a volume's.
        _ if unfinished::is_marked(layout) => unfinished::refuse_marked(layout),
        Some(segments) if segments.is_dir() => unfinished::refusal(layout).unwrap_or_else(|| {
            Error::Unusable(format!(
                "{} is not a Weft volume's database any more; 'weft check --salvage' brings what can be read of it to a new volume",
                layout.database.display()
            ))
        }),
        _ if has_schema(&layout.database) => Error::Unusable(format!(
            "{} is not a Weft volume any more: its first bytes are damaged; 'weft check --salvage' brings what can be \
             read of it to a new volume",
            layout.database.display()
        )),
        _ => not_a_volume(),
    }
    };
    match FileHeader::read(file) {
        Some(FileHeader { application_id: APPLICATION_ID, format }) => Ok(format),
        _ => Err(not_a_volume()),
    }
}

/// True if a volume of any format lies at `path`, by its database file alone.
pub fn is_volume(path: &Path) -> bool {
    Layout::enter(path).is_ok_and(|(layout, _rights)| format_of(&layout).is_ok())
}

/// True if a file that does not begin as a database has our tables further on.
fn has_schema(database: &Path) -> bool {
    let mut start = Vec::new();
    let read =
        files::open(files::options().read(true), database).map(|file| file.take(64 << 10).read_to_end(&mut start));
    let table = b"CREATE TABLE fileatt";
    matches!(read, Ok(Ok(_))) && start.windows(table.len()).any(|window| window == table)
}

/// The refusal of a directory that has files of a volume, and no database.
fn without_database(layout: &Layout) -> Option<Error> {
    let is_there = |path: &Path| path.symlink_metadata().is_ok();
    // No other directory has files of these names by chance.
    let is_volume = is_there(layout.segments.as_ref()?) && (is_there(&layout.hold) || is_there(&layout.log));
    is_volume.then(|| {
        Error::Unusable(format!(
            "{} is not a whole Weft volume: its database {} is missing; put it back from a copy",
            layout.volume.display(),
            layout.database.display()
        ))
    })
}

/// Number of tries to hold a volume that another process holds, and the time between them. A
/// process that is just being started has all files open that the process that starts it had, and
/// so holds locks that this one has let go since.
const HOLD_TRIES: u32 = 11;
const HOLD_AGAIN: Duration = Duration::from_millis(10);

/// Refuses a volume whose segments are `lost`.
fn refuse_lost_segments(lost: Vec<String>) -> Result<()> {
    let Some(lost) = lost.into_iter().next() else { return Ok(()) };
    Err(Error::Lost(format!(
        "{lost}: put it back from a copy, or go on without the blocks in it with 'weft mount --accept-loss VOLUME \
         DIRECTORY', and copy intact files over theirs there; 'weft check' names their files"
    )))
}

/// Finds segments with blocks that are missing or too short.
fn lost_segments(connection: &Connection, segments: &Segments) -> Result<Vec<String>> {
    segments.make_directory()?;
    Ok(lost_segments::find(connection, segments)?.into_values().collect())
}

/// Keeps other processes from a volume until it is dropped.
pub(super) struct Hold {
    pub(super) _lock: File,
    /// The database of a volume that is a directory: its lock can be removed by who takes it for a
    /// stale one.
    pub(super) _database: Option<File>,
}

/// Takes the volume for this process.
pub(super) fn hold(layout: &Layout) -> Result<Hold> {
    let mut options = files::options();
    options.read(true).write(true).create(layout.segments.is_some()).truncate(false);
    let opened = files::open(&options, &layout.hold);
    let lock = hold_file(layout, &layout.hold, opened.map_err(io("cannot open", &layout.hold))?)?;
    let database = match layout.segments {
        Some(_) => {
            let opened = files::open(files::options().read(true), &layout.database);
            Some(hold_file(layout, &layout.database, opened.map_err(io("cannot open", &layout.database))?)?)
        }
        None => None,
    };
    Ok(Hold { _lock: lock, _database: database })
}

fn hold_file(layout: &Layout, path: &Path, file: File) -> Result<File> {
    let mut tries = HOLD_TRIES;
    loop {
        tries -= 1;
        match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(rustix::io::Errno::WOULDBLOCK) if tries > 0 => {
                #[expect(clippy::disallowed_methods, reason = "nobody tells when another process lets go")]
                std::thread::sleep(HOLD_AGAIN);
            }
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(Error::Locked(InUse::new(layout, path))),
            Err(error) => return Err(io("cannot lock", path)(error.into())),
        }
    }
}

/// Refuses what would be refused later, up to the first commit, until it is repaired.
fn refuse_broken(connection: &Connection, database: &Database) -> Result<()> {
    refuse_lost_tail(connection, behind::tail_of(connection)?)?;
    refuse_rootless(&read::inodes(connection, Ino::ROOT, 1)?)?;
    database.refuse_damaged_list()
}

/// Refuses a volume whose own row is older than the rest of it: the next commit is there already,
/// and what its counters say is free is taken.
fn refuse_older_row(connection: &Connection, header: &Header) -> Result<()> {
    // Of a damaged row it is not known which commit it is of.
    let later = read::commits(connection, header.commit.next(), 1).unwrap_or_default();
    let Some(later) = later.first() else { return Ok(()) };
    Err(Error::Corrupt(format!(
        "the volume's own row is older than its database: it is of commit {}, and commit {} is there; restore the \
         volume from a copy, or have 'weft check --repair VOLUME' count anew",
        header.commit.0, later.number.0
    )))
}

/// The volume's own row. One that is not as a commit wrote it tells nothing that can be trusted:
/// `Corrupt`.
pub(super) fn read_header(connection: &Connection) -> Result<Header> {
    let read = |row: &rusqlite::Row<'_>| {
        let home: String = row.get(3)?;
        let limit = |column| -> rusqlite::Result<Option<u64>> {
            Ok(row.get::<_, Option<i64>>(column)?.and_then(|limit| u64::try_from(limit).ok()))
        };
        let header = Header {
            format: FORMAT,
            uuid: row.get(14)?,
            created: Timestamp(row.get(0)?),
            options: VolumeOptions {
                block_size: row.get(1)?,
                inline_max: row.get(2)?,
                home: if home == "segments" { BlockHome::Segments } else { BlockHome::Database },
                bytes_max: limit(4)?,
                inodes_max: limit(5)?,
                digests: row.get(6)?,
                own_table_from: None,
            },
            commit: CommitNo(unsigned(row, 7)?),
            counters: Counters {
                op: crate::OpNo(unsigned(row, 8)?),
                next_id: unsigned(row, 9)?,
                next_block: unsigned(row, 10)?,
                epoch: unsigned(row, 11)?,
                bytes_used: unsigned(row, 12)?,
                inodes_used: unsigned(row, 13)?,
            },
        };
        let holds = row.get::<_, Option<i64>>(15)? == Some(header.sum()) && home == header.options.home.name();
        Ok(Some(header).filter(|_| holds))
    };
    let header = connection
        .query_row(
            "SELECT created, block_size, inline_max, home, bytes_max, inodes_max, digests, number, op, next_id, next_block, \
             epoch, bytes_used, inodes_used, uuid, sum FROM volume WHERE id = 1",
            (),
            read,
        )
        .map_err(|source| match source {
            rusqlite::Error::QueryReturnedNoRows => Error::Corrupt("the volume's own row is missing".into()),
            source => Error::Sqlite { what: "cannot read the volume's row", source },
        })?
        .ok_or_else(|| {
            let what = "the volume's own row is not as Weft wrote it, so that nothing here can be trusted; \
                        restore the volume from a copy";
            Error::Corrupt(what.into())
        })?;
    header.options.check().map_err(|error| Error::Corrupt(error.to_string()))?;
    Ok(header)
}
