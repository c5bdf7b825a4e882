//! The ways in which a call ends.

use crate::export::{Closed, WriteAck};
use crate::rpc::{Refusal, Reply};
use crate::status::Status;
use weft_vfs::{Error, ErrorKind};

/// Outcome of a call.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The reply to send.
    Reply(Reply),
    /// The reply to send once all changes are as safe as the policy demands.
    Once(WriteAck, Reply),
    /// The reply to send before TLS begins.
    StartTls(Vec<u8>),
    /// The call would have to wait, and has changed nothing.
    WouldWait,
}

/// Reason that a procedure fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// It fails with this status.
    Status(Status),
    /// The call is refused.
    Refused(Refusal),
    /// The call would have to wait.
    WouldWait,
}

impl From<Status> for Failure {
    fn from(status: Status) -> Failure {
        Failure::Status(status)
    }
}

impl From<Closed> for Failure {
    fn from(closed: Closed) -> Failure {
        match closed {
            Closed::Denied | Closed::UnreservedPort => Failure::Status(Status::Acces),
            Closed::NeedsTls => Failure::Refused(Refusal::TooWeak),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        match error.kind() {
            ErrorKind::WouldBlock => return Failure::WouldWait,
            kind @ (ErrorKind::Io | ErrorKind::Corrupt) => {
                if kind == ErrorKind::Corrupt {
                    weft_vfs::met_damage();
                }
                tracing::error!(user = weft_vfs::asking_user(), "a request over NFS failed: {error}")
            }
            _ => {}
        }
        Failure::Status(error.kind().into())
    }
}

/// Failure of a call whose arguments cannot be read.
pub(crate) const GARBAGE: Failure = Failure::Refused(Refusal::GarbageArguments);
