//! The table against a model that keeps each byte's locks in a list and looks at all of them.

use super::*;
use proptest::prelude::*;
use room::{OF_MACHINE, OF_MOUNT};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

const INO: Ino = Ino(7);
/// Bytes that the model looks at; the last stands for the end.
const BYTES: u64 = 12;

thread_local! {
    /// Nodes of ranges that this thread has looked at, and requests that wait.
    pub(super) static VISITED: Cell<usize> = const { Cell::new(0) };
    pub(super) static LOOKED: Cell<usize> = const { Cell::new(0) };
}

const OF_CLIENT_MAX: usize = OF_MOUNT.of_holder;
const OF_USER_MAX: usize = OF_MOUNT.of_user();
const OF_USERS_MAX: usize = OF_MOUNT.of_users();
const CROWDED: usize = OF_MOUNT.crowded();
const FEW: usize = OF_MOUNT.few_of_user();

fn mount(number: u64) -> LockClient {
    LockClient { number, machine: None }
}

fn owner(client: u64, name: u8) -> LockOwner {
    LockOwner { client: mount(client), name: Arc::new([name]) }
}

fn request(owner: LockOwner, first: u64, last: u64, mode: LockMode) -> LockRequest {
    let range = LockRange::new(first, last).unwrap();
    LockRequest { owner, user: 0, kind: LockKind::Range, range, mode, pid: 1, tag: 0 }
}

fn waits(counter: &Arc<AtomicUsize>) -> IfHeld {
    let counter = counter.clone();
    IfHeld::Wait(Box::new(move || {
        counter.fetch_add(1, Ordering::Relaxed);
    }))
}

#[test]
fn who_waits_is_granted_in_order_once_there_is_room() {
    let locks = Locks::default();
    let (a, b, c) = (owner(1, 1), owner(2, 1), owner(2, 2));
    let (first, second) = (Arc::default(), Arc::default());
    let lock = |request, if_held| locks.lock(INO, request, Claim::New, if_held);
    assert_eq!(lock(request(a.clone(), 0, 9, LockMode::Exclusive), IfHeld::Fail), Ok(Locked::Now));
    let wanted = request(b.clone(), 5, 5, LockMode::Exclusive);
    assert_eq!(lock(wanted.clone(), IfHeld::Fail), Err(LockError::Held));
    assert_eq!(lock(wanted.clone(), waits(&first)), Ok(Locked::Waiting));
    assert_eq!(lock(request(c.clone(), 5, 6, LockMode::Shared), waits(&second)), Ok(Locked::Waiting));
    locks.unlock(INO, &a, LockKind::Range, LockRange::new(5, 6).unwrap()).unwrap();
    assert_eq!((first.load(Ordering::Relaxed), second.load(Ordering::Relaxed)), (1, 0));
    let found = locks.test(INO, &request(c, 0, 9, LockMode::Shared)).unwrap();
    assert_eq!((found.owner, found.range), (a.clone(), LockRange::new(0, 4).unwrap()));
    locks.unlock(INO, &b, LockKind::Range, LockRange::ALL).unwrap();
    assert_eq!(second.load(Ordering::Relaxed), 1);
    assert!(!locks.cancel(INO, &wanted), "it was granted");
    locks.release(mount(2));
    locks.release(a.client);
    let table = locks.0.lock();
    assert!(table.files.is_empty() && table.room.is_empty() && table.waits.is_empty());
}

#[test]
fn waiting_for_each_other_is_refused_over_any_number_of_files() {
    let locks = Locks::default();
    let granted = Arc::default();
    let lock = |ino, owner: &LockOwner, if_held| {
        locks.lock(Ino(ino), request(owner.clone(), 0, 0, LockMode::Exclusive), Claim::New, if_held)
    };
    let owners = [owner(1, 1), owner(2, 2), owner(3, 3)];
    for (ino, owner) in (1..).zip(&owners) {
        lock(ino, owner, IfHeld::Fail).unwrap();
    }
    assert_eq!(lock(2, &owners[0], waits(&granted)), Ok(Locked::Waiting));
    assert_eq!(lock(3, &owners[1], waits(&granted)), Ok(Locked::Waiting));
    assert_eq!(lock(1, &owners[2], waits(&granted)), Err(LockError::Deadlock));
    assert_eq!(lock(1, &owners[2], IfHeld::Fail), Err(LockError::Held));
    locks.release(owners[2].client);
    assert_eq!(granted.load(Ordering::Relaxed), 1);
}

