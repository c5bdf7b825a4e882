//! A process with as little as it needs: no privileges, bounds on what it takes, and an end when
//! this process or thread ends.

use rustix::process::{Resource, Rlimit, Signal, set_parent_process_death_signal, setrlimit};
use rustix::thread::set_no_new_privs;
use std::io;

/// User and group that run for nobody in particular.
pub(super) const NOBODY: u32 = 65534;

/// Bytes of memory and of files, seconds of a processor, open files.
pub(super) const LIMITS: [(Resource, u64); 5] = [
    (Resource::As, 2 << 30),
    (Resource::Fsize, 1 << 30),
    (Resource::Cpu, 3600),
    (Resource::Nofile, 256),
    (Resource::Core, 0),
];

/// Bounds what this process takes, for good, and ends it when what started it ends. Makes system
/// calls and nothing else. One resource may be free.
pub(super) fn restrict_but(free: Option<Resource>) -> io::Result<()> {
    set_no_new_privs(true)?;
    set_parent_process_death_signal(Some(Signal::KILL))?;
    for (resource, limit) in LIMITS.into_iter().filter(|(resource, _)| Some(*resource) != free) {
        let limit = Some(limit);
        // One that is lower already stays.
        if let Err(error) = setrlimit(resource, Rlimit { current: limit, maximum: limit })
            && error != rustix::io::Errno::PERM
        {
            return Err(error.into());
        }
    }
    Ok(())
}
