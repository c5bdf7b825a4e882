//! Long resolvings of links, one at a time, by turns of the users who ask.
//!
//! Links are resolved under the lock of all requests. A short resolving goes straight on. A longer
//! one is stopped after [`crate::resolving::steps::SHORT`] steps, lets the lock go, and begins
//! again once its user has the turn. So one long resolving at most keeps the others waiting,
//! however many were asked for; the rest of them wait here, where each user with any waiting gets
//! every so manieth turn. After each turn the lock rests as long as it was held, for short requests
//! to get their work done.
//!
//! Locks: that of the queue is held for nothing else.

use crate::layer::Links;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use weft_transform::interrupt::{self, PERIOD};
use weft_tree::{ErrorKind, Result};
use weft_vfs::asking_user;
use weft_vfs::blocking::{self, Wait};

/// Requests of one user that wait for a turn.
const WAITING_MAX: usize = 64;

/// Turns that held the lock for less are followed by no rest.
const REST_FROM: Duration = Duration::from_micros(250);

/// The turns of a volume.
#[derive(Default)]
pub(crate) struct Turns {
    queue: Mutex<Queue>,
    freed: Condvar,
}

#[derive(Default)]
struct Queue {
    is_taken: bool,
    /// Users of whom requests wait, and how many; the first is the next.
    users: VecDeque<(u32, usize)>,
    /// Until then nobody gets a turn.
    rests_until: Option<Instant>,
}

impl Queue {
    /// Returns the time for which the lock still rests.
    fn rest(&mut self) -> Option<Duration> {
        let left = self.rests_until?.checked_duration_since(Instant::now()).filter(|left| !left.is_zero());
        if left.is_none() {
            self.rests_until = None;
        }
        left
    }

    /// Gives the turn to nobody who waits. False if somebody has it, or comes first.
    fn take_at_once(&mut self) -> bool {
        let is_free = !self.is_taken && self.users.is_empty() && self.rest().is_none();
        self.is_taken |= is_free;
        is_free
    }

    /// Adds a request of `user`. False if there are enough.
    fn wait(&mut self, user: u32) -> bool {
        match self.users.iter_mut().find(|(of, _)| *of == user) {
            Some((_, count)) if *count >= WAITING_MAX => return false,
            Some((_, count)) => *count += 1,
            None => self.users.push_back((user, 1)),
        }
        true
    }

    /// Gives the turn to a request of `user`, which waits, if it is the next one's. Else the
    /// longest that it makes sense to wait until something changes without a word.
    fn take(&mut self, user: u32) -> std::result::Result<(), Duration> {
        if self.is_taken || self.users.front().is_none_or(|(next, _)| *next != user) {
            return Err(PERIOD);
        }
        if let Some(rest) = self.rest() {
            return Err(rest.min(PERIOD));
        }
        self.is_taken = true;
        if let Some((_, count)) = self.users.pop_front().filter(|(_, count)| *count > 1) {
            self.users.push_back((user, count - 1));
        }
        Ok(())
    }

    /// Takes back a request of `user` that waits.
    fn leave(&mut self, user: u32) {
        if let Some(at) = self.users.iter().position(|(of, _)| *of == user) {
            self.users[at].1 -= 1;
            if self.users[at].1 == 0 {
                self.users.remove(at);
            }
        }
    }
}

/// The turn, until it is dropped.
pub(crate) struct Turn<'a> {
    turns: &'a Turns,
    /// Since when the lock is held.
    since: Option<Instant>,
}

impl weft_vfs::opaque::Turn for Turn<'_> {
    fn begin(&mut self) {
        self.since = Some(Instant::now());
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let held = self.since.map_or(Duration::ZERO, |since| since.elapsed());
        let mut queue = self.turns.queue.lock();
        queue.is_taken = false;
        queue.rests_until = (held >= REST_FROM).then(|| Instant::now() + held);
        drop(queue);
        self.turns.freed.notify_all();
    }
}

