//! A name in a directory that is held open: all operations on it happen in that directory. A user
//! who may write to a directory on the way can put another one, or a symbolic link, there at any
//! time.

use crate::proc_path::proc_path;
use anyhow::{Context, Result};
use rustix::fd::OwnedFd;
use rustix::fs::{CWD, Mode, OFlags, openat};
use std::ffi::{OsStr, OsString};
use std::path::{Component, Path, PathBuf};
use weft_store::PathWalk;

/// A name in a directory.
pub struct Dentry {
    way: PathWalk,
    name: OsString,
}

impl Dentry {
    /// Finds the last name of `path`, in the directory that the rest of it leads to now.
    pub fn at(path: &Path) -> Result<Dentry> {
        let Some(Component::Normal(name)) = path.components().next_back() else {
            anyhow::bail!("it is the root of the volume, or ends with '..'");
        };
        let parent = weft_store::parent_of(path);
        let way = PathWalk::to(parent).with_context(|| format!("there is no directory {}", parent.display()))?;
        anyhow::ensure!(way.is_to_directory(), "{} is no directory", parent.display());
        Ok(Dentry { way, name: name.to_owned() })
    }

    /// Returns its path from the root of the system, for people.
    pub fn path(&self) -> PathBuf {
        self.way.path.join(&self.name)
    }

    /// Returns a path that leads to the directory wherever it is now, for this process.
    pub fn directory(&self) -> PathBuf {
        proc_path(self.way.directory()).into()
    }

    /// Returns a path that leads to the file with the name there.
    pub fn here(&self) -> PathBuf {
        self.beside(&self.name)
    }

    /// Returns a path that leads to the file called `name` in the same directory.
    pub fn beside(&self, name: &OsStr) -> PathBuf {
        self.directory().join(name)
    }

    /// Opens the file that has the name now, and no other file later.
    pub fn open(&self) -> rustix::io::Result<OwnedFd> {
        openat(CWD, self.here(), OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_name_stays_in_its_directory_whatever_comes_to_lie_on_the_way() {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().join(path);
        fs::create_dir_all(at("own/d")).unwrap();
        fs::create_dir_all(at("others/d")).unwrap();
        fs::write(at("own/d/link"), "own").unwrap();
        fs::write(at("others/d/link"), "others").unwrap();
        let dentry = Dentry::at(&at("own/d/link")).unwrap();
        let open = dentry.open().unwrap();
        fs::rename(at("own"), at("gone")).unwrap();
        symlink(at("others"), at("own")).unwrap();
        assert_eq!(fs::read_to_string(dentry.here()).unwrap(), "own");
        fs::rename(dentry.beside(OsStr::new("link")), dentry.beside(OsStr::new("new"))).unwrap();
        assert_eq!(fs::read_to_string(at("gone/d/new")).unwrap(), "own");
        // Another file of that name.
        fs::rename(at("others/d/link"), at("gone/d/link")).unwrap();
        assert_eq!(fs::read_to_string(proc_path(&open)).unwrap(), "own");
        assert!(Dentry::at(&at("own/d/link")).unwrap().open().is_err(), "a new look goes the new way");
        assert!(Dentry::at(Path::new("/")).is_err() && Dentry::at(&at("gone/d/new/link")).is_err());
    }
}
