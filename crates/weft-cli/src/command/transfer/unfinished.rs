//! A new volume in files under its temporary name until it is whole: `NEW.unfinished`.

use super::{Interrupt, sync_parent, way_to};
use anyhow::{Context, Result, bail};
use rustix::fd::BorrowedFd;
use rustix::fs::{AtFlags, Mode, OFlags, fsync, openat, statat};
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weft_store::sqlite::{Layout, Made, Making};
use weft_store::{BlockHome, PathWalk, parent_of, remove_below, rename_to_new};

/// Attempts to remove files that another thread may still be adding.
const TRIES: usize = 1000;

/// A volume that is not whole yet.
pub struct Unfinished {
    pub path: PathBuf,
    /// Progress: only files that this process made are removed.
    pub making: Making,
    /// Way to its directory: the owner of a directory on it cannot lead this process elsewhere.
    way: PathWalk,
}

impl Unfinished {
    /// Returns the one that becomes the volume at `new`.
    pub fn of(new: &Path) -> Result<Unfinished> {
        let path = new.with_added_extension("unfinished");
        let way = way_to(parent_of(new)).with_context(|| format!("cannot make {}", new.display()))?;
        Ok(Unfinished { path, making: Making::default(), way })
    }

    /// Refuses to begin where one is left.
    pub fn refuse_left(&self) -> Result<()> {
        let left: Vec<String> = with_beside(&self.path)
            .iter()
            .filter(|path| path.symlink_metadata().is_ok())
            .map(|path| path.display().to_string())
            .collect();
        match &left[..] {
            [] => Ok(()),
            [one] => bail!(
                "{one} exists: it is left from a command that was killed, or one is at work; remove it, then try again"
            ),
            several => bail!(
                "{} exist: they are left from a command that was killed, or one is at work; remove them, then try again",
                several.join(" and ")
            ),
        }
    }

    /// Makes a signal remove it, log `about`, and end the process; unless it is over anyway. Must
    /// be called before other threads are started.
    pub fn go_when_interrupted(self: &Arc<Self>, about: String) -> Result<()> {
        let own = self.clone();
        Interrupt::take(move |signal| {
            own.making.look(|made| {
                if made == Made::Over {
                    return;
                }
                own.clear(made);
                tracing::warn!("interrupted: {about}");
                std::process::exit(128 + signal);
            });
        })?;
        Ok(())
    }

    /// Renames it to its name, or removes it.
    pub fn finish(&self, new: &Path) -> Result<()> {
        let failed = || format!("cannot finish {}", self.path.display());
        let name = || {
            let [from, to] = [&*self.path, new].map(|path| Path::new(path.file_name().unwrap_or_default()));
            sync(self.way.directory(), from).with_context(failed)?;
            match rename_to_new(self.way.directory(), from, to) {
                Err(Errno::EXIST) => bail!("{} exists by now; name a volume that does not", new.display()),
                renamed => renamed.with_context(failed),
            }
        };
        self.making.end(|| name().inspect_err(|_| self.clear(Made::Some)))?;
        sync_parent(new).with_context(failed)
    }

    /// Removes its files.
    fn clear(&self, made: Made) {
        if made != Made::Some {
            return;
        }
        let beside = with_beside(&self.path);
        // The thread that makes it may make a file in between.
        for _ in 0..TRIES {
            let names = || beside.iter().filter_map(|path| path.file_name());
            names().for_each(|name| remove_below(self.way.directory(), name));
            if names().all(|name| statat(self.way.directory(), name, AtFlags::SYMLINK_NOFOLLOW).is_err()) {
                return;
            }
        }
        tracing::error!("cannot remove {}; remove it", self.path.display());
    }
}

/// Returns the volume at `path`, and the files beside it if it is one file.
fn with_beside(path: &Path) -> Vec<PathBuf> {
    let beside = Layout::of(path, BlockHome::Database).beside();
    // Under the name by which the user knows the volume.
    let beside = beside.iter().filter_map(|file| Some(path.with_file_name(file.file_name()?)));
    std::iter::once(path.to_path_buf()).chain(beside).collect()
}

/// Makes the names in a volume durable; its bytes are.
fn sync(directory: BorrowedFd<'_>, volume: &Path) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let volume = openat(directory, volume, flags, Mode::empty())?;
    fsync(&volume)?;
    match openat(&volume, "segments", flags, Mode::empty()) {
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(()),
        segments => fsync(segments?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_store::{Timestamp, VolumeOptions, sqlite};

    #[test]
    fn a_signal_removes_only_what_was_made() {
        for home in [BlockHome::Database, BlockHome::Segments] {
            let directory = tempfile::tempdir().unwrap();
            let volume = directory.path().join("volume");
            sqlite::create(&volume, &VolumeOptions::default(), (0, 0), Timestamp(0)).unwrap();
            let unfinished = Unfinished::of(&directory.path().join("new")).unwrap();
            let convert = || unfinished.making.convert(&volume, &unfinished.path, home, &mut |_| {});
            let signal = || unfinished.making.look(|made| unfinished.clear(made));
            unfinished.refuse_left().unwrap();
            // Another one is faster.
            std::fs::write(&unfinished.path, "theirs").unwrap();
            signal();
            convert().unwrap_err();
            signal();
            assert_eq!(std::fs::read(&unfinished.path).unwrap(), b"theirs");
            std::fs::remove_file(&unfinished.path).unwrap();
            convert().unwrap();
            assert!(unfinished.path.exists());
            signal();
            assert!(with_beside(&unfinished.path).iter().all(|path| path.symlink_metadata().is_err()));
        }
    }
}
