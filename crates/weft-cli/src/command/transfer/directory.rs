//! Directories outside of volumes, by descriptors. A user who renames directories or puts symbolic
//! links in their place during a copy cannot lead it elsewhere.

use super::tree_path::{For, Trail, TreePath};
use anyhow::{Context, Result, ensure};
use parking_lot::Mutex;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weft_store::parent_of;

/// An open directory, and its path for people.
pub struct Directory {
    fd: Arc<OwnedFd>,
    way: TreePath,
}

/// The directory that the user named, and those below it.
pub struct Directories {
    top: Directory,
    trail: Mutex<Trail<Arc<OwnedFd>>>,
}

/// Flags that open a directory for listing.
const LISTED: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
/// Flags that open a directory on the way to others below it.
const PASSED: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

impl Directory {
    /// Opens the directory that the user named, also by a symbolic link; for root, not by a third
    /// user's.
    pub fn named(path: &Path) -> Result<Directory> {
        let cannot = || format!("cannot open the directory {}", path.display());
        let gone = way_to(path).with_context(cannot)?;
        let fd = rustix::fs::openat(gone.directory(), ".", LISTED, Mode::empty()).with_context(cannot)?;
        Ok(Directory { fd: Arc::new(fd), way: TreePath::top(path) })
    }

    /// Returns the path of `name` in it, for people.
    pub fn path_of(&self, name: &[u8]) -> PathBuf {
        self.way.below(name).path()
    }

    /// Returns the way to it.
    pub fn way(&self) -> &TreePath {
        &self.way
    }

    /// Returns its own path, for people.
    pub fn path(&self) -> PathBuf {
        self.way.path()
    }

    /// Returns all names in it, without "." and "..".
    pub fn names(&self) -> Result<Vec<Vec<u8>>, Errno> {
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(&self.fd)? {
            let name = entry?.file_name().to_bytes().to_vec();
            if name != b"." && name != b".." {
                names.push(name);
            }
        }
        Ok(names)
    }
}

impl Directories {
    /// Opens the directory that the user named. Makes it, for its owner alone, if it is missing.
    pub fn made(path: &Path) -> Result<Directories> {
        let cannot = || format!("cannot make {}", path.display());
        let name = path.file_name();
        if let Some(name) = name.filter(|_| path.symlink_metadata().is_err()) {
            let parent = way_to(parent_of(path)).with_context(cannot)?;
            match rustix::fs::mkdirat(parent.directory(), name, Mode::RWXU) {
                Err(Errno::EXIST) => {}
                made => made.with_context(cannot)?,
            }
        }
        Directories::named(path)
    }

    /// Opens the directory that the user named, also by a symbolic link, and those below it.
    pub fn named(path: &Path) -> Result<Directories> {
        let top = Directory::named(path)?;
        let trail = Mutex::new(Trail::new((top.way.clone(), top.fd.clone())));
        Ok(Directories { top, trail })
    }

    /// Returns the directory that the user named.
    pub fn top(&self) -> &Directory {
        &self.top
    }

    /// Opens the directory at `way`, each of whose names must be a directory's and no link's.
    pub fn open(&self, way: &TreePath) -> Result<Directory, Errno> {
        let open = |above: &Arc<OwnedFd>, name: &[u8], how| {
            let how = if how == For::Use { LISTED } else { PASSED };
            rustix::fs::openat(above, name, how | OFlags::NOFOLLOW, Mode::empty()).map(Arc::new)
        };
        let fd = match way.is_top() {
            true => Arc::new(rustix::fs::openat(&self.top, ".", LISTED, Mode::empty())?),
            false => self.trail.lock().go(way, open)?,
        };
        Ok(Directory { fd, way: way.clone() })
    }
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Finds the way to the directory that the user named, by links like [`Directory::named`].
pub fn way_to(path: &Path) -> Result<weft_store::PathWalk> {
    let way = weft_store::PathWalk::to(path)?;
    ensure!(way.is_to_directory(), "{} is not a directory", path.display());
    way.refuse_links_of_others(way.directory_owner()?, path)?;
    Ok(way)
}

/// Makes the name of `path` durable.
pub fn sync_parent(path: &Path) -> Result<(), Errno> {
    match Directory::named(parent_of(path)) {
        Ok(parent) => rustix::fs::fsync(&parent),
        // A directory that cannot be opened cannot be synced.
        Err(_) => Ok(()),
    }
}
