//! Turns of users whose requests wait, and the threads that each may occupy.
//!
//! The kernel hands out requests in the order in which they were made, by any user. While it has
//! more of them than are served, they are read ahead and queued here by user; users with queued
//! requests are served by rotation, one request each. A request that waits keeps a thread, which is
//! taken for its user meanwhile. One user takes up to [`THREADS`] of them, and [`OTHERS`] more are
//! there for users who have taken fewer than [`FEW`]. Threads that wait for a block of a local disk
//! are soon at work again, and many of them would take the processors from users who ask for
//! little. So while several users ask, one user has at most [`Turns::readers_max`] of these.
//!
//! Bounds: the kernel makes one request for each thread of a program that waits for it, and as many
//! in the background as the handshake allows. Those queued here take [`BYTES_MAX`]; the rest waits
//! in the kernel, in its order.

use super::company::Company;
use super::user::User;
use crate::protocol::{Header, REQUEST_BYTES_MAX};
use std::collections::{HashMap, VecDeque};

/// Requests that wait, of all users together. One user may have all of them.
pub(super) const THREADS: usize = 64;

/// Requests that wait beyond those.
pub(super) const OTHERS: usize = 8;

/// Waiting requests of one user from which on none is served beyond [`THREADS`].
const FEW: isize = 2;

/// Bytes of queued requests from which on no more are read.
const BYTES_MAX: usize = 32 << 20;

/// Longest request that is copied to be queued; others keep the buffer that they were read to.
const COPIED_MAX: usize = 128 << 10;

/// Bytes that a queued request takes beside its own.
const ENTRY_BYTES: usize = 128;

/// Buffers that are pooled for the next requests.
const SPARE_MAX: usize = 8;

/// A request as it was read.
#[derive(Debug)]
pub(super) struct Queued {
    buffer: Vec<u8>,
    len: usize,
    unique: u64,
    /// True if its program was sent a signal meanwhile.
    pub(super) is_interrupted: bool,
}

impl Queued {
    /// Makes an entry for the request of `header` in the first `len` bytes of `buffer`. May replace
    /// `buffer`.
    pub(super) fn new(header: &Header, buffer: &mut Vec<u8>, len: usize, spare: Option<Vec<u8>>) -> Queued {
        let buffer = if len <= COPIED_MAX {
            buffer[..len].to_vec()
        } else {
            std::mem::replace(buffer, spare.unwrap_or_else(|| vec![0; REQUEST_BYTES_MAX]))
        };
        Queued { buffer, len, unique: header.unique, is_interrupted: false }
    }

    /// Its bytes.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.buffer[..self.len]
    }

    /// Its number.
    pub(super) fn unique(&self) -> u64 {
        self.unique
    }

    fn weight(&self) -> usize {
        self.buffer.len() + ENTRY_BYTES
    }
}

/// Kind of wait of a request for which a thread is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Waits {
    /// Nothing yet.
    #[default]
    No,
    /// Blocks.
    Reads,
    /// Something else, for however long, at least once.
    Otherwise,
}

/// Number of threads taken for a user: below zero while one was given back before it was taken.
#[derive(Debug, Default, PartialEq, Eq)]
struct Taken {
    all: isize,
    readers: isize,
}

/// Queued requests, and the threads that are taken.
#[derive(Debug)]
pub(super) struct Turns {
    /// Users with queued requests; the first one is next.
    users: VecDeque<(User, VecDeque<Queued>)>,
    len: usize,
    bytes: usize,
    taken: HashMap<User, Taken>,
    all: isize,
    /// Threads of one user that read blocks while several users ask.
    readers_max: isize,
    spare: Vec<Vec<u8>>,
}

impl Turns {
    /// Returns turns with nothing queued or taken.
    pub(super) fn new(readers_max: usize) -> Turns {
        let readers_max = readers_max.cast_signed();
        Turns {
            users: VecDeque::new(),
            len: 0,
            bytes: 0,
            taken: HashMap::new(),
            all: 0,
            readers_max,
            spare: Vec::new(),
        }
    }

    /// Returns the number of queued requests.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns the number of threads that are taken.
    pub(super) fn taken(&self) -> isize {
        self.all
    }

    /// True if requests are to be read ahead.
    pub(super) fn has_room(&self) -> bool {
        self.bytes < BYTES_MAX
    }

