//! Locks on files, of all who use the volume by whatever way: byte ranges (POSIX fcntl(), flock(2),
//! NLM) and share reservations (NLM). They are advisory, and gone when the volume is closed.
//!
//! One table with a lock of its own, which is never held together with another. Nothing here waits:
//! whoever is to wait for a lock says what is to be done once it is granted. Invariants: two owners
//! never hold ranges that are in each other's way; nobody waits for what could be granted.
//!
//! Locking and unlocking cost about the logarithm of what is held of the file, however many wait:
//! the thread that serves them is everybody's.

mod file;
mod ranges;
mod room;
mod spans;
#[cfg(test)]
mod tests;

pub use ranges::LockRange;

use file::{Change, FileLocks, Share, Waiting};
use parking_lot::Mutex;
use ranges::Held;
use room::Room;
use rustc_hash::FxHashMap;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;
use weft_store::Ino;

/// Holders and waits that are looked at to find whether waiting would never end. Beyond, it is
/// taken to end, as Linux does after ten.
const DEADLOCK_LOOKS_MAX: usize = 1024;

/// Origin of locks: a mount, or a client of a protocol. When it fails as a whole, all its locks go
/// with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LockClient {
    number: u64,
    /// The machine of a network that it calls from; none for a mount.
    machine: Option<IpAddr>,
}

impl LockClient {
    /// True for a client of a network, and false for a mount.
    pub fn is_remote(self) -> bool {
        self.machine.is_some()
    }
}

/// Owner of a lock or of a request for one. The locks of one owner never conflict.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LockOwner {
    /// Its client.
    pub client: LockClient,
    /// Name that tells it from other owners of that client.
    pub name: Arc<[u8]>,
}

/// Sharing mode of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LockMode {
    /// Those who share it.
    Shared,
    /// Nobody.
    Exclusive,
}

/// By which call a lock is held. As on Linux, fcntl() and flock(2) do not see each other's locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LockKind {
    /// POSIX fcntl().
    Range,
    /// flock(2).
    File,
    /// One or the other: clients of NFS do not say, so both see it.
    Either,
}

/// A lock that somebody wants or has.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LockRequest {
    /// The owner.
    pub owner: LockOwner,
    /// The user whose share of locks it counts against, on this machine a person
    /// ([`crate::whose()`]); the super-user's is all of the mount's or
    /// machine's.
    pub user: u32,
    /// By which call.
    pub kind: LockKind,
    /// Range of the file.
    pub range: LockRange,
    /// Sharing mode.
    pub mode: LockMode,
    /// Process to tell others of; 0 if that means nothing here.
    pub pid: u32,
    /// Tells requests of one owner that wait at the same time from one that comes again.
    pub tag: u64,
}

impl LockRequest {
    /// Returns what is the same of all requests that count as this one.
    fn identity(&self) -> LockRequest {
        LockRequest { user: 0, ..self.clone() }
    }
}

/// A lock that is in the way of another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The owner that holds it.
    pub owner: LockOwner,
    /// Range of the file.
    pub range: LockRange,
    /// Sharing mode.
    pub mode: LockMode,
    /// The process that said it holds it.
    pub pid: u32,
}

/// Callback for a granted lock. The thread that made room for the lock calls it, without holding
/// locks. It must not wait.
pub type Granted = Box<dyn FnOnce() + Send>;

/// A lock that was granted to somebody who waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant(u64);

/// Action on a lock that conflicts with others. If the same request waits already, it keeps its
/// place, and only its last callback is called.
pub enum IfHeld {
    /// Fail.
    Fail,
    /// Wait.
    Wait(Granted),
    /// Wait, and then be asked whether it is still wanted: until [`Locks::answer`] it is held all
    /// the same.
    WaitAndAnswer(Box<dyn FnOnce(Grant) + Send>),
}

/// Answer to a granted lock: whether it is still wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// It is.
    Yes,
    /// Whoever waited has given up.
    No,
}

/// Whom to tell, of those who wait.
enum Then {
    Tell(Granted),
    Ask(Box<dyn FnOnce(Grant) + Send>),
}

/// Those to be told, when the table is no longer held.
type Telling = Vec<Box<dyn FnOnce() + Send>>;

/// Result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locked {
    /// It is held.
    Now,
    /// It waits.
    Waiting,
}

/// Kind of claim: for a new lock, or for one held before the volume was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// New.
    New,
    /// Held before: permitted during the period of grace, and only then.
    Again,
}

