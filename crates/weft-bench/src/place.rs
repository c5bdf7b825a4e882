//! A directory under test.

use crate::arguments::of_name;
use crate::mounts;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;
use weft_attributes::Attribute;

/// A directory under test, with a working directory in it that goes when this is dropped.
pub(crate) struct Place {
    pub(crate) name: String,
    pub(crate) work: PathBuf,
    cold: Option<String>,
    daemon_pid: Option<String>,
}

impl Place {
    /// Prepares what `NAME=DIRECTORY` names.
    pub(crate) fn prepare(named: &str, cold: &[String], daemon_pid: &[String]) -> Result<Place> {
        let Some((name, directory)) = named.split_once('=') else { bail!("'{named}' is not NAME=DIRECTORY") };
        let work = Path::new(directory).join(format!("weft-bench-{}", std::process::id()));
        std::fs::create_dir(&work).with_context(|| format!("cannot work in {directory}"))?;
        Ok(Place { name: name.into(), work, cold: of_name(cold, name), daemon_pid: of_name(daemon_pid, name) })
    }

    /// A fresh directory in it. What had the name before is retired.
    pub(crate) fn fresh(&self, name: &str) -> Result<PathBuf> {
        let path = self.work.join(name);
        self.retire(name)?;
        std::fs::create_dir(&path)?;
        Ok(path)
    }

    /// Moves a directory of it out of the way, if it is there; it is removed with everything else
    /// at the end.
    ///
    /// Not at once: ext4 gives out no inode number again for some minutes after its file was
    /// removed, and steps over each such number when it looks for a free one. Creating would be
    /// measured many times too slow.
    pub(crate) fn retire(&self, name: &str) -> Result<()> {
        let retired = self.work.join("retired");
        std::fs::create_dir_all(&retired)?;
        let number = std::fs::read_dir(&retired)?.count();
        match std::fs::rename(self.work.join(name), retired.join(number.to_string())) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Makes it cold: settled, the kernel's caches dropped.
    pub(crate) fn make_cold(&self) -> Result<()> {
        self.settle()?;
        std::fs::write("/proc/sys/vm/drop_caches", "3").context("dropping the kernel's caches needs root")
    }

    /// Has everything written to the disk that will be: synced, and remounted if there is a command
    /// for it.
    pub(crate) fn settle(&self) -> Result<()> {
        rustix::fs::sync();
        let Some(command) = &self.cold else { return Ok(()) };
        let status = Command::new("sh").args(["-c", command]).status().context("cannot run the cold command")?;
        if !status.success() {
            bail!("the cold command of {} failed", self.name);
        }
        Ok(())
    }

    /// The process that serves it: the one given, or what a Weft mount tells of itself.
    pub(crate) fn daemon_pid(&self) -> Option<String> {
        self.daemon_pid.clone().or_else(|| Some(self.stats()?["pid"].as_u64()?.to_string()))
    }

    /// True if it lies in a mounted volume of Weft.
    pub(crate) fn is_volume(&self) -> bool {
        self.stats().is_some()
    }

    /// Returns the counters of the volume's daemon.
    fn stats(&self) -> Option<serde_json::Value> {
        let mut stats = vec![0; 1 << 16];
        // The root of the mount has the attribute; the directory given need not be it.
        let len =
            self.work.ancestors().find_map(|at| rustix::fs::getxattr(at, Attribute::Stats.name(), &mut stats).ok())?;
        serde_json::from_slice(&stats[..len]).ok()
    }

    /// True if files keep what is written to them; those of a file system that stores nothing do
    /// not.
    pub(crate) fn keeps_content(&self) -> bool {
        self.file_system() != "fuse.nothing"
    }

    /// Kind of the file system.
    pub(crate) fn file_system(&self) -> String {
        mounts::of(&self.work).map(|mount| mount.kind).unwrap_or_default()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Best effort: what is left is named after this program.
        let _ = std::fs::remove_dir_all(&self.work);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_system_of_a_relative_path_is_that_of_the_mount_that_holds_it() {
        const TMPFS_MAGIC: i64 = 0x0102_1994;
        if !rustix::fs::statfs("/dev/shm").is_ok_and(|stat| stat.f_type == TMPFS_MAGIC) {
            return eprintln!("SKIPPED the_file_system_of_a_relative_path_...: /dev/shm is no tmpfs");
        }
        let up = "../".repeat(std::env::current_dir().expect("there is one").components().count() - 1);
        for directory in ["/dev/shm".to_owned(), format!("{up}dev/shm")] {
            let place = Place::prepare(&format!("a={directory}"), &[], &[]).expect("it can be written");
            assert_eq!(place.file_system(), "tmpfs", "{directory}");
        }
    }
}
