//! Locks kept by the volume, because clients other than programs of this kernel lock its files,
//! too.
//!
//! A request that waits gets its reply when its lock is granted, or when the kernel takes it back.

use super::{Failure, Outcome, Server};
use crate::notify::Notifier;
use crate::protocol::arguments::{Interrupt, Lock};
use crate::protocol::flags::LK_FLOCK;
use crate::protocol::{Body, Header, Reply};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use weft_links::WithLinks;
use weft_vfs::locks::{
    Claim, Granted, IfHeld, LockClient, LockError, LockKind, LockMode, LockOwner, LockRange, LockRequest, Locked,
};
use weft_vfs::{Ino, Vfs, whose};

/// The locks of a mount.
pub(super) struct MountLocks {
    vfs: Arc<Vfs>,
    client: LockClient,
    /// Requests without a reply, by their numbers.
    waiting: Arc<Mutex<HashMap<u64, (Ino, LockRequest)>>>,
}

impl MountLocks {
    pub(super) fn new(vfs: Arc<Vfs>) -> MountLocks {
        MountLocks { client: vfs.locks().client(), vfs, waiting: Arc::default() }
    }

    pub(super) fn owner(&self, number: u64) -> LockOwner {
        LockOwner { client: self.client, name: Arc::new(number.to_ne_bytes()) }
    }

    /// Parses `struct fuse_lk_in` of the request of `header`: the lock, or the range to give up.
    fn parse(&self, header: &Header, body: Body<'_>) -> Result<(LockRequest, Wanted), Failure> {
        let Lock { owner, start, end, kind, pid, flags } = Lock::parse(body)?;
        let (mode, wanted) = match kind.cast_signed() {
            libc::F_RDLCK => (LockMode::Shared, Wanted::Lock),
            libc::F_WRLCK => (LockMode::Exclusive, Wanted::Lock),
            libc::F_UNLCK => (LockMode::Shared, Wanted::Nothing),
            _ => return Err(Failure::Errno(libc::EINVAL)),
        };
        let Some(range) = LockRange::new(start, end) else { return Err(Failure::Errno(libc::EINVAL)) };
        let kind = if flags & LK_FLOCK == 0 { LockKind::Range } else { LockKind::File };
        let (owner, user, tag) = (self.owner(owner), whose(header.uid), header.unique);
        Ok((LockRequest { owner, user, kind, range, mode, pid, tag }, wanted))
    }
}

impl Drop for MountLocks {
    fn drop(&mut self) {
        self.vfs.locks().release(self.client);
    }
}

/// Operation that the kernel asks for on a range.
enum Wanted {
    Lock,
    Nothing,
}

/// Policy for a lock that conflicts with others.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum OnConflict {
    Fail,
    Wait,
}

impl Server {
    pub(super) fn getlk(&self, header: &Header, body: Body<'_>, reply: &mut Reply) -> Outcome {
        let Some(locks) = &self.locks else { return Err(Failure::Errno(libc::ENOSYS)) };
        let (request, _) = locks.parse(header, body)?;
        let found = self.vfs.locks().test(Ino(header.nodeid), &request);
        let (range, kind, pid) = found.map_or((request.range, libc::F_UNLCK, 0), |found| {
            let kind = if found.mode == LockMode::Shared { libc::F_RDLCK } else { libc::F_WRLCK };
            (found.range, kind, found.pid)
        });
        reply.u64(range.first());
        reply.u64(range.last());
        reply.u32(kind.cast_unsigned());
        reply.u32(pid);
        Ok(())
    }

    pub(super) fn setlk(&self, on_conflict: OnConflict, header: &Header, body: Body<'_>, reply: &mut Reply) -> Outcome {
        let Some(locks) = &self.locks else { return Err(Failure::Errno(libc::ENOSYS)) };
        let (request, wanted) = locks.parse(header, body)?;
        let ino = Ino(header.nodeid);
        if matches!(wanted, Wanted::Nothing) {
            let unlocked = self.vfs.locks().unlock(ino, &request.owner, request.kind, request.range);
            return unlocked.map_err(|error| self.lock_failure(error, header.uid, ino));
        }
        let if_held = match on_conflict {
            OnConflict::Fail => IfHeld::Fail,
            OnConflict::Wait => {
                // Before it can be granted, or taken back.
                locks.waiting.lock().insert(header.unique, (ino, request.clone()));
                IfHeld::Wait(self.answer_later(locks, header.unique))
            }
        };
        let locked = self.vfs.locks().lock(ino, request, Claim::New, if_held);
        if locked == Ok(Locked::Waiting) {
            reply.cancel();
            return Ok(());
        }
        locks.waiting.lock().remove(&header.unique);
        locked.map(|_| ()).map_err(|error| self.lock_failure(error, header.uid, ino))
    }

    /// Returns the errno of `error`, which `user` gets for a lock of `ino`.
    fn lock_failure(&self, error: LockError, user: u32, ino: Ino) -> Failure {
        Failure::Errno(match error {
            LockError::Held | LockError::Grace => libc::EAGAIN,
            LockError::Deadlock => libc::EDEADLK,
            LockError::TooMany => {
                self.log_too_many(user, ino);
                libc::ENOLCK
            }
        })
    }

    /// Logs that `user` cannot lock `ino`, as there are too many locks.
    fn log_too_many(&self, user: u32, ino: Ino) {
        let path = self.vfs.path(ino);
        let path = String::from_utf8_lossy(&path);
        let why = "too many locks; one user has a quarter of a mount's at most: end programs that hold some";
        tracing::warn!(user, "user {user} cannot lock {path}: {why}");
    }

    /// Answers request `unique` when its lock is granted.
    fn answer_later(&self, locks: &MountLocks, unique: u64) -> Granted {
        let waiting = locks.waiting.clone();
        let notifier = self.notifier.get().cloned();
        Box::new(move || {
            waiting.lock().remove(&unique);
            answer(notifier.as_deref(), unique, 0);
        })
    }

    /// Ends what networks compute for request `unique`.
    pub(crate) fn end_computing(&self, unique: u64) {
        if let Ok(links) = self.vfs.links() {
            links.interrupt(unique);
        }
    }

    /// Notes that the program that waits for request `unique` was sent a signal, and ends waits for
    /// locks and networks.
    pub(super) fn interrupt(&self, body: Body<'_>) -> Outcome {
        let Interrupt { unique } = Interrupt::parse(body)?;
        self.end_computing(unique);
        let Some(locks) = &self.locks else { return Ok(()) };
        let taken = locks.waiting.lock().remove(&unique);
        if let Some((ino, request)) = taken
            && self.vfs.locks().cancel(ino, &request)
        {
            answer(self.notifier.get().map(|notifier| &**notifier), unique, libc::EINTR);
        }
        Ok(())
    }
}

fn answer(notifier: Option<&Notifier>, unique: u64, errno: i32) {
    if let Some(notifier) = notifier {
        notifier.answer(unique, errno);
    }
}
