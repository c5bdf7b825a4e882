//! Making and opening volumes.

use super::apply::Writer;
use super::aside::set_aside_misfit;
use super::layout::Layout;
use super::read::unsigned;
use super::readers::Readers;
use super::schema::{APPLICATION_ID, TABLES};
use super::segments::{Segments, sync_directory};
use super::{SqliteStore, read};
use crate::FORMAT;
use crate::batch::Counters;
use crate::digests::ZeroValues;
use crate::error::{Error, Result};
use crate::log::Loss;
use crate::row::{CommitNo, Timestamp};
use crate::store::{BlockHome, Header, VolumeOptions};
use parking_lot::Mutex;
use rusqlite::{Connection, OpenFlags};
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// An open volume: exclusively held until dropped.
pub struct Volume {
    /// Its rows and blocks.
    pub store: Arc<SqliteStore>,
    /// Where its files are.
    pub layout: Layout,
    /// Copies of what was given up to open it.
    pub set_aside: Vec<PathBuf>,
}

fn io(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    move |source| Error::Io { what, path: path.into(), source }
}

/// Makes a volume at `path` (nothing may be there yet but an empty directory): a directory for
/// `BlockHome::Segments`, one file for `BlockHome::Database`. It has a root directory owned by
/// `uid`:`gid` with permissions 0755, made by commit 1 at `time`. Leaves nothing behind if it fails.
pub fn create(path: &Path, options: &VolumeOptions, owner: (u32, u32), time: Timestamp) -> Result<()> {
    options.check()?;
    let layout = Layout::of(path, options.home);
    let made_directory = prepare(&layout)?;
    let result = fill(&layout, options, owner, time);
    if result.is_err() {
        remove(&layout, made_directory);
    }
    result
}

/// Makes sure nothing is in the way; tells whether it made the volume's directory.
fn prepare(layout: &Layout) -> Result<bool> {
    let path = &layout.volume;
    let Some(segments) = &layout.segments else {
        let taken =
            || Error::Unusable(format!("{} already exists; the volume will be a file of that name", path.display()));
        return if path.symlink_metadata().is_ok() { Err(taken()) } else { Ok(false) };
    };
    let taken = || Error::Unusable(format!("{} already exists and is not an empty directory", path.display()));
    let made = match std::fs::create_dir(path) {
        Ok(()) => true,
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let mut entries = std::fs::read_dir(path).map_err(|_| taken())?;
            if entries.next().is_some() {
                return Err(taken());
            }
            false
        }
        Err(error) => return Err(io("cannot make", path)(error)),
    };
    std::fs::create_dir(segments).map_err(|error| {
        if made {
            let _ = std::fs::remove_dir(path);
        }
        io("cannot make", segments)(error)
    })?;
    Ok(made)
}

pub(super) fn remove(layout: &Layout, made_directory: bool) {
    // Best effort: the error that led here is what the user must see.
    for suffix in ["", "-wal", "-shm"] {
        let mut path = layout.database.as_os_str().to_owned();
        path.push(suffix);
        let _ = std::fs::remove_file(path);
    }
    if let Some(segments) = &layout.segments {
        let _ = std::fs::remove_dir_all(segments);
        let _ = std::fs::remove_file(&layout.hold);
        if made_directory {
            let _ = std::fs::remove_dir(&layout.volume);
        }
    }
}

fn fill(layout: &Layout, options: &VolumeOptions, owner: (u32, u32), time: Timestamp) -> Result<()> {
    let sqlite = |source| Error::Sqlite { what: "cannot make the database", source };
    // Made here, so that a missing directory or permission shows as what it is.
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&layout.database)
        .map_err(io("cannot make", &layout.database))?;
    let connection = connect(&layout.database, 8)?;
    connection.pragma_update(None, "application_id", APPLICATION_ID).map_err(sqlite)?;
    connection.pragma_update(None, "user_version", FORMAT).map_err(sqlite)?;
    connection.execute_batch("BEGIN").map_err(sqlite)?;
    connection.execute_batch(TABLES).map_err(sqlite)?;
    let home = home_name(options.home);
    connection
        .execute(
            "INSERT INTO volume VALUES (1, ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, 1, 0, 16, 1, 0, 0, 1)",
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
    super::apply::put_inode(&connection, CommitNo(1), &root, digest.as_ref())?;
    let first = (time.0, digest.as_ref().map(|digest| &digest[..]));
    connection.execute("INSERT INTO commits VALUES (1, ?1, 0, ?2, NULL)", first).map_err(sqlite)?;
    connection.execute_batch("COMMIT; PRAGMA wal_checkpoint(TRUNCATE)").map_err(sqlite)?;
    connection.close().map_err(|(_, source)| sqlite(source))?;
    if layout.segments.is_some() {
        File::create(&layout.hold).map_err(io("cannot make", &layout.hold))?;
        sync_directory(&layout.volume)?;
    }
    let parent = layout.volume.parent().filter(|parent| !parent.as_os_str().is_empty());
    sync_directory(parent.unwrap_or(Path::new(".")))
}

pub(super) fn home_name(home: BlockHome) -> &'static str {
    match home {
        BlockHome::Database => "database",
        BlockHome::Segments => "segments",
    }
}