#[test]
fn fcntl_and_flock_do_not_see_each_other_and_nfs_sees_both() {
    let locks = Locks::default();
    let lock = |kind, name| {
        let request = LockRequest { kind, ..request(owner(1, name), 0, 9, LockMode::Exclusive) };
        locks.lock(INO, request, Claim::New, IfHeld::Fail)
    };
    assert_eq!(lock(LockKind::Range, 1), Ok(Locked::Now));
    assert_eq!(lock(LockKind::File, 2), Ok(Locked::Now));
    assert_eq!(lock(LockKind::Either, 3), Err(LockError::Held));
    locks.unlock(INO, &owner(1, 1), LockKind::Range, LockRange::ALL).unwrap();
    assert_eq!(lock(LockKind::Either, 3), Err(LockError::Held));
    locks.unlock(INO, &owner(1, 2), LockKind::File, LockRange::ALL).unwrap();
    assert_eq!(lock(LockKind::Either, 3), Ok(Locked::Now));
    assert_eq!(lock(LockKind::Range, 1), Err(LockError::Held));
    assert_eq!(lock(LockKind::File, 2), Err(LockError::Held));
}

#[test]
fn what_was_granted_and_is_not_wanted_is_given_up_but_not_what_was_asked_for_since() {
    let locks = Locks::default();
    let (holder, waiter) = (owner(1, 1), owner(2, 1));
    let grants: Arc<Mutex<Vec<Grant>>> = Arc::default();
    let wanted = request(waiter.clone(), 0, 9, LockMode::Exclusive);
    let lock = |request, if_held| locks.lock(INO, request, Claim::New, if_held).unwrap();
    let wait = || {
        let grants = grants.clone();
        lock(request(holder.clone(), 0, 9, LockMode::Exclusive), IfHeld::Fail);
        lock(wanted.clone(), IfHeld::WaitAndAnswer(Box::new(move |grant| grants.lock().push(grant))));
        locks.unlock(INO, &holder, LockKind::Range, LockRange::ALL).unwrap();
    };
    let first_held = || {
        let all = request(holder.clone(), 0, u64::MAX, LockMode::Shared);
        locks.test(INO, &all).map(|found| (found.range.first(), found.range.last()))
    };
    wait();
    assert_eq!(first_held(), Some((0, 9)), "it is held while its owner is asked");
    lock(request(waiter.clone(), 4, 5, LockMode::Exclusive), IfHeld::Fail);
    let first = grants.lock()[0];
    locks.answer(INO, &wanted, first, Wanted::No);
    assert_eq!(first_held(), Some((4, 5)));
    locks.answer(INO, &wanted, first, Wanted::No);
    assert_eq!(first_held(), Some((4, 5)));
    locks.unlock(INO, &waiter, LockKind::Range, LockRange::ALL).unwrap();
    wait();
    locks.answer(INO, &wanted, first, Wanted::No);
    assert_eq!(first_held(), Some((0, 9)), "that was another one");
    let second = grants.lock()[1];
    locks.answer(INO, &wanted, second, Wanted::Yes);
    lock(request(waiter.clone(), 10, 12, LockMode::Exclusive), IfHeld::Fail);
    assert_eq!(first_held(), Some((0, 12)), "what is wanted is like any other");
    locks.answer(INO, &wanted, second, Wanted::No);
    assert_eq!(first_held(), Some((0, 12)));
}

