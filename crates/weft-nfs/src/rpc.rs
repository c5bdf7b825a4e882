//! Remote procedure calls (RFC 5531): the frame around NFS.

use crate::xdr::{Reader, Writer};
use weft_block::Rope;
use weft_vfs::Credentials;

/// The one version of RPC.
const RPC_VERSION: u32 = 2;
const CALL: u32 = 0;
const REPLY: u32 = 1;

/// Longest credential or verifier (RFC 5531 8.2).
const AUTH_BYTES_MAX: usize = 400;
/// Most supplementary groups, and longest machine name in bytes, of `AUTH_SYS` (RFC 5531 Appendix
/// A).
const GROUPS_MAX: u32 = 16;
const MACHINE_BYTES_MAX: usize = 255;

/// Credential of a caller (RFC 5531 8.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Auth {
    /// Nobody in particular (`AUTH_NONE`).
    None,
    /// A user of a system that is trusted to say who (`AUTH_SYS`).
    Sys(Credentials),
    /// A request for TLS (`AUTH_TLS`, RFC 9289 4.1).
    Tls,
}

const AUTH_NONE: u32 = 0;
const AUTH_SYS: u32 = 1;
const AUTH_TLS: u32 = 7;

/// A procedure of a version of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Procedure {
    pub(crate) program: u32,
    pub(crate) version: u32,
    pub(crate) number: u32,
}

/// A call.
#[derive(Clone, Debug)]
pub(crate) struct Call<'a> {
    /// Number that its reply carries.
    pub(crate) xid: u32,
    pub(crate) procedure: Procedure,
    pub(crate) auth: Auth,
    pub(crate) arguments: Reader<'a>,
}

/// Reaction to a message that is no call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoCall {
    /// Send this answer.
    Answer(Vec<u8>),
    /// The message cannot be answered: the connection is out of step.
    Garbage,
}

/// Reason that a valid call is not carried out (RFC 5531 9, `accept_stat`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// No such program here.
    ProgramUnavailable,
    /// No such version; the lowest and highest there are.
    VersionMismatch { low: u32, high: u32 },
    /// No such procedure.
    ProcedureUnavailable,
    /// The arguments cannot be read.
    GarbageArguments,
    /// The caller must identify itself in another way.
    TooWeak,
    /// This kind of credential is not known.
    NoSuchCredential,
}

/// Reads the head of a call.
pub(crate) fn parse(message: &[u8]) -> Result<Call<'_>, NoCall> {
    let mut reader = Reader::new(message);
    let (Some(xid), Some(CALL)) = (reader.u32(), reader.u32()) else { return Err(NoCall::Garbage) };
    let Some(version) = reader.u32() else { return Err(NoCall::Garbage) };
    if version != RPC_VERSION {
        return Err(NoCall::Answer(denied(xid, |reply| {
            reply.u32(0);
            reply.u32(RPC_VERSION);
            reply.u32(RPC_VERSION);
        })));
    }
    let (Some(program), Some(version), Some(number)) = (reader.u32(), reader.u32(), reader.u32()) else {
        return Err(NoCall::Garbage);
    };
    // AUTH_BADCRED, AUTH_REJECTEDCRED.
    let auth = auth(&mut reader).map_err(|why| NoCall::Answer(auth_error(xid, why)))?;
    Ok(Call { xid, procedure: Procedure { program, version, number }, auth, arguments: reader })
}

/// `AUTH_BADCRED`: cannot be read.
const BAD_CREDENTIAL: u32 = 1;
/// `AUTH_REJECTEDCRED`: of a kind that is not known.
const REJECTED_CREDENTIAL: u32 = 2;
/// `AUTH_TOOWEAK`.
const TOO_WEAK: u32 = 5;

fn auth(reader: &mut Reader<'_>) -> Result<Auth, u32> {
    let kind = reader.u32().ok_or(BAD_CREDENTIAL)?;
    let body = reader.opaque(AUTH_BYTES_MAX).ok_or(BAD_CREDENTIAL)?;
    let _verifier_kind = reader.u32().ok_or(BAD_CREDENTIAL)?;
    let _verifier = reader.opaque(AUTH_BYTES_MAX).ok_or(BAD_CREDENTIAL)?;
    match kind {
        AUTH_NONE => Ok(Auth::None),
        AUTH_SYS => sys(&mut Reader::new(body)).map(Auth::Sys).ok_or(BAD_CREDENTIAL),
        AUTH_TLS => Ok(Auth::Tls),
        _ => Err(REJECTED_CREDENTIAL),
    }
}

fn sys(body: &mut Reader<'_>) -> Option<Credentials> {
    let _stamp = body.u32()?;
    let _machine = body.opaque(MACHINE_BYTES_MAX)?;
    let (uid, gid, count) = (body.u32()?, body.u32()?, body.u32()?);
    if count > GROUPS_MAX {
        return None;
    }
    let groups = (0..count).map(|_| body.u32()).collect::<Option<_>>()?;
    Some(Credentials { uid, gid, groups })
}

/// Returns `MSG_DENIED`, with the words that `why` adds.
fn denied(xid: u32, why: impl FnOnce(&mut Writer)) -> Vec<u8> {
    let mut reply = Writer::default();
    reply.u32(xid);
    reply.u32(REPLY);
    reply.u32(1);
    why(&mut reply);
    reply.into_bytes()
}

fn auth_error(xid: u32, why: u32) -> Vec<u8> {
    denied(xid, |reply| {
        reply.u32(1);
        reply.u32(why);
    })
}

/// Begins `MSG_ACCEPTED` with `verifier`; the results follow.
fn accepted(xid: u32, verifier: &[u8], state: u32) -> Writer {
    let mut reply = Writer::after(Vec::with_capacity(256));
    reply.u32(xid);
    reply.u32(REPLY);
    reply.u32(0);
    reply.u32(AUTH_NONE);
    reply.opaque(verifier);
    reply.u32(state);
    reply
}

