//! Memory and processes that a command may have. What a person runs has the bounds of each process
//! alone. What runs in a daemon has those of networks for all of its processes together: by a
//! control group, where one can be made; else, for links of others than the user whose process this
//! is, by so few and small processes that all of them stay below.

use super::confined::LIMITS;
use super::groups::Group;
use crate::account::Bounds;
use crate::stage::StageError;
use rustix::process::{Resource, geteuid};
use std::os::fd::RawFd;
use weft_users::whose;

/// Processes that one owner's commands can have at once.
pub(super) const PROCESSES_MAX: u64 = 512;

/// The same where no group bounds their memory.
const FEW_PROCESSES: u64 = 8;

/// The private directory of a few small processes has one part of so many of their owner's memory.
const FEW_PRIVATE_PARTS: u64 = 64;

/// Bytes in the private directory of a command that a person runs.
const PRIVATE_BYTES: u64 = 1 << 30;

/// Bounds on one command.
pub(super) struct Allowance {
    group: Option<Group>,
    pub(super) limits: [(Resource, u64); LIMITS.len() + 1],
    /// Bytes that its private directory may hold.
    pub(super) private_bytes: u64,
    /// False if it can have no memory but in address spaces, as nothing would bound it.
    pub(super) has_other_memory: bool,
}

impl Allowance {
    /// Bounds for a command of a link of `owner`, whose networks have `bounds`, if they have some.
    pub(super) fn new(owner: u32, bounds: Option<Bounds>) -> Result<Allowance, StageError> {
        let Some(bounds) = bounds else { return Ok(Allowance::free(PRIVATE_BYTES)) };
        let free = Allowance::free(bounds.of_network() / 2);
        let user = geteuid();
        match Group::new(whose(owner), bounds) {
            Ok(group) => Ok(Allowance { group: Some(group), ..free }),
            Err(_) if owner == user.as_raw() => Ok(free),
            Err(_) if user.is_root() => Ok(Allowance::few(bounds)),
            Err(why) => Err(StageError::data(format!(
                "commands of others cannot be run here, as nothing bounds their memory: {why}; run Weft as root, or where it can make cgroups (systemd: a unit of the user)"
            ))),
        }
    }

    fn free(private_bytes: u64) -> Allowance {
        let limits = limits(PROCESSES_MAX, None);
        Allowance { group: None, limits, private_bytes, has_other_memory: true }
    }

    /// So few and small processes that those of one owner stay within its `bounds`.
    fn few(bounds: Bounds) -> Allowance {
        let private_bytes = bounds.of_owner() / FEW_PRIVATE_PARTS;
        // Each can be the only one of its command.
        let bytes = bounds.of_owner() / FEW_PROCESSES - private_bytes;
        let limits = limits(FEW_PROCESSES, Some(bytes));
        Allowance { group: None, limits, private_bytes, has_other_memory: false }
    }

    /// Files that a process writes `0` to, to be in its group.
    pub(super) fn members(&self) -> Vec<RawFd> {
        self.group.as_ref().map(Group::members).unwrap_or_default()
    }

    /// Bytes of memory that it may have, if the kernel ended a process because it had that much.
    pub(super) fn exceeded(&self) -> Option<u64> {
        self.group.as_ref().and_then(Group::exceeded)
    }
}

/// Limits on each process: with `bytes` of memory, if that is said.
fn limits(processes: u64, bytes: Option<u64>) -> [(Resource, u64); LIMITS.len() + 1] {
    let mut all = [(Resource::Nproc, processes); LIMITS.len() + 1];
    all[1..].copy_from_slice(&LIMITS);
    for (resource, limit) in &mut all {
        if *resource == Resource::As {
            *limit = bytes.map_or(*limit, |bytes| bytes.min(*limit));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_small_processes_stay_within_what_their_owner_may_have() {
        let bounds = Bounds { memory_bytes: 1 << 30, ..Bounds::default() };
        let Allowance { limits, private_bytes, .. } = Allowance::few(bounds);
        let of = |resource| limits.iter().find(|(one, _)| *one == resource).map(|(_, limit)| *limit).unwrap();
        assert_eq!((of(Resource::As) >> 20, private_bytes >> 20), (56, 8));
        assert!(of(Resource::Nproc) * (of(Resource::As) + private_bytes) <= bounds.of_owner());
    }
}