#[test]
fn during_grace_only_old_locks_are_granted_and_new_ones_wait() {
    let locks = Locks::default();
    let granted = Arc::default();
    let wanted = |name| request(owner(1, name), 0, 0, LockMode::Exclusive);
    assert_eq!(locks.lock(INO, wanted(1), Claim::Again, IfHeld::Fail), Err(LockError::Grace));
    locks.begin_grace();
    assert_eq!(locks.lock(INO, wanted(1), Claim::New, IfHeld::Fail), Err(LockError::Grace));
    assert_eq!(locks.lock(INO, wanted(2), Claim::New, waits(&granted)), Ok(Locked::Waiting));
    assert_eq!(locks.lock(INO, wanted(3), Claim::Again, IfHeld::Fail), Ok(Locked::Now));
    locks.unlock(INO, &owner(1, 3), LockKind::Range, LockRange::ALL).unwrap();
    assert_eq!(granted.load(Ordering::Relaxed), 0);
    locks.end_grace();
    assert_eq!(granted.load(Ordering::Relaxed), 1);
}

#[test]
fn one_client_has_so_many_locks_and_no_more() {
    let locks = Locks::default();
    for at in 0..u64::try_from(OF_CLIENT_MAX).unwrap() {
        locks.lock(INO, request(owner(1, 1), 2 * at, 2 * at, LockMode::Shared), Claim::New, IfHeld::Fail).unwrap();
    }
    let one_more = |client| request(owner(client, 1), 1 << 40, 1 << 40, LockMode::Shared);
    assert_eq!(locks.lock(INO, one_more(1), Claim::New, IfHeld::Fail), Err(LockError::TooMany));
    assert_eq!(locks.lock(INO, one_more(2), Claim::New, IfHeld::Fail), Ok(Locked::Now));
}

/// One user took all locks of a mount, the super-user's included.
#[test]
fn a_user_has_a_share_of_a_clients_locks_and_leaves_others_and_the_super_user_theirs() {
    let locks = Locks::default();
    let mut at = 0;
    let mut take = |user: u32, max: usize| {
        let mut one = || {
            at += 2;
            let owner = LockOwner { client: mount(1), name: Arc::new(user.to_be_bytes()) };
            let request = LockRequest { user, ..request(owner, at, at, LockMode::Shared) };
            locks.lock(INO, request, Claim::New, IfHeld::Fail)
        };
        let taken = (0..max).take_while(|_| one().is_ok()).count();
        assert!(taken == max || one() == Err(LockError::TooMany));
        taken
    };
    assert_eq!(take(1, OF_CLIENT_MAX), OF_USER_MAX);
    assert_eq!(take(2, OF_CLIENT_MAX) + take(3, OF_CLIENT_MAX), CROWDED - OF_USER_MAX);
    // However many they are, another one gets some, until there are too many.
    let crowd: usize = (4..1000).map(|user| take(user, OF_CLIENT_MAX)).take_while(|taken| *taken == FEW).sum();
    assert_eq!(crowd, OF_USERS_MAX - CROWDED);
    assert_eq!((take(2000, 1), take(0, OF_CLIENT_MAX)), (0, OF_CLIENT_MAX - OF_USERS_MAX));
    // What is given up is the user's own again.
    let first = LockOwner { client: mount(1), name: Arc::new(1u32.to_be_bytes()) };
    locks.unlock(INO, &first, LockKind::Range, LockRange::ALL).unwrap();
    assert_eq!(take(2000, OF_CLIENT_MAX), CROWDED - (OF_USERS_MAX - OF_USER_MAX));
    locks.release(mount(1));
    assert!(locks.0.lock().room.is_empty());
}

