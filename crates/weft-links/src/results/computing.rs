//! Requests that wait for networks: each can be ended, and no user gets more than a share of those
//! who serve, or of the processors.
//!
//! A thread says which request it serves ([`weft_vfs::set_requester`]), and, if it is one of few,
//! of which [`Lane`] ([`set_lane`]). A request that is about to compute, or to wait for another
//! that does, is known by its number until it is done, so that [`Links::interrupt`] finds it.
//! Networks ask now and then whether anybody waits for them ([`weft_transform::interrupt`]); that
//! is also where a user with more at work than a share of the processors is held back. Requests
//! that come over a network also count against the host that sent them, which names users as it
//! likes.
//!
//! Locks: that of the table is held for nothing else.

mod length_waits;

use crate::layer::Links;
use length_waits::LengthWaits;
use parking_lot::{Condvar, Mutex, MutexGuard};
use rustc_hash::FxHashMap;
use rustix::time::{ClockId, clock_gettime};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::available_parallelism;
use std::time::{Duration, Instant};
use weft_store::Ino;
use weft_transform::interrupt::{self, PERIOD};
use weft_tree::{ErrorKind, Result};
use weft_users::whose;
use weft_vfs::signals::is_ending;
use weft_vfs::{Requester, Vfs, largest, requester};

/// Interruptions that are remembered of requests which nobody knows: they came before them, or
/// after.
const EARLY_MAX: usize = 256;

/// Longest single delay of a user that has more than its share at work.
const HOLD_MAX: Duration = Duration::from_millis(50);

/// Interval between checks for a signal that ends the program.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Time for which nothing is computed after all was stopped: the user who stopped it unmounts
/// meanwhile.
const STOPPED: Duration = Duration::from_secs(2);

thread_local! {
    static LANE: RefCell<Option<Arc<Lane>>> = const { RefCell::new(None) };
    /// The look that this thread serves, if it serves one.
    static LOOK: Cell<Option<Look>> = const { Cell::new(None) };
    /// True if this thread already computes for the same request.
    static COMPUTES: Cell<bool> = const { Cell::new(false) };
}

/// A request that looks at an inode, and does no more.
#[derive(Clone, Copy)]
struct Look {
    user: u32,
    ino: Ino,
    begun: Instant,
    /// The owner of what is computed for it and the time until it may, once something is: None if
    /// it may take as long as it does.
    limit: Option<Option<(u32, Instant)>>,
}

/// Says of which of those who serve this thread is.
pub fn set_lane(lane: Arc<Lane>) {
    LANE.with(|slot| *slot.borrow_mut() = Some(lane));
}

/// Those of one way in who serve, of whom some must always be left for others than those who
/// compute. Of those who may compute some are left for users who have none, and the share of a user
/// is the smaller the more of them compute. Subordinate users have one share with whom they belong
/// to.
#[derive(Debug)]
pub struct Lane {
    user_max: usize,
    host_max: usize,
    /// For users who have some already.
    more_max: usize,
    all_max: usize,
    taken: Mutex<Taken>,
}

/// Threads of a lane that compute.
#[derive(Debug, Default)]
struct Taken {
    all: usize,
    users: FxHashMap<u32, usize>,
    hosts: FxHashMap<IpAddr, usize>,
}

impl Lane {
    /// So many threads.
    pub fn new(threads: usize) -> Arc<Lane> {
        let all_max = (threads - threads.div_ceil(8).min(threads / 2)).max(1);
        let share = |eighths: usize| (threads * eighths / 8).clamp(1, all_max);
        let more_max = (all_max - threads / 8).max(1);
        let (user_max, host_max) = (share(5).min(more_max), share(6));
        Arc::new(Lane { user_max, host_max, more_max, all_max, taken: Mutex::default() })
    }

    /// One more for `requester`, if there may be one.
    fn enter(self: &Arc<Lane>, requester: Requester) -> Option<InLane> {
        let Requester { user, host, .. } = requester;
        let user = whose(user);
        let mut taken = self.taken.lock();
        let of_user = taken.users.get(&user).copied().unwrap_or(0);
        let of_host = host.and_then(|host| taken.hosts.get(&host).copied()).unwrap_or(0);
        let users = taken.users.len() + usize::from(of_user == 0);
        let user_max = self.user_max.min(self.more_max.div_ceil(users));
        let is_full = match of_user {
            0 => taken.all >= self.all_max,
            _ => taken.all >= self.more_max || of_user >= user_max,
        };
        if is_full || of_host >= self.host_max {
            return None;
        }
        taken.all += 1;
        taken.users.insert(user, of_user + 1);
        host.map(|host| taken.hosts.insert(host, of_host + 1));
        drop(taken);
        Some(InLane { lane: self.clone(), user, host })
    }
}

