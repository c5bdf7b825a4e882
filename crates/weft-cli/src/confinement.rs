//! Privileges that a daemon gives up before it starts, so that an attacker who finds a mistake in
//! it gains less.
//!
//! Of root's capabilities, it keeps those that serving takes. Capabilities are each thread's own,
//! so they go before there are other threads. Its children get no more (`no_new_privs`), and no
//! other process reads the memory of root's daemon. System calls that no daemon makes are refused
//! (seccomp). Without root there are no privileges to give up. A mount without root keeps all
//! system calls, too: `fusermount3`, which unmounts, needs its own privileges, and those go with a
//! filter.

use crate::daemon::is_reexec;
use anyhow::{Context, Result};
use rustix::process::{DumpableBehavior, Resource, Rlimit, geteuid, getrlimit, set_dumpable_behavior, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_no_new_privs};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Capabilities that serving takes.
///
/// `SYS_ADMIN`: mounting, unmounting, namespaces of commands. `SETUID`, `SETGID`: the files of a
/// user's volume are used with that user's rights. These, `SETPCAP`, `KILL`: code of stages runs
/// without privileges, and is ended. `SYS_NICE`: the idle policy, and leaving it. `SYS_RESOURCE`,
/// `IPC_LOCK`: limits of children, memory of rings. `NET_BIND_SERVICE`: NFS clients are called from
/// a reserved port.
const NEEDED: CapabilitySet = CapabilitySet::SYS_ADMIN
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETPCAP)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::SYS_NICE)
    .union(CapabilitySet::SYS_RESOURCE)
    .union(CapabilitySet::IPC_LOCK)
    .union(CapabilitySet::NET_BIND_SERVICE);

/// Capabilities for files of other users.
const FOREIGN_FILES: CapabilitySet =
    CapabilitySet::DAC_OVERRIDE.union(CapabilitySet::DAC_READ_SEARCH).union(CapabilitySet::FOWNER);

/// Files that a daemon opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Files<'a> {
    /// These, and those that lie in them.
    Named(&'a [&'a Path]),
    /// Any, such as the keys that a connection to PostgreSQL takes.
    Any,
}

/// Service of a daemon, which decides how it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Serves {
    /// A mount point, which it unmounts.
    Mount,
    /// The network alone.
    Network,
}

/// Gives up privileges that serving with `files` does not take. Must be called before other threads
/// are started.
pub fn confine(serves: Serves, files: Files<'_>) -> Result<()> {
    lose_privileges(files)?;
    let needs_helper = serves == Serves::Mount && !geteuid().is_root();
    // A daemon after a re-exec has its filter still.
    if needs_helper || is_reexec() {
        return Ok(());
    }
    if let Err(error) = weft_transform::refuse_to_daemon() {
        errln!("weft: serving with all system calls, as this kernel refuses none (seccomp): {error}");
    }
    Ok(())
}

fn lose_privileges(files: Files<'_>) -> Result<()> {
    // Memory, keys included, must not get into a core file.
    let maximum = getrlimit(Resource::Core).maximum;
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum }).context("cannot forbid core files")?;
    if !geteuid().is_root() {
        return Ok(());
    }
    let are_ours = match files {
        Files::Named(paths) => paths.iter().all(|path| is_roots(path)),
        Files::Any => false,
    };
    let needed = if are_ours { NEEDED } else { NEEDED.union(FOREIGN_FILES) };
    let had = capabilities(None).context("cannot tell which privileges there are")?;
    let kept = CapabilitySets {
        effective: had.effective & needed,
        permitted: had.permitted & needed,
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, kept).context("cannot give up privileges")?;
    set_no_new_privs(true).context("cannot refuse new privileges")?;
    // After that, as a change of privileges may take it back.
    set_dumpable_behavior(DumpableBehavior::NotDumpable).context("cannot hide memory")
}

/// True if root can reach `path`, and the files there, without special capabilities: they are
/// root's, in directories that are root's or open.
fn is_roots(path: &Path) -> bool {
    let path = match path.canonicalize() {
        Ok(path) => path,
        // It is to be made: its parent counts.
        Err(_) => match path.parent().map(Path::canonicalize) {
            Some(Ok(parent)) => parent,
            _ => return false,
        },
    };
    let is = |path: &Path, permission: u32| {
        path.metadata().is_ok_and(|metadata| metadata.uid() == 0 || metadata.mode() & permission == permission)
    };
    let own = |path: &Path| path.metadata().is_ok_and(|metadata| metadata.uid() == 0);
    let entries =
        || std::fs::read_dir(&path).map(|mut all| all.all(|entry| entry.is_ok_and(|entry| own(&entry.path()))));
    path.ancestors().skip(1).all(|path| is(path, 0o001)) && own(&path) && (!path.is_dir() || entries().unwrap_or(false))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_others_are_told_from_roots_own() {
        if !geteuid().is_root() {
            return eprintln!("SKIPPED files_of_others_are_told_from_roots_own: needs root");
        }
        let directory = tempfile::tempdir().unwrap();
        let (file, new) = (directory.path().join("file"), directory.path().join("new"));
        std::fs::write(&file, "").unwrap();
        assert!(is_roots(&file) && is_roots(&new) && is_roots(directory.path()));
        std::os::unix::fs::chown(&file, Some(65534), None).unwrap();
        assert!(!is_roots(&file) && !is_roots(directory.path()));
        std::os::unix::fs::chown(directory.path(), Some(65534), None).unwrap();
        // A temporary directory is closed to all but its owner.
        assert!(!is_roots(&new));
    }
}