/// A connection with a page cache of `cache_mib` MiB.
pub(super) fn connect(database: &Path, cache_mib: u32) -> Result<Connection> {
    let sqlite = |source| Error::Sqlite { what: "cannot open the database", source };
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(database, flags).map_err(sqlite)?;
    connection.set_prepared_statement_cache_capacity(64);
    connection
        .execute_batch(&format!(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA wal_autocheckpoint = 0;
             PRAGMA cache_size = -{}; PRAGMA temp_store = MEMORY; PRAGMA journal_size_limit = 16777216;
             PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON;",
            cache_mib * 1024
        ))
        .map_err(sqlite)?;
    // Keeps plans from being made anew at each binding.
    connection.set_db_config(rusqlite::config::DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map_err(sqlite)?;
    Ok(connection)
}

/// A connection that only reads, beside whoever holds the volume.
pub(super) fn connect_beside(layout: &Layout) -> Result<Connection> {
    // Readers have marks in a file beside it; without the permission to write SQLite would complain of those.
    let database = &layout.database;
    OpenOptions::new().read(true).write(true).open(database).map_err(io("cannot open", database))?;
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(&layout.database, flags)
        .map_err(|source| Error::Sqlite { what: "cannot open the database", source })
}

/// What a volume says of itself, held or not: as of its last commit. Errors as of [`open`], but for `Locked`.
pub fn header(path: &Path) -> Result<Header> {
    let layout = Layout::find(path)?;
    check_file(&layout)?;
    read_header(&connect_beside(&layout)?)
}

/// Opens the volume at `path` and holds it. Errors: `Locked`, `Unusable` (no such path, not a volume, newer
/// format), `Unavailable` (no permission), `Corrupt` (also where what was synced is lost: then
/// nothing is changed).
pub fn open(path: &Path) -> Result<Volume> {
    open_with(path, Loss::Refuse)
}

/// As [`open`], with this done where what was synced is lost.
pub fn open_with(path: &Path, loss: Loss) -> Result<Volume> {
    let layout = Layout::find(path)?;
    check_file(&layout)?;
    let hold = hold(&layout)?;
    let connection = connect(&layout.database, 32)?;
    let header = read_header(&connection)?;
    let set_aside = set_aside_misfit(&layout, &header, &connection, loss)?;
    let segments = layout.segments.clone().map(Segments::new).map(Arc::new);
    let zeros = Arc::new(ZeroValues::default());
    let writer = Writer::open(connection, &layout.database, segments.as_ref(), &header.options, &zeros)?;
    let readers = Readers::new(layout.database.clone());
    let store = SqliteStore {
        layout: layout.clone(),
        header: Mutex::new(header),
        writer: Mutex::new(writer),
        readers,
        segments,
        zeros,
        _hold: hold,
    };
    Ok(Volume { store: Arc::new(store), layout, set_aside })
}

/// Looks at the database file before SQLite does, so that a file that is no volume is left as it was.
pub(super) fn check_file(layout: &Layout) -> Result<()> {
    let path = &layout.volume;
    let advice = "name what 'weft init' made, and not where it is mounted";
    let not_a_volume = || Error::Unusable(format!("{} is not a Weft volume; {advice}", path.display()));
    let mut file = match File::open(&layout.database) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Err(not_a_volume()),
        Err(error) => return Err(io("cannot open", &layout.database)(error)),
    };
    let mut start = [0; 100];
    file.read_exact(&mut start).map_err(|_| not_a_volume())?;
    let number = |at: usize| u32::from_be_bytes(start[at..at + 4].try_into().expect("four bytes"));
    if &start[..16] != b"SQLite format 3\0" || number(68) != APPLICATION_ID {
        return Err(not_a_volume());
    }
    match number(60) {
        FORMAT => Ok(()),
        newer if newer > FORMAT => Err(Error::Unusable(format!(
            "{} has format {newer}, this program reads up to {FORMAT}; use a newer weft",
            path.display()
        ))),
        older => Err(Error::Unusable(format!(
            "{} has format {older}, which this program no longer reads; export it with the weft that made it",
            path.display()
        ))),
    }
}

/// How often a volume is tried that another process holds, and how long after the last time. A process that is just being started has all files
/// open that the one which starts it had, and holds what that one has let go since.
const HOLD_TRIES: u32 = 11;
const HOLD_AGAIN: Duration = Duration::from_millis(10);

/// Takes the volume for this process.
pub(super) fn hold(layout: &Layout) -> Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(layout.segments.is_some())
        .truncate(false)
        .open(&layout.hold)
        .map_err(io("cannot open", &layout.hold))?;
    let mut tries = HOLD_TRIES;
    loop {
        tries -= 1;
        match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(rustix::io::Errno::WOULDBLOCK) if tries > 0 => {
                #[expect(clippy::disallowed_methods, reason = "nobody tells when another process lets go")]
                std::thread::sleep(HOLD_AGAIN);
            }
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(Error::Locked(layout.volume.clone())),
            Err(error) => return Err(io("cannot lock", &layout.hold)(error.into())),
        }
    }
}

pub(super) fn read_header(connection: &Connection) -> Result<Header> {
    let read = |row: &rusqlite::Row<'_>| {
        let home: String = row.get(3)?;
        let limit = |column| -> rusqlite::Result<Option<u64>> {
            Ok(row.get::<_, Option<i64>>(column)?.and_then(|limit| u64::try_from(limit).ok()))
        };
        Ok(Header {
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
        })
    };
    let header = connection
        .query_row(
            "SELECT created, block_size, inline_max, home, bytes_max, inodes_max, digests, number, op, next_id, next_block, \
             epoch, bytes_used, inodes_used, uuid FROM volume WHERE id = 1",
            (),
            read,
        )
        .map_err(|source| match source {
            rusqlite::Error::QueryReturnedNoRows => Error::Corrupt("the volume's own row is missing".into()),
            source @ rusqlite::Error::FromSqlConversionFailure(..) => {
                Error::Corrupt(format!("the volume's own row is damaged: {source}"))
            }
            source => Error::Sqlite { what: "cannot read the volume's row", source },
        })?;
    header.options.check().map_err(|error| Error::Corrupt(error.to_string()))?;
    Ok(header)
}
