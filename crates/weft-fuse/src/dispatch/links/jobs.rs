//! Notices that the kernel is to forget old content of links, and the threads that send them.
//!
//! A notice waits for reads of the content that it concerns, and a read of a link may take minutes.
//! Each person's notices hold up few threads, and threads are added as long as none is free: so
//! nobody waits for the reads of others.

use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Instant;
use weft_vfs::Ino;

/// Threads that one person's changes may hold up, and all together.
const OF_PERSON_MAX: usize = 4;
const ALL_MAX: usize = 64;

/// Threads that stay when there is nothing to send.
const KEPT: usize = 2;

/// A notice for a thread to send.
#[derive(Debug)]
pub(super) enum Job {
    /// All content of a link.
    Link(Ino),
    /// The same, repeated.
    Again(Ino),
    /// Some of the content of a file.
    Target(Ino, Range<u64>, Arc<AtomicBool>),
}

/// Sends the kernel a notice of a person.
type Tell = dyn Fn(&Jobs, u32, Job) + Send + Sync;

/// Notices to be sent.
pub(super) struct Jobs {
    queue: Mutex<Queue>,
    /// Signalled when there is a new one, or nothing more will come.
    more: Condvar,
    tell: Box<Tell>,
}

#[derive(Default)]
struct Queue {
    people: HashMap<u32, Person>,
    /// People whose next notice a thread may take, each once.
    ready: VecDeque<u32>,
    /// Links whose notices are queued, and files with the byte ranges of theirs.
    links: HashSet<Ino>,
    targets: HashMap<Ino, Range<u64>>,
    /// Notices to be repeated, by time, with their person.
    later: VecDeque<(Instant, u32, Ino)>,
    threads: usize,
    /// Threads of these that wait for a notice, and those that have not looked for one yet.
    idle: usize,
    starting: usize,
    has_ended: bool,
}

#[derive(Default)]
struct Person {
    waiting: VecDeque<Job>,
    /// Threads that send notices of this person.
    held: usize,
    is_ready: bool,
}

impl Queue {
    fn add(&mut self, person: u32, job: Job) {
        self.people.entry(person).or_default().waiting.push_back(job);
        self.look_at(person);
    }

    /// Notes if a thread may take the next notice of `person`.
    fn look_at(&mut self, person: u32) {
        let Some(of) = self.people.get_mut(&person) else { return };
        if of.waiting.is_empty() && of.held == 0 {
            self.people.remove(&person);
        } else if !of.is_ready && !of.waiting.is_empty() && of.held < OF_PERSON_MAX {
            of.is_ready = true;
            self.ready.push_back(person);
        }
    }

    /// Marks the notice of `job` as queued. True if it was already.
    fn has(&mut self, job: &Job) -> bool {
        match job {
            Job::Link(ino) => !self.links.insert(*ino),
            Job::Target(ino, range, _) => {
                let waiting = self.targets.get_mut(ino);
                let is_there = waiting.is_some();
                let wanted = waiting.map_or_else(
                    || range.clone(),
                    |waiting| waiting.start.min(range.start)..waiting.end.max(range.end),
                );
                self.targets.insert(*ino, wanted);
                is_there
            }
            Job::Again(_) => false,
        }
    }

    fn take(&mut self) -> Option<(u32, Job)> {
        let person = self.ready.pop_front()?;
        let of = self.people.get_mut(&person)?;
        of.is_ready = false;
        let mut job = of.waiting.pop_front()?;
        of.held += 1;
        match &mut job {
            Job::Link(ino) => drop(self.links.remove(ino)),
            Job::Target(ino, range, _) => *range = self.targets.remove(ino).unwrap_or(range.clone()),
            Job::Again(_) => {}
        }
        self.look_at(person);
        Some((person, job))
    }
}

impl Jobs {
    /// Starts sending notices by `tell`.
    pub(super) fn start(tell: Box<Tell>) -> io::Result<Arc<Jobs>> {
        let jobs = Arc::new(Jobs { queue: Mutex::default(), more: Condvar::new(), tell });
        {
            let mut queue = jobs.queue.lock();
            (queue.threads, queue.starting) = (1, 1);
        }
        jobs.start_thread()?;
        Ok(jobs)
    }

    fn start_thread(self: &Arc<Jobs>) -> io::Result<()> {
        let own = self.clone();
        thread::Builder::new().name("weft-links".into()).spawn(move || own.work()).map(drop)
    }

