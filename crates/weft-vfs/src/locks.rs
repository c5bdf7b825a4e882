//! Locks on files, of all who use the volume by whatever way: byte ranges (POSIX fcntl(), flock(2), NLM) and share
//! reservations (NLM). They are advisory, and gone when the volume is closed.
//!
//! One table with a lock of its own, which is never held together with another. Nothing here waits: whoever is to wait for a lock says
//! what is to be done once it is granted. Invariants: two owners never hold ranges that are in each other's way; nobody waits
//! for what could be granted.

mod file;
mod ranges;
#[cfg(test)]
mod tests;

pub use ranges::LockRange;

use file::{FileLocks, Waiting};
use parking_lot::Mutex;
use ranges::Held;
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;
use weft_store::Ino;

/// Ranges, reservations and waits that one client may have, and that all may have together.
const OF_CLIENT_MAX: usize = 1 << 16;
const ALL_MAX: usize = 1 << 20;

/// Where locks come from: a mount, or a client of a protocol. What fails as a whole takes all its locks along.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LockClient(u64);

/// Who holds or wants a lock. What one owner holds is never in its own way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LockOwner {
    /// Where it is.
    pub client: LockClient,
    /// What tells it from other owners there.
    pub name: Arc<[u8]>,
}

/// Whether others may hold the range, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockRequest {
    /// Who.
    pub owner: LockOwner,
    /// By which call.
    pub kind: LockKind,
    /// What of the file.
    pub range: LockRange,
    /// How.
    pub mode: LockMode,
    /// Process to tell others of; 0 if that means nothing here.
    pub pid: u32,
    /// Tells requests of one owner that wait at the same time from one that comes again.
    pub tag: u64,
}

/// A lock that is in the way of another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// Who holds it.
    pub owner: LockOwner,
    /// What of the file.
    pub range: LockRange,
    /// How.
    pub mode: LockMode,
    /// The process that said it holds it.
    pub pid: u32,
}

/// What to do once a lock is granted. Called without locks by whoever made room for it; must not wait.
pub type Granted = Box<dyn FnOnce() + Send>;

/// A lock that was granted to somebody who waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant(u64);

/// What to do about a lock that others are in the way of. The same request that waits already keeps its place, and is told of by what was
/// given last.
pub enum IfHeld {
    /// Fail.
    Fail,
    /// Wait.
    Wait(Granted),
    /// Wait, and then be asked whether it is still wanted: until [`Locks::answer`] it is held all the same.
    WaitAndAnswer(Box<dyn FnOnce(Grant) + Send>),
}

/// Whether a lock that was granted is still wanted.
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

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locked {
    /// It is held.
    Now,
    /// It waits.
    Waiting,
}

/// Whether a lock is new, or was held before the volume was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// New.
    New,
    /// Held before: permitted during the period of grace, and only then.
    Again,
}

/// Why there is no lock.
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

/// What a share reservation is about: reading, writing, both or nothing.
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
    /// Files that owners wait for something of.
    waits: FxHashMap<LockOwner, Vec<Ino>>,
    /// Ranges, reservations and waits of each client.
    counts: FxHashMap<LockClient, usize>,
    /// Those of all clients.
    count: usize,
    clients: u64,
    grants: u64,
    is_grace: bool,
}

impl Locks {
    /// A client that nobody was before.
    pub fn client(&self) -> LockClient {
        let mut table = self.0.lock();
        table.clients += 1;
        LockClient(table.clients)
    }

    /// A lock on `ino` that is in the way of `request`: of those, the one that begins first.
    pub fn test(&self, ino: Ino, request: &LockRequest) -> Option<Conflict> {
        self.0.lock().files.get(&ino)?.conflicts(request).min_by_key(|conflict| conflict.range.first())
    }

