//! Databases that SQLite opens in a directory that is held open.
//!
//! SQLite goes to a file by its path: first to look for symbolic links on the way, then to open it,
//! and again for each of its logs. A user who can rename a directory on the way leads it elsewhere
//! in between. So the directory is opened before, on a way without links, and SQLite is given the
//! path of a file in there (`/proc/self/fd/7/meta.sqlite`), whatever the directory is called by
//! then. SQLite would itself look where that link leads: it has to take such a path as it is.

use crate::error::{Error, Result};
use crate::files;
use rusqlite::functions::FunctionFlags;
use rusqlite::{Connection, ffi};
use std::ffi::{CStr, c_char, c_int};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Directory of the descriptors of this process.
const DESCRIPTORS: &str = "/proc/self/fd/";

/// A database in its directory.
#[derive(Debug)]
pub(super) struct Held {
    directory: OwnedFd,
    /// The path as SQLite takes it, good as long as the directory is open.
    pub(super) path: PathBuf,
    /// The path that users know.
    named: PathBuf,
}

impl Held {
    /// The database at `path`, on which there is no symbolic link. It need not be there.
    pub(super) fn at(path: &Path) -> Result<Held> {
        static TAKES: OnceLock<bool> = OnceLock::new();
        if !*TAKES.get_or_init(take_paths_in_descriptors) {
            return Err(Error::Bug("SQLite has no files here".into()));
        }
        let opened = files::directory_of(path);
        let (directory, name) =
            opened.map_err(|source| Error::Io { what: "cannot open", path: path.into(), source })?;
        let inside = Path::new(DESCRIPTORS).join(directory.as_raw_fd().to_string()).join(name);
        Ok(Held { directory, path: inside, named: path.into() })
    }

    /// Keeps the directory open as long as `connection` is: SQLite frees functions when it has
    /// closed its files.
    pub(super) fn keep(self, connection: &Connection) -> Result<()> {
        let directory = self.directory;
        // Another one of that name would take its place.
        let name = format!("weft_directory_{}", directory.as_raw_fd());
        let told = move |_: &rusqlite::functions::Context<'_>| Ok(i64::from(directory.as_raw_fd()));
        let made = connection.create_scalar_function(&*name, 0, FunctionFlags::SQLITE_DIRECTONLY, told);
        made.map_err(|source| Error::Sqlite { what: "cannot open the database", source })
    }

    /// The `error` in which SQLite names the database, with the path that users know.
    pub(super) fn explain(&self, error: rusqlite::Error) -> rusqlite::Error {
        let named = |text: String| text.replace(&*self.path.to_string_lossy(), &self.named.to_string_lossy());
        match error {
            rusqlite::Error::SqliteFailure(code, text) => rusqlite::Error::SqliteFailure(code, text.map(named)),
            error => error,
        }
    }
}

/// `xFullPathname` of an `sqlite3_vfs` (<https://www.sqlite.org/c3ref/vfs.html>).
type FullPathname = unsafe extern "C" fn(*mut ffi::sqlite3_vfs, *const c_char, c_int, *mut c_char) -> c_int;

/// The function of SQLite.
static ORIGINAL: OnceLock<FullPathname> = OnceLock::new();

/// Has SQLite take paths in descriptors of this process as they are from now on.
fn take_paths_in_descriptors() -> bool {
    [c"unix", c"unix-excl"].into_iter().all(|name| {
        // SAFETY: the name ends with a NUL. What is found is a structure that lives as long as the
        // process and that SQLite itself does not change. A thread that opens a database at that
        // moment reads the one changed pointer whole, and either function is right for it.
        unsafe {
            let vfs = ffi::sqlite3_vfs_find(name.as_ptr());
            let Some(original) = vfs.as_ref().and_then(|vfs| vfs.xFullPathname) else { return false };
            ORIGINAL.get_or_init(|| original);
            (&raw mut (*vfs).xFullPathname).write_volatile(Some(full_pathname));
        }
        true
    })
}

/// Writes the path that `name` means to `out`, which has room for `room` bytes.
unsafe extern "C" fn full_pathname(
    vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    room: c_int,
    out: *mut c_char,
) -> c_int {
    // SAFETY: SQLite gives a string.
    let bytes = unsafe { CStr::from_ptr(name) }.to_bytes_with_nul();
    if !bytes.starts_with(DESCRIPTORS.as_bytes()) {
        let Some(original) = ORIGINAL.get() else { return ffi::SQLITE_CANTOPEN };
        // SAFETY: these are the arguments that SQLite gave for it.
        return unsafe { original(vfs, name, room, out) };
    }
    if usize::try_from(room).is_ok_and(|room| bytes.len() <= room) {
        // SAFETY: there is so much room, and it is not that of the name.
        unsafe { std::ptr::copy_nonoverlapping(name, out, bytes.len()) };
        return ffi::SQLITE_OK;
    }
    ffi::SQLITE_CANTOPEN
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sqlite_keeps_to_a_directory_that_is_exchanged_for_a_link() {
        let place = tempfile::tempdir().expect("a directory");
        let [own, moved, other] = ["own", "moved", "other"].map(|name| place.path().join(name));
        std::fs::create_dir(&own).expect("made");
        std::fs::create_dir(&other).expect("made");
        let held = Held::at(&own.join("database")).expect("held");
        std::fs::rename(&own, &moved).expect("moved");
        std::os::unix::fs::symlink(&other, &own).expect("linked");
        let connection = Connection::open(&held.path).expect("opened");
        held.keep(&connection).expect("kept");
        let statements = "PRAGMA journal_mode = WAL; CREATE TABLE t (a); INSERT INTO t VALUES (1)";
        connection.execute_batch(statements).expect("written");
        let names = |directory: &Path| std::fs::read_dir(directory).expect("listed").count();
        assert_eq!((names(&moved), names(&other)), (3, 0));
        connection.close().expect("closed");
        assert_eq!((names(&moved), names(&other)), (1, 0));
        let error = Held::at(&own.join("database")).expect_err("there is a link on the way");
        assert!(error.to_string().contains("symbolic link"), "{error}");
        // Others it takes as ever, relative ones and links included.
        let link = place.path().join("link");
        std::os::unix::fs::symlink(moved.join("database"), &link).expect("linked");
        let count = |path: &Path| {
            let connection = Connection::open(path)?;
            connection.query_row("SELECT count(*) FROM t", (), |row| row.get::<_, i64>(0))
        };
        assert_eq!(count(&link).expect("opened"), 1);
        let missing = Held::at(&moved.join("none/database")).expect_err("no directory");
        assert!(missing.to_string().contains("none/database"), "{missing}");
        let held = Held::at(&moved.join("none")).expect("held");
        let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
        let error = held.explain(Connection::open_with_flags(&held.path, flags).expect_err("it is not there"));
        assert!(error.to_string().contains(&*moved.join("none").to_string_lossy()), "{error}");
    }
}
