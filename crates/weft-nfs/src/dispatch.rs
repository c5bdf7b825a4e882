//! Dispatches calls to the programs that they are for.

use crate::export::{Client, Transport};
use crate::locking::{nlm, nsm};
use crate::outcome::Outcome;
use crate::programs::{MOUNT, NFS, NLM, NSM, PORTMAP};
use crate::rpc::{self, Auth, Call, Procedure, Refusal};
use crate::service::Service;
use crate::{mount, portmap, v3};

/// Serves `call` from `client`.
pub(crate) fn serve(service: &Service, client: &Client, call: &Call<'_>) -> Outcome {
    let outcome = outcome(service, client, call);
    if let Outcome::Reply(reply) = &outcome {
        service.refusals.answered(call.procedure, &reply.head);
    }
    outcome
}

fn outcome(service: &Service, client: &Client, call: &Call<'_>) -> Outcome {
    if call.auth == Auth::Tls {
        // Asked before anything else, and only of a connection that has none (RFC 9289 4.1).
        return match call.procedure.number {
            0 if !client.tls => Outcome::StartTls(rpc::start_tls(call.xid)),
            _ => Outcome::Reply(rpc::refused(call.xid, Refusal::TooWeak).into()),
        };
    }
    let refused = |refusal| Outcome::Reply(rpc::refused(call.xid, refusal).into());
    let Procedure { program, version, .. } = call.procedure;
    match (program, version) {
        (MOUNT, 3) => mount::serve(service, client, call),
        (NLM, 4) => nlm::serve(service, client, call),
        (NSM, 1) => nsm::serve(service, client, call),
        (PORTMAP, _) => portmap::serve(service, client, call),
        (NLM, _) => refused(Refusal::VersionMismatch { low: 4, high: 4 }),
        (NSM, _) => refused(Refusal::VersionMismatch { low: 1, high: 1 }),
        (MOUNT, _) => refused(Refusal::VersionMismatch { low: 3, high: 3 }),
        // NFS data is too long for datagrams.
        (NFS, _) if client.transport == Transport::Udp => refused(Refusal::ProgramUnavailable),
        (NFS, 3) => v3::serve(service, client, call),
        (NFS, _) => refused(Refusal::VersionMismatch { low: 3, high: 3 }),
        _ => refused(Refusal::ProgramUnavailable),
    }
}
