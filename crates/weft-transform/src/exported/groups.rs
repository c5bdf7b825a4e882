//! Control groups (cgroups(7)) of commands: bounds on the memory and the number of all processes of
//! a command together, of all commands of one owner, and of all commands of this process. Files of
//! a command's private directory count as memory.
//!
//! Groups lie in one another: `weft-NAMESPACE-PID/OWNER/NUMBER`, in the group of this process or in
//! one above it, so that bounds of the machine's keeper hold, too. Each is made when a command
//! needs it and removed when none does. Those of a process that was killed are removed by the next
//! one that runs commands in the same namespace of processes.
//!
//! Both versions of the kernel's interface are known: version 2, where it can bound memory, and the
//! hierarchies `memory` and `pids` of version 1.

use crate::account::Bounds;
use parking_lot::Mutex;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Processes of one command, and of all commands of one owner. All commands have no bound on them.
const PROCESSES: [Option<u64>; 3] = [None, Some(super::allowance::PROCESSES_MAX), Some(256)];

/// Groups of commands that have ended, to be removed: the kernel may not have seen all of the end.
/// Making and removing groups takes the lock.
static LEFT: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Hierarchies that bound memory and processes; or why there are none.
static HIERARCHIES: LazyLock<Result<Vec<Hierarchy>, String>> = LazyLock::new(|| {
    let read = |path: &str| fs::read_to_string(path).map_err(|error| format!("{path}: {error}"));
    let found = find(&read("/proc/self/mountinfo")?, &read("/proc/self/cgroup")?);
    let usable: Vec<Hierarchy> = found.into_iter().map(usable).collect::<Result<_, _>>()?;
    let has = |kinds: &[Kind]| kinds.iter().all(|kind| usable.iter().any(|hierarchy| hierarchy.kind == *kind));
    if !has(&[Kind::Unified]) && !has(&[Kind::Memory, Kind::Processes]) {
        return Err("no cgroups that bound memory and processes are mounted".into());
    }
    usable.iter().for_each(|hierarchy| sweep(&hierarchy.base));
    Ok(usable)
});

/// Interfaces to groups, with other names for the same bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Version 2.
    Unified,
    /// `memory` of version 1.
    Memory,
    /// `pids` of version 1.
    Processes,
}

/// Groups of one kind, and the directory in which to make them.
#[derive(Debug, PartialEq, Eq)]
struct Hierarchy {
    kind: Kind,
    /// The directory where the hierarchy is mounted.
    top: PathBuf,
    /// The group of this process, then the one that others are made in.
    base: PathBuf,
}

/// A group for one command. It is removed when this goes, after the processes in it.
pub(super) struct Group {
    directories: Vec<(Kind, PathBuf)>,
    /// A process that writes `0` to these is in the group.
    members: Vec<File>,
    memory_bytes: u64,
}

impl Group {
    /// A new group, for a command of `owner`.
    ///
    /// # Errors
    /// The reason why this machine or this user can have none.
    pub(super) fn new(owner: u32, bounds: Bounds) -> Result<Group, String> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let hierarchies = HIERARCHIES.as_ref().map_err(String::clone)?;
        let number = NUMBER.fetch_add(1, Ordering::Relaxed).to_string();
        let names = [name(std::process::id()), owner.to_string(), number];
        let mut group = Group { directories: Vec::new(), members: Vec::new(), memory_bytes: bounds.of_network() };
        // It is free again before the group goes, if that fails.
        let _changing = LEFT.lock();
        for hierarchy in hierarchies {
            let failed = |error| format!("{}: {error}", hierarchy.base.display());
            let directory = names.iter().fold(hierarchy.base.clone(), |above, name| above.join(name));
            group.directories.push((hierarchy.kind, directory.clone()));
            hierarchy.make(&names, bounds).map_err(failed)?;
            let members = OpenOptions::new().write(true).open(directory.join("cgroup.procs")).map_err(failed)?;
            group.members.push(members);
        }
        Ok(group)
    }

    /// Files that a process writes `0` to, to be in the group.
    pub(super) fn members(&self) -> Vec<RawFd> {
        self.members.iter().map(AsRawFd::as_raw_fd).collect()
    }

    /// Bytes of memory that it may have, if the kernel ended a process because it had that much.
    pub(super) fn exceeded(&self) -> Option<u64> {
        let was_killed = self.directories.iter().any(|(kind, directory)| {
            let file = match kind {
                Kind::Unified => "memory.events",
                Kind::Memory => "memory.oom_control",
                Kind::Processes => return false,
            };
            let text = fs::read_to_string(directory.join(file)).unwrap_or_default();
            text.lines().filter_map(|line| line.strip_prefix("oom_kill ")).any(|count| count.trim() != "0")
        });
        was_killed.then_some(self.memory_bytes)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let mut left = LEFT.lock();
        left.extend(self.directories.drain(..).map(|(_, directory)| directory));
        left.retain(|directory| {
            let removed = fs::remove_dir(directory);
            if removed.as_ref().is_err_and(|error| error.kind() == ErrorKind::ResourceBusy) {
                return true;
            }
            // Those above go with the last one in them.
            let mut above = directory.ancestors().skip(1).take(PROCESSES.len() - 1);
            above.all(|directory| fs::remove_dir(directory).is_ok());
            false
        });
    }
}

