//! Directories outside of volumes, by descriptors: whoever renames directories or puts symbolic
//! links in their place while a copy is at work leads it nowhere else.

use super::os;
use anyhow::{Context, Result};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use std::path::{Path, PathBuf};

/// An open directory, and its path for people.
pub struct Directory {
    fd: OwnedFd,
    path: PathBuf,
    relative: PathBuf,
}

/// Flags that open a directory for listing.
const LISTED: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

impl Directory {
    /// The directory that the user named, also by a symbolic link.
    pub fn named(path: &Path) -> Result<Directory> {
        let fd = rustix::fs::openat(CWD, path, LISTED, Mode::empty());
        let fd = fd.with_context(|| format!("cannot open the directory {}", path.display()))?;
        Ok(Directory { fd, path: path.into(), relative: PathBuf::new() })
    }

    /// The directory at `relative` in this one, each of whose names must be a directory's and no
    /// link's.
    pub fn below(&self, relative: &Path) -> Result<Directory, Errno> {
        let through = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut names = relative.components().peekable();
        let mut at: Option<OwnedFd> = None;
        while let Some(name) = names.next() {
            let from = at.as_ref().map_or(self.fd.as_fd(), AsFd::as_fd);
            let how = if names.peek().is_some() { through } else { LISTED | OFlags::NOFOLLOW };
            at = Some(rustix::fs::openat(from, name.as_os_str(), how, Mode::empty())?);
        }
        let fd = match at {
            Some(fd) => fd,
            None => rustix::fs::openat(&self.fd, ".", LISTED, Mode::empty())?,
        };
        Ok(Directory { fd, path: self.path.join(relative), relative: relative.into() })
    }

    /// The path of `name` in it, for people.
    pub fn path_of(&self, name: &[u8]) -> PathBuf {
        self.path.join(os(name))
    }

    /// Its path below the directory that the user named.
    pub fn relative(&self) -> &Path {
        &self.relative
    }

    /// Its own path, for people.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// All names in it, without "." and "..".
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

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Renames within `directory` to a name that nothing has. `EXIST`: something has it.
pub fn rename_to_new(directory: impl AsFd, from: &Path, to: &Path) -> Result<(), Errno> {
    let directory = directory.as_fd();
    match rustix::fs::renameat_with(directory, from, directory, to, RenameFlags::NOREPLACE) {
        // The file system cannot say "unless something is there".
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
            match rustix::fs::statat(directory, to, AtFlags::SYMLINK_NOFOLLOW) {
                Err(Errno::NOENT) => rustix::fs::renameat(directory, from, directory, to),
                Err(error) => Err(error),
                Ok(_) => Err(Errno::EXIST),
            }
        }
        renamed => renamed,
    }
}

/// Has the name of `path` on the disk.
pub fn sync_parent(path: &Path) -> Result<(), Errno> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match Directory::named(parent) {
        Ok(parent) => rustix::fs::fsync(&parent),
        // Where it cannot be opened it cannot be synced.
        Err(_) => Ok(()),
    }
}

/// A path that leads to what `fd` stands for, whatever is renamed meanwhile: for calls that take no
/// descriptor of every kind of file (proc_pid_fd(5)).
pub fn proc_path(fd: impl AsFd) -> String {
    format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd())
}