/// A thread that computes, or waits for one that does.
struct InLane {
    lane: Arc<Lane>,
    user: u32,
    host: Option<IpAddr>,
}

impl Drop for InLane {
    fn drop(&mut self) {
        let mut taken = self.lane.taken.lock();
        taken.all -= 1;
        one_less(&mut taken.users, self.user);
        if let Some(host) = self.host {
            one_less(&mut taken.hosts, host);
        }
    }
}

/// Counts one less of `of`, and forgets it with the last one.
fn one_less<K: std::hash::Hash + Eq>(counts: &mut FxHashMap<K, usize>, of: K) {
    if let Some(count) = counts.get_mut(&of) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&of);
        }
    }
}

/// The requests of a volume that wait for networks.
#[derive(Default)]
pub(crate) struct Computing {
    table: Mutex<Table>,
    /// Until then nothing is computed.
    stopped_until: Mutex<Option<Instant>>,
    is_stopped: AtomicBool,
    length_waits: LengthWaits,
    /// Ended by a signal or for good, and refused as there were too many.
    pub(crate) interrupted: AtomicU64,
    pub(crate) refused: AtomicU64,
}

#[derive(Default)]
struct Table {
    requests: FxHashMap<u64, Arc<Hint>>,
    /// Numbers of interruptions that nobody knew.
    early: VecDeque<u64>,
    users: FxHashMap<u32, Arc<AtomicUsize>>,
}

/// Hint that a request is to be checked: its program was sent a signal.
#[derive(Default)]
struct Hint {
    is_given: AtomicBool,
    /// True if the request was told to end.
    has_ended: AtomicBool,
}

/// A request that computes.
struct Turn<'a> {
    computing: &'a Computing,
    requester: Requester,
    hint: Arc<Hint>,
    /// The users' own, and how many at work there are of this one.
    at_work: Arc<AtomicUsize>,
    _lane: Option<InLane>,
}

impl Computing {
    fn enter(&self, requester: Requester) -> Result<Turn<'_>> {
        if self.is_stopped() {
            self.interrupted.fetch_add(1, Ordering::Relaxed);
            return Err(ErrorKind::Interrupted.into());
        }
        let lane = LANE.with(|slot| slot.borrow().as_ref().map(|lane| lane.enter(requester)));
        if matches!(lane, Some(None)) {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return Err(ErrorKind::Busy.into());
        }
        let hint = Arc::new(Hint::default());
        let mut table = self.table.lock();
        if let Some(number) = requester.number {
            if let Some(at) = table.early.iter().position(|early| *early == number) {
                table.early.remove(at);
                hint.is_given.store(true, Ordering::Relaxed);
            }
            table.requests.insert(number, hint.clone());
        }
        let at_work = table.users.entry(requester.user).or_default().clone();
        at_work.fetch_add(1, Ordering::Relaxed);
        Ok(Turn { computing: self, requester, hint, at_work, _lane: lane.flatten() })
    }

    fn is_stopped(&self) -> bool {
        if !self.is_stopped.load(Ordering::Relaxed) {
            return false;
        }
        let mut until = self.stopped_until.lock();
        let is_over = until.is_some_and(|until| until <= Instant::now());
        if is_over {
            *until = None;
            self.is_stopped.store(false, Ordering::Relaxed);
        }
        !is_over
    }

    /// Requests that wait, and users whose they are.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let table = self.table.lock();
        let counts = || table.users.values().map(|at_work| at_work.load(Ordering::Relaxed) as u64);
        (counts().sum(), counts().filter(|count| *count > 0).count() as u64)
    }

    /// Requests that wait, by user.
    pub(crate) fn by_user(&self) -> BTreeMap<u32, u64> {
        let table = self.table.lock();
        largest(table.users.iter().map(|(user, at_work)| (*user, at_work.load(Ordering::Relaxed) as u64)))
    }

    /// Returns the number of one user's requests that can be at work without holding other users
    /// back.
    fn share(&self) -> usize {
        let processors = available_parallelism().map_or(1, usize::from);
        let (_, users) = self.counts();
        (processors / usize::try_from(users.max(1)).unwrap_or(processors)).max(1)
    }
}

