//! The MOUNT protocol, version 3 (RFC 1813 5): from paths to the first handle.

use crate::export::{Client, Clients, parts};
use crate::handle::HandleBytes;
use crate::outcome::{Failure, GARBAGE, Outcome};
use crate::rpc::{self, Auth, Call, Refusal};
use crate::service::{Exported, Service};
use crate::status::Status;
use crate::xdr::{Reader, Writer};
use weft_vfs::{FileId, Kind};

/// Longest path (`MNTPATHLEN`).
const PATH_BYTES_MAX: usize = 1024;

/// `AUTH_NONE`, `AUTH_SYS`: credentials that calls may be made by.
const FLAVORS: [u32; 2] = [1, 0];

/// Answers a call.
pub(crate) fn serve(service: &Service, client: &Client, call: &Call<'_>) -> Outcome {
    let mut arguments = call.arguments;
    let mut reply = rpc::success(call.xid);
    let served = match call.procedure.number {
        0 => Ok(()),
        1 => match mount(service, (client, &call.auth), &mut arguments, &mut reply) {
            Err(Failure::Refused(refusal)) => Err(refusal),
            Err(Failure::WouldWait) => return Outcome::WouldWait,
            Err(Failure::Status(status)) => {
                reply.u32(status as u32);
                Ok(())
            }
            Ok(()) => Ok(()),
        },
        2 => dump(service, client, &mut reply),
        3 => unmount(service, client, &mut arguments),
        4 => {
            service.mounts.forget_all(client.address);
            Ok(())
        }
        5 => exports(service, &mut reply),
        _ => Err(Refusal::ProcedureUnavailable),
    };
    Outcome::Reply(match served {
        Ok(()) => reply.into_bytes().into(),
        Err(refusal) => rpc::refused(call.xid, refusal).into(),
    })
}

/// `MOUNTPROC3_MNT`.
fn mount(
    service: &Service,
    (client, auth): (&Client, &Auth),
    arguments: &mut Reader<'_>,
    reply: &mut Writer,
) -> Result<(), Failure> {
    let path = arguments.opaque(PATH_BYTES_MAX).ok_or(GARBAGE)?;
    let handle = find(service, (client, auth), path)?;
    service.mounts.note(client.address, path);
    reply.u32(Status::Ok as u32);
    reply.opaque(&handle);
    reply.u32(2);
    FLAVORS.into_iter().for_each(|flavor| reply.u32(flavor));
    Ok(())
}

/// Returns the handle of the directory at `path`: an export, or a directory in one. Below an export
/// the calling user must be allowed to walk there; otherwise it learns no more than that.
fn find(service: &Service, (client, auth): (&Client, &Auth), path: &[u8]) -> Result<HandleBytes, Failure> {
    let path = parts(path);
    let contains = |exported: &&Exported| path.starts_with(&exported.export.path);
    let innermost = service.exports.iter().filter(contains).max_by_key(|exported| exported.export.path.len());
    let exported = innermost.ok_or(Status::NoEnt)?;
    let rule = service.rule(exported, client)?;
    if path.len() == exported.export.path.len() {
        return Ok(service.handle(exported, exported.root));
    }
    if path.iter().any(|name| name == b"..") {
        return Err(Status::NoEnt.into());
    }
    let who = rule.credentials(auth);
    let user = service.vfs.user(&who);
    let mut at = exported.root;
    for name in &path[exported.export.path.len()..] {
        at = FileId::from(&service.lookup(exported, &user, at, name)?.0);
    }
    match user.attributes(at)?.kind {
        Kind::Directory => Ok(service.handle(exported, at)),
        // Files that cannot be mounted need not be reported.
        _ => Err(Status::NoEnt.into()),
    }
}

/// `MOUNTPROC3_DUMP`. Reports to a client its own mounts, since names of directories may be secret,
/// and nothing if no export lets it in.
fn dump(service: &Service, client: &Client, reply: &mut Writer) -> Result<(), Refusal> {
    let paths = if service.lets_in(client) { service.mounts.of(client.address) } else { Vec::new() };
    for path in paths {
        reply.bool(true);
        reply.opaque(client.address.to_canonical().to_string().as_bytes());
        reply.opaque(&path);
    }
    reply.bool(false);
    Ok(())
}

/// `MOUNTPROC3_UMNT`.
fn unmount(service: &Service, client: &Client, arguments: &mut Reader<'_>) -> Result<(), Refusal> {
    let path = arguments.opaque(PATH_BYTES_MAX).ok_or(Refusal::GarbageArguments)?;
    service.mounts.forget(client.address, path);
    Ok(())
}

/// `MOUNTPROC3_EXPORT`.
fn exports(service: &Service, reply: &mut Writer) -> Result<(), Refusal> {
    for exported in &service.exports {
        reply.bool(true);
        reply.opaque(&exported.export.name());
        for rule in &exported.export.rules {
            reply.bool(true);
            reply.opaque(
                match rule.clients {
                    Clients::Any => b"*".to_vec(),
                    Clients::Network { address, bits } => format!("{address}/{bits}").into_bytes(),
                }
                .as_slice(),
            );
        }
        reply.bool(false);
    }
    reply.bool(false);
    Ok(())
}