/// Begins the reply to a call that is carried out.
pub(crate) fn success(xid: u32) -> Writer {
    accepted(xid, &[], 0)
}

/// Returns the reply to a call for TLS: begin it (RFC 9289 4.1).
pub(crate) fn start_tls(xid: u32) -> Vec<u8> {
    accepted(xid, b"STARTTLS", 0).into_bytes()
}

/// Returns the reply to a call that is not carried out.
pub(crate) fn refused(xid: u32, refusal: Refusal) -> Vec<u8> {
    match refusal {
        Refusal::ProgramUnavailable => accepted(xid, &[], 1),
        Refusal::VersionMismatch { low, high } => {
            let mut reply = accepted(xid, &[], 2);
            reply.u32(low);
            reply.u32(high);
            reply
        }
        Refusal::ProcedureUnavailable => accepted(xid, &[], 3),
        Refusal::GarbageArguments => accepted(xid, &[], 4),
        Refusal::TooWeak => return auth_error(xid, TOO_WEAK),
        Refusal::NoSuchCredential => return auth_error(xid, REJECTED_CREDENTIAL),
    }
    .into_bytes()
}

/// Returns a call on nobody's behalf.
pub(crate) fn call(xid: u32, procedure: Procedure, arguments: &[u8]) -> Vec<u8> {
    let mut call = Writer::default();
    let Procedure { program, version, number } = procedure;
    for word in [xid, CALL, RPC_VERSION, program, version, number, AUTH_NONE, 0, AUTH_NONE, 0] {
        call.u32(word);
    }
    call.fixed(arguments);
    call.into_bytes()
}

/// Returns the results in the reply to call `xid`; none if it was not carried out.
pub(crate) fn results(xid: u32, reply: &[u8]) -> Option<&[u8]> {
    let mut reader = Reader::new(reply);
    let head = [reader.u32()?, reader.u32()?, reader.u32()?];
    let _verifier_kind = reader.u32()?;
    let _verifier = reader.opaque(AUTH_BYTES_MAX)?;
    let state = reader.u32()?;
    (head == [xid, REPLY, 0] && state == 0).then_some(reader.rest())
}

/// A whole reply: its head, and data that is not copied.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reply {
    pub(crate) head: Vec<u8>,
    /// Padding follows it, where needed.
    pub(crate) data: Rope,
}

impl From<Vec<u8>> for Reply {
    fn from(head: Vec<u8>) -> Reply {
        Reply { head, data: Rope::new() }
    }
}

impl Reply {
    /// Returns the reply with the number of call `xid`.
    pub(crate) fn to(mut self, xid: u32) -> Reply {
        if let Some(first) = self.head.first_chunk_mut() {
            *first = xid.to_be_bytes();
        }
        self
    }

    /// Returns the number of bytes on the wire, without the record's mark.
    pub(crate) fn len(&self) -> usize {
        self.head.len() + self.data.len() + crate::xdr::padding(self.data.len())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns the head of a call by user `uid`.
    pub(crate) fn call(xid: u32, procedure: Procedure, uid: u32, groups: &[u32]) -> Writer {
        let mut writer = Writer::default();
        for value in [xid, CALL, RPC_VERSION, procedure.program, procedure.version, procedure.number, AUTH_SYS] {
            writer.u32(value);
        }
        let mut body = Writer::default();
        body.u32(0);
        body.opaque(b"here");
        body.u32(uid);
        body.u32(uid);
        body.u32(u32::try_from(groups.len()).unwrap());
        groups.iter().for_each(|group| body.u32(*group));
        writer.opaque(&body.into_bytes());
        writer.u32(AUTH_NONE);
        writer.opaque(&[]);
        writer
    }

    const NULL: Procedure = Procedure { program: 100_003, version: 3, number: 0 };

    #[test]
    fn a_call_says_who_calls() {
        let message = call(7, NULL, 1000, &[1, 2]).into_bytes();
        let call = parse(&message).unwrap();
        assert_eq!((call.xid, call.procedure), (7, NULL));
        assert_eq!(call.auth, Auth::Sys(Credentials { uid: 1000, gid: 1000, groups: vec![1, 2] }));
    }

    #[test]
    fn another_version_of_rpc_is_told_which_one_there_is() {
        let mut message = call(7, NULL, 0, &[]).into_bytes();
        message[11] = 3;
        let expected = [7u32, 1, 1, 0, 2, 2].map(u32::to_be_bytes).concat();
        assert_eq!(parse(&message).unwrap_err(), NoCall::Answer(expected));
    }

    #[test]
    fn credentials_that_are_too_long_or_unknown_are_refused() {
        let message = call(7, NULL, 0, &[0; 17]).into_bytes();
        assert_eq!(parse(&message).unwrap_err(), NoCall::Answer([7u32, 1, 1, 1, 1].map(u32::to_be_bytes).concat()));
        let mut message = call(7, NULL, 0, &[]).into_bytes();
        message[27] = 99;
        assert_eq!(parse(&message).unwrap_err(), NoCall::Answer([7u32, 1, 1, 1, 2].map(u32::to_be_bytes).concat()));
    }

    #[test]
    fn a_reply_or_less_than_a_call_is_garbage() {
        let mut message = call(7, NULL, 0, &[]).into_bytes();
        message[7] = 1;
        assert_eq!(parse(&message).unwrap_err(), NoCall::Garbage);
        assert_eq!(parse(&[]).unwrap_err(), NoCall::Garbage);
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_call_or_not(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = parse(&bytes);
        }
    }
}