/// One user of a machine took the locks of all machines and mounts by inventing names of clients.
#[test]
fn a_machine_has_its_share_whatever_its_clients_call_themselves_and_leaves_mounts_and_others_theirs() {
    let locks = Locks::default();
    let machine = |n: usize| IpAddr::from([10, 0, u8::try_from(n / 256).unwrap(), u8::try_from(n % 256).unwrap()]);
    let mut at = 0;
    let mut take = |client: LockClient, user: u32, max: usize| {
        let mut one = || {
            at += 2;
            let owner = LockOwner { client, name: Arc::new([]) };
            let request = LockRequest { user, ..request(owner, at, at, LockMode::Shared) };
            locks.lock(INO, request, Claim::New, IfHeld::Fail)
        };
        (0..max).take_while(|_| one().is_ok()).count()
    };
    let greedy: Vec<_> = (0..64).map(|_| locks.remote_client(machine(1))).collect();
    let taken: usize = greedy.iter().map(|client| take(*client, 7, OF_MACHINE.of_holder)).sum();
    assert_eq!(taken, OF_MACHINE.of_user(), "many names are one user of one machine");
    let other = locks.remote_client(machine(1));
    assert_eq!((take(other, 8, 100), take(other, 0, 100)), (100, 100), "others of it have theirs");
    // Many machines, all of whose users are greedy.
    for n in 2..40 {
        let client = locks.remote_client(machine(n));
        (0..8).for_each(|user| _ = take(client, user, OF_MACHINE.of_holder));
    }
    let (late, mount) = (locks.remote_client(machine(1000)), locks.client());
    assert_eq!((take(late, 7, 100), take(late, 0, 100)), (100, 100), "another machine gets some");
    assert_eq!((take(mount, 7, 1000), take(mount, 0, 1000)), (1000, 1000), "a mount has all of its own");
    let first = greedy[0];
    locks.release(first);
    assert!(!locks.has_any(first));
    assert_eq!(take(greedy[1], 7, 100), 100, "what is given up is its own again");
}

#[test]
fn all_that_one_owner_holds_of_a_file_counts_for_one_user() {
    let locks = Locks::default();
    let of = |user: u32, at: usize| {
        let at = 2 * at as u64;
        LockRequest { user, ..request(owner(1, 1), at, at, LockMode::Shared) }
    };
    for at in 0..OF_USER_MAX {
        locks.lock(INO, of(7, at), Claim::New, IfHeld::Fail).unwrap();
    }
    assert_eq!(locks.lock(INO, of(8, OF_USER_MAX), Claim::New, IfHeld::Fail), Err(LockError::TooMany));
}

/// Unlocking made ranges without a bound: of one, any number.
#[test]
fn unlocking_in_the_middle_takes_room_and_the_rest_none() {
    let locks = Locks::default();
    let of_user = || LockRequest { user: 7, ..request(owner(1, 1), 0, u64::MAX, LockMode::Shared) };
    locks.lock(INO, of_user(), Claim::New, IfHeld::Fail).unwrap();
    let unlock = |first, last| locks.unlock(INO, &owner(1, 1), LockKind::Range, LockRange::new(first, last).unwrap());
    let split = (0..).take_while(|n: &u64| unlock(2 * n + 1, 2 * n + 1).is_ok()).count();
    assert_eq!(split, OF_USER_MAX - 1);
    assert_eq!((unlock(0, 0), unlock(1 << 40, u64::MAX)), (Ok(()), Ok(())));
    assert_eq!(unlock(0, u64::MAX), Ok(()));
    let table = locks.0.lock();
    assert!(table.files.is_empty() && table.room.is_empty());
}