impl Turns {
    fn turn(&self) -> Turn<'_> {
        Turn { turns: self, since: None }
    }

    /// Waits for a turn of `user`. `Busy`, `Interrupted`.
    fn wait_for(&self, user: u32) -> Result<Turn<'_>> {
        let mut queue = self.queue.lock();
        if !queue.wait(user) {
            return Err(ErrorKind::Busy.into());
        }
        let mut asked = None::<Instant>;
        loop {
            if asked.is_none_or(|at| at.elapsed() >= PERIOD) {
                asked = Some(Instant::now());
                // That may hold this thread back, for which nobody else is to wait.
                if MutexGuard::unlocked(&mut queue, interrupt::is_interrupted) {
                    queue.leave(user);
                    drop(queue);
                    // It may have been the next.
                    self.freed.notify_all();
                    return Err(ErrorKind::Interrupted.into());
                }
            }
            let Err(at_most) = queue.take(user) else { return Ok(self.turn()) };
            self.freed.wait_for(&mut queue, at_most);
        }
    }

    /// Requests that wait.
    #[cfg(test)]
    fn waiting(&self) -> usize {
        self.queue.lock().users.iter().map(|(_, count)| count).sum()
    }
}

impl<'a> Links<'a> {
    /// Waits until the asker may resolve a link at length. `Busy` if its user has enough requests
    /// that wait already, `Interrupted`, `WouldBlock`.
    pub(crate) fn take_turn(&self) -> Result<Turn<'a>> {
        // The thread is to serve others meanwhile.
        self.may_wait(Wait::Network)?;
        let turns = &self.layer.turns;
        if turns.queue.lock().take_at_once() {
            return Ok(turns.turn());
        }
        let user = asking_user();
        blocking::waiting(|| self.computing(|| turns.wait_for(user)))?
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::LinkDefinition;
    use crate::options::LinkOptions;
    use std::sync::Arc;
    use std::thread;
    use weft_store::{Ino, Kind, VolumeOptions};
    use weft_testkit::CrashStore;
    use weft_tree::{Caller, Credentials, MakeNode, SetAttributes};
    use weft_vfs::{Asker, ManualClock, Options, Requester, Vfs, set_requester};

    /// Waiting requests of a user, for those who look on.
    const MANY: usize = 8;

    struct Volume {
        vfs: Arc<Vfs>,
        file: Ino,
        short: Ino,
        long: Ino,
    }

    impl Volume {
        fn new() -> Volume {
            let store = Arc::new(CrashStore::new(VolumeOptions::default()));
            let options = Options { background: false, ..Options::default() };
            let vfs = crate::open(store, None, options, LinkOptions::default(), Arc::new(ManualClock::default()))
                .expect("opens");
            let make = |name: &[u8], kind| {
                let node = MakeNode { kind, permissions: 0o755, umask: 0, rdev: 0 };
                vfs.make(Caller::ROOT, Ino::ROOT, name, node).expect("made").ino
            };
            make(b"x", Kind::Directory);
            let file = make(b"file", Kind::File);
            vfs.write(file, 0, b"text", true).expect("written");
            let link = |name: &[u8], path: String| {
                let definition = LinkDefinition::new(vec![path.into_bytes()], "upper");
                Links::of(&vfs).make_link(Caller::ROOT, Ino::ROOT, name, 0o666, &definition).expect("made").ino
            };
            let short = link(b"short", "/x/../".repeat(20) + "file");
            let long = link(b"long", "/x/../".repeat(100) + "file");
            Volume { vfs, file, short, long }
        }

        /// Returns when so many requests wait.
        fn wait_for(&self, waiting: usize) {
            while Links::of(&self.vfs).layer.turns.waiting() != waiting {
                thread::yield_now();
            }
        }

        fn size(&self, ino: Ino) -> Result<u64> {
            Ok(self.vfs.attributes(ino)?.size)
        }
    }

    fn asks(uid: u32) -> weft_vfs::Asking {
        Asker::user(&Credentials { uid, gid: uid, groups: vec![] }).asks()
    }

