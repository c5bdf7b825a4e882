//! The Network Lock Manager, version 4 (X/Open XNFS 14; RFC 1813 Appendix II).
//!
//! Each procedure exists twice: one returns the result in its reply, and one (`_MSG`) returns it by
//! a call of its own.

use super::arguments::{Lock, OBJECT_BYTES_MAX, bool, cookie, name, owner, u32};
use super::{Locking, Message, Peer};
use crate::export::Client;
use crate::outcome::{Failure, Outcome};
use crate::request::Request;
use crate::rpc::{self, Call, Refusal};
use crate::service::Service;
use crate::status::Status;
use crate::xdr::{Reader, Writer};
use weft_vfs::locks::{
    Claim, Conflict, IfHeld, LockClient, LockError, LockKind, LockMode, LockOwner, LockRequest, Locked, ShareBits,
};
use weft_vfs::{Access, FileId, Kind};

/// Procedure that notifies a client of a granted lock that it waited for.
pub(crate) const GRANTED: u32 = 5;

const TEST: u32 = 1;
const LOCK: u32 = 2;
const CANCEL: u32 = 3;
const UNLOCK: u32 = 4;
const SHARE: u32 = 20;
const UNSHARE: u32 = 21;
const LOCK_UNMONITORED: u32 = 22;
const FREE_ALL: u32 = 23;
/// Distance from a procedure to the one that returns its result by a call, and on to that call.
const MESSAGE: u32 = 5;

/// `nlm4_stats`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum LockStatus {
    Granted = 0,
    Denied = 1,
    NoLocks = 2,
    Blocked = 3,
    Grace = 4,
    Deadlock = 5,
    ReadOnly = 6,
    Stale = 7,
    TooBig = 8,
    Failed = 9,
}

impl LockStatus {
    /// Statuses in clients' answers.
    pub(crate) const GRANTED: u32 = LockStatus::Granted as u32;
    pub(crate) const GRACE: u32 = LockStatus::Grace as u32;
}

impl From<LockError> for LockStatus {
    fn from(error: LockError) -> LockStatus {
        match error {
            LockError::Held => LockStatus::Denied,
            LockError::Deadlock => LockStatus::Deadlock,
            LockError::TooMany => LockStatus::NoLocks,
            LockError::Grace => LockStatus::Grace,
        }
    }
}

impl From<Status> for LockStatus {
    fn from(status: Status) -> LockStatus {
        match status {
            Status::Stale | Status::BadHandle => LockStatus::Stale,
            Status::RoFs => LockStatus::ReadOnly,
            Status::NoSpc | Status::DQuot => LockStatus::NoLocks,
            _ => LockStatus::Failed,
        }
    }
}

/// Result of a procedure.
enum NlmReply {
    Status(LockStatus),
    /// A conflicting lock.
    Conflict(Conflict),
}

/// Request of a client to be notified of a restart.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Monitored {
    Yes,
    No,
}

/// Answers a call.
pub(crate) fn serve(service: &Service, client: &Client, call: &Call<'_>) -> Outcome {
    let refused = |refusal| Outcome::Reply(rpc::refused(call.xid, refusal).into());
    let Some(locking) = &service.locking else { return refused(Refusal::ProgramUnavailable) };
    let mut request = Request::new(service, client, call);
    let number = call.procedure.number;
    let result = match number {
        // Results of calls that only some servers make carry nothing new.
        0 | 10..=15 => Ok(None),
        TEST..=UNLOCK | SHARE..=LOCK_UNMONITORED => result(locking, client, number, &mut request).map(Some),
        GRANTED => cookie(&mut request).map(|cookie| {
            // Nothing is waited for here.
            let mut body = Writer::default();
            body.opaque(cookie);
            body.u32(LockStatus::Denied as u32);
            Some(body)
        }),
        6..=9 if !service.lets_in(client) => Ok(None),
        6..=9 => match locking.place(client) {
            // The client asks again.
            None => Ok(None),
            Some(place) => result(locking, client, number - MESSAGE, &mut request).map(|result| {
                let (to, procedure, arguments) = (Peer::from(client), number + MESSAGE, result.into_bytes());
                locking.send(Message::Result { to, procedure, arguments, place });
                None
            }),
        },
        FREE_ALL => name(&mut request).map(|name| {
            service.restarted(client, name);
            None
        }),
        _ => Err(Failure::Refused(Refusal::ProcedureUnavailable)),
    };
    match result {
        Ok(result) => {
            let mut reply = rpc::success(call.xid);
            reply.fixed(&result.map(Writer::into_bytes).unwrap_or_default());
            Outcome::Reply(reply.into_bytes().into())
        }
        Err(Failure::WouldWait) => Outcome::WouldWait,
        Err(Failure::Refused(refusal)) => refused(refusal),
        Err(Failure::Status(_)) => unreachable!("a result tells of it"),
    }
}