/// Each unlock cost waiters times owners, on the thread that serves all.
#[test]
fn locking_and_unlocking_look_at_few_of_those_who_hold_and_wait() {
    let locks = Locks::default();
    let of = |number: u32| LockOwner { client: mount(1), name: Arc::new(number.to_be_bytes()) };
    let whole = |number, kind, mode| LockRequest {
        kind,
        mode,
        tag: u64::from(number),
        ..request(of(number), 0, u64::MAX, LockMode::Shared)
    };
    let lock = |request, if_held| locks.lock(INO, request, Claim::New, if_held).unwrap();
    let granted = Arc::default();
    VISITED.set(0);
    let sharers = 6000u32;
    for number in 0..sharers {
        lock(whole(number, LockKind::File, LockMode::Shared), IfHeld::Fail);
    }
    lock(whole(10_000, LockKind::Range, LockMode::Exclusive), IfHeld::Fail);
    for number in 20_000..22_500 {
        lock(whole(number, LockKind::Range, LockMode::Exclusive), waits(&granted));
        lock(whole(number, LockKind::File, LockMode::Exclusive), waits(&granted));
    }
    assert!(VISITED.get() < 11_000 * 40, "{}", VISITED.get());
    VISITED.set(0);
    LOOKED.set(0);
    for number in (1..sharers).rev().take(1000) {
        locks.unlock(INO, &of(number), LockKind::File, LockRange::ALL).unwrap();
        lock(whole(number, LockKind::File, LockMode::Shared), IfHeld::Fail);
    }
    assert!(VISITED.get() < 1000 * 200 && LOOKED.get() == 0, "{} {}", VISITED.get(), LOOKED.get());
    // One of those who wait comes next, and is what the others wait for then.
    locks.unlock(INO, &of(10_000), LockKind::Range, LockRange::ALL).unwrap();
    assert_eq!((granted.load(Ordering::Relaxed), LOOKED.get()), (1, 2500));
    locks.release(mount(1));
    let table = locks.0.lock();
    assert!(table.files.is_empty() && table.room.is_empty() && table.waits.is_empty());
}

#[test]
fn what_is_held_elsewhere_is_passed_by_however_much_it_is() {
    let locks = Locks::default();
    let lock = |request, if_held| locks.lock(INO, request, Claim::New, if_held);
    let (own, other) = (owner(1, 1), owner(1, 2));
    for at in 0..4000 {
        lock(request(own.clone(), 2 * at, 2 * at, LockMode::Shared), IfHeld::Fail).unwrap();
    }
    lock(request(other.clone(), 7999, 7999, LockMode::Exclusive), IfHeld::Fail).unwrap();
    VISITED.set(0);
    // Its own ranges are in nobody's way but others'.
    assert_eq!(lock(request(own, 0, 9000, LockMode::Exclusive), IfHeld::Fail), Err(LockError::Held));
    assert_eq!(lock(request(other, 0, 9000, LockMode::Shared), IfHeld::Fail), Ok(Locked::Now));
    assert!(VISITED.get() < 500, "{}", VISITED.get());
}

#[test]
fn reservations_deny_others_what_they_say() {
    let locks = Locks::default();
    let (read, write, none) =
        (ShareBits { read: true, write: false }, ShareBits { read: false, write: true }, ShareBits::default());
    let share = |name, access, deny| locks.share(INO, (&owner(1, name), 0), Claim::New, access, deny);
    assert_eq!(share(1, read, write), Ok(()));
    assert_eq!(share(2, write, none), Err(LockError::Held));
    assert_eq!(share(2, read, read), Err(LockError::Held));
    assert_eq!(share(2, read, none), Ok(()));
    assert_eq!(share(1, read, read), Err(LockError::Held));
    locks.unshare(INO, &owner(1, 2));
    assert_eq!(share(1, read, read), Ok(()));
    locks.release(mount(1));
    assert!(!locks.has_any(mount(1)) && locks.0.lock().files.is_empty());
}

