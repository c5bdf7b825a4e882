//! The Network Status Monitor, version 1 (X/Open XNFS 11): hosts tell each other that they have
//! restarted.
//!
//! Only calls of other hosts are answered; it monitors no host for programs of this one.

use super::arguments::NAME_BYTES_MAX;
use crate::export::Client;
use crate::outcome::Outcome;
use crate::rpc::{self, Call, Refusal};
use crate::service::Service;
use crate::xdr::Writer;

/// Procedure by which a host reports that it has restarted.
pub(crate) const NOTIFY: u32 = 6;

const STAT: u32 = 1;

/// Answers a call.
pub(crate) fn serve(service: &Service, client: &Client, call: &Call<'_>) -> Outcome {
    let refused = |refusal| Outcome::Reply(rpc::refused(call.xid, refusal).into());
    let Some(locking) = &service.locking else { return refused(Refusal::ProgramUnavailable) };
    let mut arguments = call.arguments;
    let mut reply = rpc::success(call.xid);
    match call.procedure.number {
        0 => {}
        STAT => {
            if arguments.opaque(NAME_BYTES_MAX).is_none() {
                return refused(Refusal::GarbageArguments);
            }
            // `STAT_FAIL`: it will not monitor that host.
            reply.u32(1);
            reply.u32(locking.state());
        }
        NOTIFY => {
            let (Some(name), Some(_state)) = (arguments.opaque(NAME_BYTES_MAX), arguments.u32()) else {
                return refused(Refusal::GarbageArguments);
            };
            service.restarted(client, name);
        }
        _ => return refused(Refusal::ProcedureUnavailable),
    }
    Outcome::Reply(reply.into_bytes().into())
}

/// Returns arguments that report the restart of host `name` with `state`.
pub(crate) fn notice(name: &[u8], state: u32) -> Vec<u8> {
    let mut arguments = Writer::default();
    arguments.opaque(name);
    arguments.u32(state);
    arguments.into_bytes()
}
