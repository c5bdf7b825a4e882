//! The log file of a daemon in the background: found, opened, and opened again once it was renamed
//! (logrotate(8)).

use anyhow::{Context, Result, bail};
use rustix::fs::{Mode, OFlags, openat};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use weft_store::user::{Rights, User};
use weft_store::{PathWalk, parent_of};

/// The log of a daemon in the background.
#[derive(Clone, Debug)]
pub struct Log {
    /// The path of the file, absolute.
    pub path: PathBuf,
}

impl Log {
    /// Sends messages there from now on.
    pub fn begin(&self) -> io::Result<()> {
        write_to(open_log(&self.path)?)
    }

    /// Sends messages to the file that has the log's name now. If that fails, they go on to the one
    /// before.
    pub fn reopen(&self) {
        if let Err(error) = self.begin() {
            let path = self.path.display();
            tracing::error!("cannot open the log {path} again: {error}; messages go on to the file from before");
        }
    }
}

/// Sends all that this process prints to `file`.
pub fn write_to(file: impl AsFd) -> io::Result<()> {
    rustix::stdio::dup2_stdout(&file)?;
    Ok(rustix::stdio::dup2_stderr(&file)?)
}

/// Opens the log file, for its owner alone: as root with the rights of the directory's owner. A
/// link that another user put there, or on the way there, is not followed.
fn open_log(path: &Path) -> io::Result<File> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidFilename)?;
    let way = PathWalk::to(parent_of(path))?;
    let owner = way.directory_owner()?;
    way.refuse_links_of_others(owner, path).map_err(io::Error::other)?;
    let _rights = Rights::of(User::other(owner).as_ref())?;
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let flags = flags | OFlags::CREATE | OFlags::APPEND | OFlags::WRONLY;
    Ok(openat(way.directory(), name, flags, Mode::RUSR | Mode::WUSR)?.into())
}

/// Finds the log that the user asked for, or reports why messages cannot go there: before anything
/// is served, as nobody would hear of it later.
pub fn find_log(asked: Option<&Path>) -> Result<Option<PathBuf>> {
    let Some(asked) = asked else { return Ok(None) };
    let cannot = || format!("cannot write messages to {}", asked.display());
    let path = follow_own_links(asked).with_context(cannot)?;
    match open_log(&path) {
        Err(error) if error.raw_os_error() == Some(libc::ELOOP) => {
            bail!("{}: it is a symbolic link in a directory where others can make one; name its target", cannot())
        }
        opened => opened.map(|_| Some(path)).with_context(cannot),
    }
}

/// Most symbolic links that are followed, as the kernel does (path_resolution(7)).
const LINKS_MAX: u32 = 40;

/// Returns the path of a file, in a directory without links on the way to it. It is a symbolic link
/// itself only where another user could have made that: it may lead to any file of this user.
fn follow_own_links(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_path_buf();
    for _ in 0..LINKS_MAX {
        let directory = parent_of(&path).canonicalize()?;
        let file = directory.join(path.file_name().ok_or(io::ErrorKind::InvalidFilename)?);
        if others_write(&directory.metadata()?) || !file.is_symlink() {
            return Ok(file);
        }
        path = directory.join(file.read_link()?);
    }
    Err(io::Error::from_raw_os_error(libc::ELOOP))
}

/// True if others than this user and root can make files in a directory of these attributes.
fn others_write(directory: &std::fs::Metadata) -> bool {
    let owners = [0, rustix::process::geteuid().as_raw()];
    directory.mode() & 0o022 != 0 || !owners.contains(&directory.uid())
}