/// Reason why a lock is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LockError {
    /// Somebody else's is in the way: EAGAIN.
    #[error("somebody else holds a lock there")]
    Held,
    /// Those in the way wait, one behind the other, for this owner: EDEADLK.
    #[error("waiting would never end")]
    Deadlock,
    /// There are too many: ENOLCK.
    #[error("there are too many locks")]
    TooMany,
    /// Those who held locks before may still claim them, or may not any more: EAGAIN.
    #[error("locks that were held before are being claimed, or no longer can be")]
    Grace,
}

/// Access that a share reservation covers: reading, writing, both or neither.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShareBits {
    /// Reading.
    pub read: bool,
    /// Writing.
    pub write: bool,
}

impl ShareBits {
    fn meets(self, other: ShareBits) -> bool {
        self.read && other.read || self.write && other.write
    }
}

/// The locks of a volume.
#[derive(Default)]
pub struct Locks(Mutex<Table>);

#[derive(Default)]
struct Table {
    files: FxHashMap<Ino, FileLocks>,
    /// Files that owners wait for something of, with the numbers of their requests.
    waits: HashMap<LockOwner, BTreeSet<(Ino, u64)>>,
    /// Ranges, reservations and waits.
    room: Room,
    /// Requests that waited so far.
    asked: u64,
    clients: u64,
    grants: u64,
    is_grace: bool,
}

impl Locks {
    /// A mount that nobody was before.
    pub fn client(&self) -> LockClient {
        self.new_client(None)
    }

    /// A client of a network that nobody was before. All of one `machine` share its room for locks.
    pub fn remote_client(&self, machine: IpAddr) -> LockClient {
        self.new_client(Some(machine))
    }

    fn new_client(&self, machine: Option<IpAddr>) -> LockClient {
        let mut table = self.0.lock();
        table.clients += 1;
        LockClient { number: table.clients, machine }
    }

    /// A lock on `ino` that is in the way of `request`: of those, the one that begins first.
    pub fn test(&self, ino: Ino, request: &LockRequest) -> Option<Conflict> {
        self.0.lock().files.get(&ino)?.first_conflict(request)
    }

    /// Locks a range of `ino`; what the owner held of it before, it no longer holds. `Held`,
    /// `Deadlock`, `TooMany`, `Grace`.
    pub fn lock(&self, ino: Ino, request: LockRequest, claim: Claim, if_held: IfHeld) -> Result<Locked, LockError> {
        let mut table = self.0.lock();
        let is_free = match (table.is_grace, claim) {
            (true, Claim::New) if matches!(if_held, IfHeld::Fail) => return Err(LockError::Grace),
            (false, Claim::Again) => return Err(LockError::Grace),
            (true, Claim::New) => false,
            (true, Claim::Again) | (false, Claim::New) => {
                table.files.get(&ino).is_none_or(|file| file.blocker(&request).is_none())
            }
        };
        if is_free {
            let user = table.user_of(ino, &request);
            table.room.may_add(request.owner.client, user)?;
            let granted = table.hold(ino, &request);
            drop(table);
            granted.into_iter().for_each(|then| then());
            return Ok(Locked::Now);
        }
        let then = match if_held {
            IfHeld::Fail => return Err(LockError::Held),
            IfHeld::Wait(then) => Then::Tell(then),
            IfHeld::WaitAndAnswer(then) => Then::Ask(then),
        };
        table.wait(ino, request, then)?;
        Ok(Locked::Waiting)
    }

    /// Tells whether what `request` was granted is wanted. If not, it is given up, but for what its
    /// owner has asked for once more since.
    pub fn answer(&self, ino: Ino, request: &LockRequest, grant: Grant, wanted: Wanted) {
        let granted = {
            let mut table = self.0.lock();
            let Some(file) = table.files.get_mut(&ino) else { return };
            let mut granted = Telling::new();
            for (range, held) in file.granted(request, grant) {
                let held = (wanted == Wanted::Yes).then_some(Held { grant: None, ..held });
                granted.extend(table.set(ino, request, range, held));
            }
            granted
        };
        granted.into_iter().for_each(|then| then());
    }

    /// Gives up what `owner` holds of `range` of `ino` by `kind`. `TooMany` if that leaves two
    /// ranges of one, and there is no room for another (POSIX fcntl()).
    pub fn unlock(&self, ino: Ino, owner: &LockOwner, kind: LockKind, range: LockRange) -> Result<(), LockError> {
        let granted = {
            let mut table = self.0.lock();
            let Table { files, room, .. } = &mut *table;
            let Some(file) = files.get_mut(&ino) else { return Ok(()) };
            if let Some(user) = file.splits(owner, kind, range) {
                room.may_add(owner.client, user)?;
            }
            let change = file.set((owner, 0), kind, range, None);
            table.changed(ino, owner.client, range, change)
        };
        granted.into_iter().for_each(|then| then());
        Ok(())
    }

