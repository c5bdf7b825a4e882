//! Counts calls by procedure and by client, and how long each took until its reply was ready.

use crate::machine::machine;
use crate::programs::{MOUNT, NFS, NLM, NSM, PORTMAP};
use crate::rpc::Procedure;
use std::net::IpAddr;
use std::time::Instant;
use weft_vfs::{Latency, LatencyHistogram, Work, WorkBy};

/// Procedures of NFS version 3 by their numbers (RFC 1813 3.3).
const PROCEDURES: [&str; 22] = [
    "null",
    "getattr",
    "setattr",
    "lookup",
    "access",
    "readlink",
    "read",
    "write",
    "create",
    "mkdir",
    "symlink",
    "mknod",
    "remove",
    "rmdir",
    "rename",
    "link",
    "readdir",
    "readdirplus",
    "fsstat",
    "fsinfo",
    "pathconf",
    "commit",
];

/// Other programs, each as one.
const PROGRAMS: [(u32, &str); 4] = [(MOUNT, "mount"), (NLM, "lock"), (NSM, "monitor"), (PORTMAP, "portmap")];

/// All calls since the server began.
#[derive(Debug)]
pub(crate) struct Calls {
    procedures: Box<[LatencyHistogram]>,
    clients: WorkBy<IpAddr>,
}

impl Default for Calls {
    fn default() -> Calls {
        let procedures = (0..PROCEDURES.len() + PROGRAMS.len()).map(|_| LatencyHistogram::default());
        Calls { procedures: procedures.collect(), clients: WorkBy::default() }
    }
}

impl Calls {
    /// Counts a call of `procedure` from `address`, which came at `begun` and has its reply now.
    /// Calls of programs that are not served are not counted: they are refused.
    pub(crate) fn answered(&self, procedure: Procedure, address: IpAddr, begun: Instant) {
        let number = procedure.number as usize;
        let of_program = || PROGRAMS.iter().position(|(program, _)| *program == procedure.program);
        let counted = match procedure.program {
            NFS => Some(number).filter(|number| *number < PROCEDURES.len()),
            _ => of_program().map(|at| PROCEDURES.len() + at),
        };
        let Some(counted) = counted else { return };
        let ended = Instant::now();
        self.procedures[counted].add(ended - begun);
        self.clients.add(machine(address), begun, ended);
    }

    /// Returns the time that calls took, by procedure.
    pub(crate) fn operations(&self) -> Vec<(&'static str, Latency)> {
        let names = PROCEDURES.into_iter().chain(PROGRAMS.into_iter().map(|(_, name)| name));
        let all = names.zip(&self.procedures).map(|(name, calls)| (name, calls.latency()));
        all.filter(|(_, latency)| latency.count() > 0).collect()
    }

    /// Returns the calls of each machine, and of all that are not told apart.
    pub(crate) fn clients(&self) -> (Vec<(IpAddr, Work)>, Work) {
        self.clients.all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_call_is_counted_by_its_procedure_and_its_client() {
        let calls = Calls::default();
        let address = IpAddr::from([192, 0, 2, 1]);
        let call = |program, number| {
            calls.answered(Procedure { program, version: 3, number }, address, Instant::now());
        };
        [(NFS, 6), (NFS, 6), (NFS, 21), (NFS, 22), (NFS, u32::MAX), (MOUNT, 1), (NLM, 2), (1, 1)]
            .into_iter()
            .for_each(|(program, number)| call(program, number));
        let told: Vec<_> = calls.operations().iter().map(|(name, latency)| (*name, latency.count())).collect();
        assert_eq!(told, [("read", 2), ("commit", 1), ("mount", 1), ("lock", 1)]);
        let (clients, others) = calls.clients();
        assert_eq!((clients[0].0, clients[0].1.requests, others.requests), (address, 5, 0));
    }
}
