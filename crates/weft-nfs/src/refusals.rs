//! Counts refused calls by reason, as their replies show.

use crate::programs::{MOUNT, NFS};
use crate::rpc::{NoCall, Procedure};
use crate::status::Status;
use std::sync::atomic::{AtomicU64, Ordering};
use weft_vfs::NfsRefused;

/// `GARBAGE_ARGS` (RFC 5531 9).
const GARBAGE_ARGUMENTS: u32 = 4;

/// Refused calls since the server began.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    rights: AtomicU64,
    credentials: AtomicU64,
    handles: AtomicU64,
    malformed: AtomicU64,
    bounds: AtomicU64,
}

impl Refusals {
    /// Counts the call of `procedure` that begins its reply with `head`, if it is refused.
    pub(crate) fn answered(&self, procedure: Procedure, head: &[u8]) {
        let word = |at: usize| Some(u32::from_be_bytes(*head.get(4 * at..)?.first_chunk()?));
        // The number of the call, that it is a reply, if it is denied; a verifier, how it went.
        let (is_denied, ended) = (word(2) == Some(1), word(5));
        let begins_with_status = match procedure.program {
            NFS => procedure.number != 0,
            MOUNT => procedure.number == 1,
            _ => false,
        };
        let is = |statuses: &[Status]| {
            begins_with_status && ended == Some(0) && statuses.iter().any(|status| word(6) == Some(*status as u32))
        };
        let counter = if is_denied {
            &self.credentials
        } else if ended == Some(GARBAGE_ARGUMENTS) {
            &self.malformed
        } else if is(&[Status::Acces, Status::Perm]) {
            &self.rights
        } else if is(&[Status::BadHandle]) {
            &self.handles
        } else {
            return;
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a message that is no call.
    pub(crate) fn no_call(&self, no_call: &NoCall) {
        match no_call {
            NoCall::Answer(head) => self.answered(Procedure { program: 0, version: 0, number: 0 }, head),
            NoCall::Garbage => _ = self.malformed.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// Counts a lock that is refused since there are too many.
    pub(crate) fn bound_reached(&self) {
        self.bounds.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns all counts, with `bounds` that others count.
    pub(crate) fn counts(&self, bounds: u64) -> NfsRefused {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        NfsRefused {
            rights: count(&self.rights),
            credentials: count(&self.credentials),
            handles: count(&self.handles),
            malformed: count(&self.malformed),
            bounds: bounds + count(&self.bounds),
        }
    }
}
