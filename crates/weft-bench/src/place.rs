//! A directory under test.

use crate::arguments::{Arguments, of_name};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A directory under test, with a working directory in it that goes when this is dropped.
pub(crate) struct Place {
    pub(crate) name: String,
    pub(crate) work: PathBuf,
    cold: Option<String>,
    pub(crate) daemon_pid: Option<String>,
}

impl Place {
    /// Prepares what `NAME=DIRECTORY` names.
    pub(crate) fn prepare(named: &str, arguments: &Arguments) -> Result<Place> {
        let Some((name, directory)) = named.split_once('=') else { bail!("'{named}' is not NAME=DIRECTORY") };
        let work = Path::new(directory).join(format!("weft-bench-{}", std::process::id()));
        std::fs::create_dir(&work).with_context(|| format!("cannot work in {directory}"))?;
        Ok(Place {
            name: name.into(),
            work,
            cold: of_name(&arguments.cold, name),
            daemon_pid: of_name(&arguments.daemon_pid, name),
        })
    }

    /// A fresh directory in it.
    pub(crate) fn fresh(&self, name: &str) -> Result<PathBuf> {
        let path = self.work.join(name);
        self.clear(name)?;
        std::fs::create_dir(&path)?;
        Ok(path)
    }

    /// Removes a directory in it, if it is there.
    pub(crate) fn clear(&self, name: &str) -> Result<()> {
        match std::fs::remove_dir_all(self.work.join(name)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Makes it cold: synced, remounted if there is a command for it, the kernel's caches dropped.
    pub(crate) fn make_cold(&self) -> Result<()> {
        rustix::fs::sync();
        if let Some(command) = &self.cold {
            let status = Command::new("sh").args(["-c", command]).status().context("cannot run the cold command")?;
            if !status.success() {
                bail!("the cold command of {} failed", self.name);
            }
        }
        std::fs::write("/proc/sys/vm/drop_caches", "3").context("dropping the kernel's caches needs root")
    }

    /// Kind of the file system, from the mount that holds it.
    pub(crate) fn file_system(&self) -> String {
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let work = self.work.to_string_lossy().into_owned();
        let holds = |at: &str| at == "/" || work == at || work.starts_with(&format!("{at}/"));
        let of = |line: &str| {
            let mut fields = line.split(' ').skip(1);
            Some((fields.next()?.to_owned(), fields.next()?.to_owned()))
        };
        let best = mounts.lines().filter_map(of).filter(|(at, _)| holds(at)).max_by_key(|(at, _)| at.len());
        best.map(|(_, kind)| kind).unwrap_or_default()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Best effort: what is left is named after this program.
        let _ = std::fs::remove_dir_all(&self.work);
    }
}