    /// True if `request` holds something by `grant`, and has not said whether it still wants it.
    pub fn is_unanswered(&self, ino: Ino, request: &LockRequest, grant: Grant) -> bool {
        self.0.lock().files.get(&ino).is_some_and(|file| !file.granted(request, grant).is_empty())
    }

    /// Cancels `request` for `ino`. True if it was waiting.
    pub fn cancel(&self, ino: Ino, request: &LockRequest) -> bool {
        let mut table = self.0.lock();
        let Some(file) = table.files.get_mut(&ino) else { return false };
        let Some((number, _)) = file.same(request) else { return false };
        let left = file.leave(number);
        left.into_iter().for_each(|waiting| table.waits_no_more(ino, number, &waiting.request));
        table.forget_unused(ino);
        true
    }

    /// Reserves `ino` for `access`, and denies `deny` to others; replaces what the owner had
    /// reserved. `Held`, `TooMany`, `Grace`.
    pub fn share(
        &self,
        ino: Ino,
        (owner, user): (&LockOwner, u32),
        claim: Claim,
        access: ShareBits,
        deny: ShareBits,
    ) -> Result<(), LockError> {
        let mut table = self.0.lock();
        if table.is_grace != (claim == Claim::Again) {
            return Err(LockError::Grace);
        }
        // One that has reserved something stays the same user's.
        let before = table.files.get(&ino).and_then(|file| file.shares.get(owner));
        let user = before.map_or(user, |before| before.user);
        if before.is_none() {
            table.room.may_add(owner.client, user)?;
        }
        let file = table.files.entry(ino).or_default();
        let share = Share { user, access, deny };
        let result = if file.shares.deny(owner, share) {
            Err(LockError::Held)
        } else {
            let before = file.shares.insert(owner, share);
            table.room.count(owner.client, user, isize::from(before.is_none()));
            Ok(())
        };
        table.forget_unused(ino);
        result
    }

    /// Gives up what `owner` has reserved of `ino`.
    pub fn unshare(&self, ino: Ino, owner: &LockOwner) {
        let mut table = self.0.lock();
        if let Some(file) = table.files.get_mut(&ino)
            && let Some(share) = file.shares.remove(owner)
        {
            table.room.count(owner.client, share.user, -1);
            table.forget_unused(ino);
        }
    }

    /// Gives up all that `client` holds, has reserved and waits for.
    pub fn release(&self, client: LockClient) {
        let granted = {
            let mut table = self.0.lock();
            let freed: Vec<_> = table.files.iter_mut().map(|(ino, file)| (*ino, file.forget(client))).collect();
            table.waits.retain(|owner, _| owner.client != client);
            table.room.release(client);
            freed.into_iter().flat_map(|(ino, candidates)| table.grant(ino, candidates)).collect::<Telling>()
        };
        granted.into_iter().for_each(|then| then());
    }

    /// True if `client` holds, has reserved or waits for anything.
    pub fn has_any(&self, client: LockClient) -> bool {
        self.0.lock().room.has_any(client)
    }

    /// True during the grace period: only locks held before can be claimed.
    pub fn is_grace(&self) -> bool {
        self.0.lock().is_grace
    }

    /// From now on, only what was held before can be locked.
    pub fn begin_grace(&self) {
        self.0.lock().is_grace = true;
    }

    /// Ends the grace period: locks held before can no longer be claimed, and new ones are granted
    /// again.
    pub fn end_grace(&self) {
        let granted = {
            let mut table = self.0.lock();
            table.is_grace = false;
            let all: Vec<_> = table.files.iter().map(|(ino, file)| (*ino, file.all_waiting())).collect();
            all.into_iter().flat_map(|(ino, candidates)| table.grant(ino, candidates)).collect::<Telling>()
        };
        granted.into_iter().for_each(|then| then());
    }
}

impl Table {
    /// The user that ranges of the owner of `request` count for: who locked something of the file
    /// first.
    fn user_of(&self, ino: Ino, request: &LockRequest) -> u32 {
        self.files.get(&ino).and_then(|file| file.user_of(&request.owner)).unwrap_or(request.user)
    }

    /// Has `request` hold its range, and gives whom to tell that they hold theirs now.
    fn hold(&mut self, ino: Ino, request: &LockRequest) -> Telling {
        let held = Held { mode: request.mode, pid: request.pid, grant: None };
        self.set(ino, request, request.range, Some(held))
    }

