//! Volumes that lie where nothing can be written: read-only mounts, snapshots, what belongs to
//! somebody else, or is in a directory that does; and those whose files have several names.
//!
//! One that was unmounted cleanly is read as it lies. Of any other a private copy of the database
//! and its write-ahead log is made, where SQLite can do what it must; and one of the intent log,
//! whose operations are then applied in memory. Segments are read in place.

use super::connection::{self, connect};
use super::holder::InUse;
use super::inspect::{Linked, inspect, roots};
use super::layout::Layout;
use super::open::{Hold, check_file};
use crate::error::{Error, Result};
use crate::files;
use rusqlite::Connection;
use rustix::fs::{Access, FlockOperation, flock};
use rustix::io::Errno;
use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// True if a volume can be written where it lies.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Medium {
    Writable,
    ReadOnly,
    /// It could be written, but another copy of the volume has the same files.
    Linked(Linked),
}

/// The intended use of a volume on a read-only medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// Rows are read.
    Rows,
    /// Rows and the intent log are read.
    Operations,
    /// Rows are changed, in a copy.
    Changes,
}

fn io(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    move |source| Error::Io { what, path: path.into(), source }
}

/// Returns the medium of the volume of `layout`, and verifies that it is a volume that this program
/// reads.
pub(super) fn look(layout: &Layout) -> Result<Medium> {
    check_file(layout)?;
    let linked = inspect(layout)?;
    match files::open(files::options().read(true).write(true), &layout.database) {
        Ok(database) => {
            files::refuse_mounted(&database, &layout.database)?;
            Ok(match (closed(layout), linked) {
                (Some(_), _) => Medium::ReadOnly,
                (None, Some(linked)) => Medium::Linked(linked),
                (None, None) => Medium::Writable,
            })
        }
        Err(error) if matches!(error.kind(), ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied) => {
            Ok(Medium::ReadOnly)
        }
        Err(error) => Err(io("cannot open", &layout.database)(error)),
    }
}

/// A file or directory of the volume that must be written to change it, and that this user cannot
/// write, and why not. Files are made and removed beside the database: SQLite's logs, which SQLite
/// calls "a readonly database" if it cannot, and the intent log.
fn closed(layout: &Layout) -> Option<(PathBuf, Errno)> {
    let directories = [files::parent_of(&layout.database).into()].into_iter().chain(layout.segments.clone());
    let index = super::layout::beside(&layout.database, "-shm");
    let files = [layout.database.clone(), layout.wal(), index, layout.log.clone(), layout.hold.clone()];
    let directories = directories.map(|path| (path, Access::WRITE_OK | Access::EXEC_OK));
    let files = files.into_iter().map(|path| (path, Access::WRITE_OK));
    // One that is not there is made, and a link is refused where it is opened.
    directories.chain(files).find_map(|(path, access)| match files::may(&path, access) {
        Err(error @ (Errno::ACCESS | Errno::PERM | Errno::ROFS)) => Some((path, error)),
        _ => None,
    })
}

/// True if the database of `layout` can be written by itself.
pub(super) fn takes_writes(layout: &Layout) -> bool {
    files::open(files::options().read(true).write(true), &layout.database).is_ok()
}

/// Refuses to change the volume of `layout` if it lies on a read-only medium.
pub(super) fn refuse_read_only(layout: &Layout) -> Result<()> {
    match look(layout)? {
        Medium::Writable => Ok(()),
        Medium::Linked(linked) => Err(Error::Unusable(format!(
            "{}, and what changes one destroys the other; use a copy that shares no files \
             ('cp -a --reflink=auto VOLUME COPY'); 'weft mount --read-only', 'weft export' and 'weft check' read it as \
             it is",
            linked.why()
        ))),
        Medium::ReadOnly => Err(Error::Unusable(why_closed(layout))),
    }
}

/// Says why this user cannot change the volume of `layout`, and what to do.
fn why_closed(layout: &Layout) -> String {
    let volume = layout.volume.display();
    let owner = layout.database.symlink_metadata().map_or(0, |metadata| metadata.uid());
    match closed(layout) {
        Some((_, Errno::ROFS)) => format!(
            "{volume} lies on a read-only file system: 'weft mount --read-only' and 'weft export' read it there; to change \
             it, make the file system writable, or use a copy"
        ),
        // The directory around it may be root's for good.
        Some((closed, _)) if closed != layout.database && layout.database.parent() != Some(&*closed) => {
            roots(&closed, owner).unwrap_or_else(|| no_permission(layout, &closed))
        }
        Some((closed, _)) if closed != layout.database => no_permission(layout, &closed),
        _ => format!(
            "{volume} lies where nothing can be written (a read-only file system, or another user's files); \
             'weft mount --read-only' and 'weft export' read it there, a copy of it can be changed"
        ),
    }
}

/// Says that this user has no permission to write `closed`.
fn no_permission(layout: &Layout, closed: &Path) -> String {
    let (volume, closed) = (layout.volume.display(), closed.display());
    let reads = "'weft mount --read-only' and 'weft export' read it as it is";
    match layout.owner() {
        None => format!(
            "{volume} cannot be changed by this user, who has no permission to write {closed}: give it, or use the volume \
             as its owner; {reads}"
        ),
        Some(owner) => format!(
            "{volume} belongs to user {}, by whose rights root uses it, and who has no permission to write {closed}: give \
             it, or have one user own all of the volume (chown -R); {reads}",
            owner.number()
        ),
    }
}