#[test]
fn reservations_do_what_a_list_of_them_does() {
    let bits = |of: usize| ShareBits { read: of & 1 != 0, write: of & 2 != 0 };
    let locks = Locks::default();
    let mut model: Vec<(u8, ShareBits, ShareBits)> = Vec::new();
    for step in 0..4000usize {
        // Owners come by turns, each with other wishes every time.
        let (name, access, deny) = (u8::try_from(step % 5).unwrap(), bits(step / 5), bits(step / 23));
        let own = owner(1 + u64::from(name % 2), name);
        if step % 7 == 0 {
            locks.unshare(INO, &own);
            model.retain(|(theirs, ..)| *theirs != name);
            continue;
        }
        let is_denied = model.iter().any(|(theirs, theirs_access, denied)| {
            *theirs != name && (theirs_access.meets(deny) || denied.meets(access))
        });
        let shared = locks.share(INO, (&own, 0), Claim::New, access, deny);
        assert_eq!(shared, if is_denied { Err(LockError::Held) } else { Ok(()) }, "{step}");
        if !is_denied {
            model.retain(|(theirs, ..)| *theirs != name);
            model.push((name, access, deny));
        }
        if step % 97 == 0 {
            locks.release(mount(2));
            model.retain(|(theirs, ..)| theirs % 2 == 0);
        }
    }
    (1..3).for_each(|client| locks.release(mount(client)));
    let table = locks.0.lock();
    assert!(table.files.is_empty() && table.room.is_empty());
}

#[test]
fn ranges_are_read_as_protocols_say_them() {
    let end = i64::MAX.cast_unsigned();
    assert_eq!(LockRange::of_length(0, 0), Some(LockRange::ALL));
    assert_eq!(LockRange::of_length(end, 1).map(LockRange::length), Some(0));
    assert_eq!(LockRange::of_length(end, 2), None);
    assert_eq!(LockRange::of_length(end + 1, 0), None);
    assert_eq!(LockRange::of_length(1, u64::MAX), None);
    assert_eq!(LockRange::new(3, u64::MAX).map(|range| (range.last(), range.length())), Some((end, 0)));
    assert_eq!(LockRange::new(3, 2), None);
    assert_eq!(LockRange::of_length(3, 2).map(|range| (range.first(), range.last())), Some((3, 4)));
}

/// An operation on both the table and the model.
#[derive(Clone, Debug)]
enum Step {
    Lock { request: LockRequest, waits: bool },
    Unlock { request: LockRequest },
    Cancel { request: LockRequest },
    Test { request: LockRequest },
    Release { client: u64 },
}

fn any_request() -> impl Strategy<Value = LockRequest> {
    let mode = prop_oneof![Just(LockMode::Shared), Just(LockMode::Exclusive)];
    let kind = prop_oneof![3 => Just(LockKind::Range), 1 => Just(LockKind::File), 1 => Just(LockKind::Either)];
    (1u64..4, 0u8..2, kind, 0..BYTES, 0..BYTES, mode).prop_map(|(client, name, kind, a, b, mode)| {
        // The last byte of the model stands for all from there on.
        let last = if a.max(b) == BYTES - 1 { u64::MAX } else { a.max(b) };
        LockRequest { kind, ..request(owner(client, name), a.min(b), last, mode) }
    })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (any_request(), any::<bool>()).prop_map(|(request, waits)| Step::Lock { request, waits }),
        4 => any_request().prop_map(|request| Step::Unlock { request }),
        1 => any_request().prop_map(|request| Step::Cancel { request }),
        2 => any_request().prop_map(|request| Step::Test { request }),
        1 => (1u64..4).prop_map(|client| Step::Release { client }),
    ]
}

/// Reference model: the holder of each byte, and the waiting requests.
#[derive(Default)]
struct Model {
    held: Vec<(u64, LockOwner, LockKind, LockMode)>,
    waiting: Vec<LockRequest>,
    granted: Vec<LockRequest>,
}

impl Model {
    fn in_the_way(&self, of: &LockRequest) -> Vec<(u64, LockOwner)> {
        let sees = |kind| kind == of.kind || kind == LockKind::Either || of.kind == LockKind::Either;
        let excludes = |mode| mode == LockMode::Exclusive || of.mode == LockMode::Exclusive;
        let met = self.held.iter().filter(|(byte, owner, kind, mode)| {
            (of.range.first()..=of.range.last()).contains(byte) && *owner != of.owner && sees(*kind) && excludes(*mode)
        });
        met.map(|(byte, owner, ..)| (*byte, owner.clone())).collect()
    }