    /// Queues `job` of `person`. False if a notice of the same link or file is queued already.
    pub(super) fn put(self: &Arc<Jobs>, person: u32, job: Job) -> bool {
        let mut queue = self.queue.lock();
        if queue.has(&job) {
            return false;
        }
        queue.add(person, job);
        self.call(queue);
        true
    }

    /// Assigns a thread to a person whose notice is ready: a free one, or else a new one.
    fn call(self: &Arc<Jobs>, mut queue: MutexGuard<'_, Queue>) {
        if queue.ready.is_empty() {
            return;
        }
        // A thread that was woken, or started, and has not looked yet is free for one notice.
        let starts = queue.ready.len() > queue.idle + queue.starting && queue.threads < ALL_MAX;
        queue.threads += usize::from(starts);
        queue.starting += usize::from(starts);
        drop(queue);
        // If no thread can be started, those that exist send it later.
        if starts && self.start_thread().is_err() {
            let mut queue = self.queue.lock();
            queue.threads -= 1;
            queue.starting -= 1;
        }
        self.more.notify_one();
    }

    /// Queues another notice of link `ino` at time `when`, for `person`.
    pub(super) fn put_later(&self, when: Instant, person: u32, ino: Ino) {
        self.queue.lock().later.push_back((when, person, ino));
        self.more.notify_one();
    }

    /// Ends the sending.
    pub(super) fn end(&self) {
        self.queue.lock().has_ended = true;
        self.more.notify_all();
    }

    fn work(self: &Arc<Jobs>) {
        let mut queue = self.queue.lock();
        queue.starting -= 1;
        while let Some((person, job)) = self.next(queue) {
            (self.tell)(self, person, job);
            queue = self.queue.lock();
            if let Some(of) = queue.people.get_mut(&person) {
                of.held -= 1;
            }
            queue.look_at(person);
        }
    }

    /// Waits for the next notice; none if nothing more will come, or this thread is one too many.
    fn next(self: &Arc<Jobs>, mut queue: MutexGuard<'_, Queue>) -> Option<(u32, Job)> {
        loop {
            if queue.has_ended {
                return None;
            }
            let now = Instant::now();
            while let Some((_, person, ino)) = queue.later.pop_front_if(|(when, ..)| *when <= now) {
                queue.add(person, Job::Again(ino));
            }
            if let Some(job) = queue.take() {
                // It may hold this thread up, which counted as free when more notices were queued.
                self.call(queue);
                return Some(job);
            }
            if queue.threads > KEPT && queue.idle > 0 {
                queue.threads -= 1;
                return None;
            }
            queue.idle += 1;
            match queue.later.front().map(|(when, ..)| *when) {
                Some(when) => {
                    self.more.wait_until(&mut queue, when);
                }
                None => self.more.wait(&mut queue),
            }
            queue.idle -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn nobody_waits_for_what_another_person_holds_up() {
        let (told, tells) = channel();
        let gate = Arc::new(Mutex::new(()));
        let closed = gate.lock();
        let own = gate.clone();
        let tell = move |_: &Jobs, person: u32, job: Job| {
            if person == 1 {
                drop(own.lock());
            }
            told.send((person, job)).expect("somebody listens");
        };
        let jobs = Jobs::start(Box::new(tell)).expect("a thread");
        for ino in 1..=200 {
            assert!(jobs.put(1, Job::Link(Ino(ino))));
        }
        for ino in 201..=300 {
            jobs.put(2, Job::Link(Ino(ino)));
            assert!(matches!(tells.recv(), Ok((2, Job::Link(Ino(number)))) if number == ino));
        }
        // A queued notice is not sent twice.
        assert!(!jobs.put(3, Job::Link(Ino(150))));
        let target = |range| Job::Target(Ino(9), range, Arc::default());
        assert!(jobs.put(1, target(4..5)) && !jobs.put(1, target(7..8)) && !jobs.put(3, target(1..2)));
        {
            let queue = jobs.queue.lock();
            assert_eq!(queue.people[&1].held, OF_PERSON_MAX);
            assert!(queue.threads <= OF_PERSON_MAX + KEPT + 1, "{}", queue.threads);
        }
        drop(closed);
        let told: Vec<_> = tells.iter().take(201).collect();
        assert!(told.iter().all(|(person, _)| *person == 1));
        assert!(told.iter().any(|(_, job)| matches!(job, Job::Target(Ino(9), range, _) if *range == (1..8))));
        jobs.put_later(Instant::now(), 2, Ino(7));
        assert!(matches!(tells.recv(), Ok((2, Job::Again(Ino(7))))));
        jobs.end();
    }
}