/// Says, in a line, how the volume at `path` is read if it lies on a read-only medium.
pub(crate) fn note(path: &Path, is_checked: bool) -> Option<String> {
    let (layout, _rights) = Layout::enter(path).ok()?;
    let medium = look(&layout).ok()?;
    let how = if is_checked || has_frames(&layout) {
        format!("a private copy of its database in {} is used", std::env::temp_dir().display())
    } else {
        "it is read as it is".into()
    };
    let volume = layout.volume.display();
    Some(match medium {
        Medium::Writable => return None,
        Medium::ReadOnly => format!("{volume} lies where nothing can be written: {how}, and nothing is changed"),
        Medium::Linked(linked) => format!("{volume}: {}; {how}, and nothing is changed", linked.why()),
    })
}

/// Bytes that wait in the write-ahead log of the volume at `path`, if there are any and nobody has
/// the volume.
pub fn left_in_wal(path: &Path) -> Option<u64> {
    let (layout, _rights) = Layout::enter(path).ok()?;
    let left = layout.wal().metadata().ok()?.len();
    // A process that holds it now uses that log.
    (left > 0 && hold(&layout).is_ok()).then_some(left)
}

fn has_frames(layout: &Layout) -> bool {
    layout.wal().metadata().is_ok_and(|metadata| metadata.len() > 0)
}

/// A volume that is read without changing anything.
pub(super) struct Reading {
    /// The files to use: of those that were copied, the copies.
    pub(super) layout: Layout,
    pub(super) access: connection::Access,
    /// Keeps daemons from mounting the volume meanwhile, where that can be had.
    pub(super) hold: Option<Hold>,
    pub(super) directory: Option<TempDir>,
}

impl Reading {
    /// Opens the volume of `layout`, on a read-only medium. Errors: `Locked`, `Full` if there is no
    /// room for a copy.
    pub(super) fn open(layout: &Layout, need: Need) -> Result<Reading> {
        let hold = hold(layout)?;
        let mut reading =
            Reading { layout: layout.clone(), access: connection::Access::Immutable, hold, directory: None };
        let has_log = need != Need::Rows && layout.log.exists();
        let is_copied = need == Need::Changes || has_frames(layout);
        if !is_copied && !has_log {
            return Ok(reading);
        }
        // Files are opened by paths without links.
        let place = std::env::temp_dir();
        let make = place.canonicalize().and_then(|place| TempDir::with_prefix_in("weft-", place));
        let directory = make.map_err(io("cannot make a private directory in", &place))?;
        if is_copied {
            reading.layout.database = directory.path().join("database");
            refuse_too_large(layout, directory.path())?;
            copy_file(&layout.database, &reading.layout.database)?;
            if has_frames(layout) {
                copy_file(&layout.wal(), &reading.layout.wal())?;
            }
            reading.access = connection::Access::Shared;
        }
        if has_log {
            reading.layout.log = directory.path().join("log");
            copy_file(&layout.log, &reading.layout.log)?;
        }
        reading.directory = Some(directory);
        Ok(reading)
    }

    /// Returns a connection to the database.
    pub(super) fn connect(&self, cache_mib: u32) -> Result<Connection> {
        connect(&self.layout.database, cache_mib, self.access)
    }
}

/// Takes the volume as one of those that read it. None where that cannot be: the medium has no
/// locks, or the lock is not among what was copied there.
pub(super) fn hold(layout: &Layout) -> Result<Option<Hold>> {
    let lock = hold_file(layout, &layout.hold)?;
    // A daemon that came by another name of a file has another lock.
    let database = layout.segments.as_ref().map(|_| hold_file(layout, &layout.database)).transpose()?.flatten();
    Ok(match (lock, database) {
        (Some(lock), database) => Some(Hold { _lock: lock, _database: database }),
        // The lock may be missing, and nobody here be able to make it.
        (None, database) => database.map(|database| Hold { _lock: database, _database: None }),
    })
}

fn hold_file(layout: &Layout, path: &Path) -> Result<Option<File>> {
    let file = match files::open(files::options().read(true), path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io("cannot open", path)(error)),
    };
    match flock(&file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Ok(Some(file)),
        Err(Errno::WOULDBLOCK) => Err(Error::Locked(InUse::new(layout, path))),
        Err(_) => Ok(None),
    }
}

/// Refuses to fill the place of temporary files.
fn refuse_too_large(layout: &Layout, directory: &Path) -> Result<()> {
    let length = |path: &PathBuf| path.metadata().map_or(0, |metadata| metadata.len());
    let wanted = length(&layout.database) + 2 * length(&layout.wal());
    let free = rustix::fs::statvfs(directory).map_or(u64::MAX, |stat| stat.f_bavail * stat.f_frsize);
    if wanted <= free {
        return Ok(());
    }
    Err(Error::Unusable(format!(
        "a private copy of the database of {} takes {wanted} bytes, and {} has {free}; \
         name a directory with more room by the variable TMPDIR",
        layout.volume.display(),
        directory.parent().unwrap_or(directory).display()
    )))
}

/// Copies a file, its zeros left out: an intent log is little else.
pub(super) fn copy_file(from: &Path, to: &Path) -> Result<()> {
    let mut source = files::open(files::options().read(true), from).map_err(io("cannot open", from))?;
    let made = files::open(files::options().write(true).create_new(true), to);
    let mut copy = made.map_err(io("cannot make", to))?;
    let mut buffer = vec![0; 1 << 20];
    loop {
        let read = source.read(&mut buffer).map_err(io("cannot read", from))?;
        if read == 0 {
            break;
        }
        let written = if buffer[..read].iter().all(|byte| *byte == 0) {
            copy.seek(SeekFrom::Current(i64::try_from(read).unwrap_or(i64::MAX))).map(|_| ())
        } else {
            copy.write_all(&buffer[..read])
        };
        written.map_err(io("cannot write", to))?;
    }
    let end = copy.stream_position().map_err(io("cannot write", to))?;
    copy.set_len(end).map_err(io("cannot write", to))
}