impl Table {
    /// Remembers an interruption of a request that has no turn now.
    fn remember(&mut self, number: u64) {
        if self.early.contains(&number) {
            return;
        }
        if self.early.len() >= EARLY_MAX {
            self.early.pop_front();
        }
        self.early.push_back(number);
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut table = self.computing.table.lock();
        if let Some(number) = self.requester.number {
            table.requests.remove(&number);
            let has_ended = self.hint.has_ended.load(Ordering::Relaxed);
            if has_ended {
                self.computing.interrupted.fetch_add(1, Ordering::Relaxed);
            } else if self.hint.is_given.load(Ordering::Relaxed) {
                // It came too late for this turn; the request goes on, and may take another one.
                table.remember(number);
            }
        }
        if self.at_work.fetch_sub(1, Ordering::Relaxed) == 1 {
            table.users.remove(&self.requester.user);
        }
    }
}

/// Holds a thread back whose user has more at work than its share: so that all of them together
/// take what the share would.
struct Pace {
    at_work: Arc<AtomicUsize>,
    share: usize,
    looked: Instant,
    worked: Duration,
}

impl Pace {
    fn hold_back(&mut self, computing: &Computing) {
        let at_work = self.at_work.load(Ordering::Relaxed);
        if at_work <= self.share && self.looked.elapsed() < LOOK_AGAIN {
            return;
        }
        if self.looked.elapsed() >= LOOK_AGAIN {
            (self.looked, self.share) = (Instant::now(), computing.share());
        }
        let now = worked();
        let since = now.saturating_sub(std::mem::replace(&mut self.worked, now));
        if at_work > self.share {
            let factor = u32::try_from(at_work.div_ceil(self.share) - 1).unwrap_or(u32::MAX);
            pause(since.saturating_mul(factor).min(HOLD_MAX));
        }
    }
}

/// Processor time that this thread has taken.
fn worked() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

/// Does nothing for so long.
fn pause(time: Duration) {
    let (never, nothing) = (Condvar::new(), Mutex::new(()));
    never.wait_for(&mut nothing.lock(), time);
}

/// Does `work`, which looks at inode `ino` of `vfs` for `user` and does no more: of a link of
/// another user it takes no longer than its bound allows. `TimedOut` then, else as `work`.
pub fn looking<T>(vfs: &Vfs, user: u32, ino: Ino, work: impl FnOnce() -> Result<T>) -> Result<T> {
    LOOK.set(Some(Look { user, ino, begun: Instant::now(), limit: None }));
    let done = work();
    // Nothing else was computed for it, as of most inodes.
    let Some(Look { begun, limit: Some(Some((owner, deadline))), .. }) = LOOK.take() else { return done };
    let now = Instant::now();
    Links::of(vfs).layer.computing.length_waits.waited(owner, now - begun, now);
    match done {
        Err(error) if error.kind() == ErrorKind::Interrupted && deadline <= now => {
            tracing::warn!(
                user,
                "user {user} was not told the length of a link of user {owner}: it takes long to compute, and such \
                 links have kept others waiting for long enough"
            );
            Err(ErrorKind::TimedOut.into())
        }
        done => done,
    }
}