impl Hierarchy {
    /// Makes the group of these `names`, each in the one before, with bounds.
    fn make(&self, names: &[String; 3], bounds: Bounds) -> io::Result<()> {
        let memory = [bounds.memory_bytes, bounds.of_owner(), bounds.of_network()];
        let mut directory = self.base.clone();
        for ((name, memory), processes) in names.iter().zip(memory).zip(PROCESSES) {
            if self.kind == Kind::Unified && directory != self.base {
                fs::write(directory.join("cgroup.subtree_control"), "+memory +pids")?;
            }
            directory.push(name);
            make_directory(&directory)?;
            self.bound(&directory, memory, processes)?;
        }
        Ok(())
    }

    fn bound(&self, directory: &Path, memory: u64, processes: Option<u64>) -> io::Result<()> {
        let set = |file: &str, value: &str| fs::write(directory.join(file), value);
        // A kernel without swap has none of these.
        let set_if_there = |file: &str, value: &str| match set(file, value) {
            Err(error) if error.kind() != ErrorKind::NotFound && error.kind() != ErrorKind::PermissionDenied => {
                Err(error)
            }
            _ => Ok(()),
        };
        let processes = processes.map_or_else(|| "max".to_owned(), |most| most.to_string());
        let memory = memory.to_string();
        match self.kind {
            Kind::Unified => {
                set("memory.max", &memory)?;
                set_if_there("memory.swap.max", "0")?;
                set("pids.max", &processes)
            }
            Kind::Memory => {
                set("memory.limit_in_bytes", &memory)?;
                set_if_there("memory.memsw.limit_in_bytes", &memory)
            }
            Kind::Processes => set("pids.max", &processes),
        }
    }
}

/// Names the group of all commands of process `id`, of this namespace of processes.
fn name(id: u32) -> String {
    static NAMESPACE: LazyLock<u64> = LazyLock::new(|| fs::metadata("/proc/self/ns/pid").map_or(0, |it| it.ino()));
    format!("weft-{}-{id}", *NAMESPACE)
}

/// Makes a directory that may be there already.
fn make_directory(directory: &Path) -> io::Result<()> {
    match fs::create_dir(directory) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

/// Finds the hierarchies that can bound commands and the group of this process in each, in the
/// texts of /proc/self/mountinfo and /proc/self/cgroup.
fn find(mounts: &str, groups: &str) -> Vec<Hierarchy> {
    let of_group = |controller: &str| {
        groups.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let (controllers, path) = (parts.next()?, parts.next()?);
            controllers.split(',').any(|one| one == controller).then_some(path)
        })
    };
    let hierarchy = |kind: Kind, controller: &str| {
        mounts.lines().find_map(|line| {
            let (place, file_system) = line.split_once(" - ")?;
            let mut place = place.split(' ').skip(3);
            let (root, top) = (place.next()?, Path::new(place.next()?));
            let mut words = file_system.split(' ');
            let is_it = match (words.next()?, kind) {
                ("cgroup2", Kind::Unified) => true,
                ("cgroup", Kind::Memory | Kind::Processes) => {
                    words.nth(1)?.split(',').any(|option| option == controller)
                }
                _ => false,
            };
            let inside = Path::new(of_group(controller)?).strip_prefix(root).ok().filter(|_| is_it)?;
            // A group outside of what is mounted has a path that leads out of it.
            let mut parts = inside.components();
            if parts.any(|part| part == Component::ParentDir) {
                return None;
            }
            Some(Hierarchy { kind, top: top.to_owned(), base: top.join(inside) })
        })
    };
    let old = [(Kind::Memory, "memory"), (Kind::Processes, "pids")].map(|(kind, name)| hierarchy(kind, name));
    match old {
        [Some(memory), Some(processes)] => vec![memory, processes],
        // Where version 1 has one of them, version 2 has not both.
        _ => hierarchy(Kind::Unified, "").into_iter().collect(),
    }
}