/// Runs a procedure and returns its result in bytes.
fn result(locking: &Locking, client: &Client, number: u32, request: &mut Request<'_>) -> Result<Writer, Failure> {
    let mut body = Writer::default();
    body.opaque(cookie(request)?);
    let told = match number {
        TEST => test(locking, client, request),
        LOCK => lock(locking, client, Monitored::Yes, body.clone(), request),
        LOCK_UNMONITORED => lock(locking, client, Monitored::No, body.clone(), request),
        CANCEL => cancel(locking, client, request),
        UNLOCK => unlock(locking, client, request),
        _ => share(locking, client, number, request),
    };
    let told = match told {
        Err(Failure::Status(status)) => NlmReply::Status(status.into()),
        told => told?,
    };
    if matches!(told, NlmReply::Status(LockStatus::NoLocks)) {
        request.service.refusals.bound_reached();
    }
    match &told {
        NlmReply::Status(status) => body.u32(*status as u32),
        NlmReply::Conflict(conflict) => {
            let (process, owner) = Locking::name_of(&conflict.owner);
            body.u32(LockStatus::Denied as u32);
            body.bool(conflict.mode == LockMode::Exclusive);
            body.u32(process);
            body.opaque(owner);
            body.u64(conflict.range.first());
            body.u64(conflict.range.length());
        }
    }
    if matches!(number, SHARE | UNSHARE) {
        // `sequence`, of no meaning.
        body.u32(0);
    }
    Ok(body)
}

/// Returns the status in a result, which begins with a cookie.
pub(crate) fn answer(result: &[u8]) -> Option<u32> {
    let mut reader = Reader::new(result);
    reader.opaque(OBJECT_BYTES_MAX)?;
    reader.u32()
}

fn told(status: LockStatus) -> Result<NlmReply, Failure> {
    Ok(NlmReply::Status(status))
}

/// Checks that the calling user may lock `file`.
fn may_lock(request: &Request<'_>, file: FileId) -> Result<(), Failure> {
    let (allowed, found) = request.user().access(file, [Access::READ, Access::WRITE])?;
    // An owner may have opened it before taking the rights away.
    let is_owner = request.uid() == found.uid;
    match found.kind {
        Kind::File if is_owner || allowed.contains(&true) => Ok(()),
        Kind::File => Err(Status::Acces.into()),
        _ => Err(Status::Inval.into()),
    }
}

fn mode(exclusive: bool) -> LockMode {
    if exclusive { LockMode::Exclusive } else { LockMode::Shared }
}

/// Returns the request of `lock` for `user` of `client`; none if its range lies past 2^63-1.
fn request_of((client, user): (LockClient, u32), lock: &Lock<'_>, exclusive: bool) -> Option<LockRequest> {
    let owner = LockOwner { client, name: lock.owner().into() };
    let range = lock.range()?;
    Some(LockRequest { owner, user, kind: LockKind::Either, range, mode: mode(exclusive), pid: 0, tag: 0 })
}

/// `NLMPROC4_TEST`.
fn test(locking: &Locking, client: &Client, request: &mut Request<'_>) -> Result<NlmReply, Failure> {
    let exclusive = bool(request)?;
    let lock = Lock::read(request)?;
    may_lock(request, lock.file)?;
    // Asking takes no place of a client.
    let who = locking.find(client, lock.caller).map_or_else(|| locking.nobody(client), |known| known.number);
    let Some(wanted) = request_of((who, request.uid()), &lock, exclusive) else { return told(LockStatus::TooBig) };
    match request.service.vfs.locks().test(lock.file.ino, &wanted) {
        None => told(LockStatus::Granted),
        Some(conflict) => Ok(NlmReply::Conflict(conflict)),
    }
}