    /// Has the owner of `request` hold `range` so, and gives whom to tell that they hold theirs.
    fn set(&mut self, ino: Ino, request: &LockRequest, range: LockRange, held: Option<Held>) -> Telling {
        let file = self.files.entry(ino).or_default();
        let change = file.set((&request.owner, request.user), request.kind, range, held);
        self.changed(ino, request.owner.client, range, change)
    }

    /// Counts `change` of `range`, and grants what that leaves room for.
    fn changed(&mut self, ino: Ino, client: LockClient, range: LockRange, change: Change) -> Telling {
        self.room.count(client, change.user, change.count);
        let file = self.files.get(&ino);
        let freed = change.freed.and_then(|of| file.map(|file| file.freed(of, range)));
        self.grant(ino, freed.unwrap_or_default().into_iter().collect())
    }

    fn wait(&mut self, ino: Ino, request: LockRequest, then: Then) -> Result<(), LockError> {
        if let Some(file) = self.files.get_mut(&ino)
            && let Some((_, waiting)) = file.same(&request)
        {
            waiting.then = then;
            return Ok(());
        }
        self.room.may_add(request.owner.client, request.user)?;
        if self.would_never_end(ino, &request) {
            return Err(LockError::Deadlock);
        }
        self.room.count(request.owner.client, request.user, 1);
        self.asked += 1;
        self.waits.entry(request.owner.clone()).or_default().insert((ino, self.asked));
        self.files.entry(ino).or_default().wait(self.asked, request, then);
        Ok(())
    }

    /// True if `request` would deadlock: the owners in its way wait, one behind the other, for its
    /// owner.
    fn would_never_end(&self, ino: Ino, request: &LockRequest) -> bool {
        if request.kind == LockKind::File {
            // flock(2) does not look for this.
            return false;
        }
        let mut left = DEADLOCK_LOOKS_MAX;
        let mut in_the_way = |ino: Ino, request: &LockRequest| {
            let found = self.files.get(&ino).map(|file| file.blockers(request, left)).unwrap_or_default();
            left = left.saturating_sub(found.len().max(1));
            found
        };
        let mut next = in_the_way(ino, request);
        let mut seen = HashSet::new();
        while let Some(owner) = next.pop() {
            if owner == request.owner {
                return true;
            }
            if !seen.insert(owner.clone()) {
                continue;
            }
            for (ino, number) in self.waits.get(&owner).into_iter().flatten().take(DEADLOCK_LOOKS_MAX) {
                if let Some(waiting) = self.files.get(ino).and_then(|file| file.waiting(*number)) {
                    next.extend(in_the_way(*ino, &waiting.request));
                }
            }
        }
        false
    }

    fn waits_no_more(&mut self, ino: Ino, number: u64, request: &LockRequest) {
        self.room.count(request.owner.client, request.user, -1);
        if let Some(waits) = self.waits.get_mut(&request.owner) {
            waits.remove(&(ino, number));
            if waits.is_empty() {
                self.waits.remove(&request.owner);
            }
        }
    }

    /// Grants those of `candidates` that nobody is in the way of any more, in the order in which
    /// they were asked for.
    fn grant(&mut self, ino: Ino, mut candidates: BTreeSet<u64>) -> Telling {
        let mut granted = Telling::new();
        while !self.is_grace
            && let Some(number) = candidates.pop_first()
            && let Some(file) = self.files.get_mut(&ino)
        {
            let Some(Waiting { request, then, .. }) = file.grantable(number) else { continue };
            self.grants += 1;
            let grant = Grant(self.grants);
            let asks = matches!(then, Then::Ask(_)).then_some(grant);
            let held = Held { mode: request.mode, pid: request.pid, grant: asks };
            let change = file.set((&request.owner, request.user), request.kind, request.range, Some(held));
            // What it held before may have been in the way of some, of those before it, too.
            candidates.extend(change.freed.into_iter().flat_map(|of| file.freed(of, request.range)));
            self.room.count(request.owner.client, change.user, change.count);
            self.waits_no_more(ino, number, &request);
            granted.push(match then {
                Then::Tell(then) => then,
                Then::Ask(then) => Box::new(move || then(grant)),
            });
        }
        self.forget_unused(ino);
        granted
    }

    fn forget_unused(&mut self, ino: Ino) {
        if self.files.get(&ino).is_some_and(FileLocks::is_unused) {
            self.files.remove(&ino);
        }
    }
}