    /// Locks a range of `ino`; what the owner held of it before, it no longer holds. `Held`, `Deadlock`, `TooMany`, `Grace`.
    pub fn lock(&self, ino: Ino, request: LockRequest, claim: Claim, if_held: IfHeld) -> Result<Locked, LockError> {
        let mut table = self.0.lock();
        let is_free = match (table.is_grace, claim) {
            (true, Claim::New) if matches!(if_held, IfHeld::Fail) => return Err(LockError::Grace),
            (false, Claim::Again) => return Err(LockError::Grace),
            (true, Claim::New) => false,
            (true, Claim::Again) | (false, Claim::New) => {
                table.files.get(&ino).is_none_or(|file| file.conflicts(&request).next().is_none())
            }
        };
        if is_free {
            table.may_add(request.owner.client)?;
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

    /// Tells whether what `request` was granted is wanted. If not, it is given up, but for what its owner has asked for
    /// once more since.
    pub fn answer(&self, ino: Ino, request: &LockRequest, grant: Grant, wanted: Wanted) {
        let granted = {
            let mut table = self.0.lock();
            let Some(file) = table.files.get_mut(&ino) else { return };
            let mut change = 0;
            for (range, held) in file.granted(request, grant) {
                let held = (wanted == Wanted::Yes).then_some(Held { grant: None, ..held });
                change += file.set(&request.owner, request.kind, range, held);
            }
            table.count(request.owner.client, change);
            table.grant(ino)
        };
        granted.into_iter().for_each(|then| then());
    }

    /// Gives up what `owner` holds of `range` of `ino` by `kind`.
    pub fn unlock(&self, ino: Ino, owner: &LockOwner, kind: LockKind, range: LockRange) {
        let granted = {
            let mut table = self.0.lock();
            let Some(file) = table.files.get_mut(&ino) else { return };
            let change = file.set(owner, kind, range, None);
            table.count(owner.client, change);
            table.grant(ino)
        };
        granted.into_iter().for_each(|then| then());
    }

    /// Whether `request` waited for `ino`, which it no longer does.
    pub fn cancel(&self, ino: Ino, request: &LockRequest) -> bool {
        let mut table = self.0.lock();
        let Some(file) = table.files.get_mut(&ino) else { return false };
        let Some(at) = file.waiting.iter().position(|waiting| waiting.request == *request) else { return false };
        file.waiting.remove(at);
        table.waits_no_more(ino, &request.owner);
        table.forget_unused(ino);
        true
    }

    /// Reserves `ino` for `access`, and denies `deny` to others; replaces what the owner had reserved. `Held`, `TooMany`, `Grace`.
    pub fn share(
        &self,
        ino: Ino,
        owner: &LockOwner,
        claim: Claim,
        access: ShareBits,
        deny: ShareBits,
    ) -> Result<(), LockError> {
        let mut table = self.0.lock();
        if table.is_grace != (claim == Claim::Again) {
            return Err(LockError::Grace);
        }
        table.may_add(owner.client)?;
        let file = table.files.entry(ino).or_default();
        let is_held = file
            .shares
            .iter()
            .any(|(other, (theirs, denied))| other != owner && (theirs.meets(deny) || denied.meets(access)));
        let result = if is_held {
            Err(LockError::Held)
        } else {
            let before = file.shares.insert(owner.clone(), (access, deny));
            table.count(owner.client, isize::from(before.is_none()));
            Ok(())
        };
        table.forget_unused(ino);
        result
    }

    /// Gives up what `owner` has reserved of `ino`.
    pub fn unshare(&self, ino: Ino, owner: &LockOwner) {
        let mut table = self.0.lock();
        if let Some(file) = table.files.get_mut(&ino)
            && file.shares.remove(owner).is_some()
        {
            table.count(owner.client, -1);
            table.forget_unused(ino);
        }
    }

    /// Gives up all that `client` holds, has reserved and waits for.
    pub fn release(&self, client: LockClient) {
        let granted = {
            let mut table = self.0.lock();
            for file in table.files.values_mut() {
                file.forget(client);
            }
            table.waits.retain(|owner, _| owner.client != client);
            table.count -= table.counts.remove(&client).unwrap_or(0);
            table.grant_all()
        };
        granted.into_iter().for_each(|then| then());
    }

    /// Whether `client` holds, has reserved or waits for anything.
    pub fn has_any(&self, client: LockClient) -> bool {
        self.0.lock().counts.contains_key(&client)
    }

    /// Whether only what was held before can be locked.
    pub fn is_grace(&self) -> bool {
        self.0.lock().is_grace
    }

    /// From now on, only what was held before can be locked.
    pub fn begin_grace(&self) {
        self.0.lock().is_grace = true;
    }

    /// What was held before can no longer be claimed; the others may lock again.
    pub fn end_grace(&self) {
        let granted = {
            let mut table = self.0.lock();
            table.is_grace = false;
            table.grant_all()
        };
        granted.into_iter().for_each(|then| then());
    }
}

impl Table {
    fn may_add(&self, client: LockClient) -> Result<(), LockError> {
        let of_client = self.counts.get(&client).copied().unwrap_or(0);
        if of_client >= OF_CLIENT_MAX || self.count >= ALL_MAX { Err(LockError::TooMany) } else { Ok(()) }
    }

    fn count(&mut self, client: LockClient, change: isize) {
        let count = self.counts.entry(client).or_default();
        *count = count.checked_add_signed(change).expect("what is given up was counted");
        self.count = self.count.checked_add_signed(change).expect("and among all");
        if *count == 0 {
            self.counts.remove(&client);
        }
    }

    /// Has `request` hold its range, and gives whom to tell that they hold theirs now.
    fn hold(&mut self, ino: Ino, request: &LockRequest) -> Telling {
        let held = Held { mode: request.mode, pid: request.pid, grant: None };
        let change = self.files.entry(ino).or_default().set(&request.owner, request.kind, request.range, Some(held));
        self.count(request.owner.client, change);
        self.grant(ino)
    }

    fn wait(&mut self, ino: Ino, request: LockRequest, then: Then) -> Result<(), LockError> {
        if let Some(file) = self.files.get_mut(&ino)
            && let Some(waiting) = file.waiting.iter_mut().find(|waiting| waiting.request == request)
        {
            waiting.then = then;
            return Ok(());
        }
        self.may_add(request.owner.client)?;
        if self.would_never_end(ino, &request) {
            return Err(LockError::Deadlock);
        }
        self.count(request.owner.client, 1);
        self.waits.entry(request.owner.clone()).or_default().push(ino);
        self.files.entry(ino).or_default().waiting.push_back(Waiting { request, then });
        Ok(())
    }

    /// Whether those in the way of `request` wait, one behind the other, for its owner.
    fn would_never_end(&self, ino: Ino, request: &LockRequest) -> bool {
        if request.kind == LockKind::File {
            // flock(2) does not look for this.
            return false;
        }
        let in_the_way = |ino: Ino, request: &LockRequest| {
            let file = self.files.get(&ino).into_iter();
            file.flat_map(|file| file.conflicts(request)).map(|conflict| conflict.owner).collect::<Vec<_>>()
        };
        let mut next = in_the_way(ino, request);
        let mut seen = FxHashSet::default();
        while let Some(owner) = next.pop() {
            if owner == request.owner {
                return true;
            }
            if !seen.insert(owner.clone()) {
                continue;
            }
            for ino in self.waits.get(&owner).into_iter().flatten() {
                let waiting = self.files.get(ino).into_iter().flat_map(|file| &file.waiting);
                for waiting in waiting.filter(|waiting| waiting.request.owner == owner) {
                    next.extend(in_the_way(*ino, &waiting.request));
                }
            }
        }
        false
    }

    fn waits_no_more(&mut self, ino: Ino, owner: &LockOwner) {
        self.count(owner.client, -1);
        let files = self.waits.get_mut(owner).expect("whoever waits is known to");
        let at = files.iter().position(|file| *file == ino).expect("for this file, too");
        files.swap_remove(at);
        if files.is_empty() {
            self.waits.remove(owner);
        }
    }

    /// Grants what nobody is in the way of any more, in the order in which it was asked for.
    fn grant(&mut self, ino: Ino) -> Telling {
        let mut granted = Telling::new();
        while !self.is_grace
            && let Some(file) = self.files.get_mut(&ino)
            && let Some(at) = file.waiting.iter().position(|it| file.conflicts(&it.request).next().is_none())
        {
            let Waiting { request, then } = file.waiting.remove(at).expect("it is there");
            self.grants += 1;
            let number = Grant(self.grants);
            let grant = matches!(then, Then::Ask(_)).then_some(number);
            let held = Held { mode: request.mode, pid: request.pid, grant };
            let change = file.set(&request.owner, request.kind, request.range, Some(held));
            self.count(request.owner.client, change);
            self.waits_no_more(ino, &request.owner);
            granted.push(match then {
                Then::Tell(then) => then,
                Then::Ask(then) => Box::new(move || then(number)),
            });
        }
        self.forget_unused(ino);
        granted
    }

    fn grant_all(&mut self) -> Telling {
        let files: Vec<Ino> = self.files.keys().copied().collect();
        files.into_iter().flat_map(|ino| self.grant(ino)).collect()
    }

    fn forget_unused(&mut self, ino: Ino) {
        if self.files.get(&ino).is_some_and(FileLocks::is_unused) {
            self.files.remove(&ino);
        }
    }
}