/// The hierarchy, with the nearest group for a base in which this process can make others.
fn usable(hierarchy: Hierarchy) -> Result<Hierarchy, String> {
    let Hierarchy { kind, top, base } = hierarchy;
    let mut why = String::new();
    for directory in base.ancestors().take_while(|directory| directory.starts_with(&top)) {
        match try_in(kind, directory, directory == top) {
            Ok(()) => return Ok(Hierarchy { kind, base: directory.to_owned(), top }),
            Err(error) => why = format!("{}: {error}", directory.display()),
        }
    }
    Err(why)
}

/// Makes a group in `directory`, to see that it has bounds, and removes it.
fn try_in(kind: Kind, directory: &Path, is_top: bool) -> io::Result<()> {
    if kind == Kind::Unified {
        let file = directory.join("cgroup.subtree_control");
        let given = fs::read_to_string(&file)?;
        let has = |controller| given.split_whitespace().any(|given| given == controller);
        if !(has("memory") && has("pids")) {
            // Only the topmost can give them to others and have processes itself.
            if !is_top {
                return Err(io::Error::other("its groups cannot bound memory and processes"));
            }
            fs::write(file, "+memory +pids")?;
        }
    }
    let tried = directory.join(name(std::process::id()));
    make_directory(&tried)?;
    let hierarchy = Hierarchy { kind, top: directory.to_owned(), base: directory.to_owned() };
    let bounded = hierarchy.bound(&tried, u64::from(u32::MAX), None);
    let _ = fs::remove_dir(&tried);
    bounded
}

/// Removes groups of processes that are gone: those that are empty.
fn sweep(base: &Path) {
    let inside = |directory: &Path| {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        directories.map(|entry| entry.path()).collect::<Vec<PathBuf>>()
    };
    let is_left = |path: &PathBuf| {
        let said = path.file_name().and_then(|said| said.to_str()).unwrap_or_default();
        let id = said.rsplit('-').next().and_then(|id| id.parse::<u32>().ok());
        id.is_some_and(|id| said == name(id) && !Path::new(&format!("/proc/{id}")).exists())
    };
    for all in inside(base).into_iter().filter(is_left) {
        for owner in inside(&all) {
            for command in inside(&owner) {
                // It is in use still, or goes.
                let _ = fs::remove_dir(command);
            }
            let _ = fs::remove_dir(owner);
        }
        let _ = fs::remove_dir(all);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_processes_that_are_gone_are_removed() {
        let base = tempfile::tempdir().expect("a directory");
        // No process has so high a number.
        let (gone, here) = (name(u32::MAX), name(std::process::id()));
        for group in [format!("{gone}/7/0"), format!("{here}/7/0"), "weft-1-4294967295/7".into(), "other".into()] {
            fs::create_dir_all(base.path().join(group)).expect("made");
        }
        sweep(base.path());
        let mut left: Vec<_> = fs::read_dir(base.path()).unwrap().flatten().map(|entry| entry.file_name()).collect();
        left.sort();
        assert_eq!(left, ["other".into(), "weft-1-4294967295".into(), std::ffi::OsString::from(here)]);
    }

    #[test]
    fn the_group_of_a_process_is_found_in_either_version() {
        let mounts = "22 27 0:21 / /proc rw - proc proc rw\n\
                      32 31 0:29 / /cg/cpu rw,relatime - cgroup cgroup rw,cpu\n\
                      35 31 0:32 / /cg/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n\
                      39 31 0:36 /jobs /cg/pids rw,relatime - cgroup cgroup rw,pids\n\
                      41 31 0:38 / /cg/unified rw,relatime - cgroup2 cgroup2 rw\n";
        let found = |groups| {
            let found = find(mounts, groups).into_iter();
            found.map(|one| (one.kind, one.base.display().to_string())).collect::<Vec<_>>()
        };
        let old = "9:name=systemd:/\n8:pids:/jobs/a\n4:memory:/b/c:d\n0::/e\n";
        let expected = [(Kind::Memory, "/cg/memory/b/c:d".to_owned()), (Kind::Processes, "/cg/pids/a".to_owned())];
        assert_eq!(found(old), expected);
        let new = [(Kind::Unified, "/cg/unified/system.slice/weft.service".to_owned())];
        assert_eq!(found("0::/system.slice/weft.service\n"), new);
        // It cannot be reached from here.
        assert_eq!(found("0::/../elsewhere\n9:pids:/other\n"), []);
        assert!(find("", old).is_empty() && find(mounts, "").is_empty());
    }
}
