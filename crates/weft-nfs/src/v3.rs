//! NFS version 3 (RFC 1813): its 21 procedures as calls of the `vfs`.
//!
//! Each reads all its arguments, makes one change at most, and writes its results. The sender of
//! the reply makes the change durable first (RFC 1813 4.8); only unstable writes need not be, and
//! changes in an export that says so.

mod attributes;
mod content;
mod directories;
mod entries;

use crate::export::{Client, WriteAck};
use crate::outcome::{Failure, GARBAGE, Outcome};
use crate::request::Request;
use crate::rpc::{self, Call, Refusal, Reply};
use crate::service::Service;
use crate::status::Status;
use crate::xdr::Writer;
use weft_block::Rope;

/// Longest name or target of a link that is looked at (`PATH_MAX`).
const PATH_BYTES_MAX: usize = 4096;

/// Most bytes read or written by one call.
pub(crate) const DATA_BYTES_MAX: usize = 1 << 20;

/// Remaining work of a procedure that succeeded.
struct Done {
    /// Data after the written results.
    data: Rope,
    /// Policy that must be met before the reply, if there is one.
    once: Option<WriteAck>,
}

impl Done {
    /// Returns that nothing remains.
    fn told() -> Served {
        Ok(Done { data: Rope::new(), once: None })
    }

    /// Returns that a change is acknowledged by the export's policy.
    fn changed(request: &Request<'_>) -> Served {
        Ok(Done { data: Rope::new(), once: Some(request.told()) })
    }

    /// Returns that the change must be durable, as the client asked.
    fn durable() -> Served {
        Ok(Done { data: Rope::new(), once: Some(WriteAck::Durable) })
    }
}

type Served = Result<Done, Failure>;

/// Results after the status of a procedure that failed.
#[derive(Clone, Copy)]
enum Shape {
    Nothing,
    /// `post_op_attr` of the first handle's file.
    Attributes,
    /// `wcc_data` of the first handle's file.
    Change,
    /// `wcc_data` of both handles' files.
    Changes,
    /// `post_op_attr` of the first handle's file, `wcc_data` of the second's.
    AttributesAndChange,
}

fn shape(procedure: u32) -> Shape {
    match procedure {
        0 | 1 => Shape::Nothing,
        2 | 7..=13 | 21 => Shape::Change,
        14 => Shape::Changes,
        15 => Shape::AttributesAndChange,
        _ => Shape::Attributes,
    }
}

/// True if procedure `number` changes nothing.
pub(crate) fn only_reads(number: u32) -> bool {
    matches!(number, 1 | 3..=6 | 16..=20)
}

/// Answers a call.
pub(crate) fn serve(service: &Service, client: &Client, call: &Call<'_>) -> Outcome {
    let mut request = Request::new(service, client, call);
    let mut reply = rpc::success(call.xid);
    let head = reply.len();
    match procedure(call.procedure.number, &mut request, &mut reply) {
        Ok(Done { data, once }) => {
            let reply = Reply { head: reply.into_bytes(), data };
            match once {
                Some(told) => Outcome::Once(told, reply),
                None => Outcome::Reply(reply),
            }
        }
        Err(Failure::Status(status)) => {
            reply.truncate(head);
            // A client that is told to ask again need not wait for attributes, which may be
            // computed.
            let may_look = status != Status::Jukebox;
            fail(call.procedure.number, status, &mut reply, |reply, subject| {
                let subject = request.subjects.get(subject).filter(|_| may_look);
                let known = subject.and_then(|file| request.user().attributes(*file).ok());
                attributes::optional(&request, reply, known.as_ref());
            });
            Outcome::Reply(reply.into_bytes().into())
        }
        Err(Failure::Refused(refusal)) => Outcome::Reply(rpc::refused(call.xid, refusal).into()),
        Err(Failure::WouldWait) => Outcome::WouldWait,
    }
}

/// Returns the reply to a call that was carried out, but could not be made durable. It has no
/// attributes.
pub(crate) fn failed(xid: u32, procedure: u32, status: Status) -> Reply {
    let mut reply = rpc::success(xid);
    fail(procedure, status, &mut reply, |reply, _| reply.bool(false));
    reply.into_bytes().into()
}

fn procedure(number: u32, request: &mut Request<'_>, reply: &mut Writer) -> Served {
    match number {
        0 => Done::told(),
        1 => attributes::getattr(request, reply),
        2 => attributes::setattr(request, reply),
        3 => entries::lookup(request, reply),
        4 => attributes::access(request, reply),
        5 => content::readlink(request, reply),
        6 => content::read(request, reply),
        7 => content::write(request, reply),
        8 => entries::create(request, reply),
        9 => entries::mkdir(request, reply),
        10 => entries::symlink(request, reply),
        11 => entries::mknod(request, reply),
        12 => entries::remove(request, reply),
        13 => entries::rmdir(request, reply),
        14 => entries::rename(request, reply),
        15 => entries::link(request, reply),
        16 => directories::readdir(request, reply),
        17 => directories::readdirplus(request, reply),
        18 => attributes::fsstat(request, reply),
        19 => attributes::fsinfo(request, reply),
        20 => attributes::pathconf(request, reply),
        21 => content::commit(request, reply),
        _ => Err(Failure::Refused(Refusal::ProcedureUnavailable)),
    }
}

/// Writes the failure of a procedure; `attributes` writes those of one of its handles' files.
fn fail(procedure: u32, status: Status, reply: &mut Writer, attributes: impl Fn(&mut Writer, usize)) {
    reply.u32(status as u32);
    let change = |reply: &mut Writer, subject: usize| {
        reply.bool(false);
        attributes(reply, subject);
    };
    match shape(procedure) {
        Shape::Nothing => {}
        Shape::Attributes => attributes(reply, 0),
        Shape::Change => change(reply, 0),
        Shape::Changes => {
            change(reply, 0);
            change(reply, 1);
        }
        Shape::AttributesAndChange => {
            attributes(reply, 0);
            change(reply, 1);
        }
    }
}

/// Reads a name or the target of a link.
fn name<'a>(request: &mut Request<'a>) -> Result<&'a [u8], Failure> {
    request.arguments.opaque(PATH_BYTES_MAX).ok_or(GARBAGE)
}