    /// True if a request of `user` may be served: it may take a thread.
    pub(super) fn may_take(&self, user: User, company: Company) -> bool {
        let most = THREADS.cast_signed();
        let Some(taken) = self.taken.get(&user) else { return self.all < most + OTHERS.cast_signed() };
        let reads_enough = company == Company::Several && taken.readers >= self.readers_max;
        !reads_enough && (self.all < most || taken.all < FEW && self.all < most + OTHERS.cast_signed())
    }

    /// Takes a thread for `user`, whose request `waits` now.
    pub(super) fn take(&mut self, user: User, waits: Waits) {
        self.count(user, 1, isize::from(waits == Waits::Reads));
    }

    /// Gives back a thread that is or will be taken for `user`.
    pub(super) fn give_back(&mut self, user: User, waits: Waits) {
        self.count(user, -1, -isize::from(waits == Waits::Reads));
    }

    /// Changes the wait of a request of `user` for which a thread is taken from `waits` to `now`.
    pub(super) fn wait(&mut self, user: User, waits: Waits, now: Waits) {
        let readers = |waits| isize::from(waits == Waits::Reads);
        self.count(user, 0, readers(now) - readers(waits));
    }

    fn count(&mut self, user: User, more: isize, readers: isize) {
        self.all += more;
        let taken = self.taken.entry(user).or_default();
        taken.all += more;
        taken.readers += readers;
        if *taken == Taken::default() {
            self.taken.remove(&user);
        }
    }

    /// Queues a request of `user`.
    pub(super) fn push(&mut self, user: User, request: Queued) {
        self.len += 1;
        self.bytes += request.weight();
        match self.users.iter_mut().find(|(of, _)| *of == user) {
            Some((_, requests)) => requests.push_back(request),
            None => self.users.push_back((user, VecDeque::from([request]))),
        }
    }

    /// Returns the next request that may be served.
    pub(super) fn pop(&mut self, company: Company) -> Option<(User, Queued)> {
        let at = self.users.iter().position(|(user, _)| self.may_take(*user, company))?;
        let (user, mut requests) = self.users.remove(at)?;
        let request = requests.pop_front()?;
        if !requests.is_empty() {
            self.users.push_back((user, requests));
        }
        self.len -= 1;
        self.bytes -= request.weight();
        Some((user, request))
    }

    /// Marks request `unique`, whose program was sent a signal. False if it is not queued.
    pub(super) fn interrupt(&mut self, unique: u64) -> bool {
        let mut queued = self.users.iter_mut().flat_map(|(_, requests)| requests);
        let found = queued.find(|request| request.unique == unique);
        found.map(|request| request.is_interrupted = true).is_some()
    }

    /// Returns a buffer for the next request, if one is at hand.
    pub(super) fn spare(&mut self) -> Option<Vec<u8>> {
        self.spare.pop()
    }