impl Links<'_> {
    /// Does `work`, which runs networks or waits for others that do: it ends early, in whatever way
    /// it tells of that, when [`Links::interrupt`] is called for the request of this thread and its
    /// program is to end. `Busy` if the user has enough at work already, `Interrupted` if nothing
    /// is computed any more.
    pub(crate) fn computing<T>(&self, work: impl FnOnce() -> T) -> Result<T> {
        if COMPUTES.get() {
            return Ok(work());
        }
        let requester = requester();
        let turn = self.layer.computing.enter(requester)?;
        let (all, hint) = (Arc::downgrade(&self.layer.computing), turn.hint.clone());
        let looked = Cell::new(None::<Instant>);
        let deadline = self.limit_of_look().map(|(_, deadline)| deadline);
        let share = available_parallelism().map_or(1, usize::from);
        let pace = Pace { at_work: turn.at_work.clone(), share, looked: Instant::now(), worked: worked() };
        let pace = RefCell::new(pace);
        let is_interrupted = move || {
            // Without a volume nobody wants anything.
            let Some(computing) = all.upgrade() else { return true };
            let is_late = deadline.is_some_and(|deadline| deadline <= Instant::now());
            if is_late || computing.is_stopped() || hint.has_ended.load(Ordering::Relaxed) {
                hint.has_ended.store(true, Ordering::Relaxed);
                return true;
            }
            pace.borrow_mut().hold_back(&computing);
            let is_due = || looked.get().is_none_or(|at| at.elapsed() >= LOOK_AGAIN);
            if hint.is_given.load(Ordering::Relaxed) && is_due() {
                looked.set(Some(Instant::now()));
                let is_ending = requester.thread.is_none_or(is_ending);
                hint.has_ended.store(is_ending, Ordering::Relaxed);
                return is_ending;
            }
            false
        };
        COMPUTES.set(true);
        let done = Done;
        let result = interrupt::during(is_interrupted, work);
        drop(done);
        drop(turn);
        Ok(result)
    }

    /// Returns the owner of what this thread computes for a look, and the time until it may; none
    /// if it may take as long as it does.
    fn limit_of_look(&self) -> Option<(u32, Instant)> {
        let look = LOOK.get()?;
        let limit = look.limit.unwrap_or_else(|| {
            let owner = self.foreign_owner(look.user, look.ino)?;
            Some((owner, look.begun + self.layer.computing.length_waits.longest(owner, look.begun)))
        });
        LOOK.set(Some(Look { limit: Some(limit), ..look }));
        limit
    }

    /// Returns the owner of `ino`, if that is an ordinary user other than `user`.
    fn foreign_owner(&self, user: u32, ino: Ino) -> Option<u32> {
        let trusted = [0, user, rustix::process::geteuid().as_raw()];
        self.owner(ino).ok().filter(|owner| !trusted.contains(owner))
    }

    /// Waits for a lock that somebody has who computes. `Interrupted`, and as [`Links::computing`].
    pub(crate) fn lock_computing<'a, T>(&self, lock: &'a Mutex<T>) -> Result<MutexGuard<'a, T>> {
        self.computing(|| {
            loop {
                match lock.try_lock_for(PERIOD) {
                    Some(locked) => return Ok(locked),
                    None if interrupt::is_interrupted() => return Err(ErrorKind::Interrupted.into()),
                    None => {}
                }
            }
        })?
    }

    /// The program that waits for request `number` was sent a signal. If it is one that ends
    /// programs, or that they are waiting for, what the request computes ends, unless another one
    /// waits for it; the request fails with `Interrupted`.
    pub fn interrupt(&self, number: u64) {
        let mut table = self.layer.computing.table.lock();
        if let Some(hint) = table.requests.get(&number) {
            hint.is_given.store(true, Ordering::Relaxed);
            return;
        }
        table.remember(number);
    }

    /// Ends all that networks compute now, because the volume is about to be unmounted; with
    /// `for_good`, nothing is computed any more, else nothing for a while.
    pub fn stop_computing(&self, for_good: bool) {
        let until = (!for_good).then(|| Instant::now() + STOPPED);
        *self.layer.computing.stopped_until.lock() = until;
        self.layer.computing.is_stopped.store(true, Ordering::Relaxed);
    }

    /// True while nothing is computed, as [`Links::stop_computing`] asked for.
    pub fn is_stopped(&self) -> bool {
        self.layer.computing.is_stopped()
    }
}

/// Says, when it goes, that this thread computes no more.
struct Done;

impl Drop for Done {
    fn drop(&mut self) {
        COMPUTES.set(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_and_a_host_take_a_share_and_leave_others_theirs() {
        let lane = Lane::new(16);
        let of = |user, host: Option<u8>| {
            let host = host.map(|last| IpAddr::from([10, 0, 0, last]));
            let requester = Requester { user, host, ..Requester::default() };
            (0..100).map_while(|_| lane.enter(requester)).collect::<Vec<_>>()
        };
        let first = of(1, None);
        // Those who come later have a smaller share, and each who has none finds a place.
        let (second, third, fourth) = (of(2, None), of(3, None), of(4, None));
        assert_eq!([&first, &second, &third, &fourth].map(Vec::len), [10, 2, 1, 1]);
        assert_eq!(of(5, None).len(), 0);
        drop(first);
        assert_eq!(of(1, None).len(), 3);
        drop((second, third, fourth));
        assert_eq!(of(3, None).len(), 10);
        // A host says of itself which users it has.
        let one_host: Vec<_> = (0..5).map(|user| of(user, Some(1))).collect();
        assert_eq!(one_host.iter().map(Vec::len).sum::<usize>(), 12);
        assert_eq!(of(7, Some(2)).len(), 1);
        drop(one_host);
        let taken = lane.taken.lock();
        assert!(taken.all == 0 && taken.users.is_empty() && taken.hosts.is_empty());
        assert_eq!([1, 2, 3, 4].map(|threads| Lane::new(threads).all_max), [1, 1, 2, 3]);
    }
}