    fn unlock(&mut self, of: &LockRequest) {
        let range = of.range.first()..=of.range.last();
        self.held.retain(|(byte, owner, kind, _)| !(range.contains(byte) && *owner == of.owner && *kind == of.kind));
    }

    fn hold(&mut self, of: &LockRequest) {
        self.unlock(of);
        let bytes = of.range.first()..=of.range.last().min(BYTES - 1);
        self.held.extend(bytes.map(|byte| (byte, of.owner.clone(), of.kind, of.mode)));
    }

    fn grant(&mut self) {
        while let Some(at) = self.waiting.iter().position(|request| self.in_the_way(request).is_empty()) {
            let request = self.waiting.remove(at);
            self.hold(&request);
            self.granted.push(request);
        }
    }

    /// True if `owner` waits for `for_whom`, directly or through others.
    fn waits_for(&self, owner: &LockOwner, for_whom: &LockOwner, depth: usize) -> bool {
        let mut mine = self.waiting.iter().filter(|request| request.owner == *owner);
        owner == for_whom
            || depth > 0
                && mine.any(|request| {
                    self.in_the_way(request).iter().any(|(_, next)| self.waits_for(next, for_whom, depth - 1))
                })
    }

    fn lock(&mut self, of: &LockRequest, waits: bool) -> Result<Locked, LockError> {
        let in_the_way = self.in_the_way(of);
        if in_the_way.is_empty() {
            self.hold(of);
            self.grant();
            return Ok(Locked::Now);
        }
        if !waits {
            return Err(LockError::Held);
        }
        if self.waiting.contains(of) {
            return Ok(Locked::Waiting);
        }
        if of.kind != LockKind::File && in_the_way.iter().any(|(_, owner)| self.waits_for(owner, &of.owner, 6)) {
            return Err(LockError::Deadlock);
        }
        self.waiting.push(of.clone());
        Ok(Locked::Waiting)
    }
}

proptest! {
    #[test]
    fn the_table_does_what_a_list_of_all_bytes_does(steps in proptest::collection::vec(step(), 1..60)) {
        let locks = Locks::default();
        let mut model = Model::default();
        let granted: Arc<Mutex<Vec<LockRequest>>> = Arc::default();
        for step in steps {
            match step {
                Step::Lock { request, waits } => {
                    let (told, of) = (granted.clone(), request.clone());
                    let then = IfHeld::Wait(Box::new(move || told.lock().push(of)));
                    let if_held = if waits { then } else { IfHeld::Fail };
                    let expected = model.lock(&request, waits);
                    prop_assert_eq!(locks.lock(INO, request, Claim::New, if_held), expected);
                }
                Step::Unlock { request } => {
                    model.unlock(&request);
                    model.grant();
                    locks.unlock(INO, &request.owner, request.kind, request.range).unwrap();
                }
                Step::Cancel { request } => {
                    let at = model.waiting.iter().position(|waiting| *waiting == request);
                    at.map(|at| model.waiting.remove(at));
                    prop_assert_eq!(locks.cancel(INO, &request), at.is_some());
                }
                Step::Test { request } => {
                    let found = locks.test(INO, &request).map(|found| found.range.first().max(request.range.first()));
                    let expected = model.in_the_way(&request).into_iter().map(|(byte, _)| byte).min();
                    prop_assert_eq!(found, expected);
                }
                Step::Release { client } => {
                    model.held.retain(|(_, owner, ..)| owner.client != mount(client));
                    model.waiting.retain(|request| request.owner.client != mount(client));
                    model.grant();
                    locks.release(mount(client));
                }
            }
            prop_assert_eq!(&*granted.lock(), &model.granted);
            for client in 1..4 {
                let client = mount(client);
                let expected = model.held.iter().any(|(_, owner, ..)| owner.client == client)
                    || model.waiting.iter().any(|request| request.owner.client == client);
                prop_assert_eq!(locks.has_any(client), expected);
            }
        }
    }
}