    /// Takes back the buffer of a request that was served.
    pub(super) fn reuse(&mut self, request: Queued) {
        if request.buffer.len() == REQUEST_BYTES_MAX && self.spare.len() < SPARE_MAX {
            self.spare.push(request.buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALICE: User = User::Id(1000);
    const BOB: User = User::Id(1001);
    const CAROL: User = User::Id(1002);

    fn header(unique: u64, uid: u32, pid: u32) -> Header {
        Header { opcode: 3, unique, nodeid: 1, uid, gid: uid, pid }
    }

    fn request(unique: u64, len: usize) -> Queued {
        let mut buffer = vec![7; REQUEST_BYTES_MAX];
        Queued::new(&header(unique, 0, 1), &mut buffer, len, None)
    }

    /// Queues requests of `user`, numbered from `first` on.
    fn queue(turns: &mut Turns, user: User, first: u64, count: u64) {
        (first..first + count).for_each(|unique| turns.push(user, request(unique, 48)));
    }

    fn pop(turns: &mut Turns) -> Option<(User, u64)> {
        turns.pop(Company::Several).map(|(user, request)| (user, request.unique()))
    }

    /// Takes threads for all requests that may be served, which wait so; returns their users.
    fn serve_all(turns: &mut Turns, waits: Waits) -> Vec<User> {
        let next = || {
            let (user, _) = turns.pop(Company::Several)?;
            turns.take(user, waits);
            Some(user)
        };
        std::iter::from_fn(next).collect()
    }

    /// Attack: a user's many programs ask all the time, and their requests came first.
    #[test]
    fn users_are_served_by_rotation_and_each_in_the_order_of_its_requests() {
        let mut turns = Turns::new(4);
        queue(&mut turns, ALICE, 1, 200);
        assert_eq!(pop(&mut turns), Some((ALICE, 1)));
        queue(&mut turns, BOB, 1001, 2);
        queue(&mut turns, User::Kernel, 2001, 1);
        let next: Vec<_> = (0..6).map_while(|_| pop(&mut turns)).collect();
        let (first, second) = ([(ALICE, 2), (BOB, 1001), (User::Kernel, 2001)], [(ALICE, 3), (BOB, 1002), (ALICE, 4)]);
        assert_eq!(next, [first, second].concat());
        assert_eq!(turns.len(), 196);
    }

    #[test]
    fn one_user_takes_all_threads_but_those_for_others() {
        let mut turns = Turns::new(4);
        queue(&mut turns, ALICE, 1, 100);
        let served = serve_all(&mut turns, Waits::No).len();
        assert_eq!((served, turns.taken()), (THREADS, THREADS.cast_signed()));
        // Others have theirs all the same, and nobody has them all.
        for (user, few) in [(BOB, 2), (CAROL, 2), (User::Kernel, 2), (User::Id(0), 2), (User::Id(9), 0)] {
            queue(&mut turns, user, 1001, 5);
            assert_eq!(serve_all(&mut turns, Waits::Otherwise), vec![user; few], "of {user:?}");
        }
        // Users who wait take the next free thread by rotation.
        (0..=OTHERS).for_each(|_| turns.give_back(ALICE, Waits::No));
        assert_eq!(pop(&mut turns).map(|(user, _)| user), Some(ALICE));
        turns.take(ALICE, Waits::No);
        assert!(pop(&mut turns).is_none_or(|(user, _)| user != ALICE));
    }

    #[test]
    fn a_user_who_reads_has_fewer_threads_while_others_ask_and_all_of_them_alone() {
        let mut turns = Turns::new(4);
        queue(&mut turns, ALICE, 1, 100);
        assert_eq!(serve_all(&mut turns, Waits::Reads).len(), 4);
        // A request that goes on to compute, for however long, reads no more.
        turns.wait(ALICE, Waits::Reads, Waits::Otherwise);
        assert_eq!(pop(&mut turns), Some((ALICE, 5)));
        turns.take(ALICE, Waits::No);
        turns.wait(ALICE, Waits::No, Waits::Reads);
        assert!(pop(&mut turns).is_none() && turns.may_take(BOB, Company::Several));
        while let Some((user, _)) = turns.pop(Company::Alone) {
            turns.take(user, Waits::Reads);
        }
        assert_eq!(turns.taken(), THREADS.cast_signed());
        turns.give_back(ALICE, Waits::Otherwise);
        (1..THREADS).for_each(|_| turns.give_back(ALICE, Waits::Reads));
        assert!(turns.taken() == 0 && turns.taken.is_empty());
    }

    #[test]
    fn a_thread_may_be_given_back_before_it_is_taken() {
        let mut turns = Turns::new(4);
        turns.give_back(ALICE, Waits::No);
        turns.take(ALICE, Waits::No);
        assert!(turns.taken() == 0 && turns.taken.is_empty());
    }

    #[test]
    fn no_more_than_so_many_bytes_are_read_ahead() {
        let mut turns = Turns::new(4);
        let mut count = 0;
        while turns.has_room() {
            turns.push(ALICE, request(count, REQUEST_BYTES_MAX));
            count += 1;
        }
        assert!(turns.bytes < BYTES_MAX + REQUEST_BYTES_MAX + ENTRY_BYTES && count < 33);
        let (_, first) = turns.pop(Company::Several).expect("one is next");
        assert!(first.bytes().len() == REQUEST_BYTES_MAX && turns.has_room());
        turns.reuse(first);
        assert!(turns.spare().is_some_and(|buffer| buffer.len() == REQUEST_BYTES_MAX) && turns.spare().is_none());
        while turns.pop(Company::Several).is_some() {}
        assert_eq!((turns.bytes, turns.len()), (0, 0));
    }

    #[test]
    fn a_signal_is_remembered_for_a_queued_request() {
        let mut turns = Turns::new(4);
        queue(&mut turns, ALICE, 1, 2);
        assert!(turns.interrupt(2) && !turns.interrupt(3));
        let told: Vec<_> =
            (0..2).filter_map(|_| turns.pop(Company::Several)).map(|(_, request)| request.is_interrupted).collect();
        assert_eq!(told, [false, true]);
    }

    #[test]
    fn the_kernels_own_requests_are_nobody_elses() {
        assert_eq!(User::of(&header(1, 0, 0)), User::Kernel);
        assert_eq!(User::of(&header(1, 0, 1)), User::Id(0));
        assert_eq!(User::of(&header(1, 1000, 0)), ALICE);
    }
}