    /// Attack: one user asks for many links that are long to resolve. Each held the lock of all
    /// requests, and all of them came before whoever asked next.
    #[test]
    fn of_all_long_resolvings_one_at_most_holds_up_other_requests() {
        let volume = Volume::new();
        let links = Links::of(&volume.vfs);
        let turn = links.take_turn().expect("nobody has it");
        thread::scope(|scope| {
            let many: Vec<_> = (0..MANY)
                .map(|_| {
                    scope.spawn(|| {
                        let _asking = asks(7);
                        volume.size(volume.long)
                    })
                })
                .collect();
            volume.wait_for(MANY);
            // They have the lock no more: others, and what is short, go on.
            {
                let _asking = asks(8);
                assert_eq!(volume.size(volume.file).expect("told"), 4);
                assert_eq!(volume.size(volume.short).expect("told"), 4);
                assert!(volume.vfs.lookup(Caller::ROOT, Ino::ROOT, b"nothing").is_err());
                assert!(!volume.vfs.read_directory(Ino::ROOT, weft_store::Cookie(0), 10).expect("listed").is_empty());
            }
            assert_eq!(links.layer.turns.waiting(), MANY);
            drop(turn);
            for one in many {
                assert_eq!(one.join().expect("no panic").expect("told"), 4);
            }
        });
    }

    #[test]
    fn who_waits_for_a_turn_can_be_interrupted() {
        let volume = Volume::new();
        let links = Links::of(&volume.vfs);
        let turn = links.take_turn().expect("nobody has it");
        let size = thread::scope(|scope| {
            let one = scope.spawn(|| {
                set_requester(Requester { user: 7, thread: None, number: Some(1), host: None });
                volume.size(volume.long)
            });
            volume.wait_for(1);
            links.interrupt(1);
            one.join().expect("no panic")
        });
        assert_eq!(size.expect_err("it ended").kind(), ErrorKind::Interrupted);
        assert_eq!(links.layer.turns.waiting(), 0);
        drop(turn);
        assert_eq!(volume.size(volume.long).expect("told"), 4);
    }

    #[test]
    fn what_changes_a_long_link_waits_before_and_sees_it_after() {
        let volume = Volume::new();
        let links = Links::of(&volume.vfs);
        let closed = SetAttributes { permissions: Some(0o400), ..SetAttributes::default() };
        let turn = links.take_turn().expect("nobody has it");
        let seen = thread::scope(|scope| {
            let one = scope.spawn(|| volume.vfs.set_attributes(volume.long, closed));
            volume.wait_for(1);
            drop(turn);
            one.join().expect("no panic").expect("set")
        });
        assert_eq!((seen.size, seen.permissions), (4, 0o400));
        let other = volume.vfs.link(Caller::ROOT, volume.long, Ino::ROOT, b"other").expect("linked");
        assert_eq!(other.size, 4);
    }

    #[test]
    fn users_take_turns_and_none_has_more_than_so_many_that_wait() {
        let mut queue = Queue::default();
        assert!(queue.take_at_once() && !queue.take_at_once());
        for user in [1, 1, 1, 2, 3] {
            assert!(queue.wait(user));
        }
        queue.leave(3);
        let mut order = Vec::new();
        while !queue.users.is_empty() {
            assert!([1, 2, 3].iter().all(|user| queue.take(*user).is_err()), "somebody has it");
            queue.is_taken = false;
            assert!(!queue.take_at_once(), "others came before");
            let next = [3, 2, 1].into_iter().find(|user| queue.take(*user).is_ok());
            order.push(next.expect("one is next"));
        }
        assert_eq!(order, [1, 2, 1, 1]);
        assert!((0..WAITING_MAX).all(|_| queue.wait(1)) && !queue.wait(1) && queue.wait(2));
        queue.is_taken = false;
        queue.rests_until = Some(Instant::now() + Duration::from_secs(60));
        assert!(queue.take(1).is_err(), "the lock rests");
    }
}