/// `NLMPROC4_LOCK`, `NLMPROC4_NM_LOCK`; `granted` begins the message that is sent when the lock is
/// granted later.
fn lock(
    locking: &Locking,
    client: &Client,
    monitored: Monitored,
    mut granted: Writer,
    request: &mut Request<'_>,
) -> Result<NlmReply, Failure> {
    let (block, exclusive) = (bool(request)?, bool(request)?);
    let lock = Lock::read(request)?;
    let (reclaim, _state) = (bool(request)?, u32(request)?);
    if exclusive {
        request.may_change()?;
    }
    may_lock(request, lock.file)?;
    let (who, user) = (locking.client(client, request.uid(), lock.caller)?, request.uid());
    let Some(wanted) = request_of((who.number, user), &lock, exclusive) else { return told(LockStatus::TooBig) };
    if monitored == Monitored::Yes {
        // A client to be notified of a restart must be known after it.
        locking.remember(client, &who)?;
    }
    granted.bool(exclusive);
    lock.write(&mut granted);
    let if_held = if block && monitored == Monitored::Yes {
        let to = Peer::from(client);
        let (ino, request) = (lock.file.ino, wanted.clone());
        let (arguments, outbox, room) = (granted.into_bytes(), locking.outbox(), locking.grants());
        IfHeld::WaitAndAnswer(Box::new(move |grant| {
            // A client that is not notified asks again, and learns that it has the lock.
            if let Some(place) = room.place(to.address, user) {
                // It fails only when the server ends.
                let _ = outbox.send(Message::Granted { to, arguments, ino, request, grant, place });
            }
        }))
    } else {
        IfHeld::Fail
    };
    let claim = if reclaim { Claim::Again } else { Claim::New };
    // During the grace period all clients are told to ask again, whether they would wait or not.
    if !reclaim && request.service.vfs.locks().is_grace() {
        return told(LockStatus::Grace);
    }
    match request.service.vfs.locks().lock(lock.file.ino, wanted, claim, if_held) {
        Ok(Locked::Now) => told(LockStatus::Granted),
        Ok(Locked::Waiting) => told(LockStatus::Blocked),
        Err(error) => told(refused(locking, client, user, error)),
    }
}

/// Returns the status for a client's `error`. Logs it if there are too many locks.
fn refused(locking: &Locking, client: &Client, user: u32, error: LockError) -> LockStatus {
    if error == LockError::TooMany {
        let why = "too many locks; one user has a quarter of an address's at most: end programs that hold some";
        locking.refused.log(client.address, format_args!("cannot lock a file for user {user}: {why}"));
    }
    error.into()
}

/// `NLMPROC4_CANCEL`.
fn cancel(locking: &Locking, client: &Client, request: &mut Request<'_>) -> Result<NlmReply, Failure> {
    let (_block, exclusive) = (bool(request)?, bool(request)?);
    let lock = Lock::read(request)?;
    let Some(who) = locking.find(client, lock.caller) else { return told(LockStatus::Denied) };
    let asker = (who.number, request.uid());
    let Some(wanted) = request_of(asker, &lock, exclusive) else { return told(LockStatus::TooBig) };
    let waited = request.service.vfs.locks().cancel(lock.file.ino, &wanted);
    told(if waited { LockStatus::Granted } else { LockStatus::Denied })
}

/// `NLMPROC4_UNLOCK`.
fn unlock(locking: &Locking, client: &Client, request: &mut Request<'_>) -> Result<NlmReply, Failure> {
    let lock = Lock::read(request)?;
    // A client that holds nothing has nothing to give up.
    let Some(who) = locking.find(client, lock.caller) else { return told(LockStatus::Granted) };
    let Some(held) = request_of((who.number, request.uid()), &lock, true) else { return told(LockStatus::TooBig) };
    match request.service.vfs.locks().unlock(lock.file.ino, &held.owner, held.kind, held.range) {
        Ok(()) => told(LockStatus::Granted),
        Err(error) => told(refused(locking, client, request.uid(), error)),
    }
}

/// `NLMPROC4_SHARE`, `NLMPROC4_UNSHARE`.
fn share(locking: &Locking, client: &Client, number: u32, request: &mut Request<'_>) -> Result<NlmReply, Failure> {
    let caller = name(request)?;
    let file = request.file()?;
    let owner = owner(request)?;
    let (deny, access) = (u32(request)?, u32(request)?);
    let reclaim = bool(request)?;
    // Share owners are distinct from those who lock ranges.
    let owner_of = |client: LockClient| LockOwner { client, name: [b"shr:", owner].concat().into() };
    let locks = request.service.vfs.locks();
    if number == UNSHARE {
        if let Some(who) = locking.find(client, caller) {
            locks.unshare(file.ino, &owner_of(who.number));
        }
        return told(LockStatus::Granted);
    }
    may_lock(request, file)?;
    let who = locking.client(client, request.uid(), caller)?;
    let owner = owner_of(who.number);
    let bits = |bits: u32| ShareBits { read: bits & 1 != 0, write: bits & 2 != 0 };
    let claim = if reclaim { Claim::Again } else { Claim::New };
    match locks.share(file.ino, (&owner, request.uid()), claim, bits(access), bits(deny)) {
        Ok(()) => told(LockStatus::Granted),
        Err(error) => told(refused(locking, client, request.uid(), error)),
    }
}
